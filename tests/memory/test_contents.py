"""What lies in a container goes where the container goes, and is absent only when its inside was seen without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.core.questions import FindObject
from engram.core.types import Hand, Pose
from engram.memory.graph.places import known_place, table
from engram.memory.graph_memory import GraphMemory
from engram.memory.query.language import parse
from tests.memory.scenes import IDENTITY, WordEncoder, seen, view

SECOND = 10**9
BIN_HALF = np.array([0.08, 0.08, 0.03])
BIN, CUBE = np.array([0.4, 0.1, 0.03]), np.array([0.43, 0.08, 0.025])
"""The cube of 3 cm lies in the bin, 3 cm ahead and 2 cm aside of its middle."""
RIM, UP = BIN + np.array([0.08, 0.0, 0.02]), np.array([0.0, 0.0, 0.02])
"""Where the hand holds the bin, and by how much it lifts it from one frame to the next."""


def make(*places):
    return GraphMemory(encoder=WordEncoder(), places=(table(), *places))


def a_bin(at=BIN):
    return replace(seen("grey bin", at), size=2 * BIN_HALF)


def a_cube(at=CUBE):
    return seen("red cube", at, size=0.03)


def over(middle, half, height, below=0.0):
    """Return the depths (32, 32) m of a box with its top ``height`` m high over a surface at ``below`` m.

    The camera is at (0.5, 0, 1) m; right in the image is x, up is y.
    """
    right, down = (np.stack(np.meshgrid(np.arange(32), np.arange(32))) + 0.5) * 4 - 64
    away = np.abs(np.stack([right, -down]) * (1 - height) / 128 - (np.array(middle) - (0.5, 0.0))[:, None, None])
    inside = (away[0] < half[0]) & (away[1] < half[1])
    return np.where(inside, 1 - height, 1 - below).astype(np.float32)


def closed_bin(at=BIN):
    """Return the depths (32, 32) m of a bin with its lid on."""
    return over(at[:2], BIN_HALF[:2], at[2] + BIN_HALF[2])


def watch(memory, objects, seconds, hand=None, **how):
    events = []
    for second in seconds:
        update = memory.update(replace(view(objects, round(second * SECOND), **how), hand=hand))
        events += [(event.kind, event.label) for event in update.events]
    return events


def hidden(memory=None):
    """Return a memory of a bin and a cube in it, on which a lid was put."""
    memory = memory or make()
    watch(memory, [a_bin(), a_cube()], range(4))
    watch(memory, [a_bin()], [4], depth=closed_bin())
    return memory


def node(memory, label):
    (found,) = [node for node in memory.graph().nodes if node.label == label]
    return found


def in_the(memory, container, now_s=100):
    return memory.query(parse(f"what is in the {container}", now_s * SECOND)).text


def grip(at, closed=0.5):
    return Hand(Pose(np.asarray(at, np.float64), IDENTITY), closed)


def check_inside(memory, where):
    """Check that the cube is believed to be in the bin at ``where`` (3,) m, exactly where it lay in it."""
    cube = node(memory, "red cube")
    assert cube.belief > 0.9 and cube.state == "occluded"
    np.testing.assert_allclose(node(memory, "grey bin").pose.position, where, atol=1e-3)
    np.testing.assert_allclose(cube.pose.position - node(memory, "grey bin").pose.position, CUBE - BIN, atol=1e-3)
    assert in_the(memory, "grey bin") == "The red cube is in the grey bin."


# -- carried ---------------------------------------------------------------------------------------------------------


def test_a_cube_in_a_lifted_bin_is_lifted_and_put_down_with_it():
    """Its old place, the bare table, is seen in every frame; the bin is lifted by 12 cm and put 15 cm aside."""
    memory = hidden()
    watch(memory, [a_bin()], [5], grip(RIM, 0.0), depth=closed_bin())
    assert watch(memory, [a_bin()], [6], grip(RIM), depth=closed_bin()) == [("held", "grey bin")]
    for k in range(1, 7):
        by = np.array([0.0, -0.025 * k, 0.02 * k])
        assert watch(memory, [], [6 + k], grip(RIM + by), depth=closed_bin(BIN + by)) == []
    check_inside(memory, BIN + by)
    down = np.array([0.0, -0.15, 0.0])
    watch(memory, [], [13], grip(RIM + down), depth=closed_bin(BIN + down))
    events = watch(memory, [], [14], grip(RIM + down, 0.0), depth=closed_bin(BIN + down))
    assert sorted(events) == [("moved", "grey bin"), ("moved", "red cube"), ("released", "grey bin")]
    assert watch(memory, [a_bin(BIN + down)], range(15, 30), depth=closed_bin(BIN + down)) == []
    check_inside(memory, BIN + down)
    then = memory.query(parse("where was the red cube at 20 s", 100 * SECOND)).nodes[0]
    np.testing.assert_allclose(then.pose.position, CUBE + down, atol=1e-3)


def test_the_place_of_a_carried_cube_is_as_uncertain_as_its_room_in_the_bin():
    """The bin leaves the cube (16 - 3) / 2 = 6.5 cm to both sides: its standard deviation is half of that."""
    memory = hidden()
    watch(memory, [a_bin()], [5], grip(RIM, 0.0), depth=closed_bin())
    for k in range(10):
        watch(memory, [], [6 + k], grip(RIM + k * UP), depth=closed_bin(BIN + k * UP))
    sigma = np.sqrt(np.diag(node(memory, "red cube").position_covariance))
    np.testing.assert_allclose(sigma, (0.0325, 0.0325, 0.0075), atol=1e-3)


def test_a_cube_that_stays_on_the_table_in_view_is_not_lifted_with_what_covered_it():
    memory = hidden()
    watch(memory, [a_bin()], [5], grip(RIM, 0.0), depth=closed_bin())
    watch(memory, [a_bin()], [6], grip(RIM), depth=closed_bin())
    for k in range(1, 7):
        watch(memory, [a_cube()], [6 + k], grip(RIM + 2.5 * k * UP))
    np.testing.assert_allclose(node(memory, "red cube").pose.position, CUBE, atol=1e-3)
    assert node(memory, "red cube").state == "visible"


# -- slid ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_m", [0.01, 0.03, 0.10])
def test_a_cube_in_a_bin_that_a_person_slides_stays_in_it(step_m):
    memory = hidden()
    for k in range(1, round(0.3 / step_m) + 1):
        by = np.array([0.0, -k * step_m, 0.0])
        events = watch(memory, [a_bin(BIN + by)], [4 + 0.1 * k], depth=closed_bin(BIN + by))
        assert ("absent", "red cube") not in events
    watch(memory, [a_bin(BIN + by)], range(40, 60), depth=closed_bin(BIN + by))
    cube, there = node(memory, "red cube"), CUBE + by
    assert cube.belief > 0.9
    np.testing.assert_allclose(cube.pose.position, there, atol=0.015)  # half of its width: less is no motion
    assert in_the(memory, "grey bin") == "The red cube is in the grey bin."


def test_what_lies_in_a_cup_on_a_tray_is_moved_once_with_the_tray():
    """The pea is in the cup, the cup on the tray; only the tray is seen when it is slid by 8 cm."""
    memory, by = make(), np.array([0.08, 0.0, 0.0])
    tray = replace(seen("green tray", (0.5, 0.0, 0.01)), size=np.array([0.3, 0.2, 0.02]))
    cup = replace(seen("blue cup", (0.42, 0.0, 0.06)), size=np.array([0.08, 0.08, 0.08]))
    pea = seen("red pea", (0.41, 0.01, 0.04), size=0.02)
    watch(memory, [tray, cup, pea], range(5))
    moved = replace(tray, pose=Pose(tray.pose.position + by, IDENTITY))
    watch(memory, [moved], range(5, 9), depth=0.7)  # a lid above everything
    for label, place in (("blue cup", (0.50, 0.0, 0.06)), ("red pea", (0.49, 0.01, 0.04))):
        np.testing.assert_allclose(node(memory, label).pose.position, place, atol=2e-3)
    assert in_the(memory, "blue cup") == "The red pea is in the blue cup."


def test_a_cube_in_a_bin_that_is_found_elsewhere_is_found_with_it():
    """Carried by a person by 50 cm from one frame to the next: the bin is known again at the third sight."""
    memory, there = hidden(), BIN + np.array([0.2, -0.45, 0.0])
    for seconds in (range(10, 13), range(13, 20)):
        events = watch(memory, [a_bin(there)], seconds, depth=closed_bin(there))
        assert ("returned", "grey bin") in events or seconds[0] == 13
        assert "red cube" not in {label for kind, label in events if kind != "moved"}
        np.testing.assert_allclose(node(memory, "red cube").pose.position, CUBE - BIN + there, atol=2e-3)
        assert in_the(memory, "grey bin") == "The red cube is in the grey bin."


def test_a_bin_that_is_partly_hidden_for_a_while_moves_nothing():
    """The part in view is 8 cm wide, and its middle 4 cm aside; both have the same far side."""
    memory = hidden()
    part = replace(a_bin(BIN + np.array([0.04, 0.0, 0.0])), size=np.array([0.08, 0.16, 0.06]))
    for seconds, sight in ((range(5, 8), part), (range(8, 12), a_bin())):
        watch(memory, [sight], seconds, depth=closed_bin())
        np.testing.assert_array_equal(node(memory, "red cube").pose.position, node(hidden(), "red cube").pose.position)


def test_a_cover_that_is_lowered_over_a_ball_does_not_push_it_into_the_table():
    """The rim of the shell is 2 cm, then 0 cm above the table; the middle of the ball of 3 cm was seen at 2.5 cm."""
    memory = make()
    shell = [replace(seen("grey shell", (0.45, 0.1, z)), size=np.array([0.07, 0.07, 0.07])) for z in (0.055, 0.035)]
    watch(memory, [seen("red ball", (0.45, 0.1, 0.025), size=0.03)], range(4))
    for sight, seconds, top in ((shell[0], range(4, 8), 0.09), (shell[1], range(8, 12), 0.07)):
        watch(memory, [sight], seconds, depth=over((0.45, 0.1), (0.035, 0.035), top))
    assert in_the(memory, "grey shell") == "The red ball is in the grey shell."
    np.testing.assert_allclose(node(memory, "red ball").pose.position, (0.45, 0.1, 0.015), atol=1e-3)


@pytest.mark.parametrize(("size", "times"), [(0.13, 4), (0.03, 2)])
def test_two_boxes_of_about_one_size_and_a_false_detection_are_no_container_with_content(size, times):
    """By the boxes both are in the bin: one fills two thirds of it; the other was seen twice, before the bin moved."""
    memory, by = make(), np.array([0.0, -0.2, 0.0])
    watch(memory, [a_bin()], range(4))
    watch(memory, [a_bin(), replace(a_cube(), size=np.array([size, size, 0.06]))], range(4, 4 + times))
    assert ("object_0002", "in", "object_0001") in {(e.source, e.relation, e.target) for e in memory.graph().edges}
    for k in range(1, 5):
        watch(memory, [a_bin(BIN + by * k / 4)], [10 + k], depth=0.5)
    np.testing.assert_allclose(node(memory, "red cube").pose.position, CUBE, atol=1e-3)


# -- taken out -------------------------------------------------------------------------------------------------------


def test_a_cube_that_was_taken_out_of_the_moved_bin_is_absent_once_the_bin_is_seen_empty():
    """Somebody takes it out under the lid and slides the bin; then the lid is off, and the bottom is seen."""
    memory = hidden()
    for k in range(1, 6):
        by = np.array([0.0, -0.06 * k, 0.0])
        watch(memory, [a_bin(BIN + by)], [4 + k], depth=closed_bin(BIN + by))
    check_inside(memory, BIN + by)
    events = watch(memory, [a_bin(BIN + by)], range(20, 23), depth=over((BIN + by)[:2], BIN_HALF[:2], 0.004))
    assert events == [("absent", "red cube")]
    assert in_the(memory, "grey bin") == "Nothing is in the grey bin."


def test_a_cube_that_left_together_with_its_bin_is_absent_when_no_such_bin_is_found():
    memory = hidden()
    assert sorted(watch(memory, [], range(5, 9))) == [("absent", "grey bin"), ("absent", "red cube")]


# -- a drawer --------------------------------------------------------------------------------------------------------

DRAWER = known_place("place", "drawer", (0.5, 0.0, 0.45), (0.3, 0.3, 0.2))
"""Where it is when it is open, 35 cm above the floor, which is at z 0: its bottom is at z 0.35 m."""
IN_DRAWER = np.array([0.53, 0.05, 0.385])
OPEN = over((0.5, 0.0), (0.16, 0.16), 0.36)


def test_the_air_where_an_open_drawer_was_is_no_look_into_it():
    memory = make(DRAWER)
    watch(memory, [], range(3))
    assert in_the(memory, "drawer") == "I do not know: I have never looked into the drawer."
    watch(memory, [], range(3, 6), depth=OPEN)
    assert in_the(memory, "drawer") == "Nothing is in the drawer."


def test_a_cube_in_a_drawer_that_is_pushed_closed_in_view_stays_in_it_until_the_drawer_is_seen_empty():
    memory = make(DRAWER)
    watch(memory, [a_cube(IN_DRAWER)], range(4), depth=OPEN)
    looked = dict(memory.tracker.coverage.into)
    assert watch(memory, [], range(4, 40)) == []  # closed: the floor is seen through the place of the cube
    cube = node(memory, "red cube")
    assert (cube.state, cube.belief) == ("occluded", pytest.approx(0.99))
    assert in_the(memory, "drawer") == "The red cube is in the drawer."
    assert memory.tracker.coverage.into == looked
    assert watch(memory, [], range(40, 43), depth=OPEN) == [("absent", "red cube")]
    assert in_the(memory, "drawer") == "Nothing is in the drawer."


def test_a_shelf_above_the_camera_whose_bottom_no_camera_sees_is_looked_into_through_its_air():
    """The camera looks up: its optical axis points along z."""
    memory = make(known_place("place", "shelf", (0.5, 0.0, 1.6), (0.3, 0.3, 0.3)))
    upward = Pose(np.array([0.5, 0.0, 1.0]), IDENTITY)
    memory.update(replace(view([], SECOND, depth=1.5), camera_pose=upward))
    assert in_the(memory, "shelf") == "Nothing is in the shelf."


def test_who_asks_for_the_cube_is_told_of_the_bin_that_it_was_carried_with():
    memory = hidden()
    by = np.array([0.2, 0.0, 0.0])
    for k in range(1, 5):
        watch(memory, [a_bin(BIN + by * k / 4)], [4 + k], depth=closed_bin(BIN + by * k / 4))
    (cube,) = memory.query(FindObject("red cube")).nodes
    np.testing.assert_allclose(cube.pose.position, CUBE + by, atol=2e-3)
