"""Configuration of ``engram_backbone``: a large LeRobot policy, frozen, with our memory of the episode."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import NormalizationMode

from engram.policies.lerobot.policy_config import PolicyConfig


@PreTrainedConfig.register_subclass("engram_backbone")
@dataclass
class EngramBackboneConfig(PolicyConfig):
    """Which backbone, and the memory beside it; without one ("none") the backbone acts as it is."""

    backbone: str = ""
    """Folder or hub id of the backbone: a SmolVLA or pi0 policy as LeRobot saves it."""
    backbone_revision: str | None = None
    """Revision on the hub; None = the newest one there or in the cache."""
    backbone_sha256: str = ""
    """Of the backbone's weights that the memory was trained with: others are refused; empty = any."""
    chunk_size: int = 50
    """Actions per chunk, as the backbone has it."""
    n_action_steps: int = 50
    normalization_mapping: dict[str, NormalizationMode] = field(default_factory=dict)
    """The backbone's own, which its processors carry out."""
    memory: str = "bank"

    def __post_init__(self) -> None:
        super().__post_init__()
        for feature in self.image_features.values():
            self.check_cells(min(feature.shape[-2:]))
