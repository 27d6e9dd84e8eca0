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
    graph.problem("perception_node", "nobody publishes camera/front/color/image_raw; cameras there: wrist", 30)

    colors = make(Image, "camera/front/color/image_raw", qos.SENSOR)
    depths = make(Image, "camera/front/depth/image_raw", qos.SENSOR)
    infos = make(CameraInfo, "camera/front/camera_info", qos.SENSOR)
    pose = Pose(np.array([0.5, 0.0, 0.8]), np.array([0.0, 1.0, 0.0, 0.0]))  # looks down
    make(TFMessage, "tf_static", qos.LATCHED).publish(
        TFMessage(transforms=[messages.pose_to_transform(pose, FRAME, 0)])
    )
    intrinsics = np.array([[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1.0]])
    graph.wait(lambda: colors.get_subscription_count() and depths.get_subscription_count(), 20, "matching")

    def show(step, depth):
        stamp = step * 10**8
        infos.publish(messages.camera_info_to_msg(intrinsics, SIZE, SIZE, stamp, FRAME))
        colors.publish(messages.color_to_msg(np.full((SIZE, SIZE, 3), 90, np.uint8), stamp, FRAME))
        depths.publish(messages.depth_to_msg(depth, stamp, FRAME))
        graph.spin(0.3)

    table = np.full((SIZE, SIZE), 0.8, np.float32)
    show(1, np.full_like(table, np.nan))
    graph.problem("perception_node", f"camera 'front' depth: no finite depth in {SIZE} x {SIZE} pixels", 30)
    show(2, table[: SIZE // 2])
    graph.problem("perception_node", "depth", 30)
    assert not scenes
    show(3, table)
    scene = graph.wait(lambda: scenes, 60, "a scene")[-1]
    assert messages.from_stamp(scene.header.stamp) == 3 * 10**8
