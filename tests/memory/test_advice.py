"""Value of a look, worked out by hand."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from engram.core.questions import Selection
from engram.core.types import Body, DetectedObject, Embodiment, Pose, SceneObservation
from engram.memory.graph.places import known_place
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.query.advice import AdviceConfig, Option, advise, itinerary, search_order
from engram.memory.query.locations import options
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from tests.memory.scenes import WordEncoder, seen, view

ROBOT = np.zeros(3)
KITCHEN, HALL = np.array([3.0, 0, 0]), np.array([0.0, 8.0, 0])


def worth_m(advice):
    """Return what the sentence says that the search is worth, less its way [m]."""
    more = re.search(r"worth (-?[\d.]+) m of way more than it takes", advice.text)
    less = re.search(r"takes (-?[\d.]+) m of way more than it is worth", advice.text)
    return float(more[1]) if more else -float(less[1])


def test_a_look_is_worth_the_second_guess_when_the_first_is_wrong():
    """Two of a name, p = 0.6 and 0.5: without a look 0.6; a look leaves 0.4 * 0.5 more = 4 m of 20, less 3 m of way."""
    advice = advise([Option(KITCHEN, "kitchen", 0.6), Option(HALL, "hall", 0.5)], ROBOT)
    assert advice.look and advice.labels[0] == "kitchen"
    assert worth_m(advice) == pytest.approx(0.4 * 0.5 * 20 - 3)
    assert advice.chances[0] == pytest.approx(0.6 / 1.1)
    assert advice.text == (
        "Look at kitchen, 3.0 m away: a look there finds it with a chance of 55 %; the search is worth 1.0 m of way "
        "more than it takes."
    )
    np.testing.assert_array_equal(advice.place, KITCHEN)


def test_that_something_is_usually_there_is_where_to_look_but_no_answer():
    """Answering now is right with 0.2, however likely the kitchen is; after a look there with 0.6 + 0.2."""
    advice = advise([Option(KITCHEN, "kitchen", 0.0, moved=0.6), Option(HALL, "hall", 0.2)], ROBOT)
    assert advice.look and advice.labels[0] == "kitchen"
    assert worth_m(advice) == pytest.approx(0.6 * 20 - 3)


def test_a_look_finds_what_was_put_down_elsewhere_on_the_same_surface():
    """Still there 0.5, elsewhere on it 0.3: a look gains the 0.3, and on to the hall, 8.5 m in a fifth, 0.1 more."""
    advice = advise([Option(KITCHEN, "kitchen", 0.5, moved=0.3), Option(HALL, "hall", 0.0, moved=0.1)], ROBOT)
    assert advice.look and worth_m(advice) == pytest.approx(0.4 * 20 - 3 - 0.2 * np.hypot(3, 8), abs=0.05)
    assert advice.chances[0] == pytest.approx(0.8)


def test_too_far_is_not_worth_it_and_the_answer_says_so():
    """Gain 0.2 * 0.1 = 0.4 m, 3 m away."""
    advice = advise([Option(KITCHEN, "kitchen", 0.8), Option(HALL, "hall", 0.1)], ROBOT)
    assert not advice.look and worth_m(advice) == pytest.approx(0.4 - 3)
    assert advice.text.startswith("Looking is not worth it: the best place is kitchen")


def test_the_same_guess_is_worth_a_look_from_nearby():
    assert advise([Option(KITCHEN, "kitchen", 0.8), Option(HALL, "hall", 0.1)], KITCHEN).look


def test_who_is_sure_need_not_look():
    advice = advise([Option(KITCHEN, "kitchen", 0.95)], ROBOT)
    assert not advice.look and advice.text.startswith("No look is needed")


def test_nothing_to_go_by_is_said():
    assert "no place" in advise([], ROBOT).text


def test_guesses_of_one_place_are_one_look_and_more_than_all_is_scaled():
    """Kitchen 0.5 and 0.5, so 0.75 that one is there; hall 0.8: a look at the kitchen leaves 0.25 * 0.2 wrong."""
    near = KITCHEN + np.array([0.4, 0, 0])
    options = [Option(KITCHEN, "a", 0.5), Option(near, "b", 0.5), Option(HALL, "hall", 0.8)]
    advice = advise(options, ROBOT, AdviceConfig(worth_m=90))
    assert advice.chances[0] == pytest.approx(0.75 / 1.55)
    assert worth_m(advice) == pytest.approx((0.95 - 0.8) * 90 - 3)


def test_no_order_of_few_places_is_better_on_average():
    draw = np.random.default_rng(3)
    for _ in range(20):
        places, p = draw.uniform(0, 10, (5, 2)), draw.dirichlet(np.ones(5))
        ways = np.linalg.norm(np.vstack([np.zeros(2), places])[:, None] - places, axis=2)

        def expected(order, p=p, ways=ways) -> float:
            way = found = 0.0
            for at, to in zip((0, *(i + 1 for i in order)), order, strict=False):
                way, found = way + (1 - found) * (ways[at, to] + 2.0), found + p[to]
            return way

        best = min(expected(order) for order in itertools.permutations(range(5)))
        assert expected(search_order(p, ways, 2.0)) <= 1.001 * best


def test_who_is_sure_is_told_the_way_to_the_nearest_of_two_all_the_same():
    advice = advise([Option(HALL, "hall", 0.97), Option(KITCHEN, "kitchen", 0.95)], ROBOT)
    assert not advice.look
    np.testing.assert_array_equal(advice.route[0], KITCHEN)
    assert sum(advice.chances) == pytest.approx(1.0)


def test_what_left_its_place_is_looked_for_on_the_same_surface_too():
    """A cup that is always put on the desk: of the chance that it was moved, 0.7 + 0.3 / 2 goes to the desk again."""
    places = (known_place("place", "desk", (0.5, 0.0, -0.02), (0.6, 0.6, 0.04)),
              known_place("place", "shelf", (5.0, 0.0, 1.0), (0.6, 0.6, 0.04)))  # fmt: skip
    memory = GraphMemory(encoder=WordEncoder(), places=places)
    for tick in range(3):
        memory.update(view([seen("red cup", (0.5, 0.1, 0.02))], tick))
    later = 5 * 86400 * 10**9
    hits = memory.query_context().search(Selection("red cup", now_ns=later))
    (cup, shelf) = options(memory.tracker, hits, later, [(np.array([0.4, 0.0, 0.02]), 1.0)])
    assert cup.seen == hits.confidence[0] < 0.6
    assert cup.moved == pytest.approx((1 - cup.seen) * 0.85 / 1.05)
    assert (shelf.label, shelf.seen, shelf.moved) == ("the shelf", 0.0, pytest.approx((1 - cup.seen) * 0.15 / 1.05))


def test_the_route_names_each_stop_and_is_told_as_far_as_asked_for():
    """The hall is near the robot, the kitchen on the way back; one place alone is no route."""
    hall, kitchen = Option(HALL, "the hall", 0.0, moved=0.5), Option(KITCHEN, "the kitchen", 0.0, moved=0.2)
    advice = advise([kitchen, hall], HALL)
    assert advice.labels == ("the hall", "the kitchen")
    told = "In this order: the hall (0.00, 8.00, 0.00) 50 %"
    assert itinerary(advice.labels, advice.route, advice.chances, 5) == f"{told}, the kitchen (3.00, 0.00, 0.00) 20 %."
    assert itinerary(advice.labels, advice.route, advice.chances, 1) == f"{told}, and 1 more."
    assert itinerary(advice.labels[:1], advice.route[:1], advice.chances[:1], 5) == ""


# -- where the search begins -------------------------------------------------------------------------------------------

DESK, SHELF = (
    known_place("place", name, (x, 0.0, 0.5), (0.6, 0.6, 0.1)) for name, x in (("desk", 0.0), ("shelf", 8.0))
)
LATER = 90 * 86400 * 10**9


def driving(x, mobile=True):
    """Return a memory whose robot stands at (x, 1) m; it saw a cup on the desk three months ago."""
    graph = GraphMemoryConfig(tracker=TrackerConfig(frame="map"))
    memory = RobotMemory(config=RobotMemoryConfig(graph), encoder=WordEncoder(), places=(DESK, SHELF))
    memory.introduce("robot0", Embodiment("mobile manipulator", mobile_base=mobile, reach_m=0.8), 0)
    for tick in range(3):
        cup = DetectedObject("red cup", Pose(np.array([0.0, 0.0, 0.57]), frame="map"))
        memory.update(SceneObservation(tick, objects=(cup,)))
    if x is not None:
        memory.update(SceneObservation(9, body=Body(Pose(np.array([x, 1.0, 0.0]), frame="map"))))
    return memory


def test_a_search_begins_where_the_robot_was_seen_to_stand():
    """Nobody says where it is: the memory knows its own robot. After so long the cup may be at either place."""
    near_desk, near_shelf = (driving(x).ask("where is the red cup", now_ns=LATER).advice for x in (1.0, 9.0))
    assert [advice.labels[0] for advice in (near_desk, near_shelf)] == ["the desk", "the shelf"]
    way = np.linalg.norm(near_desk.route[0] - np.array([1.0, 1.0, 0.0]))
    assert f"{way:.1f} m away" in near_desk.text


def test_whoever_asks_may_say_another_place():
    said = driving(1.0).ask("where is the red cup", now_ns=LATER, robot_place=np.array([9.0, 1.0, 0.0])).advice
    known = driving(9.0).ask("where is the red cup", now_ns=LATER).advice
    assert (said.text, said.labels) == (known.text, known.labels)


@pytest.mark.parametrize(("x", "mobile"), [(None, True), (1.0, False)], ids=["nobody told where", "it cannot drive"])
def test_a_robot_that_is_nowhere_or_cannot_drive_has_no_way(x, mobile):
    assert "m away" not in driving(x, mobile).ask("where is the red cup", now_ns=LATER).advice.text


def test_who_is_sure_is_told_of_no_look_though_the_robot_stands_somewhere():
    assert driving(1.0).ask("where is the red cup", now_ns=10).advice is None
