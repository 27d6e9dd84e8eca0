"""From the scene graph to the obstacles of a motion barrier."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.geometry import make_pose
from engram.core.robot import PANDA_2F85
from engram.core.types import EMBEDDING_DIM, GraphUpdate, Pose, SceneNode
from engram.runtime.known_obstacles import BEYOND, KnownObstacles, obstacles
from engram.sim.robots.collision_model import collision_model, coupled
from engram.sim.robots.so101 import SO101


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


def test_obstacles_are_told_when_they_change():
    told = []
    known = KnownObstacles(PANDA_2F85, 3, told.append)
    crates = tuple(seen(f"crate{i}", (0.3, 0.2, 0.1), at=(1.3 - 0.2 * i, 0.0, 0.1)) for i in range(3))
    assert not known.take("boot", GraphUpdate(0, 1, True, crates))
    assert [box.name for box in told.pop()] == ["crate0", "crate1", "crate2"]
    moved = replace(crates[2], pose=Pose(np.array([0.901, 0.0, 0.1])))
    assert not known.take("boot", GraphUpdate(0, 2, False, (moved,)))
    assert told == []  # by less than the grid
    assert not known.take("boot", GraphUpdate(0, 3, False, (), deleted_nodes=("crate2",)))
    assert [box.name for box in told.pop()] == ["crate0", "crate1"]
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


def test_what_no_part_of_the_arm_reaches_takes_no_room():
    """Below the table or far away: a wall in the workspace is told before boxes that are nearer to the base."""
    told = []
    known = KnownObstacles(PANDA_2F85, 16, told.append)
    wall = seen("wall", (0.2, 0.2, 0.2), at=(0.55, 0.0, 0.3))
    below = tuple(seen(f"below{i}", (0.2, 0.2, 0.2), at=(-0.3 - 0.001 * i, 0.0, -0.5)) for i in range(16))
    far = tuple(seen(f"far{i}", (0.2, 0.2, 0.2), at=(2.0 + i, 0.0, 0.3)) for i in range(16))
    assert not known.take("boot", GraphUpdate(0, 1, True, (*below, *far, wall)))
    assert [box.name for box in told.pop()] == ["wall"] and not known.unknown
    long = seen("long", (4.0, 0.2, 0.2), at=(2.5, 0.0, 0.3))  # its middle is out of reach, its end is not
    turned = make_pose(np.array([1.9, 1.9, 0.3]), Rotation.from_euler("z", np.pi / 4))
    assert [box.name for box in obstacles([long], PANDA_2F85)] == ["long"]
    assert obstacles([replace(long, pose=turned)], PANDA_2F85)
    assert len(obstacles(far, replace(PANDA_2F85, reach_m=0.0))) == 16  # the reach is not known


def test_more_obstacles_in_reach_than_there_is_room_for_are_not_known():
    told = []
    known = KnownObstacles(PANDA_2F85, 2, told.append)
    crates = tuple(seen(f"crate{i}", (0.3, 0.2, 0.1), at=(0.3 + 0.2 * i, 0.0, 0.1)) for i in range(3))
    assert not known.take("boot", GraphUpdate(0, 1, True, crates[:2]))
    assert not known.unknown
    assert not known.take("boot", GraphUpdate(0, 2, False, crates[2:]))
    assert known.unknown == "memory/graph has 3 obstacles in the arm's reach, there is room for 2"
    assert not known.take("boot", GraphUpdate(0, 3, False, (), deleted_nodes=("crate0",)))
    assert not known.unknown and [box.name for box in told[-1]] == ["crate1", "crate2"]


@pytest.mark.parametrize("robot", [PANDA_2F85, SO101], ids=lambda robot: robot.name)
def test_no_part_of_a_shipped_arm_gets_farther_than_what_counts_as_its_reach(robot):
    model, draw = collision_model(robot), np.random.default_rng(0)
    data, (offset, matrix) = mujoco.MjData(model), coupled(model, robot)
    ends = sorted((robot.gripper_open, robot.gripper_closed))
    low, high = np.array((*robot.position_min, ends[0])), np.array((*robot.position_max, ends[1]))
    links = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] > 0]
    farthest = 0.0
    for _ in range(300):
        drawn = np.clip(draw.normal(0.0, 0.5, len(low)), low, high)
        data.qpos[:] = offset + matrix @ drawn
        mujoco.mj_kinematics(model, data)
        for geom in links:
            first = model.mesh_vertadr[model.geom_dataid[geom]]
            corners = model.mesh_vert[first : first + model.mesh_vertnum[model.geom_dataid[geom]]]
            there = corners @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
            farthest = max(farthest, float(np.linalg.norm(there, axis=1).max()))
    assert robot.reach_m < farthest < BEYOND * robot.reach_m
