"""The interface that a large LeRobot policy needs so that a sequence memory can be added to it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor, nn


@dataclass(frozen=True)
class Prefix:
    """What the vision-language model made of observations; the action expert reads it from the cache."""

    words: Tensor  # (B, w): mean of the instruction's tokens, which have attended to the images
    pictures: Tensor  # (B, n, w) tokens of the cameras
    readable: Tensor  # (B, L) bool, False = padding
    state: Tensor  # (B, s) normalised proprioception, padded; only the action expert may use it
    cache: Any  # keys and values of every layer

    def __getitem__(self, which: Tensor) -> Prefix:
        """Return the prefixes of observations ``which`` (n,) int64."""
        cache = own(self.cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[which], layer.values[which]
        return Prefix(self.words[which], self.pictures[which], self.readable[which], self.state[which], cache)


class Trunk(ABC):
    """A frozen SmolVLA or pi0 in two parts: the vision-language model runs once, the action expert as often as needed.

    Memory reaches the action expert by AdaLN (Peebles & Xie 2023): what the first norm of a layer returns is scaled by
    1 + s and shifted by t. A modulation of zeros gives the bits of the policy as it was.

    Copies are the trunk itself: it never changes, and a second one may not fit into memory.
    """

    def __init__(self, policy: PreTrainedPolicy) -> None:
        self.policy: Any = policy.eval().requires_grad_(False)
        self._modulation: Tensor | None = None
        for i, norm in enumerate(self.norms):
            norm.register_forward_hook(partial(self._modulate, i))

    @property
    @abstractmethod
    def norms(self) -> Sequence[nn.Module]:
        """The first norm of every layer of the action expert."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Width w of the vision-language model."""

    @property
    @abstractmethod
    def denoising_steps(self) -> int:
        """Euler steps from noise to a chunk."""

    @abstractmethod
    def look(self, batch: dict[str, Tensor]) -> Prefix:
        """Run the vision-language model on what the policy's own preprocessor returned."""

    @abstractmethod
    def velocity(self, prefix: Prefix, x: Tensor, time: Tensor) -> Tensor:
        """Return the action expert's velocity (B, h, A) at ``x`` (B, h, A) and ``time`` (B,), 1 = noise."""

    @property
    def expert_width(self) -> int:
        """Width of the action expert."""
        return int(self.policy.model.action_in_proj.out_features)

    @property
    def noise_shape(self) -> tuple[int, int]:
        """(h, A): a chunk's rows, and the length to which actions are padded."""
        return self.policy.config.chunk_size, self.policy.config.max_action_dim

    @contextmanager
    def modulated(self, modulation: Tensor | None) -> Iterator[None]:
        """Modulate the action expert by ``modulation`` (B, layers, 2, expert width): scales and shifts; None =
        unchanged."""
        self._modulation = modulation
        try:
            yield
        finally:
            self._modulation = None

    def apply(self, function: Any) -> None:
        """Do to the policy's tensors what torch's ``Module.to`` does."""
        self.policy._apply(function)

    def __deepcopy__(self, memo: dict[int, Any]) -> Trunk:
        return self

    def _modulate(self, layer: int, module: nn.Module, inputs: Any, output: Any) -> Any:
        if self._modulation is None:
            return None  # torch then leaves the output as it is
        hidden = output[0] if isinstance(output, tuple) else output
        scale, shift = self._modulation[:, layer, :, None].to(hidden.dtype).unbind(1)  # (B, 1, w) each
        hidden = hidden * (1 + scale) + shift
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


def own(cache: Any) -> Any:
    """Return ``cache`` with the same tensors, to be changed without a trace in the original."""
    fresh = copy.copy(cache)
    fresh.layers = [copy.copy(layer) for layer in cache.layers]
    return fresh


def mean_of(tokens: Tensor, readable: Tensor) -> Tensor:
    """Return the mean (B, w) of those of ``tokens`` (B, n, w) that are ``readable`` (B, n) bool."""
    weight = readable[..., None].to(tokens.dtype)
    return (tokens * weight).sum(1) / weight.sum(1).clamp(min=1.0)
