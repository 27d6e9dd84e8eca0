"""Colour names and hue modes."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from engram.perception.color import color_name, hue_groups, to_hsv


def test_hsv_equals_the_standard_library():
    rgb = np.random.default_rng(0).random((50, 3))
    rgb[0] = 0.3  # gray: no hue
    expected = np.array([colorsys.rgb_to_hsv(*c) for c in rgb]) * (360, 1, 1)
    np.testing.assert_allclose(to_hsv(rgb), expected, atol=1e-9)


@pytest.mark.parametrize("light", [0.4, 0.7, 1.0])
@pytest.mark.parametrize(
    ("rgb", "name"),
    [
        ((0.85, 0.10, 0.10), "red"),
        ((0.10, 0.65, 0.15), "green"),
        ((0.10, 0.20, 0.85), "blue"),
        ((0.90, 0.80, 0.10), "yellow"),
        ((0.95, 0.50, 0.05), "orange"),
        ((0.50, 0.10, 0.80), "purple"),
    ],
)
def test_a_hue_keeps_its_name_in_shadow(rgb, name, light):
    assert color_name(light * np.array(rgb)) == name


@pytest.mark.parametrize(("value", "name"), [(0.1, "black"), (0.5, "gray"), (0.95, "white")])
def test_what_has_no_hue_is_named_by_its_brightness(value, name):
    assert color_name(np.full(3, value)) == name


def test_blends_do_not_bridge_two_colours():
    blend = np.linspace((0.85, 0.1, 0.1), (0.1, 0.2, 0.85), 7)[1:-1]
    rgb = np.concatenate((np.tile((0.85, 0.1, 0.1), (30, 1)), blend, np.tile((0.1, 0.2, 0.85), (20, 1))))
    groups = hue_groups(to_hsv(rgb), 8)
    assert set(groups[:30]) == {0} and set(groups[-20:]) == {1} and set(groups) == {0, 1}


def test_gray_belongs_to_no_hue():
    assert (hue_groups(to_hsv(np.full((20, 3), 0.6)), 8) == -1).all()
