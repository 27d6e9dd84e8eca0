"""Faults on purpose: killed nodes, hostile messages, failing sensors, a cut link, hours. ``engram prove faults``.

All nodes are real processes that talk over DDS, as ``engram up`` starts them. A process that watches from outside
checks every command and every motion of the arm against the robot's limits.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engram.benchmarks import faults_hostile, faults_idle, faults_kills, faults_sensors, faults_soak
from engram.benchmarks.faults_loop import running, trial_graph
from engram.benchmarks.faults_pilot import Pilot
from engram.benchmarks.link import CONDITIONS, TASKS, trial_figures
from engram.benchmarks.link_rig import why_not
from engram.benchmarks.link_trial import run_trial
from engram.benchmarks.report import save_report
from engram.core.errors import unknown_name
from engram.core.provenance import digest, machine
from engram.core.registry import make_robot

RESULTS = Path(__file__).resolve().parent / "results" / "faults.json"
CODE = tuple(
    f"{room}/**/*.py" for room in ("app", "benchmarks", "core", "learning", "memory", "nodes", "runtime", "sim")
)
WAVE = "engram.benchmarks.faults_policy:Wave"
"""A policy that needs no network: a killed node is not slow for the sake of the weights alone."""


@dataclass(frozen=True)
class FaultsBenchmark:
    """Do harm to the running loop, and count what came of it."""

    parts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which: kills, hostile, idle, sensors, link, soak; default: all, link only where there are network namespaces."""
    kills: int = 1000
    """Processes that are killed."""
    kill: str = ""
    """Nodes that are killed, separated by commas, each as often as its turn comes; empty: all."""
    messages: int = 1_000_000
    """Hostile messages and calls, over all topics and services."""
    repeats: int = 5
    """Times that each sensor fault is tried, with the arm moving and at rest."""
    cuts: int = 100
    """Times that the link is cut, once in each episode."""
    soak_s: float = 10_800.0
    """Length of the soak [s]."""
    policy: str = "base"
    """Checkpoint that drives; quick kills are driven by a policy without a network."""
    seed: int = 0
    """Of the instants, the order and the messages."""
    domain: int = 80
    """ROS_DOMAIN_ID; the parts take this one and the next five."""
    only: str = ""
    """Parts of the names of topics and services to attack, separated by commas, or a sensor fault; empty: all."""
    quick: bool = False
    """20 kills, 2,000 messages, each sensor fault once, two cuts, a soak of half a minute: nine minutes on two idle
    cores."""
    work: Path | None = None
    """Folder for logs and finished parts. An interrupted run continues from it, unless the code has changed."""
    output: Path = RESULTS
    """Where the result goes."""


def kills(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Kill nodes of the loop in simulation."""
    count, policy, domain = (20, WAVE, config.domain) if config.quick else (config.kills, config.policy, config.domain)
    values, only = {"viewer": "false", "policy": policy}, tuple(filter(None, config.kill.split(",")))
    there = [spec.name for spec in trial_graph("sim", values).nodes]
    for name in only:
        if name not in there:
            raise unknown_name("node to kill", name, there)
    with running("sim", values, folder, domain, restarts=count if only else -1) as loop:
        watched = loop.watch()
        pilot = Pilot(loop, make_robot("panda_2f85"), 1000)
        killer, figures = faults_kills.trial(loop, pilot, watched, count, config.seed, quick=config.quick, only=only)
    return [*figures, *faults_kills.losses(killer, watched, folder / "home")]


def hostile(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Attack every topic and service of the loop in simulation."""
    with running("sim", {"viewer": "false", "policy": config.policy}, folder, config.domain + 1) as loop:
        watched = loop.watch()
        pilot = Pilot(loop, make_robot("panda_2f85"), 2000)
        messages = 2000 if config.quick else config.messages
        figures = faults_hostile.trial(
            loop, pilot, watched, messages, config.seed, quick=config.quick, only=config.only
        )
        if config.quick:  # the loop runs already
            return [*figures, *_soak(loop, pilot, watched, config)]
    return figures


def idle(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Pretend to drive a robot that nobody drives."""
    return faults_idle.trial(folder, config.domain + 4, config.seed, quick=config.quick)


def link(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Cut a bad link between two machines, once in each episode."""
    goals = [(TASKS[number % len(TASKS)], number) for number in range(2 if config.quick else config.cuts)]
    condition = replace(next(one for one in CONDITIONS if one.cut_s), name="cut")
    trial = run_trial(condition, goals, folder, domain=config.domain + 5, policy=config.policy)
    return trial_figures(trial, trial)


def sensors(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Let the sensors of a robot fail."""
    return faults_sensors.trial(folder, config.domain + 2, 1 if config.quick else config.repeats, config.only)


def soak(config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Run episodes for long; a quick run does it after the attack."""
    if config.quick and "hostile" in _parts(config):
        return []
    with running("sim", {"viewer": "false", "policy": config.policy}, folder, config.domain + 3) as loop:
        watched = loop.watch()
        return _soak(loop, Pilot(loop, make_robot("panda_2f85"), 3000), watched, config)


def _soak(loop: Any, pilot: Pilot, watched: Path, config: FaultsBenchmark) -> list[dict[str, Any]]:
    return faults_soak.trial(loop, pilot, watched, 30.0 if config.quick else config.soak_s)


PARTS: dict[str, Callable[[FaultsBenchmark, Path], list[dict[str, Any]]]] = {
    "kills": kills,
    "hostile": hostile,
    "idle": idle,
    "sensors": sensors,
    "link": link,
    "soak": soak,
}


def _parts(config: FaultsBenchmark) -> tuple[str, ...]:
    for part in config.parts:
        if part not in PARTS:
            raise unknown_name("part of the faults", part, PARTS)
    return config.parts or tuple(PARTS)


def _possible(config: FaultsBenchmark) -> tuple[str, ...]:
    """Return the parts that can be done here; one that was asked for by name and cannot is an error."""
    parts = _parts(config)
    reason = why_not() if "link" in parts else ""
    if not reason:
        return parts
    if config.parts:
        sys.exit(f"error: link: {reason}")
    print(f"link: left out: {reason}", file=sys.stderr, flush=True)
    return tuple(part for part in parts if part != "link")


def measured(part: str, config: FaultsBenchmark, folder: Path) -> list[dict[str, Any]]:
    """Return the figures of one part, from the folder when this code has finished it with these settings."""
    settings = {k: v for k, v in asdict(config).items() if k not in ("parts", "work", "output", "domain")}
    done = folder / f"{part}_code_{digest(*CODE)}.json"
    wanted = {"settings": settings, "parts": _parts(config)}
    if done.is_file() and (kept := json.loads(done.read_text()))["about"] == json.loads(json.dumps(wanted)):
        print(f"{part}: finished before, {done}", file=sys.stderr, flush=True)
        return kept["figures"]
    began = time.monotonic()
    figures = PARTS[part](config, Path(tempfile.mkdtemp(prefix=f"{part}-", dir=folder)))
    print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    done.write_text(json.dumps({"about": wanted, "figures": figures}))
    return figures


def shown(figures: list[dict[str, Any]]) -> Table:
    """Return the figures as a table."""
    table = Table("figure", "value", "n", "target", "met", title="faults")
    for one in figures:
        met = "" if one["met"] is None else "yes" if one["met"] else "NO"
        table.add_row(one["name"], f"{one['value']:g}", str(one["n"]), escape(str(one["target"] or "")), met)
    return table


def main(config: FaultsBenchmark | None = None) -> None:
    """Do harm, look, save."""
    config = config or tyro.cli(FaultsBenchmark)
    parts, where = _possible(config), machine()
    folder = config.work or Path(tempfile.mkdtemp(prefix="engram-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    figures: list[dict[str, Any]] = []
    for part in parts:
        figures += measured(part, config, folder)
        os.environ.clear()
        os.environ.update(environment)
    Console(stderr=True, width=120).print(shown(figures))
    save_report(config.output, "faults", where, config, figures=figures)


if __name__ == "__main__":
    main()
