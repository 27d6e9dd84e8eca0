"""What comes before and after the ``engram_success`` reward model."""

from __future__ import annotations

import copy
from typing import Any

from lerobot.lerobot_types import PolicyAction
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.processor.pipeline import PolicyProcessorPipeline

from engram.learning.rewards.lerobot.configuration_engram_success import EngramSuccessConfig
from engram.policies.lerobot.processor_engram_vla import make_engram_vla_pre_post_processors


def make_engram_success_pre_post_processors(
    config: EngramSuccessConfig, dataset_stats: dict[str, dict[str, Any]] | None = None
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]],
    PolicyProcessorPipeline[PolicyAction, PolicyAction],
]:
    """Return the encoder's preprocessor, and a postprocessor that changes nothing.

    LeRobot's factory finds this function by its name. ``dataset_stats`` are of whatever is judged; the encoder keeps to
    those that it was trained with.
    """
    encoder = copy.copy(config.policy)
    encoder.device = config.device
    before, _ = make_engram_vla_pre_post_processors(encoder, config.stats)
    return before, PolicyProcessorPipeline[PolicyAction, PolicyAction](
        steps=[], to_transition=policy_action_to_transition, to_output=transition_to_policy_action
    )
