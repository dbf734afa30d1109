"""KITTI's object benchmark: average precision in the image, from above and in space, and AOS.

What holds here, and is not repeated below:

- **Classes** are Car, Pedestrian and Cyclist, each at three difficulties, easy, moderate and hard,
  which are an axis of length 3. A truth counts if it is of the class, high enough, and neither
  too occluded nor too truncated for the difficulty. One that is too hard, and one of the class
  that is alike (Van, Person_sitting), need not be found, but takes a detection with it.
- **Truths choose**, in the order of their file, among the detections that nobody took yet. First
  (`evaluate`) each takes the highest score; the scores of right detections give up to 41
  thresholds (`choose_thresholds`). Then, at every threshold (`accumulate`), each takes the
  largest overlap. Average precision (`summarize`) is a mean over 11 or over 40 of the 41 entries.
- **Measures** differ in the overlap alone, but for the image: there, detections within a
  DontCare region are no false positives, and the orientation is scored.

`average_precision` is all of it on the host, in float64, equal to the benchmark to the last bit;
of the orientation, to the last bit of a cosine.
"""

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Real

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._math import per_pair, safe_divide
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact, _pairs
from jaxiou.detection._kitti import (
    CLASSES,
    DIFFICULTIES,
    MEASURES,
    MINIMUM,
    POINTS,
    TYPES,
    Counts,
    Detections,
    Found,
    GroundTruth,
    Measure,
    Result,
    Scores,
    Table,
    Truth,
    first_largest,
    shares_of,
    task_of,
)
from jaxiou.detection._kitti_rows import (
    Some,
    along,
    by_image,
    shares_of_rows,
    some_of,
    states_of_classes,
    that_may_meet,
)
from jaxiou.detection._pairs import Pairs, Sides
from jaxiou.pairing import Overlap

__all__ = [
    "evaluate",
    "choose_thresholds",
    "accumulate",
    "summarize",
    "average_precision",
    "CLASSES",
    "DIFFICULTIES",
    "MEASURES",
    "TYPES",
    "MINIMUM",
    "Detections",
    "GroundTruth",
    "Table",
    "Found",
    "Counts",
    "Scores",
    "Result",
]


@compiled(static=("measure", "overlap"))
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    label: Int[ArrayLike, ""] | int,
    measure: Measure = "image",
    minimum: Real[ArrayLike, ""] | float | None = None,
    overlap: Overlap | None = None,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Found:
    """The first pass: truths of one class take detections by score.

    Args:
      detections: of images, `[..., D]`.
      truths: of the same images, `[..., G]`.
      label: the class, a place in `CLASSES`; an integer, which may be traced.
      measure: which regions are compared: those in the image, or the cuboids.
      minimum: what an overlap must exceed; None takes it from `MINIMUM["strict"]`.
      overlap: a function of two regions; None takes `boxes.iou`, `cuboids.bev_iou` or
        `cuboids.iou`.
      overlaps: its table, `[..., D, G]`, in place of it.

    Returns:
      `Found`. The scores of all images, of one difficulty, are what `choose_thresholds` takes.

    Raises:
      ValueError: arrays whose shapes do not belong together; cuboids that are needed and None.

    At the edges:
      Equal scores: the first detection. A NaN overlap takes nothing. No detections or truths:
      nothing is found.

    Example:
      >>> box = np.array([[0.0, 0.0, 50.0, 50.0]])
      >>> car, there, zero = np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1)
      >>> found = evaluate(
      ...     Detections(box, np.array([0.9]), car, there),
      ...     GroundTruth(box, car, there, occlusions=zero, truncations=zero),
      ...     label=0,
      ... )
      >>> print(found.scores.tolist()[0], found.counts.tolist()[0])
      [0.8999999761581421] [True]

    Reference:
      Geiger, Lenz, Urtasun, "Are we ready for Autonomous Driving? The KITTI Vision Benchmark
      Suite", CVPR 2012, https://www.cvlibs.net/datasets/kitti/eval_object.php, and its devkit.
    """
    task = task_of(detections, truths, label, measure, minimum, overlap, overlaps)

    def step(used: Array, truth: Truth) -> tuple[Array, Array]:
        free = truth.near & ~used
        taken = first_largest(free, task.scores)
        right = taken & (task.detection_states == 0) & (truth.state == 0)[..., None]
        score = jnp.where(right, task.scores, -jnp.inf).max(axis=-1, initial=-jnp.inf)
        return used | taken, score

    used = jnp.zeros_like(task.detection_states, bool)
    _, scores = jax.lax.scan(step, used, task.truths)
    return Found(jnp.moveaxis(scores, 0, -1), task.truth_states == 0)


@compiled()
def choose_thresholds(
    scores: Real[ArrayLike, "*batch n"], num_truths: Int[ArrayLike, "*batch"]
) -> Float[Array, "*batch 41"]:
    """The scores at which precision is measured, about evenly spread over recall.

    Of the sorted scores, number i brings the recall to `(i + 1) / num_truths`. One is kept if
    the next would be farther from the recall that is due, which grows by 1/40 with each.

    Args:
      scores: of right detections, of all images, `[..., N]`; -inf where there is none.
      num_truths: that have to be found, integers `[...]`.

    Returns:
      `[..., 41]`, falling, and inf beyond the last.

    At the edges:
      The last score is always kept. Without scores: inf. A score that is as far from what is due
      as its next is kept or not as rounding has it: in float32 other ones than in float64.

    Example:
      >>> print(choose_thresholds(jnp.array([0.5, 0.9]), jnp.array(2))[:3])
      [0.9 0.5 inf]
    """
    _checks.is_array("scores", scores)
    _checks.is_real("scores", scores)
    _checks.is_array("num_truths", num_truths)
    _checks.exact_shape("num_truths", num_truths, scores.shape[:-1], "one for each row of scores")
    scores = jnp.asarray(scores).astype(_checks.working_dtype(scores))
    # One more, so that there is a last one.
    scores = jnp.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(0, 1)], constant_values=-jnp.inf)
    scores = -jnp.sort(-scores, axis=-1)
    last = (scores > -jnp.inf).sum(axis=-1, keepdims=True, dtype=jnp.int32) - 1
    place = jnp.arange(scores.shape[-1], dtype=jnp.int32).reshape((1,) * (scores.ndim - 1) + (-1,))
    total = jnp.maximum(num_truths, 1)[..., None].astype(scores.dtype)
    total = per_pair(total, scores)
    left = (place + 1).astype(scores.dtype) / total
    right = (place + 2).astype(scores.dtype) / total
    # Added up, as the benchmark does it: not every one is the nearest number to k / 40.
    added = np.concatenate([[0], np.cumsum(np.full(POINTS - 1, 1 / (POINTS - 1)))])
    due = jnp.asarray(added, scores.dtype).reshape((1,) * (scores.ndim - 1) + (POINTS, 1))
    early = right[..., None, :] - due < due - left[..., None, :]
    early &= (place < last)[..., None, :]
    # How many are skipped grows with what is due, and each place is kept once.
    first = early.sum(axis=-1, dtype=jnp.int32)
    step = jnp.arange(POINTS, dtype=jnp.int32).reshape((1,) * (scores.ndim - 1) + (-1,))
    kept = step + jax.lax.cummax(first - step, axis=scores.ndim - 1)
    chosen = jnp.take_along_axis(scores, jnp.minimum(kept, jnp.maximum(last, 0)), axis=-1)
    return jnp.where(kept <= last, chosen, jnp.inf)


@compiled(static=("measure", "overlap"))
def accumulate(
    detections: Detections,
    truths: GroundTruth,
    *,
    thresholds: Float[ArrayLike, "3 41"],
    label: Int[ArrayLike, ""] | int,
    measure: Measure = "image",
    minimum: Real[ArrayLike, ""] | float | None = None,
    overlap: Overlap | None = None,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
    shares: Real[ArrayLike, "*batch d"] | None = None,
) -> Counts:
    """The second pass: at every threshold, truths of one class take detections by overlap.

    Args:
      detections: of images, `[..., D]`.
      truths: of the same images, `[..., G]`.
      thresholds: for each difficulty, from `choose_thresholds`, `[3, 41]`.
      label: as in `evaluate`, and so the next four.
      measure: regions that are compared; for "image", DontCare regions and angles matter.
      minimum: what an overlap must exceed, and the share in a DontCare region, too.
      overlap: a function of two regions.
      overlaps: its table, `[..., D, G]`, in place of it.
      shares: how much of a detection's area lies in one DontCare region, at most, `[..., D]`;
        None takes `boxes.ioa`.

    Returns:
      `Counts` of each image, `[..., 3, 41]`: int32, and a sum of floats. Those of several
      images are added.

    Raises:
      ValueError: as `evaluate`, and thresholds of another shape.

    At the edges:
      Equal overlaps: the first detection. A truth takes a detection that is too low to count only
      if there is no other, and then the first of these. Such a detection, or a truth that need
      not be found, makes no true positive, but nothing is missed either. Where a threshold is
      inf, nothing is found, and no detection is wrong. The similarity is 0 for other measures
      than "image", and where angles are None.

    Example:
      >>> box = np.array([[0.0, 0.0, 50.0, 50.0]])
      >>> car, there, zero = np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1)
      >>> counts = accumulate(
      ...     Detections(box, np.array([0.9]), car, there),
      ...     GroundTruth(box, car, there, occlusions=zero, truncations=zero),
      ...     thresholds=np.full((3, 41), 0.5),
      ...     label=0,
      ... )
      >>> print(counts.tp[0, :3], counts.fp[0, :3])
      [1 1 1] [0 0 0]

    Reference:
      Geiger, Lenz, Urtasun, CVPR 2012, as in `evaluate`.
    """
    task = task_of(detections, truths, label, measure, minimum, overlap, overlaps)
    _checks.is_array("thresholds", thresholds)
    _checks.exact_shape("thresholds", thresholds, (3, POINTS), "difficulties, thresholds")
    limits = jnp.asarray(thresholds).astype(task.scores.dtype)
    rank = task.scores.ndim
    # [..., 3, 41, D]
    alive = task.scores[..., None, :] >= limits.reshape((1,) * (rank - 2) + (3, POINTS, 1))
    counts = (task.detection_states == 0)[..., None, :]
    order = jnp.arange(task.scores.shape[-1], dtype=limits.dtype).reshape((1,) * rank + (-1,))

    def step(carry: Any, truth: Truth) -> tuple[Any, None]:
        used, tp, fn, similarity = carry
        free = truth.near[..., None, :] & alive & ~used
        taken = first_largest(free, jnp.where(counts, truth.overlaps[..., None, :], -1 - order))
        required = (truth.state == 0)[..., None]
        right = taken & counts & required[..., None]
        tp += right.any(axis=-1).astype(jnp.int32)
        fn += (required & ~taken.any(axis=-1)).astype(jnp.int32)
        likeness = jnp.where(right, truth.likeness[..., None, :], 0)
        return (used | taken, tp, fn, similarity + likeness.sum(axis=-1)), None

    used = jnp.zeros_like(alive)
    zero = used.sum(axis=-1, dtype=jnp.int32)
    start = used, zero, zero, zero.astype(limits.dtype)
    (used, tp, fn, similarity), _ = jax.lax.scan(step, start, task.truths)
    wrong = alive & counts & ~used
    if measure == "image":
        if shares is None:
            shares = shares_of(detections, truths)
        wrong &= ~(jnp.asarray(shares) > task.minimum)[..., None, None, :]
    return Counts(tp, wrong.sum(axis=-1, dtype=jnp.int32), fn, similarity)


@compiled()
def summarize(counts: Counts) -> Scores:
    """The scores of the benchmark from the counts of all images.

    Args:
      counts: the sums over images, `[..., 41]`; any leading axes.

    Returns:
      `Scores`, in [0, 1]. 1 is best, and out of reach for fewer than 41 truths: of n that are
      all found, only n entries are 1.

    At the edges:
      Where nothing counts, a threshold beyond the last one included, the precision is 0.

    Gradient:
      That of the similarities, at the largest entry of those that follow.

    Example:
      >>> ones = jnp.ones(41, jnp.int32)
      >>> scores = summarize(Counts(ones, ones, 0 * ones, jnp.ones(41)))
      >>> print(scores.r11, scores.r40)
      0.5 0.5

    Reference:
      Simonelli et al., "Disentangling Monocular 3D Object Detection", ICCV 2019,
      https://arxiv.org/abs/1905.12365, for R40, which the benchmark has since then.
    """
    for name, x in counts._asdict().items():
        _checks.is_array(name, x)
        _checks.trailing_shape(name, x, (POINTS,), "thresholds")
    dtype = _checks.working_dtype(counts.similarity)
    tp, fp, _, similarity = (jnp.asarray(x).astype(dtype) for x in counts)
    curves = jnp.stack([safe_divide(x, tp + fp) for x in (tp, similarity)])
    curves = jax.lax.cummax(curves, axis=curves.ndim - 1, reverse=True)
    precision, likeness = curves
    return Scores(
        precision,
        likeness,
        *(x.mean(axis=-1) for curve in curves for x in (curve[..., ::4], curve[..., 1:])),
    )


def average_precision(
    table: Table,
    *,
    minimum: Literal["strict", "loose"] = "strict",
    measures: Sequence[Measure] = ("image", "bev", "3d"),
    overlap: Mapping[str, Overlap] | None = None,
    overlaps: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> Result:
    """All numbers of the benchmark for a data set, exactly as the benchmark has them.

    Args:
      table: of all images, from `readers.kitti.load`.
      minimum: which limits of `MINIMUM`.
      measures: what is measured; the orientation is, with "image".
      overlap: by measure, a function of two regions, where it is another than in `evaluate`.
      overlaps: by measure, for each image the table of its detections with its truths, in the
        order of their rows, DontCare regions included, `[D, G]`; comes before `overlap`.

    Returns:
      A `Result` in NumPy, float64, whatever the user's types are.

    Raises:
      TypeError: inside `jit`.
      ValueError: tables of another number or shape than images have rows; rows that belong to no
        image; a score that is not finite; an unknown measure.

    At the edges:
      What is not measured is NaN. A class without truths, or no image at all: 0. Where nothing
      counts at a threshold, the precision is 0, and not 0 / 0 as in the benchmark.

    Example:
      >>> box = np.array([[0.0, 0.0, 50.0, 50.0]])
      >>> car, there, zero = np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1)
      >>> found = Detections(box, np.array([0.9]), car, there)
      >>> truth = GroundTruth(box, car, there, occlusions=zero, truncations=zero)
      >>> result = average_precision(Table(found, car, truth, car, 1), measures=("image",))
      >>> print(result.r11[0, 0], result.r40[0, 0])
      [0.09090909 0.09090909 0.09090909] [0. 0. 0.]

    Reference:
      Geiger, Lenz, Urtasun, CVPR 2012, as in `evaluate`.
    """
    _exact.refuse_tracers(table=table, overlaps=overlaps)
    _checks.one_of("minimum", minimum, list(MINIMUM))
    for measure in measures:
        _checks.one_of("measures", measure, MEASURES[:3])
    table, sides = by_image(table)
    states = _exact.run(states_of_classes, table.detections, table.truths)
    oriented = table.detections.alphas is not None and table.truths.alphas is not None
    shape = (len(MEASURES), len(CLASSES), len(DIFFICULTIES))
    counted = np.zeros((*shape, POINTS), np.int64)
    result = Result(
        r11=np.full(shape, np.nan),
        r40=np.full(shape, np.nan),
        curves=np.full(counted.shape, np.nan),
        thresholds=np.full(counted.shape, np.inf),
        tp=counted.copy(),
        fp=counted.copy(),
        fn=counted.copy(),
        num_truths=np.stack([(truths == 0).sum(axis=1) for _, truths in states]),
    )
    pairs = that_may_meet(table, sides)
    for measure in measures:
        values = along(table, sides, pairs, measure, overlap or {}, overlaps or {})
        if values is None:
            continue
        shares = np.zeros(len(sides.first))
        if measure == "image":
            shares = shares_of_rows(table, sides)
        for label, limit in enumerate(MINIMUM[minimum][measure]):
            thresholds, counts = _count(table, sides, pairs, values, shares, label, limit, states)
            scores = _exact.run(summarize, counts)
            curves: dict[str, Any] = {measure: scores.precision}
            if measure == "image" and oriented:
                curves["aos"] = scores.similarity
            for name, curve in curves.items():
                means = (_mean(curve[:, ::4]), _mean(curve[:, 1:]))
                entries = (*means, curve, thresholds, counts.tp, counts.fp, counts.fn)
                for field, x in zip(result, entries, strict=False):
                    field[MEASURES.index(name), label] = x
    return result


def _count(
    table: Table,
    sides: Sides,
    pairs: Pairs,
    values: np.ndarray,
    shares: np.ndarray,
    label: int,
    minimum: float,
    states: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, Counts]:
    """Thresholds and counts of all images, `[3, 41]`, of one class by one measure.

    The passes see those rows alone that may take or be taken. For the others there is
    nothing to decide: such a detection is wrong, and such a truth is missed.
    """
    of_detections, of_truths = states[label]
    near = values > minimum
    near &= np.any(of_detections >= 0, axis=0)[pairs.first]
    near &= np.any(of_truths >= 0, axis=0)[pairs.second]
    pairs = pairs.where(near)
    blocks = list(_pairs.blocks(sides, pairs, values[near]))
    images = [some_of(table, block, shares) for block in blocks]
    options: dict[str, Any] = {"label": np.int32(label), "minimum": np.float64(minimum)}

    def first_pass(x: Some) -> Found:
        return evaluate(x.detections, x.truths, overlaps=x.overlaps, **options)

    def second_pass(x: Some) -> Counts:
        rest: dict[str, Any] = {"overlaps": x.overlaps, "shares": x.shares, **options}
        return accumulate(x.detections, x.truths, thresholds=thresholds, **rest)

    with ThreadPoolExecutor(_exact.THREADS) as pool:
        right = [x.scores for x in pool.map(functools.partial(_exact.run, first_pass), images)]
    # As long for every class, so that one program is compiled.
    scores = np.full((len(DIFFICULTIES), _pairs.power_of_two(len(sides.second))), -np.inf)
    for k, row in enumerate(scores):
        own = np.concatenate([np.zeros(0), *(x[:, k][x[:, k] > -np.inf] for x in right)])
        row[: len(own)] = own
    num_truths = (of_truths == 0).sum(axis=1, dtype=np.int32)
    thresholds = _exact.run(lambda: choose_thresholds(scores, num_truths))

    tp, fp, fn = (np.zeros((len(DIFFICULTIES), POINTS), np.int64) for _ in range(3))
    similarity = np.zeros((sides.num_images, *tp.shape))
    with ThreadPoolExecutor(_exact.THREADS) as pool:
        parts = list(pool.map(functools.partial(_exact.run, second_pass), images))
    for block, counts in zip(blocks, parts, strict=True):
        for total, of_images in zip((tp, fp, fn), counts, strict=False):
            total += of_images.sum(axis=0)
        there = block.images >= 0
        similarity[block.images[there]] = counts.similarity[there]

    wrong = (of_detections == 0) & ~(shares > minimum)
    wrong[:, pairs.first] = False
    missed = of_truths == 0
    missed[:, pairs.second] = False
    for k, limits in enumerate(thresholds):
        rest = np.sort(table.detections.scores[wrong[k]])
        fp[k] += len(rest) - np.searchsorted(rest, limits)
        fn[k] += missed[k].sum()
    # Image after image, as the benchmark adds.
    return thresholds, Counts(tp, fp, fn, np.add.reduce(similarity, axis=0))


def _mean(entries: np.ndarray) -> np.ndarray:
    """Added one after the other, as the benchmark does it, which `np.sum` does not."""
    return np.cumsum(entries, axis=-1)[..., -1] / entries.shape[-1]
