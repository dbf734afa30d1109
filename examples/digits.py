"""Scenes of real handwritten digits with known boxes, drawn as fast as they are needed.

The digits are the 1,797 scans of scikit-learn's `load_digits`, 8 x 8 pixels each, which lie
in its wheel. A scene is a sheet with one to four of them at random places, sizes and aspect
ratios, among clutter of their kind: fragments of other digits, pen strokes that may cross
them, uneven light, grain. A box is the tight one around a digit's ink. A batch of scenes is a
pure function of a random key, and compiles into the training step that asks for it; so are
the label maps of the same scenes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.datasets import load_digits

from jaxiou import boxes, pairwise

SIDE = 64  # pixels of a scene, either way
DIGITS, FRAGMENTS, STROKES = 4, 3, 4  # in a scene, at most
INK = 0.5  # darkness from which on a pixel belongs to a digit


class Scenes(NamedTuple):
    """Pictures, and what is to be found in them.

    Attributes:
      images: `[B, SIDE, SIDE]`, from 0, blank, to 1, ink.
      boxes: `[B, DIGITS, 4]`, corners in pixels, tight around the ink; zeros where not valid.
      valid: bool, `[B, DIGITS]`; which boxes there are. The first is always there.
    """

    images: Array
    boxes: Array
    valid: Array


def split(seed: int, test: int = 597) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the scans for training, and of those for testing. None is in both."""
    order = np.random.default_rng(seed).permutation(1797)
    return order[test:], order[:test]


def scans(numbers: np.ndarray) -> Array:
    """The digits of these numbers, `[n, 8, 8]`, from 0 to 1."""
    return jnp.asarray(load_digits().images[numbers] / 16, jnp.float32)


def names(numbers: np.ndarray) -> Array:
    """Which digits these scans show, `[n]`, from 0 to 9."""
    return jnp.asarray(load_digits().target[numbers], jnp.int32)


def make_scenes(key: Array, glyphs: Array, batch: int) -> Scenes:
    """`batch` scenes whose digits and fragments are drawn from `glyphs`, `[n, 8, 8]`."""
    chance, grain = _chance(key, batch)
    images, found, valid = jax.vmap(lambda chance: _scene(chance, glyphs))(chance)
    grain = 0.05 * jax.random.normal(grain, images.shape)
    return Scenes(jnp.clip(images + grain, 0, 1), found, valid)


def make_label_maps(key: Array, glyphs: Array, shown: Array, batch: int) -> Array:
    """The scenes that `make_scenes` makes of the same key, pixel by pixel, `[B, SIDE, SIDE]`.

    1 + the digit for its ink, 0 for all else, clutter included. Compiled in one program with
    the scenes, it does not draw them twice.
    """

    def label_map(chance: Array) -> Array:
        _, _, valid = _scene(chance, glyphs)
        digits = chance[1 : 1 + DIGITS]
        ink = jax.vmap(lambda chance: _digit(chance, glyphs) > INK)(digits)
        labels = 1 + jax.vmap(lambda chance: shown[_number(chance, glyphs)])(digits)
        return jnp.where(ink & valid[:, None, None], labels[:, None, None], 0).max(0)

    return jax.vmap(label_map)(_chance(key, batch)[0])


def tight_box(ink: Array) -> Array:
    """The smallest box around the True pixels of a mask, `[4]`. Zeros if there are none."""

    def ends(line):
        return jnp.argmax(line), len(line) - jnp.argmax(line[::-1])

    (x1, x2), (y1, y2) = ends(ink.any(0)), ends(ink.any(1))
    return jnp.where(ink.any(), jnp.stack([x1, y1, x2, y2]), 0).astype(jnp.float32)


def _chance(key: Array, batch: int) -> tuple[Array, Array]:
    """Uniform random numbers, eight for each thing in each scene, and the key of the grain."""
    chance, grain = jax.random.split(key)
    return jax.random.uniform(chance, (batch, 1 + DIGITS + FRAGMENTS + STROKES, 8)), grain


def _scene(chance: Array, glyphs: Array) -> tuple[Array, Array, Array]:
    """A scene without grain, from uniform random numbers: eight for each thing in it."""
    sheet, digits, fragments, strokes = jnp.split(chance, np.cumsum([1, DIGITS, FRAGMENTS]))
    digits = jax.vmap(lambda chance: _digit(chance, glyphs))(digits)
    fragments = jax.vmap(lambda chance: _fragment(chance, glyphs))(fragments)
    pasted = jnp.concatenate([digits, fragments])

    found = jax.vmap(tight_box)(pasted > INK)
    place = jnp.arange(0.0, len(pasted))
    kept = _apart(found, (place < 1 + DIGITS * sheet[0, 0]) | (place >= DIGITS))

    layers = [*jax.vmap(_stroke)(strokes), *jnp.where(kept[:, None, None], pasted, 0)]
    image = _sheet(sheet[0])
    for layer, shade in zip(layers, 0.55 + 0.45 * chance[1:, 0], strict=True):
        image = image + layer * (shade - image)
    valid = kept[:DIGITS]
    return image, jnp.where(valid[:, None], found[:DIGITS], 0), valid


def _digit(chance: Array, glyphs: Array) -> Array:
    """One digit alone on a sheet, `[SIDE, SIDE]`."""
    return _paste(chance, _choose(chance, glyphs))


def _fragment(chance: Array, glyphs: Array) -> Array:
    """As `_digit`, but only 4 x 4 of the digit's 8 x 8 pixels."""
    rows, columns = (jnp.abs(jnp.arange(8.0) - jnp.floor(5 * u) - 1.5) < 2 for u in chance[6:])
    piece = jnp.where(rows[:, None] & columns[None, :], _choose(chance, glyphs), 0)
    return _paste(chance, piece)


def _choose(chance: Array, glyphs: Array) -> Array:
    return glyphs[_number(chance, glyphs)]


def _number(chance: Array, glyphs: Array) -> Array:
    return (chance[1] * len(glyphs)).astype(jnp.int32)


def _paste(chance: Array, glyph: Array) -> Array:
    """A glyph, stretched to a height of 16 to 37 pixels, anywhere on a sheet."""
    size, aspect, x, y = chance[2:6]
    height = 16 * jnp.exp(0.85 * size)
    width = height * jnp.exp(0.8 * aspect - 0.4)
    smooth = _stretch(y, height) @ glyph @ _stretch(x, width).T
    return jnp.clip(3 * smooth - 1.2, 0, 1)


def _stretch(place: Array, length: Array) -> Array:
    """Weights `[SIDE, 8]` that interpolate 8 pixels to `length` of them."""
    start = place * (SIDE - length)
    source = (jnp.arange(0.5, SIDE) - start) * 8 / length - 0.5
    return jax.nn.relu(1 - jnp.abs(source[:, None] - jnp.arange(8.0)[None, :]))


def _stroke(chance: Array) -> Array:
    """An arc of a circle, as a pen would draw it, `[SIDE, SIDE]`."""
    x, y, angle, radius, length, width = chance[2:]
    angle, radius, length, width = 6.3 * angle, 5 + 60 * radius, 5 + 30 * length, 2 + 2 * width
    across, down = jnp.cos(angle), jnp.sin(angle)
    dx = (jnp.arange(0.5, SIDE) - SIDE * x + radius * across)[None, :]
    dy = (jnp.arange(0.5, SIDE) - SIDE * y + radius * down)[:, None]
    distance = jnp.hypot(dx, dy)
    opening = jnp.cos(jnp.minimum(length / radius, 6) / 2)
    drawn = dx * across + dy * down > distance * opening
    ink = jnp.clip(width / 2 + 0.5 - jnp.abs(distance - radius), 0, 1)
    return jnp.where(drawn, ink, 0)


def _sheet(chance: Array) -> Array:
    """A blank sheet in uneven light."""
    left, right, top, bottom = 0.15 * chance[1:5]
    return jnp.linspace(left, right, SIDE)[None, :] + jnp.linspace(top, bottom, SIDE)[:, None]


def _apart(found: Array, wanted: Array) -> Array:
    """Which boxes may stay so that no two overlap: of two, the earlier one."""
    clash = pairwise(boxes.iou)(found, found) > 0.01
    for i in range(1, len(found)):
        wanted = wanted.at[i].set(wanted[i] & ~(clash[i, :i] & wanted[:i]).any())
    return wanted
