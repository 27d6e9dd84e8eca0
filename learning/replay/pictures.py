"""The pictures of episodes, several episodes in one large array a camera: a batch is copied out of a few large arrays.

Taken from an array of each episode, a batch takes half as long again: large arrays lie on large pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from engram.learning.replay.buffer import Episode

BLOCK, BLOCKS = 1024, 16
"""Most steps of a block, unless an episode is longer; a full store has so many blocks or more, so that one of them is
a small part of it."""
DEAD = 16
"""At most one of so many steps may be of episodes that have gone."""


@dataclass(eq=False)
class _Block:
    """Arrays that are filled from their beginning; no step of them is written twice."""

    arrays: dict[str, np.ndarray]  # camera -> (room, 3, H, W)
    room: int
    used: int = 0
    episodes: dict[int, Episode] = field(default_factory=dict)  # by their numbers, with pictures that are views of this

    @property
    def dead(self) -> int:
        """Steps of episodes that have gone."""
        return self.used - sum(map(len, self.episodes.values()))


class PictureStore:
    """Where the pictures of episodes lie, in blocks.

    What an episode leaves that goes is not written again, as somebody may still look at it. A block is freed as a whole
    once the episodes that it still has are moved to others, block by block: there never are two of all pictures.

    Args:
        capacity: about so many steps are held when it is full.
    """

    def __init__(self, capacity: int) -> None:
        self._room = max(1, min(BLOCK, capacity // BLOCKS))
        self._blocks: dict[int, _Block] = {}
        self._numbers = itertools.count()
        self._lies: dict[int, tuple[int, int]] = {}  # episode -> its block, and its first step there

    def take_in(self, episode: Episode) -> Episode:
        """Return ``episode`` with pictures that lie in here."""
        steps = len(episode)
        fits = (number for number, block in self._blocks.items() if block.room - block.used >= steps)
        number = next(fits, None)
        if number is None:
            number, room = next(self._numbers), steps * max(1, self._room // steps)
            arrays = {name: np.empty((room, *one.shape[1:]), one.dtype) for name, one in episode.images.items()}
            self._blocks[number] = _Block(arrays, room)
        block = self._blocks[number]
        begin, block.used = block.used, block.used + steps
        images = {name: array[begin : block.used] for name, array in block.arrays.items()}
        for name, stack in images.items():
            stack[:] = episode.images[name]
        block.episodes[episode.number] = held = replace(episode, images=images)
        self._lies[episode.number] = number, begin
        return held

    def let_go(self, episode: int) -> Iterator[Episode]:
        """Forget an episode by its number; yield those that move, which take the place of what :meth:`take_in` gave."""
        number, _ = self._lies.pop(episode)
        del self._blocks[number].episodes[episode]
        if not self._blocks[number].episodes:
            del self._blocks[number]
        while sum(block.dead for block in self._blocks.values()) * DEAD > sum(b.used for b in self._blocks.values()):
            block = self._blocks.pop(max(self._blocks, key=lambda one: self._blocks[one].dead))
            for one in block.episodes.values():
                yield self.take_in(one)

    def places(self, episodes: Sequence[Episode]) -> np.ndarray:
        """Return block and step (n, 2) of the steps of ``episodes``, one episode after the other."""
        lengths = [len(e) for e in episodes]
        places = np.repeat(np.array([self._lies[e.number] for e in episodes]), lengths, axis=0)
        places[:, 1] += np.concatenate([np.arange(length) for length in lengths])
        return places

    def at(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Return the pictures (b, 3, H, W) of each camera at ``places`` (b, 2)."""
        wanted, found = places.tolist(), {}
        for name in self._blocks[wanted[0][0]].arrays:
            arrays = {number: block.arrays[name] for number, block in self._blocks.items()}
            found[name] = np.concatenate([arrays[number][step : step + 1] for number, step in wanted])
        return found
