"""A frozen policy with a motion edit behind it: what that changes, where it is kept, and what it is refused for."""

import json
import shutil

import numpy as np
import pytest
import torch
from lerobot.policies.factory import make_pre_post_processors
from lerobot.processor.pipeline import ProcessorStepRegistry
from safetensors.torch import load, load_file, save, save_file

from engram.core.errors import InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionChunk
from engram.policies.checkpoint import CARD, WEIGHTS, export, sha256
from engram.policies.foreign_code import POSTPROCESSOR, PREPROCESSOR
from engram.policies.lerobot.motion_edit_step import BASE, NAME, MotionEditStep
from engram.policies.motion_edits import write_edit
from engram.policies.opening import files_of, open_policy
from engram.policies.source import Source

from .test_foreign_code import on_the_hub
from .test_lerobot_policy import driven, lerobots
from .test_lerobot_policy import load as loaded
from .tiny import tiny_vla
from .tiny_lerobot import FAMILIES, save_tiny

TURNED = MotionCorrection(scale=0.5, yaw_rad=0.3, shift_x=0.1, shift_y=-0.2)


@pytest.fixture(scope="module")
def act(tmp_path_factory):
    return save_tiny("act", tmp_path_factory.mktemp("lerobot") / "act")


@pytest.fixture
def copy(act, tmp_path):
    return shutil.copytree(act, tmp_path / "copy")


def packed(folder, correction=TURNED):
    """Return an edit of the policy in ``folder`` as it travels."""
    return MotionEditStep.of(sha256(folder / WEIGHTS), correction).packed()


def edited(folder, correction=TURNED):
    """Put an edit behind the checkpoint in ``folder``; return it."""
    write_edit(packed(folder, correction), folder)
    return folder


def entries(folder, file=POSTPROCESSOR):
    return json.loads((folder / file).read_text())["steps"]


def keep(folder, steps, file=POSTPROCESSOR):
    kept = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**kept, "steps": steps}))


def numbers(folder):
    """Return the file with the numbers of the edit in ``folder``."""
    (name,) = [step["state_file"] for step in entries(folder) if step["registry_name"] == NAME]
    return folder / name


def corrected(rows, correction=TURNED):
    return correction.apply(ActionChunk(0, 0, "ee_delta", rows, 0.1, len(rows), "")).actions


@pytest.mark.parametrize("family", FAMILIES)
def test_an_edit_that_changes_nothing_leaves_the_bits_of_lerobots_own_loop(family, tmp_path):
    folder = save_tiny(family, tmp_path / family)
    expected, version = lerobots(folder, 8).clip(-1, 1), loaded(folder).version
    edited(folder, MotionCorrection())
    np.testing.assert_array_equal(lerobots(folder, 8).clip(-1, 1), expected)
    np.testing.assert_array_equal(driven(loaded(folder), 8), expected)
    assert loaded(folder).version == version


@pytest.mark.parametrize("family", FAMILIES)
def test_an_edited_checkpoint_corrects_the_translation_and_nothing_else(family, tmp_path):
    folder = save_tiny(family, tmp_path / family)
    before = driven(loaded(folder), 8)
    policy = loaded(edited(folder))
    np.testing.assert_allclose(after := driven(policy, 8), corrected(before), atol=1e-6)
    np.testing.assert_array_equal(after[:, 3:], before[:, 3:])
    assert np.abs(after[:, :3] - before[:, :3]).max() > 0.1
    np.testing.assert_allclose(policy.motion_edit.correction.matrix(), TURNED.matrix(), atol=1e-12)


def test_lerobots_own_loading_runs_the_edit_and_fails_where_nobody_registered_it(copy, monkeypatch):
    rows = lerobots(copy, 8).clip(-1, 1)
    np.testing.assert_allclose(lerobots(edited(copy), 8).clip(-1, 1), corrected(rows), atol=1e-6)
    known = {name: step for name, step in ProcessorStepRegistry._registry.items() if name != NAME}
    monkeypatch.setattr(ProcessorStepRegistry, "_registry", known)  # as where our plugin is not imported
    with pytest.raises(ImportError, match=f"'{NAME}' not found in registry"):
        make_pre_post_processors(Source(str(copy)).config(), str(copy))


def test_an_action_within_the_limits_stays_within_them():
    step = MotionEditStep.of("base", MotionCorrection(scale=4.0, shift_x=0.3))
    action = torch.tensor([[[0.5, 7.0, -0.1, 0.1, 0.2, 0.3, 1.0]]])
    np.testing.assert_allclose(step.action(action), [[[1.0, 1.0, -0.4, 0.1, 0.2, 0.3, 1.0]]], atol=1e-7)
    assert step.action(action).dtype == action.dtype and action[0, 0, 0] == 0.5
    assert MotionEditStep.of("base", MotionCorrection()).action(action) is action  # as it comes, beyond the limits too


def test_a_second_edit_takes_the_place_of_the_first(copy):
    half = MotionCorrection(scale=0.5)
    assert loaded(edited(edited(copy), half)).motion_edit.correction == half
    assert [step["registry_name"] for step in entries(copy)].count(NAME) == 1


def test_an_edit_keeps_the_lineage_and_is_another_version(copy):
    before = loaded(copy)
    after = loaded(edited(copy))
    assert after.lineage == before.lineage and after.lineage.id == before.lineage.id
    assert after.version.startswith(f"{before.version}-edit-")
    assert loaded(edited(copy, MotionCorrection(scale=0.5))).version != after.version


def test_weights_of_an_edit_are_a_few_octets_that_any_policy_of_the_base_takes(act, copy, tmp_path):
    rows, base = driven(loaded(act), 8), loaded(act)
    (tmp_path / "edit.safetensors").write_bytes(packed(act))
    assert (tmp_path / "edit.safetensors").stat().st_size < 1000
    for policy in (base, loaded(edited(copy, MotionCorrection(scale=0.5)))):
        network = policy.network
        policy.load_weights(tmp_path / "edit.safetensors", "v2")
        np.testing.assert_allclose(driven(policy, 8), corrected(rows), atol=1e-6)
        assert policy.version == "v2" and policy.network is network
    base.load_weights(act / WEIGHTS, "v3")  # whole weights come without an edit
    np.testing.assert_array_equal(driven(base, 8), rows)


def test_an_edit_never_runs_on_another_base(act, tmp_path):
    other = save_tiny("act", tmp_path / "other", seed=1)
    (tmp_path / "edit.safetensors").write_bytes(packed(act))
    policy, ours, its = loaded(other), sha256(other / WEIGHTS)[:12], sha256(act / WEIGHTS)[:12]
    rows = driven(policy, 4)
    with pytest.raises(WeightsError, match=f"of the base {its}, the weights here are {ours}"):
        policy.load_weights(tmp_path / "edit.safetensors", "v2")
    with pytest.raises(WeightsError, match=f"of the base {its}, the weights here are {ours}"):
        write_edit(packed(act), other)
    np.testing.assert_array_equal(driven(policy, 4), rows)
    assert policy.version != "v2"
    policy = loaded(act)
    policy.load_weights(other / WEIGHTS, "v2")
    with pytest.raises(WeightsError, match=f"of the base {its}, the weights here are {ours}"):
        policy.load_weights(tmp_path / "edit.safetensors", "v3")
    shutil.copy(other / WEIGHTS, edited(shutil.copytree(act, tmp_path / "swapped")) / WEIGHTS)
    with pytest.raises(WeightsError, match=f"its {NAME} is of the base {its}, the weights in it are {ours}"):
        open_policy(tmp_path / "swapped")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t["shift"].fill_(torch.nan), "tensor 'shift' holds a value that is not finite"),
        (lambda t: t["matrix"].fill_(torch.inf), "tensor 'matrix' holds a value that is not finite"),
        (lambda t: t["shift"].fill_(0.4), r"MotionCorrection.shift_x: 0.4, expected -0.36 \.\. 0.36"),
        (lambda t: t["matrix"].mul_(30.0), r"MotionCorrection.scale: .*, expected 0.0939 \.\. 10.6"),
        (lambda t: t["matrix"].neg_(), "MotionCorrection.scale: -0.5"),
        (lambda t: t["matrix"][0, 1].add_(0.5), "expected a scale of all three axes, a turn about the third"),
        (lambda t: t["shift"][2].add_(0.1), "and a shift along the first two"),
        (lambda t: t.update(shift=torch.zeros(2)), "expected .*'shift'"),
    ],
)
def test_numbers_that_no_correction_may_have_are_refused(spoil, words, act, copy, tmp_path):
    tensors = load(packed(act))
    spoil(tensors)
    save_file(tensors, numbers(edited(copy)))
    with pytest.raises(WeightsError, match=words):
        open_policy(copy)
    (tmp_path / "edit.safetensors").write_bytes(save(tensors, {BASE: sha256(act / WEIGHTS)}))
    policy = loaded(act)
    rows = driven(policy, 4)
    with pytest.raises(WeightsError, match=words):
        policy.load_weights(tmp_path / "edit.safetensors", "v2")
    np.testing.assert_array_equal(driven(policy, 4), rows)


def test_an_edit_that_names_no_base_is_refused(act, tmp_path):
    save_file(load(packed(act)), tmp_path / "edit.safetensors")
    with pytest.raises(WeightsError, match=f"names no {BASE} in its metadata"):
        loaded(act).load_weights(tmp_path / "edit.safetensors", "v2")


def test_processors_in_which_an_edit_would_be_dropped_or_misplaced_are_refused(copy):
    steps = entries(edited(copy))
    keep(copy, [*steps[:-1], {name: value for name, value in steps[-1].items() if name != "state_file"}])
    with pytest.raises(WeightsError, match=f"step {NAME} of {POSTPROCESSOR} has no state_file"):
        open_policy(copy)
    _, after = make_pre_post_processors(Source(str(copy)).config(), str(copy))
    with pytest.raises(InvalidInputError, match="its state was not loaded"):
        after(torch.zeros(1, 7))
    keep(copy, [steps[-1], *steps[:-1]])
    with pytest.raises(WeightsError, match=f"1 steps {NAME}, expected one, as the last of {POSTPROCESSOR}"):
        open_policy(copy)
    keep(copy, steps)
    keep(copy, [*entries(copy, PREPROCESSOR), steps[-1]], PREPROCESSOR)
    with pytest.raises(WeightsError, match=f"2 steps {NAME}, expected one"):
        open_policy(copy)


def test_joint_positions_and_networks_that_are_trained_themselves_take_no_edit(tmp_path):
    joints = save_tiny("act", tmp_path / "joints", state=4, action=4)
    assert loaded(joints).motion_edit is None
    with pytest.raises(InvalidInputError, match=r"a motion edit corrects tool motions .*'joint_position'"):
        loaded(edited(joints))
    with pytest.raises(InvalidInputError, match="actions of 4 numbers, expected the 7 of a relative tool motion"):
        MotionEditStep.of("base", TURNED).action(torch.zeros(1, 4))
    ours = tiny_vla()
    export(tmp_path / "ours", ours.network, ours.preprocess, ours.postprocess, {})
    with pytest.raises(InvalidInputError, match="type 'engram_vla' is trained itself, expected no step"):
        open_policy(edited(tmp_path / "ours"))
    assert ours.motion_edit is None


def test_the_files_of_a_policy_on_the_hub_are_where_they_were_fetched_to(act, tmp_path, monkeypatch):
    name = on_the_hub(tmp_path / "hub", act, monkeypatch)
    open_policy(name)
    assert load_file(files_of(name) / WEIGHTS).keys() == load_file(act / WEIGHTS).keys()
    assert files_of(act) == act and (files_of("base") / CARD).is_file()
