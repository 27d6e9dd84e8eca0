"""The shipped kind of policy learns from the store, and takes what was learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save_file

from engram.core.errors import InvalidInputError, WeightsError
from engram.learning.bc import BehaviourCloningConfig
from engram.learning.learner import Learner, LearnerConfig
from engram.learning.replay import ReplayConfig
from engram.learning.store import SqliteExperienceStore
from engram.learning.vla import clone_behaviour
from engram.policies.processor_engram_vla import make_engram_vla_pre_post_processors
from engram.policies.vla_policy import VlaPolicy
from tests.learning.transitions import episode
from tests.policies.tiny import tiny_policy


@pytest.fixture
def policy():
    """A tiny policy with processors; it is not asked to act, so it needs no kinematics."""
    torch.set_num_threads(1)
    network = tiny_policy(state=15, state_dropout=0.0, camera_sizes={}, crops={})
    ones = {"mean": np.zeros(1), "std": np.ones(1)}
    stats = {
        "observation.state": {"mean": np.zeros(15), "std": np.ones(15)},
        "action": {"mean": np.zeros(7), "std": np.ones(7)},
        "observation.images.front": {k: v.reshape(1, 1, 1).repeat(3, 0) for k, v in ones.items()},
        "observation.images.wrist": {k: v.reshape(1, 1, 1).repeat(3, 0) for k, v in ones.items()},
    }
    pre, post = make_engram_vla_pre_post_processors(network.config, stats)
    return VlaPolicy(network, pre, post, kinematics=None, version="base")  # type: ignore[arg-type]


def reach(number: int):
    """Return an episode with two cameras of 64 px, always the same action."""
    action = np.full(7, 0.5, np.float32)
    return [
        replace(t, images={"front": t.images["front"], "wrist": t.images["front"]}, executed_action=action)
        for t in episode(number, 8, image_size=64)
    ]


def test_the_vla_learns_successes_from_the_store_and_loads_the_candidate(policy, tmp_path):
    store = SqliteExperienceStore(tmp_path / "store")
    for number in range(4):
        store.append(reach(number))
    store.commit()
    trainer = clone_behaviour(policy, BehaviourCloningConfig(learning_rate=1e-2))
    config = LearnerConfig(
        updates_per_episode=15, batch_size=16, candidate_updates=60, first_episodes=1, replay=ReplayConfig(chunk_size=6)
    )
    learner = Learner(store, trainer, tmp_path / "learner", policy.version, config)
    assert learner.poll() == 4
    losses = []
    while (metrics := learner.step()) is not None:
        losses.append(metrics["loss"])
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])

    data, manifest = learner.candidate()
    before = policy.network.state_dict()
    (tmp_path / "candidate.safetensors").write_bytes(data)
    policy.load_weights(tmp_path / "candidate.safetensors", manifest.version)
    assert policy.version == manifest.version
    after = policy.network.state_dict()
    assert set(load(data)) == set(after)
    assert any((before[name] != after[name]).any() for name in after)
    store.close()


def test_replay_keeps_images_as_the_policy_sees_them(policy):
    images = np.full((2, 3, 64, 64), 7, np.uint8)
    images[:, :, ::2] = 9
    small = clone_behaviour(policy).shrink("observation.images.front", images)
    assert (small.shape, small.dtype) == ((2, 3, 32, 32), np.uint8)
    assert (small == 8).all()


def test_weights_of_another_shape_are_refused_by_name_and_the_old_ones_stay(policy, tmp_path):
    other = clone_behaviour(policy)
    name = next(n for n, p in other.policy.named_parameters() if p.ndim == 2)
    tensors = load(other.weights())
    tensors[name] = tensors[name][:1].copy()
    save_file(tensors, tmp_path / "wrong.safetensors")
    with pytest.raises(WeightsError, match=f"tensor {name!r} has shape"):
        policy.load_weights(tmp_path / "wrong.safetensors", "wrong")
    assert policy.version == "base"


def test_a_policy_with_a_memory_of_its_episode_is_refused_by_the_learner(policy):
    network = tiny_policy(memory="gru", memory_details=1)
    remembering = VlaPolicy(network, policy.preprocess, policy.postprocess, policy.kinematics, version="v")
    with pytest.raises(InvalidInputError, match="memory 'gru', which replayed single frames cannot train"):
        clone_behaviour(remembering)
