"""Tells whether the nodes on the other machine are heard of: what a cut of the network looks like from here."""

from __future__ import annotations

from dataclasses import dataclass, field

from engram.core.errors import InvalidInputError


@dataclass
class LinkWatch:
    """Listens for peers that report regularly. Times are monotonic [s].

    Args:
        peers: names of the nodes on the other side.
        lost_after_s: a peer that was not heard of for this long is lost [s].
    """

    peers: tuple[str, ...]
    lost_after_s: float
    losses: int = 0
    """How often the link went from up to lost."""
    restorations: int = 0
    """How often it came back."""
    longest_s: float = 0.0
    """Longest silence of a peer that came back [s]."""
    news: str = ""
    """What began or ended at the newest look; empty: nothing."""
    _heard_s: dict[str, float] = field(default_factory=dict)
    _was_lost: bool = False

    def __post_init__(self) -> None:
        if not self.lost_after_s > 0:
            raise InvalidInputError(f"LinkWatch.lost_after_s: {self.lost_after_s}, expected more than 0")
        if len(set(self.peers)) < len(self.peers) or not all(self.peers):
            raise InvalidInputError(f"peers: {', '.join(self.peers)}: expected different names, none empty")

    def heard(self, peer: str, now_s: float) -> None:
        """``peer`` reported; names that are not watched are passed over."""
        if peer not in self.peers:
            return
        silence_s = now_s - self._heard_s.get(peer, now_s)
        if silence_s >= self.lost_after_s:
            self.longest_s = max(self.longest_s, silence_s)
        self._heard_s[peer] = now_s

    def look(self, now_s: float) -> str:
        """Return what is wrong now; "" while every peer is heard of. Counts losses and restorations."""
        silent = {peer: now_s - at for peer, at in self._heard_s.items() if now_s - at >= self.lost_after_s}
        missing = [peer for peer in self.peers if peer not in self._heard_s]
        parts = [f"nothing from {peer} for {for_s:.0f} s" for peer, for_s in silent.items()]
        wrong, self.news = "; ".join(parts + ([f"not heard of yet: {', '.join(missing)}"] if missing else [])), ""
        if bool(silent) != self._was_lost:
            self._was_lost = bool(silent)
            self.losses += self._was_lost
            self.restorations += not self._was_lost
            self.news = f"link lost: {wrong}" if silent else f"link restored after {self.longest_s:.1f} s at most"
        return wrong

    @property
    def state(self) -> str:
        """What the newest look found: up, lost, or waiting for a peer that never reported."""
        if self._was_lost:
            return "lost"
        return "up" if len(self._heard_s) == len(self.peers) else "waiting"

    def notes(self) -> dict[str, str]:
        """Return how the link is and was, for the diagnostics."""
        return {
            "link": self.state,
            "link lost": str(self.losses),
            "link restored": str(self.restorations),
            "longest silence s": f"{self.longest_s:.1f}",
        }
