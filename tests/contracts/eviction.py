"""The laws that every EvictionPolicy keeps."""

from __future__ import annotations

import json
from abc import abstractmethod

import numpy as np
import pytest

from engram.memory.stores.short_term.eviction import EvictionPolicy, Write


class EvictionContract:
    """Subclass as ``TestX`` and say how to make an empty policy."""

    @abstractmethod
    def make(self, capacity: int) -> EvictionPolicy:
        """Return an empty policy."""

    @pytest.mark.parametrize("capacity", [1, 2, 7, 32])
    def test_what_is_written_and_not_dropped_is_held_and_never_more_than_the_capacity(self, capacity):
        policy = self.make(capacity)
        rng = np.random.default_rng(capacity)
        held: set[str] = set()
        for _ in range(2000):
            key = f"object_{rng.zipf(1.3) % 80}"
            what = rng.random()
            if what < 0.6:
                held.add(key)
                dropped = policy.write(Write(key, label=key[-1], absent=bool(rng.random() < 0.1)))
                assert set(dropped) <= held
                held -= set(dropped)
            elif what < 0.95:
                policy.read(key, key[-1])
            else:
                policy.forget(key)
                held.discard(key)
            assert set(policy.keys()) == held and len(held) <= capacity

    def test_two_of_a_kind_decide_alike(self):
        first, second = self.make(5), self.make(5)
        rng = np.random.default_rng(1)
        for _ in range(300):
            key = f"object_{rng.integers(20)}"
            if rng.random() < 0.5:
                first.read(key)
                second.read(key)
            else:
                assert first.write(Write(key)) == second.write(Write(key))

    def test_no_capacity_is_refused(self):
        with pytest.raises(ValueError, match="capacity"):
            self.make(0)

    def test_it_goes_on_after_a_restart_as_if_there_had_been_none(self):
        first, rng = self.make(5), np.random.default_rng(2)
        for step in range(600):
            if step == 300:
                second = self.make(5)
                second.restore(json.loads(json.dumps(first.state())))
            key, read = f"object_{rng.integers(20)}", rng.random() < 0.5
            outcomes = [p.read(key, key[-1]) if read else p.write(Write(key, key[-1])) for p in
                        ([first] if step < 300 else [first, second])]  # fmt: skip
            assert outcomes[0] == outcomes[-1]
        assert second.state() == first.state()
