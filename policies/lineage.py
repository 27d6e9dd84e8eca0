"""The lineage of a checkpoint: what its weights, its network and its normalisation are, as digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from torch import Tensor, nn

from engram.core.types import Lineage
from engram.policies.lerobot.motion_edit_step import MotionEditStep

_EXECUTION = ("n_action_steps", "adaptive_m", "sampling_seed")
"""Settings of ours that say how chunks are executed, not what the network computes."""
_PLACES = ("backbone", "backbone_revision")
"""Where a frozen backbone lies; which one it is, the sha256 of its weights says."""
_TRAINING = ("optimizer_", "scheduler_")
_FEATURES = ("input_features", "output_features")


def lineage_of(policy: nn.Module, processors: tuple[Any, Any], root: str, name: str) -> Lineage:
    """Return the lineage that begins with ``policy``.

    Args:
        policy: a LeRobot policy, as it was opened.
        processors: LeRobot's pipelines before and after it.
        root: sha256 of its weight file.
        name: what users call it.
    """
    return Lineage(root, architecture_digest(policy), normalization_digest(*processors), name)


def architecture_digest(policy: nn.Module) -> str:
    """Return the sha256 of the class, the configuration of the network, and names, shapes and types of its tensors.

    LeRobot's own settings (device, hub, ...), those of training and execution, and where a backbone lies do not count:
    robot and learner may differ in them.
    """
    tensors = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in sorted(policy.state_dict().items())]
    config: Any = getattr(policy, "config", None)
    settings = json.dumps(_settings(config), sort_keys=True, default=str)
    return _digest([type(policy).__name__, settings, *tensors])


def normalization_digest(preprocess: Any, postprocess: Any) -> str:
    """Return the sha256 of every tensor that the steps of both pipelines keep: the statistics.

    A motion edit is none: it is learnt, as weights are.
    """
    lines = []
    for place, pipeline in (("before", preprocess), ("after", postprocess)):
        for step in pipeline.steps:
            if isinstance(step, MotionEditStep):
                continue
            for name, tensor in sorted(step.state_dict().items()):
                lines.append(f"{place} {type(step).__name__} {name} {_tensor_digest(tensor)}")
    return _digest(lines)


def _settings(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    left_out = {field.name for field in fields(PreTrainedConfig)} - set(_FEATURES) | {*_EXECUTION, *_PLACES}
    names = [field.name for field in fields(config) if field.name not in left_out]
    return {name: getattr(config, name) for name in names if not name.startswith(_TRAINING)}


def _tensor_digest(tensor: Tensor) -> str:
    values = tensor.detach().cpu().to(torch.float64).contiguous().numpy()
    return hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
