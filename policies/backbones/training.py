"""What ``engram train --backbone`` needs: a sequence memory beside a frozen backbone, and images in the backbone's
format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

from engram.core.errors import InvalidInputError
from engram.policies.backbones.loading import fits, wrapped
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy
from engram.policies.lerobot.policy_config import other_fields
from engram.policies.lerobot.processor_engram_vla import DownsampleImages
from engram.policies.sequence_memory import NONE
from engram.policies.source import Source

if TYPE_CHECKING:
    from engram.policies.training.train_config import TrainConfig


def fresh_memory(config: TrainConfig, meta: LeRobotDatasetMetadata) -> EngramBackbonePolicy:
    """Return the backbone with an untrained memory: it acts as the backbone does.

    Raises: InvalidInputError: the dataset lacks an input of the backbone, or no memory is configured.
    """
    if config.memory == NONE:
        raise InvalidInputError("backbone: it is frozen, and without a memory there is nothing to train: set memory")
    made = wrapped(
        config.backbone,
        memory=config.memory,
        backbone_sha256=sha256(Source(config.backbone).file(WEIGHTS)),
        n_action_steps=config.n_action_steps,
        step_s=1.0 / meta.fps,
        device="cpu",
        **other_fields(config.model, EngramBackboneConfig),
    )
    fits(made, meta.features)
    return EngramBackbonePolicy(made)


def whole_images(meta: LeRobotDatasetMetadata) -> DownsampleImages:
    """Return the downsampling that keeps every image of a dataset as it was recorded."""
    sides = {}
    for camera in meta.camera_keys:
        height, width = sorted(meta.features[camera]["shape"])[1:]  # channels come first or last
        if height != width:
            raise InvalidInputError(f"{camera}: {height} x {width} px; a backbone's memory learns from square images")
        sides[camera] = int(height)
    return DownsampleImages(max(sides.values()), sides)
