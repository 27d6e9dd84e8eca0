"""The laws that every MemoryStore keeps."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import replace

import numpy as np
import pytest

from engram.core.contracts import MemoryStore
from engram.core.questions import Selection
from engram.core.types import GraphUpdate, Record
from tests.memory.updates import embed, event, step

LABELS = ("red cup", "blue bowl", "green ball")


class MemoryStoreContract:
    """Subclass as ``TestX`` and say how to make an empty store."""

    @abstractmethod
    def make(self) -> MemoryStore:
        """Return a fresh, empty store."""

    @pytest.fixture
    def store(self):
        return self.make()

    def settle(self, store: MemoryStore) -> None:
        """Do what the store leaves for later."""

    def fill(self, store: MemoryStore, steps: range = range(40)) -> None:
        rng = np.random.default_rng(0)
        for i in steps:
            kind = "new" if i < len(LABELS) else "moved"
            label = LABELS[i % len(LABELS)]
            change = step(event(kind, f"object_{i % len(LABELS)}", label, 10.0 * i, rng.uniform(-1, 1, 3)))
            store.update(change, change.stamp_ns)
        self.settle(store)

    def test_an_empty_store_recalls_nothing_and_has_nothing_to_keep(self, store):
        assert store.recall(Selection(text="red cup", vector=embed("red cup"))) == ()
        state = store.state()
        assert (state.changed, state.removed) == ((), ())

    def test_an_update_without_events_is_not_remembered(self, store):
        store.update(GraphUpdate(5, 1, False, ()), 5)
        assert store.recall(Selection()) == () and store.state().changed == ()

    def test_what_is_asked_for_comes_first_with_scores_in_order_and_its_source(self, store):
        self.fill(store)
        found = store.recall(Selection(text="red cup", vector=embed("red cup"), limit=3))
        assert 1 <= len(found) <= 3
        assert "red cup" in found[0].text
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert {one.source for one in found} == {store.name}

    def test_limit_is_the_most_that_comes_back(self, store):
        self.fill(store)
        assert len(store.recall(Selection(limit=1))) == 1

    def test_state_is_told_once_and_is_json(self, store):
        self.fill(store)
        rows = store.state().changed
        assert rows and all(json.loads(json.dumps(dict(row.data))) == dict(row.data) for row in rows)
        assert len({row.key for row in rows}) == len(rows)
        again = store.state()
        assert (again.changed, again.removed) == ((), ())

    def test_the_states_of_a_life_restore_its_answers(self, store):
        kept: dict[str, Record] = {}
        for part in (range(0, 7), range(7, 25), range(25, 40)):
            self.fill(store, part)
            state = store.state()
            kept.update({row.key: replace(row, data=json.loads(json.dumps(dict(row.data)))) for row in state.changed})
            for key in state.removed:
                kept.pop(key, None)
        other = self.make()
        other.restore(list(kept.values()))
        self.settle(other)
        assert other.state().changed == ()
        for text in LABELS:
            query = Selection(text=text, vector=embed(text))
            theirs, ours = other.recall(query), store.recall(query)
            assert [(one.text, one.stamp_ns) for one in theirs] == [(one.text, one.stamp_ns) for one in ours]
            np.testing.assert_allclose([one.score for one in theirs], [one.score for one in ours], atol=1e-6)

    def test_the_same_updates_give_the_same_answers(self, store):
        other = self.make()
        self.fill(store)
        self.fill(other)
        query = Selection(text="blue bowl", vector=embed("blue bowl"))
        assert [one.text for one in store.recall(query)] == [one.text for one in other.recall(query)]
        assert [row.key for row in store.state().changed] == [row.key for row in other.state().changed]
