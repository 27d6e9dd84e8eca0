"""The network of ``engram_vla``: cameras and instruction -> cognition -> memory -> flow head."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_AGE_KEY, MEMORY_MASK_KEY, MEMORY_PLACE_KEY, MEMORY_TOKENS_KEY
from engram.core.errors import InvalidInputError
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY, EngramVLAConfig
from engram.policies.sequence_memory import NONE
from engram.policies.vla.contract import STATE_KEY, Percept, RememberingNetwork
from engram.policies.vla.flow import Guide, flow_matching_loss, integrate
from engram.policies.vla.layers import Block, CameraEncoder, FlowHead, MemoryRead
from engram.policies.vla.likeness import cell_colours
from engram.policies.vla.recall import Recall

BLACK = -4.0
"""Black in a normalised picture, about: the mean of pictures of a table is three to five of their standard deviations.
Darker light brings all of a picture nearer to it."""


@dataclass(frozen=True, kw_only=True)
class Sight(Percept):
    """The encoding of one observation by our small network."""

    keypoints: Tensor  # (B, cameras * 2 K) in [-1, 1]


class EngramVLA(RememberingNetwork):
    """Vision, language and memory -> action chunks by flow matching."""

    language_mean: Tensor
    language_std: Tensor

    def __init__(self, config: EngramVLAConfig) -> None:
        super().__init__()
        config.validate_features()
        assert config.robot_state_feature is not None and config.action_feature is not None
        self.config = config
        self.flow_start = 1.0
        """Scale of the noise that the flow begins with in training. Who learns from answers of this very network takes
        the ``noise_scale`` that these were sampled with: else each round of it leads them further to their mode."""
        self.cameras = sorted(config.image_features)
        d = config.dim
        # sentence vectors of one domain lie close together; without this, the color words would have little effect
        self.register_buffer("language_mean", torch.zeros(config.language_dim))
        self.register_buffer("language_std", torch.full((config.language_dim,), config.language_dim**-0.5))
        self.language = nn.Sequential(
            nn.Linear(config.language_dim, 2 * d), nn.SiLU(), nn.Linear(2 * d, d), nn.LayerNorm(d)
        )
        self.encoders = nn.ModuleList(
            CameraEncoder(config.conv_channels, d, config.keypoints, config.image_tokens_side, d) for _ in self.cameras
        )
        points = 2 * config.keypoints * len(self.cameras)
        self.keypoint_token = nn.Linear(points, d)
        self.cognitive_token = nn.Parameter(torch.randn(d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, config.heads, config.mlp_ratio) for _ in range(config.layers))
        self.norm = nn.LayerNorm(d)
        self.memory = MemoryRead(d, config.heads, config.memory_dim, config.context_ranks, config.context_places)
        state, action = config.robot_state_feature.shape[0], config.action_feature.shape[0]
        self.state = nn.Sequential(nn.Linear(state + 1, d), nn.SiLU(), nn.Linear(d, d))
        self.noise_shape = (config.chunk_size, action)
        self.condition_size = 2 * d + points
        self.head = FlowHead(config.chunk_size, action, self.condition_size, config.head_width, config.head_blocks)
        # last, so that the other weights begin as those of a network without memory
        pictures = 1 + len(self.cameras) * config.image_tokens_side**2
        cells = len(self.cameras) * config.memory_cells_side**2
        self.recall = None if config.memory == NONE else Recall(config, self.condition_size, pictures, cells)

    def standardise_language(self, embeddings: Tensor) -> None:
        """Fix mean and standard deviation of the instructions' embeddings from those of the data (n, 384)."""
        if len(embeddings) > 1:
            floor = 0.2 * self.config.language_dim**-0.5
            self.language_mean.copy_(embeddings.mean(0))
            self.language_std.copy_(embeddings.std(0).clamp(min=floor))

    @property
    def reads_context(self) -> bool:
        """Whether training has opened the gate to memory/context."""
        return bool(self.memory.gate.any())

    def words(self, embeddings: Tensor) -> Tensor:
        """Return what the network makes of the embeddings (B, n) of instructions: (B, d)."""
        words: Tensor = self.language((embeddings - self.language_mean) / self.language_std)
        return words

    def look(self, batch: dict[str, Tensor]) -> Percept:
        """Encode images and instruction of a normalised batch."""
        words = self.words(batch[LANGUAGE_KEY])
        images = [self._augment(batch[camera]) for camera in self.cameras]
        seen = [encoder(image, words) for encoder, image in zip(self.encoders, images, strict=True)]
        keypoints = torch.cat([points for _, points in seen], dim=1)
        cognitive = self.cognitive_token.expand(len(words), 1, -1)
        pictures = torch.cat([self.keypoint_token(keypoints)[:, None], *(t for t, _ in seen)], dim=1)
        x = torch.cat((cognitive, words[:, None], pictures), dim=1)
        for block in self.blocks[:-1]:
            x = block(x)
        x = self.blocks[-1](x, kept=1)  # only the cognitive token is read
        cells = self.config.memory_cells_side
        colours = None if self.recall is None or cells == 0 else cell_colours(images, cells)
        return Sight(cognition=self.norm(x[:, 0]), keypoints=keypoints, pictures=pictures, colours=colours)

    def with_context(self, percept: Percept, batch: dict[str, Tensor]) -> Percept:
        """Return ``percept`` with the tokens of memory/context in ``batch`` fused in.

        Raises:
            InvalidInputError: the tokens have another length than in training.
        """
        tokens = batch.get(MEMORY_TOKENS_KEY)
        if tokens is None:
            return percept
        if tokens.shape[-1] != self.config.memory_dim:
            raise InvalidInputError(
                f"{MEMORY_TOKENS_KEY}: length {tokens.shape[-1]}, expected {self.config.memory_dim}"
            )
        age, place, mask = (batch[key] for key in (MEMORY_AGE_KEY, MEMORY_PLACE_KEY, MEMORY_MASK_KEY))
        return replace(percept, cognition=self.memory(percept.cognition, tokens, age, place, mask.bool()))

    def loss(self, batch: dict[str, Tensor], percept: Percept | None = None) -> Tensor:
        """Return the flow-matching loss of ``batch``; every observation is encoded once for ``flow_draws`` draws.

        ``percept`` is the encoded ``batch``, if it is known already.
        """
        condition = self.condition(batch, percept)
        draws = self.config.flow_draws
        chunk = batch["action"][:, None].expand(-1, draws, -1, -1)
        unlearnt = batch.get(UNLEARNT_KEY)
        valid = None if unlearnt is None else ~unlearnt[:, None].expand(-1, draws, -1)
        # early times carry the decision, late ones only polish it: the noise level is Beta(1.5, 1), as in pi0
        time = 1.0 - torch.rand(chunk.shape[:2], device=chunk.device).pow(2 / 3)
        start = torch.randn(chunk.shape, device=chunk.device) * self.flow_start
        return flow_matching_loss(lambda x, t: self.head(x, t, condition), chunk, start, time, valid)

    @torch.no_grad()
    def sample(
        self, batch: dict[str, Tensor], noise: Tensor, percept: Percept | None = None, guide: Guide | None = None
    ) -> Tensor:
        """Return normalised chunks (B, h, a) reached from ``noise`` (B, h, a), the velocities bent by ``guide``."""
        condition = self.condition(batch, percept)
        start = noise[:, None] * self.config.noise_scale
        velocities = self.head.at_steps(condition, self.config.euler_steps)
        return integrate([guide(v) for v in velocities] if guide else velocities, start)[:, 0]

    def condition(self, batch: dict[str, Tensor], percept: Percept | None = None) -> Tensor:
        """Return what the action head is conditioned by (B, c); ``percept``: the encoded ``batch``, if known."""
        return self._condition(percept or self.perceive(batch), batch[STATE_KEY])

    def _condition(self, percept: Percept, state: Tensor) -> Tensor:
        """Join percept and proprioception (B, s), the latter sometimes withheld in training; (B, c)."""
        assert isinstance(percept, Sight)
        known = torch.ones_like(state[:, :1])
        if self.training and self.config.state_dropout > 0:
            known = (torch.rand_like(known) >= self.config.state_dropout).to(state.dtype)
        body = self.state(torch.cat((state * known, known), dim=1))
        condition = torch.cat((percept.cognition, percept.keypoints, body), dim=1)
        if self.recall is None or percept.reading is None:
            return condition
        return self.recall.condition(condition, percept.cognition, percept.reading, percept.pictures, percept.colours)

    def _augment(self, image: Tensor) -> Tensor:
        """In training, shift each image (B, 3, H, W) of the batch and change its light, each by its own draw."""
        if not self.training:
            return image
        if self.config.random_shift > 0:
            image = random_shift(image, self.config.random_shift)
        jitter = self.config.brightness_jitter
        if jitter > 0:
            brighter = 1 + jitter * (2 * torch.rand(len(image), 1, 1, 1, device=image.device) - 1)
            image = (image - BLACK) * brighter + BLACK
        return image


def encoder_digest(network: nn.Module) -> str:
    """Return 16 hex digits of all weights but the action head's: networks that have them alike see alike."""
    total = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        if not name.startswith("head."):
            total.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def random_shift(image: Tensor, pixels: int) -> Tensor:
    """Shift each image (B, 3, H, W) by its own whole number of pixels up to ``pixels``, repeating the border."""
    b, _, h, w = image.shape
    shift = torch.randint(-pixels, pixels + 1, (b, 2, 1), device=image.device)
    rows = (torch.arange(h, device=image.device) + shift[:, 0]).clamp(0, h - 1)
    columns = (torch.arange(w, device=image.device) + shift[:, 1]).clamp(0, w - 1)
    where = torch.arange(b, device=image.device)[:, None, None]
    return image.permute(0, 2, 3, 1)[where, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
