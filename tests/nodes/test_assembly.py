"""Parts of one instant become an observation, in any order; a robot's cameras may keep their own time."""

import numpy as np
import pytest
from tf2_msgs.msg import TFMessage

from engram.core.errors import UnknownNameError
from engram.core.types import Pose
from engram.nodes import messages
from engram.nodes.assembly import CameraInbox, ObservationInbox
from engram.nodes.transforms import TransformBuffer
from tests.core.gantry import joints

POSE = Pose(np.array([0.1, 0.2, 0.3]), np.array([1.0, 0, 0, 0]))


@pytest.fixture
def transforms():
    buffer = TransformBuffer()
    frames = [messages.pose_to_transform(POSE, messages.optical_frame(c), 0) for c in ("front", "wrist")]
    buffer.add_static(TFMessage(transforms=frames))
    return buffer


def color(stamp_ns, camera="front", value=1):
    pixels = np.full((2, 2, 3), value, np.uint8)
    return messages.color_to_msg(pixels, stamp_ns, messages.optical_frame(camera))


def info(camera="front"):
    return messages.camera_info_to_msg(np.eye(3), 2, 2, 0, messages.optical_frame(camera))


def depth(stamp_ns):
    return messages.depth_to_msg(np.ones((2, 2), np.float32), stamp_ns, "front_optical_frame")


def test_a_frame_is_complete_when_its_last_part_comes_whatever_the_order(transforms):
    inbox = CameraInbox("front", transforms, depth=True)
    inbox.on_depth(depth(5))
    assert inbox.frame(5) is None
    assert inbox.missing(5) == ["camera 'front' color", "camera 'front' camera_info"]
    inbox.on_info(info())
    inbox.on_color(color(5))
    frame = inbox.frame(5)
    assert (frame.stamp_ns, frame.depth.shape) == (5, (2, 2))
    np.testing.assert_array_equal(frame.pose.position, POSE.position)


def test_a_camera_without_tf_says_so():
    inbox = CameraInbox("front", TransformBuffer(), depth=False)
    inbox.on_info(info())
    inbox.on_color(color(5))
    assert inbox.frame(5) is None
    assert "unknown tf frame 'front_optical_frame'" in inbox.missing(5)[0]


def test_stamps_must_be_equal_in_simulation(transforms):
    cameras = [CameraInbox(name, transforms, depth=False) for name in ("front", "wrist")]
    inbox = ObservationInbox(cameras)
    for camera in cameras:
        camera.on_info(info(camera.name))
    inbox.on_joints(joints(stamp_ns=5))
    cameras[0].on_color(color(5))
    cameras[1].on_color(color(4, "wrist"))
    assert inbox.take() == []
    assert inbox.missing() == ["camera 'wrist' color"]
    cameras[1].on_color(color(5, "wrist"))
    (observation,) = inbox.take()
    assert set(observation.cameras) == {"front", "wrist"}
    assert inbox.take() == []


def test_a_robots_cameras_give_their_newest_frame_within_the_tolerance(transforms):
    camera = CameraInbox("front", transforms, depth=False)
    inbox = ObservationInbox([camera], tolerance_s=0.05)
    camera.on_info(info())
    camera.on_color(color(0, value=1))
    camera.on_color(color(20_000_000, value=2))
    inbox.on_joints(joints(stamp_ns=50_000_000))
    (observation,) = inbox.take()
    assert observation.camera("front").color.max() == 2
    inbox.on_joints(joints(stamp_ns=80_000_000))  # 60 ms after the picture: too old
    assert inbox.take() == []


def test_a_malformed_picture_changes_nothing(transforms):
    inbox = CameraInbox("front", transforms, depth=False)
    bad = color(5)
    bad.encoding = "mono8"
    with pytest.raises(UnknownNameError, match="encoding of camera 'front' color 'mono8'"):
        inbox.on_color(bad)
    assert inbox.newest() is None


def test_when_the_simulation_begins_anew_old_pictures_go(transforms):
    inbox = CameraInbox("front", transforms, depth=False)
    for stamp in range(10):
        inbox.on_color(color(10**11 + stamp))
    inbox.on_color(color(100))
    assert inbox.newest() == 100
