"""The newest goals as a line of the learner's diagnostics, for the node that writes it and those that read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

CURVE = "newest goals"
"""Key: which weights drove, and how each goal went, in the order in which they came: ``v1 0010 v2 11h1``."""


@dataclass(frozen=True)
class Went:
    """How a goal went."""

    version: str
    """Of the weights that drove."""
    outcome: str
    """1: it was reached; h: it was reached with a person's help; 0: it was not."""


def curve_note(goals: Iterable[Went]) -> str:
    """Return ``goals`` as a line.

    >>> curve_note([Went("v1", "0"), Went("v1", "1"), Went("v2", "h")])
    'v1 01 v2 h'
    """
    runs = groupby(goals, lambda went: "".join(went.version.split()) or "?")
    return " ".join(f"{version} {''.join(went.outcome for went in run)}" for version, run in runs)


def read_curve_note(text: str) -> Sequence[Went]:
    """Return the goals in the line ``text``; none where it is nonsense.

    >>> read_curve_note("v1 01 v2 h")[1:]
    [Went(version='v1', outcome='1'), Went(version='v2', outcome='h')]
    """
    words = text.split()
    runs = list(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or any(set(outcomes) - set("01h") for _, outcomes in runs):
        return []
    return [Went(version, outcome) for version, outcomes in runs for outcome in outcomes]
