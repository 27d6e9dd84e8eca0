"""Counters, stage times and problems as a node's condition."""

import json

import pytest

from engram.runtime.health import ERROR, OK, WARN, Condition, Health, drops_by_queue


def test_a_healthy_node_is_ok_with_its_counters_and_percentiles():
    health = Health()
    health.count("frames", 3)
    for ms in range(1, 101):
        health.seconds("detect", ms / 1e3)
    condition = health.condition("active")
    assert (condition.level, condition.message) == (OK, "active")
    assert condition.values["frames"] == "3"
    assert condition.values["detect ms p50/p99"] == "50.50/99.01 (n=100)"


def test_the_worst_problem_gives_the_level_and_all_are_told():
    health = Health()
    health.problem("camera 'front'", "no image")
    health.problem("stopped", "by safety/stop", ERROR, lasting=True)
    condition = health.condition("active")
    assert condition.level == ERROR
    assert condition.message == "stopped: by safety/stop; camera 'front': no image"
    health.clear("stopped")
    assert health.condition("active").level == WARN


def test_a_problem_that_does_not_come_again_becomes_history(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("engram.runtime.health.time.monotonic", lambda: clock[0])
    health = Health()
    health.problem("drop", "once")
    clock[0] = 6.0
    condition = health.condition("active")
    assert condition.level == OK
    assert condition.values["last problem"] == "drop: once"
    assert condition.values["problems drop"] == "1"


def test_traces_are_written_as_json_lines(tmp_path):
    path = tmp_path / "deep" / "trace.jsonl"
    health = Health(str(path))
    health.trace("show", 5)
    health.trace("shown", 5)
    health.write_trace()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(e["event"], e["stamp_ns"]) for e in events] == [("show", 5), ("shown", 5)]
    assert events[0]["at_ns"] <= events[1]["at_ns"]


def test_timed_counts_a_block_that_raises_too():
    health = Health()
    with pytest.raises(ValueError, match="x"), health.timed("work"):
        raise ValueError("x")
    assert health.percentiles()["work"][2] == 1


def test_what_a_stranger_sent_is_not_repeated_at_any_length():
    health = Health()
    health.problem("joint_states", "unknown joint " + 20_000 * "b")
    assert health.last_problem == "joint_states: unknown joint " + 386 * "b" + " ..."


def test_drops_of_all_nodes_are_listed_by_queue():
    values = {"detector drops": "3", "frames": "9", "memory drops": "0"}
    found = drops_by_queue({"perception_node": Condition(OK, "active", values), "sim_node": Condition(OK, "active")})
    assert found == {"perception_node: detector": 3}


def test_a_trace_keeps_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr("engram.runtime.health.TRACED", 2)
    health = Health(str(tmp_path / "trace.jsonl"))
    for stamp_ns in range(4):
        health.trace("show", stamp_ns)
    health.write_trace()
    assert [json.loads(line)["stamp_ns"] for line in (tmp_path / "trace.jsonl").read_text().splitlines()] == [2, 3]
