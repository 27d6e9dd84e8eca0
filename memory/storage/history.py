"""Bitemporal facts: when something was true in the world, and when the memory believed it.

A fact says that one object was at one place (or that its place was looked at and it was gone). Six times make it
bitemporal (Snodgrass, *Developing Time-Oriented Database Applications in SQL*, 1999):

* ``valid_from`` .. ``valid_to``: true in the world; ``valid_to`` is FOREVER while nothing speaks against it;
* ``last_sight``: the newest positive evidence; between it and ``valid_to`` the fact is an inference;
* ``believed_from`` .. ``believed_to``: in the memory; ``believed_to`` is FOREVER unless the fact was taken back;
* ``closed_at``: when the memory learnt ``valid_to``; asked what it believed before, the fact is open.

From ``sure_from`` to ``sure_to`` the object was believed enough to be an answer; a first sight is not (``sure_from`` is
FOREVER until the second one), nor is what was looked for once in vain.

Nothing is overwritten: a merge, a split or a false detection takes facts back and states others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.spatial import cKDTree

from engram.memory.storage.fact_columns import FOREVER, SURE, TIMES, WORDS, Fact, FactColumns

ROW_BYTES = 246
"""RAM of one fact with its index entries, without its words; tracemalloc, 20,000 facts of 10,000 objects."""
TREE_BYTES = 60
"""RAM of one place in the KD-tree; measured as growth of the process, 200,000 facts."""
_FEW = 32
"""Facts of one object up to which arrays cost more than they save; most objects have a handful."""


class History(FactColumns):
    """Facts, found by object, by container and by time; bounded by :meth:`thin`."""

    thinned_ns: int | None = None
    """Up to when facts were joined or dropped for want of room; None = never."""

    # -- writing -------------------------------------------------------------------------------------------------

    def state(
        self, node_id: str, label: str, place: np.ndarray, stamp_ns: int, *, present: bool = True,
        relation: str = "", target: str = "", camera: str = "", believed_ns: int | None = None, sights: int = 1,
        sure: bool = True,
    ) -> int:  # fmt: skip
        """Open a fact that holds from ``stamp_ns`` on, closing the one before; return its row.

        ``sure``: the object is believed enough to be an answer.
        """
        believed = stamp_ns if believed_ns is None else believed_ns
        self.close(node_id, stamp_ns, believed)
        row = self._new_row()
        number = self._word(node_id)
        values = (
            place, stamp_ns, stamp_ns, FOREVER, believed, FOREVER, FOREVER, stamp_ns if sure else FOREVER, FOREVER,
            sights, number, self._word(label), self._word(relation), self._word(target), self._word(camera),
            self._word(camera), present, True,
        )  # fmt: skip
        for name, value in zip(self.COLUMNS, values, strict=True):
            getattr(self, name)[row] = value
        self._rows_of.setdefault(number, []).append(row)
        self._point(row)
        self._current[node_id] = row
        self.changed.add(row)
        if self._tree is not None:
            self._since.add(row)
        return row

    def sighted(self, node_id: str, stamp_ns: int, camera: str) -> None:
        """Record another detection that confirms the open fact."""
        row = self._current[node_id]
        self.last_sight[row] = max(int(self.last_sight[row]), stamp_ns)
        self.sights[row] += 1
        self.last_camera[row] = self._word(camera)

    def seen_later(self, rows: np.ndarray, stamps_ns: np.ndarray, cameras: Sequence[str]) -> None:
        """Take over when and by which camera the objects of the facts ``rows`` (n,) were seen last."""
        self.last_sight[rows] = stamps_ns
        self.last_camera[rows] = [self._word(camera) for camera in cameras]

    def believe(self, row: int, sure: bool, stamp_ns: int) -> None:
        """Note whether the object of an open fact is an answer from ``stamp_ns`` on; it becomes one but once."""
        was = self.sure_to if not sure else self.sure_from
        if was[row] == FOREVER and (sure or self.sure_from[row] != FOREVER):
            was[row] = stamp_ns
            self.changed.add(row)

    def close(self, node_id: str, stamp_ns: int, believed_ns: int | None = None) -> None:
        """End the open fact of ``node_id``: from ``stamp_ns`` on it is not true any more."""
        row = self._current.pop(node_id, None)
        if row is not None:
            self.valid_to[row] = max(stamp_ns, int(self.last_sight[row]))
            self.closed_at[row] = stamp_ns if believed_ns is None else believed_ns
            self.changed.add(row)

    def retract(self, node_id: str, stamp_ns: int, since_ns: int = 0) -> list[Fact]:
        """Retract the facts of ``node_id`` at ``stamp_ns``: they are no longer believed. Return them as they were.

        Those that had ended by ``since_ns`` stand.
        """
        taken = [fact for fact in self.of(node_id) if fact.believed_to == FOREVER and fact.valid_to > since_ns]
        for fact in taken:
            self.believed_to[fact.row] = stamp_ns
            self.changed.add(fact.row)
        self._current.pop(node_id, None)
        return taken

    def restate(self, facts: Iterable[Fact], node_id: str, stamp_ns: int) -> None:
        """Believe ``facts`` from ``stamp_ns`` on, of the object ``node_id``, in the order of their validity.

        Each ends where the next begins; the last one stays open if it was.
        """
        ordered = sorted(facts, key=lambda fact: (fact.valid_from, fact.row))
        for fact, after in zip(ordered, [*ordered, None][1:], strict=True):
            cameras = [name.rpartition("@")[0] for name in fact.evidence] or [""]
            row = self.state(
                node_id, fact.label, fact.place, fact.valid_from, present=fact.present, relation=fact.relation,
                target=fact.target, camera=cameras[0], believed_ns=stamp_ns, sights=fact.sights,
            )  # fmt: skip
            self.last_sight[row], self.last_camera[row] = fact.last_sight, self._word(cameras[-1])
            self.sure_from[row], self.sure_to[row] = fact.sure_from, fact.sure_to
            end = min(fact.valid_to, after.valid_from if after else FOREVER)
            if end != FOREVER:
                self.close(node_id, end, stamp_ns)

    def shift(self, by_ns: int) -> None:
        """Move every time of every fact; FOREVER stays."""
        used = np.flatnonzero(self.used[: self._top])
        for name in (*TIMES, *SURE):
            times = getattr(self, name)
            times[used] = np.where(times[used] == FOREVER, FOREVER, times[used] + by_ns)
        self.changed.update(used.tolist())
        if self.thinned_ns is not None:
            self.thinned_ns += by_ns

    # -- reading -------------------------------------------------------------------------------------------------

    def began_ns(self) -> int | None:
        """Return when the oldest fact that is believed began; None = there is none."""
        rows = self.used[: self._top] & (self.believed_to[: self._top] == FOREVER)
        return int(self.valid_from[: self._top][rows].min()) if rows.any() else None

    def current(self, node_id: str) -> int | None:
        """Return the row of the open fact of ``node_id``."""
        return self._current.get(node_id)

    def of(self, node_id: str) -> list[Fact]:
        """Return all facts ever believed of ``node_id``, oldest belief first."""
        number = self._number.get(node_id)
        return [] if number is None else self.facts(self._rows_of.get(number, ()))

    def believed(self, node_id: str) -> bool:
        """Whether any fact of ``node_id`` was not taken back."""
        rows = self._rows_of.get(self.number(node_id), [])
        return bool((self.believed_to[rows] == FOREVER).any())

    def known_of(self, row: int, believed_ns: int) -> np.ndarray:
        """Return the rows (n,) of all facts of the object of ``row`` that were believed at ``believed_ns``."""
        rows = np.array(self._rows_of.get(int(self.node[row]), ()), np.int64)
        return rows[(self.believed_from[rows] <= believed_ns) & (believed_ns < self.believed_to[rows])]

    def after(self, row: int, believed_ns: int) -> list[int]:
        """Return those of :meth:`known_of` that begin after fact ``row``, one of them, in their order."""
        rows = self._rows_of[int(self.node[row])]
        if len(rows) > _FEW:
            known = self.known_of(row, believed_ns)
            known = known[np.argsort(self.valid_from[known], kind="stable")]
            return known[int(np.flatnonzero(known == row)[0]) + 1 :].tolist()
        few = [i for i in rows if self.believed_from[i] <= believed_ns < self.believed_to[i]]
        few.sort(key=self.valid_from.__getitem__)
        return few[few.index(row) + 1 :]

    def ever_sure(self, node_ids: Iterable[str], believed_ns: int = FOREVER - 1) -> dict[str, bool]:
        """Tell of each object whether it had ever been an answer, as the memory believed at ``believed_ns``."""
        told = {}
        for node_id in node_ids:
            rows = self._rows_of.get(self.number(node_id), [])
            known = self.known_of(rows[0], believed_ns) if rows else np.zeros(0, np.int64)
            told[node_id] = bool((self.present[known] & (self.sure_from[known] <= believed_ns)).any())
        return told

    def facts(self, rows: Iterable[int] | np.ndarray) -> list[Fact]:
        """Return rows as facts."""
        return [self._fact(int(row)) for row in rows]

    def near(self, place: np.ndarray, radius_m: float) -> np.ndarray:
        """Return the rows of all facts within ``radius_m`` of ``place`` (3,) m.

        By a KD-tree over the facts there were when it was built, and one look at each that came since.
        """
        if self._tree is None or len(self._since) > max(1000, self._top // 10):
            self._tree = cKDTree(self.place[: self._top])
            self._since.clear()
        found = set(self._tree.query_ball_point(place, 1.001 * radius_m + 1e-6)) | self._since
        rows = np.fromiter(found, np.int64, len(found))
        rows.sort()
        return rows[self.used[rows] & (np.linalg.norm(self.place[rows] - place, axis=1) <= radius_m)]

    def select(
        self, valid_ns: tuple[int, int] | None, believed_ns: int | None, node_ids: Sequence[str] | None = None,
        rows: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Return the rows of facts that were true at some time in ``valid_ns`` (None = now: open facts), as the
        memory believed at ``believed_ns`` (None = as it knows today), of ``node_ids`` (None = all), or of ``rows``."""
        if node_ids is None:
            rows = np.flatnonzero(self.used[: self._top]) if rows is None else rows
        else:
            numbers = (self._number.get(node_id, -1) for node_id in node_ids)
            rows = np.array([row for number in numbers for row in self._rows_of.get(number, ())], np.int64)
        belief = FOREVER - 1 if believed_ns is None else believed_ns
        rows = rows[(self.believed_from[rows] <= belief) & (belief < self.believed_to[rows])]
        end = np.where(belief < self.closed_at[rows], FOREVER, self.valid_to[rows])
        if valid_ns is None:
            return rows[end == FOREVER] if believed_ns is None else rows[(end > belief)]
        return rows[(self.valid_from[rows] <= valid_ns[1]) & (end > valid_ns[0])]

    def of_target(self, rows: np.ndarray, node_ids: Iterable[str]) -> np.ndarray:
        """Return those of ``rows`` whose relation points at one of ``node_ids``."""
        numbers = [self._number[node_id] for node_id in node_ids if node_id in self._number]
        return rows[np.isin(self.target[rows], numbers)]

    def pointing_at(self, node_ids: Iterable[str]) -> np.ndarray:
        """Return the rows of all facts whose relation points at one of ``node_ids``, without a look at the others."""
        found = [np.zeros(0, np.int64)]
        for number in (self._number.get(node_id, 0) for node_id in node_ids):
            noted = self._pointing.get(number, [])
            rows = np.unique(np.array(noted, np.int64))
            rows = rows[self.used[rows] & (self.target[rows] == number)]
            if len(noted) > 2 * len(rows) + 16:  # most of them point elsewhere by now
                self._pointing[number] = rows.tolist()
            found.append(rows)
        return np.unique(np.concatenate(found))

    # -- bounded growth ------------------------------------------------------------------------------------------

    def bytes_used(self) -> int:
        """Return the RAM used by the facts [bytes]."""
        tree = 0 if self._tree is None else TREE_BYTES * self._tree.n
        return len(self) * ROW_BYTES + self._letters + 100 * len(self._number) + tree

    def thin(self, keep: int) -> int:
        """Forget facts until ``keep`` are left; return how many went. What is open and believed always stays.

        Of the oldest closed facts, each two neighbours in time of one object become one, the longer one's place and
        both their times; what is still too much is dropped, oldest first.
        """
        before = len(self)
        while len(self) > keep:
            ended = np.minimum(self.valid_to, self.believed_to)[: self._top]
            closed = np.flatnonzero(self.used[: self._top] & (ended != FOREVER))
            closed = closed[np.argsort(ended[closed], kind="stable")]
            if not len(closed):
                break
            oldest = closed[: max(2, len(closed) // 2)]
            over_ns = int(ended[oldest[-1]])
            self.thinned_ns = over_ns if self.thinned_ns is None else max(self.thinned_ns, over_ns)
            if self._merge_neighbours(oldest, len(self) - keep) == 0:
                for row in oldest[: len(self) - keep].tolist():
                    self._drop(row)
        if len(self) < before:
            self._forget_words()
        return before - len(self)

    def _forget_words(self) -> None:
        """Free the words that no fact uses any more, such as those of false detections."""
        unused = np.ones(len(self.words), bool)
        unused[0] = False
        rows = np.flatnonzero(self.used[: self._top])
        for name in WORDS:
            unused[getattr(self, name)[rows]] = False
        for number in np.flatnonzero(unused).tolist():
            word = self.words[number]
            if word:
                self._letters -= len(word)
                self.words[number] = ""
                del self._number[word]
                self._pointing.pop(number, None)
                self._free_words.append(number)
                self.changed_words.add(number)

    def _merge_neighbours(self, rows: np.ndarray, most: int) -> int:
        """Join pairs of consecutive facts of one object among ``rows``, the nearest places first."""
        order = rows[np.lexsort((self.valid_from[rows], self.node[rows]))]
        first, second = order[:-1], order[1:]
        fits = (self.node[first] == self.node[second]) & (self.believed_to[first] == self.believed_to[second])
        fits &= (self.present[first] == self.present[second]) & (self.label[first] == self.label[second])
        pairs = np.column_stack((first[fits], second[fits]))
        apart = np.linalg.norm(self.place[pairs[:, 0]] - self.place[pairs[:, 1]], axis=1)
        taken: set[int] = set()
        joined = 0
        for a, b in pairs[np.argsort(apart, kind="stable")].tolist():
            if joined >= most or a in taken or b in taken:
                continue
            taken |= {a, b}
            if self.valid_to[b] - self.valid_from[b] > self.valid_to[a] - self.valid_from[a]:
                for name in ("place", "relation", "target"):
                    getattr(self, name)[a] = getattr(self, name)[b]
                self._point(a)
                if self._tree is not None:
                    self._since.add(a)
            self.sights[a] += self.sights[b]
            if self.sure_from[b] == FOREVER != self.sure_from[a]:  # none any more
                self.sure_to[b] = min(self.sure_to[a], self.valid_from[b])
            self.sure_from[a] = min(self.sure_from[a], self.sure_from[b])
            for name in ("last_sight", "valid_to", "closed_at", "sure_to", "last_camera"):
                getattr(self, name)[a] = getattr(self, name)[b]
            self.changed.add(a)
            self._drop(b)
            joined += 1
        return joined

    def _drop(self, row: int) -> None:
        rows = self._rows_of[int(self.node[row])]
        rows.remove(row)
        if not rows:
            del self._rows_of[int(self.node[row])]
        self.used[row] = False
        self.changed.add(row)
        self._free.append(row)
