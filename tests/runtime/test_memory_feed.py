"""Scenes find the joint states of their instant and their place; what the memory learns of them goes out once."""

import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StaleDataError
from engram.core.robot import PANDA_2F85
from engram.core.types import Embodiment, EpisodeStatus, Hand, Pose
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.runtime import memory_feed
from engram.runtime.body import NO_ROBOT, Body
from engram.runtime.memory_feed import FULL_MAX_S, FULL_S, MAX_WAITING, WAITED_S, MemoryFeed, MemoryFeedConfig
from engram.runtime.scene_matcher import SceneMatcher
from tests.core.gantry import joints
from tests.memory.scenes import WordEncoder, seen, view

AHEAD = Pose(np.array([10.0, 0.0, 0.0]), np.array([1.0, 0, 0, 0]), "map")


class Notes:
    """A monitor that keeps what it is told."""

    def __init__(self):
        self.counts, self.problems = {}, {}

    def count(self, name, amount=1):
        self.counts[name] = self.counts.get(name, 0) + amount

    def problem(self, key, text):
        self.problems[key] = text

    def clear(self, key):
        self.problems.pop(key, None)

    def seconds(self, stage, duration_s):
        self.count(stage)

    def timed(self, stage):
        return nullcontext()


class Fed:
    """A feed into an empty scene graph, with what it published; tf knows the stamps in ``known``.

    With ``now_ns`` it has a clock.
    """

    def __init__(self, kind=GraphMemory, now_ns=None, body=None, **config):
        self.changes, self.contexts, self.notes, self.known = [], [], Notes(), set()
        self.verdicts = []
        self.now_ns = now_ns
        whole = GraphMemoryConfig(tracker=TrackerConfig(frame=config.get("frame", "base_link")))
        self.memory = kind(config=whole, encoder=WordEncoder())
        clock = None if now_ns is None else lambda: self.now_ns
        self.feed = MemoryFeed(
            self.memory, body or PANDA_2F85.embodiment(), MemoryFeedConfig(**config), self._lookup, self.changes.append,
            self.contexts.append, self.notes, clock, self.verdicts.append,
        )  # fmt: skip

    def _lookup(self, target, frame, stamp_ns):
        if stamp_ns not in self.known:
            raise StaleDataError(f"no {frame} in {target} at {stamp_ns}")
        return AHEAD

    def see(self, stamp_ns, camera="front", ago_s=0.0):
        received_s = time.monotonic() - ago_s
        self.feed.scene(view([seen("red cube", (0.5, 0.1, 0.02))], stamp_ns, camera=camera), None, received_s)

    def tell(self, stamp_ns, words, state="running", episode=1, task="reach"):
        self.feed.status(EpisodeStatus(stamp_ns, "r", episode, task, words, 0, state))

    def objects(self):
        return [node for node in self.memory.graph().nodes if node.layer == "object"]


def test_in_lock_step_a_context_carries_the_words_of_its_very_step_whichever_comes_first():
    fed = Fed(lockstep=True)
    fed.tell(1, "find the cube")
    fed.see(1)
    fed.see(2)
    assert [tokens.stamp_ns for tokens in fed.contexts] == [1]
    fed.tell(2, "find the cube")
    fed.tell(2, "find the cube")  # shown again
    assert [tokens.stamp_ns for tokens in fed.contexts] == [1, 2]


def test_free_running_takes_the_newest_words_and_none_without_words():
    fed = Fed()
    fed.see(5)
    fed.tell(1, "")
    fed.see(6)
    assert fed.contexts == []
    fed.tell(2, "find the cube")
    fed.see(7)
    assert [tokens.stamp_ns for tokens in fed.contexts] == [7]


def test_changes_have_rising_sequences_and_the_robot_is_introduced_with_each_new_camera():
    fed = Fed()
    for stamp_ns, camera in ((1, "front"), (2, "front"), (3, "wrist")):
        fed.see(stamp_ns, camera)
    sequences = [change.sequence for change in fed.changes]
    assert sequences == sorted(set(sequences)) and sequences[-1] == fed.feed.sequence == fed.memory.graph().sequence
    agents = [node for change in fed.changes for node in change.nodes if node.layer == "agent"]
    assert [len(node.embodiment.sensors) for node in agents if node.embodiment is not None] == [1, 2]


def test_what_was_committed_is_durable_until_something_changes_an_episode_included():
    fed = Fed()
    fed.see(1)
    assert not fed.feed.everything_durable
    fed.feed.commit()
    assert fed.feed.everything_durable and fed.feed.durable == fed.feed.sequence
    fed.feed.commit()
    fed.feed.scene(view([], 2), None, 0.0)
    assert not fed.feed.everything_durable  # that it looked and saw nothing is known, too
    fed.feed.commit()
    assert fed.feed.everything_durable
    fed.tell(2, "go")
    assert not fed.feed.everything_durable  # an episode began
    fed.feed.commit()
    assert fed.notes.counts["commits"] == 3


def test_a_scene_waits_until_tf_says_where_the_robot_was_and_moves_there():
    fed = Fed(frame="map")
    fed.see(1)
    fed.see(2)
    assert fed.objects() == []
    fed.known = {1, 2}
    fed.feed.place_waiting()
    (cube,) = fed.objects()
    assert cube.observations == 2
    np.testing.assert_allclose(cube.pose.position, [10.5, 0.1, 0.02], atol=1e-6)


def test_a_context_has_its_places_before_the_arm_whatever_the_frame_of_the_memory():
    fed = Fed(frame="map")
    fed.tell(1, "find the cube")
    fed.see(1)
    fed.known = {1}
    fed.feed.place_waiting()
    (tokens,) = fed.contexts
    np.testing.assert_allclose(tokens.place[tokens.mask][:, :2].max(axis=0), [0.5, 0.1], atol=1e-6)
    assert not tokens.place[~tokens.mask].any()


def test_without_tf_of_its_stamp_no_context_is_told_and_it_is_named():
    fed = Fed(frame="map", lockstep=True)
    fed.known = {1}
    fed.see(1)
    fed.known = set()
    fed.tell(1, "find the cube")
    assert fed.contexts == [] and fed.notes.problems["memory/context"] == "not told: no base_link in map at 1"


def test_two_cameras_of_one_instant_both_wait():
    fed = Fed(frame="map")
    fed.see(1, "front")
    fed.see(1, "wrist")
    fed.known = {1}
    fed.feed.place_waiting()
    assert fed.objects()[0].observations == 2


def test_a_scene_in_a_frame_that_tf_never_places_holds_up_nobody():
    fed = Fed(frame="map")
    fed.see(1)
    fed.known = {2}
    fed.see(2)
    assert fed.objects()[0].observations == 1
    fed.known = {1, 2}
    fed.feed.place_waiting()
    assert fed.objects()[0].observations == 2


def test_the_scenes_of_one_instant_are_bounded_too():
    fed = Fed(frame="map")
    for _ in range(MAX_WAITING + 3):
        fed.see(1)
    assert fed.notes.counts["scenes without tf"] == 3


def test_scenes_that_tf_never_places_are_given_up_by_name():
    fed = Fed(frame="map")
    for stamp_ns in range(MAX_WAITING + 2):
        fed.see(stamp_ns)
    assert fed.notes.counts["scenes without tf"] == 2
    assert fed.notes.problems["tf"] == "no base_link in map at 1"


def test_what_tf_lacks_is_named_while_it_places_no_scene_of_now_however_seldom_they_come():
    fed = Fed(frame="map")
    fed.see(1)
    assert "tf" not in fed.notes.problems
    fed.see(2, ago_s=WAITED_S + 1)
    assert fed.notes.problems.pop("tf") == "no base_link in map at 1"
    fed.known = {3}
    fed.see(3)  # tf is back, the first two wait on
    assert "tf" not in fed.notes.problems


def test_a_robot_of_which_nothing_is_described_is_introduced_by_its_cameras_and_whether_it_drives():
    body = Body(NO_ROBOT, track_hand=True, drives=True)
    assert not body.has_hand and body.hand(joints(0.1), "robot0") is None
    fed = Fed(body=body.profile)
    fed.see(1, "head")
    (robot,) = [node for node in fed.memory.graph().nodes if node.layer == "agent"]
    assert robot.embodiment == Embodiment("robot", mobile_base=True, sensors=("head camera",))


def matched(**config):
    got = []
    matcher = SceneMatcher(lambda scene, state, _: got.append((scene.stamp_ns, state and state.stamp_ns)), **config)
    return matcher, got


def test_in_lock_step_a_scene_waits_for_the_joint_states_of_its_instant():
    matcher, got = matched(lockstep=True, wants_joints=True)
    matcher.scene(view([], 100), 0.0)
    matcher.joints(joints(stamp_ns=99))
    assert got == []
    matcher.joints(joints(stamp_ns=100))
    matcher.joints(joints(stamp_ns=200))
    matcher.scene(view([], 200), 0.0)
    matcher.scene(view([], 300), 0.0)  # its joint states are lost: the next scene pushes it on
    matcher.scene(view([], 400), 0.0)
    assert got == [(100, 100), (200, 200), (300, None)]


def test_free_running_takes_the_nearest_joint_states_within_a_tenth_of_a_second():
    matcher, got = matched(lockstep=False, wants_joints=True)
    for stamp in (0, 60_000_000):
        matcher.joints(joints(stamp_ns=stamp))
    for stamp in (20_000_000, 50_000_000, 160_000_000, 160_000_001):
        matcher.scene(view([], stamp), 0.0)
    assert [state for _, state in got] == [0, 60_000_000, 60_000_000, None]


def test_who_knows_no_hand_waits_for_no_joint_states():
    matcher, got = matched(lockstep=True, wants_joints=False)
    matcher.scene(view([], 100), 0.0)
    assert got == [(100, None)]


def test_the_hand_goes_with_its_scene():
    fed = Fed()
    hand = Hand(Pose(np.array([0.5, 0.1, 0.05]), np.array([1.0, 0, 0, 0])), 0.0, "robot0")
    scene = view([seen("red cube", (0.5, 0.1, 0.02))], 1)
    fed.feed.scene(scene, hand, 0.0)
    known = GraphMemory(encoder=WordEncoder())
    known.update(replace(scene, hand=hand))
    place = [n.pose.position.tolist() for n in fed.memory.graph().nodes if n.layer == "agent"]
    assert place == [n.pose.position.tolist() for n in known.graph().nodes if n.layer == "agent"] != []


SECOND = 10**9
WEEK = 7 * 86_400 * SECOND
NOW = 1_800_000_000 * SECOND


class Diary(GraphMemory):
    """Writes down what it is told of episodes."""

    def __init__(self, **parts):
        super().__init__(**parts)
        self.lines = []

    def begin_episode(self, task, instruction, stamp_ns, under_way=False):
        self.lines.append(("begin", instruction))

    def end_episode(self, task, outcome, stamp_ns, memory_ids=(), policy_version=""):
        self.lines.append(("end", outcome))


@pytest.mark.parametrize("running", [True, False])
def test_a_recording_of_last_week_begins_and_ends_no_episode(running):
    robot = Fed(Diary, NOW)
    if running:
        robot.tell(NOW, "open the drawer")
    for stamp_ns, state in ((NOW - WEEK, "running"), (NOW - WEEK + SECOND, "succeeded")):
        robot.tell(stamp_ns, "throw the knife", state)
        robot.tell(stamp_ns, "throw the knife", state, episode=7)
    robot.see(NOW + SECOND // 2)
    if running:
        robot.now_ns += SECOND
        robot.tell(NOW + SECOND, "open the drawer", "succeeded")
    assert robot.memory.lines == ([("begin", "open the drawer"), ("end", "succeeded")] if running else [])
    assert robot.notes.counts["status stamps refused"] == (4 if running else 2)
    said = "604799.0 s before the clock" if running else "of 604800 s ago, and said to run"
    assert said in robot.notes.problems["status stamp"]


def test_the_goal_that_ran_when_the_memory_was_restarted_goes_on():
    """On a robot its status comes once: the newest is kept for those who come late."""
    robot = Fed(Diary, NOW)
    robot.tell(NOW - 600 * SECOND, "open the drawer")
    robot.tell(NOW, "open the drawer", "failed")
    assert robot.memory.lines == [("begin", "open the drawer"), ("end", "failed")]


def test_a_goal_ends_also_after_the_clock_was_set_back():
    robot = Fed(Diary, NOW)
    robot.tell(NOW, "open the drawer")
    robot.now_ns = NOW - 100 * SECOND
    robot.tell(robot.now_ns, "open the drawer", "succeeded")
    assert robot.memory.lines == [("begin", "open the drawer"), ("end", "succeeded")]


@pytest.mark.parametrize("field", ["words", "task"])
def test_longer_words_than_people_say_begin_no_episode(field):
    robot = Fed(Diary, NOW)
    with pytest.raises(InvalidInputError, match=r"status: (instruction|task): 65000 characters, expected at most 1000"):
        robot.tell(NOW, **{"words": "go"} | {field: "x" * 65_000})
    assert robot.memory.lines == []


def test_objects_that_were_too_many_for_one_frame_are_counted_and_named():
    fed = Fed()
    fed.feed.scene(view([seen("red cube", (0.5, 0.1, 0.02))] * 300, 5), None, 0.0)
    assert fed.notes.counts["objects left out"] == 44
    assert fed.notes.problems["objects"].startswith("front: 44 objects of one frame left out, at most 256 are taken;")


def above(place):
    return Hand(Pose(np.array(place), np.array([1.0, 0, 0, 0])), 0.0, "robot0")


def test_after_each_scene_of_an_episode_the_memory_says_whether_the_words_are_carried_out():
    fed = Fed()

    def look(stamp_ns, hand):
        fed.feed.scene(view([seen("red cube", (0.5, 0.1, 0.02))], stamp_ns), hand, 0.0)

    look(1, above((0.3, 0.0, 0.3)))
    assert fed.verdicts == []  # no episode runs
    fed.tell(2, "reach for the red cube")
    for stamp_ns, place in ((3, (0.3, 0.0, 0.3)), (4, (0.4, 0.05, 0.2)), (5, (0.5, 0.1, 0.12))):
        look(stamp_ns, above(place))
    assert [v.outcome for v in fed.verdicts] == ["denied", "denied", "confirmed"]
    assert [v.stamp_ns for v in fed.verdicts] == [3, 4, 5] and {v.episode for v in fed.verdicts} == {1}
    look(6, None)
    assert fed.verdicts[-1].outcome == "confirmed"  # it happened
    fed.tell(7, "reach for the red cube")  # its sender was restarted and counts from 1 again
    look(8, above((0.3, 0.0, 0.3)))
    assert fed.verdicts[-1].outcome == "denied"
    fed.tell(9, "", state="stopped")
    look(10, above((0.5, 0.1, 0.12)))
    assert len(fed.verdicts) == 5
    fed.tell(20, "reach for the red cube")
    look(19, above((0.5, 0.1, 0.12)))  # taken before the words were given, and perceived after
    assert len(fed.verdicts) == 5
    look(21, above((0.3, 0.0, 0.3)))
    assert fed.verdicts[-1].outcome == "denied"


def test_a_running_goal_is_judged_also_after_the_clock_was_set_back():
    second, near, far = 10**9, (0.5, 0.1, 0.02), Hand(Pose(np.array([0.3, -0.3, 0.4]), np.array([1.0, 0, 0, 0])), 0.0)
    fed = Fed()
    for k in range(3):
        fed.feed.scene(view([seen("red cube", near)], 100 * second + k * second // 10), far, 0.0)
    fed.tell(100 * second + second // 4, "put the red cube in the bin")
    there = [seen("red cube", (0.5, 0.1, 0.02), size=0.04), seen("bin", (0.5, 0.1, 0.03), size=0.2)]
    for k in range(3, 6):
        fed.feed.scene(view(there, 100 * second + k * second // 10), far, 0.0)
    before = fed.verdicts[-1]
    fed.verdicts.clear()
    for k in range(8):  # no status comes: the goal's one began at the time of before
        fed.feed.scene(view(there, second + k * second // 10), far, 0.0)
    assert before.stamp_ns > 100 * second and len(fed.verdicts) >= 5
    assert (fed.verdicts[-1].outcome, fed.verdicts[-1].reason) == (before.outcome, before.reason)
    assert "since the episode began" not in fed.verdicts[-1].reason


def test_the_full_graph_is_published_for_who_asks_and_the_same_one_at_most_twice_a_minute(monkeypatch):
    """A reader that refuses it asks for ever, and the topic keeps 64 of them."""
    fed, now_s = Fed(), [1000.0]
    monkeypatch.setattr(memory_feed.time, "monotonic", lambda: now_s[0])
    fed.see(1)
    before, told = len(fed.changes), []
    for _ in range(100):
        if not (wait_s := fed.feed.share_full()):
            told.append(now_s[0] - 1000.0)
        assert wait_s <= FULL_MAX_S - FULL_S
        now_s[0] += FULL_S
    assert told == [0.0, *(2 * FULL_S, 6 * FULL_S, 14 * FULL_S), *(14 * FULL_S + n * FULL_MAX_S for n in range(1, 6))]
    whole = fed.memory.graph()
    assert [(one.full, one.sequence, len(one.nodes)) for one in fed.changes[before:]] == [
        (True, whole.sequence, len(whole.nodes))
    ] * len(told)
    fed.see(2)
    assert fed.feed.share_full() == 0.0 and fed.feed.sequence == fed.changes[-1].sequence > whole.sequence
    fed.see(3)
    now_s[0] += 0.5
    assert fed.feed.share_full() == FULL_S - 0.5
