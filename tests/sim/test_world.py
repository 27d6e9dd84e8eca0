"""The simulated workcell: the contract of worlds, how it moves and holds things, and what it tells."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError
from engram.core.geometry import make_pose
from engram.core.pipeline import CommandPipeline
from engram.core.types import JointCommand
from engram.sim.scene import SceneConfig
from engram.sim.world import MujocoWorld, WorldConfig
from tests.contracts.world import WorldContract

SCENE = SceneConfig(cubes=("cube", "other"), drawer=True, buttons=("button",))


@pytest.mark.render
class TestMujocoWorld(WorldContract):
    def make(self):
        return MujocoWorld(WorldConfig(image_size=48))


@pytest.fixture
def world() -> MujocoWorld:
    world = MujocoWorld(WorldConfig(profile="none"))
    world.load(SCENE)
    world.set_pose("cabinet", make_pose(np.array([0.9, 0.0, 0.0]), Rotation.identity()))  # out of the way
    world.set_pose("button", make_pose(np.array([0.7, 0.3, 0.0]), Rotation.identity()))
    world.set_pose("cube", make_pose(np.array([0.5, 0.05, 0.02]), Rotation.identity()))
    world.set_pose("other", make_pose(np.array([0.5, -0.25, 0.02]), Rotation.identity()))
    world.settle()
    return world


class Driver:
    """Moves the tool by relative actions, through controller and safety filter."""

    def __init__(self, world: MujocoWorld) -> None:
        self.world, self.pipeline = world, CommandPipeline(world.kinematics, world.robot)

    def act(self, *action: float) -> None:
        self.world.step(self.pipeline.step_action(self.world.joint_state(), np.array(action)).command)

    def go(self, position: tuple[float, float, float], gripper: float, steps: int = 20) -> None:
        for _ in range(steps):
            way = (np.array(position) - self.world.tool_pose().position) / 0.05
            self.act(*np.clip(way, -1, 1), 0, 0, 0, gripper)


@pytest.mark.parametrize("direction", [(0, 1, 0), (0, 0, -1), (0, -1, 0)])
def test_a_4_cm_move_arrives_within_its_control_step(world, direction):
    before = world.tool_pose().position
    Driver(world).act(*(0.8 * np.array(direction)), 0, 0, 0, -1)
    np.testing.assert_allclose(world.tool_pose().position - before, 0.04 * np.array(direction), atol=1e-3)


def test_a_held_cube_stays_in_the_fingers_for_five_seconds(world):
    driver = Driver(world)
    driver.go((0.5, 0.05, 0.12), -1)
    driver.go((0.5, 0.05, 0.02), -1, 8)
    driver.go((0.5, 0.05, 0.02), 1, 4)
    assert world.oracle_contact("cube", world.robot.hand_link)
    assert 0.4 < world.gripper_fraction() < 0.7  # stopped by 4 cm of the 8.5 cm stroke
    driver.go((0.5, 0.05, 0.20), 1, 8)
    start = world.oracle_pose("cube").position - world.tool_pose().position
    for _ in range(50):
        driver.act(0, 0, 0, 0, 0, 0, 1)
    assert world.oracle_pose("cube").position[2] > 0.18
    np.testing.assert_allclose(world.oracle_pose("cube").position - world.tool_pose().position, start, atol=1e-3)
    driver.go((0.5, 0.05, 0.20), -1, 8)
    assert world.oracle_pose("cube").position[2] < 0.05
    assert not world.oracle_contact("cube", world.robot.hand_link)


def test_an_episode_does_not_depend_on_what_was_before_it():
    def play(world: MujocoWorld) -> np.ndarray:
        driver = Driver(world)
        driver.world.reset("stack", 5)
        for i in range(12):
            driver.act(np.sin(i), np.cos(i), -0.8, 0, 0, 0.3, 1)
        return world.data.qpos.copy()

    used, fresh = MujocoWorld(WorldConfig(profile="none")), MujocoWorld(WorldConfig(profile="none"))
    used.reset("open_drawer", 1)
    play(used)
    used.set_color("cube_a", (0, 0, 0))
    np.testing.assert_array_equal(play(used), play(fresh))
    np.testing.assert_array_equal(used.model.geom_rgba, fresh.model.geom_rgba)


@pytest.mark.render
def test_rendering_does_not_change_the_motion():
    ends = []
    for profile in ("none", "fast"):
        world = MujocoWorld(WorldConfig(profile=profile, image_size=32))
        driver = Driver(world)
        world.reset("push_to_mark", 2)
        for _ in range(6):
            driver.act(0.5, 0.2, -0.9, 0, 0, 0.2, 1)
        ends.append(world.data.qpos.copy())
        world.close()
    np.testing.assert_array_equal(*ends)


def test_a_fixed_thing_moves_as_a_whole_and_is_back_after_a_reset(world):
    turned = make_pose(np.array([0.55, 0.1, 0.0]), Rotation.from_euler("z", 90, degrees=True))
    world.set_pose("drawer", turned)
    np.testing.assert_allclose(world.oracle_pose("cabinet").position, turned.position, atol=1e-9)
    # the handle is 5 cm before the drawer, which now points along -y
    np.testing.assert_allclose(world.oracle_pose("handle").position, [0.55, 0.05, 0.06], atol=1e-9)
    world.load(SCENE)
    np.testing.assert_allclose(world.oracle_pose("cabinet").position, [0.60, 0.0, 0.0], atol=1e-9)


def test_pressing_a_button_is_measured_and_painting_spares_its_housing(world):
    world.set_pose("button", make_pose(np.array([0.5, -0.1, 0.0]), Rotation.identity()))
    driver = Driver(world)
    driver.go((0.5, -0.1, 0.10), 1)
    assert world.oracle_joint("button") < 1e-3
    driver.go((0.5, -0.1, 0.02), 1, 6)
    assert world.oracle_joint("button") > 0.006
    world.set_color("button", (0.2, 0.4, 0.6))
    np.testing.assert_allclose(world.model.geom_rgba[world.model.body("button_cap").geomadr[0], :3], [0.2, 0.4, 0.6])
    assert world.model.geom("button_fixed").rgba[0] == pytest.approx(0.35)


def test_names_that_are_not_there_are_told_with_those_that_are(world):
    with pytest.raises(UnknownNameError, match=r"unknown body 'cub'; did you mean 'cube'"):
        world.oracle_pose("cub")
    with pytest.raises(UnknownNameError, match=r"unknown joint 'door'.*drawer"):
        world.oracle_joint("door")


def test_a_command_for_another_robot_is_refused(world):
    with pytest.raises(InvalidInputError, match="command for joints"):
        world.step(JointCommand(0, ("elbow",), np.zeros(1), 0.1))


def test_a_timestep_that_does_not_divide_the_control_step_is_refused():
    with pytest.raises(InvalidInputError, match=r"WorldConfig.timestep_s: 0.003"):
        MujocoWorld(WorldConfig(timestep_s=0.003))


def test_nothing_works_before_a_scene_is_loaded():
    with pytest.raises(EngramError, match="call reset or load first"):
        MujocoWorld(WorldConfig(profile="none")).observe()


def test_each_reset_is_one_episode_also_when_the_scene_changes(world):
    numbers = []
    for task in ("reach", "stack", "open_drawer", "reach"):
        world.reset(task, 0)
        numbers.append(world.oracle_outcome().episode)
    assert np.diff(numbers).tolist() == [1, 1, 1]
