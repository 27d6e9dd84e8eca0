"""The perception node as a process: pictures that it cannot use are named, and it goes on."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image
from tf2_msgs.msg import TFMessage

from engram.core.errors import EXIT_MISCONFIGURED
from engram.core.types import EpisodeStatus, Pose
from engram.nodes import messages, qos
from engram_interfaces.msg import SceneObservation, TaskStatus
from tests.perception.tiny_models import save_owlvit

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]
FRAME = "front_optical_frame"
SIZE = 48
TABLE = np.full((SIZE, SIZE), 0.8, np.float32)  # m
INTRINSICS = np.array([[SIZE, 0, SIZE / 2], [0, SIZE, SIZE / 2], [0, 0, 1.0]])
LOOKS_DOWN = Pose(np.array([0.5, 0.0, 0.8]), np.array([0.0, 1.0, 0.0, 0.0]))


class Camera:
    """A camera over a table, as its driver publishes it, and what the node sees through it."""

    def __init__(self, graph):
        make = graph.node.create_publisher
        self.graph = graph
        self.scenes = graph.listen(SceneObservation, "scene/observation", qos.EVENTS)
        self.colors = make(Image, "camera/front/color/image_raw", qos.SENSOR)
        self.depths = make(Image, "camera/front/depth/image_raw", qos.SENSOR)
        self.infos = make(CameraInfo, "camera/front/camera_info", qos.SENSOR)
        self.poses = make(TFMessage, "tf_static", qos.LATCHED)
        graph.matched(self.colors, self.depths, self.infos, self.poses)

    def look(self, pose, **others):
        """Say where the camera is, and where ``others`` are."""
        poses = {FRAME: pose, **others}
        frames = [messages.pose_to_transform(where, name, 0) for name, where in poses.items()]
        self.poses.publish(TFMessage(transforms=frames))

    def depth(self, step, depth):
        self.depths.publish(messages.depth_to_msg(depth, round(step * 10**8), FRAME))

    def show(self, step, depth=TABLE):
        """Show the frame of a control step."""
        self.color(step)
        self.depth(step, depth)

    def color(self, step):
        """Show its picture alone."""
        stamp_ns = step * 10**8
        self.infos.publish(messages.camera_info_to_msg(INTRINSICS, SIZE, SIZE, stamp_ns, FRAME))
        self.colors.publish(messages.color_to_msg(np.full((SIZE, SIZE, 3), 90, np.uint8), stamp_ns, FRAME))

    def problem(self, tell, words):
        """Wait until the node says ``words``, telling it again and again: it reads best effort."""
        said = lambda: words in self.graph.message("perception_node")  # noqa: E731
        self.graph.wait_telling(tell, said, 60, f"the node says {words!r}")

    def sees(self, step):
        """Show a step until the node has seen it."""
        stamps = lambda: [messages.from_stamp(scene.header.stamp) for scene in self.scenes]  # noqa: E731
        self.graph.wait_telling(lambda: self.show(step), lambda: step * 10**8 in stamps(), 60, f"a scene of {step}")


def test_a_missing_camera_and_unusable_depth_are_named_and_the_node_goes_on(graph):
    graph.node.create_publisher(Image, "camera/wrist/color/image_raw", qos.SENSOR)
    graph.start("perception_node", camera="front")
    graph.active("perception_node")
    graph.problem("perception_node", "nobody publishes camera/front/color/image_raw; cameras there: wrist", 60)
    camera = Camera(graph)
    camera.look(LOOKS_DOWN)
    camera.problem(lambda: camera.show(1, np.full_like(TABLE, np.nan)), f"no finite depth in {SIZE} x {SIZE} pixels")
    camera.problem(lambda: camera.show(2, TABLE[: SIZE // 2]), f"depth: shape ({SIZE // 2}, {SIZE}), expected")
    assert not camera.scenes
    camera.sees(3)
    graph.problem("perception_node", "camera/front/color/image_raw: no picture that can be used for")


def test_it_looks_for_the_words_that_its_parameters_name(graph, tmp_path):
    model = str(save_owlvit(tmp_path / "model"))
    words = {"zero_shot__model": model, "zero_shot__prompts": ["red cup", "blue bin"], "zero_shot__threshold": 0.0}
    graph.start("perception_node", camera="front", detector="zero_shot", **words)
    graph.active("perception_node", timeout_s=120)
    camera = Camera(graph)
    camera.look(LOOKS_DOWN)
    camera.sees(1)
    found = [seen.label for seen in camera.scenes[-1].objects]
    assert found and set(found) <= {"red cup", "blue bin"}


def test_words_for_a_detector_that_reads_none_end_the_node_with_its_error(graph):
    node = graph.start("perception_node", camera="front", zero_shot__prompts=["bowl"])
    assert node.child.wait(120) == EXIT_MISCONFIGURED
    assert "zero_shot.prompts: ('bowl',), but the detector is 'geometric'; only 'zero_shot' reads it" in node.output()
    graph.processes.remove(node)


def test_a_picture_without_depth_is_named_but_for_a_simulation_at_rest(graph):
    graph.start("perception_node", camera="front")
    graph.active("perception_node")
    camera, status = Camera(graph), graph.node.create_publisher(TaskStatus, "task/step", qos.COMMAND)
    graph.matched(status)
    camera.look(LOOKS_DOWN)
    camera.sees(1)
    lacking = "frames incomplete: lacks camera 'front' depth"
    camera.problem(lambda: camera.color(2), lacking)
    rest = TaskStatus(header=messages.header(2 * 10**8), state="idle")
    said = lambda: lacking not in graph.message("perception_node")  # noqa: E731
    graph.wait_telling(lambda: status.publish(rest), said, 60, "the node misses nothing")
    status.publish(TaskStatus(header=messages.header(2 * 10**8), state="running"))
    camera.problem(lambda: camera.color(3), lacking)


def every_hundredth(graph):
    """Start a node that looks at every 100th frame; return its camera, who tells steps, and what gives those seen."""
    graph.start("perception_node", camera="front", every=100)
    graph.active("perception_node")
    camera, status = Camera(graph), graph.node.create_publisher(TaskStatus, "task/step", qos.COMMAND)
    graph.matched(status)
    camera.look(LOOKS_DOWN)
    camera.sees(1)
    return camera, status, lambda: [messages.from_stamp(scene.header.stamp) // 10**8 for scene in camera.scenes]


def test_of_every_hundredth_frame_the_first_of_an_episode_is_seen_too(graph):
    camera, status, seen = every_hundredth(graph)
    firsts = []

    def begin(status_first):
        """Begin another episode: what comes best effort may be lost."""
        episode, first = len(firsts) + 1, 10 * len(firsts) + 10
        said = TaskStatus(header=messages.header(first * 10**8), episode=episode, state="running")
        parts = (partial(status.publish, said), partial(camera.show, first))
        for part in parts if status_first else parts[::-1]:
            part()
        said.header = messages.header((first + 1) * 10**8)
        status.publish(said)
        camera.show(first + 1)
        firsts.append(first)

    for status_first in (False, True):
        camera.scenes.clear()
        graph.wait_telling(partial(begin, status_first), lambda: set(firsts) & set(seen()), 60, "a first step")
        assert not {first + 1 for first in firsts} & set(seen())


def test_of_every_hundredth_frame_the_last_of_an_episode_is_seen_too(graph):
    camera, status, seen = every_hundredth(graph)
    over = TaskStatus(header=messages.header(5 * 10**8), episode=1, state="succeeded")
    tell = lambda: (camera.show(4), camera.show(5), status.publish(over))  # noqa: E731
    graph.wait_telling(tell, lambda: 5 in seen(), 60, "step 5")
    over.header = messages.header(8 * 10**8)
    tell = lambda: (status.publish(over), camera.show(7), camera.show(8))  # noqa: E731
    graph.wait_telling(tell, lambda: 8 in seen(), 60, "step 8")
    assert not {4, 7} & set(seen())


def test_a_robot_at_rest_is_looked_at_less_often_than_one_that_carries_something_out(graph):
    graph.start("perception_node", camera="front", rest_every=100, diagnostics_period_s=0.1)
    graph.active("perception_node")
    camera = Camera(graph)
    status = graph.node.create_publisher(TaskStatus, "task/status", qos.LATCHED)
    graph.matched(status)
    camera.look(LOOKS_DOWN)

    def frames():
        return int(graph.value("perception_node", "frames") or 0)

    def shown(first, count):
        for step in range(first, first + count):
            before = frames()
            graph.wait_telling(partial(camera.show, step), lambda before=before: frames() > before, 60, f"step {step}")
        graph.spin(0.5)
        return {messages.from_stamp(scene.header.stamp) // 10**8 for scene in camera.scenes}

    assert shown(1, 5) == {1}
    running = EpisodeStatus(6 * 10**8, "robot0", 1, "", "go", 0, "running")
    status.publish(messages.status_to_msg(running))
    graph.spin(0.5)
    assert shown(6, 3) == {1, 6, 7, 8}
    status.publish(messages.status_to_msg(replace(running, state="succeeded")))
    graph.spin(0.5)
    assert shown(9, 3) == {1, 6, 7, 8}


def test_no_clock_no_tf_and_no_stamp_stops_the_node_for_longer_than_it_lasts(graph):
    graph.start("perception_node", camera="front", use_sim_time=True)
    graph.active("perception_node")
    camera, clock = Camera(graph), graph.node.create_publisher(Clock, "/clock", 10)
    graph.matched(clock)
    camera.problem(lambda: clock.publish(Clock(clock=Time(sec=-1))), "Seconds value must not be negative")
    clock.publish(Clock(clock=Time(sec=1)))
    camera.look(Pose(np.zeros(3), frame="mount"), mount=Pose(np.zeros(3), frame=FRAME))
    camera.problem(lambda: camera.show(11), f"{FRAME} in mount in {FRAME} is a cycle, expected a tree")
    camera.look(LOOKS_DOWN)
    camera.sees(12)
    camera.problem(
        lambda: [camera.depth(10**10 + number, TABLE) for number in range(16)], "s ahead of this node's clock"
    )
    for number in range(16):
        camera.depth(15 + number / 10, TABLE)
    camera.sees(13)
