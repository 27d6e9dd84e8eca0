"""What tells two checkpoints apart, and what does not."""

from __future__ import annotations

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from engram.policies.checkpoint import CARD, WEIGHTS, export, sha256
from engram.policies.lineage import architecture_digest, normalization_digest
from engram.policies.loading import load_policy
from engram.policies.opening import checkpoint_folder, open_policy
from tests.policies.tiny import tiny_policy, tiny_vla


@pytest.fixture
def folder(tmp_path):
    policy = tiny_vla()
    export(tmp_path / "tiny", policy.network, policy.preprocess, policy.postprocess, {})
    return tmp_path / "tiny"


def test_two_policies_of_the_same_shapes_are_two_lineages(tmp_path):
    base = open_policy("base")
    assert base.lineage.root == sha256(checkpoint_folder("base") / WEIGHTS)
    shutil.copytree(checkpoint_folder("base"), tmp_path / "other")
    weights = load_file(tmp_path / "other" / WEIGHTS)
    save_file({name: 0.5 * tensor for name, tensor in weights.items()}, tmp_path / "other" / WEIGHTS)
    (tmp_path / "other" / CARD).unlink()
    other = open_policy(tmp_path / "other")
    assert base.lineage != other.lineage and base.lineage.id != other.lineage.id
    assert (base.lineage.name, other.lineage.name) == ("base", str(tmp_path / "other"))


def test_opened_again_elsewhere_it_is_the_same_lineage_however_it_is_run(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    config |= {"n_action_steps": 1, "optimizer_lr": 0.5, "license": "mit"}
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config))
    here, there = open_policy(folder).lineage, open_policy(tmp_path / "copy").lineage
    assert here == there and here.id == there.id
    assert here.name != there.name
    assert load_policy("base", execute_steps=2).lineage == load_policy("base").lineage


def test_each_digest_changes_with_what_it_stands_for(folder):
    here = open_policy(folder)
    assert architecture_digest(tiny_policy(dim=32)) != architecture_digest(tiny_policy())
    assert architecture_digest(tiny_policy(noise_scale=0.25)) != architecture_digest(tiny_policy())  # shapes are alike
    assert architecture_digest(tiny_policy(seed=1)) == architecture_digest(tiny_policy(seed=0))
    before = normalization_digest(here.preprocess, here.postprocess)
    (step,) = [s for s in here.postprocess.steps if s.state_dict()]
    tensors = {name: tensor.clone() for name, tensor in step.state_dict().items()}
    name = next(iter(tensors))
    tensors[name] += 1e-3
    step.load_state_dict(tensors)
    assert normalization_digest(here.preprocess, here.postprocess) != before


def test_swapped_weights_are_named_truly_beside_the_ablation(tmp_path):
    policy = load_policy("engram", ablation="zeroed")
    assert policy.version.endswith("-zeroed") and policy.ablation == "zeroed"
    save_file({k: v.contiguous().clone() for k, v in policy.network.state_dict().items()}, tmp_path / "w")
    policy.load_weights(tmp_path / "w", "v7")
    assert policy.version == "v7-zeroed"
