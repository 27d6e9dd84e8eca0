"""Lets a person drive a running robot: publishes what a device says as ``intervention``.

The safety node treats a person's actions as a policy's: within the same limits, and a latched stop goes before them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from sensor_msgs.msg import JointState as JointStateMsg
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from engram.core.registry import make_robot
from engram.core.robot import RobotConfig
from engram.core.types import JointState
from engram.nodes import messages, qos
from engram.nodes.claims import hear_bound
from engram.nodes.handover import PERIOD_S, Handover
from engram.nodes.heard_scene import HeardScene
from engram.nodes.outsider import Outsider
from engram.runtime.episode_report import LoopError
from engram.runtime.health import Health
from engram.runtime.parameters.bound import BoundNodeConfig
from engram.runtime.teleop import FAILED, QUIT, STOP, SUCCEEDED, TeleopDevice, Wish
from engram_interfaces.msg import ActionChunk, TaskStatus

JOINTS_LOST_S = 1.0
"""Joints that are older say nothing of where the arm is [s]."""
ANSWER_S = 5.0
"""Longest wait for a service [s]."""
SAFETY = "safety_node"
"""Knows the robot, and tells what was executed."""
SERVICES = {STOP: "safety/stop", SUCCEEDED: "execute_task/succeeded", FAILED: "execute_task/failed"}


class TeleopClient(Outsider):
    """Drives the robot of a namespace as ``who`` until the person leaves."""

    def __init__(self, who: str, namespace: str = "", domain: int | None = None) -> None:
        super().__init__("teleoperation", namespace, domain)
        self.robot: RobotConfig | None = None
        self._joints: JointState | None = None
        self._joints_at = 0.0  # monotonic s
        self._stopped = False
        self._moves = True  # the simulation moves in an episode only
        self._held = False
        self.goal = 0, ""
        """Number of the running goal, and its instruction; empty: none runs."""
        self._lockstep = False
        self._health = Health()
        node = self.node
        self._handover = Handover(node, who)
        self._told: dict[str, Client] = {word: node.create_client(Trigger, name) for word, name in SERVICES.items()}
        self._parameters: Client = node.create_client(GetParameters, f"{SAFETY}/get_parameters")

    def _listen(self, robot: RobotConfig, writers: BoundNodeConfig) -> None:
        """Hear ``robot`` from those alone whom the safety node hears, as its ``writers`` say, and from itself."""

        def on_joints(msg: JointStateMsg) -> None:
            self._joints = messages.joints_from_msg(msg, robot.joint_names)
            self._joints_at = time.monotonic()

        hear = partial(hear_bound, self.node, self._health)
        hear(writers.writers_of("joint_states"), JointStateMsg, "joint_states", on_joints, qos.SENSOR)
        hear(writers.writers_of("task/status"), TaskStatus, "task/status", self._on_status, qos.LATCHED)
        hear((SAFETY,), ActionChunk, "safety/executed", self._handover.on_executed, qos.SENSOR)
        hear((SAFETY,), Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        self._writers = writers

    def _on_stopped(self, msg: Bool) -> None:
        self._stopped = msg.data

    def _on_status(self, msg: TaskStatus) -> None:
        self._moves, self._held = msg.state == "running", msg.state == "held"
        self.goal = msg.episode, msg.instruction if msg.state in ("running", "held") else ""

    def find_robot(self, timeout_s: float) -> RobotConfig:
        """Return the robot of the safety node, once its joints are heard.

        Raises:
            LoopError: no safety node answers, or it hears no joints.
            UnknownNameError: its robot is not installed here.
        """
        self.wait_for(self._parameters.service_is_ready, timeout_s, "the safety node")
        request = GetParameters.Request(names=["robot", "lockstep", "writers"])
        answer = self._ask(self._parameters, request, timeout_s, "the safety node's parameters")
        robot, lockstep, writers = answer.values
        self.robot, self._lockstep = make_robot(robot.string_value), lockstep.bool_value
        self._listen(self.robot, BoundNodeConfig(writers=tuple(writers.string_array_value)))
        self.wait_for(lambda: self._joints is not None, timeout_s, "joint_states of the robot")
        return self.robot

    def hear_scene(self) -> HeardScene:
        """Hear what the memory knows, from now on; after :meth:`find_robot`."""
        return HeardScene(self.node, self._health, self._writers.writers_of("memory/graph") or ("memory_node",))

    def drive(self, device: TeleopDevice, show: Callable[[str], None]) -> None:
        """Pass on what ``device`` says until the person leaves; ``show`` gets a line about it at every change.

        However it ends, the robot is handed back to its policy.

        Raises:
            LoopError: the device is gone.
        """
        said, robot = "", self.robot
        assert robot is not None and self._joints is not None  # find_robot has waited for them
        try:
            while True:
                self.spin(PERIOD_S)
                try:
                    halted = self._stopped or self._silent_s() > JOINTS_LOST_S
                    seen = self._handover.seen(self._joints, robot)
                    wish = device.read(replace(seen, halted=halted, held=self._held))
                except Exception as error:
                    raise LoopError(f"the device is gone: {error!r}") from error
                if STOP in wish.said:  # before the policy has the robot again
                    self._handover.stand(self._joints.stamp_ns)
                    show(self._call(STOP))
                self._pass_on(wish)
                if QUIT in wish.said:
                    return
                for word in wish.said:
                    if word != STOP:
                        show(self._call(word))
                line = "; ".join(filter(None, (self._line(wish), self._health.condition("").message)))
                if line != said:
                    show(line)
                said = line
        finally:
            self._pass_on(Wish(False))

    def _pass_on(self, wish: Wish) -> None:
        self._handover.pass_on(wish, self._joints.stamp_ns if self._joints is not None else 0)

    def _silent_s(self) -> float:
        return time.monotonic() - self._joints_at

    def _line(self, wish: Wish) -> str:
        if self._silent_s() > JOINTS_LOST_S:
            return "no joint_states come: nothing moves"
        if self._stopped:
            return "the robot is stopped: 'engram release' lets it move again"
        if wish.note:
            return wish.note
        if wish.drives and self._lockstep and not self._moves:
            return "nothing moves: the simulation stands still until it is given a goal (engram do ...)"
        who = f"you drive ({self._handover.who})" if wish.drives else "the policy drives, or nobody"
        return f"{who}; last executed: {self._handover.driver or 'nothing'}"

    def _call(self, word: str) -> str:
        client, service = self._told[word], SERVICES[word]
        try:
            self.wait_for(client.service_is_ready, ANSWER_S, f"service {service}")
            answer = self._ask(client, Trigger.Request(), ANSWER_S, service)
        except LoopError as error:
            return f"{service} FAILED: {error}"
        return f"{service}: {answer.message}" if answer.success else f"{service} was refused: {answer.message}"
