"""The memory judges an instruction by the relation that it names: right, or it says that it cannot tell."""

import dataclasses
import math

import numpy as np
import pytest

from engram.core.errors import EngramError
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Hand, Pose, SceneNode, Verdict
from engram.learning.rewards.contract import Moment
from engram.learning.rewards.goal import Goal, goal_of
from engram.learning.rewards.memory_verdict import MemoryVerdict
from engram.sim.tasks import MEMORY_TASKS, TASKS, task_class

UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])
SECOND = 10**9
AWAY = (0.3, -0.3, 0.3)


def thing(label, place, size=(0.04, 0.04, 0.04), *, belief=0.99, state="visible", seen_ns=10 * SECOND, number=0):
    return SceneNode(
        id=f"{label}_{number}",
        layer="object",
        label=label,
        pose=Pose(np.array(place, float), UPRIGHT),
        position_covariance=np.eye(3) * 1e-6,
        size=np.array(size, float),
        color=np.zeros(3),
        embedding=np.zeros(384, np.float32),
        belief=belief,
        state=state,
        first_seen_ns=0,
        last_seen_ns=seen_ns,
        observations=3,
        last_evidence=f"front@{label}",
    )


def hand(place=AWAY, closed=0.0):
    return Hand(Pose(np.array(place, float), UPRIGHT), closed)


class Judged:
    """An episode with these words; ``see`` returns the verdict on what is there."""

    def __init__(self, words):
        self.source = MemoryVerdict()
        self.source.begin(words)
        self.stamp_ns = 0

    def see(self, *objects, at=None):
        self.stamp_ns += SECOND // 10
        return self.source.judge(Moment(self.stamp_ns, 7, objects, hand() if at is None else at))


TARGETS = {"reach": "above", "push_to_mark": "at", "pick_place": "in", "stack": "on", "open_drawer": "open"}


@pytest.mark.parametrize("task", TASKS)
def test_every_wording_of_the_tabletop_tasks_names_its_relation_and_things(task):
    kind = task_class(task)
    for wording in (*kind.instructions, *kind.held_out_instructions):
        goal = goal_of(wording.format(color="red", other="blue"))
        assert goal is not None, wording
        assert goal.relation == TARGETS.get(task, "pressed"), wording
        assert "{color}" not in wording or goal.thing.startswith("red"), (wording, goal)
        assert "{other}" not in wording or goal.target.startswith("blue"), (wording, goal)


@pytest.mark.parametrize("task", sorted(set(MEMORY_TASKS) - {"shell_touch"}))
def test_what_asks_for_several_steps_or_for_the_past_has_no_goal(task):
    kind = task_class(task)
    slots = dict.fromkeys(kind.slots(), "red")
    for wording in (*kind.instructions, *kind.held_out_instructions):
        assert goal_of(wording.format(**slots)) is None, wording


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        ("Stack the red cube on the blue one.", Goal("on", "red cube", "blue cube")),
        ("please put my cup in the sink", Goal("in", "cup", "sink")),
        ("pick up the screwdriver", Goal("held", "screwdriver")),
        ("tap the red button", Goal("touched", "red button")),
        ("push it onto the mark", None),
        ("put everything in the box", None),
        ("do not press the red button", None),
        ("dance", None),
        ("", None),
    ],
)
def test_words_become_a_goal_or_none(words, goal):
    assert goal_of(words) == goal


def test_in_the_bin_counts_when_the_hand_has_let_go():
    bin_, judged = thing("bin", (0.5, 0.2, 0.02), (0.16, 0.16, 0.04)), Judged("put the red cube in the bin")
    denied = judged.see(thing("red cube", (0.5, 0.0, 0.02)), bin_)
    assert (denied.outcome, denied.reason, denied.progress) == (DENIED, "the red cube is beside the bin", 0.0)
    halfway = judged.see(thing("red cube", (0.5, 0.06, 0.02)), bin_)
    assert halfway.outcome == DENIED and 0.4 < halfway.progress < 0.6
    inside = thing("red cube", (0.5, 0.2, 0.025))
    held = judged.see(inside, bin_, at=hand((0.5, 0.2, 0.05), closed=0.5))
    assert (held.outcome, held.reason) == (DENIED, "the hand holds the red cube")
    done = judged.see(inside, bin_, at=hand((0.5, 0.2, 0.05), closed=0.05))
    assert (done.outcome, done.progress, done.evidence_ids) == (CONFIRMED, 1.0, ("front@red cube", "front@bin"))
    fell = judged.see(thing("red cube", (0.5, 0.35, 0.02)), bin_)
    assert fell.outcome == DENIED  # a relation that lasts is looked at again


@pytest.mark.parametrize(
    ("place", "outcome"),
    [
        ((0.5, 0.0, 0.06), CONFIRMED),
        ((0.5, 0.04, 0.06), DENIED),
        ((0.5, 0.0, 0.10), DENIED),
        ((0.5, 0.02, 0.06), CANNOT_TELL),
    ],
)
def test_on_another_thing_beside_it_over_it_and_on_its_edge(place, outcome):
    verdict = Judged("stack the red cube on the blue cube").see(
        thing("red cube", place), thing("blue cube", (0.5, 0.0, 0.02))
    )
    assert verdict.outcome == outcome, verdict


def test_the_wrong_thing_at_the_right_place_is_denied():
    judged = Judged("put the red cube in the bin")
    bin_ = thing("bin", (0.5, 0.2, 0.02), (0.16, 0.16, 0.04))
    verdict = judged.see(thing("red cube", (0.5, 0.0, 0.02)), thing("green cube", (0.5, 0.2, 0.02)), bin_)
    assert verdict.outcome == DENIED


def test_a_mark_is_reached_on_the_table_not_in_the_air():
    mark = thing("mark", (0.6, 0.0, 0.0), (0.07, 0.07, 0.001))
    judged = Judged("push the red block to the target")
    assert judged.see(thing("red cube", (0.6, 0.03, 0.02)), mark).outcome == CONFIRMED
    assert judged.see(thing("red cube", (0.6, 0.06, 0.02)), mark).outcome == DENIED
    assert judged.see(thing("red cube", (0.6, 0.0, 0.08)), mark).outcome == DENIED


def test_a_press_is_remembered_and_one_beside_the_button_is_none():
    button = thing("red button", (0.5, 0.0, 0.017), (0.06, 0.06, 0.034))
    judged = Judged("press the red button")
    assert judged.see(button, at=hand((0.5, 0.0, 0.06))).outcome == DENIED
    assert judged.see(button, at=hand((0.5, 0.028, 0.036))).outcome == DENIED
    assert judged.see(button, at=hand((0.5, 0.003, 0.036))).outcome == CONFIRMED
    assert judged.see(button, at=hand((0.5, 0.0, 0.3))).outcome == CONFIRMED
    judged.source.begin("press the red button")
    assert judged.see(button, at=hand((0.5, 0.0, 0.3))).outcome == DENIED  # another episode


def test_a_drawer_is_open_when_its_handle_has_come_far_enough():
    drawer, judged = thing("drawer", (0.67, 0.0, 0.045), (0.17, 0.2, 0.09)), Judged("open the drawer")
    at = (hand((x, 0.0, 0.06), closed=0.7) for x in (0.54, 0.48, 0.43))
    outcomes = [judged.see(drawer, thing("handle", (h.pose.position[0], 0.0, 0.06)), at=h).outcome for h in at]
    assert outcomes == [DENIED, DENIED, CONFIRMED]


def test_a_hand_above_a_thing_and_a_thing_in_the_hand():
    cube = thing("red cube", (0.5, 0.0, 0.02))
    assert Judged("reach for the red cube").see(cube, at=hand((0.5, 0.0, 0.12))).outcome == CONFIRMED
    assert Judged("reach for the red cube").see(cube, at=hand((0.5, 0.05, 0.12))).outcome == DENIED
    assert Judged("touch the red cube").see(cube, at=hand((0.5, 0.0, 0.045))).outcome == CONFIRMED
    lifted = Judged("pick up the red cube")
    assert lifted.see(cube, at=hand((0.5, 0.0, 0.02), closed=0.5)).outcome == DENIED
    up = thing("red cube", (0.5, 0.0, 0.10))
    assert lifted.see(up, at=hand((0.5, 0.0, 0.10), closed=0.5)).outcome == CONFIRMED


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((thing("bin", (0.5, 0.2, 0.02), (0.16, 0.16, 0.04)),), "knows no 'red cube'"),
        ((thing("red cube", (0.5, 0.2, 0.02)),), "knows no 'bin'"),
        (
            (
                thing("red cube", (0.5, 0.2, 0.02), seen_ns=0),
                thing("bin", (0.5, 0.2, 0.02), (0.16, 0.16, 0.04)),
            ),
            "has not been seen since the episode began",
        ),
    ],
)
def test_what_is_not_known_or_was_seen_in_another_episode_alone_is_not_told(objects, reason):
    verdict = Judged("put the red cube in the bin").see(*objects)
    assert verdict.outcome == CANNOT_TELL and reason in verdict.reason
    assert math.isnan(verdict.probability) and math.isnan(verdict.progress)


def test_little_belief_is_no_confirmation():
    bin_ = thing("bin", (0.5, 0.2, 0.02), (0.16, 0.16, 0.04), belief=0.5)
    assert Judged("put the red cube in the bin").see(thing("red cube", (0.5, 0.2, 0.02)), bin_).outcome == CANNOT_TELL


def test_a_thing_that_the_detector_takes_for_another_kind_is_still_the_one_that_is_meant():
    judged, blue = Judged("stack the red cube on the blue cube"), thing("blue cube", (0.5, 0.0, 0.02))
    old = thing("red cube", (0.5, 0.2, 0.02), state="occluded")
    assert judged.see(old, thing("red box", (0.5, 0.0, 0.06)), blue).outcome == CONFIRMED
    # but not while the right one is seen elsewhere
    assert (
        judged.see(dataclasses.replace(old, state="visible"), thing("red box", (0.5, 0.0, 0.06)), blue).outcome
        == DENIED
    )


def test_words_that_name_no_relation_are_not_told():
    verdict = Judged("press the buttons in the order in which they lit up").see(thing("red button", (0.5, 0.0, 0.02)))
    assert verdict.outcome == CANNOT_TELL and "no relation says" in verdict.reason


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"outcome": "perhaps"}, "perhaps"),
        ({"probability": 1.5}, "probability"),
        ({"progress": -0.1}, "progress"),
        ({"outcome": CONFIRMED}, "nan"),
        ({"source": ""}, "source"),
    ],
)
def test_a_verdict_out_of_range_is_refused(wrong, said):
    with pytest.raises(EngramError, match=said):
        Verdict(**{"stamp_ns": 0, "episode": 1, "source": "memory", "outcome": CANNOT_TELL} | wrong)
