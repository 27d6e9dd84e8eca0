"""``engram eval`` leaves a report that says where it comes from."""

import json
from pathlib import Path

import pytest

from engram.core.errors import InvalidInputError
from engram.nodes.commands import EvalConfig, evaluate


def test_the_report_is_kept_with_commit_and_machine(tmp_path: Path) -> None:
    output = tmp_path / "new" / "experts.json"
    assert evaluate(EvalConfig("experts", episodes=1, tasks=("reach",), output=str(output))) == 0
    report = json.loads(output.read_text())
    assert report["per_task"]["reach"]["n"] == 1
    assert report["seeds"] == [0, 1]
    assert report["commit"] and "CPUs" in report["machine"]


def test_a_report_that_cannot_be_written_is_said_before_the_first_episode(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"output .*report\.json': cannot be written: "):
        evaluate(EvalConfig("nobody", output=str(tmp_path / "file" / "report.json")))
