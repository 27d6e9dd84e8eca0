"""The laws that every Policy keeps: chunks answer what is new, seeds fix them, bad weights change nothing."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np
import pytest

from engram.core.contracts import Policy
from engram.core.errors import EngramError, WeightsError
from engram.core.types import Observation


class PolicyContract:
    """Subclass as ``TestX`` and say how to make one, what it observes, and which weights fit it."""

    instruction = "go to the red cube"

    @abstractmethod
    def make(self) -> Policy:
        """Return a fresh policy; always the same one."""

    @abstractmethod
    def observation(self, stamp_ns: int) -> Observation:
        """Return an observation; different stamps show something different."""

    @abstractmethod
    def save_other_weights(self, path: Path) -> None:
        """Write weights that fit, and lead to other actions, to ``path``."""

    def chunk(self, policy: Policy, *, seed: int = 0, stamp_ns: int = 0) -> np.ndarray:
        """Return the actions that answer one observation of a new episode."""
        policy.reset(self.instruction, seed=seed)
        policy.observe(self.observation(stamp_ns))
        return policy.act().actions

    def test_a_chunk_answers_the_newest_observation(self):
        policy = self.make()
        policy.reset(self.instruction, episode=7)
        for stamp in (0, 100_000_000):
            policy.observe(self.observation(stamp))
        chunk = policy.act()
        assert (chunk.stamp_ns, chunk.episode, chunk.policy_version) == (100_000_000, 7, policy.version)
        assert np.isfinite(chunk.actions).all()
        assert np.abs(chunk.actions).max() <= 1.0

    def test_nothing_observed_is_an_error(self):
        policy = self.make()
        policy.reset(self.instruction)
        with pytest.raises(EngramError):
            policy.act()

    def test_the_same_seed_gives_the_same_bits_in_another_instance(self):
        first, second = self.make(), self.make()
        self.chunk(second, seed=9)  # an earlier episode leaves no trace
        np.testing.assert_array_equal(self.chunk(first, seed=1), self.chunk(second, seed=1))

    def test_asking_again_changes_nothing(self):
        policy = self.make()
        first = self.chunk(policy)
        np.testing.assert_array_equal(policy.act().actions, first)
        policy.observe(self.observation(0))  # the same stamp once more
        np.testing.assert_array_equal(policy.act().actions, first)

    def test_where_the_clock_began_does_not_matter(self):
        policy = self.make()
        chunks = []
        for begin in (0, 5_000_000_000):
            policy.reset(self.instruction, seed=3)
            seen = self.observation(0)
            policy.observe(Observation(begin, seen.cameras, seen.joints))
            chunks.append(policy.act().actions)
        np.testing.assert_array_equal(*chunks)

    def test_new_weights_are_used_under_their_version(self, tmp_path):
        policy = self.make()
        before = self.chunk(policy)
        self.save_other_weights(tmp_path / "other.safetensors")
        policy.load_weights(tmp_path / "other.safetensors", "v2")
        assert policy.version == "v2"
        assert not np.array_equal(self.chunk(policy), before)

    def test_a_file_that_is_no_weights_is_refused_and_the_old_ones_stay(self, tmp_path):
        policy = self.make()
        before, version = self.chunk(policy), policy.version
        (tmp_path / "bad.safetensors").write_bytes(b"not weights at all")
        for name in ("bad.safetensors", "missing.safetensors"):
            with pytest.raises(WeightsError, match=name):
                policy.load_weights(tmp_path / name, "v2")
        assert policy.version == version
        np.testing.assert_array_equal(self.chunk(policy), before)
