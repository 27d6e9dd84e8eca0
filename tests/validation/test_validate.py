"""Validation with real policies in real processes: decided, resumed after kill -9, the same for any number of them."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engram.app.cli import main
from engram.core.errors import InvalidInputError, WeightsError
from engram.learning.weights.gate_verdict import GateVerdict, write_verdict
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.policies.checkpoint import sha256
from engram.policies.opening import open_policy
from engram.runtime.factories import policy_folder
from engram.sim.gaps import GAPS, Gap, varied
from engram.validation.following import judged_on, keep_judged_on
from engram.validation.gate import PROMOTE, REJECT, Gate, GateConfig
from engram.validation.of_learner import contender
from engram.validation.trials import IDLE, Contender, TrialStore, environment_digest
from engram.validation.validate import KeptVerdicts, _names, proof_in, trained_tasks, validate
from tests.validation.made import here

LENIENT = GateConfig(margin=0.5, false_promotion=0.2, breach_margin=0.5, budget=30)
BASE = contender(policy_folder("base"))
STILL = Contender(IDLE, "", "still")
"""A candidate that does nothing."""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def in_this_process(monkeypatch):
    """Have episodes run in this process."""
    monkeypatch.setattr("engram.validation.validate.spawned_pool", here)


def changed(folder: Path, name: str, change) -> Contender:
    """Return ``base`` with other weights."""
    weights = {key: change(value) for key, value in load_file(Path(BASE.checkpoint) / "model.safetensors").items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / name)
    return replace(BASE, weights=str(folder / name), sha256=sha256(folder / name))


def told(verdict: GateVerdict) -> dict:
    """Return what has to be the same however it came about."""
    left_out = ("episodes_run", "seconds", "machine", "commit")
    return {k: v for k, v in verdict.report.items() if k not in left_out}


def test_a_robot_that_stands_still_is_rejected_with_any_number_of_processes_and_nothing_is_run_twice(tmp_path) -> None:
    one = validate(STILL, BASE, ("reach",), tmp_path / "one", LENIENT)
    two = validate(STILL, BASE, ("reach",), tmp_path / "two", LENIENT, workers=2, niceness=5)
    assert (one.decision, one.environment) == (REJECT, environment_digest())
    assert told(one) == told(two)
    again = validate(STILL, BASE, ("reach",), tmp_path / "one", LENIENT)
    assert again.report["episodes_run"] == 0
    assert told(again) == told(one)
    with pytest.raises(WeightsError, match="did not promote still"):
        proof_in(tmp_path / "one", "tests.ros.policies:OneWeight")("still", BASE.sha256)


def test_nearly_the_same_weights_are_promoted_and_proven(tmp_path, in_this_process) -> None:
    candidate = changed(tmp_path, "near.safetensors", lambda value: value * np.float32(1 + 1e-6))
    verdict = validate(candidate, BASE, ("reach",), tmp_path, LENIENT)
    assert verdict.decision == PROMOTE
    with pytest.raises(WeightsError, match="the gate has not judged"):
        proof_in(tmp_path, "base")(BASE.sha256, candidate.sha256)
    with pytest.raises(WeightsError, match=r"too weak: margin 0\.5, at most 0\.1; .*; stack was not tried"):
        proof_in(tmp_path, "base")(candidate.sha256, BASE.sha256)
    with pytest.raises(InvalidInputError, match="are the same policy"):
        validate(BASE, BASE, ("reach",), tmp_path)


def test_a_verdict_tells_policies_of_the_same_weights_apart() -> None:
    """As an edited checkpoint and its base: they differ in their processors alone."""
    other = replace(BASE, settings="with an edit")
    told = [_names(other, BASE), _names(BASE, other), _names(BASE, STILL)]
    assert len(set(told[0])) == 2 and told[0] == told[1][::-1]
    assert told[2] == [BASE.sha256, STILL.sha256]  # what a learner ships is looked up by the sha256 of its weights


def test_a_strict_test_of_every_task_is_a_proof(tmp_path) -> None:
    gate = Gate(trained_tasks(Path(BASE.checkpoint)))
    about = {"on": "turned", "worst_cases": {}}
    verdict = GateVerdict("new", "old", environment_digest("turned"), PROMOTE, "fine", gate.report() | about)
    write_verdict(tmp_path / "verdicts", verdict)
    assert proof_in(tmp_path, "base")("new", "old") == "the gate: fine"
    fewer = replace(verdict, report=Gate(("reach",)).report() | about)
    write_verdict(tmp_path / "verdicts", fewer)
    with pytest.raises(WeightsError, match="stack was not tried"):
        proof_in(tmp_path, "base")("new", "old")
    assert proof_in(tmp_path, "tests.ros.policies:OneWeight")("new", "old")  # it has no card
    write_verdict(tmp_path / "verdicts", replace(verdict, report={"on": "turned"}))
    with pytest.raises(WeightsError, match="the report is damaged"):
        proof_in(tmp_path, "base")("new", "old")


def test_a_verdict_that_holds_here_is_known_beside_the_gate(tmp_path) -> None:
    kept, report = KeptVerdicts(tmp_path), Gate(("reach",)).report() | {"on": "turned", "worst_cases": {}}
    assert kept.stamp is None and kept.of("new", "old") is None
    keep_judged_on(tmp_path, "turned")
    verdict = GateVerdict("new", "old", environment_digest("turned"), REJECT, "worse", report)
    write_verdict(tmp_path / "verdicts", verdict)
    stamp = kept.stamp
    assert kept.of("new", "old") == verdict and kept.of("old", "new") is None
    easier = replace(verdict, report=report | {"config": report["config"] | {"false_rejection": 0.5}})
    path = write_verdict(tmp_path / "verdicts", easier)
    assert kept.of("new", "old") is None and kept.stamp != stamp
    path.write_bytes(b"{")
    assert kept.of("new", "old") is None
    write_verdict(
        tmp_path / "verdicts", replace(verdict, environment=environment_digest("late"), report=report | {"on": "late"})
    )
    assert kept.of("new", "old") is None  # of another robot
    (tmp_path / "robot.json").unlink()
    path.unlink()
    assert kept.of("new", "old").decision == REJECT  # nobody says which robot it is
    write_verdict(tmp_path / "verdicts", replace(verdict, environment="before"))
    assert kept.of("new", "old") is None  # of other code


def test_where_a_gate_judges_for_a_robot_a_verdict_on_another_one_proves_nothing(tmp_path) -> None:
    """As of engram validate --on none, beside a gate node that found the robot's gap and rejected."""
    report = Gate(trained_tasks(Path(BASE.checkpoint))).report()
    for on, decision in (("turned", "reject"), ("none", PROMOTE)):
        told = report | {"on": on, "worst_cases": {}}
        write_verdict(
            tmp_path / "verdicts", GateVerdict("new", "old", environment_digest(on), decision, "as it is", told)
        )
    assert proof_in(tmp_path, "base")("new", "old") == "the gate: as it is"
    keep_judged_on(tmp_path, "turned")
    with pytest.raises(WeightsError, match=r"did not promote new \(reject\)"):
        proof_in(tmp_path, "base")("new", "old")
    keep_judged_on(tmp_path, "late")
    with pytest.raises(WeightsError, match="what it judged was another robot"):
        proof_in(tmp_path, "base")("new", "old")
    assert judged_on(tmp_path) == "late" and judged_on(tmp_path / "nowhere") == ""


def test_a_verdict_is_void_once_a_task_of_ones_own_was_edited(tmp_path, monkeypatch) -> None:
    base, task = tmp_path / "base_of_mine.py", tmp_path / "mine_of_base.py"
    base.write_text("from engram.sim.tasks.reach import Reach\n\nclass Base(Reach):\n    pass\n")
    task.write_text("from base_of_mine import Base\n\nclass Mine(Base):\n    max_steps = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name, policy = "mine_of_base:Mine", "tests.ros.policies:OneWeight"
    lenient = replace(LENIENT, budget=1, false_rejection=0.05)
    found = validate(STILL, BASE, (name, "reach"), tmp_path, lenient)
    assert list(found.report["own_code"]) == [name]
    weak = dict(found.report["config"]) | asdict(GateConfig())
    written = replace(found, decision=PROMOTE, report=json.loads(json.dumps({**found.report, "config": weak})))
    write_verdict(tmp_path / "verdicts", written)
    proof, kept = proof_in(tmp_path, policy), KeptVerdicts(tmp_path)
    assert proof("still", BASE.sha256) and kept.of("still", BASE.sha256) == written
    for file in (base, task):
        text = file.read_text()
        file.write_text(text + "    # edited\n")
        with pytest.raises(WeightsError, match=rf"void: {file}, of task {name}, has changed since"):
            proof("still", BASE.sha256)
        assert kept.of("still", BASE.sha256) is None
        file.write_text(text)
        assert proof("still", BASE.sha256)
    task.unlink()
    assert kept.of("still", BASE.sha256) is None
    write_verdict(
        tmp_path / "verdicts", replace(written, report={k: v for k, v in written.report.items() if k != "own_code"})
    )
    with pytest.raises(WeightsError, match="void: the report is damaged"):
        proof("still", BASE.sha256)


def test_weights_that_are_no_numbers_are_named(tmp_path) -> None:
    broken = changed(tmp_path, "nan.safetensors", lambda value: np.full_like(value, np.nan))
    with pytest.raises(WeightsError, match=r"nan\.safetensors.*not finite"):
        validate(broken, BASE, ("reach",), tmp_path, LENIENT)


def test_a_validation_that_was_killed_goes_on_and_finds_the_same(tmp_path, in_this_process) -> None:
    words = [sys.executable, "-m", "engram.app.cli", "validate", "engram", "--against", "base", "--tasks", "reach"]
    words += ["--budget", "2", "--work", str(tmp_path)]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    kept = tmp_path / "trials.sqlite"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and count(kept) < 2:
        assert killed.poll() is None, "it ended before it was killed"
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = count(kept)
    assert before >= 2
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode in (0, 1), done.stderr
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert verdict["report"]["episodes_run"] == count(kept) - before
    whole = validate(contender(policy_folder("engram")), BASE, ("reach",), tmp_path / "whole", GateConfig(budget=2))
    assert told(whole) == {k: v for k, v in verdict["report"].items() if k in told(whole)}


def count(kept: Path) -> int:
    """Return how many results are on disk."""
    try:
        with sqlite3.connect(f"file:{kept}?mode=ro", uri=True) as reader:
            return int(reader.execute("SELECT COUNT(*) FROM trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def learner_from(policy: str | Path, folder: Path) -> None:
    """Make the folder of a learner that began with ``policy``, a copy of ``base`` or that itself."""
    library, lineage = WeightsLibrary(folder / "weights"), open_policy(policy).lineage
    for name, factor in (("v0", 1.0), ("candidate-1", 1.0 + 1e-6)):
        file = Path(changed(folder / "made", name, lambda value, f=factor: value * np.float32(f)).weights)
        library.add(file.read_bytes(), make_manifest(file.read_bytes(), name, lineage=lineage))
    library.approve("v0", "test")
    library.close()


def test_a_learners_newest_candidate_is_tried_against_what_drives_there(tmp_path, capsys, in_this_process) -> None:
    learner_from("base", tmp_path)
    code = main(["validate", "--learner", str(tmp_path), "--tasks", "reach", "--budget", "2"])
    verdict = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, verdict["decision"]) == (1, "not_shown")
    library = WeightsLibrary(tmp_path / "weights", read_only=True)
    assert verdict["candidate"] == library.get("candidate-1")[1].sha256
    with pytest.raises(WeightsError, match="did not promote"):
        proof_in(tmp_path / "gate", "base")(verdict["candidate"], verdict["approved"])
    assert library.versions == ["v0", "candidate-1"]


def test_a_learners_weights_are_tried_in_the_policy_that_it_began_with_and_in_no_other(
    tmp_path, capsys, in_this_process
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(BASE.checkpoint, mine)  # the same network; as of a training on other data
    (scales,) = mine.glob("policy_postprocessor*.safetensors")
    save_file({name: value * np.float32(3) for name, value in load_file(scales).items()}, scales)
    learner_from(mine, tmp_path / "learner")
    words = ["validate", "--learner", str(tmp_path / "learner"), "--tasks", "reach", "--budget", "1"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "weights 'candidate-1': of lineage " in told and "they differ in normalization; name the policy" in told
    assert "--against" in told
    assert not (tmp_path / "learner" / "gate").exists()
    assert main([*words, "--against", str(mine)]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["decision"] == "not_shown"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--candidate: empty"),
        (["nonsense"], "unknown policy 'nonsense'"),
        (["base"], "are the same policy"),
        (["engram", "--tasks", "dance"], "unknown task 'dance'"),
        (["engram", "--on", "mars"], "unknown gap 'mars'; valid: "),
        (["engram", "--margin", "2"], "--margin: 2.0"),
        (["engram", "--workers", "0"], "--workers: 0"),
        (["engram", "--niceness", "99"], "--niceness: 99"),
        (["--learner", "/nonexistent"], "there is no candidate in /nonexistent"),
    ],
)
def test_what_cannot_be_validated_is_named(words, message, tmp_path, capsys) -> None:
    assert main(["validate", *words, "--work", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_card_or_list_of_versions_is_named(tmp_path, capsys) -> None:
    copy = tmp_path / "mine"
    shutil.copytree(BASE.checkpoint, copy)
    (copy / "card.json").write_text("{")
    assert main(["validate", str(copy), "--work", str(tmp_path / "work")]) == 2
    assert "card.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "versions.sqlite").write_text("[" * 100)
    assert main(["validate", "--learner", str(tmp_path)]) == 2
    assert "versions.sqlite: file is not a database" in capsys.readouterr().err


def test_a_setup_is_drawn_from_the_seed() -> None:
    assert varied(Gap(), 1) == varied(Gap(), 1) != varied(Gap(), 2)
    assert {varied(Gap(), seed).latency_steps for seed in range(20)} == {0, 1}
    assert all(12 <= varied(GAPS["turned"], seed).yaw_deg <= 18 for seed in range(20))


def test_results_of_other_code_are_not_taken(tmp_path) -> None:
    assert environment_digest("turned") != environment_digest("none")
    store = TrialStore(tmp_path)
    store.environment = "another"
    assert store.get(BASE, "reach", 80_000) is None
    store.close()
