"""Stored goals as a success classifier learns from them: what the policy made of each step, and how the goal ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import EngramError, InvalidInputError
from engram.core.types import CORRECTION, Transition
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.experience.eligibility import why_not
from engram.learning.experience.reader import EpisodeInfo, ExperienceReader
from engram.learning.replay.buffer import Episode, ReplayBuffer
from engram.learning.rewards.clips import ClipsConfig, clips_of
from engram.learning.rewards.success_classifier import LabelledEpisode
from engram.policies.vla.network import encoder_digest
from engram.policies.vla.vla_policy import VlaPolicy

BY_VERDICT = "verdict"
"""``Transition.reward_source`` of goals that ended when somebody had seen how: a person or the memory. A simulator ends
an episode before its success is seen."""


def labelled_episodes(
    folder: Path,
    policy: Policy,
    words: str = "*",
    on_skipped: Callable[[int, str], None] = lambda *_: None,
    clips: ClipsConfig | None = None,
    seed: int = 0,
) -> tuple[str, list[LabelledEpisode]]:
    """Return the digest of the encoder of ``policy``, and the judged goals in ``folder`` as it sees them.

    Each clip is encoded anew. That takes as long as it took to encode the goal, and once more for each step that a clip
    adds to it.

    Args:
        folder: of an experience store.
        policy: whose features they get. It must be the one that drove: another one would have read other memories.
        words: pattern that the goals' words match, as in a shell.
        on_skipped: is told the number of each goal that is passed over, and why.
        clips: that each reached goal gets; None: none.
        seed: of the clips; with it, those of a goal depend on its number and on the words of the others.

    Raises:
        CannotTrainError: the policy offers no features of stored episodes.
        StoreError: nothing is stored there, or it cannot be read.
        InvalidInputError: no goal is left.
    """
    cloning = clone_policy(policy)
    assert isinstance(policy, VlaPolicy) and policy.lineage is not None
    reader = ExperienceReader(folder)
    judged = [one for one in reader.catalogue() if one.judged and fnmatch(one.instruction.lower(), words.lower())]
    said = {one.instruction for one in judged}
    found: list[LabelledEpisode] = []

    def encode(episode: Episode) -> np.ndarray:
        return cloning.conditions(episode).numpy().astype(np.float32)

    for number, steps in _steps_of(reader, judged, on_skipped):
        # a corrected motion changes what was done, not what was seen
        sources = [replace(s, ablation="") if s.ablation == CORRECTION else s for s in (one.source for one in steps)]
        if why := why_not(sources, policy.lineage, blind=True):
            on_skipped(number, why)
            continue
        replay, rng = ReplayBuffer(shrink=cloning.shrink), np.random.default_rng((seed, number))
        success = steps[-1].success
        try:
            replay.add(number, steps)
            (episode,) = replay.episodes
            shown = clips_of(episode, encode, clips, said, rng) if success and clips is not None else ()
            found.append(LabelledEpisode(episode.instruction, encode(episode), success, shown))
        except EngramError as error:
            on_skipped(number, str(error))
    if not found:
        raise InvalidInputError(f"{folder}: no judged goal of {policy.version} whose words match {words!r}")
    return encoder_digest(policy.network.model), found


def _steps_of(
    reader: ExperienceReader, judged: Sequence[EpisodeInfo], on_skipped: Callable[[int, str], None]
) -> Iterator[tuple[int, tuple[Transition, ...]]]:
    """Yield number and steps of each of ``judged`` that ended as succeeded or failed, by a verdict."""
    for info in judged:
        try:
            steps = reader.episode(info.number)
        except EngramError as error:
            on_skipped(info.number, str(error))
            continue
        if not steps:
            continue
        if steps[-1].success and steps[-1].reward_source != BY_VERDICT:
            on_skipped(info.number, "the simulator ended it before its success was seen")
            continue
        yield info.number, steps
