"""Requests and measurements that mean harm, and what a sequence of commands makes of the robot's limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engram.core.pipeline import CommandPipeline, Decision
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, ActionChunk, HumanAction, JointState

LIMITS = ("position", "velocity", "acceleration", "jerk")
Policy = Callable[[np.random.Generator, RobotConfig, int], tuple[str, np.ndarray]]
"""Draws the space and the rows (h, a) of a chunk at a step of an episode."""


def _anything(rng: np.random.Generator, robot: RobotConfig, step: int) -> tuple[str, np.ndarray]:
    """Joint targets anywhere, far beyond the joints' ranges too."""
    return "joint_position", rng.uniform(-8.0, 8.0, (4, len(robot.joint_names)))


def _extremes(rng: np.random.Generator, robot: RobotConfig, step: int) -> tuple[str, np.ndarray]:
    """One end of every joint's range, then the other, at a period drawn anew now and then."""
    period = int(rng.integers(1, 6))
    ends = np.array((robot.position_min, robot.position_max))
    gripper = np.array((robot.gripper_open, robot.gripper_closed))
    which = ((np.arange(4) + step) // period) % 2
    return "joint_position", np.column_stack((ends[which], gripper[which]))


def _bang_bang(rng: np.random.Generator, robot: RobotConfig, step: int) -> tuple[str, np.ndarray]:
    """Tool motions at full speed in directions that change at random."""
    return "ee_delta", rng.choice((-1.0, 1.0), (4, EE_ACTION_DIM))


def _full_speed(rng: np.random.Generator, robot: RobotConfig, step: int) -> tuple[str, np.ndarray]:
    """A valid request: one direction at full speed until the workspace or a joint ends it."""
    direction = np.random.default_rng(int(rng.integers(4))).choice((-1.0, 1.0), EE_ACTION_DIM)
    return "ee_delta", np.tile(direction, (4, 1))


def _huge(rng: np.random.Generator, robot: RobotConfig, step: int) -> tuple[str, np.ndarray]:
    """Finite numbers of any size."""
    return "joint_position", rng.choice((-1.0, 1.0), (4, len(robot.joint_names))) * 10.0 ** rng.uniform(-3, 300)


POLICIES: dict[str, Policy] = {
    "anything": _anything,
    "extremes": _extremes,
    "bang_bang": _bang_bang,
    "full_speed": _full_speed,
    "huge": _huge,
}
FAULTS = ("none", "jump", "frozen", "drift", "second_publisher", "noise", "swapped")
"""What is wrong with the measurements of an episode."""


@dataclass
class Servos:
    """An arm that follows its commands with a lag, or is blocked, and encoders that may say something else."""

    positions: np.ndarray  # (n,) true
    fault: str
    gain: float
    """Share of the way to the command that is gone in a step; 0 = the arm is blocked."""

    def follow(self, command: np.ndarray) -> None:
        """Move towards ``command`` (n,) for one control step."""
        self.positions = self.positions + self.gain * (command - self.positions)

    def measured(self, rng: np.random.Generator, step: int, frozen: np.ndarray) -> np.ndarray:
        """Return what the encoders say (n,)."""
        q = self.positions.copy()
        if self.fault == "jump" and rng.random() < 0.1:
            q += rng.choice((0.5, -1.5)) * (rng.random(len(q)) < 0.5)
        elif self.fault == "frozen" and step > 10:
            return frozen
        elif self.fault == "drift":
            q += 0.02 * step
        elif self.fault == "second_publisher" and step % 2:
            q = -q
        elif self.fault == "noise":
            q += rng.normal(0.0, 0.02, len(q))
        elif self.fault == "swapped" and step > 5:
            q[[0, 1]] = q[[1, 0]]
        return q


class HostileEpisode:
    """One episode in which policy, person and encoders do their worst.

    Args:
        pipeline: what is attacked.
        rng: draws everything.
        steps: control steps.
        careless: how probably a person releases a latched stop at a step.
    """

    def __init__(
        self, pipeline: CommandPipeline, rng: np.random.Generator, steps: int = 60, careless: float = 0.3
    ) -> None:
        self.pipeline, self.rng, self.steps, self.careless = pipeline, rng, steps, careless
        self.robot = pipeline.robot
        low = np.append(self.robot.position_min, min(self.robot.gripper_open, self.robot.gripper_closed))
        high = np.append(self.robot.position_max, max(self.robot.gripper_open, self.robot.gripper_closed))
        home = np.append(self.robot.home, self.robot.gripper_open)
        start = home if rng.random() < 0.5 else rng.uniform(low, high)
        gain = float(rng.choice((1.0, 1.0, 0.7, 0.0)))
        self.servos = Servos(start, str(rng.choice(FAULTS)), gain)
        self.policy = POLICIES[str(rng.choice(list(POLICIES)))]

    def run(
        self, timed: Callable[[Callable[[], Decision | None]], Decision | None] = lambda call: call()
    ) -> np.ndarray:
        """Return the commands (k, n); the first row is where the arm was held before the first of them.

        ``timed`` calls each decision and may measure it.
        """
        pipeline, rng = self.pipeline, self.rng
        pipeline.reset()
        dt_ns = round(pipeline.control_dt_s * 1e9)
        frozen, begin = self.servos.positions, int(rng.integers(1, 10**6)) * dt_ns
        commands: list[np.ndarray] = []
        for step in range(self.steps):
            stamp_ns = begin + step * dt_ns
            measured = self.servos.measured(rng, step, frozen)
            frozen = measured if step == 10 else frozen
            joints = JointState(stamp_ns, self.robot.joint_names, measured, np.zeros(len(measured)))
            chunk, human = self._chunk(stamp_ns, step), self._human(stamp_ns, step)
            if not commands:
                ends = self.pipeline.filter.hold(joints, "begin").positions
                commands.append(ends)
            decision = timed(lambda: pipeline.step(joints, chunk, human, self._age()))  # noqa: B023 - called at once
            decision = decision or pipeline.hold(joints)
            commands.append(decision.command.positions)
            self.servos.follow(decision.command.positions)
            if rng.random() < 0.02:
                pipeline.stop("somebody")
            if pipeline.filter.stopped and rng.random() < self.careless:
                pipeline.release()
        pipeline.release()
        return np.array(commands)

    def _age(self) -> float:
        return float(self.rng.choice((0.0, 0.0, 0.0, 0.0, 1.0, -1.0, np.nan)))

    def _chunk(self, stamp_ns: int, step: int) -> ActionChunk | None:
        rng = self.rng
        if rng.random() < 0.2:
            return None
        space, rows = self.policy(rng, self.robot, step)
        stamp_ns += int(rng.choice((0, 0, 0, -(10**8), 10**9, -(10**10), 10**17)))
        dt_s = float(rng.choice((self.pipeline.control_dt_s,) * 6 + (1e6, 1e-9)))
        if rng.random() < 0.05:
            rows = rows[:, :-1]
        return ActionChunk(stamp_ns, 1, space, rows, dt_s, len(rows), "hostile")

    def _human(self, stamp_ns: int, step: int) -> HumanAction | None:
        if self.rng.random() > 0.1:
            return None
        space, rows = self.policy(self.rng, self.robot, step)
        return HumanAction(int(self.rng.choice((0, stamp_ns, stamp_ns))), "mallory", True, space, rows[0])


def usage(commands: np.ndarray, robot: RobotConfig, dt_s: float) -> dict[str, float]:
    """Return how much of each limit a sequence of commands (k, n) uses, at most; more than 1 is a violation.

    Before the first command the arm rests there. Position is the distance from the middle of the range over half the
    range. The gripper counts for position and velocity.
    """
    low, high = (
        np.append(*ends)
        for ends in (
            (robot.position_min, min(robot.gripper_open, robot.gripper_closed)),
            (robot.position_max, max(robot.gripper_open, robot.gripper_closed)),
        )
    )
    whole = np.vstack((commands[:1], commands[:1], commands))
    velocity = np.diff(whole, axis=0) / dt_s
    acceleration = np.diff(velocity[:, :-1], axis=0) / dt_s
    jerk = np.diff(acceleration, axis=0) / dt_s
    speed = np.append(robot.velocity_max, robot.gripper_velocity_max)
    return {
        "position": float((np.abs(whole - (low + high) / 2) / ((high - low) / 2)).max()),
        "velocity": float((np.abs(velocity) / speed).max()),
        "acceleration": float((np.abs(acceleration) / robot.acceleration_max).max()),
        "jerk": float((np.abs(jerk) / robot.jerk_max).max()) if robot.jerk_max else 0.0,
    }
