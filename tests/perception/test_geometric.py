"""The geometric detector against geometry that was put in by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import CameraFrame
from engram.perception.geometric import GeometricDetector
from tests.contracts.detector import DetectorContract
from tests.perception.synthetic import box, camera_pose, cup, cylinder, render, table, tray

ARM = [
    cylinder((0.0, 0.0, 0.25), 0.07, 0.5, "white"),
    box((0.22, 0.0, 0.55), (0.5, 0.08, 0.08), "white"),
    cylinder((0.45, 0.0, 0.42), 0.05, 0.3, "white"),
    box((0.45, 0.0, 0.26), (0.03, 0.10, 0.12), "black"),
]


def detect(solids, **camera):
    return GeometricDetector().detect(render(solids, **camera)).objects


class TestGeometricContract(DetectorContract):
    def make(self):
        return GeometricDetector()

    def frame(self):
        return render([table(), *ARM, box((0.5, 0.15, 0.02), (0.04, 0.04, 0.04), "red", 0.2)])


@pytest.mark.parametrize("yaw", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("xy", [(0.5, 0.15), (0.42, -0.18), (0.6, 0.0)])
def test_a_cube_is_found_where_it_is_within_3_mm(xy, yaw):
    (cube,) = detect([table(), box((*xy, 0.02), (0.04, 0.04, 0.04), "red", yaw)], size=256)
    assert cube.label == "red cube"
    np.testing.assert_allclose(cube.pose.position, (*xy, 0.02), atol=0.003)
    np.testing.assert_allclose(cube.size, 0.04, atol=0.008)


def test_at_128_pixels_a_cube_is_found_within_6_mm():
    (cube,) = detect([table(), box((0.5, 0.15, 0.02), (0.04, 0.04, 0.04), "blue", 0.2)], size=128)
    assert cube.label == "blue cube"
    np.testing.assert_allclose(cube.pose.position, (0.5, 0.15, 0.02), atol=0.006)


@pytest.mark.parametrize("color", ["red", "green", "blue", "yellow"])
def test_shapes_and_colours_get_their_names(color):
    shapes = {
        f"{color} cube": [box((0.5, 0.0, 0.02), (0.04, 0.04, 0.04), color)],
        f"{color} cup": cup((0.5, 0.0, 0.0), 0.035, 0.09, color),
        f"{color} button": [
            cylinder((0.5, 0, 0.006), 0.035, 0.012, "black"),
            cylinder((0.5, 0, 0.018), 0.022, 0.012, color),
        ],
        "bin": tray((0.5, 0.0, 0.0), 0.16, 0.06, color),
        "drawer": [box((0.5, 0.0, 0.08), (0.2, 0.25, 0.16), color)],
    }
    found = {label: [o.label for o in detect([table(), *solids])] for label, solids in shapes.items()}
    assert found == {label: [label] for label in shapes}


@pytest.mark.parametrize("size", [128, 256])
def test_an_empty_table_has_no_objects(size):
    assert detect([table()], size=size) == ()


@pytest.mark.parametrize("size", [128, 256])
def test_the_arm_and_its_gripper_are_no_objects(size):
    assert detect([table(), *ARM], size=size) == ()


def test_a_cube_in_the_gripper_is_an_object_in_the_air():
    (cube,) = detect([table(), *ARM, box((0.45, 0.0, 0.20), (0.04, 0.04, 0.04), "green")], size=256)
    assert cube.label.startswith("green")
    np.testing.assert_allclose(cube.pose.position, (0.45, 0.0, 0.20), atol=0.01)


def test_a_stack_of_two_colours_is_two_cubes():
    stack = [box((0.5, 0.1, 0.02 + 0.04 * i), (0.04,) * 3, c, 0.1 * i) for i, c in enumerate(("red", "blue"))]
    found = {o.label: o.pose.position for o in detect([table(), *stack], size=256)}
    assert sorted(found) == ["blue cube", "red cube"]
    np.testing.assert_allclose(found["red cube"], (0.5, 0.1, 0.02), atol=0.006)
    np.testing.assert_allclose(found["blue cube"], (0.5, 0.1, 0.06), atol=0.006)


def test_two_cubes_that_touch_are_told_apart_by_colour():
    pair = [box((0.5, 0.02 * s, 0.02), (0.04,) * 3, c) for s, c in ((-1, "yellow"), (1, "green"))]
    found = {o.label: o.pose.position for o in detect([table(), *pair], size=256)}
    np.testing.assert_allclose(found["yellow cube"], (0.5, -0.02, 0.02), atol=0.006)
    np.testing.assert_allclose(found["green cube"], (0.5, 0.02, 0.02), atol=0.006)


def test_a_cube_in_a_gray_bin_is_an_object_of_its_own():
    inside = [*tray((0.5, 0.0, 0.0), 0.18, 0.05, "gray"), box((0.48, 0.0, 0.028), (0.04,) * 3, "red")]
    found = {o.label: o for o in detect([table(), *inside], size=256)}
    assert sorted(found) == ["bin", "red cube"]
    np.testing.assert_allclose(found["bin"].pose.position, (0.5, 0.0, 0.025), atol=0.01)


def test_a_flat_white_disc_on_a_gray_table_is_a_mark():
    gray = box((0.5, 0.0, -0.02), (1.2, 1.6, 0.04), "gray")
    (mark,) = detect([gray, cylinder((0.5, 0.1, 0.0005), 0.04, 0.001, "white")], size=256)
    assert mark.label == "mark"
    np.testing.assert_allclose(mark.pose.position, (0.5, 0.1, 0.0), atol=0.005)
    np.testing.assert_allclose(mark.size[:2], 0.08, atol=0.01)


def test_a_bar_before_a_drawer_is_its_handle():
    chest = [box((0.69, 0.0, 0.045), (0.17, 0.2, 0.09), "gray"), box((0.55, 0.0, 0.06), (0.022, 0.022, 0.06), "black")]
    found = {o.label: o.pose.position for o in detect([table(), *chest], size=256)}
    assert sorted(found) == ["drawer", "handle"]
    np.testing.assert_allclose(found["handle"], (0.55, 0.0, 0.06), atol=0.01)


def test_two_cubes_of_one_colour_side_by_side_stay_two():
    pair = [box((0.5, 0.035 * s, 0.02), (0.04,) * 3, "red") for s in (-1, 1)]
    assert [o.label for o in detect([table(), *pair], size=256)] == ["red cube", "red cube"]


def test_a_gripper_over_the_bin_leaves_the_bin_and_no_ghost():
    low = [
        cylinder((0.45, 0.0, 0.42), 0.05, 0.3, "white"),
        box((0.45, 0.0, 0.20), (0.05, 0.10, 0.14), "black"),
        box((0.45, 0.05, 0.10), (0.02, 0.02, 0.10), "black"),
        box((0.45, -0.05, 0.10), (0.02, 0.02, 0.10), "black"),
    ]
    found = detect([table(), *low, *tray((0.5, 0.0, 0.0), 0.2, 0.04, "gray")], size=256)
    assert [o.label for o in found] == ["bin"]


def test_a_half_hidden_cube_is_less_sure_of_its_place():
    cube = box((0.45, 0.1, 0.02), (0.04,) * 3, "red")
    screen = box((0.50, 0.12, 0.03), (0.01, 0.03, 0.06), "blue")
    whole = next(o for o in detect([table(), cube], size=256) if "red" in o.label)
    half = next(o for o in detect([table(), cube, screen], size=256) if "red" in o.label)
    assert half.score < whole.score
    assert np.trace(half.position_covariance) > np.trace(whole.position_covariance)


def test_a_table_at_another_height_is_found_in_the_picture():
    lifted = [table(0.1), box((0.5, 0.1, 0.12), (0.04,) * 3, "red")]
    (cube,) = detect(lifted, size=256, pose=camera_pose(eye=(1.25, 0.0, 0.85)))
    np.testing.assert_allclose(cube.pose.position, (0.5, 0.1, 0.12), atol=0.003)


def test_a_wall_without_a_table_gives_no_objects():
    assert detect([box((0.2, 0.0, 0.5), (0.1, 3.0, 3.0), "white")]) == ()


def test_a_thing_cut_by_the_border_is_less_sure():
    (whole,) = detect([table(), box((0.5, 0.0, 0.02), (0.04,) * 3, "red")])
    (cut,) = detect([table(), box((0.45, 0.0, 0.02), (0.04,) * 3, "red")], pose=camera_pose(target=(0.45, 0.40, 0.0)))
    assert cut.score < whole.score


def test_a_picture_of_the_wrong_size_is_refused():
    frame = render([table()])
    with pytest.raises(InvalidInputError, match="depth"):
        CameraFrame("front", 0, frame.color, frame.intrinsics, frame.pose, frame.depth[:, :64])


def test_a_picture_of_nothing_but_nan_is_refused():
    frame = render([table()])
    with pytest.raises(InvalidInputError, match="no finite value"):
        CameraFrame("front", 0, frame.color, frame.intrinsics, frame.pose, np.full_like(frame.depth, np.nan))
