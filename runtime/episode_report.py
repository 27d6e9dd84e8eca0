"""What a running node set made of an episode."""

from __future__ import annotations

from dataclasses import dataclass

from engram.core.errors import EngramError

OUTCOMES = ("succeeded", "failed", "timeout")
"""Outcomes of an episode that ran to its end; the others mean that somebody or something interfered."""


class LoopError(EngramError):
    """The node set did not do what was asked of it in time."""


@dataclass(frozen=True)
class EpisodeReport:
    """One episode, as the node set reported it."""

    task: str
    seed: int
    episode: int
    instruction: str
    outcome: str
    reason: str
    steps: int
    wall_s: float
