"""The contract of a network that acts with a memory of its episode, whatever understands the pictures for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor, nn

from engram.policies.sequence_memory import State
from engram.policies.vla.flow import Guide
from engram.policies.vla.recall import Recall

STATE_KEY = "observation.state"


@dataclass(frozen=True, kw_only=True)
class Percept:
    """What one observation was understood as; a network adds what its action head needs besides."""

    cognition: Tensor  # (B, d): the cognitive token, the tokens of memory/context already fused in
    pictures: Tensor  # (B, n, d): what the cameras see, for a memory to look for something in it
    colours: Tensor | None = None  # (B, cells, 3): mean colours of image cells, likewise; None = it has none
    feature: Tensor | None = None  # (B, f): what a memory of the episode writes; None = there is no such memory
    reading: Tensor | None = (
        None  # (B, d + color_tokens): what that memory holds ready for this observation; None = not asked
    )

    def at(self, which: Tensor) -> Self:
        """Return those of observations ``which`` (n,) int64."""
        parts: dict[str, Any] = {name: None if part is None else part[which] for name, part in vars(self).items()}
        return type(self)(**parts)


class RememberingNetwork(nn.Module, ABC):
    """Perceive, write, read, act. What is read conditions the action head; memory never reads actions."""

    recall: Recall | None
    """The memory of the episode and its gate; None = acts by the present alone."""
    noise_shape: tuple[int, int]
    """(h, a) of the noise that a chunk is made from."""
    sees_itself: bool = False
    """What it perceives comes with the robot's own state, for the action head: frames cannot share it."""

    @property
    @abstractmethod
    def reads_context(self) -> bool:
        """Whether the tokens of memory/context change anything: the gate that they come through is open."""

    @abstractmethod
    def perceive(self, batch: dict[str, Tensor]) -> Percept:
        """Understand what the preprocessor returned for observations (B,); never by proprioception."""

    @abstractmethod
    def loss(self, batch: dict[str, Tensor], percept: Percept | None = None) -> Tensor:
        """Return the flow-matching loss; ``percept`` is what ``batch`` was understood as, where that is known."""

    @abstractmethod
    def sample(
        self, batch: dict[str, Tensor], noise: Tensor, percept: Percept | None = None, guide: Guide | None = None
    ) -> Tensor:
        """Return normalised chunks (B, h, action) reached from ``noise`` (B, *noise_shape)."""

    def note(self, percept: Percept) -> Percept:
        """Return ``percept`` with what a memory of the episode is to write of it."""
        if self.recall is None:
            return percept
        return replace(percept, feature=self.recall.feature(percept.cognition, percept.pictures, percept.colours))

    def observe(self, batch: dict[str, Tensor], state: State, time_s: Tensor) -> tuple[Percept, State]:
        """Understand one control step (B,), write it into the episode's memory and read that for it.

        ``time_s`` (B,) is the time since each episode began; ``state`` comes from the step before, or from
        ``recall.memory.begin``.
        """
        percept, recall = self.perceive(batch), self.recall
        assert recall is not None and percept.feature is not None
        robot = batch[STATE_KEY]
        reading, state = recall(
            state, percept.feature[:, None], percept.cognition[:, None], robot[:, None], time_s[:, None]
        )
        return replace(percept, reading=reading[:, 0]), state
