"""Convex polygons `[..., V, 2]`: areas and overlaps.

What holds for every function here, and is not repeated below:

- **Format.** Vertices `(x, y)` in order around the polygon, either way. Polygons of fewer
  vertices repeat their last one, which adds no area: `pad` and `pack` do that. V may differ
  between the two arguments.
- **Convexity** is taken for granted and not checked, but by `check_values`. Vertices may lie on
  an edge. What is not convex gets a number without a meaning.
- **Types and shapes** are those of `boxes`; one region is two trailing axes, which the overlaps
  tell `pairwise` and others by `region_rank = 2`.
- **Empty polygons**, of one point or on one line, have area 0 and IoU 0 with every polygon.
- **NaN** in a polygon makes its own results NaN, and no others.
- **Accuracy.** IoU within 1e-6 of float64; coordinates are taken relative to the middle of
  both polygons first. `f(a, b)` equals `f(b, a)` bit for bit.
- **Gradients** are finite: those of areas are lengths and moments of edges, not derivatives of
  crossing points. Where edges coincide exactly, the mean of the one-sided slopes is returned;
  polygons that only touch count as apart.

The work grows with the product of the two numbers of vertices.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Real

from jaxiou import _checks
from jaxiou._compiled import compiled, overlap
from jaxiou._math import carry_nan, never_negative, product, safe_divide
from jaxiou._typing import ArrayLike

__all__ = [
    "area",
    "intersection",
    "union",
    "iou",
    "ioa",
    "pad",
    "pack",
    "check_values",
]


@compiled()
def area(regions: Real[ArrayLike, "*batch v 2"]) -> Float[Array, "*batch"]:
    """Area of each polygon.

    Args:
      regions: polygons, `[..., V, 2]`; for this function they need not be convex.

    Returns:
      `[...]`, in squared units of length, at least 0, in whichever sense the vertices run.

    Gradient:
      By a vertex, half the vector from the one before to the one after, turned by a quarter.
      Of a polygon without area, 0.

    Example:
      >>> print(area(jnp.array([[0, 0], [4, 0], [4, 3], [4, 3]])))
      6.0
    """
    (points,) = _cast(regions=regions)
    return _over_leading(lambda p: _area(*_oriented(*_columns(p))), points)


@overlap(region_rank=2)
def intersection(
    a: Real[ArrayLike, "*#batch n 2"], b: Real[ArrayLike, "*#batch m 2"]
) -> Float[Array, "*batch"]:
    """Area that two convex polygons share.

    Args:
      a: polygons, `[..., N, 2]`.
      b: polygons, `[..., M, 2]`; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, at least 0 and at most the smaller polygon's.

    Gradient:
      By a vertex, what its two edges sweep within the other polygon.

    Example:
      >>> square = jnp.array([[0, 0], [2, 0], [2, 2], [0, 2]])
      >>> print(intersection(square, jnp.array([[0, 0], [4, 0], [0, 4]])))
      4.0
    """
    return _pair(_shared, a, b)


@overlap(region_rank=2)
def union(
    a: Real[ArrayLike, "*#batch n 2"], b: Real[ArrayLike, "*#batch m 2"]
) -> Float[Array, "*batch"]:
    """Area that two convex polygons cover together.

    Args:
      a: polygons, `[..., N, 2]`.
      b: polygons, `[..., M, 2]`; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, never below `intersection(a, b)`.

    Gradient:
      That of the areas less that of `intersection`.

    Example:
      >>> square = jnp.array([[0, 0], [2, 0], [2, 2], [0, 2]])
      >>> print(union(square, jnp.array([[0, 0], [4, 0], [0, 4]])))
      8.0
    """
    return _pair(lambda a, b: _areas(a, b)[1], a, b)


@overlap(region_rank=2)
def iou(
    a: Real[ArrayLike, "*#batch n 2"], b: Real[ArrayLike, "*#batch m 2"]
) -> Float[Array, "*batch"]:
    r"""Intersection over union (Jaccard index): shared area over covered area.

    .. math:: \mathrm{IoU} = |A \cap B| / |A \cup B|

    Args:
      a: polygons, `[..., N, 2]`.
      b: polygons, `[..., M, 2]`; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. A polygon with itself gives exactly 1, and 1
      within rounding if some vertices lie on its edges or it starts at another vertex.

    At the edges:
      Polygons without area and disjoint ones give 0; touching ones 0 or up to 1e-7.

    Gradient:
      0 for disjoint polygons; for equal ones 0 within rounding.

    Example:
      >>> square = jnp.array([[0, 0], [2, 0], [2, 2], [0, 2]])
      >>> print(iou(square, jnp.array([[0, 0], [4, 0], [0, 4]])))
      0.5

    Reference:
      Sutherland and Hodgman, "Reentrant Polygon Clipping", Communications of the ACM 1974.
    """
    return _pair(_iou, a, b)


@overlap(region_rank=2)
def ioa(
    a: Real[ArrayLike, "*#batch n 2"], b: Real[ArrayLike, "*#batch m 2"]
) -> Float[Array, "*batch"]:
    """Intersection over area: how much of `a` lies within `b`. It has a direction.

    Args:
      a: polygons, `[..., N, 2]`, whose area is divided by.
      b: polygons, `[..., M, 2]`; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means `a` lies within `b`.

    At the edges:
      0 where `a` has no area.

    Gradient:
      That of `intersection` over the area.

    Example:
      >>> square = jnp.array([[0, 0], [2, 0], [2, 2], [0, 2]])
      >>> print(ioa(square, jnp.array([[0, 0], [4, 0], [0, 4]])))
      1.0

    Reference:
      Sutherland and Hodgman, "Reentrant Polygon Clipping", Communications of the ACM, 1974.
    """
    return _pair(lambda a, b: safe_divide(_shared(a, b), _area(*a)), a, b)


@compiled()
def pad(
    regions: Real[ArrayLike, "*batch v 2"], counts: Integer[ArrayLike, "*batch"]
) -> Float[Array, "*batch v 2"]:
    """Polygons whose vertices from a count on repeat the last one before.

    Args:
      regions: polygons, `[..., V, 2]`; what comes after `counts` vertices may be anything.
      counts: how many vertices each has, `[...]`, integers from 1 to V.

    Returns:
      Polygons, `[..., V, 2]`.

    Gradient:
      1 by the vertices that count; what is repeated has that of its source.

    Example:
      >>> print(pad(jnp.array([[0, 0], [4, 0], [4, 3], [9, 9]]), jnp.array(3)).tolist())
      [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [4.0, 3.0]]
    """
    (points,) = _cast(regions=regions)
    _checks.is_array("counts", counts)
    _checks.is_integer("counts", counts)
    _checks.exact_shape("counts", counts, points.shape[:-2], "one count a polygon")
    places = jnp.arange(points.shape[-2], dtype=jnp.int32)
    last = jnp.maximum(jnp.asarray(counts).astype(jnp.int32), 1) - 1
    sources = jnp.minimum(places.reshape((1,) * last.ndim + (-1,)), last[..., None])
    return jnp.take_along_axis(points, sources[..., None], axis=-2, mode="clip")


def pack(
    regions: Sequence[Real[ArrayLike, "_ 2"]], *, max_vertices: int | None = None
) -> Float[Array, "n v 2"]:
    """A list of polygons of any numbers of vertices as one array; for use on the host.

    Args:
      regions: arrays of vertices, `[V_i, 2]`, V_i at least 1.
      max_vertices: V; None takes the greatest V_i, and 1 for an empty list.

    Returns:
      Polygons, `[N, V, 2]`, padded by repeating the last vertex of each.

    Raises:
      ValueError: a polygon without vertices, of another shape, or with more than V.

    Example:
      >>> print(pack([np.eye(2), np.zeros((3, 2))]).shape)
      (2, 3, 2)
    """
    rows = [np.asarray(p) for p in regions]
    for i, row in enumerate(rows):
        _checks.exact_shape(f"regions[{i}]", row, (max(len(row), 1), 2), "vertices (x, y)")
    most = max([len(row) for row in rows], default=1)
    size = most if max_vertices is None else max_vertices
    _checks.count("max_vertices", size, least=most)
    padded = [np.concatenate([row, np.repeat(row[-1:], size - len(row), 0)]) for row in rows]
    dtype = _checks.working_dtype(*rows)
    array = np.stack(padded).astype(dtype) if rows else np.zeros((0, size, 2), dtype)
    return jnp.asarray(array)


def check_values(
    regions: Real[ArrayLike, "*batch v 2"], *, where: Bool[ArrayLike, "*batch"] | None = None
) -> None:
    """Raises ValueError naming the first polygon that is not convex; for use on the host.

    Args:
      regions: polygons, `[..., V, 2]`.
      where: bool, `[...]`; polygons where it is False are not looked at.

    Raises:
      ValueError: a polygon with NaN, infinity, no area, a dent, or edges that cross; says which
        and how many.
      TypeError: under `jit`, where there are no values to look at.

    Example:
      >>> check_values(jnp.array([[0, 0], [4, 0], [1, 1], [0, 4]]))
      Traceback (most recent call last):
      ...
      ValueError: regions is not convex (1 of 1 polygons is invalid)
    """
    _checks.is_concrete("regions", regions)
    _checks.are_regions((None, 2), "the vertices of one polygon", regions=regions)
    points = np.asarray(regions, np.float64)
    finite = np.asarray(np.isfinite(points).all(axis=(-2, -1)))
    flat = np.where(finite[..., None, None], points, 0).reshape(-1, *points.shape[-2:])
    reasons = np.array([_fault(p) for p in flat], object).reshape(finite.shape)
    reasons[~finite] = "has numbers that are not finite"
    bad = np.asarray(reasons.astype(bool))
    if where is not None:
        _checks.is_concrete("where", where)
        _checks.mask("where", where, bad.shape)
        bad = bad & np.asarray(where)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    count = f"{bad.sum()} of {bad.size} polygons {'is' if bad.sum() == 1 else 'are'} invalid"
    raise ValueError(f"regions{place} {reasons[index]} ({count})")


def _fault(points: np.ndarray) -> str:
    """What keeps a polygon from being convex, in float64; empty if nothing does."""
    edges = np.roll(points, -1, axis=0) - points
    edges = edges[(edges != 0).any(axis=1)]
    if len(edges) < 3:
        return "has no area"
    following = np.roll(edges, -1, axis=0)
    turns = edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0]
    lengths = np.hypot(*edges.T)
    # Vertices on an edge may lie beside it by the rounding of float32.
    slack = 1e-5 * lengths * np.roll(lengths, -1)
    if (np.abs(turns) <= slack).all():
        return "has no area"
    angles = np.arctan2(turns, (edges * following).sum(axis=1))
    once = abs(abs(angles.sum()) - 2 * np.pi) < 0.1
    return "" if once and ((turns >= -slack).all() or (turns <= slack).all()) else "is not convex"


Columns = tuple[Array, Array]
"""The x and y of a polygon's vertices, `[V]` each."""


def _cast(**regions: ArrayLike) -> tuple[Array, ...]:
    return _checks.regions((None, 2), "the vertices of one polygon", **regions)


def _columns(points: Array) -> Columns:
    x, y = jax.lax.split(points, (1, 1), axis=1)
    return x[:, 0], y[:, 0]


def _over_leading(function, *arrays: Array) -> Array:
    """`function` of single regions over leading axes, which broadcast."""
    leading = arrays[0].ndim - 2
    for axis in reversed(range(leading)):
        sizes = [x.shape[axis] for x in arrays]
        if all(size == 1 for size in sizes):
            axes: list[int | None] = [0] * len(arrays)
        else:
            axes = [None if size == 1 else 0 for size in sizes]
            arrays = tuple(
                x.squeeze(axis) if a is None else x for x, a in zip(arrays, axes, strict=True)
            )
        function = jax.vmap(function, axes)
    return function(*arrays)


def _pair(function, a: ArrayLike, b: ArrayLike) -> Array:
    """`function` of two polygons that run from +x towards +y around the origin."""

    def of_one(a, b):
        (ax, ay), (bx, by) = _columns(a), _columns(b)

        def middle(s, t):
            low, high = jnp.minimum(s.min(), t.min()), jnp.maximum(s.max(), t.max())
            return jax.lax.stop_gradient(low / 2 + high / 2)

        x, y = middle(ax, bx), middle(ay, by)
        first, second = _oriented(ax - x, ay - y), _oriented(bx - x, by - y)
        spoiled = 0 * ((ax.sum() + ay.sum()) + (bx.sum() + by.sum()))
        return carry_nan(function(first, second), jax.lax.stop_gradient(spoiled))

    return _over_leading(of_one, *_cast(a=a, b=b))


def _cross(ax: Array, ay: Array, bx: Array, by: Array) -> Array:
    """Rounded alike wherever it is computed, and 0 for two equal vectors."""
    return product(ax, by) - product(ay, bx)


def _signed_area(x: Array, y: Array) -> Array:
    dx, dy = x - x[:1], y - y[:1]
    return _cross(dx[:-1], dy[:-1], dx[1:], dy[1:]).sum() / 2


def _oriented(x: Array, y: Array) -> Columns:
    backwards = _signed_area(x, y) < 0
    return jnp.where(backwards, x[::-1], x), jnp.where(backwards, y[::-1], y)


def _area(x: Array, y: Array) -> Array:
    return never_negative(_signed_area(x, y))


def _areas(a: Columns, b: Columns) -> tuple[Array, Array]:
    """The shared area, and that of both together."""
    shared = _shared(a, b)
    first, second = _area(*_slots(a, b)), _area(*_slots(b, a))
    smaller, larger = jnp.minimum(first, second), jnp.maximum(first, second)
    return shared, larger + (smaller - shared)


def _iou(a: Columns, b: Columns) -> Array:
    return safe_divide(*_areas(a, b))


def _slots(a: Columns, b: Columns) -> Columns:
    """`a` with room for a vertex more for each edge of `b`."""
    x, y = (jnp.concatenate([z, jnp.broadcast_to(z[-1:], b[0].shape)]) for z in a)
    return x, y


@jax.custom_jvp
def _shared(a: Columns, b: Columns) -> Array:
    """The shared area, the mean of `a` clipped by `b` and `b` clipped by `a`."""
    value = (_clipped_area(a, b) + _clipped_area(b, a)) / 2
    smaller = jnp.minimum(_area(*_slots(a, b)), _area(*_slots(b, a)))
    return jnp.minimum(value, smaller)


def _clipped_area(a: Columns, b: Columns) -> Array:
    """Area of what Sutherland and Hodgman's clipping leaves of `a`.

    What a half plane keeps of a convex polygon is one cyclic run of vertices, so a gather that
    starts at its first one makes room for the two points where the polygon was cut.
    """
    (x, y), (bx, by) = _slots(a, b), b
    places = jnp.arange(x.size, dtype=jnp.int32)

    def clip(state, line):
        x, y, count = state
        ox, oy, ex, ey = line
        side = _cross(ex, ey, x - ox, y - oy)
        used = places < count
        within = used & (side >= 0)
        kept = within.sum(dtype=jnp.int32)
        before = jnp.where(places == 0, within[jnp.maximum(count - 1, 0)], jnp.roll(within, 1))
        first = jax.lax.argmax(within & ~before, 0, jnp.int32)
        # The last vertex that is cut off comes first, then those that are kept.
        source = jnp.remainder(first + places - 1 + count, count)
        px, py, s = (jnp.take(z, source, mode="clip") for z in (x, y, side))
        qx, qy, t = (jnp.roll(z, -1) for z in (px, py, s))
        share = safe_divide(s, s - t)
        cut_x, cut_y = px + share * (qx - px), py + share * (qy - py)

        def result(points, cut):
            end = jnp.take(cut, kept, mode="clip")
            return jnp.where(places == 0, cut, jnp.where(places <= kept, points, end))

        whole, none = kept == count, kept == 0
        new_x = jnp.where(whole, x, jnp.where(none, x[0], result(px, cut_x)))
        new_y = jnp.where(whole, y, jnp.where(none, y[0], result(py, cut_y)))
        count = jnp.where(whole | none, count, jnp.minimum(kept + 2, x.size))
        return (new_x, new_y, count), None

    count = jnp.full_like(places[0], a[0].size)
    lines = bx, by, jnp.roll(bx, -1) - bx, jnp.roll(by, -1) - by
    state = x, y, count
    for i in range(bx.size):
        state, _ = clip(state, [z[i] for z in lines])
    return _area(state[0], state[1])


@_shared.defjvp
def _shared_jvp(primals, tangents):
    (a, b), (da, db) = primals, tangents
    return _shared(a, b), _swept(a, da, b) + _swept(b, db, a)


def _swept(a: Columns, da: Columns, b: Columns) -> Array:
    """What the edges of `a` sweep within `b`: the flux of the moving boundary."""
    (px, py), (dpx, dpy) = a, da
    qx, qy, dqx, dqy = (jnp.roll(z, -1) for z in (px, py, dpx, dpy))
    ex, ey = (jnp.roll(z, -1) - z for z in b)
    ox, oy = b

    def sides(x, y):
        """On which side of each edge of `b`: rows are points."""
        return _cross(ex[None], ey[None], x[:, None] - ox[None], y[:, None] - oy[None])

    s, t = sides(px, py), sides(qx, qy)
    crossing = safe_divide(s, s - t)
    enters, leaves = (s < 0) & (t >= 0), (s >= 0) & (t < 0)
    t0 = jnp.where(enters, crossing, 0).max(axis=1)
    t1 = jnp.where(leaves, crossing, jnp.where((s < 0) & (t < 0), 0, 1)).min(axis=1)
    t1 = jnp.maximum(t0, t1)
    # Edges that coincide and run alike count by half in both polygons; opposite ones touch.
    runs = (qx - px)[:, None] * ex[None] + (qy - py)[:, None] * ey[None]
    along = (s == 0) & (t == 0) & ((ex != 0) | (ey != 0))[None]
    weight = jnp.where(along, jnp.where(runs > 0, 0.5, 0), 1).astype(s.dtype).min(axis=1)
    weight = jnp.where(_area(*b) > 0, weight, 0)
    q = weight * (t1 - t0) * (t1 + t0) / 2
    p = weight * (t1 - t0) - q
    return ((dpx * p + dqx * q) * (qy - py) - (dpy * p + dqy * q) * (qx - px)).sum()
