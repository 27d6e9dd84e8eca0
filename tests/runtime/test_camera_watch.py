"""A camera that sends nothing, and one whose frames stay incomplete, are named after three looks."""

import numpy as np
import pytest

from engram.core.types import Pose
from engram.runtime.assembly import CameraInbox
from engram.runtime.camera_watch import CameraWatch
from engram.runtime.transforms import TransformBuffer

SIZE = 4
IMAGE = np.zeros((SIZE, SIZE, 3), np.uint8)


class Desk:
    """The watch of a camera without depth that stands still."""

    def __init__(self):
        transforms = TransformBuffer()
        transforms.add_static("front_optical_frame", Pose(np.zeros(3), np.array([1.0, 0, 0, 0])))
        self.inbox = CameraInbox("front", transforms, depth=False, optical_frame="front_optical_frame")
        self.watch = CameraWatch(self.inbox, "camera/front/color/image_raw")

    def picture(self, stamp_ns):
        """Show a picture; note the frames that are complete by now."""
        self.inbox.add_color(stamp_ns, IMAGE, "")
        for frame in self.inbox.take():
            self.watch.completed(frame.stamp_ns)

    def calibrate(self):
        self.inbox.set_intrinsics(np.array([[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1.0]]))


@pytest.fixture
def desk():
    return Desk()


def test_a_camera_that_sends_nothing_is_named_at_the_third_look(desk):
    said = [desk.watch.look() for _ in range(4)]
    assert said == ["", ""] + [f"camera/front/color/image_raw: no picture that can be used for {n} s" for n in (3, 4)]
    desk.calibrate()
    desk.picture(1)
    assert desk.watch.look() == ""


def test_what_a_frame_lacks_is_named_at_the_third_look_and_no_more_when_one_is_complete(desk):
    said = []
    for stamp_ns in range(1, 5):
        desk.picture(stamp_ns)
        said.append(desk.watch.look())
    incomplete = "frames incomplete: lacks camera 'front' camera_info"
    assert said == [None, None, incomplete, incomplete]
    desk.calibrate()
    desk.picture(5)
    assert (desk.watch.look(), desk.watch.complete_ns) == ("", 5)
    desk.picture(5)  # shown again
    assert desk.watch.look() == ""


def test_a_simulation_at_rest_owes_no_complete_frame(desk):
    for stamp_ns in range(1, 5):
        desk.watch.resting_ns = stamp_ns
        desk.picture(stamp_ns)
        assert desk.watch.look() == ""
