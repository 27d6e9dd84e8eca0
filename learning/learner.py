"""The learner: takes episodes of its own policy, trains at a pace they set, makes candidate weights, and resumes."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError, StoreError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.provenance import digest
from engram.core.types import PolicyManifest, Transition
from engram.learning.algorithms import Algorithm, make_algorithm
from engram.learning.experience.database import UnreadableStoreError
from engram.learning.experience.eligibility import (
    ALONE,
    BEYOND,
    FAILED,
    MISFIT,
    STALE,
    UNREADABLE,
    WITHOUT_CONTEXT,
    shows_more,
    why_not,
)
from engram.learning.experience.reader import EpisodeInfo
from engram.learning.learner_config import LearnerConfig, check_paid, check_shares, with_chunk
from engram.learning.progress import Progress, load_progress, save_progress
from engram.learning.replay.buffer import CLAIMS, Batch, Episode, EpisodeStream, OutOfRangeError, ReplayBuffer, Windows
from engram.learning.replay.earlier import number_of, open_earlier
from engram.learning.replay.shown import ShownEpisodes, ShownSamples
from engram.learning.replay.taken import taken_by
from engram.learning.rewards.goal import kind_of
from engram.learning.weights.manifest import make_manifest, tensor_specs, verify

CODE = ("core/**/*.py", "learning/**/*.py", "policies/**/*.py")
"""What makes a candidate, beside the experience; its digest is on the candidate's card."""
TOLD = (
    "episodes",
    "successes",
    "failures",
    "updates",
    "update_credit",
    "corrections",
    "candidates",
    "loss",
    "parent",
)
"""What of its progress is among its metrics."""
_CANDIDATE = re.compile(r"candidate-([0-9]{7,15})-[0-9a-f]{8}")
"""Version of a candidate; the number is of the updates that were taken until then. Of longer ones it is no number."""
OUT_OF_RANGE = "numbers out of range"
"""Why an episode is passed over with a state or action that no robot has, such as of a sensor that failed."""
LINE = 50
"""Newest candidates that training is known to have come through."""


class _WithoutContextError(InvalidInputError):
    """An episode lacks what its policy acts on."""


class EpisodeSource(Protocol):
    """Where episodes come from: :class:`engram.learning.experience.store.ExperienceStore`."""

    id: str
    """Tells it from any other: the numbers of its episodes mean nothing elsewhere. Empty: there is no other."""

    def catalogue(self, after: int = 0) -> Sequence[EpisodeInfo]:
        """Return the complete episodes with a number above ``after``, oldest first."""

    def episode(self, number: int) -> Sequence[Transition]:
        """Return the transitions of one episode; empty when it is gone."""


class Learner:
    """Fine-tunes ``policy`` on the experience of its own lineage.

    Offline: :meth:`run`. Beside a robot: :meth:`poll` when experience came, :meth:`step` while it returns metrics, then
    :meth:`candidate`.

    Args:
        source: the experience.
        policy: where training begins; its own weights stay as they are.
        algorithm: a name of ``engram.learning.algorithms.ALGORITHMS``, ``package.module:attribute``, or one that is
            already made for ``policy``.
        folder: for :meth:`save`; ``~`` is the home folder. What was saved there is gone on from, bit for bit, if
            source and config are as they were; :attr:`changed` tells where not.
        parent: version that drives the robots; default: the policy's.
        config: pace and size; the length of a chunk is the policy's, where the algorithm knows it.

    Raises:
        UnknownNameError: there is no such algorithm.
        CannotTrainError: updates are paid for that the algorithm cannot take.
        InvalidInputError: the algorithm cannot train this policy, the folder's state does not fit a setting, or
            nothing may be learnt from of an earlier experiment.
        UnreadableStoreError, WeightsError: the folder's state is damaged, or of another network or lineage.
        StoreError: the disk refuses it, or the experience is damaged.
    """

    def __init__(
        self,
        source: EpisodeSource,
        policy: Policy,
        algorithm: str | Algorithm = "behavior_cloning",
        *,
        folder: Path | str | None = None,
        parent: str = "",
        config: LearnerConfig | None = None,
    ) -> None:
        self.algorithm = make_algorithm(algorithm, policy) if isinstance(algorithm, str) else algorithm
        self.config = with_chunk(config or LearnerConfig(), self.algorithm.chunk_steps)
        check_paid(self.algorithm, self.config)
        check_shares(self.algorithm, self.config)
        self.lineage = self.algorithm.lineage
        self._source = source
        self._folder = None if folder is None else Path(folder).expanduser()
        began = self.algorithm.weights()
        self._specs, self._began = tensor_specs(began), hashlib.sha256(began).hexdigest()
        self._takes = taken_by(self.algorithm)
        self._replay = ReplayBuffer(self.config.replay, self.algorithm.shrink, self._takes)
        self._stream: EpisodeStream | None = None
        if self.algorithm.whole_episodes and not self.algorithm.whole_replay:
            streams = max(1, self.config.batch_size // self.config.window)
            self._stream = EpisodeStream(self._replay, streams, self.config.window)
        settings = json.loads(json.dumps(asdict(self.config)))
        version = parent or policy.version
        self._progress = Progress(version, self.lineage.id, settings, source.id, line={version: ""})
        self.misfit = ""
        """Why the newest of the episodes was passed over that are of another shape."""
        self.strange = ""
        """Which number of the newest episode that was passed over for its numbers is out of range."""
        self.stale = ""
        """Which robot drove the newest episode that was passed over for its weights, and how far those are behind."""
        self._drove: dict[str, str] = {}  # robot -> version of its newest episode
        self.changed: dict[str, str] = {}
        """What is other than when the folder's state was saved -> how, and what becomes of it, in words."""
        self.earlier_passed_over: dict[str, int] = {}
        """Reason -> episodes of earlier experiments that are not learnt from."""
        self._earlier = ""  # digest of those that may be learnt from
        if self.config.replay.experiments:
            self._look_at_earlier()
        if self._folder is not None:
            self._resume(self._folder, settings)

    @property
    def metrics(self) -> dict[str, Any]:
        """Counters and the running loss."""
        found = {name: getattr(self._progress, name) for name in TOLD} | {"replay_steps": len(self._replay)}
        return found | ({"earlier_episodes": len(self._replay.earlier)} if self.config.replay.experiments else {})

    @property
    def line(self) -> Mapping[str, str]:
        """Versions that training came through since it began from weights that drove, those first, with their sha256.

        The sha256 of what the very first training began with is empty.
        """
        return dict(self._progress.line)

    @property
    def teaches(self) -> str:
        """What episodes give it to learn, in words; begins with ``nothing`` where there is nothing."""
        state, alone = self._progress, self._progress.passed_over.get(ALONE, 0)
        if self.algorithm.frozen:
            return f"nothing of successes: {self.algorithm.frozen}; a correction that practice finds teaches"
        if not self.config.updates_per_episode:
            return (
                "nothing: updates_per_episode is 0, so no success is imitated; a correction that practice finds teaches"
            )
        if self.algorithm.learns_from_failures and state.successes + state.failures:
            told = f"{state.successes} successes and {state.failures} failures"
            why = "" if self._learnt else self.algorithm.waits_for(self._replay.episodes)
            return f"nothing yet of {told}: {why}" if why else told
        if state.successes:
            return f"{state.successes} successes" + (f", {alone} of {ALONE} passed over" if alone else "")
        if alone:
            return f"nothing: {alone} successes of {ALONE}; exploration, a person's help or a correction would teach"
        return "nothing: no success of its own has come in yet"

    @property
    def passed_over(self) -> dict[str, int]:
        """Episodes to learn from that were not, by reason; see ``engram.learning.experience.eligibility``."""
        return dict(self._progress.passed_over)

    def poll(self) -> int:
        """Look at the episodes that came since the last call; return how many are to be learnt from."""
        state, found = self._progress, 0
        for info in self._source.catalogue(state.cursor):
            state.cursor = info.number
            found += self._take(info)
        return found

    def _take(self, info: EpisodeInfo) -> int:
        """Learn from the episode from now on, if it may be learnt from; return 1 if so, else 0."""
        state = self._progress
        state.episodes += 1
        self._drove[info.robot_id] = info.policy_version
        transitions, reason = self._put(info, self._source, info.number)
        if reason:
            return self._pass_over(reason)
        if not transitions:
            return 0
        state.experience = _after(state.experience, transitions)
        state.successes += info.success
        state.failures += not info.success
        state.update_credit += self.config.updates_per_episode
        return 1

    def _put(
        self, info: EpisodeInfo, source: EpisodeSource, number: int, *, earlier: bool = False
    ) -> tuple[Sequence[Transition], str]:
        """Put an episode of ``source`` into the replay buffer as ``number``, if it may be learnt from.

        Return its steps, and why it was passed over. Neither: it is none to learn from, or the store's bound has let it
        go.
        """
        all_teach = self.algorithm.learns_from_failures
        if not info.success and not (all_teach and info.judged):
            return (), ""
        if reason := self.why_not(info) or ("" if earlier else self._why_stale(info)):
            return (), reason
        try:
            transitions = source.episode(info.number)
            if not transitions:
                return (), ""
            if not (all_teach or self.config.imitate_own or shows_more(transitions)):
                return (), ALONE
            self._hold(number, transitions, earlier=earlier)
        except StoreError:  # the episodes after it are learnt from all the same
            return (), UNREADABLE
        except _WithoutContextError:
            return (), WITHOUT_CONTEXT
        except OutOfRangeError as error:
            self.strange = f"{info.robot_id}: {error}"
            return (), OUT_OF_RANGE
        except InvalidInputError as error:  # of other images or tokens than the network's, or than the buffer's
            self.misfit = str(error)
            return (), MISFIT
        return transitions, ""

    def _hold(self, number: int, transitions: Sequence[Transition], *, earlier: bool = False) -> None:
        """Put an episode into the replay buffer. Its first own one decides which of earlier experiments fit.

        Raises:
            InvalidInputError: it does not fit, see :meth:`ReplayBuffer.add`.
        """
        before = len(self._replay.earlier)
        self._replay.add(number, self._read_of(transitions), earlier=earlier)
        if not earlier and (gone := before - len(self._replay.earlier)):
            self._pass_over_earlier(MISFIT, gone)
            self.misfit = f"{gone} episodes of earlier experiments: of another shape than the learner's own"

    def _pass_over_earlier(self, reason: str, count: int) -> None:
        self.earlier_passed_over[reason] = self.earlier_passed_over.get(reason, 0) + count

    def _look_at_earlier(self) -> None:
        """Put what may be learnt from of earlier experiments into the replay buffer; count what may not.

        Raises:
            InvalidInputError: there is nothing of the kind in one of the folders, or it cannot be read.
        """
        option, folders, usable = "LearnerConfig.replay.earlier", self.config.replay.experiments, 0
        for folder, reader in zip(folders, open_earlier(option, folders, self._source.id), strict=True):
            try:
                known = reader.catalogue()
            except StoreError as error:
                raise InvalidInputError(f"{option}: {error}") from error
            found, reasons = 0, Counter({UNREADABLE: len(reader.unreadable)} if reader.unreadable else {})
            for info in known:
                steps, reason = self._put(info, reader, number_of(reader.id, info.number), earlier=True)
                if steps and not reason:
                    found, self._earlier = found + 1, _after(self._earlier, steps)
                elif reason or not info.success:
                    reasons[reason or FAILED] += 1
            if not found:
                told = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "there is none"
                raise InvalidInputError(
                    f"{option}: {folder}: none of its episodes may be learnt from ({told}); expected some of lineage "
                    f"{self.lineage}, as are left by an experiment that began with the same checkpoint"
                )
            for reason, count in reasons.items():
                self._pass_over_earlier(reason, count)
            usable += found
        if gone := usable - len(self._replay.earlier):
            self._pass_over_earlier(BEYOND, gone)

    def _pass_over(self, reason: str) -> int:
        self._progress.passed_over[reason] = self._progress.passed_over.get(reason, 0) + 1
        return 0

    def why_not(self, info: EpisodeInfo) -> str:
        """Return why the episode may not be learnt from, by what is known without its steps; empty: it may."""
        return why_not(info.sources, self.lineage, blind=self.algorithm.token_width > 0)

    def _why_stale(self, info: EpisodeInfo) -> str:
        updates, most = self._behind(info.policy_version), self.config.most_behind
        if not 0 < most < updates:
            return ""
        acted, drives = info.policy_version, self._progress.parent
        self.stale = f"{info.robot_id}: {acted} is {updates} updates behind {drives}, most_behind is {most}"
        return STALE

    def _behind(self, version: str) -> int:
        return max(0, _updates_of(self._progress.parent) - _updates_of(version))

    @property
    def lags(self) -> dict[str, int]:
        """By how many updates the weights that drove each robot's newest episode are behind, the most first.

        Of the robots whose episodes came since this learner was made.
        """
        found = {robot: self._behind(version) for robot, version in dict(self._drove).items()}
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))

    def step(self) -> Mapping[str, float] | None:
        """Take one update if one is paid for; return its metrics, None when there is nothing to do."""
        state = self._progress
        if state.update_credit == 0 or state.successes < self.config.first_episodes or not len(self._replay):
            return None
        metrics = self._update()
        state.update_credit -= 1
        return metrics

    def run(self, updates: int) -> tuple[bytes, PolicyManifest]:
        """Take ``updates`` updates on the experience that there is, at once; return new weights and their manifest.

        Raises:
            InvalidInputError: there is nothing to learn from, and why.
        """
        self.poll()
        if not len(self._replay):
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.passed_over.items()) or "none"
            raise InvalidInputError(
                f"Learner.run: no successful episode of lineage {self.lineage} among {self._progress.episodes}; "
                f"successes passed over: {reasons}"
            )
        for _ in range(updates):
            self._update()
        if self._is_known():
            why = self.algorithm.waits_for(self._replay.episodes)
            raise InvalidInputError(f"Learner.run: {updates} updates changed nothing" + (f": {why}" if why else ""))
        return self._make_candidate()

    def correct(
        self,
        practised: Iterable[tuple[MotionCorrection, Sequence[Transition]]],
        others: Iterable[Sequence[Transition]] = (),
        check: Callable[[], None] = lambda: None,
    ) -> tuple[bytes, PolicyManifest]:
        """Make corrections of the policy's motions part of the weights; return them and their manifest.

        It learns in what it saw in all of the episodes, successes or not. It counts as one update.

        Args:
            practised: corrections of the weights as they are, each with an episode that shows where; one for each kind
                of goal.
            others: episodes of other goals, in which the policy keeps its answers.
            check: called now and then; what it raises is raised, and nothing has changed.

        Raises:
            InvalidInputError: there is no episode, or the algorithm cannot do it.
            WeightsError: what came of it is not finite.
        """
        seen: dict[tuple[str, MotionCorrection], ReplayBuffer] = {}
        state, experience = self._progress, self._progress.experience
        for number, (correction, transitions) in enumerate(practised, 1):
            check()
            if not transitions:  # the store's bound may have let it go
                continue
            kind = kind_of(transitions[-1].task or transitions[0].instruction)
            buffer = seen.get((kind, correction)) or self._buffer()
            try:
                steps = self._read_of(transitions)
                buffer.add(number, steps)
            except (_WithoutContextError, OutOfRangeError):
                continue
            seen[kind, correction] = buffer
            experience = _after(experience, steps)
        if not seen:
            raise InvalidInputError("Learner.correct: there is no episode that shows where motions are corrected")
        parts = [(correction, buffer) for (_, correction), buffer in seen.items()]
        shown = (ShownEpisodes if self.algorithm.whole_episodes else ShownSamples)(parts, self.config.seed)
        metrics = self.algorithm.correct(shown, self.config.seed, check, self._packed(others))
        self._count(metrics)
        state.experience, state.corrections = experience, state.corrections + 1
        return self._make_candidate()

    def see(self, others: Iterable[Sequence[Transition]]) -> None:
        """Show the algorithm episodes in which the policy carried out other goals, not to unlearn them."""
        self.algorithm.see(self._packed(others))

    def correct_all(
        self, correction: MotionCorrection, check: Callable[[], None] = lambda: None
    ) -> tuple[bytes, PolicyManifest]:
        """Make ``correction`` of all motions part of the weights, as :meth:`correct` does in all of the experience.

        None of that is imitated afterwards, as its actions were those of other corrections.
        """
        known = self._source.catalogue()
        made = self.correct(((correction, self._source.episode(info.number)) for info in known), check=check)
        if known:
            self._progress.cursor = max(self._progress.cursor, known[-1].number)
        return made

    def candidate(self) -> tuple[bytes, PolicyManifest] | None:
        """Return new weights and their manifest when ``candidate_updates`` were taken since the last ones, else None.

        What is returned has passed :func:`engram.learning.weights.manifest.verify` against the weights at the start.
        """
        every, state = self.config.candidate_updates, self._progress
        if not every or state.updates - state.at_candidate < every:
            return None
        if self._is_known():  # nothing was learnt since
            state.at_candidate = state.updates
            return None
        return self._make_candidate()

    def newest(self) -> tuple[bytes, PolicyManifest] | None:
        """Return the last candidate again; None if there was none, or training has gone on since."""
        state = self._progress
        return self._new_weights() if len(state.line) > 1 and state.updates == state.at_candidate else None

    def promoted(self, version: str) -> None:
        """Take note that ``version`` now drives the robots: it is the parent of the next candidates."""
        self._progress.parent = version

    def go_back(self, data: bytes, manifest: PolicyManifest) -> None:
        """Learn on from the weights ``data`` of ``manifest``, which drive; the experience stays.

        Raises:
            WeightsError: they are of another network; nothing has changed.
        """
        self.algorithm.begin(data)
        if self._stream is not None:
            self._stream.restart()  # its memory of the episodes was the other weights'
        state = self._progress
        state.parent, state.line = manifest.version, {manifest.version: manifest.sha256}
        state.corrections = int(manifest.metrics.get("corrections", 0))
        state.at_candidate, state.returns = state.updates, state.returns + 1

    def save(self) -> None:
        """Write the whole state to the folder; raises InvalidInputError without one."""
        if self._folder is None:
            raise InvalidInputError("Learner.save: this learner has no folder")
        self._progress.replay, self._progress.earlier = list(self._replay.numbers), self._earlier
        self._progress.streams = [] if self._stream is None else self._stream.places
        save_progress(self._folder, self._progress, self.algorithm.save(), self.algorithm.weights())

    def _update(self) -> Mapping[str, float]:
        state = self._progress
        drawn = state.updates + state.failed
        state.failed += 1  # until it is taken: what fails is not drawn again
        seed = (self.config.seed, drawn)
        batch: Batch | Windows | Sequence[Episode]
        if self.algorithm.whole_replay:
            batch = self._replay.episodes
        elif self._stream is not None:
            batch = self._stream.next(seed)
        else:
            batch = self._replay.sample(self.config.batch_size, seed)
        metrics = self.algorithm.update(batch, seed=self.config.seed * 1_000_003 + drawn)
        state.failed -= 1
        return self._count(metrics)

    def _count(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Take note of an update."""
        state = self._progress
        state.updates += 1
        weight = 1 / min(state.updates, 100)
        state.loss += weight * (float(metrics["loss"]) - state.loss)
        return metrics

    def _buffer(self) -> ReplayBuffer:
        """Return a buffer whose samples are of all that is in it."""
        alike: dict[str, Any] = dict.fromkeys(CLAIMS, 0.0) | {"earlier": (), "share_new": 1.0}
        everything = replace(self.config.replay, newest=self.config.replay.capacity, **alike)
        return ReplayBuffer(everything, self.algorithm.shrink, self._takes)

    def _packed(self, episodes: Iterable[Sequence[Transition]]) -> list[Episode]:
        buffer = self._buffer()
        for number, transitions in enumerate(episodes, 1):
            with suppress(_WithoutContextError, OutOfRangeError):
                if transitions:
                    buffer.add(number, self._read_of(transitions))
        return buffer.episodes

    def _read_of(self, transitions: Sequence[Transition]) -> Sequence[Transition]:
        """Return an episode with what the policy reads of memory/context, and nothing else of it.

        Raises:
            _WithoutContextError: the policy acts on it, and there is none.
            InvalidInputError: its tokens are not as long as the network's.
        """
        width = self.algorithm.token_width
        if not width:
            return [replace(step, context=None) if step.context is not None else step for step in transitions]
        read = [step.context for step in transitions if step.context is not None]
        if not read:
            raise _WithoutContextError
        if wrong := {context.tokens.shape[1] for context in read} - {width}:
            raise InvalidInputError(f"Transition.context: tokens of {min(wrong)} numbers, the policy's have {width}")
        return transitions

    @property
    def _learnt(self) -> bool:
        """Whether anything has changed the weights since training began."""
        return hashlib.sha256(self.algorithm.weights()).hexdigest() != self._began

    def _is_known(self) -> bool:
        """Tell whether the weights are those that training began with, or of a candidate."""
        return hashlib.sha256(self.algorithm.weights()).hexdigest() in {self._began, *self._progress.line.values()}

    def _make_candidate(self) -> tuple[bytes, PolicyManifest]:
        made, state = self._new_weights(), self._progress
        state.at_candidate = state.updates
        state.candidates += 1
        line = list((state.line | {made[1].version: made[1].sha256}).items())
        state.line = dict(line[:1] + [one for one in line[1:-LINE] if one[0] == state.parent] + line[1:][-LINE:])
        return made

    def _new_weights(self) -> tuple[bytes, PolicyManifest]:
        state = self._progress
        data = self.algorithm.weights()
        metrics = {k: v for k, v in self.metrics.items() if k not in ("parent", "update_credit")}
        metrics |= {"experience": state.experience, "code": digest(*CODE)}
        metrics |= {"earlier": self._earlier} if self._replay.earlier else {}
        manifest = make_manifest(data, "candidate", state.parent, metrics=metrics, lineage=self.lineage)
        manifest = replace(manifest, version=f"candidate-{state.updates:07d}-{manifest.sha256[:8]}")
        verify(data, manifest, self._specs)
        return data, manifest

    def _resume(self, folder: Path, settings: Mapping[str, Any]) -> None:
        # the memory that an update leaves for the next is of so many episodes side by side
        fixed = ("replay.chunk_size", *(("window", "batch_size") if self._stream is not None else ()))
        found = load_progress(folder, settings, self.lineage, fixed)
        if found is None:
            return
        progress, state, changed = found
        try:
            self.algorithm.restore(state)
        except WeightsError as error:
            raise WeightsError(f"{folder}: {error}") from error
        self._progress = progress
        if changed:
            self.changed["settings"] = changed
        if progress.earlier != self._earlier:
            self.changed["earlier experience"] = (
                f"other episodes than before, now {len(self._replay.earlier)}: training goes on with these, and not "
                "bit for bit"
            )
        if self._source.id and progress.store not in ("", self._source.id):
            self._begin_store()
        progress.store = self._source.id or progress.store
        if self._stream is not None and progress.streams:
            self._stream.places = progress.streams
        if progress.replay:
            self._restore_replay(frozenset(progress.replay))

    def _begin_store(self) -> None:
        """Look at all episodes of the source: the state's numbers are of those of another store."""
        state = self._progress
        self.changed["experience"] = (
            f"another store than before: it is looked at from its first episode, and {len(state.replay)} successes of "
            "the other one are imitated no more"
        )
        state.cursor = state.update_credit = 0
        state.replay, state.streams = [], []
        self.algorithm.forget_episodes()

    def _restore_replay(self, numbers: Set[int]) -> None:
        """Take those of ``numbers`` into the replay buffer that are stored, and are successes, still."""
        try:
            known = self._source.catalogue()
        except UnreadableStoreError as error:  # the training state is not what is damaged
            raise StoreError(str(error)) from error
        for info in known:
            if info.number not in numbers or not (info.success or self.algorithm.learns_from_failures):
                continue
            with suppress(StoreError, InvalidInputError):  # damaged: the training goes on without it
                if transitions := self._source.episode(info.number):  # the store's bound may have let it go
                    self._hold(info.number, transitions)


def _after(before: str, episode: Sequence[Transition]) -> str:
    """Return 16 hex digits that differ with what was learnt from ``before``, and with this episode."""
    first = episode[0]
    told = f"{before} {first.robot_id} {first.boot_id} {first.sequence} {len(episode)}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _updates_of(version: str) -> int:
    """Return how many updates made the weights ``version``; 0 for those that training began with."""
    found = _CANDIDATE.fullmatch(version)
    return int(found[1]) if found else 0
