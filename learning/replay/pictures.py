"""The pictures of episodes one after the other in one large array a camera, from which a batch is taken by one call.

Taken from an array of each episode, a batch takes half as long again: large arrays lie on large pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from engram.learning.replay.buffer import Episode

SPARE = 4
"""One of so many steps more than there are fit in before everything moves to larger arrays."""


class PictureStore:
    """Where the pictures of episodes lie. While they move, there are two of each."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}  # camera -> (room, 3, H, W)
        self._held: dict[int, Episode] = {}  # by their numbers, with pictures that are views of these
        self._begins: dict[int, int] = {}
        self._used = self._room = 0  # steps

    def hold(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Return ``episodes`` with pictures that lie in here, and let go of those of all others."""
        here = {e.number: e for e in episodes if self._held.get(e.number) is e}
        new = [e for e in episodes if e.number not in here]
        if self._used + sum(map(len, new)) > self._room:
            here, new, self._used = {}, list(episodes), 0
            steps = sum(map(len, episodes))
            self._room = steps + steps // SPARE
            shapes = {name: (stack.shape[1:], stack.dtype) for name, stack in episodes[0].images.items()}
            self._arrays = {name: np.empty((self._room, *shape), dtype) for name, (shape, dtype) in shapes.items()}
        self._begins = {number: self._begins[number] for number in here}
        for episode in new:
            here[episode.number] = self._with(episode)
        self._held = here
        return [here[e.number] for e in episodes]

    def _with(self, episode: Episode) -> Episode:
        """Return ``episode`` with pictures that lie behind all others."""
        begin, end = self._used, self._used + len(episode)
        images = {}
        for name, array in self._arrays.items():
            array[begin:end] = episode.images[name]
            images[name] = array[begin:end]
        self._begins[episode.number], self._used = begin, end
        return replace(episode, images=images)

    def places(self, episodes: Sequence[Episode]) -> np.ndarray:
        """Return where the steps (n,) of ``episodes`` lie, one episode after the other."""
        begins = (self._begins[e.number] for e in episodes)
        return np.concatenate([np.arange(begin, begin + len(e)) for begin, e in zip(begins, episodes, strict=True)])

    def at(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Return the pictures (b, 3, H, W) of each camera at ``places`` (b,)."""
        return {name: np.take(array, places, axis=0) for name, array in self._arrays.items()}
