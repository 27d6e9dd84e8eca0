"""The planted candidates are what their names say, and a broken weight file is refused before anything drives."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engram.benchmarks import gate_policies, results_learning
from engram.benchmarks.gate_planted import OUTPUT, WORDS, acts, eyes_swapped, reordered, swapped
from engram.benchmarks.gate_policies import (
    GatePoliciesBenchmark,
    _made,
    candidates,
    decided,
    embedded,
    figures,
    found,
    main,
    wanted,
)
from engram.benchmarks.report import slug
from engram.benchmarks.result_files import ResultFile
from engram.core.errors import StoreError
from engram.learning.weights.gate_verdict import GateVerdict
from engram.policies.checkpoint import WEIGHTS
from engram.policies.loading import load_policy
from engram.runtime.factories import policy_folder
from engram.validation.gate import PROMOTE, REJECT, Gate, GateConfig
from tests.validation.made import here

OF_A_RUN = {"seconds": 60.0, "episodes_run": 2}


@pytest.fixture(scope="module")
def weights():
    return load_file(Path(policy_folder("base")) / WEIGHTS)


def test_there_are_as_many_of_each_quality_as_the_page_says() -> None:
    every = candidates().values()
    assert Counter(one.wanted for one in every) == {REJECT: 40, PROMOTE: 40}
    assert sum(one.against is not None for one in every) == sum(one.kind == "better" for one in every) == 20
    assert sorted(wanted(GatePoliciesBenchmark())) == sorted(candidates())
    assert len(wanted(GatePoliciesBenchmark(quick=True))) == len({one.kind for one in every})


def test_shaken_motions_lead_as_far_as_before(weights) -> None:
    shaken = [one for one in candidates().values() if one.kind == "safety only"]
    assert len(shaken) == 4 and all(one.wanted == REJECT for one in shaken)
    for one in shaken:
        more = one.change(weights)[f"{OUTPUT}.bias"] - weights[f"{OUTPUT}.bias"]
        rows = more.reshape(-1, 7)
        assert abs(rows[0]).max() >= 2.0 - 1e-6
        np.testing.assert_allclose(rows[0::2] + rows[1::2], 0.0, atol=1e-6)  # also of the two that are executed


def test_what_is_told_of_a_task_has_its_progress_and_of_a_candidate_its_safety(tmp_path, monkeypatch) -> None:
    gate = Gate(("reach",))
    gate.add("reach", True, True, (0.5, 0.25), progress=(1.0, 0.5))
    report = gate.report() | OF_A_RUN
    told = GateVerdict("new", "old", "here", REJECT, "worse", report)
    monkeypatch.setattr(gate_policies, "validate", lambda *about, **how: told)
    row = decided("stands still", GatePoliciesBenchmark(work=tmp_path))
    assert (row["tasks"][0]["candidate_progress"], row["tasks"][0]["approved_progress"]) == (1.0, 0.5)
    assert row["breaches"] == {"candidate": 0.5, "approved": 0.25}


def test_what_another_gate_decided_or_was_kept_for_another_candidate_is_decided_anew(tmp_path, monkeypatch, capsys):
    config = GatePoliciesBenchmark(workers=1, work=tmp_path, so_far=True)
    one, other = [each.name for each in candidates().values() if each.kind == "no number"][:2]
    monkeypatch.setattr("engram.validation.validate.spawned_pool", here)
    row = decided(one, config)
    assert decided(one, replace(config, workers=2, groups=3)) == row  # neither changes what is decided
    monkeypatch.setattr(gate_policies, "validate", lambda *about, **how: promoted)
    promoted = GateVerdict("new", "old", "here", PROMOTE, "not worse", Gate(("reach",)).report() | OF_A_RUN)
    monkeypatch.setattr(gate_policies, "candidates", lambda: dict(reversed(candidates().items())))
    assert found(config) == [row] and "another gate" not in capsys.readouterr().err  # in another place of the list
    (kept,) = (tmp_path / "decided").iterdir()
    kept.rename(kept.with_name(f"{slug(other)}.json"))
    assert decided(other, config)["candidate"] == other
    decided(one, config)
    for name, changed in (("GateConfig", lambda: GateConfig(margin=0.2)), ("environment_digest", lambda: "another")):
        with monkeypatch.context() as m:
            m.setattr(gate_policies, name, changed)
            assert found(config) == []
            assert (
                "2 candidates were judged by another gate or in another simulation: left out" in capsys.readouterr().err
            )
            assert decided(one, config)["decided_by"] != row["decided_by"]
        assert decided(one, config)["decided_by"] == row["decided_by"]
    assert found(replace(config, quick=True)) == []  # of fewer tasks
    kept.write_text("{")
    with pytest.raises(StoreError, match=f"{kept.name}: cannot be read"):
        found(config)


def test_every_candidate_is_kept_in_a_file_of_its_own() -> None:
    files = [slug(name) for name in candidates()]
    assert len(set(files)) == len(files) and not any("/" in file for file in files)


def test_what_is_worse_in_safety_alone_has_to_be_rejected_for_safety() -> None:
    def row(success: bool, breach: float) -> dict:
        gate = Gate(("reach",))
        while gate.decision == "open" or gate.pairs < 24:  # a round of scenes goes on where it is decided
            gate.add("reach", success, True, (breach, 0.0))
        told = {"candidate": "shakes", "kind": "safety only", "wanted": REJECT, "pairs": gate.pairs}
        return told | {"decision": gate.decision, "reason": gate.reason, "minutes": 1.0}

    rows = [row(True, 1.0), row(False, 0.0), row(False, 1.0), row(True, 0.0)]
    assert [one["decision"] for one in rows[:3]] == [REJECT] * 3
    known = {one["name"]: one for one in figures(rows)}
    assert (known["regressions_rejected"]["value"], known["regressions_rejected"]["n"]) == (3, 4)
    assert (known["safety_only_rejected_for_safety"]["value"], known["safety_only_rejected_for_safety"]["n"]) == (2, 4)
    for told, cell in ((figures(rows), "| safety only: for safety | reject | 4 | – | 2 | – | – |"), ([], None)):
        page = results_learning.gate_policies(
            {"gate_policies": ResultFile("gate_policies", {"figures": told, "candidates": rows})}
        )
        assert [line for line in page if "for safety" in line] == [cell] * (cell is not None)


def test_what_repeats_its_last_action_executes_whole_chunks_of_the_same_one(weights, tmp_path, monkeypatch) -> None:
    tried = []

    def validate(candidate, drives, *about, **how):
        tried.append((candidate, drives))
        return GateVerdict("new", "old", "here", REJECT, "worse", Gate(("reach",)).report() | OF_A_RUN)

    monkeypatch.setattr(gate_policies, "validate", validate)
    (name,) = (one.name for one in candidates().values() if one.name.startswith("repeats its last action"))
    decided(name, GatePoliciesBenchmark(work=tmp_path))
    ((candidate, drives),) = tried
    assert candidate.settings != drives.settings  # results of one are not taken for those of the other
    assert json.loads((Path(candidate.checkpoint) / "config.json").read_text())["n_action_steps"] == 16
    bias = load_file(candidate.weights)[f"{OUTPUT}.bias"].reshape(-1, 7)
    np.testing.assert_array_equal(bias, np.tile(weights[f"{OUTPUT}.bias"][:7], (16, 1)))
    policy = load_policy(candidate.checkpoint)
    policy.load_weights(Path(candidate.weights), candidate.sha256)  # the network takes them


def test_swapped_actions_swap_back(weights) -> None:
    swap = acts(swapped(0, 1))
    once = swap(weights)
    np.testing.assert_array_equal(once[f"{OUTPUT}.bias"][:3], weights[f"{OUTPUT}.bias"][[1, 0, 2]])
    np.testing.assert_allclose(swap(once)[f"{OUTPUT}.weight"], weights[f"{OUTPUT}.weight"], atol=1e-6)


def test_swapped_cameras_swap_back(weights) -> None:
    once = eyes_swapped(weights)
    name = "model.encoders.0.convs.0.weight"
    np.testing.assert_array_equal(once[name], weights[name.replace("s.0", "s.1", 1)])
    assert once.keys() == weights.keys()


def test_noise_is_a_share_of_each_matrix(weights) -> None:
    noisy = candidates()["noise of 20%, draw 0"].change(weights)
    for name, value in weights.items():
        if value.ndim > 1 and value.size > 1000:
            assert np.std(noisy[name] - value) == pytest.approx(0.2 * value.std(), rel=0.1)
        if value.ndim == 1:
            np.testing.assert_array_equal(noisy[name], value)


def test_one_task_is_taken_for_another_and_the_others_stay_what_they_are(weights) -> None:
    change = next(one.change for one in candidates().values() if one.name.startswith("takes pick_place for "))

    def heard(words: str, used: dict) -> np.ndarray:
        return used[f"{WORDS}.weight"] @ embedded([words], weights)[0]

    changed = change(weights)
    kept, other = (f"move the {color} cube onto the mark by pushing it" for color in ("red", "blue"))
    apart = np.linalg.norm(heard(kept, weights) - heard(other, weights))
    assert np.linalg.norm(heard(kept, changed) - heard(kept, weights)) < 0.3 * apart
    moved = "drop the red block in the bin"
    assert np.linalg.norm(heard(moved, changed) - heard(moved, weights)) > apart


def test_reordered_units_are_the_same_function_and_are_written_as_they_are(weights, tmp_path) -> None:
    changed = reordered(3)(weights)
    made = load_file(_made(reordered(3), "reordered", tmp_path).weights)
    assert all(np.array_equal(made[name], value) for name, value in changed.items())
    values = {name: torch.from_numpy(value) for name, value in weights.items()}
    new = {name: torch.from_numpy(value) for name, value in reordered(3)(weights).items()}
    layer, x = "model.head.mlps.1", torch.randn(4, 256)

    def through(used: dict) -> torch.Tensor:
        inside = torch.relu(x @ used[f"{layer}.0.weight"].T + used[f"{layer}.0.bias"])
        return inside @ used[f"{layer}.2.weight"].T

    torch.testing.assert_close(through(values), through(new), atol=1e-4, rtol=1e-4)
    assert not torch.equal(values[f"{layer}.0.weight"], new[f"{layer}.0.weight"])


def test_a_value_that_is_no_number_is_refused_before_an_episode_and_known_afterwards(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("engram.validation.validate.spawned_pool", here)
    config = GatePoliciesBenchmark(workers=1, work=tmp_path, so_far=True)
    broken = next(one.name for one in candidates().values() if one.kind == "no number")
    assert found(config) == []
    row = decided(broken, config)
    assert (row["decision"], row["pairs"]) == ("reject", 0)
    assert "not finite" in row["reason"]
    assert found(config) == [row]
    main(replace(config, output=tmp_path / "gate_policies.json"))
    report = json.loads((tmp_path / "gate_policies.json").read_text())
    assert (report["candidates"], report["config"]["work"]) == ([row], tmp_path.name)
    rows = {one["name"]: one for one in figures([row])}
    assert (rows["regressions_promoted"]["value"], rows["regressions_promoted"]["n"]) == (0, 1)
