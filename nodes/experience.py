"""What happened, step by step, as transitions for the learner. No ROS in here; one thread calls it.

A step is complete when three things are known: what was proposed, what was let through, and what came of it (the
status of the next step). They arrive in that causal order, but over different topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.control import proprioception
from engram.core.robot import RobotConfig
from engram.core.types import ActionChunk, Observation, Transition
from engram.nodes.messages import EpisodeStatus


@dataclass
class _Step:
    observation: Observation
    proposed: np.ndarray | None = None  # (a,)
    executed: ActionChunk | None = None  # one row; its policy_version names the author
    after: EpisodeStatus | None = None  # the next step's status
    memory_ids: tuple[str, ...] = field(default=())
    version: str = ""


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
        self._chunk: ActionChunk | None = None
        self._episode: int | None = None
        self._number = 0  # of the episode, for the learner
        self._count = 0  # steps emitted in this episode
        self._words = ("", "")  # task, instruction

    def observed(self, observation: Observation, status: EpisodeStatus, instruction: str) -> None:
        """A control step began."""
        if status.episode != self._episode:
            self._begin(status)
        self._words = (status.task, instruction)
        self.became(status)
        self._steps[observation.stamp_ns] = _Step(observation)
        self._propose()

    def chunk(self, chunk: ActionChunk) -> None:
        """The policy proposed a chunk."""
        self._chunk = chunk
        self._propose()

    def executed(self, executed: ActionChunk) -> None:
        """The safety node let a row through (or held)."""
        step = self._steps.get(executed.stamp_ns)
        if step is not None and executed.episode == self._episode:
            step.executed = executed
            self._flush()

    def became(self, status: EpisodeStatus) -> None:
        """The episode went on, or ended."""
        if status.episode != self._episode:
            return
        for stamp_ns, step in self._steps.items():
            if stamp_ns < status.stamp_ns and step.after is None:
                step.after = status
        self._flush()

    def _begin(self, status: EpisodeStatus) -> None:
        """Close an episode that was broken off as truncated, and start the next."""
        last = next(reversed(self._steps.values()), None)
        if last is not None and self._episode is not None and last.after is None and last.executed is not None:
            task, instruction = self._words
            ended = EpisodeStatus(
                last.observation.stamp_ns + 1, "", self._episode, task, instruction, 0, "stopped", truncated=True
            )
            self.became(ended)
        self._steps.clear()
        self._chunk, self._count = None, 0
        self._episode, self._number = status.episode, self._first_sequence()

    def _propose(self) -> None:
        """Give each waiting step its row of the newest chunk."""
        chunk = self._chunk
        if chunk is None or chunk.episode != self._episode:
            return
        for stamp_ns, step in self._steps.items():
            row = round((stamp_ns - chunk.stamp_ns) / (chunk.dt_s * 1e9))
            if step.proposed is None and 0 <= row < len(chunk.actions):
                step.proposed, step.version, step.memory_ids = (
                    chunk.actions[row],
                    chunk.policy_version,
                    chunk.memory_ids,
                )

    def _flush(self) -> None:
        while self._steps:
            stamp_ns, step = next(iter(self._steps.items()))
            if step.executed is None or step.after is None:
                return
            del self._steps[stamp_ns]
            self._emit(self._transition(step, step.executed, step.after))
            self._count += 1

    def _transition(self, step: _Step, executed: ActionChunk, after: EpisodeStatus) -> Transition:
        observation, (task, instruction) = step.observation, self._words
        row = executed.actions[0]
        proposed = row if step.proposed is None else step.proposed  # a human may act before the policy did
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
            intervention=executed.policy_version.startswith("human:"),
            policy_version=step.version,
            memory_ids=step.memory_ids,
        )
