"""Processors of ``engram_backbone``: those of the backbone, and before them images on the scale it expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from lerobot.lerobot_types import PolicyAction
from lerobot.processor.pipeline import PolicyProcessorPipeline, ProcessorStepRegistry

from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.input_step import InputStep


@dataclass
@ProcessorStepRegistry.register(name="engram_unit_images")
class UnitImages(InputStep):
    """Brings uint8 images to float32 in [0, 1], where LeRobot's policies take them; such images stay as they are."""

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the observation with float images."""
        return {
            key: value.to(torch.float32) / 255.0 if getattr(value, "dtype", None) == torch.uint8 else value
            for key, value in observation.items()
        }


def make_engram_backbone_pre_post_processors(
    config: EngramBackboneConfig, dataset_stats: dict[str, dict[str, Any]] | None = None
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]],
    PolicyProcessorPipeline[PolicyAction, PolicyAction],
]:
    """Return the backbone's processors; LeRobot's factory finds this function by its name.

    ``dataset_stats`` is not used: a frozen backbone keeps the normalisation that it was trained with.
    """
    from engram.policies.backbones.loading import backbone_processors

    return backbone_processors(config)
