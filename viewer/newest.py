"""What the page lists, the newest first: outcomes of episodes, weights that were announced, what the gate found."""

from __future__ import annotations

from collections import deque

from engram.core.types import PolicyManifest
from engram.viewer.values import Candidate, Judged, Outcome

OUTCOMES_SHOWN, CANDIDATES_SHOWN = 8, 12


class Newest:
    """Keeps the newest of each."""

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque(maxlen=OUTCOMES_SHOWN)
        self.candidates: deque[Candidate] = deque(maxlen=CANDIDATES_SHOWN)
        self.judged: deque[Judged] = deque(maxlen=CANDIDATES_SHOWN)

    def ended(self, outcome: Outcome) -> None:
        """Take note of how an episode stands; only its end is listed, and once."""
        last = self.outcomes[0].episode if self.outcomes else None
        if outcome.state in ("succeeded", "failed") and outcome.episode != last:
            self.outcomes.appendleft(outcome)

    def announced(self, manifest: PolicyManifest) -> None:
        """Take note of weights; what comes on two topics, once."""
        told = Candidate(manifest.version, manifest.parent, manifest.stage, manifest.metrics)
        if not self.candidates or (told.version, told.stage) != (self.candidates[0].version, self.candidates[0].stage):
            self.candidates.appendleft(told)

    def verdict(self, judged: Judged) -> None:
        """Take note of how far the gate is with a version; its newest word takes the place of the one before."""
        if self.judged and self.judged[0].version == judged.version:
            self.judged.popleft()
        self.judged.appendleft(judged)
