"""Drives a running node set from outside, over its public interface only: reset, task, status, diagnostics.

One thread: every wait spins the client and calls ``idle`` (a supervisor's step, a progress bar).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from engram.nodes import messages, qos
from engram.nodes.outsider import AGAIN_S, Outsider
from engram.runtime.asking import ask_again
from engram.runtime.episode_report import EpisodeReport, LoopError
from engram.runtime.goal_words import Standing
from engram.runtime.health import TOPIC, Condition, own_name
from engram.runtime.policy_notes import POLICY_READY, describe_driver
from engram_interfaces.action import ExecuteTask
from engram_interfaces.srv import ResetSim

GOAL_AGAIN_S = 15.0
"""The same for a goal [s]: it supersedes the one before, so a server that is only busy must not get it twice."""


class LoopClient(Outsider):
    """Begins episodes, gives goals, changes what drives. An unanswered goal is sent again: a newer supersedes it.

    It keeps out of the control path's way: with ``count_commands`` it is woken by every command, else by what it asked
    for and by diagnostics alone.
    """

    def __init__(
        self,
        namespace: str = "",
        domain: int | None = None,
        idle: Callable[[], object] = lambda: None,
        *,
        count_commands: bool = False,
    ) -> None:
        super().__init__("engram_demo", namespace, domain, idle)
        self.diagnostics: dict[str, Condition] = {}  # node name -> newest
        self.commands = 0  # control steps that were answered
        self._commanded: Any = None  # stamp of the newest command
        self.moving_since: float | None = None  # monotonic s of the first command
        self.node.create_subscription(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)
        if count_commands:
            self.node.create_subscription(JointTrajectory, "command", self._on_command, qos.EVENTS)
        self._reset: Client = self.node.create_client(ResetSim, "sim/reset")
        self._is_active: Client = self.node.create_client(Trigger, "lifecycle_manager/is_active")
        self._set_policy: Client = self.node.create_client(
            SetParametersAtomically, "policy_node/set_parameters_atomically"
        )
        self._execute: ActionClient = ActionClient(self.node, ExecuteTask, "execute_task")
        self._will_greet(["sim_node", "policy_node"])

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for full_name, condition in messages.conditions_from_msg(msg):
            if name := own_name(full_name, self.node.get_namespace()):
                self.diagnostics[name] = condition

    def _on_command(self, msg: JointTrajectory) -> None:
        # a step that is shown again, because it took long, is answered again with the same command
        self.commands += msg.header.stamp != self._commanded
        self._commanded = msg.header.stamp
        self.moving_since = self.moving_since or time.monotonic()

    def others(self, seconds: float = 1.5) -> list[str]:
        """Return the names of the nodes that run in our namespace already."""
        self.spin(seconds)
        space = self.node.get_namespace()
        return sorted(n for n, ns in self.node.get_node_names_and_namespaces() if ns == space and n != "engram_demo")

    def wait_active(self, timeout_s: float, on_change: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the lifecycle manager says that all nodes are active; ``on_change`` gets its summaries."""
        end = time.monotonic() + timeout_s
        said = "the lifecycle manager has not answered yet"
        while True:
            manager = self.diagnostics.get("lifecycle_manager")
            if manager is not None and "failed" in manager.values.values():
                raise LoopError(manager.message)
            if not time.monotonic() <= end:
                raise LoopError(f"the nodes are not active after {timeout_s:g} s: {said}")
            if self._is_active.service_is_ready():
                try:
                    answer = self._ask(self._is_active, Trigger.Request(), AGAIN_S, "lifecycle_manager/is_active")
                except LoopError:
                    continue
                if answer.message != said:
                    said = answer.message
                    on_change(said)
                if answer.success:
                    return
            self.spin(0.3)

    def run_episode(self, task: str, seed: int, timeout_s: float) -> EpisodeReport:
        """Begin an episode, give its own words as a goal, and wait for the outcome.

        Raises:
            LoopError: something refused, or there was no outcome within ``timeout_s`` of wall clock.
        """
        began = time.monotonic()
        self.wait_for(self._reset.service_is_ready, timeout_s, "service sim/reset")
        self._greet("sim_node", timeout_s)
        what = f"sim/reset of {task!r} with seed {seed}"
        answer = self._answer(self._reset.call_async(ResetSim.Request(task=task, seed=seed)), timeout_s, what)
        if not answer.accepted:
            raise LoopError(f"{what} was refused: {answer.message}")
        goal = ExecuteTask.Goal(instruction=answer.instruction, task=task, episode=answer.episode)
        result = self.execute(goal, timeout_s)
        return EpisodeReport(
            task=task,
            seed=seed,
            episode=int(goal.episode),
            instruction=goal.instruction,
            outcome=result.outcome,
            reason=result.reason,
            steps=int(result.steps),
            wall_s=time.monotonic() - began,
        )

    def execute(
        self, goal: ExecuteTask.Goal, timeout_s: float, told: Callable[[Standing], None] = lambda _: None
    ) -> ExecuteTask.Result:
        """Send ``goal`` and wait for its result; ``told`` gets how it stands, at every control step.

        rclpy's server never executes a goal whose acceptance it could not send, so one without an answer is sent anew.
        A result that it could not send is lost, too, so it is asked for again.
        Who waits no longer, after ``timeout_s`` or by Ctrl-C, cancels it.
        """
        what = f"execute_task {goal.instruction!r}"
        self.wait_for(self._execute.server_is_ready, timeout_s, "action execute_task")
        self._greet("policy_node", timeout_s)

        def hear(msg: Any) -> None:
            now = msg.feedback
            told(Standing(now.phase, now.progress, now.policy_version))

        send = partial(self._execute.send_goal_async, goal, hear)
        handle = ask_again(send, self._answer, lambda _: None, GOAL_AGAIN_S, timeout_s, what)
        if not handle.accepted:
            raise LoopError(f"{what} was not accepted")
        try:
            ask, outcome = handle.get_result_async, f"outcome of {what}"
            done = ask_again(ask, self._answer, lambda _: None, GOAL_AGAIN_S, timeout_s, outcome)
            if done.status == GoalStatus.STATUS_UNKNOWN:
                raise LoopError(f"{what} is lost: the policy node was restarted")
            return done.result
        except (LoopError, KeyboardInterrupt):  # nobody waits for it any more: the arm must not go on
            with suppress(LoopError):
                self._answer(handle.cancel_goal_async(), AGAIN_S, f"cancelling {what}")
            raise

    def do(
        self, instruction: str, timeout_s: float, told: Callable[[Standing], None] = lambda _: None
    ) -> ExecuteTask.Result:
        """Give ``instruction`` as a goal and wait for its result; ``told``: as of :meth:`execute`."""
        return self.execute(ExecuteTask.Goal(instruction=instruction), timeout_s, told)

    def drive_by(self, policy: str, ablation: str, timeout_s: float) -> None:
        """Let another policy drive from the next episode on, its memory spoilt by ``ablation`` if that is not empty.

        Raises:
            LoopError: the policy node refused, or has not loaded it within ``timeout_s``.
        """
        what = f"policy {describe_driver(policy, ablation)!r}"
        self.wait_for(lambda: "policy_node" in self.diagnostics, timeout_s, "diagnostics of the policy node")
        failed_before = self._said_by_policy().get("problems policy change", "0")
        values = [Parameter(n, value=v).to_parameter_msg() for n, v in (("policy", policy), ("ablation", ablation))]
        self.wait_for(self._set_policy.service_is_ready, timeout_s, "service policy_node/set_parameters_atomically")
        # one after the other, the node would first try the new policy with the old ablation
        request = SetParametersAtomically.Request(parameters=values)
        result = self._ask(self._set_policy, request, timeout_s, what).result
        if not result.successful:
            raise LoopError(f"{what} was refused: {result.reason}")

        def ready() -> bool:
            said = self._said_by_policy()
            if said.get("problems policy change", "0") != failed_before:
                raise LoopError(f"{what}: {said['last problem']}")
            return said.get(POLICY_READY) == describe_driver(policy, ablation)

        self.wait_for(ready, timeout_s, what)

    def _said_by_policy(self) -> Mapping[str, str]:
        return self.diagnostics["policy_node"].values if "policy_node" in self.diagnostics else {}
