"""A memory beside SmolVLA and pi0: it changes nothing until it has learnt something, and then remembers."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import MemoryTokens
from engram.learning.algorithms.clone_policy import clone_policy
from engram.policies import EngramVLAPolicy, VlaPolicy, load_policy
from engram.policies.backbones.loading import backbone_processors, load_trunk, wrapped
from engram.policies.checkpoint import WEIGHTS, export, sha256
from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.motion_edits import write_edit
from engram.policies.training.train import main
from engram.policies.training.train_config import TrainConfig
from engram.policies.vla.real_time_chunking import RealTimeChunking
from engram.runtime.factories import make_policy
from tests.contracts.policy import PolicyContract
from tests.core.gantry import GANTRY, GantryKinematics

from .recall_task import make_recall_dataset
from .test_vla_policy import STATS, observe, watched
from .tiny import STATE
from .tiny_backbones import FAMILIES, save_tiny, shrink_pi0

SMALL = {"dim": 16, "heads": 2, "memory_steps": 4, "memory_events": 3, "memory_details": 2}
TOKENS = MemoryTokens(
    0, 1, np.ones((2, 384), np.float32), np.ones(2, np.float32), np.ones((2, 3), np.float32),
    np.array([True, False]), ("object/1", "object/2"),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def small_sizes():
    with pytest.MonkeyPatch.context() as patch:
        shrink_pi0(patch)
        yield


@pytest.fixture(scope="module")
def folders(small_sizes, tmp_path_factory):
    root = tmp_path_factory.mktemp("backbones")
    return {family: root / family / "policy" for family in FAMILIES}


@pytest.fixture(scope="module")
def lerobots(folders):
    return {name: save_tiny(name, folder, STATE, ("front", "wrist"), STATS) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def trunks(folders, lerobots):
    return {name: load_trunk(wrapped(str(folder))) for name, folder in folders.items()}


def remembering(trunk, folder, memory="bank", learnt=True, context=True, seed=0):
    """Return a policy whose memory lets through what it reads, as after training, with memory/context or without."""
    torch.manual_seed(seed)
    config = wrapped(str(folder), memory=memory, **SMALL)
    policy = EngramBackbonePolicy(config, trunk)
    if learnt:
        with torch.no_grad():
            policy.model.recall.fuse.weight.normal_()
            if context:
                policy.model.context.gate.fill_(1.0)
    return VlaPolicy(policy, *backbone_processors(config), GantryKinematics(), GANTRY, version="v1")


def lerobots_chunk(lerobot, policy, seen):
    """Return what LeRobot's own policy and processors make of an observation, the noise being ours."""
    network, preprocess, postprocess = lerobot
    policy.reset("go to the red cube", seed=0)
    policy.observe(seen)
    noise = policy._noise(seen, policy.network)
    images = {
        f"observation.images.{name}": torch.tensor(frame.color).permute(2, 0, 1).float() / 255.0
        for name, frame in seen.cameras.items()
    }
    batch = policy._batch(seen, None) | images
    network.reset()
    return postprocess(network.predict_action_chunk(preprocess(batch), noise=noise))[0].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_memory_acts_bit_for_bit_as_lerobots_own_policy(family, folders, lerobots, trunks):
    fresh = remembering(trunks[family], folders[family], learnt=False)
    plain = load_policy(folders[family], GantryKinematics(), GANTRY)
    expected = lerobots_chunk(lerobots[family], plain, observe(0)).clip(-1, 1)
    assert np.abs(expected).min() < 0.9  # not all of it is cut
    for policy, memory in ((plain, None), (fresh, None), (fresh, TOKENS)):
        policy.reset("go to the red cube", seed=0)
        policy.observe(observe(0), memory)
        np.testing.assert_array_equal(policy.act().actions, expected)
    np.testing.assert_array_equal(watched(plain, range(1, 4)), watched(fresh, range(1, 4)))
    assert plain.version.startswith(f"{family}-") and not plain.remembers and fresh.remembers


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_seen_before_and_what_the_memory_node_sends_change_the_actions(family, folders, trunks):
    policy = remembering(trunks[family], folders[family])
    chunks = []
    for stamps, memory in (((0, 1, 5), None), ((0, 2, 5), None), ((0, 1, 5), TOKENS)):
        policy.reset("go to the red cube", seed=0)
        for stamp in stamps:
            policy.observe(observe(stamp * 100_000_000), memory)
        chunks.append(policy.act().actions)
    assert not np.array_equal(chunks[0], chunks[1])
    assert not np.array_equal(chunks[0], chunks[2])


def test_who_learnt_without_memory_context_does_not_act_on_it_and_training_with_it_opens_its_gate(folders, trunks):
    policy = remembering(trunks["smolvla"], folders["smolvla"], context=False)
    chunks = []
    for memory in (None, TOKENS):
        policy.reset("go to the red cube", seed=0)
        policy.observe(observe(0), memory)
        chunks.append(policy.act().actions)
    np.testing.assert_array_equal(*chunks)
    assert not policy.reads_context
    model = policy.network.model
    batch = policy.preprocess(policy._batch(observe(0), TOKENS))
    percept, _ = model.observe(batch, model.recall.memory.begin(1), torch.zeros(1))
    model._modulation(percept).sum().backward()
    assert model.context.gate.grad.abs().sum() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_what_looks_like_what_was_remembered_bends_the_action_expert(family, folders, trunks):
    policy = remembering(trunks[family], folders[family])
    policy.reset("go to the red cube", seed=0)
    model, cells = policy.network.model, policy.network.config.memory_cells_side
    batch = policy.preprocess(policy._batch(observe(0), None))
    with torch.no_grad():
        percept, _ = model.observe(batch, model.recall.memory.begin(1), torch.zeros(1))
        there = model._modulation(percept)
        elsewhere = model._modulation(dataclasses.replace(percept, colours=percept.colours.flip(1)))
    assert percept.colours.shape == (1, 2 * cells**2, 3) and percept.colours.std() > 0.1
    assert not torch.allclose(there, elsewhere)


def test_cells_that_the_backbone_s_images_do_not_have_are_refused(folders):
    with pytest.raises(InvalidInputError, match=r"memory_cells_side: 33, expected 0\.\.32"):
        wrapped(str(folders["smolvla"]), memory="bank", memory_cells_side=33)


class BackboneContract(PolicyContract):
    family: str

    @pytest.fixture(autouse=True)
    def where(self, folders, trunks):
        self.folder, self.trunk = folders[self.family], trunks[self.family]

    def make(self):
        return remembering(self.trunk, self.folder)

    def observation(self, stamp_ns):
        return observe(stamp_ns)

    def save_other_weights(self, path):
        save_file(remembering(self.trunk, self.folder, seed=1).network.state_dict(), path)

    def test_a_restarted_process_gives_the_bits_of_one_that_never_stopped(self):
        whole, before, after = self.make(), self.make(), self.make()
        for policy in (whole, before, after):
            policy.reset("go", seed=2)
        expected = watched(whole, range(7))
        watched(before, range(5))
        after.restore_memory({name: array.copy() for name, array in before.memory_state().items()})
        np.testing.assert_array_equal(watched(after, range(5, 7)), expected)

    def test_real_time_chunks_grow_out_of_the_chunk_that_runs(self):
        plain, guided = self.make(), self.make()
        guided.real_time = RealTimeChunking(delay=2)
        for policy in (plain, guided):
            policy.reset("go", seed=0)
        first, _ = watched(guided, [0]), watched(plain, [0])
        alone, grown = watched(plain, [2]), watched(guided, [2])
        assert np.abs(grown[:2] - first[2:4]).mean() < np.abs(alone[:2] - first[2:4]).mean()


class TestSmolVLA(BackboneContract):
    family = "smolvla"


class TestPi0(BackboneContract):
    family = "pi0"


def test_the_file_of_a_policy_holds_the_memory_alone_and_loads_to_the_same_bits(folders, lerobots, tmp_path):
    policy = remembering(None, folders["smolvla"])
    export(tmp_path / "saved", policy.network, policy.preprocess, policy.postprocess, {})
    assert all(
        name.split(".")[1] in ("recall", "context", "words", "pictures")
        for name in load_file(tmp_path / "saved" / "model.safetensors")
    )
    loaded = load_policy(tmp_path / "saved", GantryKinematics(), GANTRY, execute_steps=2)
    for each in (policy, loaded):
        each.reset("go", seed=0)
    np.testing.assert_array_equal(watched(loaded, range(3)), watched(policy, range(3)))
    assert loaded.act().execute_steps == 2
    with pytest.raises(InvalidInputError, match="of type engram_backbone is frozen, and practises by"):
        clone_policy(loaded)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t, name: t.pop(name), "lacks tensor 'model.action_in_proj.bias'"),
        (lambda t, name: t.update({"model.extra": torch.zeros(1)}), "unknown tensor 'model.extra'"),
        (lambda t, name: t[name].fill_(torch.nan), "'model.action_in_proj.bias' holds a value that is not finite"),
        (lambda t, name: t.update({name: torch.zeros(3)}), "size mismatch for model.action_in_proj.bias"),
    ],
)
def test_a_backbone_whose_weights_do_not_fit_is_refused_by_name(family, spoil, words, folders, lerobots, tmp_path):
    folder = tmp_path / "spoilt"
    folder.mkdir()
    (folder / "config.json").write_bytes((folders[family] / "config.json").read_bytes())
    tensors = load_file(folders[family] / "model.safetensors")
    spoil(tensors, "model.action_in_proj.bias")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=words):
        load_policy(folder, GantryKinematics(), GANTRY)


def test_other_weights_than_those_the_memory_learnt_beside_are_refused(folders, lerobots):
    with pytest.raises(WeightsError, match="not the weights that the memory was trained with"):
        load_trunk(wrapped(str(folders["smolvla"]), backbone_sha256="0" * 64))


def test_what_is_no_backbone_is_named(folders, lerobots, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"type": "act"}))
    with pytest.raises(UnknownNameError, match=r"unknown type of backbone .* 'act'; .*valid: pi0, smolvla"):
        wrapped(str(tmp_path))
    missing = (
        f"unknown policy 'nobody/nothing': there is no folder {Path.cwd()}/nobody/nothing, .*valid: base, engram, "
    )
    with pytest.raises(UnknownNameError, match=missing):
        load_policy("nobody/nothing")
    plain = load_policy(folders["smolvla"], GantryKinematics(), GANTRY)
    with pytest.raises(InvalidInputError, match="of type engram_backbone is frozen, and practises by"):
        clone_policy(plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_backbone_takes_a_motion_edit_of_its_own_weights(family, folders, lerobots, tmp_path):
    policy = load_policy(folders[family], GantryKinematics(), GANTRY)
    policy.reset("go", seed=0)
    rows = watched(policy, [0])
    half = MotionCorrection(scale=0.5, shift_x=0.1)
    (tmp_path / "edit").write_bytes(MotionEditStep.of(policy.lineage.root, half).packed())
    policy.load_weights(tmp_path / "edit", "v2")
    policy.reset("go", seed=0)
    changed = watched(policy, [0])
    np.testing.assert_allclose(changed[:, :3], rows[:, :3] * 0.5 + half.shift, atol=1e-6)
    np.testing.assert_array_equal(changed[:, 3:], rows[:, 3:])
    assert policy.version == "v2"
    (tmp_path / "edit").write_bytes(MotionEditStep.of("0" * 64, half).packed())
    with pytest.raises(WeightsError, match=f"of the base {'0' * 12}, the weights here are {policy.lineage.root[:12]}"):
        policy.load_weights(tmp_path / "edit", "v3")
    edited = shutil.copytree(folders[family], tmp_path / "edited")
    write_edit(policy.motion_edit.packed(), edited)
    kept = load_policy(edited, GantryKinematics(), GANTRY)
    kept.reset("go", seed=0)
    np.testing.assert_array_equal(watched(kept, [0]), changed)
    assert kept.lineage == policy.lineage


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A memory trained beside a backbone on the toy task: where the backbone is, the data, and the training."""
    root = tmp_path_factory.mktemp("learnt")
    stats = {
        "action": {"mean": np.zeros(7), "std": np.full(7, 0.5)},
        "observation.state": {"mean": np.zeros(15), "std": np.ones(15)},
    }
    save_tiny("smolvla", root / "policy", 15, ("front",), stats)
    model = tuple((name, float(value)) for name, value in SMALL.items())
    config = TrainConfig(
        dataset=str(make_recall_dataset(root / "data", size=32)), out=str(root / "whole"),
        backbone=str(root / "policy"), memory="bank", window=9, batch_size=72, steps=300, warmup_steps=5,
        learning_rate=3e-3, foresight=0.0,
        ema_decay=0.9, n_action_steps=2, model=model,
    )  # fmt: skip
    main(config)
    return root, config


def test_only_the_memory_learns_and_a_resumed_run_ends_in_the_same_bits(learnt, tmp_path):
    root, config = learnt
    before = load_file(root / "policy" / "model.safetensors")
    short = dataclasses.replace(config, steps=4, out=str(tmp_path / "whole"))
    main(short)
    parts = dataclasses.replace(short, out=str(tmp_path / "parts"), stop_after=2)
    main(parts)
    main(dataclasses.replace(parts, stop_after=0, resume=True))
    states = [load_file(tmp_path / run / "resume" / "state.safetensors") for run in ("whole", "parts")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not any("vlm_with_expert" in name for name in states[0])
    after = load_file(root / "policy" / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_memory_learns_what_the_backbone_cannot_see_any_more(learnt):
    """Red or blue in the first two pictures, grey from then on: the last actions are to tell which it was."""
    root, _ = learnt
    policy = make_policy(str(root / "whole" / "policy"))  # as the policy node makes it
    network, said = policy.network, {}
    for color in ((220, 20, 20), (20, 20, 220)):
        network.reset()
        for step in range(9):
            picture = torch.tensor(color if step < 2 else (120, 120, 120), dtype=torch.uint8)
            batch = {
                "observation.images.front": picture[:, None, None].expand(3, 32, 32),
                "observation.state": torch.full((15,), step / 9),
                "task": "do as you were shown",
            }
            seen = policy.preprocess(batch)
            percept = network._memory.percept(network.model, seen, step, 0.1 * step)
        noise = torch.zeros(1, *network.model.noise_shape)
        said[color[0]] = float(policy.postprocess(network.predict_action_chunk(seen, noise, percept))[0, 0, 0])
    assert said[220] > said[20] + 0.15


def test_a_dataset_that_lacks_what_the_backbone_takes_is_named(folders, learnt):
    root, config = learnt
    with pytest.raises(InvalidInputError, match=r"takes 'observation.images.wrist', the dataset has .*lerobot-train"):
        main(dataclasses.replace(config, backbone=str(folders["smolvla"]), out=str(root / "other")))
    with pytest.raises(InvalidInputError, match="nothing to train: set memory"):
        main(dataclasses.replace(config, memory="none", out=str(root / "other")))


def test_no_memory_is_trained_beside_a_backbone_with_a_motion_edit(learnt, tmp_path):
    """The edit names the backbone's weights, and would stand beside those of the memory."""
    root, config = learnt
    edited = shutil.copytree(root / "policy", tmp_path / "edited")
    write_edit(MotionEditStep.of(sha256(edited / WEIGHTS), MotionCorrection(scale=0.5)).packed(), edited)
    with pytest.raises(InvalidInputError, match=r"edited: it has a motion edit, .* expected the checkpoint that"):
        main(dataclasses.replace(config, backbone=str(edited), out=str(tmp_path / "out")))


def test_the_small_network_is_still_the_one_that_learners_train():
    assert load_policy("base").network.__class__ is EngramVLAPolicy
