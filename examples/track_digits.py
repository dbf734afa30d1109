"""Tracks real handwritten digits that move across a scene, and scores the tracks.

    python examples/track_digits.py

Digits from scikit-learn's `load_digits` come in from the left and from the right, cross each
other and leave. What a detector would make of it is drawn by chance: their boxes, shaken and in
any order, of which some are missed, always those that another digit hides, and some are false.
`association.sort_tracker` makes tracks of them, the whole sequence in one program, and
`tracking.hota`, `clear` and `identity` say how good these are. It takes some ten seconds and ends
with a table, in which a track may outlive one missed frame or more of them, and a picture of
the scene with one colour for each id.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from digits import INK, scans, split, tight_box
from jax import Array
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from rich.console import Console
from rich.table import Table

from jaxiou import boxes, pairwise
from jaxiou.tracking import association, clear, hota, identity, packing

HEIGHT, WIDTH = 96, 192  # pixels
SIZES = 18, 30  # of the digits, in pixels
FALSE = 4  # false detections in a frame, at most
CAPACITY = 32  # tracks at a time
MIN_HITS = 1  # detections in a row that prove a track; SORT's own setting, 3, misses more
AGES = 1, 4, 16  # how many missed frames a track outlives; SORT's own setting is 1
TRAIL = 25  # frames


class Scene(NamedTuple):
    """A film, and where each of its digits is.

    Attributes:
      images: `[F, HEIGHT, WIDTH]`, from 0, blank, to 1, ink.
      truth: the digits, `[F, N]`: each the same id and the same row in all frames.
    """

    images: Array
    truth: packing.Trajectories


class Detections(NamedTuple):
    """Boxes, `[F, N + FALSE, 4]`, and which there are, bool `[F, N + FALSE]`."""

    regions: Array
    valid: Array


def make_scene(key: Array, glyphs: Array, frames: int, objects: int) -> Scene:
    """A film of `objects` digits drawn from `glyphs`, `[n, 8, 8]`."""
    chance = jax.random.uniform(key, (8, objects))
    chosen = glyphs[(chance[0] * len(glyphs)).astype(jnp.int32)]
    size = SIZES[0] + (SIZES[1] - SIZES[0]) * chance[1]
    speed = 1.5 + 1.5 * chance[2]
    # At time `enters` a digit is just out of sight.
    enters = (chance[3] * 1.1 - 0.4) * frames
    lane, swing, phase = (0.1 + 0.8 * chance[4]) * HEIGHT, 12 * chance[5], 6.3 * chance[6]
    to_the_right = chance[7] < 0.5

    def frame(time: Array) -> tuple[Array, Array, Array]:
        way = speed * (time - enters) - size / 2
        x = jnp.where(to_the_right, way, WIDTH - way)
        y = lane + swing * jnp.sin(time / 15 + phase)
        layers = jax.vmap(draw)(chosen, x, y, size)
        found = jax.vmap(tight_box)(layers > INK)
        return layers.max(0), found, boxes.is_valid(found, min_size=5.0)

    images, regions, valid = jax.lax.map(frame, jnp.arange(frames, dtype=jnp.float32))
    ids = jnp.broadcast_to(jnp.arange(objects, dtype=jnp.int32), valid.shape)
    return Scene(images, packing.Trajectories(ids, regions, valid))


def draw(glyph: Array, x: Array, y: Array, size: Array) -> Array:
    """One digit with its centre at `(x, y)`, alone on a sheet."""

    def stretch(centre: Array, length: int) -> Array:
        """Weights `[length, 8]` that interpolate 8 pixels to `size` of them."""
        source = (jnp.arange(0.5, length) - centre) * 8 / size + 3.5
        return jax.nn.relu(1 - jnp.abs(source[:, None] - jnp.arange(8.0)[None, :]))

    return jnp.clip(3 * stretch(y, HEIGHT) @ glyph @ stretch(x, WIDTH).T - 1.2, 0, 1)


def detect(key: Array, truth: packing.Trajectories, misses: float, false: float) -> Detections:
    """What a detector might find."""
    keys = jax.random.split(key, 5)
    regions, valid = truth.regions, truth.valid
    sides = jnp.tile(regions[..., 2:] - regions[..., :2], 2)
    shaken = regions + 0.03 * sides * jax.random.normal(keys[0], regions.shape)

    # A digit hides another that comes later if it covers most of its box.
    covered = pairwise(boxes.ioa)(regions, regions) > 0.6
    before = jnp.tril(jnp.ones(covered.shape[1:], bool), -1)
    hidden = (covered & before[None] & valid[:, None, :]).any(axis=2)
    found = valid & ~hidden & (jax.random.uniform(keys[1], valid.shape) >= misses)

    shape = (len(regions), FALSE)
    centre, size = jnp.split(jax.random.uniform(keys[2], (*shape, 4)), 2, axis=-1)
    centre, size = centre * jnp.array([[[WIDTH, HEIGHT]]], jnp.float32), 10 + 20 * size
    anywhere = boxes.from_cxcywh(jnp.concatenate([centre, size], axis=-1))
    invented = jax.random.uniform(keys[3], shape) < false / FALSE

    every = jnp.concatenate([shaken, anywhere], axis=1)
    there = jnp.concatenate([found, invented], axis=1)
    order = jnp.argsort(jax.random.uniform(keys[4], there.shape), axis=1)
    every = jnp.take_along_axis(every, order[..., None], axis=1)
    return Detections(every, jnp.take_along_axis(there, order, axis=1))


def evaluate(
    trajectories: packing.Trajectories, truth: packing.Trajectories, births: int
) -> dict[str, float]:
    """What the three evaluations say of tracks whose ids are below `births`."""
    sequence = packing.compare(trajectories, truth)
    ids = {"num_predictions": births, "num_targets": truth.ids.shape[1]}
    whole = hota.summarize(hota.count(sequence, **ids))
    frames = clear.summarize(clear.count(sequence, num_targets=ids["num_targets"]))
    pairs = identity.summarize(identity.count(sequence, **ids))
    scores = {"HOTA": whole.hota.mean(), "DetA": whole.det_a.mean(), "AssA": whole.ass_a.mean()}
    scores |= {"MOTA": frames.mota, "IDF1": pairs.idf1, "switches": frames.idsw}
    return {name: float(x) for name, x in scores.items()}


def picture(scene: Scene, detections: Detections, tracks: packing.Trajectories, title: str):
    """Six moments: detections in grey, and of each track its box, its id and where it was."""
    scene, detections, tracks = jax.device_get((scene, detections, tracks))
    frames, shown = len(scene.images), np.unique(tracks.ids[tracks.valid])
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    for i, axes in enumerate(figure.subplots(2, 3).flat):
        now = round((i + 1) * (frames - 1) / 6)
        extent = (0, WIDTH, HEIGHT, 0)
        axes.imshow(scene.images[now], cmap="gray_r", vmin=0, vmax=1.6, extent=extent)
        axes.set(xticks=[], yticks=[], xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.set_title(f"frame {now}", size=9)
        for box in detections.regions[now][detections.valid[now]]:
            axes.add_patch(rectangle(box, edgecolor="0.6", linewidth=1, linestyle=":"))
        for row in tracks.valid[now].nonzero()[0]:
            track, box = tracks.ids[now, row], tracks.regions[now, row]
            colour = colormaps["tab10"](np.searchsorted(shown, track) % 10)
            axes.add_patch(rectangle(box, edgecolor=colour, linewidth=1.8))
            past = tracks.valid[: now + 1] & (tracks.ids[: now + 1] == track)
            trail = tracks.regions[: now + 1][past][-TRAIL:]
            axes.plot(*boxes.to_cxcywh(trail)[:, :2].T, color=colour, linewidth=1.2, alpha=0.7)
            label = axes.text(box[0], max(box[1] - 2, 7), str(track), color=colour, size=9)
            label.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    figure.suptitle(title)
    return figure


def rectangle(box: Array, **style) -> Rectangle:
    x, y, width, height = boxes.to_xywh(box)
    return Rectangle((x, y), width, height, fill=False, **style)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--digits", type=int, default=12)
    parser.add_argument("--misses", type=float, default=0.1, help="share of the digits not found")
    parser.add_argument("--false", type=float, default=0.5, help="false detections in a frame")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("outputs/track_digits.png"))
    options = parser.parse_args(arguments)

    scene_key, detector_key = jax.random.split(jax.random.key(options.seed, impl="rbg"))
    glyphs = scans(split(options.seed)[1])
    make = jax.jit(make_scene, static_argnums=(2, 3))
    scene = make(scene_key, glyphs, options.frames, options.digits)
    detections = jax.jit(detect)(detector_key, scene.truth, options.misses, options.false)

    tracked = {}
    for age in AGES:
        given = {"capacity": CAPACITY, "where": detections.valid, "max_age": age}
        given |= {"min_hits": MIN_HITS}
        tracked[age] = association.sort_tracker(detections.regions, **given)
    births = max(int(x.births) for x in tracked.values())
    found = {age: evaluate(x.trajectories, scene.truth, births) for age, x in tracked.items()}

    what = f"{int(scene.truth.valid.sum()):,} boxes of {options.digits} digits"
    what += f", {int(detections.valid.sum()):,} detections"
    table = Table("max_age", *found[AGES[0]], title=what)
    for age, scores in found.items():
        ratios = [f"{x:.3f}" for x in list(scores.values())[:-1]]
        table.add_row(str(age), *ratios, f"{scores['switches']:.0f}")
    Console().print(table)

    best = max(AGES, key=lambda age: found[age]["HOTA"])
    title = f"SORT with max_age {best}: "
    title += ", ".join(f"{name} {found[best][name]:.2f}" for name in ("HOTA", "MOTA", "IDF1"))
    title += "; detections are dotted"
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    picture(scene, detections, tracked[best].trajectories, title).savefig(options.picture, dpi=100)
    print(f"Wrote {options.picture}")


if __name__ == "__main__":
    main()
