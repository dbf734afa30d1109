"""The steps of soft suppression and of merging; what they choose has no gradient."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou import _checks
from jaxiou._math import safe_divide
from jaxiou._scored import Scored, first_greatest, interact, like, positive, ranking, row, with_all
from jaxiou.pairing import Overlap, masked, take

Decay = Callable[..., Array]


def decay_by(decays: dict[str, Decay], method: str, given: Scored) -> Decay:
    """A decay in the type of the overlaps, in which thresholds are compared, cast for scores."""
    _checks.one_of("method", method, decays)

    def decay(o, *others):
        return decays[method](o, *(x.astype(o.dtype) for x in others)).astype(given.scores.dtype)

    return decay


SOFT_DECAYS: dict[str, Decay] = {
    "gaussian": lambda o, sigma, threshold: jnp.exp(-(o**2) / sigma),
    "linear": lambda o, sigma, threshold: jnp.where(o > threshold, 1 - o, 1),
}
"""What a score is multiplied by, for the overlap o with a better region."""


def soft_steps(
    given: Scored,
    settings: tuple[Array, ...],
    least: Array,
    decay: Decay,
    overlap: Overlap,
    length: int,
) -> tuple[Array, Array]:
    """The places of what is taken, in order, and its lowered scores; -inf behind the last."""
    overlaps = with_all(given, overlap)
    places = given.places

    def step(left, _):
        best, score = first_greatest(left)
        live = left > -jnp.inf
        lowered = jnp.where(live, left, 0) * decay(positive(*overlaps(best)), *settings)
        stays = live & (places != best) & (lowered >= least)
        return jnp.where(stays, lowered, -jnp.inf), (best, score)

    return jax.lax.scan(step, given.scores, length=length)[1]


MATRIX_DECAYS: dict[str, Decay] = {
    "gaussian": lambda o, c, sigma: jnp.exp(-sigma * (o**2 - c**2)),
    "linear": lambda o, c, sigma: jnp.where(c < 1, (1 - o) / jnp.where(c < 1, 1 - c, 1), 1),
}
"""The decay of the overlap o over that of the compensation c, or 1 where that is 0."""


def decided(given: Scored, table: Array, quotient: Decay, sigma: Array) -> Array:
    """Scores by the least quotient of decays in each column, of those two overlaps alone.

    It looks for their places: the gradient of a maximum looks for a number equal to it, and
    may find none, as XLA computes one number in two loops with different rounding.
    """

    def at(x, rows):
        return jnp.take_along_axis(x, rows[None], axis=0, mode="clip")[0]

    compensation = at(table, jax.lax.argmax(table, 0, jnp.int32))
    quotients = quotient(*jax.lax.stop_gradient((table, compensation[:, None], sigma)))
    rows = jax.lax.argmin(quotients, 0, jnp.int32)
    return given.scores * quotient(at(table, rows), jnp.take(compensation, rows), sigma)


class Groups(NamedTuple):
    """Which regions become one.

    Attributes:
      best: the best region of each group, int32 `[L]`.
      valid: bool, `[L]`; which groups there are.
      of: the group of each region, int32 `[N]`; L for those that are in none.
    """

    best: Array
    valid: Array
    of: Array

    @property
    def member(self) -> Array:
        return self.of < self.valid.shape[0]

    def take_best(self, given: Scored) -> Scored:
        return given.take(self.best, self.valid)

    def spread(self, x: Array) -> Array:
        """To each region what belongs to its group, 0 for those that are in none."""
        return take(x, self.of, self.member, 0)

    def sum(self, x: Array) -> Array:
        zeros = jnp.zeros((self.valid.shape[0], *x.shape[1:]), x.dtype)
        return zeros.at[self.of].add(x, mode="drop")

    def reduce(self, merge: Callable[[Array, Array], Array], x: Array) -> Array:
        """All members of each group merged, in rounds: of rows sorted by group, each takes in
        what the row before it is, then the row two before, four, and so on.
        """
        places = jnp.arange(self.of.shape[0], dtype=jnp.int32)
        of, order = jax.lax.sort((self.of, places), num_keys=1)

        def step(x, distance):
            alike = (jnp.roll(of, distance) == of) & (places >= distance)
            both = jax.vmap(merge)(jnp.roll(x, distance, axis=0), x)
            return jnp.where(like(alike, x), both, x), None

        distances = 2 ** jnp.arange((places.size - 1).bit_length(), dtype=jnp.int32)
        merged, _ = jax.lax.scan(step, jnp.take(x, order, axis=0), distances)
        last = jnp.cumsum(self.sum(self.member.astype(jnp.int32)), dtype=jnp.int32) - 1
        return take(merged, last, self.valid, 0)


def suppressed(given: Scored, threshold: Array, overlap: Overlap, length: int) -> Groups:
    """Each region in the group of the one that suppresses it, if any does."""
    overlaps = with_all(given, overlap)
    places = given.places

    def step(state, group):
        left, of = state
        best, score = first_greatest(left)
        o, counts = overlaps(best)
        joins = (left > -jnp.inf) & ((counts & (o > threshold.astype(o.dtype))) | (places == best))
        return (jnp.where(joins, -jnp.inf, left), jnp.where(joins, group, of)), (best, score)

    none = jnp.full_like(given.scores, length, jnp.int32)
    groups = jnp.arange(length, dtype=jnp.int32)
    (_, of), (best, score) = jax.lax.scan(step, (given.scores, none), groups)
    return Groups(best, score > -jnp.inf, of)


def clusters(given: Scored, threshold: Array, overlap: Overlap, length: int) -> Groups:
    """Each region in the cluster whose mean it overlaps most when its turn comes."""
    order = ranking(given.scores, given.places)
    ordered = jax.tree.map(lambda x: jnp.take(x, order, axis=0), given)
    ordered = ordered._replace(regions=masked(ordered.regions, ordered.known))
    axis = 1 if given.regions.ndim == 2 else 0
    others = tuple(i for i in range(given.regions.ndim) if i != axis)
    overlaps = jax.vmap(overlap, (axis, None))
    slots = jnp.arange(length, dtype=jnp.int32)

    def partners(clusters, one):
        o = overlaps(clusters.regions, one.regions)
        return jnp.where(interact(clusters, one) & (o > threshold.astype(o.dtype)), o, -jnp.inf)

    def step(state, rows):
        clusters, begun, o = state  # the clusters' means, and the sums of their scores
        one, following = rows
        best, greatest = first_greatest(o)
        begins, live = greatest == -jnp.inf, one.scores > -jnp.inf
        score = jnp.where(live, one.scores, 0)
        slot = jnp.where(live, jnp.where(begins, begun, best), length)
        here = slots == slot

        total = clusters.scores + score
        share = jnp.where(begins, 1, safe_divide(score, total))
        step_to = jnp.expand_dims(one.regions, axis) - clusters.regions
        means = clusters.regions + jnp.expand_dims(share, others) * step_to
        clusters = Scored(
            jnp.where(jnp.expand_dims(here, others), means, clusters.regions),
            jnp.where(here, total, clusters.scores),
            jnp.where(here, one.known, clusters.known),
            None if one.labels is None else jnp.where(here, one.labels, clusters.labels),
        )
        begins &= live
        begun += begins.astype(jnp.int32)
        state = clusters, begun, partners(clusters, following)
        return state, (jnp.minimum(slot, length), begins)

    none = jax.tree.map(lambda x: jnp.zeros_like(x[:length]), ordered)
    none = none._replace(regions=jnp.moveaxis(none.regions, 0, axis))
    following = jax.tree.map(lambda x: jnp.roll(x, -1, axis=0), ordered)
    start = none, jnp.zeros_like(order[0]), partners(none, row(ordered, 0))
    (_, begun, _), (slot, begins) = jax.lax.scan(step, start, (ordered, following))
    best = jnp.zeros_like(order[:length])
    best = best.at[jnp.where(begins, slot, length)].set(order, mode="drop")
    of = jnp.zeros_like(order).at[order].set(slot)
    return Groups(best, slots < begun, of)


@jax.custom_jvp
def with_gradient_of(same: Array, value: Array) -> Array:
    """`value`, with the gradient of `same`, which is computed only if it is asked for."""
    return value


@with_gradient_of.defjvp
def with_gradient_of_jvp(primals, tangents):
    return primals[1], tangents[0]
