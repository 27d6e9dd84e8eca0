"""The contract of a network with a sequence memory, whatever encodes its images."""

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
    """The encoding of one observation; a network adds what else its action head needs."""

    cognition: Tensor  # (B, d): the cognitive token; with_context fuses the tokens of memory/context in
    pictures: Tensor  # (B, n, d): image tokens, in which a memory can search
    colours: Tensor | None = None  # (B, cells, 3): mean colours of image cells, likewise; None = it has none
    feature: Tensor | None = None  # (B, f): what a memory of the episode writes; None = there is no such memory
    reading: Tensor | None = None  # (B, d + color_tokens): the memory's reading for this observation; None = not read

    def at(self, which: Tensor) -> Self:
        """Return those of observations ``which`` (n,) int64."""
        parts: dict[str, Any] = {name: None if part is None else part[which] for name, part in vars(self).items()}
        return type(self)(**parts)


class RememberingNetwork(nn.Module, ABC):
    """Look, fuse the context in, write, read, act.

    The reading conditions the action head; memory never receives actions.
    """

    recall: Recall | None
    """The sequence memory and its gate; None = acts on the current observation alone."""
    noise_shape: tuple[int, int]
    """(h, a) of the noise that a chunk is made from."""
    sees_itself: bool = False
    """Whether a percept contains the robot's state for the action head, so that frames cannot share it."""

    @property
    @abstractmethod
    def reads_context(self) -> bool:
        """Whether training has opened the gate through which the tokens of memory/context come."""

    @abstractmethod
    def look(self, batch: dict[str, Tensor]) -> Percept:
        """Encode images and instruction of the preprocessed observations (B,), and nothing else."""

    @abstractmethod
    def with_context(self, percept: Percept, batch: dict[str, Tensor]) -> Percept:
        """Return ``percept`` with the tokens of memory/context in ``batch`` fused into its cognition, if it has any.

        Apart from :meth:`look`, because the tokens' age changes at every step, the images of a waiting robot do not.
        """

    def perceive(self, batch: dict[str, Tensor]) -> Percept:
        """Encode the preprocessed observations (B,), without proprioception."""
        return self.note(self.with_context(self.look(batch), batch))

    @abstractmethod
    def loss(self, batch: dict[str, Tensor], percept: Percept | None = None) -> Tensor:
        """Return the flow-matching loss; ``percept`` is what ``batch`` was understood as, where that is known."""

    @abstractmethod
    def sample(
        self, batch: dict[str, Tensor], noise: Tensor, percept: Percept | None = None, guide: Guide | None = None
    ) -> Tensor:
        """Return normalised chunks (B, h, action) reached from ``noise`` (B, *noise_shape)."""

    def note(self, percept: Percept) -> Percept:
        """Return ``percept`` with the feature that a sequence memory writes."""
        if self.recall is None:
            return percept
        return replace(percept, feature=self.recall.feature(percept.cognition, percept.pictures, percept.colours))

    def observe(self, batch: dict[str, Tensor], state: State, time_s: Tensor) -> tuple[Percept, State]:
        """Encode one control step (B,), write it into the sequence memory and read.

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
