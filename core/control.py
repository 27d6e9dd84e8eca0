"""From actions to joint targets, the same code in training, simulation and on the robot.

``EndEffectorController`` integrates relative tool motions into a target pose and solves for joints;
``ChunkExecutor`` decides which row of which chunk a control step executes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engram.core import quaternion as quat
from engram.core.arrays import checked
from engram.core.contracts import Kinematics
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.core.stamped_buffer import clock_restarted
from engram.core.types import EE_ACTION_DIM, ActionChunk, Hand, JointCommand, JointState, Pose


@dataclass(frozen=True)
class ControlConfig:
    """Scales and rates of relative end-effector control."""

    control_dt_s: float = 0.1
    """Length of one control step [s]."""
    position_scale_m: float = 0.05
    """Tool motion per step for an action of 1 [m]."""
    rotation_scale_rad: float = 0.25
    """Tool rotation per step for an action of 1 [rad]."""
    position_leash_m: float = 0.06
    """How far the target pose may be ahead of the measured tool [m], so that pushing against a wall does not
    accumulate."""
    rotation_leash_rad: float = 0.4
    """The same for rotation [rad]."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value > 0.0):
                raise InvalidInputError(f"ControlConfig.{name}: {value}, expected a number above 0")
        if not 0.01 <= self.control_dt_s <= 1.0:
            raise InvalidInputError(f"ControlConfig.control_dt_s: {self.control_dt_s}, expected 0.01 .. 1 s")


def proprioception(joints: JointState, kinematics: Kinematics, robot: RobotConfig) -> np.ndarray:
    """Return the policy's state vector (8 + n,) float32: tool position (3) m, tool quaternion wxyz (4), gripper
    fraction closed (1), positions of the n arm joints rad."""
    arm = joints.positions[: len(robot.arm_joints)]
    tool = kinematics.forward(arm)
    gripper = robot.gripper_fraction(joints.positions[-1])
    return np.concatenate((tool.position, tool.quaternion, [gripper], arm)).astype(np.float32)


def hand(joints: JointState, kinematics: Kinematics, robot: RobotConfig, agent: str = "robot0") -> Hand:
    """Return where the hand of ``agent`` is and how far it is closed."""
    tool = kinematics.forward(joints.positions[: len(robot.arm_joints)])
    return Hand(tool, robot.gripper_fraction(joints.positions[-1]), agent)


class EndEffectorController:
    """Relative tool actions -> joint targets, holding a target pose between steps."""

    def __init__(self, kinematics: Kinematics, robot: RobotConfig, config: ControlConfig | None = None) -> None:
        self.kinematics = kinematics
        self.robot = robot
        self.config = config or ControlConfig()
        self.target: Pose | None = None
        self._low, self._high = np.array(robot.workspace_min), np.array(robot.workspace_max)

    def reset(self) -> None:
        """Forget the target: the next action starts from the measured tool pose."""
        self.target = None

    def command(self, action: np.ndarray, joints: JointState) -> JointCommand:
        """Return the joint targets for one control step that begins at ``joints.stamp_ns``.

        Args:
            action: (7,) in [-1, 1]: translation and rotation vector in base_link axes, gripper -1 open, 1 closed.
            joints: measured state now.
        """
        action = self.understood(np.clip(checked("action", action, (EE_ACTION_DIM,)), -1.0, 1.0))
        arm = joints.positions[: len(self.robot.arm_joints)]
        measured = self.kinematics.forward(arm)
        # Actions of a held arm are not executed. They must not accumulate into a jump on release.
        self.target = measured if joints.held else self._advance(self.target or measured, measured, action)
        positions = self.kinematics.inverse(self.target, arm)
        gripper = self.robot.gripper_position((action[6] + 1.0) / 2.0)
        return JointCommand(
            joints.stamp_ns, self.robot.joint_names, np.append(positions, gripper), self.config.control_dt_s
        )

    def follow(self, command: JointCommand) -> None:
        """Begin the next motion where ``command`` leads: the filter made something else of the last one.

        Motions that a limit took away are lost. They do not add up to a target that the arm reaches only when the
        policy wants to be somewhere else (anti-windup).
        """
        self.target = self.kinematics.forward(command.positions[: len(self.robot.arm_joints)])

    def understood(self, action: np.ndarray) -> np.ndarray:
        """Return the action (7,) that the robot makes of ``action`` (7,): the same, unless it is calibrated wrongly."""
        return action

    def meant(self, motion: np.ndarray) -> np.ndarray:
        """Return the action's leading components (6,) that :meth:`understood` makes ``motion`` (6,) of."""
        return motion

    def motion(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return the motion (6,) of the tool from arm joints ``before`` to ``after`` (n,) rad, in units of an action:
        translation and rotation vector in base_link axes."""
        here, there = self.kinematics.forward(before), self.kinematics.forward(after)
        turned = quat.multiply(_unit(there), quat.inverse(_unit(here)))
        moved = (there.position - here.position) / self.config.position_scale_m
        return np.concatenate((moved, np.array(quat.rotation_vector(turned)) / self.config.rotation_scale_rad))

    def _advance(self, target: Pose, measured: Pose, action: np.ndarray) -> Pose:
        """Move ``target`` by the action, then keep it near the measured tool and inside the workspace."""
        config = self.config
        position = target.position + action[:3] * config.position_scale_m
        lead = position - measured.position
        position = measured.position + lead * min(1.0, config.position_leash_m / max(_length(lead), 1e-9))
        position = np.minimum(np.maximum(position, self._low), self._high)
        here = _unit(measured)
        turn = quat.from_rotation_vector(tuple((action[3:6] * config.rotation_scale_rad).tolist()))
        turned = quat.multiply(turn, _unit(target))
        ahead = np.array(quat.rotation_vector(quat.multiply(turned, quat.inverse(here))))
        ahead *= min(1.0, config.rotation_leash_rad / max(_length(ahead), 1e-9))
        leashed = quat.multiply(quat.from_rotation_vector(tuple(ahead.tolist())), here)
        return Pose(position, np.array(quat.canonical(leashed)))


def _unit(pose: Pose) -> quat.Quaternion:
    return quat.unit(tuple(pose.quaternion.tolist()))


def _length(vector: np.ndarray) -> float:
    return math.sqrt(vector.dot(vector))


class ChunkExecutor:
    """Picks the action for each control step from the newest chunk, by time.

    A chunk's row i belongs to the step at ``chunk.stamp_ns + i * dt``. With ``lockstep`` a step past
    ``execute_steps`` waits for the next chunk (None); in free running the remaining rows bridge a late policy, and
    past the horizon there is nothing to execute (None: the caller holds).

    When a chunk arrives late, its first rows are for steps that are already over. Its motions start from where the tool
    was at ``stamp_ns``. The difference between the motion of those rows and the motion that was executed instead is
    therefore added to the following steps, as far as actions of at most 1 allow. Steps that a person drove do not
    count, and a chunk without motion gets no correction. Rotations are added as vectors, which is accurate for the
    small rotations of a few steps.
    """

    def __init__(self, *, lockstep: bool) -> None:
        self.lockstep = lockstep
        self.reset()

    def reset(self) -> None:
        """Forget the chunk, and what was executed."""
        self.chunk: ActionChunk | None = None
        self._overruled_ns: int | None = None  # newest step that a person drove
        self._owed = np.zeros(_MOTION)
        self._done: dict[int, np.ndarray | None] = {}  # by stamp, in free running: what was executed, None = held

    def accept(self, chunk: ActionChunk) -> bool:
        """Take a chunk; tell whether it is taken.

        One that is older than the current, or was planned before a person last drove, is not, unless the clock began
        anew.
        """
        overruled_ns = self._overruled_ns
        if overruled_ns is not None and chunk.stamp_ns <= overruled_ns:
            if not clock_restarted(overruled_ns, chunk.stamp_ns):
                return False
            self.reset()
        if self.chunk is not None and chunk.stamp_ns < self.chunk.stamp_ns:
            if not clock_restarted(self.chunk.stamp_ns, chunk.stamp_ns):
                return False
            self.reset()
        if chunk is not self.chunk:
            self.chunk, self._owed = chunk, self._missed(chunk)
        return True

    def action(self, stamp_ns: int) -> np.ndarray | None:
        """Return the action (dim,) for the control step at ``stamp_ns``, or None when there is none."""
        if self.lockstep:
            return self._row(stamp_ns)
        if self._done.get(stamp_ns) is None:  # the answer for a step never changes
            if self._driven_by_others(stamp_ns):
                self._owed[:] = 0.0
            self._note(stamp_ns, self._with_owed(self._row(stamp_ns)))
        return self._done[stamp_ns]

    def overruled(self, stamp_ns: int) -> None:
        """Note that a person drove the step at ``stamp_ns``: what was planned until then is not executed any more."""
        self._overruled_ns = stamp_ns
        if self.chunk is not None and self.chunk.stamp_ns <= stamp_ns:
            self.chunk = None
            self._owed[:] = 0.0

    def held(self, stamp_ns: int) -> None:
        """Note that the robot held at the step at ``stamp_ns``; pending corrections are dropped."""
        self._owed[:] = 0.0
        self._note(stamp_ns, None)

    def _note(self, stamp_ns: int, action: np.ndarray | None) -> None:
        self._done[stamp_ns] = action
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _row(self, stamp_ns: int) -> np.ndarray | None:
        if self.chunk is None:
            return None
        index = self.chunk.row(stamp_ns)
        limit = self.chunk.execute_steps if self.lockstep else len(self.chunk.actions)
        return self.chunk.actions[index] if 0 <= index < limit else None

    def _driven_by_others(self, stamp_ns: int) -> bool:
        """Tell whether somebody else drove since the last step that was asked for."""
        if self.chunk is None or not self._done:
            return False
        return self.chunk.row(stamp_ns) - self.chunk.row(next(reversed(self._done))) > 1

    def _with_owed(self, row: np.ndarray | None) -> np.ndarray | None:
        """Return ``row`` plus as much of the pending correction as fits, and reduce the correction by it."""
        if row is None or not self._owed.any():
            return row
        motion = np.clip(row[:_MOTION] + self._owed, -1.0, 1.0)
        self._owed -= motion - row[:_MOTION]
        return np.concatenate((motion, row[_MOTION:]))

    def _missed(self, chunk: ActionChunk) -> np.ndarray:
        """Return the motion (6,) of the rows of ``chunk`` that are over, minus the motion executed in those steps."""
        over = {chunk.row(stamp_ns): action for stamp_ns, action in self._done.items() if stamp_ns >= chunk.stamp_ns}
        known = list(over) == list(range(len(over)))  # else somebody else drove in between
        if not over or not known or chunk.space != "ee_delta" or not chunk.actions[:, :_MOTION].any():
            return np.zeros(_MOTION)
        done = sum((action[:_MOTION] for action in over.values() if action is not None), np.zeros(_MOTION))
        return np.asarray(chunk.actions[: len(over), :_MOTION].sum(axis=0) - done)


_MOTION = 6
"""The leading components of an ``ee_delta`` action: translation and rotation."""
_REMEMBERED = 64
"""Control steps whose actions are kept: more than any chunk is late."""
