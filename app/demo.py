"""``engram demo``: starts the nodes, lets them do tasks given in words in simulation and reports the outcome.

The last line on standard output is one JSON object. The exit code is 0 only if the loop worked: every episode came to
an outcome, every node is alive and commands were published. Whether a task succeeded is a result, not an error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm import tqdm

from engram.app.demo_learning import Course, Learning, LearningShow, with_learning
from engram.app.launch_graph import LaunchGraph, find_launch_file, load_graph, parse_assignments
from engram.app.options import refuse
from engram.app.up import DISCOVERY, LineSink, Supervisor, child_environment, end_on_signals
from engram.core.errors import EngramError, InvalidInputError
from engram.core.ports import require_free_port
from engram.core.registry import is_spec, split_options
from engram.core.statistics import wilson
from engram.nodes.loop_client import LoopClient
from engram.runtime.episode_report import OUTCOMES, EpisodeReport, LoopError
from engram.runtime.factories import check_policy_name
from engram.runtime.health import drops_by_queue
from engram.runtime.latency import camera_to_command_ms

BESIDE_THE_LOOP = ("viewer_node", "learner_node", "gate_node")
"""Nodes whose failure does not end the demo (it still makes its exit code 1), unless they could never have worked."""
Ablation = Literal["zeroed", "swapped", "noise", "no_context"]
WAYS = ("read", "not read")
"""How a policy's memory is used."""
PROCESS_STARTED = time.monotonic() - time.process_time()
"""When this process began, as well as its own CPU time tells [monotonic s]: the start-up's stopwatch."""


@dataclass(frozen=True)
class MemoryShow:
    """A task that needs memory, run twice on the same seeds: with the memory intact and with an ablation."""

    policy: str
    task: str
    ablation: str  # the policy node's parameter when it is not read

    def ablation_of(self, way: str) -> str:
        """Return the policy node's parameter ``ablation`` for one of ``WAYS``."""
        return "" if way == "read" else self.ablation


SHOWS = (
    MemoryShow("engram", "remember_color", "zeroed"),
    MemoryShow("engram", "touch_unseen", "no_context"),
)
"""A policy's own memory of its episode, and the scene graph's objects from ``memory/context``."""


def _environment_flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


def _environment_int(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdigit():
        raise InvalidInputError(f"environment variable {name}: {text!r}, expected a whole number of 0 or more")
    return int(text)


@dataclass(frozen=True)
class DemoConfig:
    """Run the whole loop in simulation: tasks given in words, one after the other, and a web page."""

    episodes: int | None = None
    """Episodes to run (environment: EPISODES; else 6). With the page, the nodes then wait for your own instructions.
    With ``learning``: episodes before it learns, and again afterwards (else 10)."""
    headless: bool = False
    """No page; end after the episodes (environment: HEADLESS=1)."""
    tasks: tuple[str, ...] = ()
    """Tasks to take in turn; default: the six tabletop tasks."""
    seed: int = 0
    """Seed of the first episode; the next one's is one higher."""
    policy: str = "base"
    """Checkpoint that drives: a shipped name or a folder."""
    memory_policy: str | None = None
    """Checkpoint that runs ``memory_task`` after the episodes, twice on each seed: intact and with the ablation.
    Empty: none. Default: ``engram`` with two tasks, unless ``tasks`` is given."""
    memory_task: str = "remember_color"
    """Task for ``memory_policy`` that needs memory."""
    memory_ablation: Ablation = "zeroed"
    """The ablation: zeroed (the sequence memory is emptied), swapped, noise, or no_context (memory/context is
    withheld)."""
    memory_episodes: int = 2
    """Seeds of each memory task, each run twice."""
    profile: str = "fast"
    """How the cameras are rendered: fast or photo."""
    learning: bool = False
    """In place of the usual tasks, and of those that need memory, a robot learns one that it fails at (environment:
    LEARNING=1). That takes about a quarter of an hour."""
    learning_task: str = "pick_place"
    """What it learns."""
    learning_on: str = "front_moved"
    """How it differs from the robot that the policy was trained on, which nothing tells the nodes: front_moved (its
    camera was moved), late, mounted, or another gap of engram improve that can be built into the simulated world, but
    no file."""
    learning_timeout_s: float = 3600.0
    """Longest time from the first goal until something better drives [s]; then the demo says that nothing does."""
    learner: bool = True
    """With --no-learner nothing is trained beside the loop; what happens is still kept in the robot's spool."""
    port: int = 8080
    """TCP port of the page."""
    domain: int | None = None
    """ROS_DOMAIN_ID, 0..101 (Linux may give the ports of a larger one to other programs); default: the
    environment's, else 0."""
    log_dir: Path | None = None
    """Folder for one log file and one trace a node; default: a new folder in the temporary directory."""
    verbose: bool = False
    """Print what the nodes print (to standard error)."""
    launch: tuple[str, ...] = ()
    """Further launch arguments of sim.launch.yaml, as name:=value."""
    startup_timeout_s: float = 300.0
    """How long the nodes may take to become active [s]."""
    episode_timeout_s: float = 300.0
    """How long one episode may take, wall clock [s]."""


def with_environment(config: DemoConfig) -> DemoConfig:
    """Return ``config`` with what was left open as the environment has it."""
    learning = config.learning or _environment_flag("LEARNING")
    episodes = _environment_int("EPISODES", 10 if learning else 6) if config.episodes is None else config.episodes
    headless = config.headless or _environment_flag("HEADLESS")
    return dataclasses.replace(config, headless=headless, learning=learning, episodes=episodes)


def learning_show(config: DemoConfig) -> LearningShow | None:
    """Return what is shown of learning.

    Raises:
        InvalidInputError: an option would change nothing, nothing could be learnt, or the robot differs in its motions.
        UnknownNameError: there is no such policy or robot, or the policy was not trained on the task.
    """
    if not config.learning:
        refuse(config, ("learning_task", "learning_on", "learning_timeout_s"), " without --learning")
        return None
    refuse(config, ("tasks", "memory_policy", "memory_task", "memory_ablation", "memory_episodes"), " with --learning")
    if not config.learner:
        raise InvalidInputError("DemoConfig.learner: False, and with --learning that is the node that learns")
    show = LearningShow(
        config.policy, config.learning_task, config.learning_on, config.episodes or 0, config.learning_timeout_s
    )
    show.check_launch(parse_assignments(config.launch))
    return show


def memory_shows(config: DemoConfig) -> tuple[MemoryShow, ...]:
    """Return what is shown of memory after the episodes."""
    if config.learning:
        return ()
    if not config.memory_policy:
        refuse(config, ("memory_task", "memory_ablation"), " without a memory_policy, such as engram")
    if config.memory_policy is None:
        return () if config.tasks or config.episodes == 0 else SHOWS
    chosen = MemoryShow(config.memory_policy, config.memory_task, config.memory_ablation)
    return (chosen,) if config.memory_policy else ()


def launch_values(config: DemoConfig) -> dict[str, str]:
    """Return the launch arguments that ``config`` stands for."""
    shows, learning = memory_shows(config), learning_show(config)
    tasks = (*config.tasks, config.memory_task, *(show.task for show in shows))
    values = {
        "policy": config.policy,
        "policies": ",".join(dict.fromkeys(show.policy for show in shows)),
        "tasks": ",".join(dict.fromkeys(filter(is_spec, (split_options(task)[0] for task in tasks)))),
        "profile": config.profile,
        "learner": str(config.learner).lower(),
        "viewer": str(not config.headless).lower(),
        "port": str(config.port),
    } | ({"world": learning.world} if learning is not None else {})
    return values | parse_assignments(config.launch)


def with_traces(graph: LaunchGraph, folder: Path) -> LaunchGraph:
    """Return ``graph`` with every node of the loop writing a trace into ``folder``."""
    untraced = ("lifecycle_manager", "viewer_node")
    nodes = [
        node
        if node.executable in untraced
        else dataclasses.replace(
            node, parameters=(*node.parameters, ("trace_file", str(folder / f"{node.executable}.jsonl")))
        )
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


class Demo:
    """The episodes of one demo, on a supervisor and a client that are given to it."""

    def __init__(self, config: DemoConfig, supervisor: Supervisor, client: LoopClient, sink: LineSink) -> None:
        self.config, self.supervisor, self.client, self.sink = config, supervisor, client, sink
        self.reports: list[EpisodeReport] = []
        self.remembering: dict[MemoryShow, dict[str, list[EpisodeReport]]] = {
            show: {way: [] for way in WAYS} for show in memory_shows(config)
        }
        learning = learning_show(config)
        self.learning = None if learning is None else Learning(learning)
        self.moving_after_s: float | None = None
        client.idle = self._idle

    def _idle(self) -> None:
        """Keep the processes as they should be; raises LoopError when the loop has lost a node for good."""
        self.supervisor.step()
        if self.moving_after_s is None and self.client.moving_since is not None:
            self.moving_after_s = round(self.client.moving_since - PROCESS_STARTED, 1)
            tqdm.write(f"robot moving after {self.moving_after_s} s", file=sys.stdout)
            sys.stdout.flush()
        # a node that can never work takes all others with it, whichever it is
        lost = [name for name in self.supervisor.failures if self.supervisor.ending or name not in BESIDE_THE_LOOP]
        if lost:
            raise LoopError(f"{lost[0]} stays down{self.sink.error(lost[0])}")

    def last_words(self) -> str:
        """Return the last lines of every node that failed, each with its name."""
        manager = self.client.diagnostics.get("lifecycle_manager")
        failed = [name for name, state in manager.values.items() if state == "failed"] if manager is not None else []
        names = dict.fromkeys([*failed, *self.supervisor.failures])
        return "".join(f"  [{name}] {line}\n" for name in names for line in self.sink.tail(name, 6))

    def start(self) -> None:
        """Start the nodes and wait until all of them are active."""
        self.client.idle = lambda: None  # nothing is started before the domain is known to be free
        others = [name for name in self.client.others() if name in self.supervisor.children]
        self.client.idle = self._idle
        if others:
            raise LoopError(
                f"{', '.join(others)} already run on this ROS domain; choose another with --domain, or end them"
            )
        print("starting the nodes ...", flush=True)
        self.client.wait_active(self.config.startup_timeout_s, lambda summary: print(f"  {summary}", flush=True))

    def run(self, tasks: list[str]) -> None:
        """Run the episodes, one line each."""
        total = self.config.episodes or 0
        with tqdm(total=total, unit="episode", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
            for index in range(total):
                task, seed = tasks[index % len(tasks)], self.config.seed + index
                bar.set_postfix_str(task)
                report = self.client.run_episode(task, seed, self.config.episode_timeout_s)
                self.reports.append(report)
                tqdm.write(report.line(index + 1, total), file=sys.stdout)
                sys.stdout.flush()
                bar.update()

    def compare_memory(self) -> None:
        """Run each memory task with and without its memory read, on the same seeds; then as before."""
        config = self.config
        for show, ways in self.remembering.items():
            print(f"a task that needs memory: {show.task}, driven by {show.policy}", flush=True)
            for way, done in ways.items():
                self.client.drive_by(show.policy, show.ablation_of(way), config.startup_timeout_s)
                for index in range(config.memory_episodes):
                    report = self.client.run_episode(show.task, config.seed + index, config.episode_timeout_s)
                    done.append(report)
                    print(f"  memory {way:8}  {report.line(index + 1, config.memory_episodes)}", flush=True)
        if self.remembering:
            self.client.drive_by(config.policy, "", config.startup_timeout_s)

    def wait_for_ctrl_c(self) -> None:
        """Let the page's visitors give instructions."""
        print(f"the page http://localhost:{self.config.port} takes your instructions; Ctrl-C ends", flush=True)
        while True:
            self.client.spin(1.0)


def summary(
    reports: list[EpisodeReport],
    latency_ms: np.ndarray,
    restarts: int,
    drops: Mapping[str, int],
    extra: Mapping[str, object],
) -> dict[str, object]:
    """Return the figures of a demo, ready for JSON; a figure that could not be measured is None."""
    successes = sum(r.outcome == "succeeded" for r in reports)
    rate = wilson(successes, len(reports)) if reports else None
    p50, p99 = np.percentile(latency_ms, (50, 99)).round(2).tolist() if len(latency_ms) else (None, None)
    tasks = sorted({r.task for r in reports})
    return {
        "episodes": len(reports),
        "successes": successes,
        "success_interval_95": [round(rate.low, 4), round(rate.high, 4)] if rate else None,
        "latency_p50_ms": p50,
        "latency_p99_ms": p99,
        "latency_steps": len(latency_ms),
        "restarts": restarts,
        "drops": sum(drops.values()),
        "drops_by_node": dict(drops),
        "outcomes": {o: sum(r.outcome == o for r in reports) for o in sorted({r.outcome for r in reports})},
        "by_task": {t: [sum(r.outcome == "succeeded" for r in reports if r.task == t),
                        sum(r.task == t for r in reports)] for t in tasks},
        **extra,
    }  # fmt: skip


def memory_figures(remembering: Mapping[MemoryShow, Mapping[str, list[EpisodeReport]]]) -> list[dict[str, object]]:
    """Return what came of each memory task, [successes, episodes] each way."""
    return [
        {"task": show.task, "policy": show.policy}
        | {way: [sum(r.outcome == "succeeded" for r in done), len(done)] for way, done in ways.items()}
        for show, ways in remembering.items()
    ]


def verdict(reports: list[EpisodeReport], wanted: int, commands: int, dead: list[str]) -> str:
    """Return why the loop did not do its work; empty when it did."""
    unfinished = [f"{r.task} seed {r.seed}: {r.outcome} ({r.reason})" for r in reports if r.outcome not in OUTCOMES]
    if len(reports) < wanted:
        return f"{len(reports)} of {wanted} episodes ran to an outcome"
    if unfinished:
        return f"episodes without an outcome of their own: {'; '.join(unfinished)}"
    if dead:
        return f"nodes that are not alive: {', '.join(dead)}"
    if wanted and not commands:
        return "no command reached the robot"
    return ""


def prepared(config: DemoConfig, log_dir: Path) -> tuple[LaunchGraph, dict[str, str]]:
    """Return the nodes to start, and their environment variables.

    A robot that learns gets a new home in ``log_dir``: what it learns suits it alone, and no other run of the demo.
    """
    environment = child_environment(config.domain, os.environ.get(DISCOVERY, "LOCALHOST"))
    graph = with_traces(load_graph(find_launch_file("sim"), launch_values(config), environment), log_dir)
    if config.learning:
        log_dir.mkdir(parents=True, exist_ok=True)
        environment["HOME"] = tempfile.mkdtemp(prefix="home-", dir=log_dir.resolve())
        graph = with_learning(graph)
    return graph, environment


def check_tasks(names: tuple[str, ...]) -> list[str]:
    """Return the tasks to run, by default the tabletop ones; raises UnknownNameError with the valid names."""
    from engram.sim.tasks import expand

    return list(expand(names or ("tabletop",)))


def learner_folder(graph: LaunchGraph, environment: Mapping[str, str]) -> Path:
    """Return the folder of the learner that runs in ``graph``."""
    robot = graph.values.get("namespace", "").strip("/").replace("/", "_") or "robot0"
    return Path(environment.get("HOME", "~")) / f".local/share/engram/sim-{robot}/learner"


def tell(line: str) -> None:
    """Print ``line`` at once."""
    print(line, flush=True)


def demo(config: DemoConfig) -> int:
    """Run the demo; see the module's docstring for what it prints and returns."""
    config = with_environment(config)
    for name in ("episodes", "memory_episodes"):
        if getattr(config, name) < 0:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected 0 or more")
    tasks = check_tasks(config.tasks)
    shows = memory_shows(config)
    check_tasks((config.memory_task, *(show.task for show in shows)))
    for policy in (config.policy, *(show.policy for show in shows)):
        check_policy_name(policy)
    if not config.headless:
        require_free_port(config.port, f"engram demo --port {config.port + 1}")
    log_dir = config.log_dir or Path(tempfile.mkdtemp(prefix="engram-demo-"))
    graph, environment = prepared(config, log_dir)
    ours = {name: value for name, value in environment.items() if name != "HOME"}
    os.environ.update({**ours, **graph.environment})  # the demo's own ROS node lives in the same world
    sink = LineSink(sys.stderr if config.verbose else None, log_dir)
    supervisor = Supervisor(graph, environment, sink)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    client = LoopClient(graph.values.get("namespace", ""), count_commands=True)
    show = Demo(config, supervisor, client, sink)
    problem, interrupted, dead = "", False, []
    print(f"logs: {log_dir}" + ("" if config.headless else f"   page: http://localhost:{config.port}"), flush=True)
    try:
        show.start()
        if show.learning is not None:
            course = Course(
                show.learning, client, tell, lambda: supervisor.failures, config.seed, config.episode_timeout_s
            )
            course.run(config.startup_timeout_s)
            tell(f"its goals as a picture: engram plot {learner_folder(graph, environment)} --window 5")
        else:
            show.run(tasks)
        show.compare_memory()
        client.spin(0.5)  # the outcome may overtake the last command
        if not config.headless:
            show.wait_for_ctrl_c()
    except KeyboardInterrupt:
        interrupted = True
    except EngramError as error:
        problem = str(error)
        print(show.last_words(), end="", file=sys.stderr)
    finally:
        end_on_signals(supervisor)
        dead = [name for name in supervisor.children if name not in supervisor.alive]
        drops = drops_by_queue(client.diagnostics)
        client.close()
        supervisor.end()
        supervisor.run()
        sink.close()
    remembering = [report for ways in show.remembering.values() for done in ways.values() for report in done]
    done = show.reports if show.learning is None else show.learning.reports
    every = [*done, *remembering]
    wanted = (config.episodes or 0) + len(shows) * len(WAYS) * config.memory_episodes
    wanted = wanted if show.learning is None else show.learning.wanted
    problem = problem or verdict(every, wanted if config.headless or not interrupted else len(every),
                                 client.commands, dead)  # fmt: skip
    if interrupted and config.headless and show.learning is not None and not show.learning.after:
        problem = problem or "it was interrupted before anything was learnt"
    if problem:
        print(f"engram demo: {problem}\n  logs: {log_dir}\n  'engram doctor' checks this machine", file=sys.stderr)
    extra = {"steps": sum(r.steps for r in every), "commands": client.commands,
             "memory_tasks": memory_figures(show.remembering),
             "learning": show.learning.figures() if show.learning is not None else None,
             "moving_after_s": show.moving_after_s,
             "seconds": round(time.monotonic() - PROCESS_STARTED, 1), "problem": problem or None}  # fmt: skip
    figures = summary(done, camera_to_command_ms(log_dir), supervisor.restarts, drops, extra)
    print(json.dumps(figures), flush=True)
    return 1 if problem else 0
