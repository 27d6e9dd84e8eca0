"""Action chunks, joint commands, human actions, the status of an episode and what is judged of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import ActionChunk, EpisodeStatus, HumanAction, JointCommand, Verdict
from engram.nodes.messages.basics import NS_PER_S, doubles, from_stamp, header, reshape
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import Intervention, TaskStatus
from engram_interfaces.msg import Verdict as VerdictMsg


def chunk_to_msg(chunk: ActionChunk, robot_id: str = "", frame: str = "base_link") -> ActionChunkMsg:
    """Return ``chunk`` as a message; actions travel as float64, bit for bit."""
    horizon, dim = chunk.actions.shape
    msg = ActionChunkMsg(header=header(chunk.stamp_ns, frame), robot_id=robot_id, check_fields=True)
    msg.episode, msg.space, msg.horizon, msg.dim = int(chunk.episode), chunk.space, horizon, dim
    msg.execute_steps, msg.dt = int(chunk.execute_steps), float(chunk.dt_s)
    msg.actions = doubles(chunk.actions)
    msg.policy_version, msg.memory_ids = chunk.policy_version, list(chunk.memory_ids)
    return msg


def chunk_from_msg(msg: ActionChunkMsg) -> ActionChunk:
    """Return the chunk; raises InvalidInputError when its shape does not fit or a value is not finite."""
    actions = reshape("ActionChunk.actions", msg.actions, (msg.horizon, msg.dim), np.float64)
    return ActionChunk(
        from_stamp(msg.header.stamp), msg.episode, msg.space, actions, msg.dt, msg.execute_steps,
        msg.policy_version, tuple(msg.memory_ids),
    )  # fmt: skip


def command_to_msg(command: JointCommand) -> JointTrajectory:
    """Return a one-point trajectory to be reached ``duration_s`` after its stamp, with every field checked.

    Field checks are off by default in rclpy, and a wrong number type then silently becomes 0.0 on the wire.
    """
    nanoseconds = round(command.duration_s * NS_PER_S)
    duration = Duration(sec=nanoseconds // NS_PER_S, nanosec=nanoseconds % NS_PER_S, check_fields=True)
    point = JointTrajectoryPoint(check_fields=True, time_from_start=duration)
    point.positions = doubles(command.positions)
    msg = JointTrajectory(check_fields=True, header=header(command.stamp_ns), joint_names=list(command.names))
    msg.points = [point]
    return msg


def command_from_msg(msg: JointTrajectory, names: Sequence[str]) -> JointCommand:
    """Return the last point of ``msg`` for the joints ``names``, in that order.

    Raises:
        UnknownNameError: a joint is missing.
        InvalidInputError: no point, wrong lengths, non-finite values.
    """
    if not msg.points:
        raise InvalidInputError("command: no trajectory point, expected at least 1")
    point, index = msg.points[-1], {name: i for i, name in enumerate(msg.joint_names)}
    for name in names:
        if name not in index:
            raise unknown_name("joint in command", name, index)
    positions = reshape("command positions", point.positions, (len(msg.joint_names),), np.float64)
    duration_ns = point.time_from_start.sec * NS_PER_S + point.time_from_start.nanosec
    if duration_ns <= 0:
        raise InvalidInputError(f"command time_from_start: {duration_ns} ns, expected above 0")
    return JointCommand(
        from_stamp(msg.header.stamp), tuple(names), positions[[index[name] for name in names]], duration_ns / NS_PER_S
    )


def intervention_to_msg(human: HumanAction) -> Intervention:
    """Return a human's action as a message."""
    msg = Intervention(check_fields=True, header=header(human.stamp_ns), who=human.who, active=human.active)
    msg.space, msg.action = human.space, doubles(human.action)
    return msg


def intervention_from_msg(msg: Intervention) -> HumanAction:
    """Return a human's action; raises InvalidInputError when it is not finite."""
    return HumanAction(
        from_stamp(msg.header.stamp), msg.who, msg.active, msg.space or "ee_delta", np.array(msg.action, np.float64)
    )


def status_to_msg(status: EpisodeStatus) -> TaskStatus:
    """Return the status of an episode as a message."""
    return TaskStatus(
        header=header(status.stamp_ns), robot_id=status.robot_id, episode=int(status.episode),
        instruction=status.instruction, task=status.task, step=int(status.step), state=status.state,
        oracle_success=bool(status.oracle_success), oracle_reward=float(status.oracle_reward),
        truncated=bool(status.truncated),
    )  # fmt: skip


def status_from_msg(msg: TaskStatus) -> EpisodeStatus:
    """Return the status; raises UnknownNameError for a state that does not exist."""
    return EpisodeStatus(
        from_stamp(msg.header.stamp), msg.robot_id, msg.episode, msg.task, msg.instruction, msg.step, msg.state,
        msg.oracle_success, msg.oracle_reward, msg.truncated,
    )  # fmt: skip


def verdict_to_msg(verdict: Verdict, robot_id: str) -> VerdictMsg:
    """Return a verdict as a message."""
    return VerdictMsg(
        header=header(verdict.stamp_ns), robot_id=robot_id, episode=int(verdict.episode), source=verdict.source,
        outcome=verdict.outcome, probability=float(verdict.probability), progress=float(verdict.progress),
        reason=verdict.reason, evidence_ids=list(verdict.evidence_ids),
    )  # fmt: skip


def verdict_from_msg(msg: VerdictMsg) -> Verdict:
    """Return the verdict; raises InvalidInputError for a value or UnknownNameError for an outcome that is none."""
    return Verdict(
        from_stamp(msg.header.stamp), msg.episode, msg.source, msg.outcome, msg.probability, msg.progress, msg.reason,
        tuple(msg.evidence_ids),
    )  # fmt: skip
