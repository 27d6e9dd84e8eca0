"""What a source of verdicts has to offer. No source knows a simulator's truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from engram.core.types import Features, Hand, SceneNode, Verdict


@dataclass(frozen=True)
class Moment:
    """What is known at one instant of an episode."""

    stamp_ns: int
    episode: int
    objects: Sequence[SceneNode] = ()
    """What the memory believes of the objects that an instruction may mean, in ``base_link``."""
    hand: Hand | None = None
    features: Features | None = None
    """What the policy makes of its newest observation; None: it tells none."""


class RewardSource(ABC):
    """Judges whether an instruction is carried out; begins anew with every episode."""

    name: str
    """Of the source, in ``Verdict.source``."""
    reads_features: bool = False
    """Whether it judges by ``Moment.features``, which take the policy some milliseconds."""

    @abstractmethod
    def begin(self, instruction: str) -> None:
        """Take the words of a new episode."""

    def knows(self, instruction: str) -> bool:
        """Whether it can judge, in principle, what the words ``instruction`` want."""
        return True

    @property
    def things(self) -> tuple[str, ...]:
        """What the words of this episode name: descriptions of the objects that it wants to be told of."""
        return ()

    def shift(self, by_ns: int, now_ns: int) -> None:  # noqa: B027
        """Move by ``by_ns`` the stamps that are kept and lie after ``now_ns``.

        The clock was set back to ``now_ns``, and the memory moved all of its own stamps so.
        """

    @abstractmethod
    def judge(self, moment: Moment) -> Verdict:
        """Return what this source thinks now; where it cannot tell it says so, and why."""
