"""The page: what it draws, checked by numbers; what a visitor sees and can do, checked in a real browser."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import Image
from sensor_msgs.msg import JointState as JointStateMsg
from std_srvs.srv import Trigger
from websockets.sync.client import connect

from engram.app.doctor import BROWSERS
from engram.app.up import child_environment
from engram.core.errors import InvalidInputError
from engram.core.ports import PortInUseError, free_port
from engram.core.robot import PANDA_2F85
from engram.core.types import EpisodeStatus, GraphUpdate, JointState, Pose, SceneEdge, SceneNode
from engram.nodes import messages, qos
from engram.runtime.graph_mirror import GraphMirror
from engram.sim.robots.kinematics import ModelKinematics
from engram.sim.tasks import task_for
from engram.viewer.page import Outcome, PageActions, PolicyState, ViewerPage, agent_table, policy_table
from engram.viewer.robot_shapes import RobotShapes
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import SceneGraphUpdate, TaskStatus
from engram_interfaces.srv import MemoryQuery

DOMAIN = int(os.environ["ROS_DOMAIN_ID"])
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=560,1000"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-port=0"),
)


def joints(gripper: float = 0.0) -> JointState:
    return JointState(0, PANDA_2F85.joint_names, np.array([*PANDA_2F85.home, gripper]), np.zeros(8))


def scene_node(name: str, label: str, x: float) -> SceneNode:
    return SceneNode(
        *(name, "object", label, Pose(np.array([x, 0.1, 0.02]), np.array([1.0, 0, 0, 0]))),
        *(np.eye(3) * 1e-4, np.full(3, 0.04), np.array([0.9, 0.1, 0.1]), np.zeros(384, np.float32)),
        *(0.9, "visible", 0, 0, 3),
    )


# -- what is drawn --------------------------------------------------------------------------------------------------


def hulls(gripper: float) -> dict[str, np.ndarray]:
    """Centre of every drawn hull in base_link, by name."""
    robot = RobotShapes()
    positions, quaternions = robot.poses(joints(gripper))
    turns = Rotation.from_quat(quaternions, scalar_first=True)
    shapes = robot.shapes()
    middles = [np.ptp(s.vertices, axis=0) / 2 + s.vertices.min(axis=0) for s in shapes]
    return {s.name: p + t.apply(m) for s, p, t, m in zip(shapes, positions, turns, middles, strict=True)}


def pad_positions(gripper: float) -> np.ndarray:
    return np.array([place for name, place in hulls(gripper).items() if "_pad_" in name])


def test_every_link_is_drawn_near_its_neighbours() -> None:
    places = hulls(0.0)
    assert {name.rsplit("_", 1)[0] for name in places} >= {f"link{i}" for i in range(8)}
    for name, place in places.items():
        others = [np.linalg.norm(place - other) for key, other in places.items() if key != name]
        assert min(others) < 0.25, f"{name} floats at {place}"
    # MuJoCo's own place of a link that has several hulls, by its collision mesh link5_c1 at home
    assert min(np.linalg.norm(p - (0.243, 0.080, 0.624)) for n, p in places.items() if n.startswith("link5")) < 0.03


def test_the_drawn_fingers_stand_around_the_tool_point_and_close() -> None:
    tool = ModelKinematics(PANDA_2F85).forward(np.array(PANDA_2F85.home)).position
    opened, closed = pad_positions(0.0), pad_positions(0.8)
    assert len(opened) == 4
    assert np.linalg.norm(opened.mean(axis=0) - tool) < 0.03
    widths = [np.ptp(p, axis=0).max() for p in (opened, closed)]
    assert 0.08 < widths[0] < 0.11  # the 2F-85 opens 85 mm, measured here between the middles of the pads
    assert widths[1] < 0.03


def test_a_mirror_follows_updates_and_notices_gaps() -> None:
    mirror = GraphMirror()
    a, b = scene_node("object/1", "red cube", 0.4), scene_node("object/2", "cup", 0.5)
    assert not mirror.apply("boot", GraphUpdate(0, 1, False, (a,)))  # nothing known yet: ask for all of it
    assert mirror.apply("boot", GraphUpdate(0, 4, True, (a,)))
    assert mirror.apply("boot", GraphUpdate(0, 5, False, (b,)))
    assert mirror.apply("boot", GraphUpdate(0, 5, False, ()))  # seen before
    assert set(mirror.nodes) == {"object/1", "object/2"}
    assert not mirror.apply("boot", GraphUpdate(0, 7, False, (), deleted_nodes=("object/1",)))  # 6 was lost
    assert not mirror.apply("reboot", GraphUpdate(0, 6, False, ()))
    assert mirror.apply("boot", GraphUpdate(0, 4, True, ()))  # an answer that came too late changes nothing
    assert mirror.apply("boot", GraphUpdate(0, 6, False, (), deleted_nodes=("object/1",)))
    assert set(mirror.nodes) == {"object/2"}


def test_words_find_their_task() -> None:
    assert task_for("open the drawer") == "open_drawer"
    with pytest.raises(InvalidInputError, match=r"no task fits 'make coffee'; .*stack the red cube on the blue cube"):
        task_for("make coffee")


def test_the_policy_its_memory_and_how_episodes_ended_are_told() -> None:
    ended = [Outcome(8, "put it <back>", "failed", 60, "mine, memory zeroed"), Outcome(7, "x", "succeeded", 41, "mine")]
    shown = policy_table(PolicyState("mine", "v1", "64 moments, 3 events, the oldest 7.2 s ago"), ended)
    for words in ("mine, memory zeroed", "failed, 60 steps", "put it &lt;back&gt;", "64 moments, 3 events"):
        assert words in shown
    assert shown.index("episode 8") < shown.index("episode 7")
    assert "not been heard" in policy_table(PolicyState(), ())


def test_robots_in_the_memory_are_told_with_what_they_are_and_hold() -> None:
    body = PANDA_2F85.embodiment(("front camera",))
    robot = replace(scene_node("agent/1", "robot_b <2>", 1.5), layer="agent", embodiment=body)
    shown = agent_table((robot, replace(robot, id="agent/2", label="cart", embodiment=None)), {"agent/1": "red cube"})
    for words in ("robot_b &lt;2&gt;", "1.50 0.10 m", "holds the red cube", "is an arm: fixed base, front camera"):
        assert words in shown
    assert shown.index("cart") < shown.index("robot_b") and "has not introduced itself" in shown
    assert agent_table((), {}) == ""


def test_a_port_in_use_is_an_error_and_not_another_port() -> None:
    port = free_port()
    actions = PageActions(lambda _: None, lambda _: None, lambda: None, lambda: None)
    page = ViewerPage(port, actions, ())
    try:
        with pytest.raises(PortInUseError, match=rf"port {port} is in use by .*pid {os.getpid()}"):
            ViewerPage(port, actions, ())
    finally:
        page.close()


# -- what a visitor sees ----------------------------------------------------------------------------------------------


class Browser:
    """Headless Chromium, driven over the DevTools protocol."""

    def __init__(self, path: str, profile: Path) -> None:
        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ports = profile / "DevToolsActivePort"
        wait(lambda: ports.is_file() and ports.read_text().count("\n") >= 1, "the browser starts")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports.read_text().split()[0]}/json") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        self._socket = connect(target["webSocketDebuggerUrl"], max_size=None)
        self._ids = itertools.count(1)
        self._sent = b""  # what the page sent over its websocket, which lives in a worker of the page
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := self._hear()).get("id") != number:
            pass
        return answer["result"]

    def _hear(self) -> dict[str, Any]:
        heard = json.loads(self._socket.recv(timeout=60))
        if heard.get("method") == "Target.attachedToTarget":
            worker = {"sessionId": heard["params"]["sessionId"], "method": "Network.enable"}
            self._socket.send(json.dumps({"id": next(self._ids), **worker}))
        elif heard.get("method") == "Network.webSocketFrameSent":
            self._sent += base64.b64decode(heard["params"]["response"]["payloadData"])
        return heard

    def js(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        return self.js("document.body ? document.body.innerText : ''") or ""

    def sees(self, *words: str) -> None:
        wait(lambda: all(w in self.text() for w in words), f"{words} on the page", then=self.text)

    def click(self, label: str) -> None:
        found = f"[...document.querySelectorAll('button')].find(b => b.innerText.trim() === {json.dumps(label)})"
        assert self.js(f"(b => b ? (b.click(), true) : false)({found})"), f"no button {label!r} in:\n{self.text()}"

    def type(self, words: str, nth: int = -2) -> None:
        # the first text fields belong to viser's own settings; the last ones are the instruction and the question
        field = f"[...document.querySelectorAll('input.mantine-TextInput-input')].at({nth})"
        assert self.js(f"(i => i && !i.value.startsWith('ws:') ? (i.focus(), true) : false)({field})"), self.text()
        self.call("Input.insertText", text=words)
        while words.encode() not in self._sent:  # the page sends what was typed a moment later
            self._hear()

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Robot(Node):
    """What the viewer talks to: publishes one of everything and keeps what it is asked for."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("robot_for_the_page", context=context)
        self.asked: list[str] = []
        self.out = {
            "joint_states": self.create_publisher(JointStateMsg, "joint_states", qos.SENSOR),
            "image": self.create_publisher(Image, "camera/front/color/image_raw", qos.SENSOR),
            "status": self.create_publisher(TaskStatus, "task/status", qos.LATCHED),
            "diagnostics": self.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS),
            "graph": self.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH),
        }
        self.create_service(Trigger, "safety/stop", lambda q, r: self._answer("stop", r))
        self.create_service(Trigger, "safety/reset", lambda q, r: self._answer("reset", r))
        self.create_service(MemoryQuery, "memory/query", self._remember)
        self.server = ActionServer(self, ExecuteTask, "execute_task", self._execute)

    def _answer(self, what: str, response: Trigger.Response) -> Trigger.Response:
        self.asked.append(what)
        response.success, response.message = True, f"{what} was heard"
        return response

    def _remember(self, request: MemoryQuery.Request, response: MemoryQuery.Response) -> MemoryQuery.Response:
        self.asked.append(request.text)
        response.answer, response.confidence, response.age = "The red cube is on the table.", 0.75, 12.0
        response.advice, response.evidence = "Look at the table.", ["graph: red cube visible"]
        response.look = True
        response.route = [messages.point(np.array([0.5, y, 0.0])) for y in (0.0, 4.0)]
        response.route_chances, response.route_labels = [0.5, 0.25], ["the table", "the sink"]
        return response

    def _execute(self, handle: Any) -> ExecuteTask.Result:
        self.asked.append(f"{handle.request.task}: {handle.request.instruction}")
        handle.succeed()
        return ExecuteTask.Result(outcome="succeeded", reason="a test", steps=7)

    def publish(self) -> None:
        self.out["joint_states"].publish(messages.joints_to_msg(joints()))
        color = np.full((128, 128, 3), (0, 0, 255), np.uint8)
        self.out["image"].publish(messages.color_to_msg(color, 0, "front_optical"))
        status = EpisodeStatus(0, "robot0", 3, "open_drawer", "open the drawer", 12, "running")
        self.out["status"].publish(messages.status_to_msg(status))
        lacking = "observation: lacks camera 'wrist'"
        self.out["diagnostics"].publish(
            DiagnosticArray(
                status=[
                    DiagnosticStatus(name="/sim_node", level=DiagnosticStatus.OK, message="active"),
                    DiagnosticStatus(name="/policy_node", level=DiagnosticStatus.WARN, message=lacking),
                ]
            )
        )
        arm = replace(scene_node("agent/1", "robot_b", 1.5), layer="agent", embodiment=PANDA_2F85.embodiment())
        held = (SceneEdge("object/1", "agent/1", "held_by"),)
        update = GraphUpdate(0, 1, True, (scene_node("object/1", "red cube", 0.5), arm), held)
        self.out["graph"].publish(messages.graph_to_msg(update, "boot"))


def wait(condition: Callable[[], object], what: str, seconds: float = 90.0, then: Callable[[], str] = str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}\n{then()}"
        time.sleep(0.2)


@pytest.fixture
def robot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Robot]:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=DOMAIN)
    node = Robot(context)
    node.create_timer(0.5, node.publish)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin)
    thread.start()
    yield node
    executor.shutdown()
    thread.join(10)
    node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def page() -> Iterator[str]:
    port = free_port()
    words = ["--ros-args", "-p", f"port:={port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engram.nodes.viewer_node", *words], env=child_environment(DOMAIN, "LOCALHOST")
    )
    yield f"http://localhost:{port}"
    process.terminate()
    process.wait(20)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    made = Browser(path, tmp_path / "profile")
    yield made
    made.close()


@pytest.mark.ros
@pytest.mark.browser
@pytest.mark.slow
def test_a_visitor_sees_the_robot_gives_an_instruction_and_stops_it(robot: Robot, page: str, browser: Browser) -> None:
    wait(lambda: answers(page), f"{page} answers")
    browser.call("Page.navigate", url=page)
    browser.sees("Instruction", "Do it", "STOP", "Release stop", "episode 3", "step 12")
    browser.sees("sim_node", "policy_node", "lacks camera 'wrist'", "red cube", "0.50 0.10 0.02 m", "belief 0.90")
    browser.sees("robot_b", "holds the red cube", "payload of 2 kg")
    assert browser.js("document.querySelectorAll('canvas').length") >= 1  # the scene in 3D
    blue = "(i => { const c = document.createElement('canvas'); c.width = c.height = 1; const x = c.getContext('2d');"
    blue += "x.drawImage(i, 0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data]; })"
    picture = browser.js(f"{blue}([...document.querySelectorAll('img')].find(i => i.naturalWidth === 128))")
    assert picture is not None
    assert picture[2] > 200 > 50 > picture[0]  # what the camera sent

    browser.click("STOP")
    browser.sees("stop: stop was heard")
    browser.click("Release stop")
    browser.sees("release: reset was heard")
    browser.type("open the drawer")
    browser.click("Do it")
    browser.sees("succeeded after 7 steps (a test)")
    assert robot.asked == ["stop", "reset", "open_drawer: open the drawer"]
    browser.type(" and make coffee")
    browser.click("Do it")
    browser.sees("no task fits")
    browser.type("where is the red cube", nth=-1)
    browser.click("Ask")
    browser.sees("The red cube is on the table.", "75 % sure, 12 s ago", "Look at the table.", "red cube visible")
    browser.sees("In this order: the table (0.50, 0.00, 0.00) 50 %, the sink (0.50, 4.00, 0.00) 25 %.")
    assert robot.asked[3:] == ["where is the red cube"]


def answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False
