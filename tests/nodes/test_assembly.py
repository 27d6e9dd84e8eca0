"""Messages become parts of a frame; a malformed one changes nothing."""

import numpy as np
import pytest
from tf2_msgs.msg import TFMessage

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import Pose
from engram.core.words import FRAME_MAX
from engram.nodes import messages
from engram.nodes.assembly import make_camera, take_color, take_depth, take_info, take_transforms
from engram.runtime.transforms import MOST_FRAMES, TransformBuffer

POSE = Pose(np.array([0.1, 0.2, 0.3]), np.array([1.0, 0, 0, 0]))


def color(stamp_ns, frame=None):
    frame = messages.optical_frame("front") if frame is None else frame
    return messages.color_to_msg(np.full((2, 2, 3), 7, np.uint8), stamp_ns, frame)


@pytest.mark.parametrize("static", [True, False])
def test_the_messages_of_one_instant_are_a_frame(static):
    transforms = TransformBuffer()
    camera = make_camera("front", transforms, depth=True)
    moved = messages.pose_to_transform(POSE, messages.optical_frame("front"), 5)
    take_transforms(transforms, TFMessage(transforms=[moved]), static=static)
    take_color(camera, color(5))
    take_depth(camera, messages.depth_to_msg(np.full((2, 2), 0.5, np.float32), 5, messages.optical_frame("front")))
    take_info(camera, messages.camera_info_to_msg(np.eye(3), 2, 2, 0, messages.optical_frame("front")))
    frame = camera.frame(5)
    assert (frame.color.max(), float(frame.depth.max())) == (7, 0.5)
    np.testing.assert_array_equal(frame.pose.position, POSE.position)


def test_a_picture_may_name_another_frame():
    transforms = TransformBuffer()
    transforms.add_static("lens", POSE)
    camera = make_camera("front", transforms, depth=False)
    take_info(camera, messages.camera_info_to_msg(np.eye(3), 2, 2, 0, "lens"))
    take_color(camera, color(5, "lens"))
    np.testing.assert_array_equal(camera.frame(5).pose.position, POSE.position)


def test_a_malformed_picture_changes_nothing():
    camera = make_camera("front", TransformBuffer(), depth=False)
    bad = color(5)
    bad.encoding = "mono8"
    with pytest.raises(UnknownNameError, match="encoding of camera 'front' color 'mono8'"):
        take_color(camera, bad)
    assert camera.newest() is None


def test_a_picture_that_names_an_endless_frame_is_refused_and_changes_nothing():
    """Whoever looks for its pose would repeat that name, and compare it with all others."""
    camera = make_camera("front", TransformBuffer(), depth=False)
    with pytest.raises(InvalidInputError, match="camera 'front' color: frame: 257 characters, expected at most 256"):
        take_color(camera, color(5, "x" * (FRAME_MAX + 1)))
    assert camera.newest() is None and camera.pictures == 0


def test_a_message_of_more_transforms_than_are_kept_is_refused():
    one = messages.pose_to_transform(POSE, "made up", 5)
    with pytest.raises(InvalidInputError, match="1025 frames, at most 1024"):
        take_transforms(TransformBuffer(), TFMessage(transforms=[one] * (MOST_FRAMES + 1)), static=True)
