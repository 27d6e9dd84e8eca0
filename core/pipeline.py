"""From an action to a safe joint command: the one decision that the safety node and the in-process loop both make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engram.core.arrays import checked
from engram.core.contracts import Kinematics
from engram.core.control import ChunkExecutor, ControlConfig, EndEffectorController
from engram.core.errors import InvalidInputError, NonFiniteError
from engram.core.input_rules import LONGEST_CHUNK, NEAR_NS, is_near, unfit_chunk, unfit_human
from engram.core.joint_watch import JointWatch
from engram.core.registry import make_barrier
from engram.core.robot import RobotConfig
from engram.core.safety import SafetyConfig, SafetyFilter
from engram.core.types import EE_ACTION_DIM, HOLD, HUMAN, ActionChunk, HumanAction, JointCommand, JointState
from engram.core.types.basics import set_fields

JUMP = "joint_jump"
"""Why the robot stops when its joints are measured where no motor can have brought them."""
FROZEN = "joints_frozen"
"""Why the robot stops when a joint that is driven is measured without any change."""
RESTED = 1.5
"""So many control steps after a command the arm has come to rest where that sent it."""
_KEPT = 0.01
"""A commanded motion that differs from the action by less, as a share of the longest motion of a control step, is that
action: inverse kinematics is not exact."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the robot is told for one control step, and whose action that is."""

    command: JointCommand
    author: str
    """The policy's version, ``human:<who>``, or ``hold:<reason>``."""
    row: np.ndarray
    """(a,) the action that was let through: slower than the policy's where a limit slowed the arm, and faster where it
    catches up. For a hold, the relative motion that keeps tool and gripper in place."""
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

    def covers(self, stamp_ns: int) -> bool:
        return self.begin_ns <= stamp_ns < self.end_ns


class CommandPipeline:
    """Action chunk -> controller -> safety filter, one :meth:`step` for each control step.

    A human's action goes before the policy's, and what the policy planned until then is not executed any more. A
    latched stop goes before both. A measurement that no motor could have made latches a stop, too, and so does a joint
    that is driven and measured without any change.
    """

    def __init__(
        self,
        kinematics: Kinematics,
        robot: RobotConfig,
        *,
        lockstep: bool = True,
        control: ControlConfig | None = None,
        safety: SafetyConfig | None = None,
        jump_grace_s: float = 0.0,
    ) -> None:
        """``jump_grace_s``: a new episode within this time explains a jump of the joints; until then the robot holds.

        A simulation that does not wait for commands needs it: the joints may arrive before the status of the episode
        that moved them.
        """
        self.robot = robot
        self.executor = ChunkExecutor(lockstep=lockstep)
        self.controller = EndEffectorController(kinematics, robot, control)
        period_s = self.controller.config.control_dt_s
        self.filter = SafetyFilter(robot, kinematics, safety, period_s, make_barrier(robot))
        speed = np.append(robot.velocity_max, robot.gripper_velocity_max)
        self.watch = JointWatch(robot.joint_names, speed, self.filter.config.slack_s)
        self._jump_grace_ns = round(jump_grace_s * 1e9)
        self._refusal: _Refusal | None = None
        self._refused: ActionChunk | None = None  # the newest chunk that was, so that it is counted once
        self._jumped_ns: int | None = None  # stamp of a jump that a new episode may still explain
        self._joints: JointState | None = None  # of the last decision
        self.clock: Callable[[], float] | None = None
        """Tells passed time [s], where stamps may be wrong: then an arm rests only if by both no command came."""
        self._decided_at = 0.0  # by that clock
        self.unready = ""
        """Why nobody may drive yet: every step holds with this reason. Empty: all is there."""
        self._leader = ""  # the person who drove the last step
        self._by_tool = True  # the policy acts by motions of the tool

    @property
    def control_dt_s(self) -> float:
        """Length of one control step [s]."""
        return self.controller.config.control_dt_s

    def reset(self) -> None:
        """Begin an episode: forget chunk, target, measurements and last command; a latched stop stays latched.

        A refused chunk is not forgotten: it may be the first of the new episode.
        """
        self.executor.reset()
        self.controller.reset()
        self.filter.forget()
        self.watch.forget()
        self._jumped_ns = self._joints = None
        self._leader = ""

    def resume(self, state: np.ndarray, stamp_ns: int, joints: JointState) -> JointCommand:
        """Go on from the command that another process gave for the control step at ``stamp_ns``; return it once more.

        Args:
            state: (3n + 1,) that it led to, see :attr:`SafetyFilter.state`.
            joints: measured now, before the arm came to rest: at most :data:`RESTED` control steps after ``stamp_ns``.
        """
        self.filter.resume(state)
        self._decided(replace(joints, stamp_ns=stamp_ns))
        assert self.filter.last is not None
        return JointCommand(stamp_ns, self.robot.joint_names, self.filter.last, self.control_dt_s)

    def retime(self, stamp_ns: int, passed_s: float) -> None:
        """Go on from the last command at ``stamp_ns``, now that somebody has set the clock of the stamps.

        Chunks of before are forgotten: the arm brakes until one of the new time comes. Measurements are not: they were
        made ``passed_s`` and more ago, and a jump is one whatever the clock says.
        """
        self.executor.reset()
        self.watch.retime(stamp_ns, passed_s)
        self.filter.retime()
        self._refusal = None
        if self._joints is not None:
            self._joints = replace(self._joints, stamp_ns=stamp_ns - round(self.control_dt_s * 1e9))

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
        if not self._is_next(joints.stamp_ns):
            return self._held(self.filter.repeat(joints, self._reason("stamp_not_new")), joints)
        if chunk is not None:
            self.offer(chunk, joints.stamp_ns)
        self.inspect(joints, commanded=True)
        if self._rested(joints.stamp_ns):
            self.filter.rest()
        leader, self._leader = self._leader, ""
        if self.filter.stopped:
            return self.hold(joints)
        if self._jumped_ns is not None:
            return self.hold(joints, JUMP)
        if self.unready:
            return self.hold(joints, self.unready)
        human, reason = self._fit(human, joints.stamp_ns)
        if not reason and human is not None and human.active:
            reason = "human_apart" if leader != human.who and self._is_apart(human, joints) else ""
            self._leader = "" if reason else human.who
        if reason:
            return self.hold(joints, reason)
        wish = self._wish(joints.stamp_ns, human)
        if wish is not None:
            return self._let_through(wish, joints, age_s)
        if self._refusal is not None and self._refusal.covers(joints.stamp_ns):
            return self.hold(joints, self._refusal.reason)
        return None if self.executor.lockstep else self.hold(joints)

    def offer(self, chunk: ActionChunk, now_ns: int) -> str:
        """Take ``chunk`` for the control steps from ``now_ns`` on; returns why it is refused, empty = it is not.

        Nothing of a refused chunk stays, but that the steps which it was to drive now are held rather than waited for.
        """
        if chunk is self._refused or chunk is self.executor.chunk:
            return ""
        reason = unfit_chunk(chunk, self.robot, self.control_dt_s)
        if not is_near(chunk.stamp_ns, now_ns) or chunk.stamp_ns > now_ns:
            reason = "chunk_stamp"
        elif reason:
            self._note_refusal(chunk.stamp_ns, chunk.execute_steps, reason)
        if reason:
            self._refused = chunk
            self.filter.counts[reason] += 1
        elif self.executor.accept(chunk):
            self._refusal, self._by_tool = None, chunk.space == "ee_delta"
        return reason

    def inspect(self, joints: JointState, *, commanded: bool = False) -> None:
        """Compare ``joints`` with what was measured before; latch a stop if no motor could have brought them there.

        Call it for measurements that no step is decided for, too. An arm that is ``commanded`` is also compared with
        its last command; at rest a person may move it. A stopped arm is looked at, too, for whoever releases it.
        """
        problem = self.watch.jump(joints, self.filter.last)
        if self.filter.stopped:
            if problem:
                self._jump_under_stop(joints, problem)
            return
        if commanded and not problem and not joints.held:
            problem = self.filter.lag(joints)
        if problem and self._jumped_ns is None:
            self._jumped_ns, self._jump = joints.stamp_ns, problem
            self.filter.counts[JUMP] += 1
        if self._jumped_ns is not None and abs(joints.stamp_ns - self._jumped_ns) >= self._jump_grace_ns:
            self.stop(f"{JUMP}: {self._jump}")
        elif commanded and not problem and (standing := self.filter.frozen(joints)):
            self.filter.counts[FROZEN] += 1
            self.stop(f"{FROZEN}: {standing}")

    def _jump_under_stop(self, joints: JointState, problem: str) -> None:
        """Add to why the robot is stopped that its joints jumped; they are compared with ``joints`` from now on."""
        self.watch.begin(joints)
        self.filter.counts[JUMP] += 1
        if JUMP not in self.filter.stopped and not self._jump_grace_ns:
            self.stop(f"{self.filter.stopped}; {JUMP}: {problem}")

    def _is_next(self, stamp_ns: int) -> bool:
        """Tell whether ``stamp_ns`` is a control step that was not decided yet: stamps never go back in an episode."""
        return self._joints is None or stamp_ns - self._joints.stamp_ns > 0.9e9 * self.control_dt_s

    def _rested(self, stamp_ns: int) -> bool:
        """Tell whether no command came for so long that the arm stands at the last one."""
        if self.clock is not None and self.clock() - self._decided_at <= RESTED * self.control_dt_s:
            return False  # a stamp that is wrong, or a clock that was set, ends no motion
        return self._joints is not None and stamp_ns - self._joints.stamp_ns > RESTED * 1e9 * self.control_dt_s

    def _decided(self, joints: JointState) -> None:
        self._joints = joints
        if self.clock is not None:
            self._decided_at = self.clock()

    def _reason(self, reason: str) -> str:
        return "stopped" if self.filter.stopped else reason

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
        """Decide that the robot stays where it was last sent; a latched stop is the reason if there is one."""
        self._leader = ""
        if self._rested(joints.stamp_ns):
            self.filter.rest()
        give = self.filter.hold if self._is_next(joints.stamp_ns) else self.filter.repeat
        return self._held(give(joints, self._reason(reason)), joints)

    def hold_blind(self, stamp_ns: int, reason: str) -> Decision | None:
        """Decide a hold at ``stamp_ns`` without joint states, after they were lost; None if there never were any."""
        return None if self._joints is None else self.hold(replace(self._joints, stamp_ns=stamp_ns), reason)

    def refuse(self, stamp_ns: int, execute_steps: int, error: Exception) -> None:
        """Take note that the chunk at ``stamp_ns`` [ns] is not fit to run because of ``error``.

        The ``execute_steps`` control steps that it was to drive are held at once, rather than waited for, until a
        chunk comes that is fit to run.
        """
        reason = "non_finite" if isinstance(error, NonFiniteError) else "invalid_chunk"
        self.filter.counts[f"chunk_{reason}"] += 1
        self._note_refusal(stamp_ns, execute_steps, reason)

    def _note_refusal(self, stamp_ns: int, execute_steps: int, reason: str) -> None:
        covered_ns = round(min(max(1, execute_steps), LONGEST_CHUNK) * self.control_dt_s * 1e9)
        if self._joints is not None and abs(stamp_ns - self._joints.stamp_ns) > NEAR_NS:
            return  # of another time: the policy did not mean a step that is coming
        self._refusal = _Refusal(stamp_ns, stamp_ns + covered_ns, reason)

    def stop(self, reason: str) -> None:
        """Latch a stop: every step holds until :meth:`release`."""
        self.filter.stop(reason)

    def release(self) -> str:
        """Release a latched stop and return its reason; empty = there was none. Motion begins where the robot is."""
        reason = self.filter.stopped
        self.filter.reset()
        self.controller.reset()
        self._jumped_ns, self._leader = None, ""
        return reason

    def _fit(self, human: HumanAction | None, now_ns: int) -> tuple[HumanAction | None, str]:
        """Return ``human`` if that person drives now, and why the robot holds instead; empty = it need not."""
        reason = unfit_human(human, self.robot, now_ns) if human is not None and human.active else ""
        if reason == "human_stamp":  # an old message: whoever sent it does not drive now
            self.filter.counts[reason] += 1
            return None, ""
        return human, reason

    def _is_apart(self, human: HumanAction, joints: JointState) -> bool:
        """Tell whether ``human`` leads the joints from a place that the arm would have to sweep to."""
        if human.space != "joint_position":
            return False
        arm = len(self.robot.arm_joints)
        apart = np.abs(human.action[:arm] - joints.positions[:arm]).max()
        return bool(apart > self.filter.config.takeover_rad)

    def _wish(self, stamp_ns: int, human: HumanAction | None) -> _Wish | None:
        """Return whose action is due: the human's, else the newest chunk's row for this step."""
        if human is not None and human.active:
            self.executor.overruled(stamp_ns)
            return _Wish(human.action, human.space, HUMAN + human.who)
        action, chunk = self.executor.action(stamp_ns), self.executor.chunk
        return None if action is None or chunk is None else _Wish(action, chunk.space, chunk.policy_version)

    def _let_through(self, wish: _Wish, joints: JointState, age_s: float) -> Decision:
        last = joints.positions if self.filter.last is None else self.filter.last
        targets = self._targets(wish, joints)
        command = self.filter.filter(targets, joints, self.control_dt_s, age_s)
        if wish.space == "ee_delta" and not np.allclose(command.positions[:-1], targets[:-1], rtol=0.0, atol=1e-9):
            self.controller.follow(command)
        if command.held:
            return self._held(command, joints)
        self._decided(joints)
        if wish.space != "ee_delta" and wish.author.startswith(HUMAN) and self._by_tool:
            row = np.zeros(EE_ACTION_DIM)  # told as the policy acts: experience holds one kind of action
            row[-1] = 2.0 * self.robot.gripper_fraction(command.positions[-1]) - 1.0
            return Decision(command, wish.author, self._kept(row, last, command.positions), "ee_delta")
        if wish.space != "ee_delta":  # joint targets are let through as the command has them
            return Decision(command, wish.author, command.positions, wish.space)
        return Decision(command, wish.author, self._kept(wish.action, last, command.positions), wish.space)

    def _kept(self, action: np.ndarray, last: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Return what the filter left of ``action`` (7,), whose command ``now`` (n,) rad followed ``last``.

        It is ``action`` itself, to the bit, where the tool was commanded to move as that says.
        """
        row = np.clip(action, -1.0, 1.0)
        moved = self.controller.motion(last[:-1], now[:-1])
        if np.abs(moved - self.controller.understood(row)[:-1]).max() > _KEPT:
            row[:-1] = np.clip(self.controller.meant(moved), -1.0, 1.0)
        return row

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
        if self._is_next(joints.stamp_ns):
            self.executor.held(joints.stamp_ns)
            self._decided(joints)
            if self.controller.target is not None:  # the arm brakes beyond it: the next motion begins where that ends
                self.controller.follow(command)
        row = np.zeros(EE_ACTION_DIM)
        row[-1] = 2.0 * self.robot.gripper_fraction(command.positions[-1]) - 1.0
        return Decision(command, HOLD + command.held, row, "ee_delta")
