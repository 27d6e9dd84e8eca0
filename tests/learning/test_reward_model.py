"""The success classifier as LeRobot makes, loads and asks it: by its own factory."""

import numpy as np
import pytest
import torch
from lerobot.configs.rewards import RewardModelConfig
from lerobot.rewards import (
    get_reward_model_class,
    make_reward_model,
    make_reward_model_config,
    make_reward_pre_post_processors,
)

import engram.lerobot  # noqa: F401 - registers the type
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.replay.buffer import Episode
from engram.learning.rewards.lerobot.configuration_engram_success import EngramSuccessConfig
from engram.learning.rewards.lerobot.modeling_engram_success import EngramSuccessRewardModel, check_policy, reward_model
from engram.learning.rewards.success_classifier import CONFIRM, ClassifierConfig, LabelledEpisode, SuccessClassifier
from engram.policies.lerobot.processor_engram_vla import DownsampleImages
from engram.policies.loading import load_policy
from engram.policies.vla.network import encoder_digest
from tests.runtime.test_policy_runner import Loadable

WORDS = "clean the red table"
N = 12


@pytest.fixture(scope="module")
def base():
    return load_policy("base")


def seen(light: int) -> dict:
    """Return N observations as a dataset of LeRobot's has them, brighter towards the end by ``light``."""
    rng, brighter = np.random.default_rng(light), (np.arange(N) >= N - 4)[:, None, None, None] * light
    cameras = {name: rng.integers(0, 130, (N, 3, 128, 128)) + brighter for name in ("front", "wrist")}
    images = {f"observation.images.{name}": torch.tensor(stack) / 255.0 for name, stack in cameras.items()}
    return {**images, "observation.state": torch.zeros(N, 15), "task": ["Clean the blue table."] * N}


def features(policy, batch) -> np.ndarray:
    """Return what the policy makes of ``batch``, as a learner has it."""
    cloning = clone_policy(policy)
    images = {
        name.rpartition(".")[2]: cloning.shrink(name, (255.0 * stack).round().to(torch.uint8).numpy())
        for name, stack in batch.items()
        if "images" in name
    }
    nobody = np.zeros(N, bool)
    episode = Episode(1, WORDS, batch["task"][0], images, np.zeros((N, 15), np.float32), np.zeros((N, 7)), nobody)
    return cloning.conditions(episode).numpy()


@pytest.fixture(scope="module")
def learnt(base):
    goals = [features(base, seen(120 * reached)) for reached in (True, False)]
    rng = np.random.default_rng(0)
    episodes = [
        LabelledEpisode(WORDS, goals[i % 2] + rng.normal(0.0, 0.01, goals[0].shape).astype(np.float32), i % 2 == 0)
        for i in range(8)
    ]
    config = ClassifierConfig(members=2, width=16, updates=150)
    return SuccessClassifier.fit(encoder_digest(base.network.model), episodes, config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, base, learnt):
    path = tmp_path_factory.mktemp("reward")
    reward_model(learnt, base).save_pretrained(path)
    return path


def loaded(folder, **options):
    config = RewardModelConfig.from_pretrained(folder, cli_overrides=[f"--{k}={v}" for k, v in options.items()])
    config.pretrained_path = str(folder)
    other = {"observation.state": {"mean": np.full(15, 9.0), "std": np.full(15, 9.0)}}
    before, after = make_reward_pre_post_processors(config, dataset_stats=other)
    return make_reward_model(config, dataset_stats=other), before, after


def test_lerobot_s_factory_makes_it_by_its_type_and_it_judges_as_on_the_robot(base, learnt, folder):
    assert get_reward_model_class("engram_success") is EngramSuccessRewardModel
    model, before, after = loaded(folder)
    assert isinstance(model, EngramSuccessRewardModel) and not model.is_trainable and not model.training
    for light, ended in ((120, 1.0), (0, 0.0)):
        batch = seen(light)
        told = learnt.judge(features(base, batch))
        reward = after(model.compute_reward(before(dict(batch))))
        assert reward.shape == (N,) and reward[-1] == ended
        assert reward.tolist() == (told[:, 0] >= CONFIRM).astype(float).tolist()
        np.testing.assert_allclose(model.judge(before(dict(batch))), told, atol=1e-5)


def test_its_reward_may_be_the_progress_and_is_nothing_where_it_cannot_tell(base, learnt, folder):
    model, before, _ = loaded(folder, reward_output="progress")
    batch = seen(120)
    told = learnt.judge(features(base, batch))[:, 1]
    np.testing.assert_allclose(model.compute_reward(before(dict(batch))), told, atol=1e-5)
    batch["observation.state"] = torch.full((N, 15), 1e4)
    assert model.judge(before(dict(batch))).isnan().all()
    assert model.compute_reward(before(dict(batch))).tolist() == [0.0] * N


def test_words_that_it_has_not_learnt_are_named_with_those_that_it_has(folder):
    model, before, _ = loaded(folder)
    with pytest.raises(UnknownNameError, match=r"task 'dance'; valid: clean the \* table"):
        model.compute_reward(before(seen(0) | {"task": ["dance"] * N}))


def test_what_lerobot_s_observations_do_not_hold_is_refused(base, learnt):
    engram = load_policy("engram")
    with pytest.raises(InvalidInputError, match="has a memory of its episode; expected a policy that does not"):
        check_policy(engram)
    with pytest.raises(InvalidInputError, match=r"EngramSuccessConfig.policy: it has a memory of its episode \(bank\)"):
        EngramSuccessConfig(policy=engram.network.config)
    reads, crops = load_policy("base"), load_policy("base")
    torch.nn.init.ones_(reads.network.model.memory.gate)
    (step,) = (one for one in crops.preprocess.steps if isinstance(one, DownsampleImages))
    step.crops = {}
    for policy, said in ((reads, "acts on memory/context"), (crops, "its preprocessor is"), (Loadable(), "engram_vla")):
        with pytest.raises(InvalidInputError, match=said):
            check_policy(policy)
    with pytest.raises(InvalidInputError, match="it learnt from other weights than those of"):
        reward_model(SuccessClassifier("other", learnt.forms, learnt.network, {}), base)
    with pytest.raises(UnknownNameError, match="reward_output 'anger'; valid: progress, success"):
        EngramSuccessConfig(reward_output="anger")
    assert make_reward_model_config("engram_success", reward_output="progress").reward_output == "progress"
