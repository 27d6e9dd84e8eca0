"""Sends experience: recorded steps are written to the spool on disk first, then sent until they are acknowledged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.contracts import Kinematics
from engram.core.errors import EngramError
from engram.core.robot import RobotConfig
from engram.core.types import ActionChunk, ActionSource, EpisodeStatus, Observation, Transition
from engram.learning.experience.spool import Spool
from engram.nodes import messages, qos
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.health import DROPS
from engram_interfaces.msg import Experience, ExperienceAck

if TYPE_CHECKING:
    from engram.nodes.base import EngramNode

BATCH = 16
"""Most transitions sent at once."""
PERIOD_S = 0.2
"""Time between two commits of the spool, and two batches [s]."""


class ExperienceSender:
    """Owns recorder and spool in one worker thread of ``node``; every method returns at once."""

    def __init__(self, node: EngramNode, folder: Path, kinematics: Kinematics, robot: RobotConfig) -> None:
        self._node = node
        self.spool = Spool(folder, node.config.robot_id)
        self._recorder = ExperienceRecorder(kinematics, robot, self._keep, self._next_sequence)
        self._added = self.spool.durable
        self._publisher = node.create_publisher(Experience, "experience", qos.EXPERIENCE)
        self._thread = node.worker("experience", lambda job: job(), capacity=4096)
        node.subscribe(ExperienceAck, "experience/ack", self._on_ack, qos.EXPERIENCE)
        node.every(PERIOD_S, lambda: self._thread.put(self._send), "experience")

    def observed(self, observation: Observation, status: EpisodeStatus, instruction: str) -> None:
        """A control step began."""
        self._thread.put(lambda: self._recorder.observed(observation, status, instruction))

    def chunk(self, chunk: ActionChunk, source: ActionSource) -> None:
        """The policy that ``source`` describes proposed a chunk; call it before the chunk is published."""
        self._thread.put(lambda: self._recorder.chunk(chunk, source))

    def executed(self, executed: ActionChunk) -> None:
        """The safety node let a row through."""
        self._thread.put(lambda: self._recorder.executed(executed))

    def became(self, status: EpisodeStatus) -> None:
        """The episode went on, or ended."""
        self._thread.put(lambda: self._recorder.became(status))

    def close(self) -> None:
        """Write what is recorded and let go of the spool."""
        self._thread.stop(30.0)
        self.spool.commit()
        self.spool.close()
        self._node.destroy_publisher(self._publisher)

    def _next_sequence(self) -> int:
        return self._added + 1

    def _keep(self, transition: Transition) -> None:
        numbered = self.spool.add(transition)
        if numbered is None:
            self._node.health.count("experience" + DROPS)
            self._node.health.problem("experience", f"the spool is full ({len(self.spool)}); is a learner reachable?")
            return
        self._added = numbered.sequence
        self._node.health.count("experience")

    def _send(self) -> None:
        self.spool.commit()
        if not self._publisher.get_subscription_count():
            return
        for transition in self.spool.due(time.monotonic(), BATCH):
            self._publisher.publish(messages.transition_to_msg(transition))

    def _on_ack(self, msg: ExperienceAck) -> None:
        if (msg.robot_id, msg.boot_id) == (self.spool.robot_id, self.spool.boot_id):
            self._thread.put(lambda: self._acknowledge(msg.sequence))

    def _acknowledge(self, sequence: int) -> None:
        try:
            self.spool.acknowledge(sequence, time.monotonic())
        except EngramError as error:
            self._node.report("experience/ack", error)
