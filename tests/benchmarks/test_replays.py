"""Replays of demonstrations on twins: what is replayed, and what its figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engram.benchmarks import replays
from engram.benchmarks.replays import ReplaysBenchmark, figures, replayed
from engram.core.errors import UnknownNameError


def test_experts_demonstrate_a_task_once_and_nothing_is_learnt_of_the_replays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[Any] = []

    def record(config: Any) -> None:
        done.append((config.tasks, config.episodes, config.world))
        Path(config.root).mkdir(parents=True)

    def practise(config: Any) -> dict[str, Any]:
        assert Path(config.demonstrations).is_dir()
        done.append((config.task, config.on, config.episodes, config.search, config.updates, config.verdict))
        return {"episodes": [{"success": True, "oracle_success": True}]}

    monkeypatch.setattr(replays, "record", record)
    monkeypatch.setattr(replays, "practise", practise)
    config = ReplaysBenchmark(work=tmp_path, episodes=5)
    for on in ("late", "worn"):
        replayed(config, "stack", on)
    assert done == [
        (("stack",), 10, "tabletop"),
        ("stack", "late", 5, 0, 0, "memory"),
        ("stack", "worn", 5, 0, 0, "memory"),
    ]


def test_the_simulator_scores_and_says_how_often_the_memory_was_wrong() -> None:
    yes, no = {"success": True, "oracle_success": True}, {"success": False, "oracle_success": False}
    false, missed = {"success": True, "oracle_success": False}, {"success": False, "oracle_success": True}
    rows = {
        row["name"]: row for row in figures({("stack", "late"): [yes, no, false, missed], ("stack", "none"): [yes]})
    }
    assert {name: (row["value"], row["n"]) for name, row in rows.items()} == {
        "replays_stack_on_late": (0.5, 4),
        "replays_stack_on_none": (1.0, 1),
        "replays_false_successes": (0.333, 3),
        "replays_missed_successes": (0.333, 3),
    }


def test_an_unknown_twin_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"ReplaysBenchmark.on.*'lat'.*late"):
        ReplaysBenchmark(on=("lat",))
