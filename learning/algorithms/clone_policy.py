"""The learner's update rule for the shipped policy."""

from __future__ import annotations

import copy

import numpy as np
import torch

from engram.core.errors import InvalidInputError
from engram.learning.algorithms.behavior_cloning import BehaviourCloning, BehaviourCloningConfig
from engram.learning.replay.episode_batches import EpisodeCloning
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.processor_engram_vla import DownsampleImages, of_shrunk_images
from engram.policies.vla.vla_policy import VlaPolicy


def clone_behaviour(policy: VlaPolicy, config: BehaviourCloningConfig | None = None) -> BehaviourCloning:
    """Return the trainer of a copy of ``policy``'s network; the policy itself goes on acting with its weights.

    A policy with a memory of its episode learns from whole episodes, another one from single steps. Replay keeps images
    at the policy's own size: a part of the memory of full ones, and the same bits for training.

    Raises:
        InvalidInputError: the policy's preprocessor does not downsample images, it is a frozen backbone, or it acts on
            memory/context, which experience does not hold.
    """
    if not isinstance(policy.network, EngramVLAPolicy):
        raise InvalidInputError(f"{policy.version} is a frozen backbone; the learner needs a policy of type engram_vla")
    if policy.reads_context:
        raise InvalidInputError(
            f"{policy.version} acts on memory/context, which the experience does not hold: learning blindly it would "
            "forget that; train it with 'engram train', run it without a learner (learner:=false, --no-learner)"
        )
    steps = [step for step in policy.preprocess.steps if isinstance(step, DownsampleImages)]
    if len(steps) != 1:
        names = ", ".join(type(step).__name__ for step in policy.preprocess.steps)
        raise InvalidInputError(
            f"preprocessor of {policy.version}: {len(steps)} DownsampleImages, expected 1 in {names}"
        )

    def shrink(feature: str, images: np.ndarray) -> np.ndarray:
        return steps[0].image(feature, torch.from_numpy(np.ascontiguousarray(images))).numpy()

    kind = EpisodeCloning if policy.remembers else BehaviourCloning
    return kind(copy.deepcopy(policy.network), of_shrunk_images(policy.preprocess), config, shrink)
