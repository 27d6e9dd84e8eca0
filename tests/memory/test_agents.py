"""Robots in the graph: where they stood, what they are, hold and can, over restarts and in another robot's memory."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.geometry import scene_in_frame
from engram.core.questions import AtTime, Capability
from engram.core.robot import PANDA_2F85
from engram.core.types import Body, Embodiment, Hand, Pose
from engram.memory.graph.places import known_place
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.merging import memories
from engram.memory.query.language import parse
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.embodiment_json import embodiment_from
from engram.memory.storage.exchange import read_jsonl, to_networkx, write_jsonl
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.spark_dsg_file import load, save
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import IDENTITY, WordEncoder, seen, view

SECOND = 10**9
HERE = (0.5, 0.1, 0.02)
PANDA = PANDA_2F85.embodiment(("front camera",))
CART = Embodiment("mobile manipulator", 6, 0.6, 1.0, 0.05, True, ("front camera", "laser scanner"))
FLAT = [
    known_place("building", "house", (5.0, 5.0, 1.5), (20.0, 20.0, 3.2)),
    known_place("room", "kitchen", (0.0, 0.0, 1.25), (4.0, 4.0, 2.5)),
    known_place("room", "hall", (6.0, 0.0, 1.25), (4.0, 4.0, 2.5)),
    known_place("place", "shelf", (0.5, 0.1, 0.02), (0.6, 0.6, 0.04)),
]


def arm(store=None, stored=None):
    return RobotMemory(store, encoder=WordEncoder(), stored=stored)


def on_wheels(store=None):
    graph = GraphMemoryConfig(tracker=TrackerConfig(frame="map"))
    return RobotMemory(store, RobotMemoryConfig(graph), WordEncoder(), FLAT)


def ask(memory, words, now_s=1000):
    return memory.query(parse(words, now_s * SECOND))


def agents(memory, at_s=None):
    found = memory.graph(None if at_s is None else round(at_s * SECOND)).nodes
    return {node.label: node for node in found if node.layer == "agent"}


def drive(memory, way, agent="cart"):
    """Stand at x = ``way[i]`` m in second i, and look at nothing."""
    for second, x in enumerate(way):
        base = Pose(np.array([x, 0.0, 0.0]), IDENTITY, "map")
        memory.update(scene_in_frame(view([], second * SECOND, depth=0.5), base, np.eye(3) * 1e-4, agent))


def holding(place, fraction, agent="robot0"):
    return Hand(Pose(np.array(place, float), IDENTITY), fraction, agent)


def watch(memory, objects, seconds, hand=None):
    for second in seconds:
        memory.update(replace(view(objects, second * SECOND, depth=0.5), hand=hand))


# -- where they stand ------------------------------------------------------------------------------------------------


def test_where_a_robot_was_is_a_fact_of_its_time():
    """A metre a second: at 2.5 s it stood at x = 2 m, and had been there since 2 s."""
    memory = on_wheels()
    drive(memory, [0.0, 1.0, 2.0, 3.0, 6.0])
    assert agents(memory)["cart"].pose.position[0] == 6.0
    assert agents(memory, at_s=2.5)["cart"].pose.position[0] == 2.0
    answer = ask(memory, "where was cart at 2.5 s")
    assert answer.nodes[0].pose.position[0] == 2.0 and answer.text.startswith("cart was at x 2.00")
    assert "at the hall" in ask(memory, "where is cart").text


def test_a_way_is_remembered_in_steps_of_a_quarter_of_a_metre():
    memory = on_wheels()
    drive(memory, [0.02 * i for i in range(51)])
    (node,) = agents(memory).values()
    facts = memory.tracker.history.of(node.id)
    assert [round(float(fact.place[0]), 2) for fact in facts] == [0.0, 0.26, 0.52, 0.78]
    assert node.last_seen_ns == 50 * SECOND  # of where it is now, though no new fact was due


def test_an_arm_stands_in_the_origin_wherever_its_hand_is():
    memory = arm()
    watch(memory, [seen("red cube", HERE)], range(4), holding((0.6, 0.2, 0.4), 0.0))
    np.testing.assert_array_equal(agents(memory)["robot0"].pose.position, np.zeros(3))
    assert len(memory.tracker.history.of("agent_0001")) == 1
    watch(memory, [seen("red cube", HERE)], [4], holding((0.5, 0.1, 0.1), 0.0))
    assert [n.label for n in ask(memory, "what is near the hand").nodes] == ["red cube"]


def test_a_robot_that_drives_and_was_never_seen_anywhere_has_no_place():
    memory = on_wheels()
    memory.introduce("cart", CART, 0)
    assert ask(memory, "where is cart").text == "I do not know where cart is."
    assert not memory.tracker.history.of("agent_0001")
    drive(memory, [1.0])
    assert agents(memory)["cart"].pose.position[0] == 1.0 and agents(memory)["cart"].embodiment == CART


def test_the_frame_of_a_body_is_checked():
    with pytest.raises(InvalidInputError, match=r"frames \['base_link', 'map'\]"):
        arm().update(replace(view([]), body=Body(Pose(np.zeros(3), IDENTITY, "map"))))


# -- what they are ---------------------------------------------------------------------------------------------------


def test_a_profile_holds_from_when_it_was_told_and_the_one_before_stays_true_of_before():
    memory = arm()
    memory.introduce("robot0", PANDA, 10 * SECOND)
    update = memory.introduce("robot0", replace(PANDA, gripper_m=0.14), 20 * SECOND)
    assert update.nodes[0].embodiment.gripper_m == 0.14
    assert not memory.introduce("robot0", replace(PANDA, gripper_m=0.14), 30 * SECOND).nodes  # nothing new
    assert agents(memory, at_s=15)["robot0"].embodiment.gripper_m == 0.085
    assert agents(memory, at_s=25)["robot0"].embodiment.gripper_m == 0.14


def test_profile_and_skills_survive_a_restart_and_go_through_json_lines(tmp_path):
    store = GraphStore(tmp_path / "a")
    memory = arm(store)
    memory.introduce("robot0", PANDA, SECOND)
    for second, outcome in enumerate(("succeeded", "failed", "succeeded")):
        memory.begin_episode("open_drawer", "open the drawer", second * SECOND)
        memory.end_episode("open_drawer", outcome, second * SECOND, policy_version="v3")
    memory.commit()
    memory.close()
    store.close()
    lines = io.StringIO()
    write_jsonl(read_snapshot(tmp_path / "a"), lines)
    lines.seek(0)
    again = arm(stored=read_jsonl(lines))
    body = agents(again)["robot0"].embodiment
    assert replace(body, skills=()) == PANDA
    (skill,) = body.skills
    assert (skill.task, skill.policy_version, skill.successes, skill.n) == ("open_drawer", "v3", 2, 3)
    assert skill.last_ns == 2 * SECOND
    again.close()


def test_profiles_go_through_graphml_and_spark_dsg(tmp_path):
    memory = arm()
    memory.introduce("robot0", PANDA, SECOND)
    drawn = to_networkx(memory.graph()).nodes["agent_0001"]
    assert '"reach_m": 0.855' in drawn["embodiment"]
    save(memory.graph(), tmp_path / "graph.json")
    assert '"world_R_body":{"w":1.0,"x":0.0,"y":0.0,"z":0.0}' in (tmp_path / "graph.json").read_text()
    found = GraphMemory(encoder=WordEncoder(), places=())
    found.adopt(load(tmp_path / "graph.json"))
    assert agents(found)["robot0"].embodiment == PANDA
    assert ask(found, "which robot can reach the table").nodes[0].embodiment == PANDA


def test_a_profile_of_nonsense_is_refused():
    with pytest.raises(InvalidInputError, match=r"Embodiment.reach_m: -1"):
        replace(PANDA, reach_m=-1.0)
    with pytest.raises(TypeError):
        embodiment_from({"kind": "arm", "wings": 2, "sensors": [], "skills": []})


# -- what they can ---------------------------------------------------------------------------------------------------


def test_an_arm_reaches_as_far_as_it_says_and_one_that_drives_further():
    """The cube is 0.51 m from the base, the bowl 1.10 m; the panda reaches 0.855 m."""
    memory = arm()
    memory.introduce("robot0", PANDA, 0)
    watch(memory, [seen("red cube", HERE), seen("blue bowl", (1.1, 0.0, 0.02), size=0.12)], range(4))
    near = ask(memory, "which robot can reach the red cube", 4)
    assert [n.label for n in near.nodes] == ["robot0"]
    assert near.text == "robot0 can reach the red cube: 0.51 m away, it reaches 0.85 m."
    far = ask(memory, "who can reach the blue bowl", 4)
    assert not far.nodes and far.text == "No robot that I know: robot0 reaches 0.85 m, the blue bowl is 1.10 m away."
    memory.introduce("robot0", replace(PANDA, mobile_base=True), 4 * SECOND)
    assert "can drive there" in ask(memory, "who can reach the blue bowl", 5).text
    grasp = ask(memory, "which robot can pick up the blue bowl", 5)
    assert not grasp.nodes and "opens its gripper 0.085 m, the blue bowl is 0.120 m" in grasp.text
    with pytest.raises(UnknownNameError, match="unicorn"):
        ask(memory, "which robot can reach the unicorn")


def test_what_may_be_a_false_detection_is_not_promised_to_be_in_reach():
    memory = arm()
    memory.introduce("robot0", PANDA, 0)
    watch(memory, [seen("red cube", HERE, score=0.3)], [0])
    found = ask(memory, "which robot can reach the red cube", 1)
    assert found.text.startswith("robot0 can reach the red cube that I may have seen: 0.51 m away")
    assert found.confidence < 0.18


def test_robots_are_found_by_what_they_have():
    memory = on_wheels()
    memory.introduce("cart", CART, 0)
    assert [n.label for n in ask(memory, "which robot has a mobile base").nodes] == ["cart"]
    assert [n.label for n in ask(memory, "which robots have cameras").nodes] == ["cart"]
    assert not ask(memory, "which robot has a welding torch").nodes
    assert "mobile manipulator" in ask(memory, "what can cart do").text
    assert [n.label for n in ask(memory, "which robots do you know").nodes] == ["cart"]


def test_who_did_a_task_is_known_by_its_outcomes():
    memory = arm()
    memory.introduce("robot0", PANDA, 0)
    memory.begin_episode("open_drawer", "open the drawer", SECOND)
    memory.end_episode("open_drawer", "failed", 2 * SECOND, policy_version="v1")
    assert not ask(memory, "which robot can open the drawer", 3).nodes  # tried, never done
    memory.begin_episode("open_drawer", "open the drawer", 3 * SECOND)
    memory.end_episode("open_drawer", "succeeded", 4 * SECOND, policy_version="v2")
    answer = memory.query(Capability("do", text="open drawer"))
    assert [n.label for n in answer.nodes] == ["robot0"] and "did open drawer 1 of 1 times (v2)" in answer.text
    assert not memory.query(AtTime(Capability("do", text="open drawer"), (5 * SECOND, 6 * SECOND))).nodes
    update = memory.update(view([], 5 * SECOND))  # readers of the graph hear of it, too
    assert [len(n.embodiment.skills) for n in update.nodes if n.layer == "agent"] == [2]


@pytest.mark.parametrize(
    ("words", "ability", "text", "target"),
    [
        ("Which robot can reach the red cup?", "reach", "", "red cup"),
        ("who could carry a sofa", "grasp", "", "sofa"),
        ("which robot is holding the red cup", "hold", "", "red cup"),
        ("who held the cup at 12.5 s", "hold", "", "cup"),
        ("which robot has a mobile base", "have", "mobile base", ""),
        ("which robot opened the drawer", "do", "opened the drawer", ""),
        ("which robot has opened the drawer", "do", "opened the drawer", ""),
        ("what can robot_b do", "be", "robot_b", ""),
        ("which robots are there", "be", "", ""),
    ],
)
def test_questions_about_robots_are_read(words, ability, text, target):
    query = parse(words, 1000 * SECOND)
    query = query.question if isinstance(query, AtTime) else query
    assert query == Capability(ability, text, target, now_ns=1000 * SECOND)


# -- another robot's -------------------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path):
    """Robot_b's store: it stands 2 m along x from us, knows its own profile and skill, and holds a spoon."""
    memory = arm(GraphStore(tmp_path / "b"))
    memory.introduce("robot_b", PANDA, 0)
    memory.begin_episode("stack", "stack the cubes", SECOND)
    memory.end_episode("stack", "succeeded", SECOND, policy_version="v7")
    watch(memory, [seen("blue spoon", HERE)], range(4), holding(HERE, 0.0, "robot_b"))
    watch(memory, [], [4], holding(HERE, 0.5, "robot_b"))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    return read_snapshot(tmp_path / "b")


GUESS = PlaneTransform(0.0, np.array([2.0, 0.0, 0.0]))


def ours(name="robot_a"):
    memory = arm()
    memory.introduce(name, PANDA, 0)
    watch(memory, [seen("red cube", HERE)], range(4), holding((0.3, 0.0, 0.4), 0.0, name))
    return memory


def test_another_robots_place_profile_skills_and_grip_come_with_its_memory(other):
    memory = ours()
    report = memories.merge_from(memory, other, "b", GUESS)
    assert report.agents == ("b/agent_0001",)
    theirs = agents(memory)["robot_b"]
    np.testing.assert_allclose(theirs.pose.position, (2.0, 0.0, 0.0))
    assert theirs.embodiment.skills[0].task == "stack"
    assert [n.label for n in ask(memory, "what does robot_b hold", 5).nodes] == ["blue spoon"]
    assert [n.label for n in ask(memory, "who holds the blue spoon", 5).nodes] == ["robot_b"]
    assert [n.label for n in ask(memory, "which robot can reach the blue spoon", 5).nodes] == ["robot_b"]
    assert [n.label for n in ask(memory, "who can reach the red cube", 5).nodes] == ["robot_a"]
    assert ask(memory, "where is robot_b", 5).confidence > ask(memory, "where is robot_b", 3600).confidence


def test_taken_out_again_the_other_robot_is_gone_and_its_past_belief_is_kept(other):
    memory = ours()
    memories.merge_from(memory, other, "b", GUESS)
    memory.update(view([seen("red cube", HERE)], 10 * SECOND))
    memories.unmerge(memory, "b")
    assert set(agents(memory)) == {"robot_a"}
    assert memory.tracker.embodiments.at("b/agent_0001") is None
    assert memory.tracker.embodiments.at("b/agent_0001", believed_ns=9 * SECOND).reach_m == 0.855
    assert not memory.tracker.grasps.pairs()
    memories.merge_from(memory, other, "b", GUESS)
    assert agents(memory)["robot_b"].embodiment.reach_m == 0.855


def test_two_robots_that_nobody_named_stay_two(other):
    memory = ours("robot_b")
    memories.merge_from(memory, other, "b", GUESS)
    assert set(agents(memory)) == {"robot_b", "b"}
    assert ask(memory, "what does robot_b hold", 5).nodes == ()
    assert [n.label for n in ask(memory, "what does b hold", 5).nodes] == ["blue spoon"]


def test_what_another_hand_takes_the_first_has_no_more():
    memory = ours()
    watch(memory, [seen("red cube", HERE)], [5], holding(HERE, 0.5, "robot_a"))
    assert memory.tracker.grasps.pairs() == [("robot_a", "object_0001")]
    watch(memory, [], [6], holding(HERE, 0.5, "robot_c"))
    assert memory.tracker.grasps.pairs() == [("robot_c", "object_0001")]


# -- buildings -------------------------------------------------------------------------------------------------------


def test_objects_lie_in_rooms_and_rooms_in_buildings():
    memory = on_wheels()
    base = Pose(np.zeros(3), IDENTITY, "map")
    for second in range(3):
        scene = view([seen("red cube", (0.5, 0.1, 0.06))], second * SECOND)
        memory.update(scene_in_frame(scene, base, np.eye(3) * 1e-6))
    labels = {node.id: node.label for node in memory.graph().nodes}
    related = {(labels[e.source], e.relation, labels[e.target]) for e in memory.graph().edges}
    assert {("kitchen", "in", "house"), ("hall", "in", "house"), ("shelf", "in", "kitchen")} <= related
    assert {("red cube", "in", "kitchen"), ("red cube", "in", "house"), ("red cube", "on", "shelf")} <= related
    assert [n.label for n in ask(memory, "what is in the house", 3).nodes] == ["red cube"]
    assert [n.label for n in ask(memory, "what was in the house at 2 s", 3).nodes] == ["red cube"]
