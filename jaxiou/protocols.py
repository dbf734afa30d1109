"""The rules by which data sets are scored, as data, and what they make of a confusion matrix.

A `Protocol` says which labels there are, which are ignored, which classes go into the mean and
what an absent one is worth. `scores` reads it, and so may you:

    matrix = confusion_matrix(predictions, targets, VOC.num_classes, ignore=VOC.ignore)
    mean_iou(matrix, classes=VOC.classes, absent=VOC.absent)

The rules are those of each data set's own script, for a matrix of the whole data set:

- `VOC`: 21 classes, 255 ignored. An absent class is 0 and counts.
- `CITYSCAPES`: labels are the ids 0 to 33, not train ids; 19 of them are evaluated, and absent
  ones left out. Groups of classes, and `instance_iou`, which weights instances by size.
- `ADE20K`: labels 0 to 150 as they are in the files, 0 being unlabelled and ignored. An absent
  class of the 150 is 0 and counts. The final score is the mean of accuracy and mIoU.
- `mmseg(num_classes)`: absent classes are left out. Its `reduce_zero_label` says that 0 becomes
  255 and all else one less when files are read; nothing in this module relabels.

Every protocol takes a prediction that is no class of its own, or ignored, for a miss, where the
scripts of VOC and Cityscapes stop or count wrongly.
"""

import functools
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, Real

from jaxiou import _checks, _scores, segmentation
from jaxiou._compiled import compiled
from jaxiou._histogram import classes_or, pair_counts
from jaxiou._math import safe_divide
from jaxiou._scores import Absent, Ignore
from jaxiou._typing import ArrayLike

__all__ = [
    "Protocol",
    "VOC",
    "CITYSCAPES",
    "ADE20K",
    "mmseg",
    "by_place",
    "scores",
    "Scores",
    "instance_counts",
    "instance_iou",
    "InstanceCounts",
    "InstanceScores",
]

Groups = tuple[tuple[str, tuple[int, ...]], ...]


class Protocol(NamedTuple):
    """The rules of a data set. It is hashable: it may be a static argument.

    Attributes:
      name: of the protocol.
      names: of the classes, one for each label from 0.
      ignore: labels that do not count, classes or not.
      classes: those that are evaluated.
      absent: what an evaluated class is worth that is neither a target nor predicted.
      categories: groups of classes, each by name.
      final: which number ranks: the mean IoU, or its mean with the pixel accuracy.
      reduce_zero_label: whether files are to be read with 0 as 255 and all else one less.
      instance_sizes: the average size in pixels of an instance, for each class that
        `instance_counts` weights.
      instance_categories: groups for it, which may have ignored labels.
    """

    name: str
    names: tuple[str, ...]
    ignore: tuple[int, ...]
    classes: tuple[int, ...]
    absent: Absent
    categories: Groups = ()
    final: Literal["mean_iou", "accuracy_and_mean_iou"] = "mean_iou"
    reduce_zero_label: bool = False
    instance_sizes: tuple[tuple[int, float], ...] = ()
    instance_categories: Groups = ()

    @property
    def num_classes(self) -> int:
        """K of `confusion_matrix`."""
        return len(self.names)

    def __repr__(self) -> str:
        return f"<protocol {self.name}: {len(self.classes)} of {self.num_classes} labels>"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(";"))


VOC = Protocol(
    name="voc",
    names=_names(
        """background; aeroplane; bicycle; bird; boat; bottle; bus; car; cat; chair; cow;
        diningtable; dog; horse; motorbike; person; pottedplant; sheep; sofa; train; tvmonitor"""
    ),
    ignore=(255,),
    classes=tuple(range(21)),
    absent="zero",
)
"""Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective", IJCV 2015."""

_CITYSCAPES_IGNORED = (-1, 0, 1, 2, 3, 4, 5, 6, 9, 10, 14, 15, 16, 18, 29, 30)

CITYSCAPES = Protocol(
    name="cityscapes",
    names=_names(
        """unlabeled; ego vehicle; rectification border; out of roi; static; dynamic; ground;
        road; sidewalk; parking; rail track; building; wall; fence; guard rail; bridge; tunnel;
        pole; polegroup; traffic light; traffic sign; vegetation; terrain; sky; person; rider;
        car; truck; bus; caravan; trailer; train; motorcycle; bicycle"""
    ),
    ignore=_CITYSCAPES_IGNORED,
    classes=tuple(label for label in range(34) if label not in _CITYSCAPES_IGNORED),
    absent="exclude",
    categories=(
        ("flat", (7, 8)),
        ("construction", (11, 12, 13)),
        ("object", (17, 19, 20)),
        ("nature", (21, 22)),
        ("sky", (23,)),
        ("human", (24, 25)),
        ("vehicle", (26, 27, 28, 31, 32, 33)),
    ),
    instance_sizes=(
        (24, 3462.4756337644),
        (25, 3930.4788056518),
        (26, 12794.0202738185),
        (27, 27855.1264367816),
        (28, 35732.1511111111),
        (31, 67583.7075812274),
        (32, 6298.7200839748),
        (33, 4672.3249222261),
    ),
    instance_categories=(("human", (24, 25)), ("vehicle", (26, 27, 28, 29, 30, 31, 32, 33))),
)
"""Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016."""

ADE20K = Protocol(
    name="ade20k",
    names=_names(
        """unlabelled;
        wall; building; sky; floor; tree; ceiling; road; bed; windowpane; grass; cabinet;
        sidewalk; person; earth; door; table; mountain; plant; curtain; chair; car; water;
        painting; sofa; shelf; house; sea; mirror; rug; field; armchair; seat; fence;
        desk; rock; wardrobe; lamp; bathtub; railing; cushion; base; box; column;
        signboard; chest of drawers; counter; sand; sink; skyscraper; fireplace;
        refrigerator; grandstand; path; stairs; runway; case; pool table; pillow; screen
        door; stairway; river; bridge; bookcase; blind; coffee table; toilet; flower;
        book; hill; bench; countertop; stove; palm; kitchen island; computer; swivel
        chair; boat; bar; arcade machine; hovel; bus; towel; light; truck; tower;
        chandelier; awning; streetlight; booth; television receiver; airplane; dirt track;
        apparel; pole; land; bannister; escalator; ottoman; bottle; buffet; poster; stage;
        van; ship; fountain; conveyer belt; canopy; washer; plaything; swimming pool;
        stool; barrel; basket; waterfall; tent; bag; minibike; cradle; oven; ball; food;
        step; tank; trade name; microwave; pot; animal; bicycle; lake; dishwasher; screen;
        blanket; sculpture; hood; sconce; vase; traffic light; tray; ashcan; fan; pier;
        crt screen; plate; monitor; bulletin board; shower; radiator; glass; clock; flag"""
    ),
    ignore=(0,),
    classes=tuple(range(1, 151)),
    absent="zero",
    final="accuracy_and_mean_iou",
)
"""Zhou et al., "Scene Parsing through ADE20K Dataset", CVPR 2017."""


@functools.cache
def mmseg(num_classes: int, *, ignore: Ignore = 255, reduce_zero_label: bool = False) -> Protocol:
    """The convention of mmsegmentation, for any data set: absent classes are left out of means.

    Args:
      num_classes: K.
      ignore: labels that do not count, one, as there, or a tuple.
      reduce_zero_label: see `Protocol`.

    Returns:
      A `Protocol`, with numbers for names. mmsegmentation shows its scores in percent, rounded
      to two digits.

    Example:
      >>> print(mmseg(3).classes, mmseg(3, ignore=(0, 255)).classes)
      (0, 1, 2) (1, 2)
    """
    _checks.count("num_classes", num_classes, 1)
    ignored = _checks.integers("ignore", ignore)
    return Protocol(
        name="mmseg",
        names=tuple(f"class {label}" for label in range(num_classes)),
        ignore=ignored,
        classes=tuple(label for label in range(num_classes) if label not in ignored),
        absent="exclude",
        reduce_zero_label=reduce_zero_label,
    )


def by_place(protocol: Protocol, *, ignore: Ignore = 255) -> Protocol:
    """The same protocol for maps that number its evaluated classes from 0, as training does.

    Args:
      protocol: such as `CITYSCAPES`, whose 19 classes among 34 ids then are 0 to 18.
      ignore: labels that do not count, one or a tuple.

    Returns:
      A `Protocol` without what it says of instances.

    Example:
      >>> print(by_place(CITYSCAPES).num_classes, by_place(CITYSCAPES).names[18])
      19 bicycle
    """
    places = {label: place for place, label in enumerate(protocol.classes)}
    ignored = _checks.integers("ignore", ignore)
    return protocol._replace(
        names=tuple(protocol.names[label] for label in protocol.classes),
        ignore=ignored,
        classes=tuple(place for place in places.values() if place not in ignored),
        categories=tuple(
            (name, tuple(places[label] for label in labels if label in places))
            for name, labels in protocol.categories
        ),
        reduce_zero_label=False,
        instance_sizes=(),
        instance_categories=(),
    )


class Scores(NamedTuple):
    """What a protocol reports.

    Attributes:
      class_iou: of each class that is evaluated, `[..., C]`.
      mean_iou: over them, `[...]`.
      pixel_accuracy: `[...]`.
      mean_accuracy: over the classes, `[...]`.
      category_iou: of each category, `[..., G]`; G is 0 if there are none.
      final: the number that ranks, `[...]`.
    """

    class_iou: Float[Array, "*batch c"]
    mean_iou: Float[Array, "*batch"]
    pixel_accuracy: Float[Array, "*batch"]
    mean_accuracy: Float[Array, "*batch"]
    category_iou: Float[Array, "*batch g"]
    final: Float[Array, "*batch"]


@compiled(static=("protocol",))
def scores(matrix: Real[ArrayLike, "*batch k columns"], protocol: Protocol) -> Scores:
    """The scores of a confusion matrix by the rules of a protocol.

    Args:
      matrix: `[..., K, K + 1]` or `[..., K, K]` with the protocol's number of classes,
        counted with its `ignore`.
      protocol: static.

    Returns:
      The `Scores`.

    At the edges:
      As `segmentation` has it for the protocol's `absent`. Without a pixel, accuracy is NaN.

    Gradient:
      By a float matrix; that of the scores in `segmentation`.

    Example:
      >>> matrix = jnp.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]])
      >>> print(scores(matrix, mmseg(3)).final, scores(matrix, mmseg(3, ignore=0)).final)
      0.775 0.8
    """
    return scores_of(_scores.from_array(matrix), protocol)


def scores_of(matrix: _scores.Matrix, protocol: Protocol) -> Scores:
    """`scores` of a matrix that may be held as limbs."""
    if matrix.cells.shape[-2] != protocol.num_classes:
        raise ValueError(
            f"matrix must have the {protocol.num_classes} rows of protocol {protocol.name}, "
            f"got {matrix.cells.shape[-2]}"
        )

    def score(name):
        return _scores.score(name, matrix, absent=protocol.absent, classes=protocol.classes)

    mean_iou, pixel_accuracy = score("mean_iou"), score("pixel_accuracy")
    categories = tuple(labels for _, labels in protocol.categories)
    return Scores(
        class_iou=score("class_iou"),
        mean_iou=mean_iou,
        pixel_accuracy=pixel_accuracy,
        mean_accuracy=score("mean_accuracy"),
        category_iou=_scores.category_iou(matrix, categories, absent=protocol.absent),
        final=mean_iou if protocol.final == "mean_iou" else (pixel_accuracy + mean_iou) / 2,
    )


class InstanceCounts(NamedTuple):
    """What instance-weighted scores are made of; add them over images.

    Attributes:
      true_positives: pixels of instances of each class that are right, `[C]`, each weighted by
        the class's average size over the instance's own.
      false_negatives: those that are wrong, weighted alike.
      false_positives: pixels of other classes predicted as the class, int32, not weighted.
      category_true_positives: pixels of the instances of each category that are predicted
        as any label of it, `[G]`, weighted.
      category_false_negatives: those that are not, weighted.
      category_false_positives: pixels of other categories predicted as one of its labels.
    """

    true_positives: Float[Array, "*batch c"]
    false_negatives: Float[Array, "*batch c"]
    false_positives: Int32[Array, "*batch c"]
    category_true_positives: Float[Array, "*batch g"]
    category_false_negatives: Float[Array, "*batch g"]
    category_false_positives: Int32[Array, "*batch g"]


class InstanceScores(NamedTuple):
    """Instance-weighted IoU.

    Attributes:
      class_iou: of each class with instances, `[..., C]`, in the order of the protocol's
        `instance_sizes`.
      mean_iou: over them, `[...]`.
      category_iou: of each of its `instance_categories`, `[..., G]`.
      mean_category_iou: over them, `[...]`.
    """

    class_iou: Float[Array, "*batch c"]
    mean_iou: Float[Array, "*batch"]
    category_iou: Float[Array, "*batch g"]
    mean_category_iou: Float[Array, "*batch"]


_PER_CLASS = 1000
"""The id of an instance is its class times this, plus its number."""


@compiled(static=("protocol",))
def instance_counts(
    predictions: Integer[ArrayLike, "*shape"],
    targets: Integer[ArrayLike, "*shape"],
    instances: Integer[ArrayLike, "*shape"],
    *,
    protocol: Protocol = CITYSCAPES,
    where: Bool[ArrayLike, "..."] | None = None,
) -> InstanceCounts:
    """Counts for `instance_iou`, of one image; `jax.vmap` for more.

    Args:
      predictions: labels of one image.
      targets: labels of the same shape.
      instances: ids of the same shape, as in Cityscapes' `instanceIds` files: 1000 times the
        class, plus the number of the instance; an id below 1000 is of no single instance.
      protocol: one with `instance_sizes`, static.
      where: bool, of the rank of the maps, broadcasting to them; pixels that count.

    Returns:
      `InstanceCounts`, floats in float32, or float64 if a map has 64 bits. Sums over images
      are right up to 2^31 false positives a class.

    At the edges:
      Pixels of a group, whose id is the class alone, count as false positives of other
      classes, and neither as true positives nor as false negatives. Instances of classes
      without an average size are passed over.

    Example:
      >>> instances = jnp.array([24001, 24001, 24002, 7])
      >>> counts = instance_counts(jnp.array([24, 7, 24, 24]), instances // 1000, instances)
      >>> print(counts.true_positives[0], counts.false_negatives[0], counts.false_positives[0])
      5193.7134 1731.2378 0

    Reference:
      Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016,
      https://arxiv.org/abs/1604.01685.
    """
    matrix = segmentation.confusion_matrix(predictions, targets, protocol.num_classes, where=where)
    _checks.is_array("instances", instances)
    _checks.is_integer("instances", instances)
    _checks.exact_shape("instances", instances, targets.shape, "that of targets")
    dtype = _checks.working_dtype(predictions, targets, instances)
    evaluated = np.setdiff1d(np.arange(protocol.num_classes), protocol.ignore)

    # Every instance by what it is predicted as, from the first class that has instances on.
    classes = [label for label, _ in protocol.instance_sizes]
    first, span = min(classes), max(classes) - min(classes) + 1
    ids = classes_or(-1, jnp.asarray(instances), _PER_CLASS * protocol.num_classes)
    found = pair_counts(
        ids - _PER_CLASS * first,
        jnp.asarray(predictions),
        (_PER_CLASS * span, protocol.num_classes),
        others=True,
        where=where if where is None else jnp.broadcast_to(where, ids.shape),
    ).reshape(span, _PER_CLASS, -1)

    def weighted(label, average, labels):
        """Pixels of the instances of a class: those predicted as one of `labels`, and the rest."""
        pixels = found[label - first]
        size = pixels.sum(axis=1, dtype=jnp.int32)
        right = pixels[:, np.array(labels)].sum(axis=1, dtype=jnp.int32)
        weights = safe_divide(jnp.full_like(size, average, dtype), size.astype(dtype))
        return [(weights * x.astype(dtype)).sum() for x in (right, size - right)]

    def false_positives(labels):
        """Pixels of evaluated classes but `labels` that are predicted as one of these."""
        rows = np.setdiff1d(evaluated, labels)
        return matrix[rows][:, np.array(labels)].sum(dtype=jnp.int32)

    def counts(groups):
        rows = [
            [weighted(c, average, labels) for c, average in protocol.instance_sizes if c in labels]
            for labels in groups
        ]
        right, wrong = (jnp.stack([sum(x[i] for x in row) for row in rows]) for i in (0, 1))
        return right, wrong, jnp.stack([false_positives(labels) for labels in groups])

    return InstanceCounts(
        *counts([(label,) for label in classes]),
        *counts([labels for _, labels in protocol.instance_categories]),
    )


@compiled(static=("protocol",))
def instance_iou(counts: InstanceCounts, *, protocol: Protocol = CITYSCAPES) -> InstanceScores:
    r"""IoU in which each instance weighs as much as one of average size: Cityscapes' iIoU.

    .. math:: \mathrm{iIoU} = iTP / (iTP + FP + iFN)

    False positives belong to no instance, and are not weighted.

    Args:
      counts: of one image, or the sums over all; leading axes are scored apart.
      protocol: that of the counts, static.

    Returns:
      `InstanceScores`, in [0, 1].

    At the edges:
      A class without instances that is never predicted is what `protocol.absent` says.

    Example:
      >>> instances = jnp.array([24001, 24001, 24002, 24002])
      >>> labels = jnp.array([24, 7, 24, 24])
      >>> print(instance_iou(instance_counts(labels, instances // 1000, instances)).mean_iou)
      0.75

    Reference:
      Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016,
      https://arxiv.org/abs/1604.01685.
    """
    dtype = _checks.working_dtype(*counts)

    def score(right, missed, wrong):
        whole = right + missed + wrong
        return (f(right, whole, protocol.absent) for f in (_scores.ratio, _scores.mean_ratio))

    floats = [jnp.asarray(x).astype(dtype) for x in counts]
    return InstanceScores(*score(*floats[:3]), *score(*floats[3:]))
