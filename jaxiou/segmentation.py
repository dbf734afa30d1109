"""Scores of label maps: one exact matrix of counts, and every score as a function of it.

What holds for every function here, and is not repeated below:

- **Label maps** are integers of any type, 0 to `num_classes - 1` being classes; bool raises.
  A label that is neither a class nor ignored is *invalid*. As a target, its pixel is not
  counted; as a prediction, it is a miss of the target's class. `target_counts` tells how many
  there are, `check_values` where the first one is.
- **Ignored** labels, one or several, may be classes or not. As a target, the pixel is not
  counted. As a prediction on a pixel that counts, it is a miss of the target's class and
  no other's false positive. So an ignored class is absent, whatever is predicted.
- **A matrix** `[..., K, K + 1]` has the pixels of target class i predicted as j at `[i, j]`, and
  in its last column those predicted as no class. `[..., K, K]` is one without any such.
  Leading axes are images, or whatever is scored apart. Add matrices, never scores.
- **Scores** of integers are right past 2^31: sums are exact and rounded once. They are
  float32, or float64 if the matrix holds 64-bit numbers. Counts must not be negative.
  Floats, such as soft counts, are summed in that type, and their gradient is finite.
- **Sharding.** Maps may be sharded over automatic axes of a mesh, and counted in `shard_map`. Over
  explicit axes JAX cannot scatter: whether a count works there depends on its shape.
- **absent** is what becomes of a class whose denominator is 0, for the IoU one that is neither
  a target nor predicted: "exclude" makes it NaN and leaves it out of the mean, which is NaN
  if nothing is left; "zero" and "one" count it as such; "nan" makes the mean NaN too.
- **classes** are those whose results are returned, in this order, or go into a mean; None
  takes all. Pixels of the others still count: predicted as one of `classes`, they are its
  false positives.
"""

from typing import NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, Real

from jaxiou import _checks, _scores, masks
from jaxiou._compiled import compiled
from jaxiou._histogram import Method, classes_or, is_class, pair_counts
from jaxiou._scores import Absent, Ignore
from jaxiou._typing import ArrayLike

__all__ = [
    "confusion_matrix",
    "boundary_confusion_matrix",
    "target_counts",
    "TargetCounts",
    "check_values",
    "class_iou",
    "mean_iou",
    "class_dice",
    "mean_dice",
    "pixel_accuracy",
    "mean_accuracy",
    "frequency_weighted_iou",
    "precision",
    "recall",
    "category_iou",
    "class_counts",
    "ClassCounts",
]


@compiled(static=("num_classes", "ignore", "method"))
def confusion_matrix(
    predictions: Integer[ArrayLike, "*shape"],
    targets: Integer[ArrayLike, "*shape"],
    num_classes: int,
    *,
    ignore: Ignore = (),
    where: Bool[ArrayLike, "..."] | None = None,
    method: Method = "auto",
) -> Int32[Array, "classes columns"]:
    """How many pixels of each class are predicted as each class.

    Args:
      predictions: label maps of any shape; all axes are counted into one matrix. `jax.vmap`
        gives a matrix per image, as fast as one for all.
      targets: label maps of the same shape.
      num_classes: K, static.
      ignore: labels that do not count, one or a tuple, static.
      where: bool, of the rank of the maps, broadcasting to them; pixels that count.
      method: how to count, static. "auto" takes "scatter" on CPU, on GPU "private scatter" up
        to 64 classes and "scatter" above, on TPU "matmul" up to 256 classes and "sort" above. All
        give the same integers.

    Returns:
      int32, `[K, K + 1]`: rows are targets, columns are predictions, the last one those that
      are no class. Up to 2^31 - 1 pixels a call; `metrics.mean_iou` counts on.

    At the edges:
      No pixels: zeros. Labels far out of range, and negative ones, reach no cell of a class.

    Example:
      >>> targets = jnp.array([0, 0, 1, 1, 255])
      >>> print(confusion_matrix(jnp.array([0, 1, 1, 7, 0]), targets, 2, ignore=255))
      [[1 1 0]
       [0 1 1]]
    """
    ignored = _checks.integers("ignore", ignore)
    _checks.one_of("method", method, get_args(Method))
    (predictions, targets), where = _maps(
        num_classes, where, predictions=predictions, targets=targets
    )
    shape = num_classes, num_classes
    matrix = pair_counts(targets, predictions, shape, others=True, where=where, method=method)
    # On the table, not on the pixels: then many ignored labels cost no more than one.
    classes = [label for label in ignored if 0 <= label < num_classes]
    if not classes:
        return matrix
    dropped = np.isin(np.arange(num_classes + 1), classes)
    misses = jnp.where(dropped[None], matrix, 0).sum(axis=1, dtype=jnp.int32)
    matrix = jnp.where(dropped[None], 0, matrix).at[:, -1].add(misses)
    return jnp.where(dropped[:-1, None], 0, matrix)


@compiled(static=("num_classes", "ratio", "ignore"))
def boundary_confusion_matrix(
    predictions: Integer[ArrayLike, "*batch h w"],
    targets: Integer[ArrayLike, "*batch h w"],
    num_classes: int,
    *,
    ratio: float = 0.02,
    ignore: Ignore = (),
    where: Bool[ArrayLike, "..."] | None = None,
) -> Int32[Array, "classes columns"]:
    """The confusion matrix of what lies near boundaries, for a Boundary IoU of all classes.

    A pixel of either map belongs to the boundary of its class if another label, or the
    image's edge, is near (`masks.label_boundary`), and to class K, "inside", if not. The
    semantic Boundary IoU is `class_iou(matrix, classes=tuple(range(K)))`. What it costs does
    not depend on K.

    Args:
      predictions: label maps, `[..., H, W]`; all axes are counted into one matrix.
      targets: label maps of the same shape.
      num_classes: K, static.
      ratio: the boundary's width as a share of the image's diagonal, at least one pixel.
      ignore: labels that do not count, one or a tuple, static.
      where: bool, of the rank of the maps, broadcasting to them; pixels that count.

    Returns:
      int32, `[K + 1, K + 2]`, a matrix of the K classes and "inside".

    At the edges:
      Ignored and invalid labels are together one more label, which has a boundary with the
      classes on both maps. Ignored and invalid targets are then not counted. A pixel that
      `where` leaves out is such a label on both maps, so that padding ends an image as its
      edge does; the diagonal is that of the padded image.

    Example:
      >>> targets = jnp.zeros((9, 9), jnp.uint8)
      >>> matrix = boundary_confusion_matrix(targets, targets, 1, ratio=0.1)
      >>> print(matrix)  # 81 pixels, a boundary of one pixel
      [[32  0  0]
       [ 0 49  0]]

    Reference:
      Cheng et al., "Boundary IoU: Improving Object-Centric Image Segmentation Evaluation",
      CVPR 2021, https://arxiv.org/abs/2103.16562. There the boundary of each class is a mask less
      its erosion; this is the same boundary, of all classes at once.
    """
    ignored = _checks.integers("ignore", ignore)
    for name, x in {"predictions": predictions, "targets": targets}.items():
        _checks.is_array(name, x)
        _checks.trailing_shape(name, x, (None, None), "label maps")
    (predictions, targets), where = _maps(
        num_classes, where, predictions=predictions, targets=targets
    )
    inside, no_class = num_classes, num_classes + 1

    def labels(x):
        known = ~_is_among(x, ignored) if where is None else where & ~_is_among(x, ignored)
        return jnp.where(known, classes_or(no_class, x, num_classes), no_class)

    def parts(x):
        near = masks.label_boundary(x, ratio=ratio)
        return jnp.where(near | (x == no_class), x, inside)

    rows, columns = parts(labels(targets)), parts(labels(predictions))
    return pair_counts(rows, columns, (inside + 1, inside + 1), others=True)


class TargetCounts(NamedTuple):
    """What the pixels of targets are.

    Attributes:
      valid: pixels of a class that count, int32; the sum of the confusion matrix.
      ignored: pixels of an ignored label, int32.
      invalid: pixels of a label that is neither a class nor ignored, int32.
    """

    valid: Int32[Array, ""]
    ignored: Int32[Array, ""]
    invalid: Int32[Array, ""]


@compiled(static=("num_classes", "ignore"))
def target_counts(
    targets: Integer[ArrayLike, "..."],
    num_classes: int,
    *,
    ignore: Ignore = (),
    where: Bool[ArrayLike, "..."] | None = None,
) -> TargetCounts:
    """How many target pixels count, are ignored, or are invalid, which is most often a mistake.

    Args:
      targets: label maps of any shape.
      num_classes: K, static.
      ignore: labels that do not count, one or a tuple, static.
      where: bool, of the rank of the maps, broadcasting to them; pixels to look at.

    Returns:
      A `TargetCounts`, together as many as `where` has pixels.

    Example:
      >>> valid, ignored, invalid = target_counts(jnp.array([0, 1, 2, 255]), 2, ignore=255)
      >>> print(valid, ignored, invalid)
      2 1 1
    """
    (labels,), where = _maps(num_classes, where, targets=targets)
    ignored = _is_among(labels, _checks.integers("ignore", ignore))
    valid = is_class(labels, num_classes) & ~ignored
    kinds = (valid, ignored, ~(valid | ignored))
    counted = kinds if where is None else [x & where for x in kinds]
    return TargetCounts(*(x.sum(dtype=jnp.int32) for x in counted))


def check_values(
    labels: Integer[ArrayLike, "..."], num_classes: int, *, ignore: Ignore = ()
) -> None:
    """Raises ValueError naming the first label that is neither a class nor ignored.

    For use on the host, on targets or predictions; functions that run on a device cannot raise.

    Args:
      labels: label maps of any shape.
      num_classes: K.
      ignore: labels that are allowed besides the classes, one or a tuple.

    Raises:
      ValueError: a label that is not allowed; says which, where and how many.
      TypeError: under `jit`, where there are no values to look at.

    Example:
      >>> check_values(jnp.array([[0, 1], [2, 255]]), 2, ignore=255)
      Traceback (most recent call last):
      ...
      ValueError: labels[1, 0] is 2, which is neither a class, 0 to 1, nor ignored (1 of 4 pixels)
    """
    _checks.is_concrete("labels", labels)
    _checks.is_integer("labels", labels)
    _checks.count("num_classes", num_classes, 1)
    x = np.asarray(labels)
    bad = (x < 0) | (x >= num_classes)
    for label in _checks.integers("ignore", ignore):  # `np.isin` compares uint64 as floats
        bad &= x != label
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    raise ValueError(
        f"labels{place} is {x[index]}, which is neither a class, 0 to {num_classes - 1}, "
        f"nor ignored ({bad.sum()} of {bad.size} pixels)"
    )


@compiled(static=("absent", "classes"))
def class_iou(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch c"]:
    r"""IoU of each class: its hits over the pixels where it is the target or predicted.

    .. math:: \mathrm{IoU}_c = TP_c / (TP_c + FP_c + FN_c)

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static.
      classes: see the module; static.

    Returns:
      `[..., C]`, in [0, 1]. 1 means that no pixel is wrong.

    At the edges:
      A class that is a target but never predicted, or predicted but never a target, has 0.

    Gradient:
      By a float matrix; that of the ratio, and 0 for a class without a denominator.

    Example:
      >>> print(class_iou(jnp.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]])))
      [0.75 0.8   nan]

    Reference:
      Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 2015.
    """
    return _scores.score("class_iou", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("absent", "classes"))
def mean_iou(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch"]:
    """Mean of `class_iou` over classes, the mIoU.

    Of a matrix of the data set it is the data set's score; of a matrix per image it is a
    score per image, whose mean over images is another number.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static.
      classes: see the module; static.

    Returns:
      `[...]`, in [0, 1].

    At the edges:
      No pixels at all: NaN, or 0 or 1 if `absent` says so.

    Gradient:
      By a float matrix; that of `class_iou`.

    Example:
      >>> matrix = jnp.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]])
      >>> print(mean_iou(matrix), f"{mean_iou(matrix, absent='zero'):.4f}")
      0.775 0.5167

    Reference:
      Long et al., "Fully Convolutional Networks for Semantic Segmentation", CVPR 2015,
      https://arxiv.org/abs/1411.4038.
    """
    return _scores.score("mean_iou", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("absent", "classes"))
def class_dice(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch c"]:
    r"""Dice coefficient of each class, the F1 score: `2 IoU / (1 + IoU)`.

    .. math:: \mathrm{Dice}_c = 2 TP_c / (2 TP_c + FP_c + FN_c)

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static.
      classes: see the module; static.

    Returns:
      `[..., C]`, in [0, 1].

    At the edges:
      A class without a hit has 0, where precision and recall would give 0/0.

    Gradient:
      By a float matrix; that of the ratio, and 0 for a class without a denominator.

    Example:
      >>> print(class_dice(jnp.array([[3, 1], [1, 1]])))
      [0.75 0.5 ]

    Reference:
      Dice, "Measures of the Amount of Ecologic Association Between Species", Ecology 1945.
    """
    return _scores.score("class_dice", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("absent", "classes"))
def mean_dice(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch"]:
    """Mean of `class_dice` over classes, the macro F1 score.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static.
      classes: see the module; static.

    Returns:
      `[...]`, in [0, 1].

    Gradient:
      By a float matrix; that of `class_dice`.

    Example:
      >>> print(mean_dice(jnp.array([[3, 1], [1, 1]])))
      0.625
    """
    return _scores.score("mean_dice", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("classes",))
def pixel_accuracy(
    matrix: Real[ArrayLike, "*batch k columns"], *, classes: tuple[int, ...] | None = None
) -> Float[Array, "*batch"]:
    """Share of the pixels that are predicted right.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      classes: see the module; static. Pixels of these target classes make up the share.

    Returns:
      `[...]`, in [0, 1].

    At the edges:
      No pixels: NaN.

    Gradient:
      By a float matrix; that of the ratio.

    Example:
      >>> print(pixel_accuracy(jnp.array([[3, 1, 0], [1, 1, 2]])))
      0.5
    """
    return _scores.score("pixel_accuracy", _scores.from_array(matrix), classes=classes)


@compiled(static=("absent", "classes"))
def mean_accuracy(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch"]:
    """Mean of `recall`, also called class accuracy, over the classes.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static. Here a class that is no target is absent, if
        predicted or not.
      classes: see the module; static.

    Returns:
      `[...]`, in [0, 1].

    Gradient:
      By a float matrix; that of `recall`.

    Example:
      >>> print(mean_accuracy(jnp.array([[3, 1, 0], [0, 2, 2], [0, 0, 0]])))
      0.625

    Reference:
      Long et al., "Fully Convolutional Networks for Semantic Segmentation", CVPR 2015,
      https://arxiv.org/abs/1411.4038.
    """
    return _scores.score(
        "mean_accuracy", _scores.from_array(matrix), absent=absent, classes=classes
    )


@compiled(static=("classes",))
def frequency_weighted_iou(
    matrix: Real[ArrayLike, "*batch k columns"], *, classes: tuple[int, ...] | None = None
) -> Float[Array, "*batch"]:
    r"""Mean of `class_iou`, each class weighted by its target pixels.

    .. math:: \sum_c n_c \mathrm{IoU}_c / \sum_c n_c

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      classes: see the module; static.

    Returns:
      `[...]`, in [0, 1].

    At the edges:
      A class that is no target has weight 0. No pixels: NaN.

    Gradient:
      By a float matrix; that of the weights and of `class_iou`.

    Example:
      >>> print(f"{frequency_weighted_iou(jnp.array([[3, 1], [0, 1]])):.4f}")
      0.7000

    Reference:
      Long et al., "Fully Convolutional Networks for Semantic Segmentation", CVPR 2015,
      https://arxiv.org/abs/1411.4038.
    """
    return _scores.score("frequency_weighted_iou", _scores.from_array(matrix), classes=classes)


@compiled(static=("absent", "classes"))
def precision(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch c"]:
    r"""Share of the pixels predicted as a class that are of it: `TP / (TP + FP)`.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static. Here a class that is never predicted is absent.
      classes: see the module; static.

    Returns:
      `[..., C]`, in [0, 1].

    Gradient:
      By a float matrix; that of the ratio, and 0 for a class without a denominator.

    Example:
      >>> print(precision(jnp.array([[3, 2], [1, 2]])))
      [0.75 0.5 ]
    """
    return _scores.score("precision", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("absent", "classes"))
def recall(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Float[Array, "*batch c"]:
    r"""Share of the target pixels of a class that are predicted as it: `TP / (TP + FN)`.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      absent: see the module; static. Here a class that is no target is absent.
      classes: see the module; static.

    Returns:
      `[..., C]`, in [0, 1]; also called class accuracy.

    Gradient:
      By a float matrix; that of the ratio, and 0 for a class without a denominator.

    Example:
      >>> print(recall(jnp.array([[3, 1, 0], [1, 1, 2]])))
      [0.75 0.25]
    """
    return _scores.score("recall", _scores.from_array(matrix), absent=absent, classes=classes)


@compiled(static=("categories", "absent"))
def category_iou(
    matrix: Real[ArrayLike, "*batch k columns"],
    *,
    categories: tuple[tuple[int, ...], ...],
    absent: Absent = "exclude",
) -> Float[Array, "*batch c"]:
    """IoU of groups of classes, where a class taken for another of its group is right.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.
      categories: the classes of each group, static; no class in two of them. Pixels of a class
        that is in none count against the groups as which they are predicted.
      absent: see the module; static.

    Returns:
      One number per group, `[..., G]`, in [0, 1].

    Gradient:
      By a float matrix; that of the ratio, and 0 for a group without a denominator.

    Example:
      >>> matrix = jnp.array([[2, 1, 0], [1, 2, 2], [1, 0, 1]])
      >>> print(category_iou(matrix, categories=((0, 1), (2,))))
      [0.6666667 0.25     ]

    Reference:
      Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016,
      https://arxiv.org/abs/1604.01685.
    """
    return _scores.category_iou(_scores.from_array(matrix), categories, absent=absent)


class ClassCounts(NamedTuple):
    """The pixels of each class, right and wrong.

    Attributes:
      true_positives: of the class and predicted as it, `[..., K]`.
      false_positives: of another class, but predicted as it, `[..., K]`.
      false_negatives: of the class, but predicted as another one or as none, `[..., K]`.
    """

    true_positives: Float[Array, "*batch k"]
    false_positives: Float[Array, "*batch k"]
    false_negatives: Float[Array, "*batch k"]


@compiled()
def class_counts(matrix: Real[ArrayLike, "*batch k columns"]) -> ClassCounts:
    """True positives, false positives and false negatives of each class.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]`.

    Returns:
      A `ClassCounts` of floats, each rounded once: exact below 2^24 in float32, below 2^53 in
      float64.

    Gradient:
      By a float matrix; 1 for the cells that are summed.

    Example:
      >>> print(*class_counts(jnp.array([[3, 1, 0], [2, 4, 5]])))
      [3. 4.] [2. 1.] [1. 7.]
    """
    sums = _scores.sums(_scores.from_array(matrix))
    return ClassCounts(sums.hits, sums.false_positives, sums.misses)


# Labels ----------------------------------------------------------------------------------------


def _maps(
    num_classes: int, where: ArrayLike | None, **maps: ArrayLike
) -> tuple[tuple[Array, ...], Array | None]:
    """Checked label maps of one shape, and a `where` of this shape if there is one."""
    _checks.count("num_classes", num_classes, 1)
    *_, (last, wanted) = maps.items()
    for name, x in maps.items():
        _checks.is_array(name, x)
        _checks.is_integer(name, x)
        _checks.exact_shape(name, x, wanted.shape, f"that of {last}")
    if where is not None:
        _checks.mask("where", where, wanted.shape)
        where = jnp.broadcast_to(where, wanted.shape)
    return tuple(map(jnp.asarray, maps.values())), where


def _is_among(labels: Array, values: tuple[int, ...]) -> Array:
    found = jnp.zeros_like(labels, bool)
    limits = jnp.iinfo(labels.dtype)
    for value in values:
        if limits.min <= value <= limits.max:
            found |= labels == value
    return found
