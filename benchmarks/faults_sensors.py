"""Sensors and cameras that fail, a clock that is set, the arm moving and at rest: the declared reaction each time."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.action import ActionClient
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, String

from engram.benchmarks.faults_clock import SettableClock
from engram.benchmarks.faults_kills import COMMAND_LIMITS, MOTION_LIMITS, watched_figures
from engram.benchmarks.faults_limits import STILL_RAD
from engram.benchmarks.faults_loop import Loop, TrialError, end, findings, trial_graph
from engram.benchmarks.report import figure
from engram.core.errors import EngramError
from engram.core.statistics import wilson
from engram.nodes import qos
from engram_interfaces.action import ExecuteTask

NODES = ("robot_node", "safety_node", "policy_node", "lifecycle_manager")
LOST_AFTER_S = 1.0
"""Parameter of the policy node in these trials: shorter than usual, to wait less."""
REACTION_S, LOOK_S = 1.5, 2.0
"""Within the first, a robot that has to hold is at rest; it is watched for the second after that [s]."""
GOAL_S = 30.0
CLOCK_SET_S = {"clock_back": -300.0, "clock_ahead": 300.0}
"""By how much the machine's clock is set [s]."""
JUMP_UNSEEN, SUSPENDED_S = "jump_unseen", 2.0
"""A joint's measurement jumps while the safety node is suspended, so that nobody compares it; for so long [s]."""


@dataclass(frozen=True)
class Declared:
    """What has to happen when a sensor fails."""

    latched: bool = False
    """The robot stops until a person releases it."""
    within_rad: float = STILL_RAD
    """It is at rest soon and stays, or moves by no more than this."""
    goal_ends: bool = True
    """The running goal ends with a reason."""
    named: bool = True
    """The diagnostics of a node say a new problem."""
    goes_on: bool = False
    """The arm moves on."""


LATCHED = Declared(latched=True, goal_ends=False)
LOST = Declared()
REFUSED = Declared(within_rad=math.inf, goal_ends=False)
UNSEEN = Declared(within_rad=math.inf, goal_ends=False, named=False)
"""Nothing shows the fault: limits are kept, that is all."""
UNHARMED = Declared(within_rad=math.inf, goal_ends=False, named=False, goes_on=True)
DECLARED: dict[tuple[str, str], Declared] = {
    **{(fault, arm): LATCHED for fault in ("jump", "swapped") for arm in ("moving", "still")},
    **{(fault, arm): LOST for fault in ("nan", "silence", "camera_silence") for arm in ("moving", "still")},
    **{("second_publisher", arm): REFUSED for arm in ("moving", "still")},
    **{(JUMP_UNSEEN, arm): Declared(latched=True) for arm in ("moving", "still")},
    ("freeze", "moving"): LATCHED,
    ("freeze", "still"): UNSEEN,  # an arm at rest looks the same
    ("drift", "moving"): UNSEEN,  # slower than the arm itself
    ("drift", "still"): UNSEEN,
    **{(fault, "moving"): UNHARMED for fault in CLOCK_SET_S},
}
"""Fault and arm -> reaction, as docs/reference/reactions.md has it."""


@dataclass
class Seen:
    """What happened."""

    fault: str
    arm: str
    stopped: bool = False
    moved_rad: float = 0.0  # after REACTION_S
    goal: str = ""  # outcome and reason; "" = it goes on
    said: str = ""  # new problems in the diagnostics
    beyond: tuple[str, ...] = ()  # commands and motions beyond limits

    def missing(self) -> list[str]:
        """Return what of the declared reaction did not happen."""
        wanted, out = DECLARED[self.fault, self.arm], []
        if wanted.latched and not self.stopped:
            out.append("no latched stop")
        if self.moved_rad > wanted.within_rad:
            out.append(f"moved {self.moved_rad:.2f} rad")
        if wanted.goes_on and (self.stopped or self.moved_rad < STILL_RAD):
            out.append("stopped" if self.stopped else "the arm does not go on")
        if wanted.goes_on and self.goal:
            out.append(f"the goal ended: {self.goal}")
        if wanted.goal_ends and not self.goal:
            out.append("the goal goes on")
        if wanted.named and not self.said:
            out.append("no diagnostic")
        if self.beyond:
            out.append(f"{len(self.beyond)} beyond limits, first {self.beyond[0]}")
        return out


class SensorTrial:
    """The robot's loop with a fake robot as its body."""

    def __init__(self, loop: Loop, watched: Path, clock: SettableClock) -> None:
        self.loop, self.watched, self.clock = loop, watched, clock
        self.joints, self.fault, self.stopped = np.zeros(0), "none", False
        node = loop.client.node
        self.faults = node.create_publisher(String, "fake_robot/fault", qos.LATCHED)
        self.goals: Any = ActionClient(node, ExecuteTask, "execute_task")
        node.create_subscription(JointState, "fake_robot/joints", self._on_joints, qos.SENSOR)
        node.create_subscription(Bool, "safety/stopped", self._on_stopped, qos.LATCHED)

    def _on_joints(self, msg: JointState) -> None:
        self.joints, self.fault = np.array(msg.position), msg.header.frame_id

    def _on_stopped(self, msg: Bool) -> None:
        self.stopped = msg.data

    def set_fault(self, name: str) -> None:
        """Let a sensor fail, or the clock be set, or nothing for ""."""
        if name in CLOCK_SET_S:
            self.clock.set_by(CLOCK_SET_S[name])
            return
        self.faults.publish(String(data=name))
        self.wait(lambda: self.fault == name, 20.0, f"fault {name!r}")

    def wait(self, condition: Callable[[], Any], timeout_s: float, what: str) -> None:
        """Let the loop go on until ``condition`` holds."""
        self.loop.client.wait_for(lambda: bool(condition()), timeout_s, what)

    def moved(self, seconds: float) -> float:
        """Return how far an arm joint really got in the next ``seconds`` [rad]."""
        start, farthest, until = self.joints, 0.0, time.monotonic() + seconds
        while time.monotonic() < until:
            self.loop.client.spin(0.02)
            farthest = max(farthest, float(np.abs(self.joints - start)[:-1].max()))
        return farthest

    @contextmanager
    def suspended(self, name: str) -> Iterator[None]:
        """Keep a node from running for a while, as a machine does that has too much to do."""
        process = self.loop.supervisor.children[name].process
        if process is None:
            raise TrialError(f"{name} does not run")
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            yield
            self.loop.client.spin(SUSPENDED_S)
        finally:
            os.killpg(process.pid, signal.SIGCONT)

    def begin(self, arm: str, timeout_s: float) -> tuple[Any, Any]:
        """Give a goal and wait until the arm moves, if it is to; return the goal's handle and its result to come."""
        self.make_ready()
        self.wait(self.goals.server_is_ready, 60.0, "action execute_task")
        goal = ExecuteTask.Goal(instruction="wave" if arm == "moving" else "stay", timeout_s=timeout_s)
        sent = self.goals.send_goal_async(goal)
        self.wait(sent.done, 20.0, "the goal's acceptance")
        handle = sent.result()
        result = handle.get_result_async()
        if arm == "moving":
            self.wait(lambda: self.moved(0.3) > 2 * STILL_RAD or result.done(), 20.0, "the arm moves")
        else:
            self.loop.client.spin(1.0)
        return handle, result

    def run(self, fault: str, arm: str) -> Seen:
        """Give a goal, let a sensor fail in the middle of it, and look."""
        handle, result = self.begin(arm, GOAL_S)
        if result.done():
            raise TrialError(f"the goal ended before the fault: {result.result().result}")
        before, since = self._problems(), time.monotonic()
        with self.suspended("safety_node") if fault == JUMP_UNSEEN else nullcontext():
            self.set_fault("jump" if fault == JUMP_UNSEEN else fault)
        self.loop.client.spin(REACTION_S)
        seen = Seen(fault, arm, moved_rad=self.moved(LOOK_S))
        seen.stopped = self.stopped
        seen.said = "; ".join(sorted(self._problems() - before))
        if result.done():
            answer = result.result().result
            seen.goal = f"{answer.outcome}: {answer.reason}"
        self.set_fault("")
        if not result.done():
            handle.cancel_goal_async()
            self.wait(result.done, 20.0, "the end of the goal")
        kinds = {*COMMAND_LIMITS, *MOTION_LIMITS}
        if fault == JUMP_UNSEEN:  # the suspended node cannot have heard of the end of the goal; motions count
            kinds -= {"command_not_allowed"}
        self.loop.client.spin(1.5)  # the watcher doubts for a second
        beyond = [row for row in findings(self.watched, since) if row["kind"] in kinds]
        seen.beyond = tuple(f"{row['kind']} {row['text']}" for row in beyond)
        return seen

    def make_ready(self) -> None:
        """Release the robot and wait until nothing is wrong any more."""
        self.set_fault("")
        until = time.monotonic() + 30.0
        while time.monotonic() < until:
            self.loop.client.trigger("safety/reset", 20.0)
            self.loop.client.spin(0.7)
            if not self.stopped and not self.loop.inactive():
                return
        raise TrialError("the robot could not be released")

    def _problems(self) -> set[str]:
        """Return "node: problem" for all that the newest diagnostics name, without numbers that change."""
        out = set()
        for name, status in self.loop.status.items():
            if status.level != DiagnosticStatus.OK:
                out |= {f"{name}: {text.strip()[:120]}" for text in status.message.split("; ")}
            for item in status.values:
                if item.key.startswith("problems "):
                    out.add(f"{name}: {item.key}={item.value}")
        return out


@contextmanager
def robot_loop(
    folder: Path, domain: int, values: Mapping[str, str] = MappingProxyType({}), *, bound: bool = True
) -> Iterator[SensorTrial]:
    """Start fake robot, robot node, safety, policy and manager; end them on leaving.

    ``values``: more launch arguments. Unless it is ``bound``, the safety node listens to whoever writes first.
    """
    chosen = {"policy": "engram.benchmarks.faults_policy:Wave", "viewer": "false", "learner": "false"}
    graph = trial_graph("robot", {**chosen, **values})
    own: dict[str, tuple[str, Any]] = {
        "lifecycle_manager": ("node_names", ["robot_node", "safety_node", "policy_node"]),
        "robot_node": ("hardware_joints", [""]),
        "policy_node": ("lost_after_s", LOST_AFTER_S),
    }
    if not bound:
        own["safety_node"] = ("writers", [""])
    nodes = [
        dataclasses.replace(one, parameters=(*one.parameters, *([own[one.name]] if one.name in own else [])))
        for one in graph.nodes
        if one.name in NODES
    ]
    clock = SettableClock(folder / "clock")
    graph = dataclasses.replace(graph, nodes=tuple(nodes))
    loop = Loop(graph, folder, domain, clock.environment(os.environ.get("PYTHONPATH", "")))
    body = loop.beside("faults_robot")
    try:
        loop.wait_active()
        joints = ("--body", "fake_robot", "--joints", "fake_robot/joints", "--status", "policy_node", "--no-experience")
        yield SensorTrial(loop, loop.watch(*joints), clock)
    finally:
        loop.close()
        end(body)


def trial(folder: Path, domain: int, repeats: int, only: str = "") -> list[dict[str, Any]]:
    """Try every fault, or ``only`` one, moving and at rest, ``repeats`` times; return the figures."""
    seen: list[Seen] = []
    broken: list[str] = []
    with robot_loop(folder, domain) as robot:
        for number in range(repeats):
            for fault, arm in DECLARED:
                if only not in fault:
                    continue
                try:
                    one = robot.run(fault, arm)
                except EngramError as error:
                    broken.append(f"{fault}, {arm}: {error}")
                    continue
                seen.append(one)
                print(f"{number}: {fault}, {arm}: {one.missing() or 'as declared'}; {one}", file=sys.stderr, flush=True)
    return [*figures(seen, broken), *watched_figures("sensors", folder / "watched.jsonl")]


def figures(seen: list[Seen], broken: list[str]) -> list[dict[str, Any]]:
    """Return how often the reaction was the declared one."""
    good, n = sum(not one.missing() for one in seen), len(seen) + len(broken)
    rate = wilson(good, max(1, n))
    rows = [{"fault": one.fault, "arm": one.arm, "missing": one.missing(), "goal": one.goal} for one in seen]
    return [
        figure("sensors_declared_reactions", rate.rate, n, (rate.low, rate.high), ">= 1.0", good == n, rows=rows,
               broken=broken, faults=len({fault for fault, _ in DECLARED})),
    ]  # fmt: skip
