"""Drives a running node set from outside, over its public interface only: reset, task, status, diagnostics.

One thread: every wait spins the client and calls ``idle`` (a supervisor's step, a progress bar).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import GetParameters, SetParametersAtomically
from rclpy.action import ActionClient
from rclpy.client import Client
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from engram.nodes import messages, qos
from engram.nodes.executor import KeptExecutor
from engram.runtime.episode_report import EpisodeReport, LoopError
from engram.runtime.health import TOPIC, Condition, own_name
from engram.runtime.policy_notes import POLICY_READY, describe_driver
from engram_interfaces.action import ExecuteTask
from engram_interfaces.srv import ResetSim

AGAIN_S = 3.0
"""How long to wait for an answer before the request is sent again [s]."""
GOAL_AGAIN_S = 15.0
"""The same for a goal [s]: it supersedes the one before, so a server that is only busy must not get it twice."""


class LoopClient:
    """A ROS node of its own context, so that several domains can be driven from one process.

    A server that has not discovered a client yet waits 0.1 s for it, then drops its answer for good (rmw_fastrtps). So
    requests that may be carried out twice are sent again; before the others, the server's node is greeted.

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
        self.idle = idle
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain, signal_handler_options=rclpy.SignalHandlerOptions.NO)
        self.node = Node("engram_demo", namespace=namespace, context=self._context)
        self._executor = KeptExecutor(context=self._context)
        self._executor.add_node(self.node)
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
        self._greetings: dict[str, Client] = {  # made last: whoever answers them has discovered all others
            name: self.node.create_client(GetParameters, f"{name}/get_parameters")
            for name in ("sim_node", "policy_node")
        }

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for full_name, condition in messages.conditions_from_msg(msg):
            if name := own_name(full_name, self.node.get_namespace()):
                self.diagnostics[name] = condition

    def _on_command(self, msg: JointTrajectory) -> None:
        # a step that is shown again, because it took long, is answered again with the same command
        self.commands += msg.header.stamp != self._commanded
        self._commanded = msg.header.stamp
        if self.moving_since is None:
            self.moving_since = time.monotonic()

    def others(self, seconds: float = 1.5) -> list[str]:
        """Return the names of the nodes that run in our namespace already."""
        self.spin(seconds)
        space = self.node.get_namespace()
        return sorted(n for n, ns in self.node.get_node_names_and_namespaces() if ns == space and n != "engram_demo")

    def spin(self, seconds: float) -> None:
        """Take in messages for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._once()

    def _once(self) -> None:
        self._executor.spin_once(timeout_sec=0.05)
        self.idle()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Spin until ``condition`` holds; raises LoopError naming ``what`` after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise LoopError(f"{what}: not within {timeout_s:g} s")
            self._once()

    def _answer(self, future: Future, timeout_s: float, what: str) -> Any:
        self.wait_for(future.done, timeout_s, what)
        result = future.result()
        if result is None:
            raise LoopError(f"{what}: no answer")
        return result

    def _ask(self, client: Client, request: Any, timeout_s: float, what: str) -> Any:
        """Return the answer to ``request``, which is sent again while there is none."""
        send = partial(client.call_async, request)
        return self._again(send, client.remove_pending_request, AGAIN_S, timeout_s, what)

    def _again(
        self,
        send: Callable[[], Future],
        forget: Callable[[Future], object],
        patience_s: float,
        timeout_s: float,
        what: str,
    ) -> Any:
        end = time.monotonic() + timeout_s
        while True:
            future = send()
            try:
                return self._answer(future, min(patience_s, end - time.monotonic()), what)
            except LoopError:
                forget(future)
                if time.monotonic() > end:
                    raise LoopError(f"{what}: not within {timeout_s:g} s") from None

    def _greet(self, name: str, timeout_s: float) -> None:
        """Wait until the node ``name``, whose other services are there, has discovered us."""
        if self._greetings[name].service_is_ready():  # else the node goes by another name
            self._ask(self._greetings[name], GetParameters.Request(), timeout_s, f"{name}/get_parameters")

    def wait_active(self, timeout_s: float, on_change: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the lifecycle manager says that all nodes are active; ``on_change`` gets its summaries."""
        end = time.monotonic() + timeout_s
        said = "the lifecycle manager has not answered yet"
        while True:
            manager = self.diagnostics.get("lifecycle_manager")
            if manager is not None and "failed" in manager.values.values():
                raise LoopError(manager.message)
            if time.monotonic() > end:
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

    def execute(self, goal: ExecuteTask.Goal, timeout_s: float) -> ExecuteTask.Result:
        """Send ``goal`` and wait for its result.

        rclpy's server never executes a goal whose acceptance it could not send, so one without an answer is sent anew.
        """
        what = f"execute_task {goal.instruction!r}"
        self.wait_for(self._execute.server_is_ready, timeout_s, "action execute_task")
        self._greet("policy_node", timeout_s)
        handle = self._again(lambda: self._execute.send_goal_async(goal), lambda _: None, GOAL_AGAIN_S, timeout_s, what)
        if not handle.accepted:
            raise LoopError(f"{what} was not accepted")
        answer = self._answer(handle.get_result_async(), timeout_s, f"outcome of {what}")
        return answer.result

    def do(self, instruction: str, timeout_s: float) -> ExecuteTask.Result:
        """Give ``instruction`` as a goal and wait for its result."""
        return self.execute(ExecuteTask.Goal(instruction=instruction), timeout_s)

    def trigger(self, service: str, timeout_s: float) -> tuple[bool, str]:
        """Call a Trigger ``service``, sent again while there is no answer; return whether it succeeded and what it
        said."""
        client: Client = self.node.create_client(Trigger, service)
        self.wait_for(client.service_is_ready, timeout_s, f"service {service}")
        answer = self._ask(client, Trigger.Request(), timeout_s, service)
        return answer.success, answer.message

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
        said = self.diagnostics.get("policy_node")
        return said.values if said is not None else {}

    def close(self) -> None:
        """Leave the graph."""
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)
