"""From the scene graph to the obstacles of a motion barrier."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.geometry import make_pose
from engram.core.robot import PANDA_2F85
from engram.core.types import EMBEDDING_DIM, GraphUpdate, Pose, SceneNode
from engram.runtime.known_obstacles import KnownObstacles, obstacles


def seen(name, size, at=(0.5, 0.0, 0.1), label="box", sigma=0.0, **more) -> SceneNode:
    pose = more.pop("pose", Pose(np.array(at)))
    return SceneNode(
        id=name, layer="object", label=label, pose=pose, position_covariance=np.eye(3) * sigma**2,
        size=np.array(size), color=np.zeros(3), embedding=np.zeros(EMBEDDING_DIM, np.float32), belief=1.0,
        state="visible", first_seen_ns=0, last_seen_ns=0, observations=1, **more,
    )  # fmt: skip


def test_only_what_the_gripper_cannot_take_is_an_obstacle():
    cube, rod = seen("cube", (0.04, 0.04, 0.04)), seen("rod", (0.5, 0.03, 0.03))
    crate, pole = seen("crate", (0.3, 0.2, 0.1)), seen("pole", (0.02, 0.02, 0.02), label="obstacle")
    assert {box.name for box in obstacles([cube, rod, crate, pole], PANDA_2F85)} == {"crate", "pole"}


def test_what_is_gone_or_elsewhere_is_none():
    crate = seen("crate", (0.3, 0.2, 0.1))
    assert len(obstacles([crate], PANDA_2F85)) == 1
    elsewhere = Pose(crate.pose.position, frame="map")
    for gone in (
        replace(crate, state="absent"), replace(crate, belief=0.3), replace(crate, layer="room"),
        replace(crate, pose=elsewhere),
    ):  # fmt: skip
        assert obstacles([gone], PANDA_2F85) == ()


def test_objects_in_another_frame_are_named_as_they_cannot_be_told():
    known = KnownObstacles(PANDA_2F85, 8, lambda _: None)
    crate = seen("crate", (0.3, 0.2, 0.1))
    elsewhere = replace(crate, pose=Pose(crate.pose.position, frame="map"))
    assert known.unknown == "memory/graph has not told them yet"
    for nodes, why in (((), ""), ((elsewhere,), "has objects in frame 'map', expected 'base_link'"), ((crate,), "")):
        assert not known.take("boot", GraphUpdate(0, 1, True, nodes))
        assert why in known.unknown and bool(why) == bool(known.unknown)


def test_a_box_grows_by_two_sigma_on_every_side_and_by_the_grid():
    (box,) = obstacles([seen("crate", (0.3, 0.2, 0.1), at=(0.502, -0.3, 0.1), sigma=0.01)], PANDA_2F85)
    assert box.position == pytest.approx((0.5, -0.3, 0.1))
    assert box.size == pytest.approx((0.35, 0.25, 0.15))  # 4 cm and the grid's 1 cm


def test_a_turn_is_kept_and_what_lies_askew_gets_an_upright_box():
    turned = make_pose(np.array([0.5, 0, 0.1]), Rotation.from_euler("z", 0.5))
    (box,) = obstacles([seen("crate", (0.3, 0.2, 0.1), pose=turned)], PANDA_2F85)
    assert box.yaw_rad == pytest.approx(0.5)
    lying = make_pose(np.array([0.5, 0, 0.1]), Rotation.from_euler("y", np.pi / 2))
    (box,) = obstacles([seen("crate", (0.3, 0.2, 0.1), pose=lying)], PANDA_2F85)
    assert box.yaw_rad == 0.0
    assert box.size == pytest.approx((0.11, 0.21, 0.31), abs=0.0101)


def test_obstacles_are_told_when_they_change_and_the_nearest_first():
    told = []
    known = KnownObstacles(PANDA_2F85, 2, told.append)
    crates = tuple(seen(f"crate{i}", (0.3, 0.2, 0.1), at=(0.9 - 0.2 * i, 0.0, 0.1)) for i in range(3))
    assert not known.take("boot", GraphUpdate(0, 1, True, crates))
    assert [box.name for box in told.pop()] == ["crate2", "crate1"]
    moved = replace(crates[2], pose=Pose(np.array([0.501, 0.0, 0.1])))
    assert not known.take("boot", GraphUpdate(0, 2, False, (moved,)))
    assert told == []  # by less than the grid
    assert not known.take("boot", GraphUpdate(0, 3, False, (), deleted_nodes=("crate2",)))
    assert [box.name for box in told.pop()] == ["crate1", "crate0"]
    assert known.take("boot", GraphUpdate(0, 5, False, ())) and known.lost  # one was lost: all must be asked for
    assert not known.take("boot", GraphUpdate(0, 6, False, ())) and known.lost  # that was done


def test_after_a_change_that_was_refused_only_the_full_graph_counts():
    told = []
    known = KnownObstacles(PANDA_2F85, 2, told.append)
    crate = seen("crate", (0.3, 0.2, 0.1))
    assert not known.take("boot", GraphUpdate(0, 1, True, (crate,)))
    told.clear()
    assert known.lose() and not known.lose()
    assert not known.take("boot", GraphUpdate(0, 2, False, (seen("pole", (0.3, 0.2, 0.1)),)))
    assert told == [] and known.lost  # what was told last stands
    assert not known.take("boot", GraphUpdate(0, 2, True, ()))
    assert told == [()] and not known.unknown
