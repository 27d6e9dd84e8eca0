"""Load a policy by name, ready to drive a robot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from engram.core.contracts import Kinematics
from engram.core.control import ControlConfig
from engram.core.errors import InvalidInputError
from engram.core.input_rules import LONGEST_CHUNK
from engram.core.registry import make_kinematics
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.policies.lerobot.lerobot_policy import LeRobotPolicy
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.opening import open_policy
from engram.policies.vla.vla_policy import VlaPolicy


def load_policy(
    name_or_path: str | Path = "base",
    kinematics: Kinematics | None = None,
    robot: RobotConfig = PANDA_2F85,
    *,
    control: ControlConfig | None = None,
    execute_steps: int | None = None,
    torch_threads: int = 1,
    real_time_delay: int = 0,
    ablation: str = "",
) -> VlaPolicy | LeRobotPolicy:
    """Return a policy from a shipped checkpoint's name, a folder that LeRobot's ``save_pretrained`` wrote, or the hub.

    It returns whole chunks; :func:`engram.policies.vla.chunking.follow` adds the configured way of replanning.

    Args:
        name_or_path: ``base`` or any other folder in ``policies/checkpoints``, a path such as
            ``outputs/act/checkpoints/last/pretrained_model``, or owner/name on the hub.
        kinematics: of the robot; default: the one that ``robot`` names.
        robot: joint names, gripper range and cameras.
        control: length of a control step; default: 0.1 s.
        execute_steps: rows executed per chunk, from 1 to the policy's chunk size; default: the policy's own setting.
        torch_threads: of the whole process; the bits of the actions depend on it.
        real_time_delay: control steps by which answers come late, for real-time chunking; 0 = off. Only for flow
            policies: ours, SmolVLA and pi0.
        ablation: see :class:`VlaPolicy`.

    Raises:
        UnknownNameError, InvalidInputError, WeightsError: a chunk has fewer rows than ``execute_steps``; or see
            :func:`engram.policies.opening.open_policy`, :class:`VlaPolicy` and :class:`LeRobotPolicy`.
    """
    torch.set_num_threads(torch_threads)
    opened = open_policy(name_or_path)
    policy, pipelines = opened.policy, (opened.preprocess, opened.postprocess)
    kinematics = kinematics or make_kinematics(robot)
    known: dict[str, Any] = {"version": opened.version, "lineage": opened.lineage, "control": control}
    if not isinstance(policy, NetworkPolicy):
        for option, value in (("real_time_delay", real_time_delay), ("ablation", ablation)):
            if value:
                raise InvalidInputError(
                    f"{option} {value!r}: not for a policy of LeRobot's type {policy.config.type!r}"
                )
        made = LeRobotPolicy(policy, *pipelines, kinematics, robot, execute_steps=execute_steps or 0, **known)
        _check_execute_steps(execute_steps, policy.config, opened.version)
        return made
    _check_execute_steps(execute_steps, policy.config, opened.version)
    if execute_steps:
        policy.config.n_action_steps, policy.config.adaptive_m = execute_steps, 0.0
    real_time = None
    if real_time_delay:
        from engram.policies.vla.real_time_chunking import RealTimeChunking

        real_time = RealTimeChunking(real_time_delay)
    known |= {"real_time": real_time, "ablation": ablation, "instructions": opened.instructions}
    return VlaPolicy(policy, *pipelines, kinematics, robot, **known)


def _check_execute_steps(execute_steps: int | None, config: Any, version: str) -> None:
    """Raise InvalidInputError for more steps than a chunk has rows.

    Where the configuration of one of LeRobot's types does not say how many it has, the first answer tells.
    """
    rows = getattr(config, "chunk_size", 0) or getattr(config, "action_chunk_size", 0) or LONGEST_CHUNK
    if hasattr(config, "horizon"):  # diffusion answers with no more rows than it executes
        rows = config.n_action_steps
    if execute_steps and not 1 <= execute_steps <= rows:
        raise InvalidInputError(
            f"execute_steps: {execute_steps}, expected 1..{rows}, the rows of a chunk of {version}, or 0 for its own"
        )
