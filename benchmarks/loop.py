"""Camera stamp -> command through the real processes, split by stage, beside a raw rclpy round trip in the same run.

Simulation, policy and safety run in lock-step over Fast DDS and write down when each control step passed each stage
(one monotonic clock). Rendering lies before the camera's stamp; the network's forward pass is a stage of its own.
What is left is our overhead: conversions, queues, three hops between processes, controller and safety filter. The
raw round trip has two hops and computes nothing; a raw relay with three hops, as ours has, is printed beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.loop_raw import round_trips_ms
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.nodes.latency import read_trace, stage_ms
from engram.nodes.loop_client import LoopClient

RESULTS = Path(__file__).resolve().parent / "results" / "loop.json"
TARGET_RATIO = 1.5
"""Our overhead at p99 over the raw round trip at p99."""
RAW, RELAY = "raw round trip", "raw relay, three hops"
RAW_PERIOD_S = 0.02
"""Pause between raw round trips: about the time that a step of ours takes."""
TASKS = ("reach", "push_to_mark", "pick_place", "stack", "open_drawer", "press_button")


@dataclass(frozen=True)
class LoopBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint's name or folder, or package.module:factory."""
    episodes: int = 36
    """Episodes, one task after the other; seeds 0, 1, 2, ..."""
    rounds: int = 600
    """Raw round trips, and as many through the relay: half before the episodes, half after."""
    image_size: int = 128
    """Side of the camera images [px]."""
    domain: int = 60
    """ROS_DOMAIN_ID of the run."""
    quick: bool = False
    """Six episodes, 200 round trips."""
    output: Path = RESULTS
    """Where the result goes."""


def run_nodes(config: LoopBenchmark, folder: Path) -> None:
    """Run the episodes; the nodes leave their traces in ``folder``."""
    shared = ["-p", "lockstep:=true"]
    own = {
        "sim_node": ["-p", f"world_config.image_size:={config.image_size}"],
        "policy_node": ["-p", f"policy:='{config.policy}'", "-p", "memory:='off'", "-p", "accept:='none'"],
        "safety_node": [],
    }
    children = []
    for name, arguments in own.items():
        trace = ["-p", f"trace_file:={folder / name}.jsonl", "--log-level", "warn"]
        command = [sys.executable, "-m", f"engram.nodes.{name}", "--ros-args", *shared, *arguments, *trace]
        children.append(subprocess.Popen(command, stdout=sys.stderr))
    client = LoopClient(domain=config.domain)
    try:
        client.wait_for(lambda: {*own} <= {*client.diagnostics} and _active(client), 300.0, "the nodes are active")
        for episode in range(config.episodes):
            client.run_episode(TASKS[episode % len(TASKS)], episode, 300.0)
    finally:
        for child in children:
            child.send_signal(signal.SIGINT)
        for child in children:
            child.wait()
        client.close()


def _active(client: LoopClient) -> bool:
    return all(any(v.key == "state" and v.value == "active" for v in s.values) for s in client.diagnostics.values())


def stages(folder: Path) -> dict[str, np.ndarray]:
    """Return stage -> times [ms], for the control steps at which a chunk was due and for those at which none was."""
    sim, policy, safety = (read_trace(folder / f"{n}_node.jsonl") for n in ("sim", "policy", "safety"))
    due = policy["chunk sent"].keys()

    def at(events: dict[int, int], with_chunk: bool) -> dict[int, int]:
        return {stamp: when for stamp, when in events.items() if (stamp in due) == with_chunk}

    total = {k: stage_ms(at(sim["show"], k), sim["command received"]) for k in (True, False)}
    shown, begins, ends = at(sim["show"], True), policy["policy begins"], policy["policy ends"]
    common = sorted(shown.keys() & begins.keys() & ends.keys() & sim["command received"].keys())
    forward = {stamp: ends[stamp] - begins[stamp] for stamp in common}
    overhead = [(sim["command received"][s] - shown[s] - forward[s]) / 1e6 for s in common]
    return {
        "camera -> command, chunk due": total[True],
        "  publish the step": stage_ms(shown, sim["shown"]),
        "  sim -> policy, observation complete": stage_ms(at(sim["shown"], True), policy["observation complete"]),
        "  wait for the policy's thread": stage_ms(at(policy["observation complete"], True), begins),
        "  forward pass": np.array([forward[s] / 1e6 for s in common]),
        "  policy -> safety": stage_ms(ends, safety["chunk received"]),
        "  controller, safety filter": stage_ms(safety["chunk received"], at(safety["command sent"], True)),
        "  safety -> sim": stage_ms(at(safety["command sent"], True), sim["command received"]),
        "overhead, chunk due": np.array(overhead),
        "camera -> command, no chunk due": total[False],
    }


def print_table(measured: dict[str, np.ndarray]) -> None:
    """Print every stage with the raw round trips last."""
    raw99 = np.percentile(measured[RAW], 99)
    table = Table("stage", "p50 ms", "p99 ms", "n", "p99 / raw p99", title="camera stamp -> command")
    for name, times in measured.items():
        p50, p99 = np.percentile(times, (50, 99)) if len(times) else (np.nan, np.nan)
        table.add_row(name, f"{p50:.2f}", f"{p99:.2f}", str(len(times)), f"{p99 / raw99:.2f}")
    Console().print(table)


def p99_interval(times: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return a bootstrap 95 % interval of the 99th percentile [ms]."""
    draws = np.percentile(rng.choice(times, (1000, len(times))), 99, axis=1)
    return [round(float(v), 3) for v in np.percentile(draws, (2.5, 97.5))]


def figures(measured: dict[str, np.ndarray]) -> list[dict[str, object]]:
    """Return p50 and p99 of every stage, and the ratio that has a target."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for name, times in measured.items():
        if len(times):
            p50, p99 = (round(float(v), 3) for v in np.percentile(times, (50, 99)))
            label = "_".join(name.replace(",", "").replace("'s", "").replace("->", "to").split())
            row = {"name": f"loop_{label}_ms", "value": p99, "p50": p50, "interval": p99_interval(times, rng)}
            rows.append({**row, "n": len(times), "target": None, "met": None})
    ours, raw = measured["overhead, chunk due"], measured[RAW]
    rows.append(_ratio_row("loop_overhead_p99_over_raw_round_trip_p99", ours, raw, rng, TARGET_RATIO))
    rows.append(_ratio_row("loop_overhead_p99_over_raw_relay_p99", ours, measured[RELAY], rng, None))
    rows.append(_ratio_row("raw_relay_p99_over_raw_round_trip_p99", measured[RELAY], raw, rng, None))
    return rows


def _ratio_row(
    name: str, ours: np.ndarray, raw: np.ndarray, rng: np.random.Generator, target: float | None
) -> dict[str, object]:
    """Return the ratio of two 99th percentiles with its bootstrap interval, and that of the medians beside it."""
    draws = [np.percentile(rng.choice(o, (1000, len(o))), 99, axis=1) for o in (ours, raw)]
    p50, p99 = (float(np.percentile(ours, q) / np.percentile(raw, q)) for q in (50, 99))
    interval = [round(float(v), 3) for v in np.percentile(draws[0] / draws[1], (2.5, 97.5))]
    row = {"name": name, "value": round(p99, 3), "p50": round(p50, 3), "interval": interval, "n": len(ours)}
    return {**row, "target": target, "met": None if target is None else p99 <= target}


def measure_raw(config: LoopBenchmark, measured: dict[str, list[np.ndarray]]) -> None:
    """Add half of the raw round trips."""
    for name, hops in ((RAW, 2), (RELAY, 3)):
        times = round_trips_ms(config.rounds // 2, config.image_size, RAW_PERIOD_S, config.domain, hops)
        measured.setdefault(name, []).append(times)


def main(config: LoopBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LoopBenchmark)
    if config.quick:
        config = replace(config, episodes=6, rounds=200)
    profile = Path(str(resources.files("engram.config"))) / "fastdds.xml"
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(profile))
    os.environ["ROS_DOMAIN_ID"] = str(config.domain)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    where = machine()  # with the load before the measurement
    raw: dict[str, list[np.ndarray]] = {}
    measure_raw(config, raw)
    with tempfile.TemporaryDirectory() as folder:
        run_nodes(config, Path(folder))
        measured = stages(Path(folder))
    measure_raw(config, raw)
    measured |= {name: np.concatenate(times) for name, times in raw.items()}
    print_table(measured)
    save_report(config.output, "loop", where, config, figures=figures(measured), seed=0)


if __name__ == "__main__":
    main()
