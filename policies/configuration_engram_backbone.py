"""Configuration of ``engram_backbone``: a large LeRobot policy, frozen, with our memory of the episode."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamWConfig, CosineDecayWithWarmupSchedulerConfig

from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM
from engram.policies.memories import check_memory


@PreTrainedConfig.register_subclass("engram_backbone")
@dataclass
class EngramBackboneConfig(PreTrainedConfig):
    """Which backbone, and the memory beside it; the memory's fields mean what they mean in ``EngramVLAConfig``."""

    backbone: str = ""
    """Folder or hub id of the backbone: a SmolVLA or pi0 policy as LeRobot saves it."""
    backbone_revision: str | None = None
    """Revision on the hub; None = the newest one there or in the cache."""
    backbone_sha256: str = ""
    """Of the backbone's weights that the memory was trained with: others are refused; empty = any."""
    chunk_size: int = 50
    """Actions per chunk, as the backbone has it."""
    n_action_steps: int = 50
    """Rows of a chunk that are executed before the next observation is answered."""
    normalization_mapping: dict[str, NormalizationMode] = field(default_factory=dict)
    """The backbone's own, which its processors carry out."""
    dim: int = 128
    """Width of the cognitive token, of the memory and of its reading."""
    heads: int = 4
    """Attention heads of the memory."""
    memory_dim: int = EMBEDDING_DIM
    """Length of one token of ``memory/context``."""
    memory: str = "bank"
    """See ``engram.policies.memories.MEMORIES``; "none" = the backbone as it is."""
    memory_steps: int = 64
    memory_events: int = 16
    memory_details: int = 4
    memory_surprise: float = 4.0
    memory_stack: int = 8
    memory_chunk: int = 8
    step_s: float = 0.1
    """Length of a control step [s], where observations carry no stamps: LeRobot's commands."""
    sampling_seed: int = 0
    """Seed of the noise that LeRobot's ``select_action`` draws."""
    optimizer_lr: float = 1e-3
    scheduler_warmup_steps: int = 200
    scheduler_decay_steps: int = 12000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.n_action_steps <= self.chunk_size:
            raise InvalidInputError(f"n_action_steps: {self.n_action_steps}, expected 1..{self.chunk_size}")
        if self.dim % self.heads:
            raise InvalidInputError(f"dim: {self.dim}, expected a multiple of heads = {self.heads}")
        check_memory(self.memory)

    def get_optimizer_preset(self) -> AdamWConfig:
        """Return LeRobot's AdamW with this policy's settings."""
        return AdamWConfig(lr=self.optimizer_lr)

    def get_scheduler_preset(self) -> CosineDecayWithWarmupSchedulerConfig:
        """Return LeRobot's cosine schedule with this policy's settings."""
        return CosineDecayWithWarmupSchedulerConfig(
            peak_lr=self.optimizer_lr,
            decay_lr=self.optimizer_lr / 100,
            num_warmup_steps=self.scheduler_warmup_steps,
            num_decay_steps=self.scheduler_decay_steps,
        )

    def validate_features(self) -> None:
        """Raise InvalidInputError unless there is a camera, the robot's state and an action."""
        if not self.image_features or self.robot_state_feature is None or self.action_feature is None:
            names = sorted((self.input_features or {}) | (self.output_features or {}))
            raise InvalidInputError(f"engram_backbone: needs a camera, observation.state and action among {names}")

    @property
    def observation_delta_indices(self) -> None:
        """One observation at a time."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """The chunk begins with the action of the observed step."""
        return list(range(self.chunk_size))

    @property
    def reward_delta_indices(self) -> None:
        """No rewards."""
        return None
