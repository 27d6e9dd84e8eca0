"""examples/camera.py: the third camera is in observations, Gymnasium's spaces and the dataset, the others unchanged."""

import gymnasium as gym
import numpy as np
import pytest

import engram.sim  # noqa: F401  # registers the environments
from engram.core.robot import PANDA_2F85
from engram.runtime.record import features
from engram.sim.world import MujocoWorld, WorldConfig
from examples.camera import PANDA_WITH_SIDE

pytestmark = pytest.mark.render


def test_its_picture_comes_beside_the_same_ones_as_before():
    plain, more = (MujocoWorld(WorldConfig(image_size=48), robot) for robot in (PANDA_2F85, PANDA_WITH_SIDE))
    before, after = plain.reset("reach", 2), more.reset("reach", 2)
    assert set(after.cameras) == {"front", "wrist", "side"}
    for name, frame in before.cameras.items():
        np.testing.assert_array_equal(after.camera(name).color, frame.color)
    side = after.camera("side")
    assert side.color.shape == (96, 160, 3)
    np.testing.assert_allclose(side.pose.position, (0.50, 0.80, 0.50), atol=1e-9)
    np.testing.assert_allclose(side.intrinsics[:2, 2], (80, 48))
    assert side.color.std() > 5.0  # something is seen
    plain.close()
    more.close()


def test_gymnasium_and_the_dataset_have_it():
    env = gym.make("engram/Reach-v0", robot="examples.camera:PANDA_WITH_SIDE", image_size=32)
    assert env.observation_space["pixels"]["side"].shape == (96, 160, 3)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    env.close()
    assert features(PANDA_WITH_SIDE, 32)["observation.images.side"]["shape"] == (96, 160, 3)


def test_a_task_that_covers_the_cameras_covers_this_one_too():
    world = MujocoWorld(WorldConfig(image_size=32), PANDA_WITH_SIDE)
    world.reset("touch_unseen:delay=1", 0)
    assert {"front_cap", "wrist_cap", "side_cap"} <= {prop.name for prop in world.scene.props}
    world.close()
