"""What is lost, doubled or wrong after a kill is found."""

import sqlite3
from contextlib import closing
from unittest.mock import Mock

import pytest

from engram.benchmarks import gate_kills
from engram.benchmarks.gate_kills import (
    Account,
    GateKiller,
    GateKillsBenchmark,
    figures,
    kill_library,
    library_state,
    results,
    verdicts,
)
from engram.benchmarks.gate_kills_writer import changes
from engram.learning.weights.gate_verdict import GateVerdict, write_verdict
from engram.learning.weights.library import WeightsLibrary
from engram.validation.of_learner import GATE
from tests.validation.made import run_before


def test_a_killed_library_is_as_after_the_last_durable_change_or_the_next(tmp_path):
    account = Account()
    kill_library(GateKillsBenchmark(quick=True, work=tmp_path), account)
    assert (account.kills["library"], account.wrong) == (2, [])


def test_a_library_that_lost_a_change_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gate_kills, "library_state", lambda folder: (str(folder).endswith("library"), {}))
    account = Account()
    kill_library(GateKillsBenchmark(quick=True, work=tmp_path), account)
    assert "library 0: after" in account.wrong[0]
    assert figures(account)[0]["met"] is False


def test_the_writer_goes_through_every_stage(tmp_path):
    library, seen = WeightsLibrary(tmp_path), set()
    for count in changes(library):
        seen |= set(library_state(tmp_path)[1].values())
        if count == 20:
            break
    library.close()
    assert seen == {"candidate", "canary", "approved", "retired", "rolled_back"}


@pytest.fixture
def killer(tmp_path):
    """Return one whose undisturbed run is already known."""
    made = GateKiller.__new__(GateKiller)
    made.account = Account()
    run_before(tmp_path, {"a" * 64: True})
    write_verdict(
        tmp_path / GATE / "verdicts", GateVerdict("a" * 64, "b" * 64, "e" * 12, "reject", "worse", {"seconds": 1})
    )
    made.results, made.verdicts = results(tmp_path), verdicts(tmp_path)
    return made


def test_the_same_results_and_verdict_are_right(killer, tmp_path):
    killer._check(tmp_path, 1, True)
    assert killer.account.wrong == []
    assert "seconds" not in killer.verdicts[0]["report"]


def test_a_changed_result_a_lost_one_and_another_verdict_are_told(killer, tmp_path):
    with closing(sqlite3.connect(tmp_path / GATE / "trials.sqlite")) as file, file:
        file.execute("UPDATE trials SET success = 1 - success WHERE seed = 80003 AND weights LIKE 'a%'")
        file.execute("DELETE FROM trials WHERE seed = 80004 AND weights LIKE 'a%'")
    killer._check(tmp_path, 1, False)
    assert len(killer.account.wrong) == 1 and "1 results differ" in killer.account.wrong[0]
    (tmp_path / GATE / "verdicts").rename(tmp_path / "elsewhere")
    killer._check(tmp_path, 2, True)
    assert any("the verdict is lost" in told for told in killer.account.wrong)
    assert any("start 2: 209 results, without a kill 210" in told for told in killer.account.wrong)


def test_what_else_is_in_the_folder_stays(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("dear")
    monkeypatch.setattr(gate_kills, "kill_library", lambda config, account: account.kills.update(library=1))
    monkeypatch.setattr(gate_kills, "GateKiller", lambda config, account: Mock())
    gate_kills.main(GateKillsBenchmark(quick=True, work=tmp_path, output=tmp_path / "report.json"))
    assert (tmp_path / "mine").read_text() == "dear"
