"""Eviction policies against traces worked out by hand, and against the laws of the papers."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.errors import UnknownNameError
from engram.memory.stores.short_term.eviction import EvictionPolicy, Write
from engram.memory.stores.short_term.eviction_policies import EVICTIONS, make_eviction
from engram.memory.stores.short_term.learned_eviction import (
    FEATURES,
    EvictionWeights,
    LearnedEviction,
)
from engram.memory.stores.short_term.tiny_lfu import CountMinSketch, TinyLFUConfig, WTinyLFU
from tests.contracts.eviction import EvictionContract


class TestNewest(EvictionContract):
    def make(self, capacity):
        return make_eviction("newest", capacity)


class TestFifo(EvictionContract):
    def make(self, capacity):
        return make_eviction("fifo", capacity)


class TestLru(EvictionContract):
    def make(self, capacity):
        return make_eviction("lru", capacity)


class TestLfu(EvictionContract):
    def make(self, capacity):
        return make_eviction("lfu", capacity)


class TestWTinyLfu(EvictionContract):
    def make(self, capacity):
        return make_eviction("w_tiny_lfu", capacity)


class TestLearned(EvictionContract):
    def make(self, capacity):
        return make_eviction("learned", capacity)


def hits(policy: EvictionPolicy, trace: str) -> str:
    """Return which questions hit (+) or miss (-): "a" is a change of a, "A" a question for it."""
    held: set[str] = set()
    found = ""
    for key in trace.replace(" ", ""):
        if key.islower():
            held = (held | {key}) - set(policy.write(Write(key)))
        else:
            found += "+" if key.lower() in held else "-"
            policy.read(key.lower())
    return found


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("newest", "+-+", "-"), ("fifo", "--+", "-"), ("lru", "++-", "-"), ("lfu", "++-", "+")],
)
def test_hits_by_hand(name, first, second):
    """Two places; a changes twice, then b is dropped for c, or a by FIFO.

    newest: {a c}, A hits; d drops a: {c d}; A misses, C hits.
    FIFO: {b c}, A misses; d drops b: {c d}; A misses, C hits.
    LRU: {a c}, A hits and renews a; d drops c: {a d}; A hits, C misses.
    LFU: {a c}, A hits: a counts 3, c 1; d drops c: {a d}; A hits, C misses. In the second trace only LFU keeps the
    a that changed twice against the newer b.
    """
    assert hits(make_eviction(name, 2), "aba c A d A C") == first
    assert hits(make_eviction(name, 2), "aab c A") == second


def test_an_unknown_policy_is_named_with_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"'lur'.*did you mean 'lru'.*w_tiny_lfu"):
        make_eviction("lur", 3)


def scan_trace(seed: int, hot: int, sweeps: int) -> list[tuple[str, bool]]:
    """Hot objects change and are asked for; between them the robot sweeps past objects that nobody asks for."""
    rng = np.random.default_rng(seed)
    trace = []
    for sweep in range(sweeps):
        for _ in range(20):
            key = f"hot_{rng.integers(hot)}"
            trace += [(key, True), (key, False)]
        trace += [(f"scan_{sweep}_{i}", True) for i in range(3 * hot)]
        trace += [(f"hot_{i}", False) for i in rng.permutation(hot)[: hot // 2]]
    return trace


def hit_rate(policy: EvictionPolicy, trace: list[tuple[str, bool]]) -> float:
    held: set[str] = set()
    found = []
    for key, written in trace:
        if written:
            held = (held | {key}) - set(policy.write(Write(key)))
        else:
            found.append(key in held)
            policy.read(key)
    return float(np.mean(found))


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_flushes_recency_but_not_w_tiny_lfu(seed):
    trace = scan_trace(seed, hot=10, sweeps=30)
    rates = {name: hit_rate(make_eviction(name, 12), trace) for name in ("newest", "fifo", "lru", "w_tiny_lfu")}
    assert rates["w_tiny_lfu"] > max(rates["newest"], rates["fifo"], rates["lru"]) + 0.1


def test_the_sketch_never_counts_too_little_and_halves_when_it_ages():
    sketch = CountMinSketch(width=64, sample=10_000)
    rng = np.random.default_rng(0)
    true: dict[str, int] = {}
    for _ in range(400):
        key = f"object_{rng.zipf(1.5) % 60}"
        true[key] = true.get(key, 0) + 1
        sketch.add(key)
    assert all(sketch.estimate(key) >= min(n, 15) for key, n in true.items())
    assert sketch.estimate("never seen") <= 2
    small = CountMinSketch(width=64, sample=16)
    for _ in range(15):
        small.add("a")
    assert small.estimate("a") == 15
    small.add("a")  # the 16th addition: every counter is halved
    assert small.estimate("a") == 7


def test_w_tiny_lfu_admits_by_frequency_and_promotes_what_comes_twice():
    policy = WTinyLFU(4, TinyLFUConfig(window_share=0.25, protected_share=0.7))  # window 1, main 3, protected 2
    for key in "abcd":
        policy.write(Write(key))
    assert policy.keys() == ("d", "a", "b", "c")  # window; probation by age
    policy.write(Write("a"))
    assert policy.keys() == ("d", "b", "c", "a")  # a was promoted: protected comes last
    assert policy.write(Write("e")) == ("d",)  # d came once, so did b: the newcomer does not displace it
    policy.read("f")
    assert policy.write(Write("f")) == ("e",)
    assert policy.write(Write("g")) == ("b",)  # f came twice: it takes the place of b


def worth(**values: float) -> EvictionWeights:
    return EvictionWeights(np.array([values.get(name, 0.0) for name in FEATURES]), values.get("delete_below", -1e9))


def test_the_learned_policy_chooses_its_four_operations_by_worth():
    policy = LearnedEviction(2, worth(reads=1.0, absent=-5.0, delete_below=-1.0))
    written = [Write("a"), Write("b"), Write("b"), Write("b", absent=True)]  # add, add, update, delete
    assert [policy.write(write) for write in written] == [(), (), (), ("b",)]  # what is known to be gone is worth -5
    assert policy.keys() == ("a",)
    policy.read("a")
    policy.read("c")
    policy.write(Write("c"))
    assert policy.write(Write("d")) == ("d",)  # nobody ever asked for d: not worth a place
    assert set(policy.keys()) == {"a", "c"}


def test_the_learned_policy_knows_a_class_that_is_asked_for():
    policy = LearnedEviction(2, worth(label_reads=1.0))
    for i in range(20):
        policy.read(f"cup_{i}", "cup")
    policy.write(Write("cup_90", "cup"))
    policy.write(Write("sofa_1", "sofa"))
    assert policy.write(Write("cup_91", "cup")) == ("sofa_1",)


def test_what_the_learned_policy_counts_does_not_overflow():
    policy = LearnedEviction(1, worth(reads=1.0))
    for i in range(3000):  # the unit doubles every 16 accesses: 2^187 without the rescaling
        policy.read(f"object_{i % 3}")
        policy.write(Write(f"object_{i % 5}"))
    assert np.isfinite(policy._unit) and policy._unit < 1e10
    assert len(policy._pasts) <= 8 and len(policy.keys()) == 1


def test_every_policy_has_a_name_in_the_configuration():
    assert set(EVICTIONS) == {"newest", "fifo", "lru", "lfu", "w_tiny_lfu", "learned"}
