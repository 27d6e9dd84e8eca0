"""Configuration of the ``engram_vla`` policy, registered with LeRobot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import NormalizationMode

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM
from engram.policies.lerobot.policy_config import PolicyConfig

LANGUAGE_KEY = "observation.language.embedding"
"""(B, language_dim) float32: the instruction and its pieces, embedded by the processor."""


@PreTrainedConfig.register_subclass("engram_vla")
@dataclass
class EngramVLAConfig(PolicyConfig):
    """Shape of the small network; the fields of :class:`PolicyConfig` come before these."""

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
    """Training only: the light in which each image was taken is made brighter or darker by up to this share."""
    conv_channels: tuple[int, ...] = (16, 32, 64, 128)
    """Channels of the four convolutions of a camera."""
    keypoints: int = 32
    """Spatial-softmax keypoints per camera."""
    image_tokens_side: int = 4
    """A camera gives ``image_tokens_side**2`` tokens."""
    layers: int = 3
    """Transformer blocks."""
    mlp_ratio: int = 2
    """Width of a block's MLP in units of ``dim``."""
    language_dim: int = 5 * EMBEDDING_DIM
    """Length of the instruction's embedding: 384 for the sentence and 384 for each of its consecutive pieces."""
    head_width: int = 256
    """Width of the flow head's residual blocks."""
    head_blocks: int = 3
    """Residual blocks of the flow head."""
    state_dropout: float = 0.1
    """Training only: chance that a sample's proprioception is withheld from the action head."""
    flow_draws: int = 4
    """Flow times and noises drawn per encoded observation in the loss."""
    euler_steps: int = 6
    """Euler steps when sampling a chunk."""
    noise_scale: float = 0.5
    """Scale of the initial noise when sampling: below 1 prefers the mode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.conv_channels = tuple(self.conv_channels)  # JSON brings lists
        self.crops = {camera: (top, left, side) for camera, (top, left, side) in self.crops.items()}
        positive_int("euler_steps", self.euler_steps)
        if not 0.0 <= self.noise_scale < math.inf:
            raise InvalidInputError(f"noise_scale: {self.noise_scale}, expected a finite number, 0 or more")
        if len(self.conv_channels) != 4:
            raise InvalidInputError(f"conv_channels: {self.conv_channels}, expected four")
        if self.language_dim < EMBEDDING_DIM or self.language_dim % EMBEDDING_DIM:
            raise InvalidInputError(f"language_dim: {self.language_dim}, expected a multiple of {EMBEDDING_DIM}")
        for size in (self.image_size, *self.camera_sizes.values()):
            self.check_cells(size)
            if size % 16 or (size // 8) % self.image_tokens_side:
                raise InvalidInputError(f"image size {size}: expected a multiple of 16 and of 8 token sides")

    @property
    def language_pieces(self) -> int:
        """Return into how many pieces an instruction is cut, besides being embedded whole."""
        return self.language_dim // EMBEDDING_DIM - 1
