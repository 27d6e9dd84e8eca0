"""The Gymnasium environments: the checker's verdict, seeds, ends of episodes, and what LeRobot reads."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.sim import ENVIRONMENTS
from engram.sim.env import TabletopEnv
from engram.sim.experts import make_expert
from engram.sim.tasks import SUITES, TASKS


def test_every_task_is_registered():
    assert set(ENVIRONMENTS.values()) == set(SUITES["all"])


@pytest.mark.render
@pytest.mark.parametrize(
    ("name", "obs_type"), [("engram/PickPlace-v0", "pixels_agent_pos"), *((name, "state") for name in ENVIRONMENTS)]
)
def test_the_checker_has_nothing_to_say(name, obs_type):
    env = gym.make(name, obs_type=obs_type, image_size=32, render_size=32, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_env(env.unwrapped)
    env.close()


@pytest.fixture
def env() -> TabletopEnv:
    env = TabletopEnv("press_button", obs_type="state")
    yield env
    env.close()


def test_the_expert_ends_an_episode_with_reward_one(env):
    env.reset(seed=4)
    expert = make_expert("press_button", env.world)
    for _ in range(env._max_episode_steps):
        _, reward, terminated, truncated, info = env.step(expert.act())
        if terminated or truncated:
            break
    assert (reward, terminated, truncated, info["oracle_success"], info["is_success"]) == (1.0, True, False, True, True)


def test_doing_nothing_is_cut_at_the_tasks_limit(env):
    env.reset(seed=0)
    ends = [env.step(np.zeros(7, np.float32))[2:4] for _ in range(TASKS["press_button"].max_steps)]
    assert ends[-1] == (False, True)
    assert not any(any(end) for end in ends[:-1])


def test_the_first_seed_decides_all_the_episodes_after_it(env):
    def episodes() -> list[str]:
        words = [env.reset(seed=11)[1]["instruction"]]
        return words + [env.reset()[1]["instruction"] for _ in range(5)]

    first = episodes()
    assert episodes() == first
    assert len(set(first)) > 1


def test_the_words_can_be_chosen(env):
    _, info = env.reset(seed=0, options={"instruction": "press the red button"})
    assert info["instruction"] == env.instruction == env.task_description == "press the red button"


def test_an_action_that_is_not_a_number_holds_the_robot(env):
    before, _ = env.reset(seed=0)
    after = env.step(np.full(7, np.nan, np.float32))[0]
    np.testing.assert_allclose(after["agent_pos"], before["agent_pos"], atol=1e-3)
    assert env.pipeline.filter.counts["non_finite"] == 1


def test_lerobot_finds_what_it_reads():
    vector = gym.vector.SyncVectorEnv([lambda: TabletopEnv("reach", obs_type="state")])
    vector.reset(seed=0)
    assert vector.call("task") == ("reach",)
    assert vector.call("_max_episode_steps") == (TASKS["reach"].max_steps,)
    assert "the" in vector.call("task_description")[0]
    vector.close()


def test_wrong_choices_are_named_with_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"unknown obs_type 'pixels'.*pixels_agent_pos, state"):
        TabletopEnv(obs_type="pixels")
    with pytest.raises(UnknownNameError, match="unknown render_mode 'human'; valid: rgb_array"):
        TabletopEnv(render_mode="human")
    with pytest.raises(InvalidInputError, match="profile 'none' has no cameras"):
        TabletopEnv(profile="none")
    with pytest.raises(UnknownNameError, match="unknown task 'dance'"):
        TabletopEnv("dance")
