"""What a learning algorithm has to offer. The learner paces it, feeds it, saves it and ships its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import Lineage

if TYPE_CHECKING:
    from engram.core.motion_correction import MotionCorrection
    from engram.learning.replay.buffer import Batch, Episode, Windows


class Algorithm(ABC):
    """An update rule together with the weights that it updates.

    An algorithm of your own is a function (or class) of one argument, the policy to start from, that returns one of
    these. The learner takes its name as ``package.module:attribute``.
    """

    lineage: Lineage
    """Of its weights: the learner takes experience of this lineage alone, and its candidates carry it."""
    whole_episodes: bool = False
    """What updates and corrections learn from. False = single control steps, a ``Batch``. True = the next ``Windows``
    of episodes that are walked through from their begin, as a policy with a memory of its episode needs them."""
    whole_replay: bool = False
    """An update gets all episodes of the replay buffer instead, the oldest first, and draws by itself."""
    learns_from_failures: bool = False
    """The learner takes judged failures, too, and successes in which the policy acted alone."""
    token_width: int = 0
    """Numbers in a token of memory/context that the policy acts on. The learner takes no experience without such
    tokens, which would unlearn their use. 0: it acts on none, and none reach it."""
    can_correct: bool = False
    """Whether :meth:`correct` can make a correction of the motions part of the weights."""
    frozen: str = ""
    """Why no update can be taken, in words, so that corrections alone teach; empty: updates can be."""
    chunk_steps: int = 0
    """Actions in a chunk of the policy; 0 = as ``ReplayConfig.chunk_size`` says."""

    @abstractmethod
    def update(self, batch: Batch | Windows | Sequence[Episode], seed: int) -> Mapping[str, float]:
        """Take one optimiser step on ``batch`` and return its metrics, ``loss`` among them.

        Everything random follows from ``seed``.
        """

    @abstractmethod
    def weights(self) -> bytes:
        """Return the weights to ship, as a safetensors file."""

    @abstractmethod
    def save(self) -> bytes:
        """Return the whole training state: weights, optimiser, averages."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Go on from what :meth:`save` returned; raises WeightsError, and changes nothing, if it does not fit."""

    @abstractmethod
    def begin(self, weights: bytes) -> None:
        """Begin anew from what :meth:`weights` returned once: those weights, and nothing of the training since.

        Raises:
            WeightsError: they do not fit; nothing has changed.
        """

    def forget_episodes(self) -> None:  # noqa: B027
        """Take note that the numbers of episodes mean others from now on: they are of another store."""

    def waits_for(self, episodes: Sequence[Episode]) -> str:
        """Return what updates wait for while the replay buffer holds ``episodes``, in words; empty: for nothing."""
        return ""

    def see(self, others: Sequence[Episode]) -> None:  # noqa: B027
        """Take what the policy saw while it carried out other goals than those that are practised, not to unlearn them.

        Called before the first update, if at all; an algorithm that has no use for it does nothing.
        """

    def correct(
        self,
        shown: Sequence[tuple[Batch | Windows, MotionCorrection]],
        seed: int,
        check: Callable[[], None] = lambda: None,
        others: Sequence[Episode] = (),
    ) -> Mapping[str, float]:
        """Make the policy as it is, its motions corrected in what is shown, batch by batch; return metrics with
        ``loss``.

        Args:
            shown: batches, each with the correction of the motions in it; with ``whole_episodes`` a whole episode each.
            seed: of everything random.
            check: called now and then: what it raises is raised, and nothing has changed.
            others: what the policy saw when it carried out other goals, whose answers it keeps.

        Raises:
            InvalidInputError: this algorithm cannot do it.
            WeightsError: what came of it is not finite; nothing has changed.
        """
        raise InvalidInputError(
            f"{type(self).__name__} cannot make a correction part of the weights; practise without one (search 0)"
        )

    def shrink(self, feature: str, images: np.ndarray) -> np.ndarray:
        """Return the images (n, 3, H, W) uint8 of ``feature`` at the size that the policy sees; replay keeps these."""
        return np.ascontiguousarray(images)
