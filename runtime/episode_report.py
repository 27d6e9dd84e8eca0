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

    def line(self, number: int, total: int) -> str:
        """Return one line about it, episode ``number`` of ``total``."""
        text = f"{number:3}/{total} {self.task:14} {self.outcome:10} {self.steps:4} steps {self.wall_s:6.1f} s"
        return f'{text}  "{self.instruction}"'
