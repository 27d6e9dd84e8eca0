"""What a benchmark leaves behind."""

import json
from dataclasses import dataclass
from pathlib import Path

from engram.benchmarks import report
from engram.benchmarks.report import RESULTS, figure, result_file, save_report
from engram.core.provenance import command_line


@dataclass(frozen=True)
class Config:
    rounds: int = 3
    folder: Path = Path("somewhere")
    output: Path = Path("elsewhere")


def test_a_figure_is_rounded_and_tells_its_target_before_what_else_there_is():
    row = figure("speed", 2.00049, 9, (1.99951, 2.0006), "<= 2.1", True, bare=1.0)
    assert row == {
        "name": "speed", "value": 2.0, "interval": [2.0, 2.001], "n": 9, "target": "<= 2.1", "met": True, "bare": 1.0,
    }  # fmt: skip
    assert figure("share", 0.12345, 7, digits=4) | {"n": 0} == {
        "name": "share", "value": 0.1235, "interval": None, "n": 0, "target": None, "met": None,
    }  # fmt: skip


def test_the_file_and_the_last_line_are_the_same_report(tmp_path, capsys):
    output = tmp_path / "results" / "x.json"
    save_report(output, "x", "a machine", Config(), figures=[{"name": "speed", "value": 2.0}])
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(output.read_text())
    assert said.pop("commit") != ""
    assert said.pop("command") == command_line()  # pytest's own, or that of its worker
    assert said == {
        "benchmark": "x",
        "figures": [{"name": "speed", "value": 2.0}],
        "config": {"rounds": 3, "folder": "somewhere"},
        "machine": "a machine",
    }


def test_a_report_tells_the_commit_that_its_run_began_with(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "commit", lambda: "later")
    save_report(tmp_path / "x.json", "x", "a machine")
    assert json.loads((tmp_path / "x.json").read_text())["commit"] == report.COMMIT != "later"


def test_a_quick_run_keeps_off_the_quoted_figures(tmp_path):
    assert result_file(RESULTS / "x.json", quick=False) == RESULTS / "x.json"
    assert result_file(RESULTS / "x.json", quick=True) == Path("runs/bench/x.json")
    assert result_file(tmp_path / "x.json", quick=True) == tmp_path / "x.json"


def test_part_of_a_run_keeps_off_the_quoted_figures(tmp_path, monkeypatch):
    quoted = tmp_path / "x.json"
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    both = [{"name": "speed", "n": 100}, {"name": "size", "n": None}]
    assert result_file(quoted, False, both) == quoted  # nothing is quoted yet
    quoted.write_text(json.dumps({"figures": both}))
    assert result_file(quoted, False, [{"name": "more", "n": 1}, {"name": "speed", "n": 90}, both[1]]) == quoted
    assert result_file(quoted, False, both[:1]) == Path("runs/bench/x.json")  # a figure is missing
    assert result_file(quoted, False, [{"name": "speed", "n": 89}, both[1]]) == Path("runs/bench/x.json")
