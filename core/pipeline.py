"""From an action to a safe joint command: the one decision that the safety node and the in-process loop both make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.arrays import checked
from engram.core.contracts import Kinematics
from engram.core.control import ChunkExecutor, ControlConfig, EndEffectorController
from engram.core.errors import InvalidInputError, NonFiniteError
from engram.core.robot import RobotConfig
from engram.core.safety import SafetyConfig, SafetyFilter
from engram.core.types import EE_ACTION_DIM, ActionChunk, HumanAction, JointCommand, JointState
from engram.core.types.basics import set_fields

HOLD, HUMAN = "hold:", "human:"
"""How the author of an executed action begins when it is not a policy's version."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the robot is told for one control step, and whose action that is."""

    command: JointCommand
    author: str
    """The policy's version, ``human:<who>``, or ``hold:<reason>``."""
    row: np.ndarray
    """(a,) the action that was let through; for a hold, the relative motion that keeps tool and gripper in place."""
    space: str
    """Action space of ``row``."""

    def __post_init__(self) -> None:
        set_fields(self, row=checked("Decision.row", self.row, (None,)))

    def as_chunk(self, episode: int) -> ActionChunk:
        """Return it as a chunk of one row whose ``policy_version`` is the author: the form in which it travels."""
        command = self.command
        return ActionChunk(command.stamp_ns, episode, self.space, self.row[None], command.duration_s, 1, self.author)


@dataclass(frozen=True, slots=True)
class _Wish:
    """An action (a,) that somebody wants executed; it may be misshapen."""

    action: np.ndarray
    space: str
    author: str


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A chunk that was not fit to run: the steps in [``begin_ns``, ``end_ns``) hold with ``reason``."""

    begin_ns: int
    end_ns: int
    reason: str


class CommandPipeline:
    """Action chunk -> controller -> safety filter, one :meth:`step` for each control step.

    A human's action goes before the policy's. A latched stop goes before both.
    """

    def __init__(
        self,
        kinematics: Kinematics,
        robot: RobotConfig,
        *,
        lockstep: bool = True,
        control: ControlConfig | None = None,
        safety: SafetyConfig | None = None,
    ) -> None:
        self.robot = robot
        self.executor = ChunkExecutor(lockstep=lockstep)
        self.controller = EndEffectorController(kinematics, robot, control)
        self.filter = SafetyFilter(robot, kinematics, safety)
        self._refusal: _Refusal | None = None

    @property
    def control_dt_s(self) -> float:
        """Length of one control step [s]."""
        return self.controller.config.control_dt_s

    def reset(self) -> None:
        """Begin an episode: forget chunk, target and previous command; a latched stop stays latched.

        A refused chunk is not forgotten: it may be the first of the new episode.
        """
        self.executor.reset()
        self.controller.reset()
        self.filter.forget()

    def step(
        self,
        joints: JointState,
        chunk: ActionChunk | None = None,
        human: HumanAction | None = None,
        age_s: float = 0.0,
    ) -> Decision | None:
        """Decide the control step at ``joints.stamp_ns``; None in lock-step while a new chunk is due first.

        Args:
            joints: measured now.
            chunk: the newest of this episode; one that is older than the last, or the same, changes nothing.
            human: who drives instead of the policy while ``active``.
            age_s: how long ago ``joints`` were measured [s]: too old and the robot holds.
        """
        if joints.names != self.filter.robot.joint_names:
            expected = ", ".join(self.filter.robot.joint_names)
            raise InvalidInputError(f"joints {', '.join(joints.names)}, expected in this order: {expected}")
        if chunk is not None:
            self.executor.accept(chunk)
        if self.filter.stopped:
            return self.hold(joints)
        wish = self._wish(joints.stamp_ns, human)
        if wish is not None:
            return self._let_through(wish, joints, age_s)
        if self._refusal is not None and self._refusal.begin_ns <= joints.stamp_ns < self._refusal.end_ns:
            return self.hold(joints, self._refusal.reason)
        return None if self.executor.lockstep else self.hold(joints)

    def chunk_due(self, stamp_ns: int) -> bool:
        """Tell whether the policy is to be asked at the control step at ``stamp_ns``, whoever drives it.

        It is where no chunk is there, or the newest is executed as far as it says; a stopped robot asks for none.
        """
        chunk = self.executor.chunk
        return not self.filter.stopped and (chunk is None or chunk.spent(stamp_ns))

    def step_action(self, joints: JointState, action: np.ndarray) -> Decision:
        """Decide a control step for which the caller has the ``ee_delta`` action (7,) itself: an expert, Gymnasium.

        An action that is not finite or misshapen becomes a hold.
        """
        try:
            rows = np.asarray(action, np.float64)[None]
            chunk = ActionChunk(joints.stamp_ns, 0, "ee_delta", rows, self.control_dt_s, 1, "action")
        except (InvalidInputError, ValueError, TypeError):  # NumPy raises the latter two for words and ragged lists
            return self.hold(joints, "non_finite")
        return self.step(joints, chunk) or self.hold(joints)

    def hold(self, joints: JointState, reason: str = "no_command") -> Decision:
        """Decide that the robot stays where it is; a latched stop is the reason if there is one."""
        return self._held(
            self.filter.hold(joints, "stopped" if self.filter.stopped else reason, self.control_dt_s), joints
        )

    def refuse(self, stamp_ns: int, execute_steps: int, error: Exception) -> None:
        """Take note that the chunk at ``stamp_ns`` [ns] is not fit to run because of ``error``.

        The ``execute_steps`` control steps that it was to drive are held at once, rather than waited for.
        """
        reason = "non_finite" if isinstance(error, NonFiniteError) else "invalid_chunk"
        covered_ns = round(max(1, execute_steps) * self.control_dt_s * 1e9)
        self._refusal = _Refusal(stamp_ns, stamp_ns + covered_ns, reason)

    def stop(self, reason: str) -> None:
        """Latch a stop: every step holds until :meth:`release`."""
        self.filter.stop(reason)

    def release(self) -> str:
        """Release a latched stop and return its reason; empty = there was none. Motion begins where the robot is."""
        reason = self.filter.stopped
        self.filter.reset()
        self.controller.reset()
        return reason

    def _wish(self, stamp_ns: int, human: HumanAction | None) -> _Wish | None:
        """Return whose action is due: the human's, else the newest chunk's row for this step."""
        if human is not None and human.active:
            return _Wish(human.action, human.space, HUMAN + human.who)
        action, chunk = self.executor.action(stamp_ns), self.executor.chunk
        return None if action is None or chunk is None else _Wish(action, chunk.space, chunk.policy_version)

    def _let_through(self, wish: _Wish, joints: JointState, age_s: float) -> Decision:
        command = self.filter.filter(self._targets(wish, joints), joints, self.control_dt_s, age_s)
        if command.held:
            return self._held(command, joints)
        row = np.clip(wish.action, -1.0, 1.0) if wish.space == "ee_delta" else wish.action
        return Decision(command, wish.author, row, wish.space)

    def _targets(self, wish: _Wish, joints: JointState) -> np.ndarray:
        """Return the joint targets (n,) that ``wish`` asks for; not finite where it is not fit to run."""
        if wish.space == "joint_position":
            self.controller.reset()  # the arm leaves the tool's target: later motions begin where it then is
            return wish.action
        try:
            return self.controller.command(wish.action, joints).positions
        except InvalidInputError:  # misshapen: the filter holds and counts it
            return np.full(len(joints.names), np.nan)

    def _held(self, command: JointCommand, joints: JointState) -> Decision:
        self.executor.held(joints.stamp_ns)
        row = np.zeros(EE_ACTION_DIM)
        row[-1] = 2.0 * self.robot.gripper_fraction(joints.positions[-1]) - 1.0
        return Decision(command, HOLD + command.held, row, "ee_delta")
