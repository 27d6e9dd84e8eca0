"""A checkpoint whose normalisation is missing or broken is refused when it is loaded."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engram.core.errors import WeightsError
from engram.policies import load_policy
from engram.policies.opening import checkpoint_folder, open_policy
from tests.policies.tiny_lerobot import save_tiny

BEFORE = "policy_preprocessor_step_5_normalizer_processor.safetensors"
AFTER = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_folder("base"), tmp_path / "copy"))


def change(file: Path, key: str, make) -> None:
    """Replace what ``file`` holds under ``key``; None: leave it out."""
    tensors = load_file(file)
    if (made := make(tensors.pop(key))) is not None:
        tensors[key] = np.ascontiguousarray(made)
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("file", "key", "make", "told"),
    [
        (AFTER, "action.mean", lambda _: None, r"action: mean is missing, expected finite numbers of shape \(7,\)"),
        (BEFORE, "observation.state.std", lambda _: None, "observation.state: std is missing"),
        (AFTER, "action.std", lambda t: np.full_like(t, np.nan), "action: std holds a value that is not finite"),
        (BEFORE, "observation.state.mean", lambda t: np.full_like(t, np.inf), "observation.state: mean holds a value"),
        (BEFORE, "observation.state.std", np.zeros_like, "observation.state: std 0, expected above 0"),
        (BEFORE, "observation.state.mean", lambda t: t[:14], r"mean has shape \(14,\), expected \(15,\)"),
        (BEFORE, "observation.images.front.std", lambda t: -t, "observation.images.front: std -.*, expected above 0"),
    ],
)
def test_statistics_that_do_not_fit_are_named(copy, file, key, make, told):
    change(copy / file, key, make)
    with pytest.raises(WeightsError, match=f"{copy / file}: .*{told}"):
        load_policy(copy)


@pytest.mark.parametrize("name", ["policy_preprocessor.json", "policy_postprocessor.json"])
def test_a_processor_that_scales_nothing_is_refused(copy, name):
    kept = json.loads((copy / name).read_text())
    kept["steps"] = [step for step in kept["steps"] if "state_file" not in step]
    (copy / name).write_text(json.dumps(kept))
    with pytest.raises(WeightsError, match=f"{copy / name}: no step normalises"):
        load_policy(copy)


@pytest.mark.parametrize(("file", "data"), [(AFTER, b"cut"), ("policy_preprocessor.json", b"{"), (BEFORE, b"")])
def test_processors_that_cannot_be_read_are_refused(copy, file, data):
    (copy / file).write_bytes(data)
    with pytest.raises(WeightsError, match=f"policy {copy}: its processors cannot be read"):
        load_policy(copy)


def test_a_file_of_statistics_that_is_missing_is_named(copy):
    (copy / BEFORE).unlink()
    with pytest.raises(WeightsError, match=f"policy {copy}: no {BEFORE} in this folder"):
        load_policy(copy)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("euler_steps", 0, "euler_steps: 0, expected an integer above 0"),
        ("euler_steps", -3, "euler_steps: -3"),
        ("noise_scale", float("nan"), "noise_scale: nan, expected a finite number"),
        ("step_s", 0.0, "step_s: 0.0, expected a finite number of seconds above 0"),
    ],
)
def test_a_configuration_that_cannot_act_is_refused(copy, name, value, told):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, name: value}))
    with pytest.raises(WeightsError, match=told):
        load_policy(copy)


def test_lerobot_s_own_policies_are_checked_too(tmp_path):
    folder = save_tiny("act", tmp_path / "act")
    (after,) = folder.glob("policy_postprocessor_step_*.safetensors")
    change(after, "action.std", np.zeros_like)  # as LeRobot takes a number that never changed
    open_policy(folder)
    change(after, "action.std", lambda _: None)
    with pytest.raises(WeightsError, match=f"{after}: action: std is missing"):
        open_policy(folder)


def test_a_policy_at_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(checkpoint_folder("base"), tmp_path / "mine")
    assert load_policy("~/mine").version == load_policy("base").version
