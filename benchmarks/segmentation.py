"""Scores of pixels beside NumPy, torchmetrics, scikit-learn and pycocotools:
`python benchmarks/segmentation.py`. Needs the `bench` extra.

Every result is checked to be the peer's. panopticapi is not on the package index; its peer
here is its procedure in NumPy: one `np.unique` of pairs an image, and a loop over them.
"""

import functools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pycocotools.mask
import sklearn.metrics
import torch
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from side_by_side import Row, arguments, medians, show
from torchmetrics.functional.classification import multiclass_confusion_matrix

import jaxiou
from jaxiou import masks, panoptic, segmentation, segmentation_losses

IMAGES, HEIGHT, WIDTH = 8, 1024, 2048


def scenes(rng: np.random.Generator, shape: tuple[int, ...], classes: int) -> np.ndarray:
    """Label maps of 32 x 32 pixel tiles, as smooth as real ones, uint8 where that is enough."""
    *images, height, width = shape
    tiles = rng.integers(0, classes, (*images, -(-height // 32), -(-width // 32)))
    labels = tiles.repeat(32, -2).repeat(32, -1)[..., :height, :width]
    return labels.astype(np.uint8 if classes < 256 else np.int32)


def predicted(rng: np.random.Generator, targets: np.ndarray, classes: int) -> np.ndarray:
    """The targets with one pixel in ten drawn anew."""
    noise = rng.integers(0, classes, targets.shape).astype(targets.dtype)
    return np.where(rng.random(targets.shape) < 0.9, targets, noise)


def bench_confusion(classes: int, rounds: int) -> list[Row]:
    rng = np.random.default_rng(0)
    targets = scenes(rng, (IMAGES, HEIGHT, WIDTH), classes)
    predictions = predicted(rng, targets, classes)
    wide = targets.ravel().astype(np.int32), predictions.ravel().astype(np.int32)
    batch = jnp.asarray(predictions), jnp.asarray(targets)
    tensors = [torch.from_numpy(x.astype(np.int64)) for x in (predictions, targets)]
    count = functools.partial(segmentation.confusion_matrix, num_classes=classes)
    each = jax.jit(jax.vmap(count))

    def bincount():
        return np.bincount(wide[0] * classes + wide[1], minlength=classes**2)

    def peer():
        return multiclass_confusion_matrix(*tensors, classes, validate_args=False)

    wanted = bincount().reshape(classes, classes)
    for got in (count(*batch), each(*batch).sum(0)):
        np.testing.assert_array_equal(got[:, :classes], wanted)
    np.testing.assert_array_equal(peer().numpy(), wanted)
    threads = torch.get_num_threads()
    spent = medians(
        {
            "ours": lambda: jax.block_until_ready(count(*batch)),
            "each": lambda: jax.block_until_ready(each(*batch)),
            "numpy": bincount,
            "torchmetrics": peer,
        },
        rounds,
    )
    what = f"confusion matrix, {IMAGES} x {HEIGHT} x {WIDTH}, K = {classes}"
    rows = [
        ("NumPy bincount on int32", "ours", "numpy", ">= 1"),
        (f"torchmetrics, {threads} threads", "ours", "torchmetrics", ">= 3"),
        ("an image apart, against all at once", "each", "ours", ""),
    ]
    return [
        Row(f"{what}: {name}", spent[a], spent[b], spent[b] / spent[a], target)
        for name, a, b, target in rows
    ]


def split_over_devices(classes: int, rounds: int) -> dict[str, float]:
    """Milliseconds of one count on one device and split over two, in a process that has two."""
    rng = np.random.default_rng(0)
    targets = scenes(rng, (IMAGES, HEIGHT, WIDTH), classes)
    batch = predicted(rng, targets, classes), targets
    count = functools.partial(segmentation.confusion_matrix, num_classes=classes)

    def case(devices):
        mesh = jax.make_mesh(
            (devices,), ("batch",), (AxisType.Auto,), devices=jax.devices()[:devices]
        )
        put = jax.device_put(batch, jax.NamedSharding(mesh, P("batch")))
        specs = {"mesh": mesh, "in_specs": P("batch"), "out_specs": P()}
        run = jax.jit(jax.shard_map(lambda *x: jax.lax.psum(count(*x), "batch"), **specs))
        return run, put

    (one, on_one), (two, on_two) = case(1), case(2)
    np.testing.assert_array_equal(one(*on_one), two(*on_two))
    return medians(
        {
            "one": lambda: jax.block_until_ready(one(*on_one)),
            "two": lambda: jax.block_until_ready(two(*on_two)),
        },
        rounds,
    )


def bench_split(classes: int, rounds: int) -> Row:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    work = f"s.split_over_devices({classes}, {rounds})"
    call = f"import json, segmentation as s; print(json.dumps({work}))"
    spent = json.loads(
        subprocess.run(
            [sys.executable, "-c", call],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            env={**os.environ, "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    )
    what = f"the same, K = {classes}, on two host devices: on one"
    return Row(what, spent["two"], spent["one"], spent["one"] / spent["two"], ">= 1.6")


def bench_sklearn(classes: int, rounds: int) -> Row:
    rng = np.random.default_rng(0)
    targets = scenes(rng, (HEIGHT, WIDTH), classes)
    predictions = predicted(rng, targets, classes)
    batch = jnp.asarray(predictions), jnp.asarray(targets)
    labels = np.arange(classes)

    def ours():
        return segmentation.mean_iou(segmentation.confusion_matrix(*batch, classes))

    def peer():
        flat = targets.ravel(), predictions.ravel()
        return sklearn.metrics.jaccard_score(*flat, labels=labels, average="macro")

    np.testing.assert_allclose(ours(), peer(), rtol=1e-6)
    spent = medians({"ours": lambda: jax.block_until_ready(ours()), "peer": peer}, rounds)
    what = f"mean IoU, one image, K = {classes}: scikit-learn's jaccard_score"
    return Row(what, spent["ours"], spent["peer"], spent["peer"] / spent["ours"])


def blobs(rng: np.random.Generator, count: int) -> np.ndarray:
    """Masks of objects: one ellipse each, of 20 to 200 pixels, bool `[count, 480, 640]`."""
    y, x = np.mgrid[:480, :640]
    masks = []
    for _ in range(count):
        (cy, cx), (ry, rx) = rng.uniform(0, (480, 640)), rng.uniform(20, 200, 2)
        masks.append(((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1)
    return np.array(masks)


def bench_masks(count: int, rounds: int) -> list[Row]:
    rng = np.random.default_rng(0)
    a, b = blobs(rng, count), blobs(rng, count)
    x, y = jnp.asarray(a), jnp.asarray(b)
    table = jaxiou.pairwise(masks.iou)

    def encoded(x):
        return pycocotools.mask.encode(np.asfortranarray(np.moveaxis(x, 0, -1).astype(np.uint8)))

    def compared(a, b):
        return pycocotools.mask.iou(a, b, [0] * len(b))

    codes = encoded(a), encoded(b)
    np.testing.assert_allclose(table(x, y), compared(*codes), rtol=1e-6)
    spent = medians(
        {
            "ours": lambda: jax.block_until_ready(table(x, y)),
            "with": lambda: compared(encoded(a), encoded(b)),
            "without": lambda: compared(*codes),
        },
        rounds,
    )
    memory = jax.jit(table).lower(x, y).compile().memory_analysis().temp_size_in_bytes
    what = f"pairwise mask IoU, {count} x {count} of 480 x 640, {memory / 1e6:.0f} MB: pycocotools"
    return [
        Row(
            f"{what}, encoding", spent["ours"], spent["with"], spent["with"] / spent["ours"], ">= 1"
        ),
        Row(f"{what}, encoded", spent["ours"], spent["without"], spent["without"] / spent["ours"]),
    ]


def panoptic_loop(predictions, targets, prediction_labels, target_labels, classes):
    """Panoptic quality of images without void and crowd, the way that panopticapi takes."""
    iou, counts = np.zeros(classes), np.zeros((3, classes), int)
    for p, t, p_labels, t_labels in zip(
        predictions, targets, prediction_labels, target_labels, strict=True
    ):
        p_areas = dict(zip(*np.unique(p, return_counts=True), strict=True))
        t_areas = dict(zip(*np.unique(t, return_counts=True), strict=True))
        pairs = t.astype(np.uint64) * 2**16 + p.astype(np.uint64)
        matched_p, matched_t = set(), set()
        for pair, shared in zip(*np.unique(pairs, return_counts=True), strict=True):
            i, j = int(pair) // 2**16, int(pair) % 2**16
            if t_labels[i] != p_labels[j]:
                continue
            value = shared / (p_areas[j] + t_areas[i] - shared)
            if value > 0.5:
                iou[t_labels[i]] += value
                counts[0, t_labels[i]] += 1
                matched_p.add(j)
                matched_t.add(i)
        for j in p_areas.keys() - matched_p:
            counts[1, p_labels[j]] += 1
        for i in t_areas.keys() - matched_t:
            counts[2, t_labels[i]] += 1
    return iou, counts


def bench_panoptic(images: int, segments: int, rounds: int) -> Row:
    """Images of 480 x 640 in Voronoi cells, predictions shifted by a few pixels."""
    rng, classes = np.random.default_rng(0), 80
    y, x = np.mgrid[:480, :640]
    targets = []
    for _ in range(images):
        nearest, labels = np.full((480, 640), np.inf), np.zeros((480, 640), np.int32)
        for i, (cy, cx) in enumerate(rng.uniform(0, (480, 640), (segments, 2))):
            distance = (y - cy) ** 2 + (x - cx) ** 2
            labels = np.where(distance < nearest, i, labels)
            nearest = np.minimum(distance, nearest)
        targets.append(labels.astype(np.int32))
    targets = np.array(targets)
    predictions = np.roll(targets, (4, 6), (1, 2))
    target_labels = rng.integers(0, classes, (images, segments)).astype(np.int32)
    changed = rng.random(target_labels.shape) < 0.1
    prediction_labels = np.where(changed, (target_labels + 1) % classes, target_labels)
    data = predictions, targets, prediction_labels, target_labels

    count = jax.jit(jax.vmap(functools.partial(panoptic.panoptic_counts, num_classes=classes)))
    arrays = tuple(map(jnp.asarray, data))
    iou, (tp, fp, fn) = panoptic_loop(*data, classes)
    found = jax.tree.map(lambda x: x.sum(0), count(*arrays))
    np.testing.assert_array_equal(found.true_positives, tp)
    np.testing.assert_array_equal(found.false_positives, fp)
    np.testing.assert_array_equal(found.false_negatives, fn)
    np.testing.assert_allclose(found.iou, iou, rtol=1e-5)
    spent = medians(
        {
            "ours": lambda: jax.block_until_ready(count(*arrays)),
            "peer": lambda: panoptic_loop(*data, classes),
        },
        rounds,
    )
    what = f"panoptic quality, {images} images, {segments} segments: panopticapi's way"
    return Row(what, spent["ours"], spent["peer"], spent["peer"] / spent["ours"], ">= 10")


def bench_lovasz(rounds: int) -> Row:
    shape = 8, 512, 512, 21
    logits = jax.random.normal(jax.random.key(0), shape)
    targets = jax.random.randint(jax.random.key(1), shape[:-1], 0, shape[-1])

    def loss(logits, targets):
        return segmentation_losses.lovasz_softmax_loss(logits, targets).mean()

    run = jax.jit(jax.value_and_grad(loss))

    @jax.jit
    def errors(logits, targets):
        foreground = jax.nn.one_hot(targets, shape[-1])
        error = jnp.abs(foreground - jax.nn.softmax(logits))
        return jnp.moveaxis(error, -1, 1).reshape(shape[0], shape[-1], -1)

    sort, error = jax.jit(jnp.sort), errors(logits, targets)
    spent = medians(
        {
            "ours": lambda: jax.block_until_ready(run(logits, targets)),
            "peer": lambda: jax.block_until_ready(sort(error)),
        },
        rounds,
    )
    what = "Lovasz-Softmax and gradient, 8 x 512 x 512 x 21: one sort of the errors"
    return Row(what, spent["ours"], spent["peer"], spent["ours"] / spent["peer"], "<= 3")


def main() -> None:
    rounds = arguments(__doc__).rounds
    versions = f"jax {jax.__version__} on {jax.default_backend()}, torch {torch.__version__}"
    few = max(3, rounds // 5)
    show(
        f"Pixels, milliseconds ({versions})",
        [
            *(row for classes in (19, 150, 1000) for row in bench_confusion(classes, rounds)),
            *(bench_split(classes, rounds) for classes in (19, 150, 1000)),
            bench_sklearn(19, few),
            *bench_masks(100, rounds),
            bench_panoptic(100, 100, few),
            bench_lovasz(few),
        ],
    )


if __name__ == "__main__":
    main()
