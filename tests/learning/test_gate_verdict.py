"""A verdict of the gate lets one set of weights drive in place of another, here, and nothing else."""

import json
from dataclasses import asdict, replace

import pytest

from engram.core.errors import WeightsError
from engram.learning.weights.gate_verdict import GateVerdict, read_verdict, verdict_path, write_verdict

NEW, OLD = "a" * 64, "b" * 64


def verdict(decision: str = "promote") -> GateVerdict:
    return GateVerdict(NEW, OLD, "env", decision, "not worse", {"pairs": 3})


def test_a_verdict_survives_the_disk_and_holds(tmp_path) -> None:
    assert write_verdict(tmp_path, verdict()) == verdict_path(tmp_path, NEW, OLD, "env")
    found = read_verdict(tmp_path, NEW, OLD)
    assert found == verdict()
    found.check(NEW, OLD, "env")


@pytest.mark.parametrize(
    ("candidate", "approved", "environment", "message"),
    [
        ("c" * 64, OLD, "env", "void: candidate aaaaaaaaaaaa, expected cccccccccccc"),
        (NEW, "c" * 64, "env", "void: the weights that drive bbbbbbbbbbbb, expected cccccccccccc"),
        (NEW, OLD, "another", "void: environment env, expected another"),
    ],
)
def test_a_verdict_on_something_else_is_void(candidate, approved, environment, message) -> None:
    with pytest.raises(WeightsError, match=message):
        verdict().check(candidate, approved, environment)


@pytest.mark.parametrize("decision", ["reject", "not_shown"])
def test_only_a_promotion_promotes(decision) -> None:
    with pytest.raises(WeightsError, match=rf"did not promote aaaaaaaaaaaa \({decision}\): not worse"):
        verdict(decision).check(NEW, OLD, "env")


def test_a_missing_or_damaged_verdict_is_named(tmp_path) -> None:
    with pytest.raises(WeightsError, match="the gate has not judged aaaaaaaaaaaa against bbbbbbbbbbbb"):
        read_verdict(tmp_path, NEW, OLD)
    wrong = ({"candidate": 5}, {"report": []}, {"more": 1})
    damaged = [json.dumps(asdict(verdict()) | change) for change in wrong]
    for text in ("{", "[]", '{"decision": "promote"}', "\x00", *damaged):
        verdict_path(tmp_path, NEW, OLD, "env").write_text(text)
        with pytest.raises(WeightsError, match=r"aaaa_bbbb.*\.json: cannot be read"):
            read_verdict(tmp_path, NEW, OLD)


def test_a_verdict_on_another_robot_leaves_the_one_on_this(tmp_path) -> None:
    write_verdict(tmp_path, verdict("reject"))
    elsewhere = replace(verdict(), environment="other")
    write_verdict(tmp_path, elsewhere)
    assert read_verdict(tmp_path, NEW, OLD, "env").decision == "reject"
    assert read_verdict(tmp_path, NEW, OLD) == elsewhere  # the newest, where nobody says which robot it is
    with pytest.raises(WeightsError, match="what it judged was another robot, or the code of before; run engram val"):
        read_verdict(tmp_path, NEW, OLD, "third")
