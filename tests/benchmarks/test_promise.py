"""The story of the promise: what it comes to in figures, and what the nodes are started with."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from engram.benchmarks.promise import DATA, Promise, PromiseBenchmark, settings, smuggle
from engram.benchmarks.promise_story import Happening, Story, figures, picture
from engram.benchmarks.robot_twin import Twin
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.runtime.episode_report import LoopError
from engram_interfaces.msg import GateVerdict, PolicyManifest


def goals(version, outcomes, first_s):
    about = {"task": "reach", "version": version, "outcome": "succeeded"}
    return [about | {"truth": outcome == "1", "at_s": first_s + n} for n, outcome in enumerate(outcomes)]


@pytest.fixture
def story():
    told = [
        Happening("drives", "", "v0", 0, 0.0),
        Happening("verdict", "promote: not worse", "v1", 4, 9.0),
        Happening("drives", "", "v1", 5, 10.0),
        Happening("verdict", "promote: not worse", "v2", 8, 15.0),
        Happening("knocked", "knocked", "", 9, 20.0),
        Happening("rolled back", "v1", "v2", 12, 30.0),
        Happening("refused", "the gate has not judged it", "ruined", 12, 31.0),
    ]
    return Story(
        [*goals("v0", "10000", 1.0), *goals("v1", "1111", 11.0), *goals("v2", "000", 21.0)],
        told,
        {"before it was tried": "not judged", "after it was tried": "worse"},
    )


def test_what_the_story_comes_to(story):
    rows = {row["name"]: row for row in figures(story)}
    assert (rows["promise_success_reach_first_version"]["value"], rows["promise_success_reach_first_version"]["n"]) == (
        0.2,
        5,
    )
    assert rows["promise_success_reach_second_version"]["value"] == 1.0
    assert "promise_success_reach_third_version" not in rows  # it drove a robot that had been knocked
    assert rows["promise_goals_until_rolled_back"]["value"] == 3
    assert all(row["met"] is not False for row in rows.values())


def test_what_did_not_happen_is_not_met(story):
    story.refusals["after it was tried"] = ""
    story.happenings = [one for one in story.happenings if one.what not in ("rolled back", "verdict")]
    rows = {row["name"]: row for row in figures(story)}
    missed = {name for name, row in rows.items() if row["met"] is False}
    assert missed == {
        "promise_promoted_by_the_gate", "promise_goals_until_rolled_back", "promise_ruined_refused",
    }  # fmt: skip


def test_the_picture_shows_what_happened(story, tmp_path):
    picture(tmp_path / "promise.svg", story)
    drawn = (tmp_path / "promise.svg").read_text()
    told = (
        "goals reached",
        "5  0 min  knocked: knocked",
        "6  0 min  rolled back v2: v1",
        "7  1 min  refused ruined: the",
    )
    assert all(f"<!-- {text}" in drawn for text in told)


def test_the_robot_trusts_the_learner_and_the_gate_finds_its_gap_by_itself(tmp_path):
    config = PromiseBenchmark(work=tmp_path)
    made = settings(config, tmp_path / "gap.txt")
    assert made.values["accept"] == "approved"
    assert (tmp_path / "nodes" / "home" / DATA / "keys" / "signing.pem").is_file()
    gate = dict(made.parameters["gate_node"])
    assert (gate["on"], gate["identify"], gate["practise"]) == ("none", True, True)
    assert settings(config, tmp_path / "gap.txt") == made  # the key is made once
    json.dumps(dict(made.parameters))


@pytest.mark.timeout(300)
def test_what_a_robots_memory_calls_done_is_a_success_for_the_learner(tmp_path):
    domain = int(os.environ["ROS_DOMAIN_ID"])
    config = PromiseBenchmark(task="reach", work=tmp_path, domain=domain, goal_s=60.0)
    gap = tmp_path / "gap.txt"
    gap.write_text("none")
    twin = Twin(settings(config, gap))
    try:
        twin.loop.wait_active()
        outcomes = []
        while "succeeded" not in outcomes and len(outcomes) < 3:  # a busy machine makes the robot late
            outcomes.append(twin.goal("reach", 6000 + len(outcomes))["outcome"])
        assert outcomes[-1] == "succeeded", outcomes
        counted = f"1 of {len(outcomes)}"
        said = lambda: twin.loop.value("learner_node", "live above") == counted  # noqa: E731
        twin.loop.client.wait_for(said, 60, f"the learner says {counted!r}")
    finally:
        twin.close()


def test_what_is_smuggled_into_a_running_learners_library_is_one_of_its_candidates(tmp_path):
    library = WeightsLibrary(tmp_path)
    data = save({"w": np.ones(3, np.float32)})
    smuggle(tmp_path, data, make_manifest(data, "ruined"))
    assert (library.newest(), library.get("ruined")[0]) == ("ruined", data)
    library.close()


def told(version, decision):
    return GateVerdict(candidate=version, decision=decision)


def test_the_robot_rests_until_something_else_drives_and_tells_when_nothing_did():
    promise, story = Promise.__new__(Promise), Story()
    promise.config, promise.story, promise.began = PromiseBenchmark(), story, 0.0
    promise.promoted, promise.candidate = "", ""
    announced = iter([("candidate", "new"), ("approved", "old"), ("canary", "new")])

    class Client:
        def wait_for(self, condition, timeout_s, what):
            for _ in range(4):
                if condition():
                    return
                stage, version = next(announced, ("approved", "new"))
                promise._on_manifest(PolicyManifest(stage=stage, version=version))
            raise LoopError(f"{what}: not within {timeout_s} s")

    promise.loop = SimpleNamespace(client=Client())
    assert promise.rest({"old"}, 1.0)
    assert (promise.promoted, promise.candidate) == ("new", "new")
    assert not promise.rest({"old", "new"}, 1.0)
    assert [one.what for one in story.happenings] == ["rests", "candidate", "rests", "nothing promoted"]


def test_a_goal_is_counted_for_the_version_that_drove_when_it_ended():
    """What was promoted while the robot rested is taken with the first step of the next goal."""
    promise, story = Promise.__new__(Promise), Story()
    promise.config, promise.story, promise.began, promise._drove = PromiseBenchmark(), story, 0.0, "old"
    drives = iter(["old", "new", "", "new"])
    promise.loop = SimpleNamespace(value=lambda node, key: next(drives))
    promise.twin = SimpleNamespace(goal=lambda task, seed: {"truth": True, "outcome": "succeeded"})
    promise.goal("stack")
    promise.goal("stack")
    assert [goal["version"] for goal in story.goals] == ["new", "new"]
    assert [(one.what, one.version) for one in story.happenings] == [("drives", "new")]


def test_what_was_promoted_last_is_rolled_back_also_where_it_has_not_driven_yet(tmp_path):
    promise, story = Promise.__new__(Promise), Story()
    promise.config, promise.story, promise.began, promise.promoted = PromiseBenchmark(), story, 0.0, "second"
    promise.tell("drives", "", "base")
    promise.tell("drives", "", "first")

    def goal(task):
        if len(story.goals) == 3:
            promise.promoted = "first"
        story.goals.append({})

    promise.goal = goal
    promise.knock(tmp_path / "gap.txt")
    assert (tmp_path / "gap.txt").read_text() == "knocked" and len(story.goals) == 4
    assert (story.happenings[-1].what, story.happenings[-1].version) == ("rolled back", "second")


def test_a_candidate_is_judged_once_the_gate_has_told_more_than_progress():
    promise = Promise.__new__(Promise)
    promise.candidate, promise.verdicts = "", {}
    assert promise.judged()
    promise.candidate = "new"
    assert not promise.judged()
    promise.verdicts["new"] = told("new", "open")
    assert not promise.judged()
    promise.verdicts["new"] = told("new", "reject")
    assert promise.judged()


def test_a_gap_that_the_simulation_cannot_have_is_refused_before_anything_runs():
    with pytest.raises(InvalidInputError, match="'turned' has yaw_deg, and that cannot be built into the simulated"):
        PromiseBenchmark(on="turned")
    with pytest.raises(UnknownNameError, match="unknown gap 'nonsense'"):
        PromiseBenchmark(knocked="nonsense")


def test_goals_are_worked_on_and_rested_from_until_two_candidates_drive():
    for rests, wanted in (([True, True], True), ([True, False], True), ([False], False)):
        promise, did = Promise.__new__(Promise), []
        promise.config = PromiseBenchmark(quick=True)
        promise.work = lambda task, most, did=did: did.append(f"{most} {task}")
        answers = iter(rests)
        promise.loop, promise.promoted = SimpleNamespace(value=lambda node, key: "v0"), "v1"
        promise.rest = lambda known, longest_s, answers=answers, did=did: did.append("rest") or next(answers)
        assert promise.learn() == wanted
        whole = ["10 stack", "rest", "10 stack", "rest"]
        assert did == (whole if wanted else whole[:2])
