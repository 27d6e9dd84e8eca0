"""Whose verdict counts, in a practice and in the nodes."""

import math

import pytest

from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Verdict
from engram.learning.rewards.believed import RECENT_NS, MemoryFirst, believed
from engram.learning.rewards.contract import Moment, RewardSource


class Says(RewardSource):
    """Says the same for ever, and counts how often it was asked."""

    def __init__(self, name: str, outcome: str, progress: float = 0.5) -> None:
        self.name, self._outcome, self._progress, self.asked = name, outcome, progress, 0

    def begin(self, instruction):
        self.asked = 0

    def judge(self, moment):
        self.asked += 1
        return Verdict(moment.stamp_ns, moment.episode, self.name, self._outcome, 0.5, self._progress)


LOST = math.nan


@pytest.mark.parametrize(
    ("memory", "classifier", "who"),
    [
        ((CONFIRMED, 1.0), (DENIED, 0.2), "memory"),
        ((DENIED, LOST), (CONFIRMED, 1.0), "memory"),
        ((CANNOT_TELL, LOST), (DENIED, 0.2), "classifier"),
        ((CANNOT_TELL, LOST), (CANNOT_TELL, 0.4), "classifier"),  # it says how near
        ((CANNOT_TELL, 0.3), (CANNOT_TELL, 0.4), "memory"),
        ((CANNOT_TELL, LOST), (CANNOT_TELL, LOST), "memory"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_the_memory_is_believed_first_whoever_is_asked_first(memory, classifier, who, order):
    sources = [Says("memory", *memory), Says("classifier", *classifier)][::order]
    both = MemoryFirst(sources)
    both.begin("go")
    told = both.judge(Moment(5, 1))
    assert told.source == who and [one.asked for one in sources] == [1, 1]
    assert both.name == "+".join(one.name for one in sources)
    assert believed([one.judge(Moment(5, 1)) for one in sources], 5) == told  # what the nodes believe


def test_of_who_fell_silent_nothing_counts_unless_all_did():
    old, older = Verdict(1, 1, "classifier", DENIED, 0.5), Verdict(0, 1, "memory", CONFIRMED, 0.5)
    assert believed([older, old], RECENT_NS) is older
    assert believed([older, old], RECENT_NS + 1) is old
    assert believed([older, old], RECENT_NS + 2) is old
