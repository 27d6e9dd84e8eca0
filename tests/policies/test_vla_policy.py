from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy as on_disk
import torch
from safetensors.torch import load_file, save_file

from engram.core.control import ControlConfig
from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.core.types import CameraFrame, MemoryTokens, Observation
from engram.policies import VlaPolicy, load_policy, make_engram_vla_pre_post_processors
from engram.policies.checkpoint import export
from engram.policies.vla.chunking import follow
from engram.policies.vla.real_time_chunking import RealTimeChunking
from tests.contracts.policy import PolicyContract
from tests.core.frames import camera_frame
from tests.core.gantry import GANTRY, GantryKinematics, joints

from .tiny import STATE, tiny_policy

STATS = {
    "action": {"mean": np.full(7, 0.1), "std": np.full(7, 0.5)},
    "observation.state": {"mean": np.zeros(STATE), "std": np.ones(STATE)},
    **{
        f"observation.images.{name}": {"mean": np.zeros((3, 1, 1)), "std": np.ones((3, 1, 1))}
        for name in ("front", "wrist")
    },
}


def textured(name, stamp_ns):
    frame = camera_frame(stamp_ns, name=name, size=64)
    color = np.random.default_rng(stamp_ns % 997).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return CameraFrame(name, stamp_ns, color, frame.intrinsics, frame.pose)


def observe(stamp_ns):
    cameras = {name: textured(name, stamp_ns) for name in ("front", "wrist")}
    return Observation(stamp_ns, cameras, joints(0.1, 0.2, 0.3, stamp_ns=stamp_ns))


def make_policy(seed=0, **fields):
    policy = tiny_policy(seed, **fields)
    pre, post = make_engram_vla_pre_post_processors(policy.config, STATS)
    return VlaPolicy(policy, pre, post, GantryKinematics(), GANTRY, version="v1")


def test_a_policy_for_another_arm_or_rate_is_refused():
    policy = tiny_policy()
    pre, post = make_engram_vla_pre_post_processors(policy.config, STATS)
    with pytest.raises(InvalidInputError, match=r"robot 'panda_2f85': its state has 15 numbers, .* trained with 11"):
        VlaPolicy(policy, pre, post, GantryKinematics(), version="v1")
    with pytest.raises(InvalidInputError, match=r"control_dt_s 0.05: this policy was trained with steps of 0.1 s"):
        VlaPolicy(policy, pre, post, GantryKinematics(), GANTRY, version="v1", control=ControlConfig(control_dt_s=0.05))


@pytest.mark.parametrize("fields", [{}, {"memory": "bank", "memory_steps": 4, "memory_events": 2, "memory_details": 1}])
def test_its_features_are_what_its_head_is_conditioned_by_and_name_the_encoder(fields, tmp_path):
    policy = make_policy(**fields)
    policy.reset("go")
    assert policy.features() is None
    policy.observe(observe(0))
    before, first = policy.features(), policy.act().actions
    policy.observe(observe(10**8))
    assert not np.array_equal(policy.features().values, before.values)
    assert follow(policy).features().encoder == before.encoder

    for part, same in (("head.", True), ("language.", False)):  # a correction changes the head alone
        changed = make_policy(**fields)
        for name, weight in changed.network.model.named_parameters():
            weight.data += 0.1 * name.startswith(part)
        save_file(changed.network.state_dict(), path := tmp_path / f"{part}safetensors")
        policy.load_weights(path, "v2")
        policy.reset("go")
        policy.observe(observe(0))
        now = policy.features()
        assert (now.encoder == before.encoder) is np.array_equal(now.values, before.values) is same
        assert not np.array_equal(policy.act().actions, first)


def test_pictures_of_another_shape_than_in_training_are_refused_by_the_camera_s_name():
    policy, seen = make_policy(), observe(0)
    wide = replace(seen.cameras["front"], color=np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(InvalidInputError, match=r"camera 'front': 48 x 64 px; .* trained on 32 x 32 px: crop"):
        act_on(policy, replace(seen, cameras={**seen.cameras, "front": wide}))
    large = replace(seen.cameras["front"], color=np.zeros((96, 96, 3), np.uint8))
    act_on(policy, replace(seen, cameras={**seen.cameras, "front": large}))


def test_a_chunk_s_rows_last_a_control_step():
    policy = tiny_policy(step_s=0.05)
    pre, post = make_engram_vla_pre_post_processors(policy.config, STATS)
    control = ControlConfig(control_dt_s=0.05)
    fast = VlaPolicy(policy, pre, post, GantryKinematics(), GANTRY, version="v1", control=control)
    assert act(fast).dt_s == 0.05


def test_a_folder_that_holds_no_policy_names_the_one_inside(tmp_path):
    with pytest.raises(WeightsError, match=r"no policy, there is no config.json in it$"):
        load_policy(tmp_path)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"did you mean .*/policy\?$"):
        load_policy(tmp_path)


def test_what_begins_anew_has_no_episode_before():
    swapped, fresh = (make_remembering(ablation="swapped") for _ in range(2))
    act(swapped)
    swapped.begin_anew()
    np.testing.assert_array_equal(act(swapped).actions, act(fresh).actions)


class TestVlaPolicy(PolicyContract):
    def make(self):
        return make_policy()

    def observation(self, stamp_ns):
        return observe(stamp_ns)

    def save_other_weights(self, path):
        save_file(tiny_policy(seed=1).state_dict(), path)


def act_on(policy, observation):
    policy.reset("go to the red cube")
    policy.observe(observation)
    return policy.act()


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


def test_memory_ids_are_those_of_the_readable_entries_where_they_are_read():
    tokens = MemoryTokens(
        0, 1, np.ones((2, 384), np.float32), np.zeros(2, np.float32), np.zeros((2, 3), np.float32),
        np.array([True, False]), ("object/1", "object/2"),
    )  # fmt: skip
    shut, reads = make_policy(), make_policy()
    torch.nn.init.ones_(reads.network.model.memory.gate)
    assert act(reads, memory=tokens).memory_ids == ("object/1",)
    assert act(shut, memory=tokens).memory_ids == ()  # it made no difference


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


def test_more_steps_than_a_chunk_has_rows_are_refused_when_the_policy_is_loaded():
    for steps in (17, -1):
        with pytest.raises(InvalidInputError, match=rf"execute_steps: {steps}, expected 1\.\.16, .* of engram_vla-"):
            load_policy("base", execute_steps=steps)


def test_whoever_says_how_long_chunks_run_has_none_left_early(tmp_path):
    policy = make_policy(adaptive_m=0.04)
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    assert load_policy(tmp_path / "saved", GantryKinematics(), GANTRY).adaptive_m == 0.04
    assert load_policy(tmp_path / "saved", GantryKinematics(), GANTRY, execute_steps=2).adaptive_m == 0.0


def test_a_policy_that_is_not_there_is_an_error_that_lists_what_is():
    with pytest.raises(UnknownNameError, match="unknown policy 'bse'"):
        load_policy("bse")


def test_a_policy_whose_configuration_is_none_of_its_type_is_refused(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    (tmp_path / "saved" / "config.json").write_text('{"type": "act"}')
    with pytest.raises(InvalidInputError, match="of type 'act': You must provide at least one image"):
        load_policy(tmp_path / "saved", GantryKinematics(), GANTRY)


def test_weights_on_disk_are_the_weights_in_use(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    stored = load_file(tmp_path / "saved" / "model.safetensors")
    for name, tensor in policy.network.state_dict().items():
        assert torch.equal(stored[name], tensor), name


def make_remembering(seed=0, **options):
    policy = tiny_policy(seed, memory="bank", memory_steps=4, memory_events=3, memory_details=2)
    with torch.no_grad():
        policy.model.recall.fuse.weight.normal_()
    pre, post = make_engram_vla_pre_post_processors(policy.config, STATS)
    return VlaPolicy(policy, pre, post, GantryKinematics(), GANTRY, version="v1", **options)


class TestRememberingVlaPolicy(TestVlaPolicy):
    def make(self):
        return make_remembering()

    def save_other_weights(self, path):
        save_file(make_remembering(seed=1).network.state_dict(), path)


def watched(policy, stamps):
    for stamp in stamps:
        policy.observe(observe(stamp * 100_000_000))
    return policy.act().actions


def test_a_memory_is_written_at_every_step_whether_or_not_an_action_is_asked_for():
    policies = [make_remembering(), make_remembering()]
    for policy in policies:
        policy.reset("go", seed=0)
    for i in range(4):
        policies[0].observe(observe(i * 100_000_000))
        policies[0].act()
    np.testing.assert_array_equal(watched(policies[1], range(4)), policies[0].act().actions)
    policies[1].reset("go", seed=0)
    assert not np.array_equal(watched(policies[1], [0, 3]), policies[0].act().actions)


def test_a_restarted_process_gives_the_bits_of_one_that_never_stopped():
    whole, before, after = make_remembering(), make_remembering(), make_remembering()
    for policy in (whole, before, after):
        policy.reset("go", seed=2)
    expected = watched(whole, range(9))
    watched(before, range(6))
    after.restore_memory(on_disk.load(on_disk.save(dict(before.memory_state()))))
    np.testing.assert_array_equal(watched(after, [5]), before.act().actions)  # the last step is shown once more
    np.testing.assert_array_equal(watched(after, range(6, 9)), expected)


def test_what_an_earlier_episode_left_is_forgotten_at_reset():
    policy = make_remembering()
    policy.reset("go", seed=0)
    fresh = watched(policy, [0])
    watched(policy, range(1, 6))
    policy.reset("go", seed=0)
    assert policy.memory_state() == {}
    np.testing.assert_array_equal(watched(policy, [0]), fresh)


def test_memory_of_another_shape_or_for_a_policy_without_is_refused_by_name():
    policy = make_remembering()
    policy.reset("go")
    watched(policy, [0])
    arrays = dict(policy.memory_state())
    with pytest.raises(InvalidInputError, match="this policy has none"):
        make_policy().restore_memory(arrays)
    with pytest.raises(InvalidInputError, match=r"'cognitive.feature' has shape \(1, 5, 16\), expected \(1, 4, 16\)"):
        policy.restore_memory(arrays | {"memory.cognitive.feature": np.zeros((1, 5, 16), np.float32)})
    with pytest.raises(InvalidInputError, match=r"expected .*'steps'"):
        policy.restore_memory({name: array for name, array in arrays.items() if name != "memory.steps"})


def test_a_policy_without_memory_has_nothing_to_keep():
    policy = make_policy()
    act(policy)
    assert policy.memory_state() == {}


def test_there_is_nothing_to_spoil_without_a_memory(tmp_path):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    with pytest.raises(InvalidInputError, match="ablation 'zeroed': this policy has no memory"):
        load_policy(tmp_path / "saved", GantryKinematics(), GANTRY, ablation="zeroed")


def test_a_policy_that_acts_on_memory_context_can_be_kept_from_it():
    tokens = MemoryTokens(0, 1, np.ones((1, 384), np.float32), np.zeros(1, np.float32), np.ones((1, 3), np.float32),
                          np.ones(1, bool), ("cup",))  # fmt: skip
    policies = [make_policy() for _ in range(3)]
    for policy in policies:
        torch.nn.init.ones_(policy.network.model.memory.gate)
    given, kept_from, none = policies
    kept_from = VlaPolicy(kept_from.network, kept_from.preprocess, kept_from.postprocess, GantryKinematics(), GANTRY,
                          version="v1", ablation="no_context")  # fmt: skip
    for policy, memory in ((given, tokens), (kept_from, tokens), (none, None)):
        policy.reset("go", seed=0)
        policy.observe(observe(10**9), memory)
    chunks = [policy.act() for policy in (given, kept_from, none)]
    assert not np.array_equal(chunks[0].actions, chunks[2].actions)
    np.testing.assert_array_equal(chunks[1].actions, chunks[2].actions)
    assert [chunk.memory_ids for chunk in chunks] == [("cup",), (), ()]


@pytest.mark.parametrize(
    ("ablation", "error", "told"),
    [
        ("no_context", InvalidInputError, "ablation 'no_context': this policy does not act on memory/context"),
        ("removed", UnknownNameError, "unknown ablation 'removed'.*no_context, noise, swapped, zeroed"),
    ],
)
def test_what_cannot_be_spoiled_is_named(tmp_path, ablation, error, told):
    policy = make_policy()
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    with pytest.raises(error, match=told):
        load_policy(tmp_path / "saved", GantryKinematics(), GANTRY, ablation=ablation)


def test_real_time_chunks_grow_out_of_the_chunk_that_runs():
    plain, guided = make_policy(), make_policy()
    guided.real_time = RealTimeChunking(delay=2)
    for policy in (plain, guided):
        policy.reset("go", seed=0)
    np.testing.assert_array_equal(watched(guided, [0]), watched(plain, [0]))  # nothing runs yet
    first = guided.act().actions
    alone, grown = watched(plain, [2]), watched(guided, [2])
    # rows 2 and 3 of the old chunk are rows 0 and 1 of the new one
    assert np.abs(grown[:2] - first[2:4]).mean() < np.abs(alone[:2] - first[2:4]).mean()
    np.testing.assert_array_equal(guided.act().actions, grown)  # asking again changes nothing


class TestRealTimeVlaPolicy(TestVlaPolicy):
    def make(self):
        policy = make_remembering()
        policy.real_time = RealTimeChunking(delay=1)
        return policy

    def save_other_weights(self, path):
        save_file(make_remembering(seed=1).network.state_dict(), path)
