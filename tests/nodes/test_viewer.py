"""The page on real topics: what a visitor sees and can do, checked in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image
from sensor_msgs.msg import JointState as JointStateMsg
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from engram.app.up import child_environment
from engram.benchmarks.chromium import Chromium, find_chromium, wait
from engram.core.ports import free_port
from engram.core.robot import PANDA_2F85
from engram.core.types import ActionChunk, EpisodeStatus, GraphUpdate, SceneEdge, Verdict
from engram.nodes import messages, qos
from engram.nodes.viewer_node import ViewerNode
from engram.runtime.policy_notes import POLICIES, POLICY_DRIVES
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import GateVerdict, SceneGraphUpdate, TaskStatus
from engram_interfaces.msg import Verdict as VerdictMsg
from engram_interfaces.srv import GetGraph, MemoryQuery
from tests.viewer.scenes import SECOND_NS, joints, scene_node

DOMAIN = int(os.environ["ROS_DOMAIN_ID"])
BLUE, GREEN = (0, 0, 255), (0, 200, 0)


class Robot(Node):
    """What the viewer talks to: publishes one of everything and keeps what it is asked for."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("robot_for_the_page", context=context)
        self.asked: list[str] = []
        self.began_ns = time.time_ns() - 60 * SECOND_NS  # so far back goes the memory
        self.out = {
            "joint_states": self.create_publisher(JointStateMsg, "joint_states", qos.SENSOR),
            "front": self.create_publisher(Image, "camera/front/color/image_raw", qos.SENSOR),
            "ceiling": self.create_publisher(Image, "camera/ceiling/color/image_raw", qos.SENSOR),
            "stopped": self.create_publisher(Bool, "safety/stopped", qos.LATCHED),
            "status": self.create_publisher(TaskStatus, "task/status", qos.LATCHED),
            "diagnostics": self.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS),
            "graph": self.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH),
            "executed": self.create_publisher(ActionChunkMsg, "safety/executed", qos.SENSOR),
            "verdict": self.create_publisher(VerdictMsg, "verdict", qos.COMMAND),
            "gate": self.create_publisher(GateVerdict, "policy/gate", qos.LATCHED),
        }
        self.create_service(Trigger, "safety/stop", lambda q, r: self._answer("stop", r))
        self.create_service(Trigger, "safety/reset", lambda q, r: self._answer("reset", r))
        self.create_service(MemoryQuery, "memory/query", self._remember)
        self.create_service(GetGraph, "memory/get_graph", self._past)
        self.create_service(SetParametersAtomically, "policy_node/set_parameters_atomically", self._set_policy)
        self.server = ActionServer(self, ExecuteTask, "execute_task", self._execute)

    def _answer(self, what: str, response: Trigger.Response) -> Trigger.Response:
        self.asked.append(what)
        response.success, response.message = True, f"{what} was heard"
        self.out["stopped"].publish(Bool(data=what == "stop"))
        return response

    def _past(self, request: GetGraph.Request, response: GetGraph.Response) -> GetGraph.Response:
        at_ns = messages.from_stamp(request.at)
        if at_ns:
            self.asked.append(f"graph at {at_ns / 1e9:.1f} s")
            then = GraphUpdate(at_ns, 1, True, (scene_node("object/7", "green cube", 0.3),))
            response.graph = messages.graph_to_msg(then, "boot")
        return response

    def _set_policy(
        self, request: SetParametersAtomically.Request, response: SetParametersAtomically.Response
    ) -> SetParametersAtomically.Response:
        self.asked.append(f"policy {request.parameters[0].value.string_value}")
        response.result.successful, response.result.reason = False, "accept is 'approved'"
        return response

    def _remember(self, request: MemoryQuery.Request, response: MemoryQuery.Response) -> MemoryQuery.Response:
        self.asked.append(request.text)
        response.nodes = [messages.node_to_msg(scene_node("object/1", "red cube", 0.5))]
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
        for camera, color in (("front", BLUE), ("ceiling", GREEN)):
            picture = np.full((128, 128, 3), color, np.uint8)
            self.out[camera].publish(messages.color_to_msg(picture, 0, f"{camera}_optical"))
        status = EpisodeStatus(0, "robot0", 3, "open_drawer", "open the drawer", 12, "running")
        self.out["status"].publish(messages.status_to_msg(status))
        still = ActionChunk(0, 3, "ee_delta", np.zeros((1, 7)), 0.1, 1, "hold:no_command")
        self.out["executed"].publish(messages.chunk_to_msg(still, "robot0"))
        seen = Verdict(0, 3, "memory", "denied", 0.1, 0.25, "the handle has come 0.02 m")
        self.out["verdict"].publish(messages.verdict_to_msg(seen, "robot0"))
        task = {"task": "stack", "pairs": 40, "candidate": 31, "approved": 12, "not_worse": True}
        told = GateVerdict(candidate="bc-40", decision="promote", reason="not worse", pairs=40)
        for told.report_json in ("no JSON", json.dumps({"tasks": [task]})):
            self.out["gate"].publish(told)
        lacking = "observation: lacks camera 'wrist'"
        values = [KeyValue(key=POLICY_DRIVES, value="base"), KeyValue(key=POLICIES, value="base, mine")]
        self.out["diagnostics"].publish(
            DiagnosticArray(
                status=[
                    DiagnosticStatus(name="/sim_node", level=DiagnosticStatus.OK, message="active"),
                    DiagnosticStatus(name="/policy_node", level=DiagnosticStatus.WARN, message=lacking, values=values),
                ]
            )
        )
        arm = replace(scene_node("agent/1", "robot_b", 1.5, layer="agent"), embodiment=PANDA_2F85.embodiment(),
                      first_seen_ns=self.began_ns)  # fmt: skip
        held = (SceneEdge("object/1", "agent/1", "held_by"),)
        cube = replace(scene_node("object/1", "red cube", 0.5), first_seen_ns=self.began_ns, last_seen_ns=self.began_ns)
        update = GraphUpdate(0, 1, True, (cube, arm), held)
        self.out["graph"].publish(messages.graph_to_msg(update, "boot"))


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
    process.wait(60)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    path = find_chromium()
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    made = Chromium(path, tmp_path / "profile", size=(1000, 800))
    yield made
    made.close()


def colors_shown(browser: Chromium) -> list[list[int]]:
    """The first pixel of every camera picture."""
    pixel = "(i => { const c = document.createElement('canvas'); c.width = c.height = 1; const x = c.getContext('2d');"
    pixel += "x.drawImage(i, 0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data]; })"
    shown: list[list[int]] = browser.js(
        f"[...document.querySelectorAll('img')].filter(i => i.naturalWidth === 128).map({pixel})"
    )
    return shown


def answers(page: str) -> bool:
    try:
        with urllib.request.urlopen(page, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def banner(browser: Chromium) -> str:
    return str(browser.js("(b => b ? b.innerText : '')(document.getElementById('engram-banner'))"))


def test_a_stop_that_the_page_failed_to_show_is_shown_again() -> None:
    shown: list[str] = []
    problems: list[Exception] = []

    def show_stopped(reason: str) -> None:
        shown.append(reason)
        if len(shown) == 1:
            raise RuntimeError("deque mutated during iteration")

    nothing = SimpleNamespace(refresh=lambda: None)
    page = SimpleNamespace(visitors=1, show_stopped=show_stopped, keep_cameras=lambda _: None)
    node: Any = SimpleNamespace(page=page, images={}, cameras={}, graph=nothing,
                                report=lambda _, error: problems.append(error), _show_camera=print,
                                _show_joints=nothing.refresh, _show_reports=nothing.refresh)  # fmt: skip
    ViewerNode._on_stopped(node, Bool(data=True))
    for _ in range(2):
        ViewerNode._refresh(node)
    assert shown == ["the Nodes tab says why, at safety_node"] * 2 and len(problems) == 1


@pytest.mark.ros
@pytest.mark.browser
@pytest.mark.slow
def test_a_visitor_sees_the_robot_drives_and_stops_it(robot: Robot, page: str, browser: Chromium) -> None:
    wait(lambda: answers(page), f"{page} answers")
    browser.open(page)
    browser.sees("Instruction", "Do it", "STOP", "Release stop", "Episode 3", "step 12", "the robot holds no_command")
    browser.sees("progress 25 %", "memory: not reached (confidence 90 %): the handle has come 0.02 m")
    assert browser.js("document.title") == "Engram"
    assert browser.js("document.querySelectorAll('canvas').length") >= 1  # the scene in 3D
    browser.sees("front", "ceiling")  # the cameras that are published, whatever their names
    wait(lambda: len(colors_shown(browser)) == 2, "two pictures")
    ceiling, front = colors_shown(browser)
    assert front[2] > 200 > 50 > front[0] and ceiling[1] > 150 > 50 > ceiling[0]

    browser.click("STOP")
    browser.sees("stop: stop was heard")
    wait(lambda: "STOPPED" in banner(browser), "the banner", then=browser.text)
    assert "Release stop" in banner(browser)
    assert browser.js("document.getElementById('engram-banner').getBoundingClientRect().width") == 1000
    browser.type("open the drawer", "Instruction", submit=True)
    browser.sees('"open the drawer" was not sent: the robot is stopped')
    browser.click("Release stop")
    browser.sees("release: reset was heard")
    wait(lambda: banner(browser) == "", "the banner goes")
    assert robot.asked == ["stop", "reset"]

    browser.click("It is done")
    browser.sees("succeeded: no node answers")  # this one has no policy node
    browser.click("Cancel")
    browser.sees("cancel: no node answers")
    browser.click("Do it")
    browser.sees("succeeded after 7 steps (a test)")
    browser.type("make coffee", "Instruction", submit=True)
    browser.sees("no task fits")
    assert robot.asked[2:] == ["open_drawer: open the drawer"]


@pytest.mark.ros
@pytest.mark.browser
@pytest.mark.slow
def test_a_visitor_asks_the_memory_and_looks_at_its_past(robot: Robot, page: str, browser: Chromium) -> None:
    wait(lambda: answers(page), f"{page} answers")
    browser.open(page)
    browser.sees("STOP")
    browser.open_tab("Memory")
    browser.sees("red cube", "0.50 0.10 0.02", "0.90", "robot_b", "holds the red cube", "payload of 2 kg", "held by")
    for question in ("where is the red cube", "and now?"):
        browser.type(question, "Question", submit=True)
        wait(lambda asked=question: robot.asked[-1:] == [asked], f"{question} is asked")
        wait(lambda: browser.value("Question") == "", "the field is emptied")  # what is typed before that would go, too
    browser.sees("The red cube is on the table.", "confidence 75 %, evidence 12 s old", "red cube visible")
    browser.sees("In this order: the table (0.50, 0.00, 0.00) 50 %, the sink (0.50, 4.00, 0.00) 25 %.")
    conversation = browser.text()
    assert conversation.index("and now?") < conversation.index("where is the red cube")  # newest first, both stay
    browser.click("Show the red cube in 3D")
    browser.sees("Picked: red cube")

    browser.type("-30", "Seconds from now", submit=True, sent=b"")
    browser.sees("green cube", "Back to now")
    wait(lambda: "PAST" in banner(browser), "the banner")
    assert robot.asked[-1].startswith("graph at")
    browser.click("Back to now")
    wait(lambda: "green cube" not in browser.text() and banner(browser) == "", "the present", then=browser.text)

    browser.open_tab("Nodes")
    browser.sees("sim_node", "policy_node", "lacks camera 'wrist'")
    assert "base, mine" not in browser.text()
    browser.choose("policy_node", "All that it says")
    browser.sees("base, mine")
    browser.open_tab("Gate")
    browser.sees("The gate tries a candidate out", "bc-40, task by task")
    assert re.search(r"stack\s+40\s+31\s+12\s+not worse", browser.text())
