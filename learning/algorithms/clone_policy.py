"""Behavior cloning for a policy of ours: which variant of it, and what of the policy it needs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from engram.core.contracts import Policy
from engram.core.errors import CannotTrainError
from engram.learning.algorithms.behavior_cloning import BehaviorCloning, BehaviorCloningConfig
from engram.learning.algorithms.distillation import ActionUnits
from engram.learning.algorithms.episode_cloning import EpisodeCloning
from engram.learning.algorithms.motion_edit import frozen
from engram.learning.algorithms.rehearsal import Rehearsal
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.processor_engram_vla import DownsampleImages, of_shrunk_images
from engram.policies.vla.vla_policy import VlaPolicy


def clone_policy(policy: Policy, config: BehaviorCloningConfig | None = None) -> BehaviorCloning:
    """Return behavior cloning of a copy of ``policy``'s network; the policy itself keeps its weights.

    A policy with a memory of its episode learns from whole episodes, any other from single control steps; the latter
    rehearses the instructions of its card that are not practised. One that acts on memory/context learns from what it
    read of it. Replay keeps images at the policy's own size: less memory, and the same bits for training.

    Raises:
        CannotTrainError: the policy is no VlaPolicy, its preprocessor does not downsample images, it is a frozen
            backbone, or it names no lineage.
    """
    if why := frozen(policy):
        raise CannotTrainError(f"{why} (behavior_cloning); imitation and critics need a policy of type engram_vla")
    if not isinstance(policy, VlaPolicy) or not isinstance(policy.network, EngramVLAPolicy):
        kind = type(policy).__name__
        raise CannotTrainError(f"{policy.version} is a {kind}; behavior cloning needs a policy of type engram_vla")
    if policy.lineage is None:
        raise CannotTrainError(f"{policy.version} names no lineage: nothing says which experience is its own")
    steps = [step for step in policy.preprocess.steps if isinstance(step, DownsampleImages)]
    if len(steps) != 1:
        names = ", ".join(type(step).__name__ for step in policy.preprocess.steps)
        raise CannotTrainError(
            f"preprocessor of {policy.version}: {len(steps)} DownsampleImages, expected 1 in {names}"
        )

    def shrink(feature: str, images: np.ndarray) -> np.ndarray:
        return steps[0].image(feature, torch.from_numpy(np.ascontiguousarray(images))).numpy()

    config = config or BehaviorCloningConfig()
    network, preprocess = copy.deepcopy(policy.network), of_shrunk_images(policy.preprocess)
    network.model.flow_start = network.config.noise_scale
    about: dict[str, Any] = {"lineage": policy.lineage, "chunk_steps": int(policy.network.config.chunk_size)}
    about["token_width"] = int(policy.network.config.memory_dim) if policy.reads_context else 0
    about["units"] = ActionUnits(policy.postprocess, policy.network.config.action_feature.shape[0])
    if policy.remembers:
        return EpisodeCloning(network, preprocess, config, shrink, instructions=policy.instructions, **about)
    if policy.instructions and config.rehearsal:
        about["rehearsal"] = Rehearsal(copy.deepcopy(policy.network), preprocess, policy.instructions)
    return BehaviorCloning(network, preprocess, config, shrink, **about)
