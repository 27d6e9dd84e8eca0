import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.core.types import CameraFrame, MemoryTokens, Observation
from engram.policies import VlaPolicy, load_policy, make_engram_vla_pre_post_processors
from engram.policies.checkpoint import export
from tests.contracts.policy import PolicyContract
from tests.core.frames import camera_frame
from tests.core.gantry import GANTRY, GantryKinematics, joints

from .tiny import STATE, tiny_policy

STATS = {
    "action": {"mean": np.full(7, 0.1), "std": np.full(7, 0.5)},
    "observation.state": {"mean": np.zeros(STATE), "std": np.ones(STATE)},
}


def textured(name, stamp_ns):
    frame = camera_frame(stamp_ns, name=name, size=64)
    color = np.random.default_rng(stamp_ns % 997).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return CameraFrame(name, stamp_ns, color, frame.intrinsics, frame.pose)


def observe(stamp_ns):
    cameras = {name: textured(name, stamp_ns) for name in ("front", "wrist")}
    return Observation(stamp_ns, cameras, joints(0.1, 0.2, 0.3, stamp_ns=stamp_ns))


def make_policy(seed=0):
    policy = tiny_policy(seed)
    pre, post = make_engram_vla_pre_post_processors(policy.config, STATS)
    return VlaPolicy(policy, pre, post, GantryKinematics(), GANTRY, version="v1")


class TestVlaPolicy(PolicyContract):
    def make(self):
        return make_policy()

    def observation(self, stamp_ns):
        return observe(stamp_ns)

    def save_other_weights(self, path):
        save_file(tiny_policy(seed=1).state_dict(), path)


def act(policy, instruction="go to the red cube", seed=0, memory=None):
    policy.reset(instruction, seed=seed)
    policy.observe(observe(0), memory)
    return policy.act()


def test_chunk_has_the_horizon_and_its_executed_rows():
    chunk = act(make_policy())
    assert chunk.actions.shape == (6, 7)
    assert (chunk.execute_steps, chunk.dt_s, chunk.space) == (3, 0.1, "ee_delta")


def test_words_and_seeds_change_the_actions():
    plain = act(make_policy()).actions
    assert not np.allclose(plain, act(make_policy(), "open the drawer").actions)
    assert not np.allclose(plain, act(make_policy(), seed=1).actions)


def test_noise_differs_from_step_to_step():
    policy = make_policy()
    policy.reset("", seed=0)
    chunks = []
    for stamp in (0, 100_000_000):
        seen = observe(0)
        policy.observe(Observation(stamp, seen.cameras, seen.joints))
        chunks.append(policy.act().actions)
    assert not np.array_equal(*chunks)


def test_memory_ids_are_those_of_the_readable_entries():
    tokens = MemoryTokens(
        0, 1, np.ones((2, 384), np.float32), np.zeros(2, np.float32), np.zeros((2, 3), np.float32),
        np.array([True, False]), ("object/1", "object/2"),
    )  # fmt: skip
    assert act(make_policy(), memory=tokens).memory_ids == ("object/1",)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t.update({"model.norm.bias": torch.zeros(5)}), r"norm.bias' has shape \(5,\), expected \(16,\)"),
        (lambda t: t.update({"model.norm.bias": torch.zeros(16).half()}), "norm.bias' has dtype F16, expected F32"),
        (lambda t: t.update({"model.norm.bias": torch.full((16,), torch.nan)}), "'model.norm.bias' .* not finite"),
        (lambda t: t.pop("model.norm.bias"), "lacks tensor 'model.norm.bias'"),
        (lambda t: t.update({"extra": torch.zeros(1)}), "unknown tensor 'extra'"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_by_name_and_the_old_ones_stay(tmp_path, spoil, words):
    policy = make_policy()
    before = act(policy).actions
    tensors = {k: v.clone() for k, v in tiny_policy(seed=1).state_dict().items()}
    spoil(tensors)
    save_file(tensors, tmp_path / "spoilt.safetensors")
    with pytest.raises(WeightsError, match=words):
        policy.load_weights(tmp_path / "spoilt.safetensors", "v2")
    assert policy.version == "v1"
    np.testing.assert_array_equal(act(policy).actions, before)


def test_a_saved_policy_loads_to_the_same_bits(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {"note": "test"})
    loaded = load_policy(tmp_path / "saved", GantryKinematics(), GANTRY)
    np.testing.assert_array_equal(act(loaded).actions, act(policy).actions)
    assert loaded.version.startswith("engram_vla-")
    assert act(load_policy(tmp_path / "saved", GantryKinematics(), GANTRY, execute_steps=2)).execute_steps == 2


def test_a_policy_that_is_not_there_is_an_error_that_lists_what_is():
    with pytest.raises(UnknownNameError, match="unknown policy 'bse'"):
        load_policy("bse")


def test_a_policy_of_another_type_is_refused(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    config = (tmp_path / "saved" / "config.json").read_text().replace('"engram_vla"', '"act"')
    (tmp_path / "saved" / "config.json").write_text('{"type": "act"}' if config else "")
    with pytest.raises(InvalidInputError, match="policy type 'act'"):
        load_policy(tmp_path / "saved", GantryKinematics(), GANTRY)


def test_weights_on_disk_are_the_weights_in_use(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    stored = load_file(tmp_path / "saved" / "model.safetensors")
    for name, tensor in policy.network.state_dict().items():
        assert torch.equal(stored[name], tensor), name
