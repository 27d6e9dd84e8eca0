"""LeRobot's own factories and commands with our policy."""

import pytest
import torch
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.envs.configs import EnvConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from engram.core.errors import UnknownNameError
from engram.policies import EngramVLAPolicy
from engram.runtime.factories import policy_folder
from engram.sim.lerobot_env import EngramEnvConfig

from .forks import python
from .synthetic import make_dataset
from .tiny import STATE, tiny_config, tiny_policy


def test_the_factory_knows_the_policy_and_its_processors():
    assert get_policy_class("engram_vla") is EngramVLAPolicy
    pre, post = make_pre_post_processors(tiny_config())
    sample = {
        "observation.images.front": torch.rand(3, 64, 64),
        "observation.images.wrist": torch.rand(3, 64, 64),
        "observation.state": torch.zeros(STATE),
        "task": "open the drawer",
    }
    action = tiny_policy().select_action(pre(sample))
    assert post(action).shape == (1, 7)


def test_a_policy_survives_saving_and_loading(tmp_path):
    policy = tiny_policy(seed=5)
    policy.save_pretrained(tmp_path)
    config = PreTrainedConfig.from_pretrained(tmp_path)
    assert config == policy.config
    loaded = EngramVLAPolicy.from_pretrained(tmp_path, strict=True)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_a_scene_graph_s_tokens_are_neither_normalised_nor_asked_for():
    config = tiny_config()
    mask = PolicyFeature(FeatureType.STATE, (4,))
    config.input_features |= {"observation.memory.mask": mask, "observation.memory.tokens": mask}
    EngramVLAPolicy(config)
    assert sorted(config.input_features) == [
        "observation.images.front",
        "observation.images.wrist",
        "observation.state",
    ]


def test_select_action_walks_through_the_chunk_and_repeats_after_reset():
    from .tiny import tiny_batch

    policy, batch = tiny_policy(), tiny_batch(1)
    first = [policy.select_action(batch) for _ in range(4)]  # three of one chunk, one of the next
    policy.reset()
    assert all(torch.equal(a, policy.select_action(batch)) for a in first)
    policy.reset()
    chunk = policy.predict_action_chunk(batch)
    assert torch.equal(torch.stack(first[:3], 1), chunk[:, :3])


def test_the_environment_is_registered_and_maps_to_the_policy_s_features():
    config = EnvConfig.get_choice_class("engram")(task="Reach-v0")
    assert isinstance(config, EngramEnvConfig)
    assert config.gym_id == "engram/Reach-v0"
    assert set(config.features_map[key] for key in config.features) == {
        "action", "observation.state", "observation.images.front", "observation.images.wrist"
    }  # fmt: skip


def test_a_task_that_is_no_environment_is_named_with_those_that_are():
    with pytest.raises(UnknownNameError, match=r"env\.task 'reach'; did you mean 'Reach-v0'\? valid: .*Stack-v0"):
        EngramEnvConfig(task="reach")


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin",
    [
        ("--policy.discover_packages_path=engram.lerobot", "--policy.type=engram_vla", "--policy.dim=16",
         "--policy.heads=2", "--policy.head_width=16"),
        ("--env.discover_packages_path=engram.lerobot", f"--policy.path={policy_folder('base')}"),
    ],
    ids=["from scratch", "from a shipped policy"],
)  # fmt: skip
def test_lerobot_train_runs_a_few_steps(begin, tmp_path):
    dataset = make_dataset(tmp_path / "data", episodes=2, length=8, size=128)
    command = [
        "-m", "lerobot.scripts.lerobot_train", *begin, "--policy.device=cpu",
        "--policy.push_to_hub=false",
        "--dataset.repo_id=engram/synthetic", f"--dataset.root={dataset}", f"--output_dir={tmp_path / 'out'}",
        "--steps=2", "--batch_size=2", "--num_workers=0", "--save_freq=2", "--env_eval_freq=0", "--wandb.enable=false",
    ]  # fmt: skip
    done = python(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    saved = tmp_path / "out" / "checkpoints" / "last" / "pretrained_model"
    EngramVLAPolicy.from_pretrained(saved, strict=True)
