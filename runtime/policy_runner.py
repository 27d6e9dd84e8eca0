"""Decides when the policy observes, when it acts and when its weights may change. No ROS; called from one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.core.contracts import Policy, StatefulPolicy
from engram.core.errors import WeightsError
from engram.core.types import ActionChunk, ActionSource, Lineage, MemoryTokens, Observation
from engram.learning.exploration import Exploration
from engram.runtime.correction_keeper import CorrectionKeeper
from engram.runtime.episode_keeper import EpisodeKeeper


@dataclass(frozen=True)
class PolicyStep:
    """One control step's input for the policy."""

    observation: Observation
    episode: int
    instruction: str
    memory: MemoryTokens | None = None
    halted: bool = False  # the task was cancelled: observe, but command standing still


@dataclass(frozen=True)
class Overruled:
    """A person drove this control step, not the policy."""

    stamp_ns: int
    episode: int


class PolicyRunner:
    """Observes every step, acts when a chunk is due and swaps weights only then, as the in-process loop does.

    A new chunk is due when the newest chunk of this episode is used up (row index >= ``execute_steps``), or when a
    person drove a step since it was planned. A new episode, another instruction, or a clock that went back resets the
    policy. With a ``keeper``, an episode that a previous process began is continued with its sequence memory.
    ``explore`` adds noise to every chunk, after the correction that ``corrections`` chooses for each goal. While the
    sequence memory holds something, new weights wait for the next episode, because they could not read what the old
    weights wrote.
    """

    def __init__(
        self,
        policy: Policy,
        on_refused: Callable[[WeightsError], None] = lambda _: None,
        keeper: EpisodeKeeper | None = None,
        explore: Exploration | None = None,
        corrections: CorrectionKeeper | None = None,
    ) -> None:
        self.policy = policy
        self.keeper, self.explore, self.corrections = keeper, explore, corrections
        self._on_refused = on_refused
        self.chunk: ActionChunk | None = None
        self._episode: tuple[int, str] | None = None
        self._stamp_ns = -1
        self._step: PolicyStep | None = None  # the newest
        self._overruled_ns = -1  # newest step of the episode that a person drove
        self._weights: tuple[Path, str, Lineage | None] | None = None
        self._loaded = policy.version  # the version that the policy was loaded with
        self._swapped = ""  # the version that drives instead of that one
        self._written_by = ""  # version of the weights that wrote the restored sequence memory
        self.label = ""  # what the policy that drives was loaded as, for those who watch
        self._next: tuple[Policy, str] | None = None
        self._lock = threading.Lock()

    def offer_weights(self, path: Path, version: str, lineage: Lineage | None) -> None:
        """Use the verified safetensors file ``path`` from the next chunk on, with a memory from the next episode on.

        Weights of another lineage than that of the policy that drives then are refused. Callable from any thread.
        """
        with self._lock:
            self._weights = (path, version, lineage)

    def offer_policy(self, policy: Policy, label: str = "") -> None:
        """Let ``policy`` drive from the next episode on; callable from any thread."""
        with self._lock:
            self._next = (policy, label)

    @property
    def source(self) -> ActionSource:
        """Whose actions the next ones are, and under which conditions."""
        source = source_of(self.policy)
        return source if self.explore is None else self.explore.mark(source)

    @property
    def corrected_by(self) -> str:
        """The correction of all motions that drives, in a few words; callable from any thread."""
        return self.corrections.said if self.corrections is not None else "nothing"

    @property
    def reads_context(self) -> bool:
        """Whether the policy that drives acts on memory/context; callable from any thread."""
        return self.policy.reads_context

    @property
    def drives(self) -> str:
        """What drives: the policy's name, and the weights if they are not those it was loaded with."""
        return f"{self.label}, weights {self._swapped}" if self._swapped else self.label

    @property
    def remembered(self) -> str:
        """What the policy remembers of its episode, in a few words; callable from any thread."""
        return self.policy.remembered() if isinstance(self.policy, StatefulPolicy) else "nothing: it has no memory"

    def step(self, step: PolicyStep) -> ActionChunk | None:
        """Take in one control step; returns a new chunk when one is due. A step seen before changes nothing."""
        stamp_ns = step.observation.stamp_ns
        episode = (step.episode, step.instruction)
        if episode != self._episode or stamp_ns < self._stamp_ns:
            self._swap_policy()
            self._swap_weights()
            self.policy.reset(step.instruction, step.episode, step.episode)
            if self.explore is not None:
                self.explore.begin(step.episode)
                if self.corrections is not None:
                    chosen = self.corrections.begin(step.episode, step.instruction, self.policy.version)
                    self.explore.correction = chosen
            self._written_by = ""
            if self.keeper is not None and self._episode is None:
                self._written_by = self.keeper.restore(self.policy, step.episode, step.instruction, stamp_ns)
            self._episode, self.chunk, self._overruled_ns = episode, None, -1
        self._stamp_ns, self._step = stamp_ns, step
        self.policy.observe(step.observation, step.memory)
        chunk = self._answer(step) if self._due(stamp_ns) else None
        if self.keeper is not None:
            self.keeper.save(self.policy, step.episode, step.instruction, stamp_ns)
        return chunk

    def ended(self, episode: int, outcome: float) -> None:
        """Learn how near the goal of ``episode`` came, 0..1; callable from any thread."""
        if self.corrections is not None:
            self.corrections.tell(episode, outcome)

    def overruled(self, by_person: Overruled) -> ActionChunk | None:
        """Plan anew from the next step on; returns a new chunk if that step was observed already."""
        step = self._step
        if step is None or step.episode != by_person.episode:
            return None
        self._overruled_ns = max(self._overruled_ns, by_person.stamp_ns)
        return self._answer(step) if by_person.stamp_ns < self._stamp_ns and self._due(self._stamp_ns) else None

    def _answer(self, step: PolicyStep) -> ActionChunk:
        if self._weights_fit():
            self._swap_weights()
        chunk = self.policy.act()
        if self.explore is not None:
            chunk = self.explore.apply(chunk)
        self.chunk = _standstill(chunk) if step.halted else chunk
        return self.chunk

    def _due(self, stamp_ns: int) -> bool:
        chunk = self.chunk
        return chunk is None or chunk.spent(stamp_ns) or chunk.stamp_ns <= self._overruled_ns

    def _weights_fit(self) -> bool:
        """Tell whether new weights can read the sequence memory: it is empty, or they wrote it themselves."""
        if not isinstance(self.policy, StatefulPolicy) or not self.policy.memory_state():
            return True
        with self._lock:
            return self._weights is not None and self._weights[1] == self._written_by

    def _swap_policy(self) -> None:
        with self._lock:
            if self._next is not None:  # pending weights were meant for the old policy
                (self.policy, self.label), self._next, self._weights = self._next, None, None
                self._loaded, self._swapped = self.policy.version, ""

    def _swap_weights(self) -> None:
        with self._lock:
            weights, self._weights = self._weights, None
        if weights is None:
            return
        path, version, lineage = weights
        try:
            check_lineage(self.policy, lineage, version)
            self.policy.load_weights(path, version)
            self._swapped = "" if version == self._loaded else version
        except WeightsError as error:  # the policy kept its old weights: go on with them
            self._on_refused(error)


def check_lineage(policy: Policy, lineage: Lineage | None, version: str) -> None:
    """Raise WeightsError, naming both lineages, unless ``policy`` takes the weights ``version`` of ``lineage``."""
    if policy.lineage is None:
        raise WeightsError(f"weights {version!r}: the policy {policy.version} names no lineage and takes no weights")
    policy.lineage.check(lineage, f"weights {version!r}")


def source_of(policy: Policy) -> ActionSource:
    """Return whose actions those of ``policy`` are; of one that names no lineage, the learner learns nothing."""
    lineage = policy.lineage
    name = policy.version if lineage is None else lineage.name
    return ActionSource(name, "" if lineage is None else lineage.id, policy.ablation)


def _standstill(chunk: ActionChunk) -> ActionChunk:
    """Return a chunk that holds the tool and the gripper at their targets."""
    if chunk.space == "ee_delta":
        actions = np.zeros_like(chunk.actions)
        actions[:, -1] = chunk.actions[0, -1]
    else:
        actions = np.repeat(chunk.actions[:1], len(chunk.actions), axis=0)
    return ActionChunk(
        chunk.stamp_ns, chunk.episode, chunk.space, actions, chunk.dt_s, chunk.execute_steps, "standstill"
    )
