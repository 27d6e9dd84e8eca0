"""Every gap changes what it says, and only that; without one the twin is the tabletop."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.geometry import rotation
from engram.core.types import JointCommand
from engram.sim.gap_world import LIMITS, GapWorld, gap_pipeline
from engram.sim.gaps import DEVIATIONS, GAPS, Gap, deviated, get_gap
from engram.sim.robots.panda import SERVO_LAG_S, SERVO_STIFFNESS
from engram.sim.scene import SceneConfig, compiled_scene
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


def turning(gap, steps=8, rate=0.5):
    """Return targets and positions (steps, 2) of the first joint [rad], which is told to turn at ``rate`` [rad/s]."""
    world = GapWorld(gap, BLIND)
    target, way = world.reset("reach", 0).joints.positions, []
    for _ in range(steps):
        target = target + np.eye(len(target))[0] * 0.1 * rate
        joints = world.step(JointCommand(0, world.robot.joint_names, target, 0.1)).joints
        way.append((target[0], joints.positions[0]))
    return np.array(way)


@pytest.mark.parametrize("damping", [0.5, 3.0, 10.0])
def test_the_arm_trails_its_targets_by_the_damping_of_its_joints_and_servos(damping):
    """A servo that pulls with the stiffness k and is damped by c trails a target of the speed v by v c / k."""
    nominal, damped = (turning(Gap(damping=times), steps=25)[-1] for times in (1.0, damping))
    lag_s = SERVO_LAG_S + 1.0 / SERVO_STIFFNESS[0]  # the joint's own damping is 1 N m s/rad
    assert nominal[1] - damped[1] == pytest.approx(0.5 * (damping - 1.0) * lag_s, abs=1e-4)


def test_a_damped_arm_moves_less_at_first_and_comes_to_the_same_place():
    nominal, damped = turning(Gap(), 3), turning(Gap(damping=5.0), 3)
    assert 0.1 * nominal[0, 1] < damped[0, 1] < 0.8 * nominal[0, 1]
    assert (nominal[:, 1] - damped[:, 1] > 0.01).all()
    for gap in (Gap(), Gap(damping=5.0)):
        world = GapWorld(gap, BLIND)
        goal = world.reset("reach", 0).joints.positions + np.append([0.1] * 7, 0.0)
        for _ in range(15):
            joints = world.step(JointCommand(0, world.robot.joint_names, goal, 0.1)).joints
        np.testing.assert_allclose(joints.positions, goal, atol=2e-3)


def test_pictures_are_as_bright_as_the_lamps():
    seen = {}
    for brightness in (0.5, 1.0, 1.3):
        world = GapWorld(Gap(brightness=brightness), WorldConfig(depth=True))
        seen[brightness] = world.reset("pick_place", 0)
        world.close()
    for name in ("front", "wrist"):
        dim, usual, bright = (one.camera(name).color.astype(float) for one in seen.values())
        lit = usual < 250  # the others are as bright as a picture can be
        np.testing.assert_allclose(dim[lit], 0.5 * usual[lit], atol=2.0)
        np.testing.assert_allclose(bright[lit], np.minimum(1.3 * usual, 255.0)[lit], atol=2.0)
        np.testing.assert_array_equal(seen[0.5].camera(name).depth, seen[1.0].camera(name).depth)


def test_noise_is_that_of_the_episodes_seed_in_every_colour_picture():
    clean, noisy = GapWorld(Gap(), WorldConfig(depth=True)), GapWorld(Gap(camera_noise=0.04), WorldConfig(depth=True))
    first, here = clean.reset("reach", 3), noisy.reset("reach", 3)
    home = JointCommand(0, clean.robot.joint_names, here.joints.positions, 0.1)
    second = noisy.step(home)
    noisy.reset("reach", 4)
    other, again = noisy.observe(), noisy.reset("reach", 3)
    repeated = noisy.step(home)
    for name in ("front", "wrist"):
        pure, one, two = (each.camera(name).color for each in (first, here, second))
        middle = (pure > 60) & (pure < 190)
        assert np.std(one[middle] - pure[middle].astype(float)) == pytest.approx(0.04 * 255, rel=0.05), name
        assert not np.array_equal(one, two) and not np.array_equal(one, other.camera(name).color)
        np.testing.assert_array_equal(one, again.camera(name).color)  # to the bit
        np.testing.assert_array_equal(two, repeated.camera(name).color)
        np.testing.assert_array_equal(first.camera(name).depth, here.camera(name).depth)
    assert not np.array_equal(here.camera("front").color, here.camera("wrist").color)
    for world in (clean, noisy):
        world.close()


def test_pictures_that_do_not_come_are_those_of_before_with_their_noise():
    world = GapWorld(Gap(dropped=0.5, camera_noise=0.05))
    seen = [world.reset("reach", 0)]
    home = JointCommand(0, world.robot.joint_names, seen[0].joints.positions, 0.1)
    seen += [world.step(home) for _ in range(20)]
    world.close()
    same = {
        name: [np.array_equal(a.camera(name).color, b.camera(name).color) for a, b in pairwise(seen)]
        for name in ("front", "wrist")
    }
    assert same["front"] == same["wrist"] and 4 <= sum(same["front"]) <= 16  # an arm at rest: only noise is new


def test_a_world_that_loses_its_gap_is_the_tabletop_again():
    everything = Gap(
        front_m=(0.01, 0.0, 0.0), wrist_m=(0.0, 0.01, 0.0), front_yaw_deg=2.0, friction=0.5, mass=2.0, mounted_deg=4.0,
        damping=3.0, brightness=0.5, camera_noise=0.1,
    )  # fmt: skip
    world = GapWorld(everything)
    world.load(SceneConfig(cubes=("cube",)))
    differs = deviating(world)
    assert {"dof_damping", "actuator_biasprm", "light_diffuse", "geom_friction", "cam_pos", "body_quat"} < differs
    assert {"headlight.ambient", "headlight.diffuse"} < differs
    world.gap = replace(everything, damping=0.8, brightness=1.4)
    world.deviate()
    assert deviating(world) == differs
    world.gap = Gap()
    world.deviate()
    assert deviating(world) == set()
    world.close()


def deviating(world):
    """Return the names of what in the loaded model is not as in the nominal scene."""
    model, pristine = world.model, compiled_scene(world.scene, world.config.profile, robot=world.robot)
    arrays = {name for name in dir(pristine) if isinstance(getattr(pristine, name), np.ndarray)}
    differs = {name for name in arrays if not np.allclose(getattr(model, name), getattr(pristine, name), atol=1e-9)}
    for name in ("ambient", "diffuse", "specular"):
        one, other = getattr(model.vis.headlight, name), getattr(pristine.vis.headlight, name)
        differs |= set() if np.allclose(one, other) else {f"headlight.{name}"}
    return differs


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
        for name in ("late", "sluggish", "dim"):
            world = make(f"tabletop:gap={name}", BLIND)
            assert isinstance(world, GapWorld) and world.gap == GAPS[name] and world.config == BLIND
        world = make("tabletop:brightness=0.7,latency_steps=2", BLIND)
        assert isinstance(world, GapWorld) and world.gap == Gap(brightness=0.7, latency_steps=2)
    for spec, error, told in (
        ("tabletop:gap=late,mass=2", InvalidInputError, "gap=NAME has all values of a gap, give either it or values"),
        ("tabletop:front_yaw_deg=inf", InvalidInputError, r"front_yaw_deg: inf, expected a number from -1e[+]06 to"),
        ("tabletop:mass=nan", InvalidInputError, r"Gap.mass: nan, expected a number from 0.001 to 1000"),
        ("tabletop:latency_steps=1" + "0" * 400, InvalidInputError, "expected a whole number from 0 to 1000"),
        ("tabletop:late", InvalidInputError, "'tabletop:late': expected tabletop, tabletop:gap=NAME or tabletop:bri"),
        ("tabletop:", InvalidInputError, "'tabletop:': expected tabletop, tabletop:gap=NAME or tabletop:brightness"),
        ("tabletop:mass=", InvalidInputError, "mass: '', expected a number"),
        ("tabletop:bright=2", UnknownNameError, "'bright'; did you mean 'brightness'[?] valid: brightness, camera"),
        ("tabletop:yaw_deg=2", UnknownNameError, "unknown option of world tabletop 'yaw_deg'"),
        ("tabletop:mass=2,mass=3", InvalidInputError, "mass is given twice"),
        ("tabletop:mass=heavy", InvalidInputError, "tabletop:mass=heavy: mass: 'heavy', expected a number"),
        ("tabletop:latency_steps=1.5", InvalidInputError, "latency_steps: '1.5', expected a whole number"),
        ("tabletop:brightness=-1", InvalidInputError, r"Gap.brightness: -1.0, expected a number from 0 to 100"),
        ("tabletop:gap=lat", UnknownNameError, "unknown gap 'lat'; .*'late'"),
        ("tabletop:gap=turned_scaled", InvalidInputError, "has yaw_deg, gain, and that cannot be built into the sim"),
        ("tabletop:gap=careful", InvalidInputError, "'careful' has limits, .*; valid: none, wrist_moved, front_mo"),
        ("tabletop:gap=my/gap.json", InvalidInputError, "'my/gap.json' is a file of engram identify, .*; valid: none,"),
        ("tabletop:size=2", UnknownNameError, "unknown option of world tabletop 'size'; valid: bri"),
        ("engram.sim.world:MujocoWorld:gap=late", InvalidInputError, "engram.sim.world:MujocoWorld takes no options"),
        ("tabletp", UnknownNameError, "unknown world 'tabletp'; did you mean 'tabletop'"),
    ):
        with pytest.raises(error, match=told):
            make_world(spec, BLIND)


def test_a_gap_at_its_limits_deviates_within_them():
    widest = {"gain": 100.0, "deadband": 1.0, "friction": 100.0, "mass": 1000.0, "latency_steps": 1000, "dropped": 1.0}
    widest |= {"damping": 100.0, "brightness": 100.0, "camera_noise": 1.0}
    most = deviated(Gap(**widest), (1.0,) * len(DEVIATIONS))
    assert {name: getattr(most, name) for name in widest} == widest
    least = deviated(Gap(gain=0.01, mass=0.001, damping=0.01), (0.0,) * len(DEVIATIONS))
    assert (least.gain, least.mass, least.damping) == (0.01, 0.001, 0.01)


def test_every_deviation_is_one_of_the_robots_and_leaves_the_others():
    middle = [0.5] * len(DEVIATIONS)
    usual, changed = deviated(Gap(), middle), {}
    for at, name in enumerate(DEVIATIONS):
        most = deviated(Gap(), [*middle[:at], 1.0, *middle[at + 1 :]])
        changed[name] = [key for key, value in vars(most).items() if value != getattr(usual, key)]
    assert changed["damping times"] == ["damping"] and changed["friction times"] == ["friction"]
    assert changed["brightness times"] == ["brightness"] and changed["camera noise"] == ["camera_noise"]
    assert all(len(names) == 1 for names in changed.values()), changed
    assert (usual.damping, usual.brightness, usual.camera_noise) == pytest.approx((1.1, 1.0, 0.01))
