"""A network small enough for tests, and inputs for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature
from torch import Tensor

from engram.core.types import Lineage
from engram.policies import EngramVLAConfig, EngramVLAPolicy
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY
from engram.policies.lerobot.processor_engram_vla import make_engram_vla_pre_post_processors
from engram.policies.vla.vla_policy import VlaPolicy

LINEAGE = Lineage("r" * 64, "a" * 64, "n" * 64, "base")
STATE = 11
"""Length of the gantry's proprioception: position 3, quaternion 4, gripper 1, joints 3."""


def tiny_config(state: int = STATE, **fields: Any) -> EngramVLAConfig:
    """Return a configuration of a few ten thousand parameters."""
    image = PolicyFeature(FeatureType.VISUAL, (3, 32, 32))
    small: dict[str, Any] = {
        "image_size": 32,
        "conv_channels": (8, 8, 8, 8),
        "keypoints": 4,
        "image_tokens_side": 2,
        "dim": 16,
        "layers": 2,
        "heads": 2,
        "head_width": 16,
        "head_blocks": 1,
        "chunk_size": 6,
        "n_action_steps": 3,
        "euler_steps": 2,
        "language_dim": 384,
    }
    return EngramVLAConfig(
        input_features={
            "observation.images.front": image,
            "observation.images.wrist": image,
            "observation.state": PolicyFeature(FeatureType.STATE, (state,)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (7,))},
        device="cpu",
        **{**small, **fields},
    )


def tiny_policy(seed: int = 0, **fields: Any) -> EngramVLAPolicy:
    """Return a tiny policy whose flow head has left its zero start, so that inputs reach the output."""
    torch.manual_seed(seed)
    policy = EngramVLAPolicy(tiny_config(**fields)).eval()
    with torch.no_grad():
        for layer in (*policy.model.head.modulate, policy.model.head.leave):
            layer.weight.normal_(std=0.5)
    return policy


def tiny_vla(**fields: Any) -> VlaPolicy:
    """Return a tiny policy with processors for the Panda's state; not to be asked to act: it has no kinematics."""
    torch.set_num_threads(1)
    network = tiny_policy(state=15, state_dropout=0.0, camera_sizes={}, crops={}, **fields)
    ones = {"mean": np.zeros(1), "std": np.ones(1)}
    stats = {
        "observation.state": {"mean": np.zeros(15), "std": np.ones(15)},
        "action": {"mean": np.zeros(7), "std": np.ones(7)},
        "observation.images.front": {k: v.reshape(1, 1, 1).repeat(3, 0) for k, v in ones.items()},
        "observation.images.wrist": {k: v.reshape(1, 1, 1).repeat(3, 0) for k, v in ones.items()},
    }
    pre, post = make_engram_vla_pre_post_processors(network.config, stats)
    return VlaPolicy(network, pre, post, kinematics=None, version="base", lineage=LINEAGE)  # type: ignore[arg-type]


def tiny_batch(size: int = 2, state: int = STATE) -> dict[str, Tensor]:
    """Return a normalised batch of noise."""
    generator = torch.Generator().manual_seed(1)
    return {
        "observation.images.front": torch.rand(size, 3, 32, 32, generator=generator),
        "observation.images.wrist": torch.rand(size, 3, 32, 32, generator=generator),
        "observation.state": torch.randn(size, state, generator=generator),
        LANGUAGE_KEY: torch.nn.functional.normalize(torch.randn(size, 384, generator=generator), dim=1),
    }
