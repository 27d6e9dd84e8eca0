"""The ``execute_task`` action: an instruction becomes an episode, and the episode's end becomes the outcome."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.client import Client
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from engram.core.errors import EngramError
from engram.core.types import EpisodeStatus, Verdict
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.runtime.bounds import check_sizes
from engram.runtime.goal_book import TOLD, Goal, GoalBook, GoalBookConfig
from engram.runtime.goal_rules import BeginEpisode, GoalRequest, GoalRules, JoinEpisode, SimulatedTasks
from engram.runtime.policy_notes import JUDGED, MISTAKEN
from engram.runtime.policy_runner import PolicyRunner
from engram_interfaces.action import ExecuteTask
from engram_interfaces.msg import Verdict as VerdictMsg
from engram_interfaces.srv import ResetSim

KEPT = 64
"""Verdicts of the policy's classifiers that wait to be taken, those of the newest steps."""


class TaskGoals:
    """Offers the action for as long as ``node`` is active; ``book`` says what becomes of each goal.

    Args:
        node: whose action it is; its parameters say who begins episodes and how long a goal may take.
        runner: what drives.
        publish_status: tells what an episode of our own is doing.
    """

    def __init__(self, node: EngramNode, runner: PolicyRunner, publish_status: Callable[[EpisodeStatus], None]) -> None:
        self._node, self._runner = node, runner
        config, clock, simulated = node.config, node.get_clock(), node.get_parameter("use_sim_time").value
        self.book = GoalBook(
            GoalBookConfig(config.robot_id, config.episodes == "goal", config.goal_timeout_s, config.status_timeout_s),
            GoalRules(config.check_instructions, SimulatedTasks(tuple(filter(None, config.tasks.split(","))))),
            lambda: clock.now().nanoseconds,
            lambda: clock.now().nanoseconds if simulated else time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            publish_status,
            runner.ended,
        )  # fmt: skip
        self._judged: deque[Verdict] = deque(maxlen=KEPT)
        self._reset: Client = node.create_client(ResetSim, "sim/reset")
        self._server = ActionServer(
            node,
            ExecuteTask,
            "execute_task",
            self._execute,
            callback_group=node.async_group,
            goal_callback=lambda _: GoalResponse.ACCEPT,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
        )
        subscribe_bound(node, Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        for outcome in TOLD:
            node.serve(Trigger, f"execute_task/{outcome}", partial(self._on_told, outcome))
        node.every(0.2, self._check_limits, "execute_task")
        if config.verdict == "memory":
            subscribe_bound(node, VerdictMsg, "verdict", self._on_verdict, qos.COMMAND)

    def close(self) -> None:
        """End the goal that runs and the action."""
        self.book.finish("stopped", "the policy node was deactivated")
        self._server.destroy()
        self._node.destroy_client(self._reset)

    def tell(self, goal: Goal, phase: str) -> None:
        """Tell the client of ``goal`` what the robot does; callable from any thread."""
        if self.book.goal is not goal:  # it ended meanwhile
            return
        # Time that went by is no progress: a robot that is stuck makes none.
        progress = float("nan") if goal.verdict is None else goal.verdict.progress
        feedback = ExecuteTask.Feedback(step=goal.steps, progress=progress, phase=phase)
        feedback.policy_version = self._runner.policy.version
        goal.client.publish_feedback(feedback)

    async def _execute(self, handle: Any) -> ExecuteTask.Result:
        asked, done = handle.request, self._node.promise()
        try:
            check_sizes(asked)
            request = GoalRequest(asked.instruction, asked.task, asked.episode)
            goal, plan = self.book.accept(request, asked.timeout_s, handle, done.set_result)
        except EngramError as error:
            handle.abort()
            return ExecuteTask.Result(outcome="rejected", reason=str(error))
        refusal = await self._begin(goal, plan, done)
        if refusal and self.book.goal is goal:  # a newer goal may have come meanwhile
            self.book.finish("rejected", refusal)
        ended = await done
        assert ended is not None  # nobody cancels it
        return self._result(goal, *ended)

    async def _begin(self, goal: Goal, plan: JoinEpisode | BeginEpisode, ended: Future) -> str:
        """Tie ``goal`` to its episode, which may have to be begun; returns why it was refused, "" = it was not."""
        if isinstance(plan, BeginEpisode):
            if not self._reset.service_is_ready():
                return "no episode runs, and nobody offers sim/reset to begin one: is sim_node active?"
            request = ResetSim.Request(task=plan.task, seed=self.book.begin(), instruction=goal.instruction)
            asked = self._reset.call_async(request)
            ended.add_done_callback(lambda _: asked.cancel())  # the simulation may be gone with its answer
            answer = await asked
            if answer is None:
                return "it ended before its episode began"
            if not answer.accepted:
                return answer.message
            plan = JoinEpisode(answer.episode)
        self.book.join(goal, plan.episode)
        return ""

    def _result(self, goal: Goal, outcome: str, reason: str) -> ExecuteTask.Result:
        if outcome == "succeeded":
            goal.client.succeed()
        elif goal.client.is_cancel_requested:
            goal.client.canceled()
        else:
            goal.client.abort()
        duration_s, chunk = self.book.duration_s(goal), self._runner.chunk
        result = ExecuteTask.Result(outcome=outcome, reason=reason, steps=goal.steps, duration_s=duration_s)
        read, verdict = chunk.memory_ids if chunk is not None else (), goal.verdict
        result.evidence_ids = [*read, *(verdict.evidence_ids if verdict is not None else ())]
        return result

    def judged(self, verdict: Verdict) -> None:
        """Take what the policy's own classifiers say of the goal; callable from any thread."""
        self._judged.append(verdict)

    def _check_limits(self) -> None:
        while self._judged:
            self.book.on_verdict(self._judged.popleft())
        goal = self.book.goal
        self._node.health.note(JUDGED, self.book.judged)
        if mistaken := self.book.oracle_mistaken:
            self._node.health.note(MISTAKEN, mistaken)
        self.book.check_limits(cancelled=goal is not None and goal.client.is_cancel_requested)

    def _on_verdict(self, msg: VerdictMsg) -> None:
        self.book.on_verdict(messages.verdict_from_msg(msg))

    def _on_told(self, outcome: str, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = self.book.told(outcome)
        return response

    def _on_stopped(self, msg: Bool) -> None:
        self.book.stopped = msg.data
