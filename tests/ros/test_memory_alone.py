"""``engram up memory`` beside a robot of others: a base that drives, its camera and its tf, and nothing of Engram's."""

import os
import subprocess
import sys
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo, Image
from tf2_msgs.msg import TFMessage

from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.ports import free_port
from engram.nodes import messages, qos
from engram.sim.world import MujocoWorld, WorldConfig
from engram_interfaces.srv import GetGraph, MemoryQuery
from tests.ros.processes import ROOT, NodeProcess, python_path

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(600)]
OPTICAL = "head_color_optical_frame"
TOPICS = {
    "color_topic": "d435/color/image_raw",
    "depth_topic": "d435/aligned_depth_to_color/image_raw",
    "camera_info_topic": "d435/color/camera_info",
}
WORLD = make_pose(np.array([3.0, 5.0, 0.0]), Rotation.from_euler("z", 0.5), "map")  # where the odometry began
STOPS = [(0.0, 0.0, 0.0), (0.05, 0.03, 0.04), (0.1, 0.06, 0.08), (0.15, 0.1, 0.15)]  # x m, y m, yaw rad in odom


def within(pose, frame):
    """Return ``pose``, told in ``frame``, in the parent of ``frame``."""
    return make_pose(to_frame(pose.position, frame), rotation(frame) * rotation(pose), frame.frame)


class Rover:
    """Carries the camera of our simulated table past it, and publishes as drivers and a localization do."""

    def __init__(self, graph):
        make = graph.node.create_publisher
        self.node, self.at, self.localized, self.looking = graph.node, 0, True, True
        self.colors = make(Image, TOPICS["color_topic"], qos.SENSOR_BEST_EFFORT)
        self.depths = make(Image, TOPICS["depth_topic"], qos.SENSOR_BEST_EFFORT)
        self.infos = make(CameraInfo, TOPICS["camera_info_topic"], qos.SENSOR_BEST_EFFORT)
        self.tf, self.fixed = make(TFMessage, "/tf", 10), make(TFMessage, "/tf_static", qos.LATCHED)
        world = MujocoWorld(WorldConfig(depth=True))
        mount = world.reset("pick_place", 3).cameras["front"].pose
        self.bin = to_frame(world.oracle_pose("bin").position, WORLD)
        self.stops = [make_pose(np.array([x, y, 0.0]), Rotation.from_euler("z", yaw), "odom") for x, y, yaw in STOPS]
        self.seen = [self._picture(world, within(mount, stop)) for stop in self.stops]
        world.close()
        head = make_pose(np.array([0.2, 0.0, 0.5]), Rotation.identity(), "base_link")
        lens = make_pose(mount.position - head.position, rotation(mount), "head_link")
        links = {"head_link": head, OPTICAL: lens}
        self.fixed.publish(
            TFMessage(transforms=[messages.pose_to_transform(pose, name, 0) for name, pose in links.items()])
        )
        graph.node.create_timer(0.1, self._publish)

    @staticmethod
    def _picture(world, pose):
        camera = world.model.camera("front").id
        turned = rotation(pose) * Rotation.from_matrix(np.diag([1.0, -1.0, -1.0]))  # MuJoCo's cameras look along -z
        world.model.cam_pos[camera], world.model.cam_quat[camera] = pose.position, turned.as_quat(scalar_first=True)
        return world.observe().cameras["front"]

    def _publish(self):
        stamp_ns = self.node.get_clock().now().nanoseconds
        if self.localized:
            chain = {"odom": WORLD, "base_link": self.stops[self.at]}
            moving = [messages.pose_to_transform(pose, name, stamp_ns) for name, pose in chain.items()]
            self.tf.publish(TFMessage(transforms=moving))
        if self.looking:
            frame = replace(self.seen[self.at], stamp_ns=stamp_ns)
            height, width = frame.color.shape[:2]
            self.infos.publish(messages.camera_info_to_msg(frame.intrinsics, height, width, stamp_ns, OPTICAL))
            self.colors.publish(messages.color_to_msg(frame.color, stamp_ns, OPTICAL))
            self.depths.publish(messages.depth_to_msg(frame.depth, stamp_ns, OPTICAL))


class Up(NodeProcess):
    """``engram up memory``, with a store of the test's own."""

    def __init__(self, folder, **arguments):
        parameters = folder / "memory.yaml"
        shipped = (ROOT / "config/memory.yaml").read_text()
        parameters.write_text(shipped.replace("~/.local/share/engram/{robot_id}/memory", str(folder / "memory")))
        words = [f"{name}:={value}" for name, value in {"params_file": parameters, **arguments}.items()]
        environment = {**os.environ, "PYTHONPATH": python_path(), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        command = [sys.executable, "-m", "engram.app.cli", "up", "memory", *words]
        self.executable, self.log = "engram up memory", (folder / "up.log").open("w")
        self.child = subprocess.Popen(command, env=environment, stdout=self.log, stderr=subprocess.STDOUT)


def test_a_base_that_drives_is_told_where_in_the_map_things_are_and_what_is_lost(graph, tmp_path):
    port = free_port()
    graph.processes.append(Up(tmp_path, port=port, camera="head", map="house 1", **TOPICS))
    rover = Rover(graph)
    graph.active("perception_node", "memory_node", "viewer_node")
    names = set(graph.node.get_node_names())  # some may be of an earlier test in this process
    assert names >= {"perception_node", "memory_node", "lifecycle_manager", "viewer_node"}
    assert not names & {"sim_node", "robot_node", "safety_node", "policy_node", "learner_node", "gate_node"}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=60) as page:
        assert page.status == 200

    def known():
        whole = graph.call(GetGraph, "memory/get_graph", GetGraph.Request()).graph
        assert whole.header.frame_id == "map"
        return messages.graph_from_msg(whole).nodes

    def robot_at(stop):
        (robot,) = [node for node in known() if node.layer == "agent"] or [None]
        place = to_frame(rover.stops[stop].position, WORLD)
        return robot if robot is not None and np.abs(robot.pose.position - place).max() < 1e-3 else None

    def place_of_the_bin():
        answer = graph.call(MemoryQuery, "memory/query", MemoryQuery.Request(text="where is the bin"))
        return messages.xyz(answer.nodes[0].pose.position)[:2]

    graph.wait(lambda: robot_at(0), 60, "the robot where it starts")
    np.testing.assert_allclose(place_of_the_bin(), rover.bin[:2], atol=0.02)
    for stop in range(1, len(STOPS)):
        rover.at = stop
        robot = graph.wait(lambda stop=stop: robot_at(stop), 60, f"the robot at stop {stop}")
    np.testing.assert_allclose(place_of_the_bin(), rover.bin[:2], atol=0.02)
    objects = [node.label for node in known() if node.layer == "object"]
    assert sorted(objects) == ["bin", "blue cube", "green cube", "yellow cube"]  # none of them twice
    assert robot.embodiment.mobile_base and robot.embodiment.sensors == ("head camera",)
    assert robot.embodiment.joints == 0  # it has no arm, and none is made up

    rover.localized = False
    graph.problem("memory_node", "tf: tf frame 'base_link' at")
    rover.localized = True
    graph.wait(lambda: graph.message("memory_node") == "active", 60, "the memory goes on")
    rover.looking = False
    graph.problem("perception_node", "camera: d435/color/image_raw: no picture that can be used for")
