"""What a search returns, and how its scores are weighed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engram.core.types import SceneNode
from engram.memory.storage.fact_columns import Fact

Stays = Callable[[Sequence[SceneNode], int], Sequence[float | None]]
"""Nodes and a time [ns] -> the chance that each is still where it was last seen; None: no experience."""


@dataclass(frozen=True)
class RetrievalConfig:
    """How the parts of a score weigh."""

    half_distance_m: float = 1.0
    """A node this far from the given place scores half."""
    cosine_min: float = 0.45
    """A node whose embedding is less similar than this to the words is no answer."""
    cosine_margin: float = 0.25
    """Nor is one that is less similar than the best node by this much: a question for the bowl does not return the
    cup."""
    cosine_sure: float = 0.7
    """From this similarity on the words are taken to mean the node."""
    near_m: float = 0.5
    """What "near" means between the centres of two objects."""
    agent_persistence_s: float = 600.0
    """The same as ``persistence_s`` for another robot, whose position is only known from its messages."""
    persistence_s: float = 7 * 86400.0
    """Time in which the chance that an unseen object is still where it was falls to 1 / e, while nothing is known of
    how long objects of its class stay."""


@dataclass(frozen=True)
class Hits:
    """Nodes, best first."""

    nodes: tuple[SceneNode, ...] = ()
    scores: tuple[float, ...] = ()  # 0..1, for ranking
    confidence: tuple[float, ...] = ()  # 0..1, that the node is what was asked for and was where it says
    facts: tuple[Fact | None, ...] = ()  # what each rests on
    believed: tuple[bool, ...] = ()  # that each is there: its belief is at least one half; () = all
    total: int = 0  # how many that fit are believed to be there, more than the limit lets through
    stands: tuple[float, ...] = ()  # 0..1, that what each stands in relation to is there; () = all do

    def is_believed(self, i: int) -> bool:
        """Whether number ``i`` is believed enough to be told as a fact."""
        return self.believed[i] if self.believed else True

    def is_told(self, i: int) -> bool:
        """Whether number ``i`` is told as a fact in a list: it is believed to be there, and to stand as was asked."""
        return self.is_believed(i) and (not self.stands or self.stands[i] >= 0.5)

    def chosen(self, order: Sequence[int]) -> Hits:
        """Return the hits with the numbers ``order``, in that order; ``total`` is how many of these are told."""
        believed = tuple(self.is_believed(i) for i in order)
        return Hits(
            tuple(self.nodes[i] for i in order), tuple(self.scores[i] for i in order),
            tuple(self.confidence[i] for i in order), tuple(self.facts[i] for i in order),
            believed, sum(map(self.is_told, order)), tuple(self.stands[i] for i in order) if self.stands else (),
        )  # fmt: skip
