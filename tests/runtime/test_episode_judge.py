"""A judge is told of what its words name, and only of that; success counts when it was confirmed long enough."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.geometry import from_frame, project
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, DetectedObject, GraphUpdate, Hand, Pose, Verdict
from engram.learning.rewards.contract import RewardSource
from engram.learning.rewards.memory_verdict import MemoryVerdict
from engram.memory.graph_memory import GraphMemory
from engram.runtime.episode_judge import EpisodeJudge, VerdictHold
from tests.memory.scenes import CAMERA, CAMERA_HEIGHT, IDENTITY, INTRINSICS, WordEncoder, seen, view


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


CUBE, INSIDE = (0.4, 0.1, 0.02), (0.6, -0.1, 0.06)
WORDS = "put the red cube in the bin"


def hidden(*places):
    """Return the depths (32, 32) m of a bare table, with something in front of ``places``."""
    depth = np.full((32, 32), CAMERA_HEIGHT)
    for place in places:
        column, row = (project(from_frame(np.array([place]), CAMERA), INTRINSICS)[0] / 4).astype(int)
        depth[row - 4 : row + 5, column - 4 : column + 5] = 0.6
    return depth


@pytest.mark.parametrize(("place", "outcome"), [((0.6, -0.1, 0.025), CONFIRMED), (CUBE, DENIED)])
def test_a_cube_that_nobody_saw_go_into_the_bin_counts_once_it_is_seen_there(place, outcome):
    """The fingers stop beside the cube, which the arm hides: the memory believes that they took it along."""
    memory = GraphMemory(encoder=WordEncoder())
    judge, hold = EpisodeJudge(memory, MemoryVerdict()), VerdictHold()
    judge.begin(1, WORDS)
    bin_ = DetectedObject(
        "bin", Pose(np.array((0.6, -0.1, 0.04)), IDENTITY), score=0.9, position_covariance=np.eye(3) * 9e-6,
        size=np.array((0.16, 0.16, 0.08)), color=np.full(3, 0.3), embedding=WordEncoder().encode(["bin"])[0],
    )  # fmt: skip
    stamp_ns = 0

    def look(objects, at, closed, *out_of_sight):
        nonlocal stamp_ns
        stamp_ns += 100_000_000
        scene = view([bin_, *objects], stamp_ns, hidden(*out_of_sight))
        scene = replace(scene, hand=Hand(Pose(np.array(at), np.array((0.0, 1.0, 0.0, 0.0))), closed))
        verdict = judge.judge(1, WORDS, memory.update(scene), scene.hand)
        return verdict, hold.take(verdict)

    for _ in range(5):
        look([seen("red cube", CUBE)], (0.2, 0.3, 0.3), 0.0)
    out_of_sight = (CUBE, INSIDE)
    for closed in (0.2, 0.5):
        look([], (0.4, 0.1, 0.03), closed, *out_of_sight)
    for share in (0.25, 0.5, 0.75, 1.0):
        look([], np.array((0.4, 0.1, 0.06)) * (1 - share) + np.array(INSIDE) * share, 0.5, *out_of_sight)
    opened = [look([], INSIDE, closed, *out_of_sight) for closed in (0.2, 0.0, 0.0, 0.0)]
    assert [(verdict.outcome, ended) for verdict, ended in opened] == [(CANNOT_TELL, False)] * 4
    assert opened[-1][0].reason == "the red cube has not been seen since it was moved"
    verdict, _ = [look([seen("red cube", place)], (0.2, 0.3, 0.3), 0.0) for _ in range(5)][-1]
    assert verdict.outcome == outcome
