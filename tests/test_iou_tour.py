"""Every number of the tour, against the introductions' digits and against exact arithmetic."""

import math
import sys
from fractions import Fraction
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import iou_tour as tour


def assert_prints(values, *texts: str) -> None:
    """The texts are the values, rounded to their digits; a tie may go either way."""
    values = np.atleast_1d(np.asarray(values, np.float64))
    assert len(values) == len(texts)
    for value, text in zip(values, texts, strict=True):
        half = 0.5 * 10.0 ** -len(text.partition(".")[2])
        assert abs(value - float(text)) <= half + 1e-9, (value, text)


def assert_exactly(values, *fractions: Fraction) -> None:
    """Equal up to the rounding of float32."""
    np.testing.assert_allclose(
        np.atleast_1d(values), [float(q) for q in fractions], rtol=2**-22, atol=0
    )


def test_the_ellipse_has_the_tight_box_of_its_semi_axes():
    # Half-widths sqrt(a^2 cos^2 + b^2 sin^2) = sqrt(711) = 26.66 and sqrt(333) = 18.25 around
    # (60, 40): the outermost pixel centres within are 33.5, 86.5 and 22.5, 57.5.
    assert tour.ellipse().box.tolist() == [33, 22, 87, 58]


def test_the_ellipse_fills_58_percent_of_its_box():
    fill = tour.ellipse().fill
    assert f"{fill:.0%}" == "58%"
    # The area is pi a b, to a pixel or so along its edge.
    assert abs(fill * 54 * 36 - math.pi * 30 * 12) < 5


def test_box_iou_of_the_shifted_ellipses():
    box_iou = tour.ellipse().box_iou
    assert_prints(box_iou, "0.737", "0.723")
    assert_exactly(box_iou, Fraction(50 * 33, 2 * 1944 - 50 * 33), Fraction(1632, 3888 - 1632))


def test_mask_iou_of_the_shifted_ellipses_tells_the_directions_apart():
    mask_iou = tour.ellipse().mask_iou
    assert_prints(mask_iou, "0.803", "0.583")


def test_mask_iou_against_counting_pixels_one_by_one():
    def inside(i, j, shift):
        # The quadratic form of the ellipse, from its covariance: sum of axis^2 * u u^T.
        cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
        xx, yy = 900 * cos**2 + 144 * sin**2, 900 * sin**2 + 144 * cos**2
        xy = (900 - 144) * cos * sin
        x, y = j + 0.5 - 60 - shift[0], i + 0.5 - 40 - shift[1]
        return (yy * x * x - 2 * xy * x * y + xx * y * y) / (xx * yy - xy * xy) <= 1

    pixels = [(i, j) for i in range(80) for j in range(120)]
    for shift, result in zip([(4, 3), (-3, 4)], tour.ellipse().mask_iou, strict=True):
        pairs = [(inside(i, j, (0, 0)), inside(i, j, shift)) for i, j in pixels]
        both, either = sum(a and b for a, b in pairs), sum(a or b for a, b in pairs)
        assert_exactly(result, Fraction(both, either))


def test_a_square_one_pixel_off():
    result = tour.squares(1, 0)
    assert_prints(result, "0.778", "0.882", "0.939", "0.969", "0.984")
    assert_exactly(result, *(Fraction(s - 1, s + 1) for s in (8, 16, 32, 64, 128)))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_square_d_pixels_off_scores_s_minus_d_over_s_plus_d(d):
    expected = [Fraction(s - d, s + d) for s in (8, 16, 32, 64, 128)]
    assert_exactly(tour.squares(d, 0), *expected)
    assert_exactly(tour.squares(0, -d), *expected)


def test_a_square_two_pixels_off_in_both_directions():
    result = tour.squares(2, 2)
    assert_prints(result, "0.391", "0.620", "0.784", "0.884", "0.940")
    shared = [(s, (s - 2) ** 2) for s in (8, 16, 32, 64, 128)]
    assert_exactly(result, *(Fraction(i, 2 * s * s - i) for s, i in shared))


def test_a_tenth_off_both_ways():
    assert_prints(tour.tenth_off(), "0.681")
    assert_exactly(tour.tenth_off(), Fraction(8100, 11900))


def test_a_third_of_the_width_apart_is_half():
    assert tour.third_off() == 0.5


@pytest.mark.parametrize(
    ("iou", "text", "exact"), [(0.5, "0.667", Fraction(2, 3)), (0.9, "0.947", Fraction(18, 19))]
)
def test_dice_is_twice_the_iou_over_one_plus_it(iou, text, exact):
    assert_prints(tour.dice(iou), text)
    assert_exactly(tour.dice(iou), exact)


def test_the_iou_does_not_feel_the_gap():
    gap = tour.apart()
    assert gap.iou.tolist() == [0, 0, 0]
    assert gap.iou_slope.tolist() == [0, 0, 0]


def test_giou_feels_the_gap():
    # 20-pixel boxes g apart: 20 g of the (40 + g) * 20 around them are empty.
    giou = tour.apart().giou
    assert_prints(giou, "-0.048", "-0.200", "-0.500")
    assert_exactly(giou, *(Fraction(-g, 40 + g) for g in (2, 10, 40)))


def test_the_slope_of_the_giou_loss_falls_with_the_gap():
    # d/dg of g / (40 + g). The last is 0.00625, which prints as 0.0062 or 0.0063.
    slope = tour.apart().giou_slope
    assert_prints(slope, "0.0227", "0.0160", "0.0062")
    assert_exactly(slope, *(Fraction(40, (40 + g) ** 2) for g in (2, 10, 40)))


def test_inclusive_labels_read_as_corners_shrink_small_boxes_most():
    result = tour.inclusive()
    assert_exactly(result, *(Fraction((s - 1) ** 2, s**2) for s in (8, 16, 32, 64, 128)))
    assert jnp.all(jnp.diff(result) > 0)


def test_the_inclusive_label_of_a_pixel_has_an_area_only_once_converted():
    assert tour.pixel().tolist() == [1, 0]


def test_the_tour_prints_what_it_computes(capsys):
    tour.main()
    printed = capsys.readouterr().out
    for text in ["[33, 22, 87, 58]", "58%", "0.803", "0.583", "0.947", "-0.048", "0.00625"]:
        assert text in printed
