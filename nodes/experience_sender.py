"""Sends experience: recorded steps are written to the spool on disk first, then sent until they are acknowledged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.contracts import Kinematics
from engram.core.errors import EngramError
from engram.core.robot import RobotConfig
from engram.core.types import ActionChunk, ActionSource, EpisodeStatus, Observation, Transition
from engram.learning.experience.spool import Spool, SpoolConfig
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
        self.spool = Spool(folder, node.config.robot_id, SpoolConfig(window=qos.EXPERIENCE.depth))
        self._recorder = ExperienceRecorder(kinematics, robot, self._keep, lambda: self.spool.next_sequence)
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
        self.spool.close()
        self._node.destroy_publisher(self._publisher)

    def _keep(self, transition: Transition) -> None:
        health = self._node.health
        try:
            if self.spool.add(transition) is not None:
                health.count("experience")
                return
            health.problem("experience", f"the spool is full ({len(self.spool)}); is a learner reachable?")
        except EngramError as error:
            self._node.report("experience", error)
        health.count("experience" + DROPS)  # its episode has a gap, so no learner takes it for a whole one

    def _send(self) -> None:
        self._look_for_progress()
        try:
            self.spool.commit()
        except EngramError as error:  # what is durable can still be sent
            self._node.report("experience", error)
        if not self._publisher.get_subscription_count():
            return
        transitions = self.spool.due(time.monotonic(), BATCH)
        for gone in self.spool.gone():
            self._publisher.publish(messages.gone_to_msg(gone))
        for transition in transitions:
            self._publisher.publish(messages.transition_to_msg(transition))

    def _look_for_progress(self) -> None:
        health, stalled = self._node.health, self.spool.stalled(time.monotonic())
        health.note("experience waiting", str(len(self.spool)))
        health.note("experience lost", str(self.spool.dropped))
        health.note("experience unreadable", str(self.spool.unreadable))
        if stalled:
            listens = "a" if self._publisher.get_subscription_count() else "no"
            health.problem("experience", f"{stalled}; {listens} learner listens")

    def _on_ack(self, msg: ExperienceAck) -> None:
        if msg.robot_id == self.spool.robot_id:
            self._thread.put(lambda: self._acknowledge(msg.boot_id, msg.sequence))

    def _acknowledge(self, boot_id: str, sequence: int) -> None:
        try:
            self.spool.acknowledge(sequence, time.monotonic(), boot_id)
        except EngramError as error:
            self._node.report("experience/ack", error)
