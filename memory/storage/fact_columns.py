"""The columns in which facts lie, the numbers that stand for words, and the rows that are in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from engram.core.types import observation_id

FOREVER = np.iinfo(np.int64).max
WORDS = ("node", "label", "relation", "target", "camera", "last_camera")
"""Columns that hold numbers of words."""
_COLUMNS = {  # name: (shape of a row, dtype)
    "place": ((3,), np.float32),
    "valid_from": ((), np.int64),
    "last_sight": ((), np.int64),
    "valid_to": ((), np.int64),
    "believed_from": ((), np.int64),
    "closed_at": ((), np.int64),
    "believed_to": ((), np.int64),
    "sure_from": ((), np.int64),
    "sure_to": ((), np.int64),
    "sights": ((), np.int32),
    "node": ((), np.int32),  # numbers of words
    "label": ((), np.int32),
    "relation": ((), np.int32),
    "target": ((), np.int32),
    "camera": ((), np.int32),  # that saw it first
    "last_camera": ((), np.int32),
    "present": ((), np.bool_),
    "used": ((), np.bool_),
}
TIMES = ("valid_from", "last_sight", "valid_to", "believed_from", "closed_at", "believed_to")
SURE = ("sure_from", "sure_to")
"""Columns of times, and of those between which a fact was an answer; in this order in the store."""


@dataclass(frozen=True)
class Fact:
    """One fact, as one reader sees it."""

    row: int
    node_id: str
    label: str
    place: np.ndarray  # (3,) m
    present: bool  # False: its place was seen without it
    relation: str  # on, in, held_by; empty = none
    target: str  # node id
    valid_from: int
    last_sight: int
    valid_to: int
    believed_from: int
    closed_at: int
    believed_to: int
    sights: int
    evidence: tuple[str, ...]  # observation ids, first and last
    sure_from: int = 0
    sure_to: int = FOREVER


class FactColumns:
    """One row a fact, in NumPy columns that grow; strings are kept once, as numbers into :attr:`words`."""

    COLUMNS = tuple(_COLUMNS)

    place: np.ndarray
    valid_from: np.ndarray
    last_sight: np.ndarray
    valid_to: np.ndarray
    believed_from: np.ndarray
    closed_at: np.ndarray
    believed_to: np.ndarray
    sure_from: np.ndarray
    sure_to: np.ndarray
    sights: np.ndarray
    node: np.ndarray
    label: np.ndarray
    relation: np.ndarray
    target: np.ndarray
    camera: np.ndarray
    last_camera: np.ndarray
    present: np.ndarray
    used: np.ndarray

    def __init__(self, capacity: int = 256) -> None:
        for name, (shape, dtype) in _COLUMNS.items():
            setattr(self, name, np.zeros((capacity, *shape), dtype))
        self.words: list[str] = [""]
        self.changed_words: set[int] = {0}
        self._free_words: list[int] = []  # numbers of words that no fact uses any more
        self._letters = 0  # in all words
        self._number: dict[str, int] = {"": 0}
        self._rows_of: dict[int, list[int]] = {}  # number of the node id -> its facts, in the order of belief
        self._current: dict[str, int] = {}  # node id -> its open fact
        self._pointing: dict[int, list[int]] = {}  # number of a target -> facts that pointed at it once
        self._free: list[int] = []
        self._top = 0
        self._tree: cKDTree | None = None  # over the places of the facts
        self._since: set[int] = set()  # facts whose place the tree does not know
        self.changed: set[int] = set()

    def __len__(self) -> int:
        """Return how many facts there are."""
        return self._top - len(self._free)

    def number(self, node_id: str) -> int:
        """Return the number of ``node_id`` in the column ``node``; -1 = no fact was ever stated of it."""
        return self._number.get(node_id, -1)

    def node_ids(self) -> list[str]:
        """Return every object that a fact was ever stated of."""
        return [self.words[number] for number in self._rows_of]

    def restore(self, columns: Mapping[str, np.ndarray], words: Sequence[str]) -> None:
        """Restore stored columns (n rows each) and the words that they number."""
        self._top = len(columns["used"])
        for name, (shape, dtype) in _COLUMNS.items():
            grown: np.ndarray = np.zeros((max(256, self._top), *shape), dtype)
            grown[: self._top] = columns[name]
            setattr(self, name, grown)
        self.words = list(words)
        self._letters = sum(map(len, words))
        self._number = {"": 0} | {word: number for number, word in enumerate(words) if word}
        self._free_words = [number for number, word in enumerate(words) if number and not word]
        self.changed_words = set()
        used = self.used[: self._top]
        self._free = np.flatnonzero(~used)[::-1].tolist()
        rows = np.flatnonzero(used)
        order = rows[np.lexsort((rows, self.believed_from[rows], self.node[rows]))]
        begins = np.flatnonzero(np.diff(self.node[order], prepend=-1))
        of, ends = self.node[order[begins]].tolist(), [*begins[1:].tolist(), len(order)]
        ordered = order.tolist()
        self._rows_of = {n: ordered[a:b] for n, a, b in zip(of, begins.tolist(), ends, strict=True)}
        for row in rows[self.target[rows] != 0].tolist():
            self._point(row)
        for row in rows[(self.valid_to[rows] == FOREVER) & (self.believed_to[rows] == FOREVER)].tolist():
            self._current[self.words[self.node[row]]] = row

    # -- inside --------------------------------------------------------------------------------------------------

    def _point(self, row: int) -> None:
        if self.target[row]:
            self._pointing.setdefault(int(self.target[row]), []).append(row)

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        if self._top == len(self.used):
            for name, (shape, dtype) in _COLUMNS.items():
                grown: np.ndarray = np.zeros((2 * self._top, *shape), dtype)
                grown[: self._top] = getattr(self, name)
                setattr(self, name, grown)
        self._top += 1
        return self._top - 1

    def _word(self, word: str) -> int:
        number = self._number.get(word)
        if number is None:
            number = self._free_words.pop() if self._free_words else len(self.words)
            self.words[number : number + 1] = [word]
            self._number[word] = number
            self._letters += len(word)
            self.changed_words.add(number)
        return number

    def _fact(self, row: int) -> Fact:
        first = (int(self.camera[row]), int(self.valid_from[row]))
        last = (int(self.last_camera[row]), int(self.last_sight[row]))
        evidence = dict.fromkeys(observation_id(self.words[c], stamp) for c, stamp in (first, last) if c)
        return Fact(
            row, self.words[self.node[row]], self.words[self.label[row]], self.place[row].astype(np.float64),
            bool(self.present[row]), self.words[self.relation[row]], self.words[self.target[row]],
            first[1], last[1], int(self.valid_to[row]), int(self.believed_from[row]), int(self.closed_at[row]),
            int(self.believed_to[row]), int(self.sights[row]), tuple(evidence),
            int(self.sure_from[row]), int(self.sure_to[row]),
        )  # fmt: skip
