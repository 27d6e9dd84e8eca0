"""How a goal goes, in words: for the command that waits for it, for the page and for the diagnostics. No ROS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, HOLD, HUMAN, Verdict

WAITING, ACTING, HOLDING, INTERVENTION = PHASES = ("waiting", "acting", "holding", "intervention")
"""What the robot does of a goal; ``waiting``: it has not moved for it yet."""
PHASE_WORDS = {
    WAITING: "waits for its first step",
    ACTING: "the policy acts",
    HOLDING: "the robot holds",
    INTERVENTION: "a person drives",
}
_SEEN = {CONFIRMED: "reached", DENIED: "not reached", CANNOT_TELL: "cannot tell"}


@dataclass(frozen=True)
class Standing:
    """How the goal at hand stands."""

    phase: str
    """One of ``PHASES``; one that is unknown is shown as it is."""
    progress: float = math.nan
    """0..1, as the memory or a classifier tells; nan: neither does."""
    version: str = ""
    """Of the weights that the policy has; "" = not known."""

    def words(self) -> str:
        """Return it in words.

        >>> Standing("acting", 0.4, "base-1").words()
        'the policy acts, progress 40 %, weights base-1'
        >>> Standing("waiting").words()
        'waits for its first step'
        """
        told = "" if math.isnan(self.progress) else f"progress {100 * self.progress:.0f} %"
        weights = f"weights {self.version}" if self.version and self.phase == ACTING else ""
        return ", ".join(filter(None, (PHASE_WORDS.get(self.phase, self.phase), told, weights)))


def phase_of(author: str) -> tuple[str, str]:
    """Return the phase that an executed action means, and who or what is behind it, by its ``policy_version``.

    >>> phase_of("hold:no_command"), phase_of("human:page"), phase_of("base-1")
    (('holding', 'no_command'), ('intervention', 'page'), ('acting', 'base-1'))
    """
    for prefix, phase in ((HOLD, HOLDING), (HUMAN, INTERVENTION)):
        if author.startswith(prefix):
            return phase, author.removeprefix(prefix)
    return ACTING, author


def verdict_words(verdict: Verdict) -> str:
    """Return who judges, what it says, how sure it is, and why.

    >>> verdict_words(Verdict(0, 1, "memory", "denied", 0.1, reason="the cube is beside the bin"))
    'memory: not reached (confidence 90 %): the cube is beside the bin'
    >>> verdict_words(Verdict(0, 1, "memory", "cannot_tell", reason="no bin is known"))
    'memory: cannot tell: no bin is known'
    """
    told = _SEEN[verdict.outcome]
    if verdict.outcome != CANNOT_TELL:
        sure = verdict.probability if verdict.outcome == CONFIRMED else 1.0 - verdict.probability
        told = f"{told} (confidence {100 * sure:.0f} %)"
    return ": ".join(filter(None, (verdict.source, told, verdict.reason)))


def judged_by(verdict: Verdict) -> str:
    """Return who judged a goal at its end, and why.

    >>> judged_by(Verdict(0, 1, "memory", "confirmed", 0.9, reason="the cube in the bin"))
    'judged by memory: the cube in the bin'
    """
    return ": ".join(filter(None, (f"judged by {verdict.source}", verdict.reason)))


def outcome_words(outcome: str, reason: str, steps: int, duration_s: float = 0.0) -> str:
    """Return how a goal ended, after how long, and why; a judge is named in ``reason``.

    >>> outcome_words("succeeded", "judged by memory: the cube is in the bin", 84, 8.42)
    'succeeded after 84 steps, 8.4 s (judged by memory: the cube is in the bin)'
    >>> outcome_words("rejected", "no task fits", 0)
    'rejected (no task fits)'
    """
    long = [f"{steps} steps"] * bool(steps) + [f"{duration_s:.1f} s"] * bool(steps and duration_s)
    after = f" after {', '.join(long)}" if long else ""
    return f"{outcome}{after}{f' ({reason})' if reason else ''}"
