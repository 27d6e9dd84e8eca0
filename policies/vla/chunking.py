"""When the policy replans, and what happens where chunks overlap: averaging, or switching to the new chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.core.contracts import FeaturePolicy, Policy, StatefulPolicy
from engram.core.control import ControlConfig
from engram.core.errors import InvalidInputError
from engram.core.types import ACTION_SPACES, ActionChunk, Features, Lineage, MemoryTokens, Observation
from engram.policies.vla.vla_policy import VlaPolicy


class ReplanningPolicy(Policy, StatefulPolicy, FeaturePolicy):
    """Wraps a policy and replans at every control step; a subclass decides how to use the answers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._episode = 0
        self._kept: list[ActionChunk] = []  # earlier chunks of this episode that are still in use, oldest first

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        self.policy.reset(instruction, episode, seed)
        self._episode, self._kept = episode, []

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step."""
        self.policy.observe(observation, memory)

    def load_weights(self, path: Path, version: str) -> None:
        """Swap the inner policy's weights."""
        self.policy.load_weights(path, version)

    @property
    def version(self) -> str:
        """The inner policy's version."""
        return self.policy.version

    @property
    def reads_context(self) -> bool:
        """Whether the inner policy acts on memory/context."""
        return self.policy.reads_context

    @property
    def lineage(self) -> Lineage | None:
        """The inner policy's lineage."""
        return self.policy.lineage

    @property
    def ablation(self) -> str:
        """What the inner policy's memory is spoilt by."""
        return self.policy.ablation

    def features(self) -> Features | None:
        """Return the inner policy's features."""
        return self.policy.features() if isinstance(self.policy, FeaturePolicy) else None

    def memory_state(self) -> Mapping[str, np.ndarray]:
        """Return the inner policy's sequence memory and the chunks still in use; nothing where it has no memory."""
        remembered = self.policy.memory_state() if isinstance(self.policy, StatefulPolicy) else {}
        if not remembered or not self._kept:
            return remembered
        return {**remembered, **_arrays(self._kept)}

    def remembered(self) -> str:
        """Describe the inner policy's sequence memory."""
        return self.policy.remembered() if isinstance(self.policy, StatefulPolicy) else ""

    def restore_memory(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on with what :meth:`memory_state` returned; InvalidInputError if it is not of such a policy."""
        if not isinstance(self.policy, StatefulPolicy):
            raise InvalidInputError(f"{type(self).__name__}: the inner policy remembers nothing")
        self.policy.restore_memory(arrays)
        self._kept = _chunks(arrays, self._episode, self.policy.version)


class TemporalEnsemble(ReplanningPolicy):
    """Averages, for each step, the actions of all chunks that cover it (temporal ensembling; Zhao et al., ACT, 2023).

    The i-th chunk, counted from the oldest as in ACT, has weight exp(-decay * i): a decay of 0 is the plain mean, a
    larger one trusts old chunks more. The gripper is taken from the newest chunk alone, because it is a command and not
    a motion.
    """

    def __init__(self, policy: Policy, decay: float = 0.01) -> None:
        if not decay >= 0.0:
            raise InvalidInputError(f"TemporalEnsemble.decay: {decay}, expected 0 or more")
        super().__init__(policy)
        self.decay = decay

    def act(self) -> ActionChunk:
        """Return the newest chunk, its rows averaged with those of older chunks for the same steps."""
        newest = self.policy.act()
        older = [c for c in self._kept if c.stamp_ns < newest.stamp_ns and c.row(newest.stamp_ns) < len(c.actions)]
        self._kept = [*older, newest]
        actions = newest.actions.copy()
        for row in range(len(actions)):
            rows = [(c, row + c.row(newest.stamp_ns)) for c in self._kept]
            said = np.array([c.actions[at] for c, at in rows if at < len(c.actions)])
            weights = np.exp(-self.decay * np.arange(len(said)))
            actions[row, :-1] = np.average(said[:, :-1], axis=0, weights=weights)
        return replace(newest, actions=actions, execute_steps=1)


class AdaptiveChunks(ReplanningPolicy):
    """Replans at every control step and switches to the new chunk when the two differ.

    The new chunk is compared with the rest of the running chunk: the distance between the tool positions that both
    reach within the next ``LOOK_AHEAD`` steps. Above ``departure_m`` the new chunk is executed; otherwise the running
    chunk continues to its usual end. Bidirectional Decoding (Liu et al., 2024) ranks samples by the same coherence of
    consecutive decisions. The policy thus reacts within one control step to whatever changes its plan, such as a pushed
    object.
    """

    LOOK_AHEAD = 4

    def __init__(self, policy: Policy, departure_m: float, scale_m: float = ControlConfig.position_scale_m) -> None:
        """Adapt relative tool motions, of which 1 is ``scale_m`` [m] a step."""
        if not departure_m > 0.0:
            raise InvalidInputError(f"AdaptiveChunks.departure_m: {departure_m}, expected more than 0")
        super().__init__(policy)
        self.departure_m, self.scale_m = departure_m, scale_m
        self.cut = 0  # chunks of this episode that were left early

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        super().reset(instruction, episode, seed)
        self.cut = 0

    def act(self) -> ActionChunk:
        """Return the rest of the running chunk, filled up from the newest one, or the newest one alone."""
        newest = self.policy.act()
        if newest.space != "ee_delta":
            raise InvalidInputError(f"AdaptiveChunks: actions of space {newest.space!r}, expected 'ee_delta'")
        running = self._kept[0] if self._kept else None
        done = newest.execute_steps if running is None else running.row(newest.stamp_ns)
        if running is None or not 0 <= done < running.execute_steps:
            running, done = newest, 0
        elif self._apart_m(running.actions[done:], newest.actions) > self.departure_m:
            running, done, self.cut = newest, 0, self.cut + 1
        self._kept = [running]
        actions = np.concatenate((running.actions[done:], newest.actions[len(newest.actions) - done :]))
        return replace(running, stamp_ns=newest.stamp_ns, actions=actions, execute_steps=1)

    def _apart_m(self, running: np.ndarray, newest: np.ndarray) -> float:
        """Return how far apart two chunks, (n, a) and (m, a), lead the tool within the next steps [m]."""
        steps = min(len(running), len(newest), self.LOOK_AHEAD)
        return float(np.linalg.norm((running[:steps, :3] - newest[:steps, :3]).sum(axis=0))) * self.scale_m


def follow(policy: Policy, ensemble: bool = False, adaptive_m: float | None = None, real_time_delay: int = 0) -> Policy:
    """Return ``policy``, wrapped as the parameters say. Without any of them, ``adaptive_m`` of its own configuration
    counts.

    Raises:
        InvalidInputError: two of them that exclude each other.
    """
    if adaptive_m is None and not ensemble and not real_time_delay and isinstance(policy, VlaPolicy):
        adaptive_m = policy.adaptive_m
    if adaptive_m and (ensemble or real_time_delay):
        raise InvalidInputError(
            f"adaptive_m {adaptive_m}: the running chunk is not kept by "
            f"{'ensemble' if ensemble else 'real_time_delay'}; choose one of them"
        )
    if adaptive_m:
        return AdaptiveChunks(policy, adaptive_m)
    return TemporalEnsemble(policy) if ensemble else policy


def _arrays(chunks: Sequence[ActionChunk]) -> dict[str, np.ndarray]:
    """Return chunks of one shape (h, a) as arrays with a leading (n,)."""
    return {
        "chunks.actions": np.stack([chunk.actions for chunk in chunks]),
        "chunks.stamp_ns": np.array([chunk.stamp_ns for chunk in chunks], np.int64),
        "chunks.execute_steps": np.array([chunk.execute_steps for chunk in chunks], np.int64),
        "chunks.dt_s": np.array([chunk.dt_s for chunk in chunks]),
        "chunks.space": np.array([ACTION_SPACES.index(chunk.space) for chunk in chunks], np.int64),
    }


def _chunks(arrays: Mapping[str, np.ndarray], episode: int, version: str) -> list[ActionChunk]:
    """Return the chunks that :func:`_arrays` made; none where there are none."""
    columns = [arrays.get(f"chunks.{name}", ()) for name in ("stamp_ns", "space", "actions", "dt_s", "execute_steps")]
    return [
        ActionChunk(int(stamp_ns), episode, ACTION_SPACES[space], actions, float(dt_s), int(steps), version)
        for stamp_ns, space, actions, dt_s, steps in zip(*columns, strict=True)
    ]
