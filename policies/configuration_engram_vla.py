"""Configuration of the ``engram_vla`` policy, registered with LeRobot."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamWConfig, CosineDecayWithWarmupSchedulerConfig

from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM
from engram.policies.memories import check_memory

LANGUAGE_KEY = "observation.language.embedding"
"""(B, language_dim) float32: the instruction and its pieces, embedded by the processor."""
MEMORY_PREFIX = "observation.memory."
"""Of what ``memory/context`` holds ready, and of what a dataset holds of it."""
MEMORY_TOKENS_KEY = "observation.memory.tokens"
"""(B, k, memory_dim) float32; absent = no memory."""
MEMORY_AGE_KEY = "observation.memory.age_s"
"""(B, k) float32, s."""
MEMORY_PLACE_KEY = "observation.memory.place"
"""(B, k, 3) float32, m, base_link."""
MEMORY_MASK_KEY = "observation.memory.mask"
"""(B, k) bool, False = padding."""


@PreTrainedConfig.register_subclass("engram_vla")
@dataclass
class EngramVLAConfig(PreTrainedConfig):
    """Shape of the network and of its chunks; the fields of LeRobot's PreTrainedConfig come before these."""

    chunk_size: int = 16
    """Actions per chunk (horizon h)."""
    n_action_steps: int = 4
    """Rows of a chunk that are executed before the next observation is answered."""
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: {
            "VISUAL": NormalizationMode.MEAN_STD,
            "STATE": NormalizationMode.MEAN_STD,
            "ACTION": NormalizationMode.MEAN_STD,
        }
    )
    """LeRobot's normalisation by feature type; standard deviations are floored (see the processor)."""
    image_size: int = 64
    """Side to which every camera image is area-downsampled by the processor [px]."""
    camera_sizes: dict[str, int] = field(default_factory=dict)
    """Cameras whose images are not ``image_size`` [px]."""
    crops: dict[str, tuple[float, float, float]] = field(
        default_factory=lambda: {"observation.images.front": (0.14, 0.125, 0.75)}
    )
    """Per camera, the square that is kept: top, left and side as shares of the image; cameras without one keep all.
    The default cuts the front camera to the table."""
    random_shift: int = 1
    """Training only: images are shifted by up to this many pixels of ``image_size``."""
    brightness_jitter: float = 0.1
    """Training only: images are scaled by 1 +- this (after normalisation)."""
    conv_channels: tuple[int, ...] = (16, 32, 64, 128)
    """Channels of the four convolutions of a camera."""
    keypoints: int = 32
    """Spatial-softmax keypoints per camera."""
    image_tokens_side: int = 4
    """A camera gives ``image_tokens_side**2`` tokens."""
    dim: int = 128
    """Width of the transformer (d)."""
    layers: int = 3
    """Transformer blocks."""
    mlp_ratio: int = 2
    """Width of a block's MLP in units of ``dim``."""
    heads: int = 4
    """Attention heads."""
    language_dim: int = 5 * EMBEDDING_DIM
    """Length of the instruction's embedding: 384 for the sentence and 384 for each of its consecutive pieces."""
    memory_dim: int = EMBEDDING_DIM
    """Length of one memory token."""
    memory: str = "none"
    """Memory of the policy's own episode: see ``engram.policies.memories.MEMORIES``; "none" = acts by the present alone
    (and by ``memory/context``)."""
    memory_steps: int = 64
    """Entries that a memory keeps of single control steps."""
    memory_events: int = 16
    """Entries of the bank for the pictures of steps where something happened."""
    memory_details: int = 4
    """Perceptual tokens that a control step leaves behind, beside its cognitive token."""
    memory_cells_side: int = 8
    """A memory keeps what colours the salient of ``memory_cells_side**2`` cells of a camera's image have, and finds
    them again; 0 = it does not."""
    memory_surprise: float = 4.0
    """What counts as an event: the picture has moved away from the last event's by more than this many usual steps."""
    memory_stack: int = 8
    """Steps that the frame stack holds."""
    memory_chunk: int = 8
    """Steps in a chunk of hcam and place; they keep ``memory_steps // memory_chunk`` chunks."""
    step_s: float = 0.1
    """Length of a control step [s], where observations carry no stamps: LeRobot's commands."""
    head_width: int = 256
    """Width of the flow head's residual blocks."""
    head_blocks: int = 3
    """Residual blocks of the flow head."""
    state_dropout: float = 0.1
    """Training only: chance that a sample's proprioception is withheld from the action head."""
    flow_draws: int = 4
    """Flow times and noises drawn per encoded observation in the loss."""
    euler_steps: int = 6
    """Integration steps when sampling a chunk."""
    noise_scale: float = 0.5
    """Scale of the initial noise when sampling: below 1 prefers the mode."""
    sampling_seed: int = 0
    """Seed of the noise that LeRobot's ``select_action`` draws."""
    optimizer_lr: float = 1e-3
    optimizer_weight_decay: float = 1e-3
    optimizer_grad_clip_norm: float = 1.0
    scheduler_warmup_steps: int = 200
    scheduler_decay_steps: int = 12000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conv_channels = tuple(self.conv_channels)  # JSON brings lists
        self.crops = {camera: tuple(crop) for camera, crop in self.crops.items()}
        if not 0 < self.n_action_steps <= self.chunk_size:
            raise InvalidInputError(f"n_action_steps: {self.n_action_steps}, expected 1..{self.chunk_size}")
        if len(self.conv_channels) != 4:
            raise InvalidInputError(f"conv_channels: {self.conv_channels}, expected four")
        if self.dim % self.heads:
            raise InvalidInputError(f"dim: {self.dim}, expected a multiple of heads = {self.heads}")
        if self.language_dim < EMBEDDING_DIM or self.language_dim % EMBEDDING_DIM:
            raise InvalidInputError(f"language_dim: {self.language_dim}, expected a multiple of {EMBEDDING_DIM}")
        check_memory(self.memory)
        for size in (self.image_size, *self.camera_sizes.values()):
            if size % 16 or (size // 8) % self.image_tokens_side:
                raise InvalidInputError(f"image size {size}: expected a multiple of 16 and of 8 token sides")

    @property
    def language_pieces(self) -> int:
        """Return into how many pieces an instruction is cut, besides being embedded whole."""
        return self.language_dim // EMBEDDING_DIM - 1

    def get_optimizer_preset(self) -> AdamWConfig:
        """Return LeRobot's AdamW with this policy's settings."""
        return AdamWConfig(
            lr=self.optimizer_lr,
            weight_decay=self.optimizer_weight_decay,
            grad_clip_norm=self.optimizer_grad_clip_norm,
        )

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
        if not self.image_features:
            raise InvalidInputError(f"engram_vla: no camera among the inputs {sorted(self.input_features or {})}")
        if self.robot_state_feature is None:
            raise InvalidInputError(f"engram_vla: no observation.state among {sorted(self.input_features or {})}")
        if self.action_feature is None:
            raise InvalidInputError(f"engram_vla: no action among the outputs {sorted(self.output_features or {})}")

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
