"""The demo: its figures by hand, its verdict on a loop that did not work, and one real run of all processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    memory_figures,
    memory_shows,
    summary,
    verdict,
    with_environment,
    with_traces,
)
from engram.app.launch_graph import find_launch_file, load_graph
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.policies.vla.recurrent_state import ABLATIONS, NO_CONTEXT
from engram.runtime.episode_report import EpisodeReport, LoopError
from engram.runtime.latency import camera_to_command_ms, read_trace, stage_ms

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
        DemoConfig()


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
    remembers = ("--memory-policy", "engram", "--memory-episodes", "1", "--memory-ablation", "no_context")
    remembers += ("--memory-task", "touch_unseen:delay=5")
    code, figures, printed = run_demo("--episodes", "1", "--tasks", "reach", *policy, *remembers, log_dir=tmp_path)
    assert code == 0, printed
    (shown,) = figures["memory_tasks"]
    assert shown["read"] == [1, 1]  # what it touches no camera sees: it goes by what the memory node says
    assert shown["not read"][1] == 1 and "memory not read" in printed
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
