"""The simulator as a judge of goals, in place of a person: a success is seen for a while before it says so."""

from __future__ import annotations

from engram.core.contracts import World
from engram.core.types import CONFIRMED, DENIED, Verdict
from engram.learning.rewards.contract import Moment, RewardSource

REACTION = 3
"""Steps that it takes to say what it sees: a person would take as long, or longer."""


class OracleVerdict(RewardSource):
    """Says what the simulator knows. No robot has it: it labels goals in place of a person."""

    name = "oracle"

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = 0  # steps in a row at which the task was done

    def begin(self, instruction: str) -> None:
        """Begin to look; the simulator knows the task without words."""
        self._seen = 0

    def judge(self, moment: Moment) -> Verdict:
        """Return whether the running task has been done for a while."""
        self._seen = self._seen + 1 if self._world.oracle_outcome().success else 0
        done = self._seen > REACTION
        return Verdict(
            moment.stamp_ns,
            moment.episode,
            self.name,
            CONFIRMED if done else DENIED,
            float(done),
            reason="the simulator's own verdict",
        )
