"""The perception node as a process: pictures that it cannot use are named, and it goes on."""

import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, Image
from tf2_msgs.msg import TFMessage

from engram.core.types import Pose
from engram.nodes import messages, qos
from engram_interfaces.msg import SceneObservation

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]
FRAME = "front_optical_frame"
SIZE = 48


def test_a_missing_camera_and_unusable_depth_are_named_and_the_node_goes_on(graph):
    make = graph.node.create_publisher
    make(Image, "camera/wrist/color/image_raw", qos.SENSOR)
    scenes = graph.listen(SceneObservation, "scene/observation", qos.EVENTS)
    graph.start("perception_node", camera="front")
    graph.active("perception_node")
    graph.problem("perception_node", "nobody publishes camera/front/color/image_raw; cameras there: wrist", 60)

    colors = make(Image, "camera/front/color/image_raw", qos.SENSOR)
    depths = make(Image, "camera/front/depth/image_raw", qos.SENSOR)
    infos = make(CameraInfo, "camera/front/camera_info", qos.SENSOR)
    pose = Pose(np.array([0.5, 0.0, 0.8]), np.array([0.0, 1.0, 0.0, 0.0]))  # looks down
    poses = make(TFMessage, "tf_static", qos.LATCHED)
    poses.publish(TFMessage(transforms=[messages.pose_to_transform(pose, FRAME, 0)]))
    intrinsics = np.array([[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1.0]])
    graph.matched(colors, depths, infos, poses)

    def show(step, depth):
        stamp = step * 10**8
        infos.publish(messages.camera_info_to_msg(intrinsics, SIZE, SIZE, stamp, FRAME))
        colors.publish(messages.color_to_msg(np.full((SIZE, SIZE, 3), 90, np.uint8), stamp, FRAME))
        depths.publish(messages.depth_to_msg(depth, stamp, FRAME))

    def problem(step, depth, words):  # the node reads best effort: a picture may be lost
        graph.wait_telling(
            lambda: show(step, depth), lambda: words in graph.message("perception_node"), 60, f"the node says {words!r}"
        )

    table = np.full((SIZE, SIZE), 0.8, np.float32)
    problem(1, np.full_like(table, np.nan), f"camera 'front' depth: no finite depth in {SIZE} x {SIZE} pixels")
    problem(2, table[: SIZE // 2], f"depth: shape ({SIZE // 2}, {SIZE}), expected")
    assert not scenes
    scene = graph.wait_telling(lambda: show(3, table), lambda: scenes, 60, "a scene")[-1]
    assert messages.from_stamp(scene.header.stamp) == 3 * 10**8
