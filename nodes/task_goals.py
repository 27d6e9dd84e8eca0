"""The ``execute_task`` action: an instruction becomes an episode, and the episode's end becomes the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.client import Client
from rclpy.task import Future
from std_msgs.msg import Bool

from engram.core.errors import EngramError
from engram.core.types import EpisodeStatus
from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.runtime.goal_rules import BeginEpisode, GoalRequest, GoalRules, JoinEpisode, SimulatedTasks, check_goal
from engram.runtime.policy_runner import PolicyRunner
from engram_interfaces.action import ExecuteTask
from engram_interfaces.srv import ResetSim


@dataclass
class RunningGoal:
    """The goal at hand."""

    handle: Any
    instruction: str
    timeout_s: float
    episode: int | None  # None = it is being begun
    started_ns: int
    done: Future
    steps: int = 0


class TaskGoals:
    """One goal at a time; a newer one preempts the older.

    Args:
        node: whose action it is; its parameters say who begins episodes and how long a goal may take.
        runner: what drives.
        publish_status: tells what an episode of our own is doing.
    """

    def __init__(self, node: EngramNode, runner: PolicyRunner, publish_status: Callable[[EpisodeStatus], None]) -> None:
        self.node, self.runner, self._publish_status = node, runner, publish_status
        self.goal: RunningGoal | None = None
        self.status: EpisodeStatus | None = None  # newest
        self._heard = time.monotonic()  # when a status came
        self._stopped = False  # as safety/stopped says
        self._rules = GoalRules(
            node.config.check_instructions, SimulatedTasks(tuple(filter(None, node.config.tasks.split(","))))
        )
        self._halted: set[int] = set()  # episodes whose goal was cancelled
        self._words: dict[int, str] = {}  # episode -> instruction of its goal
        self._episodes = 0  # goals that began an episode of their own (robot)
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
        node.subscribe(Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        node.every(0.2, self._check_limits, "execute_task")

    def close(self) -> None:
        """End the goal that runs and the action."""
        self._finish("stopped", "the policy node was deactivated")
        self._server.destroy()
        self.node.destroy_client(self._reset)

    # -- what the policy node asks ---------------------------------------------------------------------------------

    def instruction_for(self, status: EpisodeStatus) -> str:
        """Return the words of the goal that runs in this episode, else the episode's own."""
        return self._words.get(status.episode, status.instruction)

    def halted(self, episode: int) -> bool:
        """Whether the goal of ``episode`` was called off."""
        return episode in self._halted

    def on_status(self, status: EpisodeStatus) -> None:
        """End the goal with its episode."""
        self.status, self._heard = status, time.monotonic()
        goal = self.goal
        if goal is None or status.state == "idle" or goal.episode != status.episode or status.running:
            return
        reason = "the simulation's own verdict" if status.task else f"the episode ended: {status.state}"
        outcome = {"succeeded": "succeeded", "stopped": "stopped"}.get(status.state, "failed")
        self._finish("timeout" if status.truncated and outcome == "failed" else outcome, reason)

    def on_step(self, status: EpisodeStatus) -> RunningGoal | None:
        """Count a control step; return the goal that it belongs to."""
        goal = self.goal
        if goal is None or goal.episode != status.episode:
            return None
        goal.steps += 1
        return goal

    def tell(self, goal: RunningGoal, phase: str) -> None:
        """Tell the client of ``goal`` what the robot does; callable from any thread."""
        if self.goal is not goal:  # it ended meanwhile
            return
        # No reward model runs here, and time that went by is no progress: a robot that is stuck makes none.
        feedback = ExecuteTask.Feedback(step=goal.steps, progress=float("nan"), phase=phase)
        feedback.policy_version = self.runner.policy.version
        goal.handle.publish_feedback(feedback)

    # -- the action ------------------------------------------------------------------------------------------------

    async def _execute(self, handle: Any) -> ExecuteTask.Result:
        asked = handle.request
        request = GoalRequest(asked.instruction, asked.task, asked.episode)
        self._finish("preempted", "a newer goal came")
        try:
            plan = self._plan(request)
        except EngramError as error:
            handle.abort()
            return ExecuteTask.Result(outcome="rejected", reason=str(error))
        timeout_s = asked.timeout_s or self.node.config.goal_timeout_s
        goal = RunningGoal(handle, asked.instruction, timeout_s, None, self._now_ns(), self.node.promise())
        self.goal, self._heard = goal, time.monotonic()
        refusal = await self._begin(goal, plan)
        if refusal and self.goal is goal:  # a newer goal may have come meanwhile
            self._finish("rejected", refusal)
        ended = await goal.done
        assert ended is not None  # nobody cancels it
        outcome, reason = ended
        return self._result(goal, outcome, reason)

    def _plan(self, request: GoalRequest) -> JoinEpisode | BeginEpisode:
        if self.node.config.episodes == "status":
            return self._rules.plan(request, self.status, self._stopped)
        check_goal(request, self._stopped)
        self._episodes += 1
        return JoinEpisode(self._episodes)

    async def _begin(self, goal: RunningGoal, plan: JoinEpisode | BeginEpisode) -> str:
        """Tie ``goal`` to its episode, which may have to be begun; returns why it was refused, "" = it was not."""
        if isinstance(plan, BeginEpisode):
            if not self._reset.service_is_ready():
                return "no episode runs, and nobody offers sim/reset to begin one: is sim_node active?"
            request = ResetSim.Request(task=plan.task, seed=self._episodes, instruction=goal.instruction)
            self._episodes += 1
            answer = await self._reset.call_async(request)
            assert answer is not None  # nobody cancels it
            if not answer.accepted:
                return answer.message
            plan = JoinEpisode(answer.episode)
        if self.goal is not goal:
            return ""
        goal.episode = plan.episode
        self._words = {goal.episode: goal.instruction}
        self._halted.discard(goal.episode)
        if self.node.config.episodes == "goal":
            self._publish(goal, "running")
        elif self.status is not None:  # the episode may have begun, and even ended, before the goal came
            self.on_status(self.status)
        return ""

    def _finish(self, outcome: str, reason: str) -> None:
        goal, self.goal = self.goal, None
        if goal is None:
            return
        if outcome in ("timeout", "preempted", "stopped", "rejected") and goal.episode is not None:
            self._halted = {goal.episode} if outcome != "preempted" else set()
        if self.node.config.episodes == "goal" and goal.episode is not None:
            self._publish(goal, "succeeded" if outcome == "succeeded" else "stopped")
        goal.done.set_result((outcome, reason))

    def _result(self, goal: RunningGoal, outcome: str, reason: str) -> ExecuteTask.Result:
        if outcome == "succeeded":
            goal.handle.succeed()
        elif goal.handle.is_cancel_requested:
            goal.handle.canceled()
        else:
            goal.handle.abort()
        duration_s = (self._now_ns() - goal.started_ns) / 1e9
        chunk = self.runner.chunk
        result = ExecuteTask.Result(outcome=outcome, reason=reason, steps=goal.steps, duration_s=duration_s)
        result.evidence_ids = list(chunk.memory_ids) if chunk is not None else []
        return result

    def _check_limits(self) -> None:
        goal = self.goal
        if goal is None:
            return
        if goal.handle.is_cancel_requested:
            self._finish("stopped", "cancelled by the client")
        elif self._now_ns() - goal.started_ns > goal.timeout_s * 1e9:
            self._finish("timeout", f"not done after {goal.timeout_s:g} s")
        elif self.node.config.episodes == "status":
            self._check_silence()

    def _check_silence(self) -> None:
        """End a goal whose simulation went away: with it stands the clock that the goal's own limit is of."""
        silent_s, limit_s = time.monotonic() - self._heard, self.node.config.status_timeout_s
        if silent_s > limit_s:
            self._finish("failed", f"no task/status for {silent_s:.0f} s: the simulation does not run")

    def _on_stopped(self, msg: Bool) -> None:
        self._stopped = msg.data

    def _publish(self, goal: RunningGoal, state: str) -> None:
        status = EpisodeStatus(
            self._now_ns(), self.node.config.robot_id, goal.episode or 0, "", goal.instruction, goal.steps, state
        )
        self._publish_status(status)

    def _now_ns(self) -> int:
        return self.node.get_clock().now().nanoseconds
