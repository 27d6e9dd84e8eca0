"""``engram eval`` leaves a report that says where it comes from."""

import json
from pathlib import Path

import pytest

from engram.app.commands import EvalConfig, evaluate
from engram.core.errors import InvalidInputError
from engram.core.paths import at_home
from engram.runtime.factories import shipped_policies


def test_the_report_is_kept_with_commit_and_machine(tmp_path: Path) -> None:
    output = tmp_path / "new" / "experts.json"
    assert evaluate(EvalConfig("experts", episodes=1, first_seed=7, tasks=("reach",), output=str(output))) == 0
    report = json.loads(output.read_text())
    assert report["per_task"]["reach"]["n"] == 1
    assert report["seeds"] == [7, 1]
    assert report["commit"] and "CPUs" in report["machine"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (EvalConfig("experts", swap=True), "swap: would change nothing: experts takes world of swap, held_out"),
        (EvalConfig("oracle_state", push=True), "push: would change nothing: oracle_state takes execute_steps"),
        (EvalConfig("experts", randomise_looks=True), "randomise_looks: would change nothing: experts takes world"),
        (EvalConfig("experts", contact_sheets="here"), "contact_sheets: would change nothing: experts takes world"),
        (EvalConfig("base", swap=True, contact_sheets="here"), "contact_sheets: would change nothing: swap says words"),
        (EvalConfig("base", swap=True, push=True), "push: would change nothing: swap says words of its own"),
        (
            EvalConfig("base", ensemble=True, execute_steps=8),
            "execute_steps: would change nothing: ensemble asks at every step",
        ),
        (EvalConfig("base", tasks=("reach",), execute_steps=17), r"execute_steps: 17, expected 1\.\.16, the rows of a"),
        (EvalConfig("oracle_state", execute_steps=-1), "execute_steps: -1, expected 0 or more"),
        (EvalConfig("base", swap=True, tasks=("open_drawer", "reach")), "open_drawer: the words name no colour"),
        (EvalConfig("experts", tasks=("all", "reach")), "reach named more than once"),
        (EvalConfig("mine:POLICY", ensemble=True), "ensemble: would change nothing: mine:POLICY takes swap, held_out"),
        (EvalConfig("mine:POLICY", execute_steps=2), "execute_steps: would change nothing: mine:POLICY takes swap"),
        (EvalConfig("mine:POLICY", adaptive_m=0.0), "adaptive_m: would change nothing: mine:POLICY takes swap"),
    ],
)
def test_an_option_that_would_change_nothing_or_cannot_be_had_is_refused(config: EvalConfig, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        evaluate(config)


def test_a_report_that_cannot_be_written_is_said_before_the_first_episode(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output, told in (("file/report.json", "cannot be written: "), (".", "is a folder")):
        with pytest.raises(InvalidInputError, match=rf"EvalConfig\.output: {tmp_path / output} {told}"):
            evaluate(EvalConfig("experts", output=str(tmp_path / output)))


def test_a_report_that_would_change_the_policy_it_is_about_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fingerprint is of every JSON file in its folder, and one of those would be written over."""
    (tmp_path / "policy").mkdir()
    settings = tmp_path / "policy" / "config.json"
    settings.write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    shipped = shipped_policies()["base"]
    for policy, output in (
        *((tmp_path / "policy", settings), (tmp_path / "policy", tmp_path / "policy" / "reports" / "report.json")),
        *((tmp_path / "policy", "~/policy/config.json"), ("~/policy", settings), ("base", shipped / "report.json")),
    ):
        with pytest.raises(
            InvalidInputError, match=rf"EvalConfig\.output '{at_home(output)}': lies in the policy '/.*'"
        ):
            evaluate(EvalConfig(str(policy), episodes=1, tasks=("reach",), output=str(output)))
    assert not (shipped / "report.json").exists()
    assert settings.read_text() == "{}" and [path.name for path in settings.parent.iterdir()] == ["config.json"]
