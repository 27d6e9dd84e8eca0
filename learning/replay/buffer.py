"""Replay buffer: episodes in RAM; batches of single control steps or windows of whole episodes come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.chunk_rows import UNLEARNT_KEY, chunk_rows, ends
from engram.core.context_rows import ContextRows
from engram.core.errors import InvalidInputError
from engram.core.types import Transition

BEFORE_TAKEOVER = 10
"""Control steps of the policy before a person takes over that are not imitated."""
IMAGES = "observation.images."
"""What LeRobot puts before a camera's name."""
STATE, ACTION = "observation.state", "action"
Batch = dict[str, Any]
"""LeRobot's keys: observation.images.<name> (B, 3, H, W) uint8, observation.state (B, 15) float32, action
(B, h, a) float32, ``UNLEARNT_KEY`` (B, h) bool, task: B instructions; of a policy that reads memory/context also
``MEMORY_KEYS``."""


@dataclass(frozen=True)
class ReplayConfig:
    """Size and mixture."""

    chunk_size: int = 16
    """Actions of a sample (h); must be the policy's."""
    capacity: int = 20_000
    """Most control steps in RAM; beyond it, a random old episode of the largest task goes."""
    newest: int = 10
    """This many episodes count as new."""
    share_new: float = 0.5
    """Share of a batch drawn from the new episodes; the rest comes from the old ones, each task alike."""
    seed: int = 0
    """Seed of the choice of what goes when the buffer is full; samples take their own seed."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.share_new <= 1.0:
            raise InvalidInputError(f"ReplayConfig.share_new: {self.share_new}, expected 0..1")
        for name in ("chunk_size", "capacity", "newest"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"ReplayConfig.{name}: {getattr(self, name)}, expected 1 or more")


@dataclass(frozen=True)
class Episode:
    """One episode."""

    number: int
    task: str  # its name, or its words where no task is registered, as on a robot
    instruction: str
    images: Mapping[str, np.ndarray]  # (n, 3, H, W) uint8
    state: np.ndarray  # (n, 15) float32
    action: np.ndarray  # (n, a) float32, as executed: what a person corrected is the target
    person: np.ndarray  # (n,) bool: a person drove
    context: ContextRows | None = None  # what the policy read of memory/context; None: nothing
    success: bool = True

    def __len__(self) -> int:
        return len(self.state)

    @property
    def unlearnt(self) -> np.ndarray:
        """Steps (n,) bool that the loss leaves out: the arm was held still, or led to where a person took over.

        The latter follows Sirius (arXiv 2211.08416): what a policy did just before it was overruled was not good.
        """
        out = np.asarray((self.action[:, :-1] == 0).all(axis=1))
        for taken in np.flatnonzero(self.person[1:] & ~self.person[:-1]) + 1:
            before = slice(max(0, taken - BEFORE_TAKEOVER), taken)
            out[before] |= ~self.person[before]
        return out

    def chunk(self, step: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``horizon`` actions from ``step`` on (h, a), and which of them the loss leaves out (h,)."""
        last, left_out = np.full(len(self), len(self) - 1), self.unlearnt
        end = ends(left_out, last)
        rows, unlearnt = chunk_rows(self.action, left_out, last, end, np.array([step]), horizon)
        return rows[0], unlearnt[0]


class ReplayBuffer:
    """Episodes by number, oldest first.

    Args:
        config: size and mixture.
        shrink: (feature, images) -> images as the policy downsamples them.
        takes: shapes of what the policy takes, by LeRobot's keys, images as ``shrink`` leaves them. Of an episode the
            other cameras are left out. Empty: nobody knows, and all episodes have to be like the first.
    """

    def __init__(
        self,
        config: ReplayConfig | None = None,
        shrink: Callable[[str, np.ndarray], np.ndarray] | None = None,
        takes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.config = config or ReplayConfig()
        self._shrink, self._takes = shrink, dict(takes or {})
        self._cameras = sorted(key.removeprefix(IMAGES) for key in self._takes if key.startswith(IMAGES))
        self._episodes: dict[int, Episode] = {}
        self._steps = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the episodes held, oldest first."""
        return tuple(self._episodes)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes held, oldest first."""
        return list(self._episodes.values())

    def __len__(self) -> int:
        """Control steps held."""
        return self._steps

    def add(self, number: int, transitions: Sequence[Transition]) -> None:
        """Take in episode ``number``; one that is already here is left alone.

        Raises:
            InvalidInputError: no transitions, or cameras, image sizes or action lengths differ within it, or from
                what the policy takes, or from what the buffer holds where nobody knows that.
        """
        if number in self._episodes:
            return
        if not transitions:
            raise InvalidInputError(f"episode {number}: no transitions")
        episode = self._pack(number, transitions)
        found = _shapes(episode)
        wanted = self._takes or _shapes(next(iter(self._episodes.values()), episode))
        if found != wanted:
            whose = "the policy takes" if self._takes else "the buffer holds"
            raise InvalidInputError(f"episode {number}: {_form(found)}, {whose} {_form(wanted)}")
        self._episodes[number] = episode
        self._steps += len(episode.state)
        while self._steps > self.config.capacity and len(self._episodes) > 1:
            self._drop_one(number)

    def get(self, number: int) -> Episode | None:
        """Return episode ``number``; None if it has gone."""
        return self._episodes.get(number)

    def draw(self, rng: np.random.Generator) -> Episode:
        """Draw a whole episode, with the probability that a sampled control step is one of its own."""
        new, old = self._new_and_old()
        if old and rng.random() >= self.config.share_new:
            return _draw_balanced(rng, old, 1)[0][0]
        return _draw_steps(rng, new, 1)[0][0]

    def sample(self, size: int, seed: Sequence[int]) -> Batch:
        """Return ``size`` samples; the same ``seed`` and contents give the same batch.

        Rows of a chunk after the end of its episode are zero motions, the gripper as it was. Rows at which the arm was
        held are marked in ``UNLEARNT_KEY``.

        Raises:
            InvalidInputError: the buffer is empty.
        """
        rng = np.random.default_rng(tuple(seed))
        new, old = self._new_and_old()
        count = round(size * self.config.share_new) if old else size
        picks = _draw_steps(rng, new, count) + _draw_balanced(rng, old, size - count)
        return self._batch(picks)

    def _new_and_old(self) -> tuple[list[Episode], list[Episode]]:
        if not self._episodes:
            raise InvalidInputError("ReplayBuffer: empty, expected at least one episode")
        episodes = list(self._episodes.values())
        return episodes[-self.config.newest :], episodes[: -self.config.newest]

    def _pack(self, number: int, transitions: Sequence[Transition]) -> Episode:
        has = sorted(transitions[0].images)
        names = self._cameras if self._takes else has
        if lacking := [name for name in names if name not in has]:
            raise InvalidInputError(
                f"episode {number}: no camera {' or '.join(lacking)}; the policy takes {', '.join(names)}, the episode "
                f"has {', '.join(has) or 'none'}"
            )
        try:
            images = {name: np.stack([t.images[name] for t in transitions]).transpose(0, 3, 1, 2) for name in names}
            state = np.stack([t.state for t in transitions])
            action = np.stack([t.executed_action for t in transitions])
            context = ContextRows.of([t.context for t in transitions])
        except (KeyError, ValueError) as error:
            raise InvalidInputError(f"episode {number}: images, actions or tokens change within it: {error}") from None
        shrink = self._shrink or (lambda _, stack: np.ascontiguousarray(stack))
        small = {name: shrink(IMAGES + name, stack) for name, stack in images.items()}
        words = transitions[0].instruction
        person = np.array([t.intervention for t in transitions])
        task, success = transitions[-1].task or words, transitions[-1].success
        return Episode(number, task, words, small, state, action, person, context, success)

    def _drop_one(self, keep: int) -> None:
        """Drop a random episode, not ``keep``, of the task with the most steps, so that no task displaces another."""
        held: dict[str, int] = {}
        for episode in self._episodes.values():
            held[episode.task] = held.get(episode.task, 0) + len(episode.state)
        others = {e.task for e in self._episodes.values() if e.number != keep}
        task = max(sorted(others), key=held.__getitem__)
        candidates = [e.number for e in self._episodes.values() if e.task == task and e.number != keep]
        rng = np.random.default_rng((self.config.seed, keep))
        victim = self._episodes.pop(candidates[int(rng.integers(len(candidates)))])
        self._steps -= len(victim.state)

    def _batch(self, picks: Sequence[tuple[Episode, int]]) -> Batch:
        action, unlearnt = zip(*(e.chunk(i, self.config.chunk_size) for e, i in picks), strict=True)
        return shown(picks) | {ACTION: np.stack(action), UNLEARNT_KEY: np.stack(unlearnt)}


@dataclass(frozen=True)
class Windows:
    """The next control steps of several episodes side by side, for a policy with a memory of its episode."""

    episodes: tuple[Episode, ...]  # one a stream
    at: np.ndarray  # (streams,) int64: its first step in the window; 0: the episode begins here
    steps: int  # of a window; an episode that ends sooner leaves the rest empty


def whole(episode: Episode) -> Windows:
    """Return all of ``episode`` as one window."""
    return Windows((episode,), np.zeros(1, np.int64), len(episode))


class EpisodeStream:
    """Reads whole episodes of ``replay`` in several parallel streams, a window of steps at a time.

    ``places`` is its position, [episode, next step] for each stream. To resume, save it and set it again.
    """

    def __init__(self, replay: ReplayBuffer, streams: int, window: int) -> None:
        self.replay, self.window = replay, window
        self.places: list[list[int]] = [[0, 0] for _ in range(streams)]  # episodes count from 1

    def restart(self) -> None:
        """Let every stream begin an episode next."""
        self.places = [[0, 0] for _ in self.places]

    def next(self, seed: Sequence[int]) -> Windows:
        """Return the next window and move on; ``seed`` draws the episodes that begin. An episode that was dropped ends.

        Raises:
            InvalidInputError: the buffer is empty.
        """
        episodes, at = [], []
        for stream, (number, step) in enumerate(self.places):
            episode = self.replay.get(number)
            if episode is None or step >= len(episode):
                episode, step = self.replay.draw(np.random.default_rng((*seed, stream))), 0
            episodes.append(episode)
            at.append(step)
            self.places[stream] = [episode.number, step + self.window]
        return Windows(tuple(episodes), np.array(at, np.int64), self.window)


def shown(picks: Sequence[tuple[Episode, int]]) -> Batch:
    """Return what a policy sees at steps of episodes: a batch without actions."""
    batch: Batch = {IMAGES + name: np.stack([e.images[name][i] for e, i in picks]) for name in picks[0][0].images}
    batch |= {
        STATE: np.stack([e.state[i] for e, i in picks]),
        "task": [e.instruction for e, _ in picks],
    }
    episodes = {e.number: e for e, _ in picks}
    offered = ContextRows.joined([(e.context, len(e)) for e in episodes.values()])
    if offered is None:
        return batch
    begins = dict(zip(episodes, np.cumsum([0, *(len(e) for e in episodes.values())]).tolist(), strict=False))
    return batch | offered.at(np.array([begins[e.number] + i for e, i in picks]))


def _shapes(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Return the shapes that must be the same in all episodes, by LeRobot's keys."""
    images = {IMAGES + name: stack.shape[1:] for name, stack in episode.images.items()}
    return images | {STATE: episode.state.shape[1:], ACTION: episode.action.shape[1:]}


def _form(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return ``shapes`` in words."""
    cameras = ", ".join(f"{key.removeprefix(IMAGES)} {shapes[key]}" for key in sorted(shapes) if key.startswith(IMAGES))
    return f"images {cameras or 'none'}; state {shapes[STATE]}; action {shapes[ACTION]}"


def _draw_steps(rng: np.random.Generator, episodes: Sequence[Episode], count: int) -> list[tuple[Episode, int]]:
    """Draw control steps, each step of ``episodes`` with the same probability."""
    if count == 0:
        return []
    ends = np.cumsum([len(e.state) for e in episodes])
    flat = rng.integers(ends[-1], size=count)
    which = np.searchsorted(ends, flat, side="right")
    starts = ends - [len(e.state) for e in episodes]
    return [(episodes[k], int(f - starts[k])) for k, f in zip(which, flat, strict=True)]


def _draw_balanced(rng: np.random.Generator, episodes: Sequence[Episode], count: int) -> list[tuple[Episode, int]]:
    """Draw control steps: each task with the same probability, and within it each step."""
    tasks = sorted({e.task for e in episodes})
    picks: list[tuple[Episode, int]] = []
    for _ in range(count):
        task = tasks[int(rng.integers(len(tasks)))]
        picks += _draw_steps(rng, [e for e in episodes if e.task == task], 1)
    return picks
