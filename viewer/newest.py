"""What the page lists, the newest first: outcomes of episodes, weights that were announced, what the gate found."""

from __future__ import annotations

from engram.core.types import PolicyManifest
from engram.viewer.values import Candidate, Judged, Outcome

OUTCOMES_SHOWN, CANDIDATES_SHOWN = 8, 12


class Newest:
    """Keeps the newest of each. One thread may take in what another reads: what it was given never changes."""

    def __init__(self) -> None:
        self.outcomes: tuple[Outcome, ...] = ()
        self.candidates: tuple[Candidate, ...] = ()
        self.judged: tuple[Judged, ...] = ()

    def ended(self, outcome: Outcome) -> None:
        """Take note of how an episode stands; only its end is listed, and once."""
        last = self.outcomes[0].episode if self.outcomes else None
        if outcome.state in ("succeeded", "failed") and outcome.episode != last:
            self.outcomes = (outcome, *self.outcomes)[:OUTCOMES_SHOWN]

    def announced(self, manifest: PolicyManifest) -> None:
        """Take note of weights; what comes on two topics, once."""
        told = Candidate(manifest.version, manifest.parent, manifest.stage, manifest.metrics)
        if not self.candidates or (told.version, told.stage) != (self.candidates[0].version, self.candidates[0].stage):
            self.candidates = (told, *self.candidates)[:CANDIDATES_SHOWN]

    def verdict(self, judged: Judged) -> None:
        """Take note of how far the gate is with a version; its newest word takes the place of the one before."""
        before = self.judged[1:] if self.judged and self.judged[0].version == judged.version else self.judged
        self.judged = (judged, *before)[:CANDIDATES_SHOWN]
