"""A camera's axes, matrix and pose against numbers worked out by hand."""

import numpy as np
import pytest

from engram.core.camera import CameraConfig
from engram.core.errors import InvalidInputError

DOWN_X = {"position": (0.0, 0.0, 0.0), "right": (0.0, -1.0, 0.0), "up": (0.0, 0.0, 1.0)}  # looks along +x


def test_it_looks_at_what_it_shall_look_at():
    camera = CameraConfig.looking_at("front", (1.0, 0.0, 1.0), (0.0, 0.0, 0.0))
    half = 0.5**0.5
    np.testing.assert_allclose(camera.right, (0.0, 1.0, 0.0))  # it looks back: what is left of the robot is right of it
    np.testing.assert_allclose(camera.up, (-half, 0.0, half))
    pose = camera.pose()
    w, x, y, z = pose.quaternion
    forward = (2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))  # third column of its rotation matrix
    np.testing.assert_allclose(forward, (-half, 0.0, -half), atol=1e-12)
    assert pose.frame == "base_link" and camera.fixed


def test_its_matrix_has_the_focal_length_of_its_field_of_view():
    camera = CameraConfig("eye", **DOWN_X, fovy_deg=90.0)
    np.testing.assert_allclose(camera.intrinsics(100, 200), [[50, 0, 100], [0, 50, 50], [0, 0, 1]])
    assert camera.pixels(128) == (128, 128)
    assert CameraConfig("eye", **DOWN_X, size=(96, 160)).pixels(128) == (96, 160)


def test_a_calibrated_camera_keeps_its_matrix_in_pictures_of_another_size():
    camera = CameraConfig("eye", **DOWN_X, size=(100, 200), calibration=(110.0, 100.0, 98.0, 52.0))
    np.testing.assert_allclose(camera.intrinsics(100, 200), [[110, 0, 98], [0, 100, 52], [0, 0, 1]])
    np.testing.assert_allclose(camera.intrinsics(50, 400), [[220, 0, 196], [0, 50, 26], [0, 0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calibration": (100.0, 100.0, 50.0, 50.0)}, "calibration needs the size"),
        ({"calibration": (100.0, 0.0, 50.0, 50.0), "size": (100, 100)}, "expected fx, fy, cx, cy in pixels"),
        ({"calibration": (100.0, 9.0, 50.0), "size": (100, 100)}, "expected fx, fy, cx, cy in pixels"),
        ({"name": "a/b"}, "expected a word"),
        ({"up": (0.0, 1.0, 1.0)}, "not unit vectors at a right angle"),
        ({"fovy_deg": 180.0}, "expected between 0 and 180"),
        ({"size": (0, 10)}, "expected height and width"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(InvalidInputError, match=message):
        CameraConfig(**{"name": "eye", **DOWN_X, **change})


def test_a_view_straight_down_needs_its_axes():
    with pytest.raises(InvalidInputError, match="give right and up"):
        CameraConfig.looking_at("top", (0.0, 0.0, 1.0), (0.0, 0.0, 0.0))
