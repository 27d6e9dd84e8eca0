"""ACT and Diffusion with random weights, saved as ``lerobot-train`` saves them: configuration, weights, processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

FAMILIES = ("act", "diffusion")
SIDE = 64
SMALL: dict[str, dict[str, Any]] = {
    "act": {
        "chunk_size": 6, "n_action_steps": 3, "dim_model": 16, "n_heads": 2, "dim_feedforward": 16,
        "n_encoder_layers": 1, "n_vae_encoder_layers": 1, "latent_dim": 4,
    },
    "diffusion": {
        "horizon": 8, "n_action_steps": 3, "n_obs_steps": 2, "down_dims": (16, 32), "diffusion_step_embed_dim": 16,
        "n_groups": 4, "spatial_softmax_num_keypoints": 4, "num_train_timesteps": 5,
    },
}  # fmt: skip


def save_tiny(
    family: str,
    folder: Path,
    state: int = 11,
    action: int = 7,
    cameras: tuple[str, ...] = ("observation.images.front", "observation.images.wrist"),
    side: int = SIDE,
    seed: int = 0,
    inputs: dict[str, PolicyFeature] | None = None,
    mean: float = 0.1,
    **fields: Any,
) -> Path:
    """Write a policy of ``family`` that takes ``cameras`` and a state, and besides ``inputs``; return ``folder``.

    ``mean``: of all that it trained on.
    """
    if family == "diffusion":
        pytest.importorskip("diffusers")
    torch.manual_seed(seed)
    features: dict[str, Any] = {
        "input_features": {
            **{camera: PolicyFeature(FeatureType.VISUAL, (3, side, side)) for camera in cameras},
            "observation.state": PolicyFeature(FeatureType.STATE, (state,)),
            **(inputs or {}),
        },
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (action,))},
    }
    config = make_policy_config(
        family, device="cpu", pretrained_backbone_weights=None, **features, **{**SMALL[family], **fields}
    )
    get_policy_class(family)(config).eval().save_pretrained(folder)
    for pipeline in make_pre_post_processors(config, dataset_stats=_stats(config, mean)):
        pipeline.save_pretrained(folder)
    return folder


def _stats(config: Any, mean: float) -> dict[str, dict[str, np.ndarray]]:
    stats = {}
    for name, feature in (config.input_features | config.output_features).items():
        shape = (3, 1, 1) if feature.type is FeatureType.VISUAL else feature.shape
        ones = np.ones(shape, np.float32)
        stats[name] = {"mean": mean * ones, "std": 0.5 * ones, "min": -0.9 * ones, "max": 0.9 * ones}
    return stats
