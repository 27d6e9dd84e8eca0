"""The demo: its figures by hand, its verdict on a loop that did not work, and one real run of all processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from engram.app.demo import (
    WAYS,
    Ablation,
    Demo,
    DemoConfig,
    MemoryShow,
    check_tasks,
    demo,
    launch_values,
    learner_folder,
    learning_show,
    memory_figures,
    memory_shows,
    prepared,
    summary,
    verdict,
    with_environment,
    with_traces,
)
from engram.app.demo_learning import Course, Learning, LearningShow, News
from engram.app.launch_graph import find_launch_file, load_graph
from engram.core.errors import EngramError, InvalidInputError, UnknownNameError
from engram.policies.vla.recurrent_state import ABLATIONS, NO_CONTEXT
from engram.runtime.episode_report import EpisodeReport, LoopError
from engram.runtime.health import Condition
from engram.runtime.latency import camera_to_command_ms, read_trace, stage_ms
from engram.runtime.policy_notes import DRIVING

ROOT = Path(__file__).parents[2]


def report(task: str, outcome: str) -> EpisodeReport:
    return EpisodeReport(task, 0, 1, "words", outcome, "why", 10, 1.0)


def test_figures_of_three_episodes() -> None:
    reports = [report("reach", "succeeded"), report("stack", "timeout"), report("reach", "failed")]
    drops = {"perception_node: detector": 3, "learner_node: train": 1}
    figures = summary(reports, np.array([10.0, 20.0, 30.0]), 1, drops, {"seconds": 9.0})
    assert (figures["episodes"], figures["successes"], figures["restarts"], figures["drops"]) == (3, 1, 1, 4)
    assert figures["drops_by_node"] == drops
    assert figures["latency_p50_ms"] == 20.0
    assert figures["latency_p99_ms"] == pytest.approx(29.8)  # 20 + 0.98 * 10
    assert figures["success_interval_95"] == [0.0615, 0.7923]  # Wilson, 1 of 3
    assert figures["by_task"] == {"reach": [1, 2], "stack": [0, 1]}
    assert figures["outcomes"] == {"failed": 1, "succeeded": 1, "timeout": 1}
    json.dumps(figures, allow_nan=False)


def test_the_memory_task_is_counted_by_how_memory_was_used() -> None:
    done = {"read": [report("shell_touch", "succeeded")] * 2, "not read": [report("shell_touch", "timeout")] * 2}
    assert memory_figures({MemoryShow("mine", "shell_touch", "zeroed"): done}) == [
        {"task": "shell_touch", "policy": "mine", "read": [2, 2], "not read": [0, 2]}
    ]
    assert memory_figures({}) == []


def test_what_was_not_measured_is_null() -> None:
    figures = summary([], np.zeros(0), 0, {}, {})
    assert figures["latency_p50_ms"] is None
    assert figures["success_interval_95"] is None


def test_the_verdict_names_what_did_not_work() -> None:
    done = [report("reach", "succeeded"), report("stack", "timeout")]
    assert verdict(done, 2, 50, []) == ""
    assert verdict(done, 3, 50, []) == "2 of 3 episodes ran to an outcome"
    assert "reach seed 0: rejected (why)" in verdict([report("reach", "rejected")], 1, 50, [])
    assert verdict(done, 2, 50, ["memory_node"]) == "nodes that are not alive: memory_node"
    assert verdict(done, 2, 0, []) == "no command reached the robot"


def test_latency_is_from_the_first_showing_to_the_command(tmp_path: Path) -> None:
    def write(name: str, rows: list[tuple[str, int, int]]) -> None:
        lines = [json.dumps({"event": e, "stamp_ns": s, "at_ns": a}) for e, s, a in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    write("sim_node", [("show", 1, 1_000_000), ("show", 1, 9_000_000), ("show", 2, 20_000_000), ("show", 3, 0)])
    write("safety_node", [("command sent", 1, 4_500_000), ("command sent", 2, 22_000_000), ("other", 3, 5)])
    assert camera_to_command_ms(tmp_path).tolist() == [3.5, 2.0]
    assert camera_to_command_ms(tmp_path / "elsewhere").size == 0
    assert stage_ms({1: 10, 2: 20}, {2: 10}).size == 0  # an end before its beginning is another step's
    (tmp_path / "bad.jsonl").write_text('{"event": "x"}\n')
    with pytest.raises(InvalidInputError, match=r"bad.jsonl:1: .*stamp_ns"):
        read_trace(tmp_path / "bad.jsonl")


def test_flags_and_environment_reach_the_launch_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADLESS", "1")
    monkeypatch.setenv("EPISODES", "3")
    config = with_environment(DemoConfig(port=9001, launch=("seed:=5",)))
    assert (config.headless, config.episodes) == (True, 3)
    values = launch_values(config)
    assert (values["viewer"], values["port"], values["seed"]) == ("false", "9001", "5")
    graph = with_traces(load_graph(find_launch_file("sim"), values), tmp_path)
    traced = {n.name: dict(n.parameters).get("trace_file") for n in graph.nodes}
    assert traced["safety_node"] == str(tmp_path / "safety_node.jsonl")
    assert traced["lifecycle_manager"] is None
    monkeypatch.setenv("EPISODES", "many")
    with pytest.raises(InvalidInputError, match="EPISODES: 'many'"):
        with_environment(DemoConfig())
    assert with_environment(DemoConfig(episodes=4)).episodes == 4


@pytest.mark.parametrize("idle", [{"memory_task": "shell_touch"}, {"memory_ablation": "noise", "memory_policy": ""}])
def test_what_would_show_nothing_of_the_memory_is_refused(idle):
    with pytest.raises(InvalidInputError, match=rf"DemoConfig\.{next(iter(idle))}: .* would change nothing without"):
        memory_shows(DemoConfig(**idle))


def test_memory_is_shown_after_the_usual_tasks_or_as_asked() -> None:
    assert [(show.policy, show.ablation) for show in memory_shows(DemoConfig())] == [
        ("engram", "zeroed"), ("engram", "no_context")
    ]  # fmt: skip
    for none in (DemoConfig(tasks=("reach",)), DemoConfig(episodes=0), DemoConfig(memory_policy="")):
        assert memory_shows(none) == ()
    mine = DemoConfig(tasks=("reach",), memory_policy="mine", memory_task="touch_unseen", memory_ablation="no_context")
    (show,) = memory_shows(mine)
    assert show == MemoryShow("mine", "touch_unseen", "no_context")
    assert [show.ablation_of(way) for way in WAYS] == ["", "no_context"]
    assert get_args(Ablation) == (*ABLATIONS[1:], NO_CONTEXT)


def test_a_robot_that_differs_learns_in_place_of_the_usual_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNING", "1")
    monkeypatch.delenv("EPISODES", raising=False)
    config = with_environment(DemoConfig(learning_task="stack", learning_on="late"))
    assert learning_show(config) == LearningShow("base", "stack", "late", 10, 3600.0)
    assert memory_shows(config) == ()
    assert launch_values(config)["world"] == "tabletop:gap=late"


def test_what_is_learnt_stays_in_a_new_home(tmp_path: Path) -> None:
    """What suits this robot would harm the next demo, and what the last one learnt would spoil this one."""
    config = DemoConfig(learning=True, episodes=4)
    (graph, environment), (_, again) = prepared(config, tmp_path), prepared(config, tmp_path)
    assert Path(environment["HOME"]).parent == tmp_path and environment["HOME"] != again["HOME"]
    learns = {node.name: dict(node.parameters) for node in graph.nodes}
    assert learns["gate_node"]["practise"] and learns["gate_node"]["identify"]
    assert learns["learner_node"]["learner.updates_per_episode"] == 0
    assert dict(graph.nodes[0].parameters)["world"] == "tabletop:gap=front_moved"
    assert learner_folder(graph, environment).is_relative_to(environment["HOME"])
    usual, home = prepared(DemoConfig(), tmp_path)
    assert home.get("HOME") == os.environ.get("HOME")
    assert not dict(next(n for n in usual.nodes if n.name == "gate_node").parameters).get("practise")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"learning_task": "reach", "learning": False},
            "learning_task: reach: would change nothing without --learning",
        ),
        ({"tasks": ("reach",)}, "would change nothing with --learning"),
        ({"memory_policy": "engram"}, "would change nothing with --learning"),
        ({"learner": False}, "the node that learns"),
        ({"learning_on": "turned"}, "'turned' has yaw_deg"),
        ({"learning_on": "gap.json"}, "'gap.json' is a file of engram identify, which always says how motions differ"),
        ({"learning_on": "latr"}, "unknown gap 'latr'"),
        ({"learning_on": "none"}, "'none' differs in nothing"),
        ({"learning_task": "remember_color"}, "unknown task of the policy base 'remember_color'; valid: "),
        ({"policy": "bse"}, "unknown policy 'bse'"),
        ({"episodes": 3}, "episodes: 3, expected 4 or more"),
        ({"launch": ("gate:=false",)}, "launch: gate: the demo of learning sets it itself"),
    ],
)
def test_what_could_not_be_learnt_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        learning_show(DemoConfig(**{"learning": True, "episodes": 4} | wrong))


class Nodes:
    """Stand for the running nodes: after ``better_after`` looks at them the learner lets something better drive."""

    def __init__(self, better_after: float, gate: dict[str, str] | None = None, learner: str = "v0") -> None:
        self.seeds: list[int] = []
        self._looks, self._better_after, self._gate, self._before = 0, better_after, gate or {}, learner
        self._drives = "v0"

    @property
    def diagnostics(self) -> dict[str, Condition]:
        better = self._looks >= self._better_after
        gate = {"practice": f"{self._looks} episodes"} if self._looks else {}
        learner = {DRIVING: "v1" if better else self._before, MADE: self._gate.get(MADE, "0")}
        return {
            "learner_node": Condition("OK", "", learner),
            "policy_node": Condition("OK", "", {"policy version": self._drives}),
            "gate_node": Condition("OK", "", gate | self._gate),
        }

    def run_episode(self, task: str, seed: int, timeout_s: float) -> EpisodeReport:
        """It takes new weights with its next goal."""
        self.seeds.append(seed)
        self._drives = self.diagnostics["learner_node"].values[DRIVING]
        return report(task, "succeeded" if self._drives == "v1" else "timeout")

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        while not condition():
            if not timeout_s:
                raise LoopError(f"{what}: not within 0 s")
            self._before = "v0"

    def spin(self, seconds: float) -> None:
        self._looks += 1


def learn(nodes: Nodes, failed: tuple[str, ...] = (), longest_s: float = 60.0) -> tuple[Learning, list[str]]:
    learning, told = Learning(LearningShow("base", "stack", "late", 4, longest_s)), []
    Course(learning, nodes, told.append, lambda: failed, 5, 1.0).run(1.0)
    return learning, told


def test_the_same_goals_are_given_before_and_after() -> None:
    nodes = Nodes(better_after=3, learner="")  # the learner comes up last
    learning, told = learn(nodes)
    figures = learning.figures()
    assert nodes.seeds == [5, 6, 7, 8, 9, 5, 6, 7, 8]  # the fifth goal does not count: with it new weights drive
    assert (figures["before"], figures["after"], figures["version"]) == ([0, 4], [4, 4], "v1")
    assert learning.wanted == len(learning.reports) == 8 and figures["minutes"] >= 0.0
    assert "  before  . . . .   0 of 4\n  after   x x x x   4 of 4" in told
    assert any("practice: 1 episodes" in line for line in told)


MADE = "learner candidates"
NO_MORE = {"practice": "nothing more is found that makes stack go better"}


@pytest.mark.parametrize(
    ("gate", "longest_s", "why"),
    [
        ({}, 0.0, "not within 0 s"),
        ({"judges": "nothing: no such robot"}, 60.0, "nothing: no such robot"),
        ({"practice": "cannot practise: a policy that remembers"}, 60.0, "cannot practise: a policy that remembers"),
        (NO_MORE, 60.0, "nothing more is found that makes stack go better"),
        (
            {**NO_MORE, MADE: "2", "verdicts failed": "1", "verdicts reject": "1"},
            60.0,
            "nothing more is found that makes stack go better",
        ),
    ],
)
def test_nothing_is_waited_for_in_vain(gate: dict[str, str], longest_s: float, why: str) -> None:
    learning, told = learn(Nodes(np.inf, gate), longest_s=longest_s)
    assert told[-1] == f"nothing better drives: {why}"
    assert (learning.figures()["after"], learning.minutes, learning.version) == ([0, 0], None, "")
    assert learning.wanted == len(learning.reports) == 4


def test_a_node_that_is_needed_and_stays_down_ends_it() -> None:
    with pytest.raises(LoopError, match="gate_node stays down"):
        learn(Nodes(np.inf), failed=("viewer_node", "gate_node"))


def test_what_is_promoted_early_ends_the_goals_before() -> None:
    nodes = Nodes(better_after=0.0)
    nodes._looks = -2
    nodes.run_episode = lambda *about, run=nodes.run_episode: (nodes.spin(0.0), run(*about))[1]
    learning, told = learn(nodes)
    assert len(learning.before) == 2 and "other weights drive now" in told
    assert len(learning.after) == 4 and learning.wanted == len(learning.reports)


def test_news_are_told_when_they_change_and_not_too_often() -> None:
    told: list[str] = []
    now = [100.0]
    news = News(told.append, lambda: now[0])
    for seconds, said in ((0, ""), (1, "one"), (2, "two"), (15, "two"), (25, "three"), (50, "three"), (60, "four")):
        now[0] = 100.0 + seconds
        news.look({"gate_node": Condition("OK", "", {"practice": said, "other": "x"})})
    assert told == ["      1 s  practice: one", "     25 s  practice: three", "     60 s  practice: four"]


@pytest.mark.parametrize("words", [("make", "demo", "HEADLESS=1"), ("make", "demo")])
def test_make_demo_is_headless_when_asked_in_either_way(words: tuple[str, ...]) -> None:
    environment = os.environ | {"HEADLESS": "1", "EPISODES": "0", "ENGRAM_SKIP_APT": "1"}
    command = [*words, "-o", "setup", f"BIN={Path(sys.executable).parent}", "ARGS=--headless --tasks nonsense"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert "unknown task 'nonsense'" in done.stderr  # the flags were understood: only the task is wrong


def test_a_learner_that_fails_ends_the_demo_where_it_takes_the_others_with_it() -> None:
    for ending in (False, True):
        supervisor = SimpleNamespace(step=lambda: True, failures=["learner_node"], ending=ending)
        client = SimpleNamespace(moving_since=None)
        Demo(DemoConfig(), supervisor, client, SimpleNamespace(error=lambda name: f": {name}'s reason"))
        if ending:
            with pytest.raises(LoopError, match="learner_node stays down: learner_node's reason"):
                client.idle()
        else:
            client.idle()


@pytest.mark.parametrize("wrong", ["episodes", "memory_episodes"])
def test_less_than_no_episodes_is_an_error(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{wrong}: -1, expected 0 or more"):
        demo(DemoConfig(**{wrong: -1}))


def test_unknown_tasks_are_named() -> None:
    assert check_tasks(()) == ["reach", "push_to_mark", "pick_place", "stack", "open_drawer", "press_button"]
    with pytest.raises(UnknownNameError, match="'stak'; did you mean 'stack'"):
        check_tasks(("stak",))


def run_demo(*words: str, log_dir: Path) -> tuple[int, dict[str, object], str]:
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    environment = {**os.environ, "PYTHONPATH": path, "HEADLESS": "1"}
    environment["HOME"] = str(log_dir)  # a memory of its own
    command = [sys.executable, "-m", "engram.app.cli", "demo", *words, "--log-dir", str(log_dir)]
    command += ["--startup-timeout-s", "600"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.mark.ros
@pytest.mark.render
@pytest.mark.slow
@pytest.mark.timeout(
    900
)  # seven processes import torch, MuJoCo and Open3D: 20 s on two idle cores, minutes on busy ones
def test_one_episode_through_every_process(tmp_path: Path) -> None:
    policy = ("--policy", "tests.ros.policies:EyesAndNoise", "--no-learner", "--domain", os.environ["ROS_DOMAIN_ID"])
    remembers = ("--memory-policy", "engram", "--memory-episodes", "2", "--memory-ablation", "no_context")
    remembers += ("--memory-task", "touch_unseen:delay=5")
    code, figures, printed = run_demo("--episodes", "1", "--tasks", "reach", *policy, *remembers, log_dir=tmp_path)
    assert code == 0, printed
    (shown,) = figures["memory_tasks"]
    # what it touches no camera sees: it goes by what the memory node says, a context of up to three steps before
    assert shown["read"][0] >= 1 and shown["read"][1] == 2, printed
    assert shown["not read"][1] == 2 and "memory not read" in printed
    assert figures["episodes"] == 1
    assert figures["problem"] is None
    assert figures["restarts"] == 0
    assert figures["latency_steps"] == figures["commands"] > 0
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"]
    assert "1/1 reach" in printed
    assert 0 < figures["moving_after_s"] < figures["seconds"]
    assert f"robot moving after {figures['moving_after_s']} s" in printed


@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.timeout(
    900
)  # seven processes import torch, MuJoCo and Open3D: 20 s on two idle cores, minutes on busy ones
def test_a_loop_that_cannot_start_is_an_error_with_its_reason(tmp_path: Path) -> None:
    policy = ("--policy", "tests.ros.policies:Nobody", "--no-learner", "--domain", os.environ["ROS_DOMAIN_ID"])
    code, figures, printed = run_demo("--episodes", "1", *policy, log_dir=tmp_path)
    assert code == 1
    assert figures["episodes"] == 0
    assert "policy 'tests.ros.policies:Nobody': unknown attribute of tests.ros.policies 'Nobody'" in printed
    assert "policy_node" in str(figures["problem"])
