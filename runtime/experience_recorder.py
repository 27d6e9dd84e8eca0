"""What happened, step by step, as transitions for the learner. No ROS in here; one thread calls it.

A step is complete when three things are known: what was proposed, what was let through, and what came of it (the
status of the next step). They arrive over different topics, in any order: the safety node may have executed a step
before its pictures have been put together here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.control import proprioception
from engram.core.pipeline import HUMAN
from engram.core.robot import RobotConfig
from engram.core.types import NOBODY, ActionChunk, ActionSource, EpisodeStatus, Observation, Transition


@dataclass
class _Step:
    observation: Observation
    held: bool  # the cell held the arm: whatever was let through moved nothing
    proposed: np.ndarray | None = None  # (a,)
    memory_ids: tuple[str, ...] = field(default=())
    version: str = ""
    source: ActionSource = field(default_factory=lambda: ActionSource(NOBODY))


COVERED_BELOW = 3.0
"""A camera whose pixels vary by less than this (standard deviation, grey levels of 255) shows nothing: it is covered,
in the dark or without a signal. In simulation a camera varies by more than 30, with a cap on it by less than 2."""
KEPT = 256
"""Executed actions and statuses kept while they wait for their observation."""


class ExperienceRecorder:
    """Joins observations, chunks, executed actions and statuses into transitions, in order.

    Args:
        emit: takes each complete transition; its ids and sequence are the spool's to give.
        first_sequence: the number that the next transition will get; it names an episode uniquely within a spool.
    """

    def __init__(
        self,
        kinematics: Kinematics,
        robot: RobotConfig,
        emit: Callable[[Transition], None],
        first_sequence: Callable[[], int],
    ) -> None:
        self._kinematics, self._robot = kinematics, robot
        self._emit, self._first_sequence = emit, first_sequence
        self._steps: dict[int, _Step] = {}  # stamp -> step not yet emitted, in order
        self._executed: dict[tuple[int, int], ActionChunk] = {}  # (episode, stamp) -> one row; version = author
        self._statuses: dict[tuple[int, int], EpisodeStatus] = {}  # (episode, stamp)
        self._chunk: ActionChunk | None = None
        self._source = ActionSource()  # of the newest chunk
        self._episode: int | None = None
        self._number = 0  # of the episode, for the learner
        self._count = 0  # steps emitted in this episode
        self._words = ("", "")  # task, instruction

    def observed(self, observation: Observation, status: EpisodeStatus, instruction: str) -> None:
        """A control step began."""
        if status.episode != self._episode:
            self._begin(status)
        self._words = (status.task, instruction)
        self._steps[observation.stamp_ns] = _Step(observation, status.state == "held")
        self._propose()
        self._statuses.setdefault((status.episode, status.stamp_ns), status)
        self._flush()

    def chunk(self, chunk: ActionChunk, source: ActionSource) -> None:
        """The policy that ``source`` describes proposed a chunk."""
        self._chunk, self._source = chunk, source
        self._propose()

    def executed(self, executed: ActionChunk) -> None:
        """The safety node let a row through (or held)."""
        _keep(self._executed, (executed.episode, executed.stamp_ns), executed)
        self._flush()

    def became(self, status: EpisodeStatus) -> None:
        """The episode went on, or ended."""
        _keep(self._statuses, (status.episode, status.stamp_ns), status)
        self._flush()

    def _begin(self, status: EpisodeStatus) -> None:
        """Close an episode that was broken off as truncated, and start the next."""
        last = next(reversed(self._steps), None)
        if last is not None and self._episode is not None:
            task, instruction = self._words
            self.became(EpisodeStatus(last + 1, "", self._episode, task, instruction, 0, "stopped", truncated=True))
        self._steps.clear()
        self._chunk, self._count = None, 0
        self._episode, self._number = status.episode, self._first_sequence()

    def _propose(self) -> None:
        """Give each waiting step its row of the newest chunk."""
        chunk = self._chunk
        if chunk is None or chunk.episode != self._episode:
            return
        for stamp_ns, step in self._steps.items():
            row = chunk.row(stamp_ns)
            if step.proposed is None and 0 <= row < len(chunk.actions):
                step.proposed, step.version, step.memory_ids = (
                    chunk.actions[row],
                    chunk.policy_version,
                    chunk.memory_ids,
                )
                step.source = self._source

    def _flush(self) -> None:
        while self._steps and self._episode is not None:
            stamp_ns, step = next(iter(self._steps.items()))
            executed, after = self._executed.get((self._episode, stamp_ns)), self._after(stamp_ns)
            if executed is None or after is None:
                return
            del self._steps[stamp_ns]
            self._emit(self._transition(step, executed, after))
            self._count += 1

    def _after(self, stamp_ns: int) -> EpisodeStatus | None:
        """Return the first status of this episode after the step at ``stamp_ns``."""
        later = [stamp for episode, stamp in self._statuses if episode == self._episode and stamp > stamp_ns]
        return self._statuses[self._episode, min(later)] if later and self._episode is not None else None

    def _transition(self, step: _Step, executed: ActionChunk, after: EpisodeStatus) -> Transition:
        observation, (task, instruction) = step.observation, self._words
        row = executed.actions[0]
        proposed = row if step.proposed is None else step.proposed  # a human may act before the policy did
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
            reward=after.oracle_reward,
            reward_source="oracle" if task else "sparse",
            terminated=after.oracle_success or after.state == "succeeded",
            truncated=(after.truncated or after.state in ("failed", "stopped")) and not after.oracle_success,
            success=after.oracle_success or after.state == "succeeded",
            intervention=executed.policy_version.startswith(HUMAN),
            policy_version=step.version,
            memory_ids=step.memory_ids,
            source=replace(step.source, covered_cameras=covered_cameras(observation)),
        )


def covered_cameras(observation: Observation) -> tuple[str, ...]:
    """Return the cameras of ``observation`` whose image shows nothing: all pixels are next to alike."""
    return tuple(
        sorted(
            name
            for name, frame in observation.cameras.items()
            if float(frame.color[::4, ::4].std(axis=(0, 1)).max()) < COVERED_BELOW
        )
    )


def _keep[T](waiting: dict[tuple[int, int], T], key: tuple[int, int], value: T) -> None:
    waiting[key] = value
    while len(waiting) > KEPT:
        del waiting[next(iter(waiting))]
