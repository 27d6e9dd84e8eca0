"""One stream of a spool: which of its numbers were sent, which are acknowledged, and for how long it has waited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gone:
    """What a robot says of a stream: it no longer has 1..``sequence``, so nobody should wait for these."""

    robot_id: str
    boot_id: str
    sequence: int


@dataclass(frozen=True)
class Wait:
    """How long a stream has waited, and for the acknowledgement of which sequence."""

    seconds: float
    boot_id: str
    sequence: int


@dataclass
class Stream:
    """What was numbered while the spool was open once: sequence n lies at place ``base + n``."""

    base: int
    boot_id: str
    acknowledged: int = 0
    """1..acknowledged are on the learner's disk."""
    last: int = 0
    """Newest sequence that may be sent."""
    sent: int = 0
    """Newest sequence that was sent in this round."""
    tells_gone: bool = True
    """Whether to say what is gone when the next round begins."""
    round_s: float = 0.0
    """When the round began, or the last acknowledgement came."""
    since_s: float | None = None
    """Since when nothing was acknowledged although something waits."""

    def __post_init__(self) -> None:
        self.sent = max(self.sent, self.acknowledged)

    @property
    def waits(self) -> bool:
        """Whether something is not acknowledged yet."""
        return self.last > self.acknowledged

    def begins_round(self, now_s: float, resend_s: float) -> bool:
        """Tell whether sending (again) begins with the first sequence that is not acknowledged."""
        if self.sent > self.acknowledged and now_s - self.round_s >= resend_s:
            self.sent, self.tells_gone = self.acknowledged, True
        if not self.waits or self.sent > self.acknowledged:
            return False
        self.round_s = now_s
        return True

    def acknowledge(self, sequence: int, now_s: float) -> None:
        """Take note that 1..``sequence`` are on the learner's disk."""
        self.acknowledged, self.sent = sequence, max(self.sent, sequence)
        self.round_s, self.since_s = now_s, None

    def wait(self, now_s: float) -> Wait:
        """Return how long this stream has waited; the first call at which something waits starts the clock."""
        if not self.waits:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = now_s
        return Wait(now_s - (now_s if self.since_s is None else self.since_s), self.boot_id, self.acknowledged + 1)
