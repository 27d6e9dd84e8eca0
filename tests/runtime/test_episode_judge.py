"""A judge is told of what its words name, and only of that; success counts when it was confirmed long enough."""

from engram.core.types import CONFIRMED, DENIED, GraphUpdate, Verdict
from engram.learning.rewards.contract import RewardSource
from engram.memory.graph_memory import GraphMemory
from engram.runtime.episode_judge import EpisodeJudge, VerdictHold
from tests.memory.scenes import WordEncoder, seen, view


class Listing(RewardSource):
    """Tells which objects it was told of."""

    name = "listing"

    def begin(self, instruction):
        self.words = instruction

    @property
    def things(self):
        return (self.words,)

    def judge(self, moment):
        told = ",".join(sorted(node.label for node in moment.objects))
        return Verdict(moment.stamp_ns, moment.episode, self.name, DENIED, 0.0, reason=told)


def nothing(stamp_ns):
    return GraphUpdate(stamp_ns, 0, False, ())


def test_an_episode_begins_with_what_the_memory_knows_and_goes_on_with_what_changes():
    memory = GraphMemory(encoder=WordEncoder())
    memory.update(view([seen("red cube", (0.5, 0.1, 0.02))], 1))
    judge = EpisodeJudge(memory, Listing())
    assert judge.judge(1, "red cube", nothing(2), None).reason == "red cube"
    update = memory.update(view([seen("red cube", (0.5, 0.1, 0.02)), seen("green cup", (0.4, -0.2, 0.02))], 3))
    assert judge.judge(1, "red cube", update, None).reason == "green cup,red cube"
    gone = next(node.id for node in update.nodes if node.label == "red cube")
    assert judge.judge(1, "red cube", GraphUpdate(4, 0, False, (), (), (gone,)), None).reason == "green cup"
    assert judge.judge(2, "green cup", nothing(5), None).reason.startswith("green cup")  # another episode asks anew


def hold(*outcomes):
    """Return after how many looks, 0.1 s apart, the success is certain; 0: never."""
    held = VerdictHold()
    for i, outcome in enumerate(outcomes):
        if held.take(Verdict(i * 100_000_000, 1, "memory", outcome, 0.5)):
            return i + 1
    return 0


def test_success_is_certain_after_two_tenths_of_a_second_without_a_break():
    assert hold(*[CONFIRMED] * 5) == 3
    assert hold(CONFIRMED, CONFIRMED, DENIED, CONFIRMED, CONFIRMED) == 0


def test_a_clock_that_begins_anew_begins_the_hold_anew():
    held = VerdictHold()
    assert taken(held, 50, 0, 1, 2) == [False] * 3 + [True]


def taken(held, *tenths):
    return [held.take(Verdict(t * 100_000_000, 1, "memory", CONFIRMED, 0.9)) for t in tenths]


def test_looks_that_are_far_apart_or_come_late_or_are_few_are_no_certainty():
    assert taken(VerdictHold(), 0, 290, 580) == [False] * 3  # what happened in between nobody saw
    assert taken(VerdictHold(), 0, 5, 10) == [False, False, True]  # a slow camera
    assert taken(VerdictHold(), 12, 10, 9, 13) == [False] * 4
    late = VerdictHold()
    looks = ((10.0, CONFIRMED), (10.1, DENIED), (9.5, CONFIRMED), (9.6, CONFIRMED), (9.8, CONFIRMED))
    assert not any(late.take(Verdict(round(t * 1e9), 1, "memory", what, 0.5)) for t, what in looks)
    good = VerdictHold()
    looks = ((10.0, CONFIRMED), (10.1, CONFIRMED), (9.5, DENIED), (10.2, CONFIRMED))
    assert [good.take(Verdict(round(t * 1e9), 1, "memory", what, 0.5)) for t, what in looks][-1]
