"""What recording adds to a control step: the same steps of a policy, with and without an outbox that keeps them.

As in the policy node: the step's thread hands over what happened, and another thread makes transitions of it, writes
them to the spool on disk, and makes them durable a few times a second. Blocks with and without take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.core.registry import make_kinematics
from engram.core.robot import PANDA_2F85
from engram.core.types import CameraFrame, EpisodeStatus, JointState, Observation, Pose, Transition
from engram.learning.experience.spool import Spool
from engram.learning.experience.spool_stream import Gone
from engram.policies import load_policy
from engram.policies.vla.chunking import follow
from engram.runtime.experience_outbox import ExperienceOutbox
from engram.runtime.health import Health
from engram.runtime.policy_runner import source_of
from engram.runtime.worker import Worker

STEP_NS, BLOCK, COMMIT_S = 100_000_000, 25, 0.2
"""Length of a control step [ns]; steps in a block; time between two commits [s]."""
PAUSE_S = 0.02
"""From one step to the next, in which the other thread works; on a robot it has more."""


class Listener:
    """A learner that has everything at once."""

    def __init__(self) -> None:
        self.outbox: ExperienceOutbox | None = None

    def listeners(self) -> int:
        """Return that there is one."""
        return 1

    def send(self, what: Transition | Gone) -> None:
        """Acknowledge a transition."""
        if isinstance(what, Transition) and self.outbox is not None:
            self.outbox.received(what.robot_id, what.boot_id, what.sequence)

    def close(self) -> None:
        """Need nothing more."""


class Robot:
    """A policy that sees recorded pictures, and an outbox beside it."""

    def __init__(self, policy: str, pictures: Sequence[Transition], folder: Path) -> None:
        self.policy, self._pictures, self._step = follow(load_policy(policy)), pictures, 0
        self.policy.reset("put the red cube in the bin")
        self.problems: list[object] = []
        thread: Worker[Callable[[], None]] = Worker(
            "experience", lambda job: job(), capacity=4096, on_error=self.problems.append
        )
        link, kinematics = Listener(), make_kinematics(PANDA_2F85)
        self.outbox = link.outbox = ExperienceOutbox(
            Spool(folder, "bench"), kinematics, PANDA_2F85, thread, link, Health(),
            lambda name, error: self.problems.append(f"{name}: {error}"),
        )  # fmt: skip
        self._source, self._committed = source_of(self.policy), 0.0

    def step(self, recording: bool) -> tuple[float, float]:
        """Take a control step; return how long it took, and how much of that handing over did [s]."""
        self._step += 1
        observation, status = self._observation(), self._status()
        at = [time.perf_counter()]
        if recording:
            self.outbox.observed(observation, status, status.instruction)
        at.append(time.perf_counter())
        self.policy.observe(observation)
        chunk = replace(self.policy.act(), episode=status.episode)
        at.append(time.perf_counter())
        if recording:
            self.outbox.chunk(chunk, self._source)
            self.outbox.executed(replace(chunk, actions=chunk.actions[:1], execute_steps=1))
        at.append(time.perf_counter())
        if recording and time.monotonic() - self._committed > COMMIT_S:
            self.outbox.send()
            self._committed = time.monotonic()
        return at[3] - at[0], at[3] - at[2] + at[1] - at[0]

    def _observation(self) -> Observation:
        stamp_ns, pose = self._step * STEP_NS, Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
        images = self._pictures[self._step % len(self._pictures)].images
        frames = {name: CameraFrame(name, stamp_ns, im, np.eye(3), pose) for name, im in images.items()}
        home = np.append(PANDA_2F85.home, PANDA_2F85.gripper_open)
        return Observation(stamp_ns, frames, JointState(stamp_ns, PANDA_2F85.joint_names, home, np.zeros(8)))

    def _status(self) -> EpisodeStatus:
        number = self._step // BLOCK
        return EpisodeStatus(self._step * STEP_NS, "bench", number, "reach", "reach the red cube", 0, "running")


def step_times(policy: str, pictures: Sequence[Transition], folder: Path, blocks: int) -> dict[bool, np.ndarray]:
    """Return the times [ms] of control steps (blocks, steps, 2) without and with recording: all, and handing over.

    Raises:
        RuntimeError: something was not recorded.
    """
    robot, found = Robot(policy, pictures, folder), {False: list[np.ndarray](), True: list[np.ndarray]()}
    for block in range(-2, 2 * blocks):  # the first two are not counted: caches, the first files
        times = []
        for _ in range(BLOCK):
            times.append(robot.step(bool(block % 2)))
            time.sleep(PAUSE_S)
        if block >= 0:
            found[bool(block % 2)].append(1e3 * np.array(times))
    robot.outbox.close()
    if robot.problems:
        raise RuntimeError(f"not recorded: {robot.problems[0]}")
    return {recording: np.array(times) for recording, times in found.items()}


def added_ms(times: dict[bool, np.ndarray], percentile: float, draws: int = 2000) -> tuple[float, float, float]:
    """Return by how much a percentile of the steps with recording is longer [ms], and its 95 % bootstrap interval.

    The interval draws blocks with their partners.
    """
    rng, blocks = np.random.default_rng(0), len(times[False])

    def more(rows: np.ndarray) -> float:
        recorded, plain = (np.percentile(times[one][rows, :, 0], percentile) for one in (True, False))
        return float(recorded - plain)

    low, high = np.percentile([more(rng.integers(blocks, size=blocks)) for _ in range(draws)], (2.5, 97.5))
    return more(np.arange(blocks)), float(low), float(high)
