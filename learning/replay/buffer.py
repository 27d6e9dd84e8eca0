"""Replay buffer: episodes in RAM; batches of single control steps or windows of whole episodes come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from engram.core.chunk_rows import UNLEARNT_KEY, chunk_rows, ends
from engram.core.context_rows import ContextRows
from engram.core.errors import InvalidInputError
from engram.core.types import Transition
from engram.learning.replay.draws import Pool, counts
from engram.learning.replay.pictures import PictureStore

BEFORE_TAKEOVER = 10
"""Control steps of the policy before a person takes over that are not imitated."""
IMAGES = "observation.images."
"""What LeRobot puts before a camera's name."""
STATE, ACTION = "observation.state", "action"
Batch = dict[str, Any]
"""LeRobot's keys: observation.images.<name> (B, 3, H, W) uint8, observation.state (B, 15) float32, action
(B, h, a) float32, ``UNLEARNT_KEY`` (B, h) bool, task: B instructions; of a policy that reads memory/context also
``MEMORY_KEYS``."""
LARGEST = 100.0
"""Larger numbers no robot measures or does: metres, radians, shares."""
CLAIMS = ("share_earlier", "share_successes", "share_failures", "share_person")
"""Parts of a batch of their own, in the order in which they are drawn."""


class OutOfRangeError(InvalidInputError):
    """An episode has numbers that no robot measures, such as those of a sensor that failed: nothing can be learnt."""


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
    """Share drawn from the new episodes, of the part of a batch that no other share claims; the rest of that comes from
    the old ones, each task alike."""
    share_successes: float = 0.0
    """Share of a batch drawn from successes alone, each task alike. 0: they get no part of their own and come as often
    as they are there; so they do while there is none."""
    share_failures: float = 0.0
    """The same of failures, for an algorithm that learns from them."""
    share_person: float = 0.0
    """The same of control steps that a person drove: interventions and demonstrations."""
    earlier: tuple[str, ...] = ("",)
    """Folders with the experience of earlier experiments, which is learnt from as well, and only read. The same rules
    say which of their episodes may be learnt from, and one without any is refused; these pay for no updates. Of as many
    steps as in capacity; [""]: none, as has to be where updates_per_episode is 0."""
    share_earlier: float = 0.5
    """Share of a batch drawn from the earlier experiments, each task alike; all of it while there is nothing else."""
    seed: int = 0
    """Seed of the choice of what goes when the buffer is full; samples take their own seed."""

    def __post_init__(self) -> None:
        for name in (*CLAIMS, "share_new"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"ReplayConfig.{name}: {getattr(self, name)}, expected 0..1")
        claims = {name: getattr(self, name) for name in CLAIMS if name != "share_earlier" or self.experiments}
        if sum(claims.values()) > 1.0 + 1e-9:
            told = ", ".join(f"{name} {share}" for name, share in claims.items())
            raise InvalidInputError(f"ReplayConfig: {told}: {sum(claims.values()):g} together, expected at most 1")
        for name in ("chunk_size", "capacity", "newest"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"ReplayConfig.{name}: {getattr(self, name)}, expected 1 or more")

    @property
    def experiments(self) -> tuple[str, ...]:
        """The folders of earlier experiments."""
        return tuple(folder for folder in self.earlier if folder)


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
    still: np.ndarray | None = None  # (n,) bool: the robot did not move, but by the policy's own word; None: not known
    planned: np.ndarray | None = None  # (n,) int64: when the proposed action was planned; None, 0: not known

    def __len__(self) -> int:
        return len(self.state)

    @property
    def earlier(self) -> bool:
        """Whether it is of an earlier experiment, by its number, see :mod:`engram.learning.replay.earlier`."""
        return self.number < 0

    @cached_property
    def held(self) -> np.ndarray:
        """Steps (n,) bool at which the arm was held still; where nobody tells, those without a motion."""
        return _fixed((self.action[:, :-1] == 0).all(axis=1) if self.still is None else self.still.copy())

    @cached_property
    def takeovers(self) -> np.ndarray:
        """Steps (k,) at which a person took over from the policy."""
        return _fixed(np.flatnonzero(self.person[1:] & ~self.person[:-1]) + 1)

    @cached_property
    def unlearnt(self) -> np.ndarray:
        """Steps (n,) bool that the loss leaves out: the arm was held still, or led to where a person took over.

        The latter follows Sirius (arXiv 2211.08416): what a policy did just before it was overruled was not good. Nor
        was the plan that was overruled, from its first action on.
        """
        out = self.held.copy()
        for taken in self.takeovers:
            before = slice(min(max(0, taken - BEFORE_TAKEOVER), self._planned_from(taken - 1)), taken)
            out[before] |= ~self.person[before]
        return _fixed(out)

    def _planned_from(self, step: int) -> int:
        """Return the first of the steps up to ``step`` that were planned together with it."""
        if self.planned is None or not self.planned[step]:
            return step
        others = np.flatnonzero(self.planned[:step] != self.planned[step])
        return int(others[-1]) + 1 if len(others) else 0


class StepTable:
    """The control steps of ``episodes`` as rows, those of the first one first: a batch is gathered by a few calls.

    What depends on the episodes alone is computed once.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.episodes = tuple(episodes)
        lengths = np.array([len(e) for e in episodes])
        self.episode = np.repeat(np.arange(len(lengths)), lengths)  # (n,) of each row
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self.episode)

    @cached_property
    def person(self) -> np.ndarray:
        """Steps (n,) bool that a person drove."""
        return np.concatenate([e.person for e in self.episodes])

    @cached_property
    def success(self) -> np.ndarray:
        """Steps (n,) bool of episodes that went well."""
        return np.array([e.success for e in self.episodes])[self.episode]

    @cached_property
    def task(self) -> np.ndarray:
        """Number (n,) of each step's task, by their names."""
        return np.unique([e.task for e in self.episodes], return_inverse=True)[1][self.episode]

    @cached_property
    def _chunks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What ``chunk_rows`` takes of all steps."""
        last = (np.cumsum(self._lengths) - 1)[self.episode]
        unlearnt = np.concatenate([e.unlearnt for e in self.episodes])
        return np.concatenate([e.action for e in self.episodes]), unlearnt, last, ends(unlearnt, last)

    @cached_property
    def _state(self) -> np.ndarray:
        return np.concatenate([e.state for e in self.episodes])

    @cached_property
    def _words(self) -> np.ndarray:
        return np.array([e.instruction for e in self.episodes], object)

    @cached_property
    def _context(self) -> tuple[ContextRows | None, np.ndarray]:
        """What was offered at all steps, and how many entries at most in each episode (e,)."""
        entries = [0 if e.context is None else e.context.which.shape[1] for e in self.episodes]
        return ContextRows.joined([(e.context, len(e)) for e in self.episodes]), np.array(entries)

    def seen(self, rows: np.ndarray, images: Mapping[str, np.ndarray]) -> Batch:
        """Return what a policy sees at ``rows`` (b,), the ``images`` (b, 3, H, W) among it: a batch without actions."""
        whose, (offered, entries) = self.episode[rows], self._context
        batch: Batch = {IMAGES + name: stack for name, stack in images.items()}
        batch |= {STATE: self._state[rows], "task": self._words[whose].tolist()}
        most = int(entries[whose].max())
        if offered is None or not most:
            return batch
        return batch | {key: value[:, :most] for key, value in offered.at(rows).items()}

    def done(self, rows: np.ndarray, horizon: int) -> Batch:
        """Return the ``horizon`` actions from each of ``rows`` (b,) on, and which of them the loss leaves out."""
        action, unlearnt = chunk_rows(*self._chunks, rows, horizon)
        return {ACTION: action, UNLEARNT_KEY: unlearnt}


_Parts = tuple[list[tuple[float, Pool]], Pool, Pool]
_NOTHING = Pool.even(np.zeros(0, np.int64))


class ReplayBuffer:
    """Episodes by number, oldest first.

    Args:
        config: size and mixture.
        shrink: (feature, images) -> images as the policy downsamples them.
        takes: shapes of what the policy takes, by LeRobot's keys, images as ``shrink`` leaves them. Of an episode the
            other cameras are left out. Empty: nobody knows, and all episodes have to be like the first one of the
            learner's own, or while there is none like the first one of earlier experiments.
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
        self._earlier: dict[int, Episode] = {}  # of earlier experiments
        self._table: StepTable | None = None  # of all of them; None: others have come or gone since
        self._pictures = PictureStore(self.config.capacity)
        self._places = np.zeros((0, 2), np.int64)  # (n, 2) of the table's pictures there
        self._parts: _Parts = ([], _NOTHING, _NOTHING)  # of a batch, with their shares; what is new of its rest; old

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the episodes held, oldest first, without those of earlier experiments."""
        return tuple(self._episodes)

    @property
    def earlier(self) -> tuple[int, ...]:
        """Numbers of the episodes held of earlier experiments."""
        return tuple(self._earlier)

    @property
    def episodes(self) -> list[Episode]:
        """The episodes held, oldest first."""
        return [*self._earlier.values(), *self._episodes.values()]

    def __len__(self) -> int:
        """Control steps held."""
        return sum(map(len, self.episodes))

    def add(self, number: int, transitions: Sequence[Transition], *, earlier: bool = False) -> None:
        """Take in episode ``number``; one that is already here is left alone.

        ``earlier``: it is of an earlier experiment. Those that differ from the first one of the learner's own go when
        that comes.

        Raises:
            InvalidInputError: no transitions, or cameras, image sizes or action lengths differ within it, or from
                what the policy takes, or from what the buffer holds where nobody knows that.
            OutOfRangeError: a state or action is larger than ``LARGEST``.
        """
        if self.get(number) is not None:
            return
        if not transitions:
            raise InvalidInputError(f"episode {number}: no transitions")
        episode = self._pack(number, transitions)
        found = _shapes(episode)
        like = self._episodes or (self._earlier if earlier else {})
        wanted = self._takes or _shapes(next(iter(like.values()), episode))
        if found != wanted:
            whose = "the policy takes" if self._takes else "the buffer holds"
            raise InvalidInputError(f"episode {number}: {_form(found)}, {whose} {_form(wanted)}")
        held, self._table = self._earlier if earlier else self._episodes, None
        if not (earlier or self._episodes):
            for other in [one.number for one in self._earlier.values() if _shapes(one) != found]:
                self._let_go(self._earlier, other)
        held[number] = episode
        while len(held) > 1 and sum(map(len, held.values())) > self.config.capacity:
            self._drop_one(held, number)
        held[number] = self._pictures.take_in(episode)

    def get(self, number: int) -> Episode | None:
        """Return episode ``number``; None if it has gone."""
        return self._episodes.get(number) or self._earlier.get(number)

    def draw(self, rng: np.random.Generator) -> Episode:
        """Draw a whole episode, with the probability that a sampled control step is one of its own."""
        table = self._steps()
        claims, new, old = self._parts
        at = int(np.searchsorted(np.cumsum([share for share, _ in claims]), rng.random(), "right")) if claims else 0
        if at < len(claims):
            pool = claims[at][1]
        else:
            pool = old if len(old) and rng.random() >= self.config.share_new else new
        return table.episodes[table.episode[pool.draw(rng, 1)[0]]]

    def sample(self, size: int, seed: Sequence[int]) -> Batch:
        """Return ``size`` samples; the same ``seed`` and contents give the same batch.

        Rows of a chunk after the end of its episode are zero motions, the gripper as it was. Rows at which the arm was
        held are marked in ``UNLEARNT_KEY``.

        Raises:
            InvalidInputError: the buffer is empty.
        """
        rng, table = np.random.default_rng(tuple(seed)), self._steps()
        claims, new, old = self._parts
        claimed = counts(size, [share for share, _ in claims])
        rows = [pool.draw(rng, count) for (_, pool), count in zip(claims, claimed, strict=True)]
        rest = size - sum(claimed)
        count = round(rest * self.config.share_new) if len(old) else rest
        rows += [new.draw(rng, count), old.draw(rng, rest - count)]
        drawn = np.concatenate(rows)
        return table.seen(drawn, self._pictures.at(self._places[drawn])) | table.done(drawn, self.config.chunk_size)

    def _steps(self) -> StepTable:
        """Return all steps held, and see to what is drawn from them, and to where their pictures lie."""
        if self._table is None:
            if not self.episodes:
                raise InvalidInputError("ReplayBuffer: empty, expected at least one episode")
            self._table, self._places = StepTable(self.episodes), self._pictures.places(self.episodes)
            self._parts = self._parts_of(self._table)
        return self._table

    def _parts_of(self, table: StepTable) -> _Parts:
        is_own = table.episode >= len(self._earlier)
        is_new = table.episode >= max(len(self._earlier), len(table.episodes) - self.config.newest)
        rows = np.arange(len(table))

        def alike(which: np.ndarray) -> Pool:
            return Pool.balanced(rows[which], table.task[which])

        claimed = {
            "share_earlier": ~is_own,
            "share_successes": is_own & table.success,
            "share_failures": is_own & ~table.success,
            "share_person": is_own & table.person,
        }
        if not self._episodes:
            return [(1.0, alike(~is_own))], _NOTHING, _NOTHING
        shares = ((getattr(self.config, name), which) for name, which in claimed.items())
        claims = [(share, alike(which)) for share, which in shares if share and which.any()]
        return claims, Pool.even(rows[is_new]), alike(is_own & ~is_new)

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
        for what, numbers in (("state", state), ("executed_action", action)):
            if len(wrong := np.argwhere(~(np.abs(numbers) <= LARGEST))):
                step, at = wrong[0]
                told = f"{what}[{at}] is {numbers[step, at]:g} at step {transitions[step].step}"
                raise OutOfRangeError(f"episode {number}: {told}, expected {-LARGEST:g} .. {LARGEST:g}")
        shrink = self._shrink or (lambda _, stack: np.ascontiguousarray(stack))
        small = {name: shrink(IMAGES + name, stack) for name, stack in images.items()}
        words = transitions[0].instruction
        person = np.array([t.intervention for t in transitions])
        task, success = transitions[-1].task or words, transitions[-1].success
        still = np.array([_stood_still(t) for t in transitions])
        planned = np.array([t.chunk_ns for t in transitions], np.int64)
        return Episode(number, task, words, small, state, action, person, context, success, still, planned)

    def _drop_one(self, held: dict[int, Episode], keep: int) -> None:
        """Drop a random episode of ``held``, not ``keep``, of the task with the most steps.

        So no task displaces another.
        """
        steps: dict[str, int] = {}
        for episode in held.values():
            steps[episode.task] = steps.get(episode.task, 0) + len(episode)
        others = {e.task for e in held.values() if e.number != keep}
        task = max(sorted(others), key=steps.__getitem__)
        candidates = [e.number for e in held.values() if e.task == task and e.number != keep]
        rng = np.random.default_rng((self.config.seed, abs(keep)))
        self._let_go(held, candidates[int(rng.integers(len(candidates)))])

    def _let_go(self, held: dict[int, Episode], number: int) -> None:
        """Drop an episode of ``held``, and take those whose pictures move so that its own are freed."""
        del held[number]
        for moved in self._pictures.let_go(number):
            (self._earlier if moved.number in self._earlier else self._episodes)[moved.number] = moved


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
    episodes = {e.number: e for e, _ in picks}
    begins = dict(zip(episodes, np.cumsum([0, *map(len, episodes.values())]).tolist(), strict=False))
    images = {name: np.stack([e.images[name][i] for e, i in picks]) for name in picks[0][0].images}
    return StepTable(list(episodes.values())).seen(np.array([begins[e.number] + i for e, i in picks]), images)


def _shapes(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Return the shapes that must be the same in all episodes, by LeRobot's keys."""
    images = {IMAGES + name: stack.shape[1:] for name, stack in episode.images.items()}
    return images | {STATE: episode.state.shape[1:], ACTION: episode.action.shape[1:]}


def _form(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return ``shapes`` in words."""
    cameras = ", ".join(f"{key.removeprefix(IMAGES)} {shapes[key]}" for key in sorted(shapes) if key.startswith(IMAGES))
    return f"images {cameras or 'none'}; state {shapes[STATE]}; action {shapes[ACTION]}"


def _stood_still(step: Transition) -> bool:
    """Tell whether the robot held, or did not move although the policy did not say so itself."""
    moved, wanted = step.executed_action[:-1].any(), step.action[:-1].any()
    own = bool(step.author) and not step.held and not step.intervention
    return bool(step.held) or not (moved or (own and not wanted))


def _fixed(array: np.ndarray) -> np.ndarray:
    """Return ``array``, which nobody may change any more."""
    array.flags.writeable = False
    return array
