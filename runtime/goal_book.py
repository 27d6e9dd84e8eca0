"""The goal of ``execute_task`` at hand: its episode, its steps, its limits and its end. No ROS; one thread calls it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import DENIED, EpisodeStatus, Verdict
from engram.learning.motion_correction import outcome_of
from engram.learning.rewards.believed import RECENT_NS, believed
from engram.runtime.episode_judge import VerdictHold
from engram.runtime.goal_rules import BeginEpisode, GoalRequest, GoalRules, JoinEpisode, check_goal
from engram.runtime.goal_words import judged_by, verdict_words

AHEAD_NS = 500_000_000
"""One that is farther ahead of the clock is nonsense."""

CANCEL = "cancel"
TOLD = ("succeeded", "failed", CANCEL)
"""What a person can say of a goal: how it ended, or that it shall end."""


@dataclass(eq=False)
class Goal:
    """The goal at hand."""

    client: Any
    """Who gave it, for whoever answers."""
    instruction: str
    timeout_s: float
    began_ns: int
    """When it came, by the time that its limit is of."""
    end: Callable[[tuple[str, str]], None]
    """Takes outcome and reason, once."""
    episode: int | None = None
    """None: it is being begun."""
    steps: int = 0
    verdict: Verdict | None = None
    """Newest that is believed."""
    told: dict[str, Verdict] = field(default_factory=dict)
    """Newest of each source."""
    hold: VerdictHold = field(default_factory=VerdictHold)
    seen_done: bool = False
    """Whether its success was ever certain by its verdicts."""


@dataclass(frozen=True)
class GoalBookConfig:
    """Whose goals they are, and how long one may take."""

    robot_id: str
    own_episodes: bool
    """A goal is an episode of its own (robot); else the simulation says when episodes begin and end."""
    timeout_s: float
    """Of a goal that names none [s]."""
    status_timeout_s: float
    """The simulation is gone when no status came for so long [s], wall clock."""


class GoalBook:
    """One goal at a time; a newer one preempts the older.

    Args:
        config: whose goals they are, and their limits.
        rules: what a goal leads to in simulation.
        clock_ns: tells the time of the node's clock.
        passed_ns: tells the time that a goal's limit is of: of a simulation's clock, or one that nobody can set.
        publish_status: tells what an episode of our own is doing.
        on_outcome: is told the episode of a goal that was carried out, and how near it came, 0..1.
    """

    def __init__(
        self,
        config: GoalBookConfig,
        rules: GoalRules,
        clock_ns: Callable[[], int],
        passed_ns: Callable[[], int],
        publish_status: Callable[[EpisodeStatus], None],
        on_outcome: Callable[[int, float], None] = lambda *_: None,
    ) -> None:
        self.config, self._rules = config, rules
        self._clock_ns, self._passed_ns = clock_ns, passed_ns
        self._publish_status, self._on_outcome = publish_status, on_outcome
        self.goal: Goal | None = None
        self.status: EpisodeStatus | None = None  # newest
        self.stopped = False  # as safety/stopped says
        self._heard = time.monotonic()  # when a status came
        self._halted: set[int] = set()  # episodes whose goal was cancelled
        self._words: dict[int, str] = {}  # episode -> instruction of its goal
        self._begun = 0  # scenes that goals asked for in simulation
        self._number = 0  # of the last episode of our own
        self._oracle_failed = [0, 0]  # goals that the simulator saw fail: all, those that were taken for reached

    # -- the episode -----------------------------------------------------------------------------------------------

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
        reason = "judged by the simulator" if status.task else f"the episode ended: {status.state}"
        outcome = {"succeeded": "succeeded", "stopped": "stopped"}.get(status.state, "failed")
        if status.task and status.state == "failed" and not status.oracle_success and goal.told:
            self._oracle_failed = [self._oracle_failed[0] + 1, self._oracle_failed[1] + goal.seen_done]
        self.finish("timeout" if status.truncated and outcome == "failed" else outcome, reason)

    def on_verdict(self, verdict: Verdict) -> None:
        """Note what is judged of the goal; end it when its success is certain, where nobody else ends episodes."""
        goal = self.goal
        if goal is None or goal.episode is None or goal.episode != verdict.episode:
            return
        now_ns = self._clock_ns()
        age_ns = now_ns - verdict.stamp_ns
        if age_ns > self._passed_ns() - goal.began_ns or not -AHEAD_NS <= age_ns <= RECENT_NS:
            return  # of an earlier goal with this number, of none, or of long ago
        last = goal.told.get(verdict.source)
        if last is not None and verdict.stamp_ns <= last.stamp_ns <= now_ns + AHEAD_NS:  # it comes late
            return  # a last one that is farther ahead is of before the clock was set back
        goal.told[verdict.source] = verdict
        if believed(goal.told.values(), now_ns) is not verdict:
            return
        goal.verdict = verdict
        if not goal.hold.take(verdict):
            return
        goal.seen_done = True
        if self.config.own_episodes:
            self.finish("succeeded", judged_by(verdict))

    def on_step(self, status: EpisodeStatus) -> Goal | None:
        """Count a control step; return the goal that it belongs to."""
        goal = self.goal
        if goal is None or goal.episode != status.episode:
            return None
        goal.steps += 1
        return goal

    # -- the goal --------------------------------------------------------------------------------------------------

    def accept(
        self, request: GoalRequest, timeout_s: float, client: Any, end: Callable[[tuple[str, str]], None]
    ) -> tuple[Goal, JoinEpisode | BeginEpisode]:
        """Make what ``client`` asks for the goal at hand; return it and what comes first.

        Raises:
            InvalidInputError: its time limit is none; the goal before it goes on.
            EngramError: the goal is refused, and why. The one before it was preempted all the same.
        """
        if not 0.0 <= timeout_s < math.inf:
            raise InvalidInputError(f"timeout_s: {timeout_s}, expected 0 (the node's own) or a number of seconds above")
        self.finish("preempted", "a newer goal came")
        plan = self._plan(request)
        limit_s = timeout_s or self.config.timeout_s
        goal = Goal(client, request.instruction, limit_s, self._passed_ns(), end)
        self.goal, self._heard = goal, time.monotonic()
        return goal, plan

    def _plan(self, request: GoalRequest) -> JoinEpisode | BeginEpisode:
        if not self.config.own_episodes:
            return self._rules.plan(request, self.status, self.stopped)
        check_goal(request, self.stopped)
        # the second in which it began: a number of before, also of a process of before, would stand for that episode
        self._number = max(self._number + 1, self._clock_ns() // 1_000_000_000)
        return JoinEpisode(self._number)

    def rest(self) -> None:
        """Tell that no goal is carried out: a process before may have told of one, which nobody carries out now."""
        if self.config.own_episodes:
            self._publish_status(EpisodeStatus(self._clock_ns(), self.config.robot_id, 0, "", "", 0, "idle"))

    def begin(self) -> int:
        """Count a scene that a goal asks for in simulation; return how many there were before."""
        self._begun += 1
        return self._begun - 1

    def join(self, goal: Goal, episode: int) -> None:
        """Tie ``goal`` to its episode, if it is still the goal at hand."""
        if self.goal is not goal:
            return
        goal.episode = episode
        self._words = {episode: goal.instruction}
        self._halted.discard(episode)
        if self.config.own_episodes:
            self._publish(goal, "running")
        elif self.status is not None:  # the episode may have begun, and even ended, before the goal came
            self.on_status(self.status)

    def told(self, outcome: str) -> tuple[bool, str]:
        """A person says one of ``TOLD`` of the goal at hand; return whether it ended so, and words."""
        goal = self.goal
        if outcome not in TOLD:
            raise unknown_name("outcome", outcome, TOLD)
        if goal is None or (goal.episode is None and outcome != CANCEL):
            return False, "no goal is being carried out"
        if outcome == CANCEL:  # the arm stays where it is; nothing is learnt or counted
            self.finish("stopped", "a person cancelled it")
            return True, f"{goal.instruction!r}: cancelled"
        if not self.config.own_episodes:
            return False, "in simulation the simulator judges; on a robot (episodes: goal) a person may"
        self.finish(outcome, "judged by a person", judged=True)
        return True, f"{goal.instruction!r}: {outcome}"

    def finish(self, outcome: str, reason: str, *, judged: bool = False, lost: bool = False) -> None:
        """End the goal at hand, if there is one.

        ``judged``: the outcome says how it was carried out; ``lost``: it could not be.
        """
        goal, self.goal = self.goal, None
        if goal is None:
            return
        if outcome in ("timeout", "preempted", "stopped", "rejected") and goal.episode is not None:
            self._halted = {goal.episode} if outcome != "preempted" else set()
        if self.config.own_episodes and goal.episode is not None:
            missed = self._missed(goal) if outcome == "timeout" else judged and outcome == "failed"
            state = "succeeded" if outcome == "succeeded" else "failed" if missed else "stopped"
            self._publish(goal, state)  # what was called off, or was not seen, is neither a success nor a failure
        if goal.episode is not None and not lost and outcome in ("succeeded", "failed", "timeout"):
            progress = math.nan if goal.verdict is None else goal.verdict.progress
            self._on_outcome(goal.episode, outcome_of(outcome == "succeeded", progress))
        goal.end((outcome, reason))

    def _missed(self, goal: Goal) -> bool:
        """Whether the last look at ``goal``, of just now, denied it."""
        last = goal.verdict
        return last is not None and last.outcome == DENIED and self._clock_ns() - last.stamp_ns <= RECENT_NS

    def lose(self, reason: str) -> None:
        """End the goal at hand as failed, because of what was lost; the policy moves nothing more in its episode."""
        goal = self.goal
        self.finish("failed", reason, lost=True)
        if goal is not None and goal.episode is not None:
            self._halted = {goal.episode}

    def check_limits(self, *, cancelled: bool) -> None:
        """End a goal that its client ``cancelled``, that took too long, or whose simulation went away."""
        goal = self.goal
        if goal is None:
            return
        silent_s = time.monotonic() - self._heard
        if cancelled:
            self.finish("stopped", "cancelled by the client")
        elif self.duration_s(goal) > goal.timeout_s:
            judged = "" if goal.verdict is None else f"; {judged_by(goal.verdict)}"
            self.finish("timeout", f"not done after {goal.timeout_s:g} s{judged}")
        elif not self.config.own_episodes and silent_s > self.config.status_timeout_s:
            # with the simulation stands the clock that the goal's own limit is of
            self.lose(f"link_lost: no task/status for {silent_s:.0f} s: the simulation does not run")

    @property
    def judged(self) -> str:
        """What is believed of the goal at hand, in words; empty: no goal runs, or nobody has judged it."""
        goal = self.goal
        return "" if goal is None or goal.verdict is None else verdict_words(goal.verdict)

    @property
    def oracle_mistaken(self) -> str:
        """How often a goal was taken for reached that the simulator saw fail; empty: it saw none fail.

        The reverse cannot be told: a simulation ends with the success, before the memory looks at it.
        """
        failed, mistaken = self._oracle_failed
        return f"{mistaken} of {failed} that the simulator saw fail" if failed else ""

    def duration_s(self, goal: Goal) -> float:
        """Return how long ``goal`` has taken [s]."""
        return (self._passed_ns() - goal.began_ns) / 1e9

    def _publish(self, goal: Goal, state: str) -> None:
        episode, robot_id = goal.episode or 0, self.config.robot_id
        self._publish_status(
            EpisodeStatus(self._clock_ns(), robot_id, episode, "", goal.instruction, goal.steps, state)
        )
