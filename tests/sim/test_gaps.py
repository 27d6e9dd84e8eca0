"""Every gap changes what it says, and only that; without one the twin is the tabletop."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.geometry import rotation
from engram.core.types import JointCommand
from engram.sim.gap_world import LIMITS, GapWorld, gap_pipeline
from engram.sim.gaps import DEVIATIONS, GAPS, Gap, deviated, get_gap
from engram.sim.world import MujocoWorld, WorldConfig
from engram.sim.worlds import make_mujoco_world, make_world

BLIND = WorldConfig(profile="none")
RIGHT = np.array([0.6, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


def moved(gap, action=RIGHT, steps=4):
    """Return how far the tool has come (3,) after ``steps`` of ``action``."""
    world = GapWorld(gap, BLIND)
    pipeline = gap_pipeline(world)
    joints = world.reset("reach", 0).joints
    arm = len(world.robot.arm_joints)
    start = world.kinematics.forward(joints.positions[:arm]).position
    for _ in range(steps):
        joints = world.step(pipeline.step_action(joints, action).command).joints
    return world.kinematics.forward(joints.positions[:arm]).position - start


def test_motions_are_turned_scaled_and_lose_what_the_deadband_takes():
    nominal = moved(Gap())
    turned = moved(Gap(yaw_deg=30.0))
    assert np.degrees(np.arctan2(turned[1], turned[0])) == pytest.approx(30.0, abs=2.0)
    assert nominal[1] == pytest.approx(0.0, abs=2e-3)
    small = 0.5 * RIGHT
    assert moved(Gap(gain=0.5))[0] == pytest.approx(moved(Gap(), small)[0], rel=0.05)
    assert moved(Gap(deadband=0.1), small)[0] == pytest.approx(moved(Gap(), RIGHT / 3)[0], rel=0.1)
    assert abs(moved(Gap(deadband=0.4), small)[0]) < 1e-3


def test_a_careful_robot_keeps_to_its_share_of_the_limits():
    quick, slow = gap_pipeline(GapWorld(Gap(), BLIND)).filter, gap_pipeline(GapWorld(get_gap("careful"), BLIND)).filter
    assert {getattr(slow.config, name) for name in LIMITS} == {get_gap("careful").limits} == {0.3}
    assert {getattr(quick.config, name) for name in LIMITS} == {1.0}
    assert moved(Gap(limits=0.05), 1.6 * RIGHT)[0] < 0.5 * moved(Gap(), 1.6 * RIGHT)[0]


def test_late_commands_are_executed_later():
    way = [moved(Gap(latency_steps=2), steps=steps)[0] for steps in (1, 2, 3)]
    assert max(map(abs, way[:2])) < 1e-3 < 10e-3 < way[2]  # the first command is the third step's


def test_things_weigh_and_slide_as_the_gap_says_and_robots_do_not():
    nominal, other = MujocoWorld(BLIND), GapWorld(Gap(friction=0.5, mass=2.0), BLIND)
    for _ in range(2):  # not again with every episode
        for world in (nominal, other):
            world.reset("pick_place", 0)
    first, second = nominal.model, other.model
    np.testing.assert_allclose(second.geom_friction[:, 0], 0.5 * first.geom_friction[:, 0])
    cube = next(i for i in range(first.nbody) if "cube" in first.body(i).name)
    assert second.body_mass[cube] == pytest.approx(2 * first.body_mass[cube])
    link = first.body("link0").id if "link0" in [first.body(i).name for i in range(first.nbody)] else 1
    assert second.body_mass[link] == first.body_mass[link]


def test_cameras_are_displaced_and_say_so():
    nominal, other = MujocoWorld(), GapWorld(Gap(front_m=(0.0, 0.03, 0.0), wrist_m=(0.0, 0.006, 0.0)))
    here, there = (world.reset("reach", 0) for world in (nominal, other))
    for name, way in (("front", 0.03), ("wrist", 0.006)):
        shift = there.camera(name).pose.position - here.camera(name).pose.position
        assert np.linalg.norm(shift) == pytest.approx(way, abs=1e-4), name
        assert not np.array_equal(here.camera(name).color, there.camera(name).color)
    for world in (nominal, other):
        world.close()


def test_a_robot_that_stands_turned_knows_where_its_cameras_are_but_not_how_it_stands():
    nominal, other = MujocoWorld(), GapWorld(Gap(mounted_deg=5.0))
    here, there = (world.reset("reach", 0) for world in (nominal, other))
    back = Rotation.from_euler("z", -5.0, degrees=True)
    np.testing.assert_allclose(here.joints.positions, there.joints.positions, atol=1e-9)
    for name, turn in (("front", back), ("wrist", Rotation.identity())):  # in base_link, and at the hand
        one, two = here.camera(name).pose, there.camera(name).pose
        np.testing.assert_allclose(two.position, turn.apply(one.position), atol=1e-6, err_msg=name)
        assert (rotation(two).inv() * turn * rotation(one)).magnitude() == pytest.approx(0.0, abs=1e-6), name
        assert not np.array_equal(here.camera(name).color, there.camera(name).color)
    pipeline, joints = gap_pipeline(other), there.joints
    start, hand = other.tool_pose().position, other.oracle_pose("attachment").position
    np.testing.assert_allclose(hand[:2] / np.linalg.norm(hand[:2]), start[:2] / np.linalg.norm(start[:2]), atol=1e-3)
    for _ in range(4):
        joints = other.step(pipeline.step_action(joints, RIGHT).command).joints
    way = other.tool_pose().position - start  # scored in the world, not in base_link
    assert np.degrees(np.arctan2(way[1], way[0])) == pytest.approx(5.0, abs=1.0)
    for world in (nominal, other):
        world.close()


def test_dropped_pictures_are_those_of_before_with_the_stamp_of_now():
    world = GapWorld(Gap(dropped=0.5))
    seen = [world.reset("reach", 0)]
    command = JointCommand(0, world.robot.joint_names, np.append(world.robot.home, 0.0) + 0.0, 0.1)
    for i in range(20):
        wave = command.positions + np.array([0.02 * i, *[0.0] * (len(command.positions) - 1)])
        seen.append(world.step(JointCommand(0, command.names, wave, 0.1)))
    again = GapWorld(Gap(dropped=0.5))
    again.reset("reach", 5)  # another episode before it
    first, other = ([again.reset("reach", 0), *(again.step(command) for _ in range(9))] for _ in range(2))
    for one, two in zip(first, other, strict=True):  # the scene says which pictures do not come
        assert np.array_equal(one.camera("wrist").color, two.camera("wrist").color)
    again.close()
    same = [np.array_equal(a.camera("wrist").color, b.camera("wrist").color) for a, b in pairwise(seen)]
    assert 4 <= sum(same) <= 16
    assert all(o.camera("wrist").stamp_ns == o.stamp_ns for o in seen)
    world.close()


def test_no_gap_is_the_tabletop_and_an_unknown_one_is_named():
    np.testing.assert_array_equal(moved(get_gap("none")), moved(Gap()))
    assert all(gap != Gap() for name, gap in GAPS.items() if name != "none")
    with pytest.raises(UnknownNameError, match=r"warped.*turned"):
        get_gap("warped")


def test_what_a_limit_leaves_of_an_action_is_told_in_the_terms_of_who_asked():
    """A robot is told 45 degrees beside where it moves; what is recorded makes the motion that it was commanded."""
    world = GapWorld(Gap(yaw_deg=45.0, gain=0.8, deadband=0.05, limits=0.1), BLIND)
    pipeline = gap_pipeline(world)
    joints = world.reset("reach", 0).joints
    for _ in range(3):
        last = pipeline.filter.last if pipeline.filter.last is not None else joints.positions
        decision = pipeline.step_action(joints, RIGHT)
        moved = pipeline.controller.motion(last[:-1], decision.command.positions[:-1])
        np.testing.assert_allclose(pipeline.controller.understood(decision.row)[:3], moved[:3], atol=0.01)
        joints = world.step(decision.command).joints
    assert abs(decision.row[1]) < 0.1 < decision.row[0] < 0.5  # slower, and in the direction that was asked for


def test_a_world_is_named_with_its_gap():
    for make in (make_world, make_mujoco_world):
        world = make("tabletop:gap=late", BLIND)
        assert isinstance(world, GapWorld) and world.gap == GAPS["late"] and world.config == BLIND
    for spec, error, told in (
        ("tabletop:gap=lat", UnknownNameError, "unknown gap 'lat'; .*'late'"),
        ("tabletop:gap=turned_scaled", InvalidInputError, "has yaw_deg, gain, and that cannot be built into the sim"),
        ("tabletop:gap=careful", InvalidInputError, "'careful' has limits, .*; valid: none, wrist_moved, front_mo"),
        ("tabletop:gap=my/gap.json", InvalidInputError, "'my/gap.json' is a file of engram identify, .*; valid: none,"),
        ("tabletop:size=2", UnknownNameError, "unknown option of world tabletop 'size'; valid: gap"),
        ("engram.sim.world:MujocoWorld:gap=late", InvalidInputError, "engram.sim.world:MujocoWorld takes no options"),
        ("tabletp", UnknownNameError, "unknown world 'tabletp'; did you mean 'tabletop'"),
    ):
        with pytest.raises(error, match=told):
            make_world(spec, BLIND)


def test_a_gap_at_its_limits_deviates_within_them():
    widest = {"gain": 100.0, "deadband": 1.0, "friction": 100.0, "mass": 1000.0, "latency_steps": 1000, "dropped": 1.0}
    most = deviated(Gap(**widest), (1.0,) * len(DEVIATIONS))
    assert {name: getattr(most, name) for name in widest} == widest
    least = deviated(Gap(gain=0.01, mass=0.001), (0.0,) * len(DEVIATIONS))
    assert (least.gain, least.mass) == (0.01, 0.001)
