"""Joins what happened at each control step into transitions for the learner. No ROS; called from one thread.

A step is complete when three things are known: the action that the policy proposed, the action that the safety node
executed, and the outcome (the status of the next step). They arrive over different topics in any order. The safety node
may have executed a step before its images have arrived here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.control import proprioception
from engram.core.robot import RobotConfig
from engram.core.stamped_buffer import RESTART_NS, StampedBuffer, clock_restarted
from engram.core.types import (
    HOLD,
    NOBODY,
    UNJUDGED,
    ActionChunk,
    ActionSource,
    EpisodeStatus,
    MemoryTokens,
    Observation,
    Transition,
)


@dataclass
class _Step:
    observation: Observation
    held: bool  # the cell held the arm: whatever was let through moved nothing
    context: MemoryTokens | None
    proposed: np.ndarray | None = None  # (a,)
    memory_ids: tuple[str, ...] = field(default=())
    version: str = ""
    chunk_ns: int = 0  # of the chunk that proposed
    source: ActionSource = field(default_factory=lambda: ActionSource(NOBODY))


COVERED_BELOW = 3.0
"""A camera whose pixels vary by less than this (standard deviation, grey levels of 255) shows nothing: it is covered,
in the dark or without a signal. In simulation a camera varies by more than 30, with a cap on it by less than 2."""
CELL = "cell"
"""Why the robot held where the cell holds the arm: whatever is let through moves nothing."""
KEPT = 256
"""Steps, executed actions and statuses kept while they wait for each other."""


class ExperienceRecorder:
    """Joins observations, chunks, executed actions and statuses into transitions, in order.

    Args:
        emit: takes each complete transition; its ids and sequence are the spool's to give.
        first_sequence: the number that the next transition will get; it names an episode uniquely within a spool.
        missed: called for each step that is left out, because nobody told what was executed in it.
    """

    def __init__(
        self,
        kinematics: Kinematics,
        robot: RobotConfig,
        emit: Callable[[Transition], None],
        first_sequence: Callable[[], int],
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._kinematics, self._robot = kinematics, robot
        self._emit, self._first_sequence, self._missed = emit, first_sequence, missed
        self._steps: StampedBuffer[_Step] = StampedBuffer(KEPT)  # not yet emitted
        self._executed: StampedBuffer[ActionChunk] = StampedBuffer(KEPT)  # one row each; version = author
        self._aside: StampedBuffer[ActionChunk] = StampedBuffer(KEPT)  # rows of before, or of a clock that began anew
        self._statuses: StampedBuffer[EpisodeStatus] = StampedBuffer(KEPT)
        self._observed_ns = 0  # newest
        self._chunk: ActionChunk | None = None
        self._source = ActionSource()  # of the newest chunk
        self._episode: int | None = None
        self._number = 0  # of the episode, for the learner
        self._count = 0  # steps emitted in this episode
        self._words = ("", "")  # task, instruction

    def observed(
        self,
        observation: Observation,
        status: EpisodeStatus,
        instruction: str,
        context: MemoryTokens | None = None,
    ) -> None:
        """A control step began; ``context``: what a policy that acts on memory/context reads of it."""
        self._look_at_clock(observation.stamp_ns)
        if status.episode != self._episode:
            self._begin(status)
        self._words, self._observed_ns = (status.task, instruction), observation.stamp_ns
        self._steps.add(observation.stamp_ns, _Step(observation, status.state == "held", context))
        self._propose()
        if status.stamp_ns not in self._statuses:
            self._statuses.add(status.stamp_ns, status)
        self._flush()

    def chunk(self, chunk: ActionChunk, source: ActionSource) -> None:
        """The policy that ``source`` describes proposed a chunk."""
        self._chunk, self._source = chunk, source
        self._propose()

    def executed(self, executed: ActionChunk) -> None:
        """The safety node let a row through (or held).

        A row of before breaks off nothing: that the clock began anew, observations and statuses have to say, too.
        """
        stamp_ns = executed.stamp_ns
        if clock_restarted(self._observed_ns, stamp_ns) and stamp_ns not in self._steps:
            self._aside.add(stamp_ns, executed)
            return
        self._executed.add(stamp_ns, executed)
        self._flush()

    def became(self, status: EpisodeStatus) -> None:
        """The episode went on, or ended."""
        self._look_at_clock(status.stamp_ns)
        newest = self._steps.newest_ns
        if not status.running and status.episode == self._episode and newest is not None:
            # A clock that ticks with the observations tells the time of the newest one: the end comes after that.
            status = replace(status, stamp_ns=max(status.stamp_ns, newest + 1))
        self._statuses.add(status.stamp_ns, status)
        self._flush()

    def _begin(self, status: EpisodeStatus) -> None:
        """Start the episode of ``status``."""
        self._break_off()
        self._chunk, self._count = None, 0
        self._episode, self._number = status.episode, self._first_sequence()

    def _look_at_clock(self, stamp_ns: int) -> None:
        if clock_restarted(self._observed_ns, stamp_ns):  # the same episode number would be another episode
            self._break_off()
            self._executed.clear()
            for row in self._aside.pop_through(stamp_ns + RESTART_NS):
                if row.stamp_ns >= stamp_ns - RESTART_NS:
                    self._executed.add(row.stamp_ns, row)
            self._aside.clear()
            self._observed_ns = stamp_ns

    def _break_off(self) -> None:
        """Close an episode that has not ended as truncated."""
        last = self._steps.newest_ns
        if last is not None and self._episode is not None:
            task, instruction = self._words
            stopped = EpisodeStatus(last + 1, "", self._episode, task, instruction, 0, "stopped", truncated=True)
            self._statuses.add(stopped.stamp_ns, stopped)
            self._flush()
        self._steps.clear()
        self._episode = None

    def _propose(self) -> None:
        """Give each waiting step its row of the newest chunk, which may replace that of the one before.

        A step that was executed already keeps what it was executed by.
        """
        chunk = self._chunk
        if chunk is None or chunk.episode != self._episode:
            return
        for stamp_ns in self._steps.stamps:
            step, row = self._steps.at(stamp_ns), chunk.row(stamp_ns)
            done = step is not None and step.proposed is not None and stamp_ns in self._executed
            if step is not None and not done and 0 <= row < len(chunk.actions):
                step.proposed, step.version, step.memory_ids = (
                    chunk.actions[row],
                    chunk.policy_version,
                    chunk.memory_ids,
                )
                step.source, step.chunk_ns = self._source, chunk.stamp_ns

    def _flush(self) -> None:
        while (stamp_ns := self._steps.oldest_ns) is not None:
            step, executed, after = self._steps.at(stamp_ns), self._executed.at(stamp_ns), self._after(stamp_ns)
            if executed is None or executed.episode != self._episode:
                if not self._executed_later(stamp_ns):
                    return
                self._steps.pop(stamp_ns)  # what was executed was not told, or the safety node did not know of it yet
                self._missed()
                continue
            if step is None or after is None:
                return
            self._steps.pop(stamp_ns)
            self._emit(self._transition(step, executed, after))
            self._count += 1

    def _executed_later(self, stamp_ns: int) -> bool:
        """Whether a later step of this episode was executed: they are told in order."""
        newest = self._executed.newest
        return newest is not None and newest.episode == self._episode and newest.stamp_ns > stamp_ns

    def _after(self, stamp_ns: int) -> EpisodeStatus | None:
        """Return the first status of this episode after the step at ``stamp_ns``."""
        at = self._statuses.after(stamp_ns)
        while at is not None:
            status = self._statuses.at(at)
            if status is not None and status.episode == self._episode:
                return status
            at = self._statuses.after(at)
        return None

    def _transition(self, step: _Step, executed: ActionChunk, after: EpisodeStatus) -> Transition:
        observation, (task, instruction) = step.observation, self._words
        row, success = executed.actions[0], after.oracle_success or after.state == "succeeded"
        over = success or (after.state == "failed" and not after.truncated)  # a final choice was wrong, say
        proposed = row if step.proposed is None else step.proposed  # a human may act before the policy did
        author = HOLD + CELL if step.held else executed.policy_version
        if step.held and executed.space == "ee_delta":
            row = np.append(np.zeros(len(row) - 1), row[-1])
        return Transition(
            robot_id="",
            boot_id="",
            sequence=0,
            episode=self._number,
            step=self._count,
            stamp_ns=observation.stamp_ns,
            task=task,
            instruction=instruction,
            images={name: frame.color for name, frame in observation.cameras.items()},
            state=proprioception(observation.joints, self._kinematics, self._robot),
            action=proposed.astype(np.float32),
            executed_action=row.astype(np.float32),
            reward=after.oracle_reward if task else float(success),
            reward_source=UNJUDGED if after.state == "stopped" and not success else "oracle" if task else "verdict",
            terminated=over,
            truncated=not over and (after.truncated or after.state == "stopped"),
            success=success,
            author=author,
            policy_version=step.version,
            memory_ids=step.memory_ids,
            source=replace(step.source, covered_cameras=covered_cameras(observation)),
            context=_filled(step.context),
            chunk_ns=step.chunk_ns,
        )


def _filled(context: MemoryTokens | None) -> MemoryTokens | None:
    """Return the entries of ``context``; None where there is none."""
    return context.filled() if context is not None and context.mask.any() else None


def covered_cameras(observation: Observation) -> tuple[str, ...]:
    """Return the cameras of ``observation`` whose image shows nothing: all pixels are next to alike."""
    return tuple(
        sorted(
            name
            for name, frame in observation.cameras.items()
            if float(frame.color[::4, ::4].std(axis=(0, 1)).max()) < COVERED_BELOW
        )
    )
