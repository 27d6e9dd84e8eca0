"""Stored goals as a success classifier learns from them: what the policy made of each step, and how the goal ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import EngramError, InvalidInputError
from engram.core.types import CORRECTION, Transition
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.experience.eligibility import why_not
from engram.learning.experience.reader import ExperienceReader
from engram.learning.replay.buffer import ReplayBuffer
from engram.learning.rewards.success_classifier import LabelledEpisode
from engram.policies.vla.network import encoder_digest
from engram.policies.vla.vla_policy import VlaPolicy

BY_VERDICT = "verdict"
"""``Transition.reward_source`` of goals that ended when somebody had seen how: a person or the memory. A simulator ends
an episode before its success is seen."""


def labelled_episodes(
    folder: Path, policy: Policy, words: str = "*", on_skipped: Callable[[int, str], None] = lambda *_: None
) -> tuple[str, list[LabelledEpisode]]:
    """Return the digest of the encoder of ``policy``, and the judged goals in ``folder`` as it sees them.

    Args:
        folder: of an experience store.
        policy: whose features they get. It must be the one that drove: another one would have read other memories.
        words: pattern that the goals' words match, as in a shell.
        on_skipped: is told the number of each goal that is passed over, and why.

    Raises:
        CannotTrainError: the policy offers no features of stored episodes.
        StoreError: nothing is stored there, or it cannot be read.
        InvalidInputError: no goal is left.
    """
    cloning = clone_policy(policy)
    assert isinstance(policy, VlaPolicy) and policy.lineage is not None
    network = policy.network.model
    found: list[LabelledEpisode] = []
    for number, steps in _judged(folder, words, on_skipped):
        # a corrected motion changes what was done, not what was seen
        sources = [replace(s, ablation="") if s.ablation == CORRECTION else s for s in (one.source for one in steps)]
        if why := why_not(sources, policy.lineage, blind=True):
            on_skipped(number, why)
            continue
        replay = ReplayBuffer(shrink=cloning.shrink)
        try:
            replay.add(number, steps)
            features = cloning.conditions(replay.episodes[0]).numpy().astype(np.float32)
        except EngramError as error:
            on_skipped(number, str(error))
            continue
        found.append(LabelledEpisode(steps[0].instruction, features, steps[-1].success))
    if not found:
        raise InvalidInputError(f"{folder}: no judged goal of {policy.version} whose words match {words!r}")
    return encoder_digest(network), found


def _judged(
    folder: Path, words: str, on_skipped: Callable[[int, str], None]
) -> Iterator[tuple[int, tuple[Transition, ...]]]:
    """Yield number and steps of each goal that ended as succeeded or failed, by a verdict."""
    reader = ExperienceReader(folder)
    for info in reader.catalogue():
        if not info.judged or not fnmatch(info.instruction.lower(), words.lower()):
            continue
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
