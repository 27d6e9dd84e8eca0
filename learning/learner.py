"""The learner: new successes in, paced updates, candidate weights out; stops and resumes anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engram.core.errors import InvalidInputError, StoreError, WeightsError
from engram.core.types import PolicyManifest, Transition
from engram.learning.experience.database import sync_folder, write_atomic
from engram.learning.experience.store import EpisodeInfo
from engram.learning.replay.buffer import Batch, EpisodeStream, ReplayBuffer, ReplayConfig, Windows
from engram.learning.weights.manifest import make_manifest, tensor_specs, verify


class Trainer(Protocol):
    """An update rule with the policy it updates."""

    whole_episodes: bool
    """What it learns from: True = :class:`engram.learning.replay.buffer.Windows`, as a policy with a memory of its
    episode needs them, one after the other; False = single steps, a Batch."""

    def update(self, batch: Batch | Windows, seed: int) -> Mapping[str, float]:
        """Take one optimiser step on ``batch``; everything random follows from ``seed``."""

    def weights(self) -> bytes:
        """Return the policy's weights as a safetensors file."""

    def shrink(self, feature: str, images: np.ndarray) -> np.ndarray:
        """Return the images (n, 3, H, W) uint8 of ``feature`` as small as the policy sees them: replay keeps these."""

    def save(self) -> bytes:
        """Return the whole training state: weights, optimiser, averages."""

    def restore(self, state: bytes) -> None:
        """Go on from what :meth:`save` returned; raises WeightsError if it does not fit."""


class EpisodeSource(Protocol):
    """Where episodes come from: :class:`engram.learning.experience.store.SqliteExperienceStore`."""

    def catalogue(self, after: int = 0) -> Sequence[EpisodeInfo]:
        """Return the complete episodes with a number above ``after``, oldest first."""

    def episode(self, number: int) -> Sequence[Transition]:
        """Return the transitions of one episode; empty when it is gone."""


@dataclass(frozen=True)
class LearnerConfig:
    """Pace and size of the learning."""

    updates_per_episode: int = 20
    """Updates that each new success pays for: learning follows experience instead of running free."""
    batch_size: int = 32
    """Steps an update learns from."""
    window: int = 16
    """Of a policy with a memory of its episode: so many steps in a row, of batch_size // window episodes at once."""
    first_episodes: int = 5
    """Successes to wait for before the first update."""
    candidate_updates: int = 100
    """Updates between two candidates."""
    seed: int = 0
    """Of samples and of everything random in the updates."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidInputError(f"LearnerConfig.window: {self.window}, expected 1 or more")


@dataclass
class _Progress:
    """What is saved beside the trainer's state."""

    cursor: int = 0  # last episode number looked at
    episodes: int = 0  # episodes looked at
    successes: int = 0
    updates: int = 0
    update_credit: int = 0  # updates paid for and not yet taken
    at_candidate: int = 0  # updates when the last candidate was made
    candidates: int = 0
    parent: str = ""
    loss: float = 0.0  # running mean
    replay: list[int] = field(default_factory=list)  # numbers of the episodes in RAM
    streams: list[list[int]] = field(default_factory=list)  # where the walk through whole episodes stands
    config: dict[str, Any] = field(default_factory=dict)


class Learner:
    """Call :meth:`poll` when experience came, :meth:`step` while it returns metrics, then :meth:`candidate`.

    ``folder`` keeps the state: what :meth:`save` wrote is gone on from, bit for bit.

    Raises:
        InvalidInputError: the folder's state belongs to another configuration.
        WeightsError: the folder's state is damaged or belongs to another network.
    """

    def __init__(
        self,
        source: EpisodeSource,
        trainer: Trainer,
        folder: Path | str,
        parent: str,
        config: LearnerConfig | None = None,
        replay: ReplayBuffer | None = None,
    ) -> None:
        self.config = config or LearnerConfig()
        self.trainer = trainer
        self._source = source
        self._folder = Path(folder)
        self._specs = tensor_specs(trainer.weights())
        self._replay = replay or ReplayBuffer(self.config.replay, trainer.shrink)
        self._walk: EpisodeStream | None = None
        if trainer.whole_episodes:
            self._walk = EpisodeStream(
                self._replay, max(1, self.config.batch_size // self.config.window), self.config.window
            )
        self._progress = _Progress(parent=parent, config=asdict(self.config))
        if (self._folder / "current").exists():
            self._resume()

    @property
    def metrics(self) -> dict[str, Any]:
        """Counters and the running loss."""
        names = ("episodes", "successes", "updates", "update_credit", "candidates", "loss", "parent")
        return {name: getattr(self._progress, name) for name in names} | {"replay_steps": len(self._replay)}

    def poll(self) -> int:
        """Look at the episodes that came since the last call; return how many were successes."""
        state, found = self._progress, 0
        for info in self._source.catalogue(state.cursor):
            transitions = self._source.episode(info.number) if info.success else ()
            state.cursor = info.number
            state.episodes += 1
            if transitions:
                self._replay.add(info.number, transitions)
                state.successes += 1
                state.update_credit += self.config.updates_per_episode
                found += 1
        return found

    def step(self) -> Mapping[str, float] | None:
        """Take one update if one is paid for; return its metrics, None when there is nothing to do."""
        state = self._progress
        if state.update_credit == 0 or state.successes < self.config.first_episodes:
            return None
        metrics = self.trainer.update(self._batch(), seed=self.config.seed * 1_000_003 + state.updates)
        state.updates += 1
        state.update_credit -= 1
        weight = 1 / min(state.updates, 100)
        state.loss += weight * (float(metrics["loss"]) - state.loss)
        return metrics

    def _batch(self) -> Batch | Windows:
        seed = (self.config.seed, self._progress.updates)
        if self._walk is not None:
            return self._walk.next(seed)
        return self._replay.sample(self.config.batch_size, seed)

    def candidate(self) -> tuple[bytes, PolicyManifest] | None:
        """Return new weights with their manifest when enough updates were taken since the last ones, else None.

        What is returned has passed :func:`engram.learning.weights.manifest.verify` against the weights at the start.
        """
        state = self._progress
        if state.updates - state.at_candidate < self.config.candidate_updates:
            return None
        data = self.trainer.weights()
        metrics = {k: v for k, v in self.metrics.items() if k not in ("parent", "update_credit")}
        manifest = make_manifest(data, f"bc-{state.updates:07d}", state.parent, "candidate", metrics)
        manifest = make_manifest(data, f"{manifest.version}-{manifest.sha256[:8]}", state.parent, "candidate", metrics)
        verify(data, manifest, self._specs)
        state.at_candidate = state.updates
        state.candidates += 1
        return data, manifest

    def promoted(self, version: str) -> None:
        """Take note that ``version`` now drives the robots: it is the parent of the next candidates."""
        self._progress.parent = version

    def save(self) -> None:
        """Write the whole state; a crash leaves this one or the one before, never half of either."""
        self._progress.replay = list(self._replay.numbers)
        self._progress.streams = [] if self._walk is None else self._walk.places
        name = f"state-{self._progress.updates:09d}-{self._progress.cursor:09d}"
        folder = self._folder / name
        write_atomic(folder / "trainer.safetensors", self.trainer.save())
        write_atomic(folder / "progress.json", json.dumps(asdict(self._progress), indent=1).encode())
        write_atomic(self._folder / "current", name.encode())
        for old in self._folder.glob("state-*"):
            if old.name != name:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        sync_folder(self._folder)

    def _resume(self) -> None:
        folder = self._folder / (self._folder / "current").read_text()
        try:
            progress = json.loads((folder / "progress.json").read_text())
            state = (folder / "trainer.safetensors").read_bytes()
        except (OSError, ValueError) as error:
            raise StoreError(f"{folder}: the learner's state cannot be read: {error}") from error
        now = json.loads(json.dumps(asdict(self.config)))
        before = now | progress["config"]  # a setting that it does not know yet has changed nothing
        if before != now:
            changed = sorted(k for k in before if before[k] != now.get(k))
            raise InvalidInputError(
                f"{folder}: was trained with another {', '.join(changed)} "
                f"({', '.join(str(before[k]) for k in changed)}); use that or another folder"
            )
        try:
            self.trainer.restore(state)
        except WeightsError as error:
            raise WeightsError(f"{folder}: {error}") from error
        self._progress = _Progress(**progress)
        if self._walk is not None and self._progress.streams:
            self._walk.places = self._progress.streams
        for number in self._progress.replay:
            transitions = self._source.episode(number)
            if transitions:  # the store's own bound may have let it go
                self._replay.add(number, transitions)
