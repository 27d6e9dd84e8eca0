"""Sends experience: recorded steps are written to the spool on disk first, then sent until they are acknowledged.

No ROS. One worker thread owns recorder and spool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from engram.core.contracts import Kinematics
from engram.core.errors import EngramError, StoreError, StoreLockedError
from engram.core.robot import RobotConfig
from engram.core.types import ActionChunk, ActionSource, EpisodeStatus, MemoryTokens, Observation, Transition
from engram.learning.experience.spool import Spool, SpoolConfig, open_spool
from engram.learning.experience.spool_stream import Gone
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.health import DROPS, ERROR, Health
from engram.runtime.worker import Worker

BATCH = 16
"""Most transitions sent at once."""


class ExperienceLink(Protocol):
    """The way to the learners."""

    def listeners(self) -> int:
        """Return how many learners listen."""

    def send(self, what: Transition | Gone) -> None:
        """Send a transition, or word of what is gone from the spool."""

    def close(self) -> None:
        """Send nothing any more."""


UNSEEN = ", steps whose execution nobody told"
"""Ends the counter of steps that are not recorded: a message of the safety node was lost, or it was not ready yet."""


def open_spool_or_report(folder: Path, robot_id: str, config: SpoolConfig, health: Health) -> Spool | None:
    """Return the spool in ``folder``; None where the disk refuses one: the robot works on, and nothing is recorded.

    What is wrong is a lasting problem in ``health``.

    Raises:
        StoreLockedError: another process writes there; it may drive the same robot.
    """
    try:
        spool, why = open_spool(folder, robot_id, config)
    except StoreLockedError:
        raise
    except StoreError as error:
        health.problem("spool", f"nothing is recorded: {error}", ERROR, lasting=True)
        return None
    health.clear("spool")
    if why:
        health.problem("spool set aside", why, ERROR, lasting=True)
    return spool


class ExperienceOutbox:
    """Keeps what happens at each control step until a learner has it. Every method returns at once.

    Args:
        spool: keeps the transitions, on disk.
        kinematics: of ``robot``, whose steps are recorded.
        thread: owns the spool from now on; it calls what it is given.
        link: the way to the learners.
        health: where it is shown how much waits.
        report: takes the name of a problem and what went wrong.
        clock: tells the time that waiting is measured in [s].
    """

    def __init__(
        self,
        spool: Spool,
        kinematics: Kinematics,
        robot: RobotConfig,
        thread: Worker[Callable[[], None]],
        link: ExperienceLink,
        health: Health,
        report: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool = spool
        self._recorder = ExperienceRecorder(
            kinematics, robot, self._keep, lambda: spool.next_sequence, lambda: health.count("experience" + UNSEEN)
        )
        self._thread, self._link, self._health = thread, link, health
        self._report, self._clock = report, clock

    def observed(
        self,
        observation: Observation,
        status: EpisodeStatus,
        instruction: str,
        context: MemoryTokens | None = None,
    ) -> None:
        """A control step began; ``context``: what a policy that acts on memory/context reads of it."""
        self._thread.put(lambda: self._recorder.observed(observation, status, instruction, context))

    def chunk(self, chunk: ActionChunk, source: ActionSource) -> None:
        """The policy that ``source`` describes proposed a chunk; call it before the chunk is published."""
        self._thread.put(lambda: self._recorder.chunk(chunk, source))

    def executed(self, executed: ActionChunk) -> None:
        """The safety node let a row through."""
        self._thread.put(lambda: self._recorder.executed(executed))

    def became(self, status: EpisodeStatus) -> None:
        """The episode went on, or ended."""
        self._thread.put(lambda: self._recorder.became(status))

    def send(self) -> None:
        """Make what was recorded durable, and send what is due; call it a few times a second."""
        self._thread.put(self._send)

    def received(self, robot_id: str, boot_id: str, sequence: int) -> None:
        """A learner has 1..``sequence`` of stream ``boot_id`` on disk, if ``robot_id`` is this robot."""
        if robot_id == self.spool.robot_id:
            self._thread.put(lambda: self._acknowledge(boot_id, sequence))

    def close(self) -> None:
        """Write what is recorded and let go of the spool."""
        self._thread.stop(30.0)
        try:
            self.spool.close()
        except EngramError as error:  # a full disk: the node stops all the same
            self._report("experience", error)
        self._link.close()

    # -- in the worker's thread ------------------------------------------------------------------------------------

    def _keep(self, transition: Transition) -> None:
        try:
            if self.spool.add(transition) is not None:
                self._health.count("experience")
                return
            self._health.problem("experience", f"the spool is {self.spool.full()}; is a learner reachable?")
        except EngramError as error:
            self._report("experience", error)
        self._health.count("experience" + DROPS)  # its episode has a gap, so no learner takes it for a whole one

    def _send(self) -> None:
        self._look_for_progress()
        try:
            self.spool.commit()
        except EngramError as error:  # what is durable can still be sent
            self._report("experience", error)
        if not self._link.listeners():
            return
        transitions = self.spool.due(self._clock(), BATCH)
        for gone in self.spool.gone():
            self._link.send(gone)
        for transition in transitions:
            self._link.send(transition)

    def _look_for_progress(self) -> None:
        stalled = self.spool.stalled(self._clock())
        self._health.note("experience waiting", str(len(self.spool)))
        self._health.note("experience lost", str(self.spool.dropped))
        self._health.note("experience unreadable", str(self.spool.unreadable))
        if stalled:
            listens = "a" if self._link.listeners() else "no"
            self._health.problem("experience", f"{stalled}; {listens} learner listens")

    def _acknowledge(self, boot_id: str, sequence: int) -> None:
        try:
            self.spool.acknowledge(sequence, self._clock(), boot_id)
        except EngramError as error:
            self._report("experience/ack", error)
