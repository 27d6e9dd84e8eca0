"""The running nodes of a robot, with a simulation in place of its hardware.

The nodes are those of ``engram up robot``. They reach the simulation by ``hardware/joint_states``, the trajectory
controller's topic, cameras and tf alone; it ends no episode and tells no node whether one went well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.task import Future
from std_msgs.msg import Bool

from engram.benchmarks.faults_loop import Loop, TrialError, trial_graph
from engram.benchmarks.verdicts import MOMENTARY
from engram.nodes import qos
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim

FULL_SPEED: Mapping[str, Sequence[tuple[str, Any]]] = {
    "safety_node": tuple((f"safety.{limit}_fraction", 1.0) for limit in ("velocity", "acceleration", "jerk")),
    "robot_node": (("velocity_fraction", 1.0), ("acceleration_fraction", 1.0)),
}
"""Node -> parameters with which a robot uses all of its limits, as most twins do."""
WAIT_S = 60.0
"""Longest wait for an answer [s]."""
SETTLE_S = 1.0
"""How long the robot stays stopped after things were arranged, and how long it has to stay released [s]."""
RELEASES = 10
"""How often it is released at most, until it stays so."""


@dataclass(frozen=True)
class TwinSettings:
    """Which nodes run, and what they work on."""

    work: Path
    """Folder of homes and logs."""
    domain: int
    """ROS_DOMAIN_ID of the nodes."""
    values: Mapping[str, str]
    """Launch arguments."""
    parameters: Mapping[str, Sequence[tuple[str, Any]]]
    """Node -> parameters of its own."""
    world: str = "twin"
    """What plays the robot and its surroundings."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More environment variables of all processes."""
    goal_s: float = 20.0
    """Time limit of a goal [s of the nodes' clock]."""


class Twin:
    """The running nodes of a robot, and the simulation that plays its hardware."""

    def __init__(self, settings: TwinSettings) -> None:
        self.settings = settings
        graph = trial_graph("robot", {"viewer": "false", "driver": "twin", "twin": settings.world, **settings.values})
        nodes = [replace(n, parameters=(*n.parameters, *settings.parameters.get(n.name, ()))) for n in graph.nodes]
        graph = replace(graph, nodes=tuple(nodes))
        self.loop = Loop(graph, settings.work / "nodes", settings.domain, settings.environment)
        node = self.loop.client.node
        self.truth: TaskStatus | None = None
        node.create_subscription(TaskStatus, "twin/status", self._on_truth, qos.LATCHED)
        self.stopped = True  # as safety/stopped says
        node.create_subscription(Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        self._reset: Client = node.create_client(ResetSim, "twin/reset")
        self._goals: ActionClient = ActionClient(node, ExecuteTask, "execute_task")

    def _on_truth(self, msg: TaskStatus) -> None:
        self.truth = msg

    def _on_stopped(self, msg: Bool) -> None:
        self.stopped = msg.data

    def goal(self, task: str, seed: int) -> dict[str, Any]:
        """Arrange ``task`` from ``seed``, give its words as a goal; return how it ended, and what is true.

        The robot is stopped while things are arranged: its arm is put back too, which no motor could.
        """
        client = self.loop.client
        client.wait_for(self._reset.service_is_ready, WAIT_S, "twin/reset")
        client.wait_for(self._goals.server_is_ready, WAIT_S, "execute_task")
        client.trigger("safety/stop", WAIT_S)
        arranged = self._answer(self._reset.call_async(ResetSim.Request(task=task, seed=seed)), WAIT_S)
        if not arranged.accepted:
            raise TrialError(f"{task}, seed {seed}: {arranged.message}")
        number = arranged.episode
        client.wait_for(lambda: self.truth is not None and self.truth.episode == number, WAIT_S, "the twin's episode")
        assert self.truth is not None
        client.spin(SETTLE_S)
        self._release()
        words, ever = self.truth.instruction, False
        goal = ExecuteTask.Goal(instruction=words, timeout_s=self.settings.goal_s)
        ended = self._answer(self._goals.send_goal_async(goal), WAIT_S).get_result_async()

        def over() -> bool:
            nonlocal ever
            ever |= self.truth is not None and self.truth.oracle_reward > 0
            return ended.done()

        client.wait_for(over, 4 * self.settings.goal_s + WAIT_S, "end of the goal")
        result = self._answer(ended, WAIT_S).result
        now = self.truth.oracle_reward > 0  # what the arm does after the end, it does too late
        return {
            "task": task,
            "seed": seed,
            "words": words,
            "outcome": result.outcome,
            "reason": result.reason,
            "duration_s": round(result.duration_s, 2),
            "truth": ever if task in MOMENTARY else now,
        }

    def _release(self) -> None:
        """Release the robot for good: joints that reach the safety node late, of the arm put back, stop it again."""
        for _ in range(RELEASES):
            self.loop.client.trigger("safety/reset", WAIT_S)
            self.loop.client.spin(SETTLE_S)
            if not self.stopped:
                return
        raise TrialError("the robot does not stay released once things are arranged")

    def _answer(self, asked: Future[Any], timeout_s: float) -> Any:
        self.loop.client.wait_for(asked.done, timeout_s, "answer")
        return asked.result()

    def close(self) -> None:
        """End all nodes."""
        self.loop.close()
