"""Which episodes a learner may imitate: those of its own policy, uncorrected, without ablations or covered cameras."""

from __future__ import annotations

from collections.abc import Sequence

from engram.core.types import CORRECTION, EXPLORED, NOBODY, ActionSource, Lineage, Transition

UNKNOWN, OTHER, ABLATION, COVERED = "unknown lineage", "other lineage", "ablation", "covered camera"
CORRECTED = "motions corrected"
UNREADABLE = "stored record damaged"
WITHOUT_CONTEXT = "nothing read of memory/context"
"""Of a policy that acts on it: it would learn to do without."""
MISFIT = "of another shape"
STALE = "weights too far behind"
"""Of weights that many updates have been taken since, by ``LearnerConfig.most_behind``."""
FAILED = "failed, or judged by nobody"
BEYOND = "beyond the capacity of the replay buffer"
ALONE = "the policy alone, without noise"
"""Nobody helped and nothing was tried: it shows only what the policy does anyhow."""


def why_not(sources: Sequence[ActionSource], lineage: Lineage, *, blind: bool = False) -> str:
    """Return why a learner of ``lineage`` must pass over an episode with these ``sources``; empty = it need not.

    Steps for which no policy had proposed an action (a person drove, or the robot held) say nothing about whose episode
    it is, but some step must. ``blind``: the policy acts on what it remembers, also with its cameras covered.
    """
    acting = [source for source in sources if source.policy != NOBODY]
    if not acting or any(not source.lineage for source in acting):
        return UNKNOWN
    if any(source.lineage != lineage.id for source in acting):
        return OTHER
    if any(source.ablation == CORRECTION for source in acting):
        return CORRECTED
    if any(source.ablation not in ("", EXPLORED) for source in acting):
        return ABLATION
    if not blind and any(source.covered_cameras for source in sources):
        return COVERED
    return ""


def shows_more(steps: Sequence[Transition]) -> bool:
    """Tell whether an episode shows what its policy would not have done: a person drove, or its motions got noise."""
    return any(step.intervention or step.source.ablation == EXPLORED for step in steps)
