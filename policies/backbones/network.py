"""A frozen backbone with a sequence memory, the only part that is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from lerobot.policies.common.flow_matching import euler_integrate
from torch import Tensor, nn

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_AGE_KEY, MEMORY_MASK_KEY, MEMORY_PLACE_KEY, MEMORY_TOKENS_KEY
from engram.policies.backbones.trunk import Prefix, Trunk
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.sequence_memory import NONE
from engram.policies.vla.contract import Percept, RememberingNetwork
from engram.policies.vla.flow import Guide, Velocity, integrate
from engram.policies.vla.layers import MemoryRead
from engram.policies.vla.likeness import cell_colours
from engram.policies.vla.recall import Recall

PICTURES = 16
"""Tokens that a camera keeps for the memory: means of neighbours in a row of the picture."""

UNIT_STD = 0.25
"""About the standard deviation of colours in 0..1, as the backbone takes them: of unit size they can be compared."""


@dataclass(frozen=True, kw_only=True)
class TrunkPercept(Percept):
    """What the backbone saw."""

    prefix: Prefix
    context: Tensor | None = None  # (B, d): what was read in the tokens of memory/context; None = there is no memory


class BackboneNetwork(RememberingNetwork):
    """Perceives with the backbone, remembers with :class:`Recall`, and acts with the backbone's action expert,
    modulated by the memory.

    ``trunk`` is no submodule: its weights are not saved, trained or copied with the memory's.
    """

    sees_itself = True  # SmolVLA's prefix holds the robot's state, for its action expert

    def __init__(self, config: EngramBackboneConfig, trunk: Trunk) -> None:
        super().__init__()
        config.validate_features()
        assert config.action_feature is not None
        self.trunk, self.noise_shape = trunk, trunk.noise_shape
        self.action = config.action_feature.shape[0]
        self.recall = None
        if config.memory == NONE:
            return
        self.words, self.pictures = _enter(trunk.width, config.dim), _enter(trunk.width, config.dim)
        self.context = MemoryRead(
            config.dim, config.heads, config.memory_dim, config.context_ranks, config.context_places
        )
        self.bent = (len(trunk.norms), 2, trunk.expert_width)
        self.cameras, self.cells = sorted(config.image_features), config.memory_cells_side
        self.seen = PICTURES * len(self.cameras)
        cells = len(self.cameras) * self.cells**2
        self.recall = Recall(config, self.bent[0] * self.bent[1] * self.bent[2], self.seen, cells)

    @property
    def reads_context(self) -> bool:
        """Whether there is a memory, and training has opened its gate to memory/context."""
        return self.recall is not None and bool(self.context.gate.any())

    def look(self, batch: dict[str, Tensor]) -> Percept:
        """Run the vision-language model and project what it saw to the memory's width."""
        prefix = self.trunk.look(batch)
        if self.recall is None:
            return TrunkPercept(cognition=prefix.words, pictures=prefix.pictures, prefix=prefix)
        pooled = nn.functional.adaptive_avg_pool1d(prefix.pictures.float().transpose(1, 2), self.seen).transpose(1, 2)
        images = [(batch[camera].float() - 0.5) / UNIT_STD for camera in self.cameras]
        return TrunkPercept(
            cognition=self.words(prefix.words.float()),
            pictures=self.pictures(pooled),
            prefix=prefix,
            colours=cell_colours(images, self.cells) if self.cells else None,
        )

    def with_context(self, percept: Percept, batch: dict[str, Tensor]) -> Percept:
        """Return ``percept`` with the tokens of memory/context in ``batch`` fused in, where there is a memory."""
        if self.recall is None:
            return percept
        assert isinstance(percept, TrunkPercept)
        tokens, alone = batch.get(MEMORY_TOKENS_KEY), percept.cognition
        if tokens is None:
            return replace(percept, context=torch.zeros_like(alone))
        age, place, mask = (batch[key] for key in (MEMORY_AGE_KEY, MEMORY_PLACE_KEY, MEMORY_MASK_KEY))
        cognition = self.context(alone, tokens, age, place, mask.bool())
        return replace(percept, cognition=cognition, context=cognition - alone)

    def loss(self, batch: dict[str, Tensor], percept: Percept | None = None) -> Tensor:
        """Return the flow-matching loss of ``batch``, as LeRobot trains these policies; gradients reach the memory."""
        percept = percept or self.perceive(batch)
        assert isinstance(percept, TrunkPercept)
        action = batch["action"]
        rows, width = self.noise_shape
        chunk = nn.functional.pad(action, (0, width - self.action))
        noise = torch.randn(len(chunk), rows, width, device=chunk.device)
        # the noise level is Beta(1.5, 1): early times carry the decision
        time = 0.999 * torch.rand(len(chunk), device=chunk.device).pow(2 / 3) + 0.001
        level = time[:, None, None]
        with self.trunk.modulated(self._modulation(percept)):
            velocity = self.trunk.velocity(percept.prefix, level * noise + (1 - level) * chunk, time)
        error = (velocity - (noise - chunk))[..., : self.action].square()
        unlearnt = batch.get(UNLEARNT_KEY)
        valid = torch.ones_like(error) if unlearnt is None else (~unlearnt)[..., None].expand_as(error).to(error.dtype)
        return (error * valid).sum() / valid.sum().clamp(min=1.0)

    @torch.no_grad()
    def sample(
        self, batch: dict[str, Tensor], noise: Tensor, percept: Percept | None = None, guide: Guide | None = None
    ) -> Tensor:
        """Return normalised chunks (B, h, action): by LeRobot's own integration, and to its bits, without a guide."""
        percept = percept or self.perceive(batch)
        assert isinstance(percept, TrunkPercept)
        prefix, steps = percept.prefix, self.trunk.denoising_steps
        with self.trunk.modulated(self._modulation(percept)):
            if guide is None:
                chunk = euler_integrate(lambda x, time: self.trunk.velocity(prefix, x, time), noise, steps)
            else:
                # our time runs from noise to actions, LeRobot's the other way round
                velocity: Velocity = lambda x, t: -self.trunk.velocity(prefix, x[:, 0], 1 - t[:, 0])[:, None]  # noqa: E731
                chunk = integrate([guide(velocity)] * steps, noise[:, None])[:, 0]
        return chunk[..., : self.action]

    def _modulation(self, percept: TrunkPercept) -> Tensor | None:
        """Return the memory's modulation of the action expert (B, layers, 2, width); None = memory was not read."""
        if self.recall is None or percept.reading is None or percept.context is None:
            return None
        reading = percept.reading + nn.functional.pad(percept.context, (0, self.recall.memory.color_tokens))
        flat = torch.zeros(len(reading), self.bent[0] * self.bent[1] * self.bent[2], device=reading.device)
        told = self.recall.condition(flat, percept.cognition, reading, percept.pictures, percept.colours)
        return told.unflatten(1, self.bent)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        self.trunk.apply(fn)  # .to() moves the trunk along
        return super()._apply(fn, recurse)


def _enter(width: int, dim: int) -> nn.Sequential:
    """Return the projection from the backbone's tokens, whose norms vary widely, to the memory's."""
    return nn.Sequential(nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, dim), nn.LayerNorm(dim))
