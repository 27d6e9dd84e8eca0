"""Camera stamp -> command through the real processes, split by stage, beside raw rclpy round trips in the same run.

Simulation, policy and safety run in lock-step over Fast DDS and write down when each control step passed each stage
(one monotonic clock). Rendering lies before the camera's stamp; the network's forward pass is a stage of its own.
What is left is our overhead: conversions, queues, three hops between processes, controller and safety filter.
The raw loops (see ``loop_raw``) take turns with the episodes, block by block, so that the machine's other work meets
both; intervals come from resampling whole blocks. Each block has the same episodes twice: alone, and while a gate node
validates beside them (see ``loop_gate``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.loop_gate import GateBeside
from engram.benchmarks.loop_raw import LAYOUTS, RawLoop
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.nodes.loop_client import LoopClient
from engram.runtime.latency import read_trace

RESULTS = Path(__file__).resolve().parent / "results" / "loop.json"
TARGET_RATIO, TARGET_LAYOUT = 1.5, "rest_later"
"""Our overhead at p99 over that of the raw loop that sends the same bytes, in our order, through the same processes."""
GATE_TARGET = 1.2
"""Time from camera to command at p99, where a chunk is due, with a gate beside the loop over that without."""
DUE, OVERHEAD, NOT_DUE = "camera -> command, chunk due", "overhead, chunk due", "camera -> command, no chunk due"
ALONE, BESIDE = "alone", "beside the gate"
RAW_PERIOD_S = 0.02
"""Pause between raw round trips: about the time that a step of ours takes."""
TASKS = ("reach", "push_to_mark", "pick_place", "stack", "open_drawer", "press_button")
DRAWS = 2000
"""Resamplings of the blocks for an interval."""

Blocks = list[np.ndarray]
"""Times [ms] of one stage, one array a block."""


@dataclass(frozen=True)
class LoopBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint's name or folder, or package.module:attribute."""
    blocks: int = 20
    """Blocks; each is one episode of every task (seeds 0, 1, 2, ...), the same while a gate validates, in turns first,
    and then ``rounds`` of every raw loop."""
    rounds: int = 40
    """Round trips of each raw loop in a block."""
    image_size: int = 128
    """Side of the camera images [px]."""
    domain: int = 60
    """ROS_DOMAIN_ID of the run."""
    quick: bool = False
    """Three blocks."""
    output: Path = RESULTS
    """Where the result goes."""


@contextmanager
def running_nodes(config: LoopBenchmark, folder: Path) -> Iterator[LoopClient]:
    """Start simulation, policy and safety, and end them; they leave their traces in ``folder``."""
    shared = ["-p", "lockstep:=true"]
    own = {
        "sim_node": ["-p", f"world_config.image_size:={config.image_size}", "-p", "world_config.depth:=true"],
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
        yield client
    finally:
        for child in children:
            child.send_signal(signal.SIGINT)
        for child in children:
            child.wait()
        client.close()


def _active(client: LoopClient) -> bool:
    return all(said.values.get("state") == "active" for said in client.diagnostics.values())


def run_blocks(config: LoopBenchmark, folder: Path) -> tuple[dict[str, Blocks], list[tuple[str, int]]]:
    """Take turns; return layout -> round trips [ms], and of each run of episodes how it ran and its end [monotonic
    ns]."""
    raw: dict[str, Blocks] = {layout: [] for layout in LAYOUTS}
    ends: list[tuple[str, int]] = []
    with ExitStack() as stack:
        loops = {}
        for layout in LAYOUTS:
            loops[layout] = RawLoop(layout, config.image_size, RAW_PERIOD_S, config.policy)
            stack.callback(loops[layout].close)
        client = stack.enter_context(running_nodes(config, folder))
        gate = GateBeside(client, folder / "learner", config.blocks + 1)
        stack.callback(gate.close)
        gate.get_ready()
        for block in track(range(config.blocks), "blocks", console=Console(stderr=True)):
            for way in (ALONE, BESIDE) if block % 2 == 0 else (BESIDE, ALONE):
                with gate.validating() if way == BESIDE else nullcontext():
                    for number, task in enumerate(TASKS):
                        client.run_episode(task, block * len(TASKS) + number, 300.0)
                ends.append((way, time.monotonic_ns()))
            for layout, loop in loops.items():
                raw[layout].append(loop.rounds_ms(config.rounds))
    return raw, ends


def of_way(measured: dict[str, Blocks], ways: Sequence[str], way: str) -> dict[str, Blocks]:
    """Return of ``measured`` the blocks that ran one way, where ``ways`` says how each ran."""
    return {
        name: [one for one, its in zip(blocks, ways, strict=True) if its == way] for name, blocks in measured.items()
    }


def stages(folder: Path, ends: list[int]) -> dict[str, Blocks]:
    """Return stage -> times [ms] by block, for the control steps at which a chunk was due; last those without."""
    sim, policy, safety = (read_trace(folder / f"{n}_node.jsonl") for n in ("sim", "policy", "safety"))
    show, back = sim["show"], sim["command received"]
    passed = {
        "  publish the step": (show, sim["shown"]),
        "  sim -> policy, observation complete": (sim["shown"], policy["observation complete"]),
        "  wait for the policy's thread": (policy["observation complete"], policy["policy begins"]),
        "  forward pass": (policy["policy begins"], policy["policy ends"]),
        "  policy -> safety": (policy["policy ends"], safety["chunk received"]),
        "  controller, safety filter": (safety["chunk received"], safety["command sent"]),
        "  safety -> sim": (safety["command sent"], back),
    }
    due = {s for s in policy["chunk sent"] if s in back and all(s in a and s in b for a, b in passed.values())}

    def blocks(took: dict[int, int]) -> Blocks:
        number = {stamp: int(np.searchsorted(ends, show[stamp])) for stamp in took}
        return [np.array([took[s] / 1e6 for s in took if number[s] == block]) for block in range(len(ends))]

    split = {name: {s: end[s] - begin[s] for s in due} for name, (begin, end) in passed.items()}
    whole = {s: back[s] - show[s] for s in back if s in show}
    return {
        DUE: blocks({s: whole[s] for s in due}),
        **{name: blocks(took) for name, took in split.items()},
        OVERHEAD: blocks({s: whole[s] - split["  forward pass"][s] for s in due}),
        NOT_DUE: blocks({s: whole[s] for s in whole if s not in policy["chunk sent"]}),
    }


def print_table(measured: dict[str, Blocks]) -> None:
    """Print every stage, with the raw loops last."""
    raw99 = np.percentile(np.concatenate(measured[TARGET_LAYOUT]), 99)
    table = Table("stage", "p50 ms", "p99 ms", "n", "p99 / raw p99", title="camera stamp -> command")
    for name, blocks in measured.items():
        times = np.concatenate(blocks)
        p50, p99 = np.percentile(times, (50, 99))
        label = f"raw, {name.replace('_', ' ')}" if name in LAYOUTS else name
        table.add_row(label, f"{p50:.2f}", f"{p99:.2f}", str(len(times)), f"{p99 / raw99:.2f}")
    Console().print(table)


def draws_of(blocks: Blocks, chosen: np.ndarray, percent: float) -> np.ndarray:
    """Return a percentile [ms] for each row of ``chosen``, which names blocks to pool: shape (draws, blocks)."""
    return np.array([np.percentile(np.concatenate([blocks[b] for b in row]), percent) for row in chosen])


def figures(measured: dict[str, Blocks]) -> list[dict[str, object]]:
    """Return p50 and p99 of every stage, and our overhead's ratio to every raw loop."""
    count = len(measured[OVERHEAD])
    chosen = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    draws = {name: draws_of(blocks, chosen, 99) for name, blocks in measured.items()}
    pooled = {name: np.concatenate(blocks) for name, blocks in measured.items()}
    rows: list[dict[str, object]] = []
    for name, times in pooled.items():
        label = "_".join(name.replace(",", "").replace("'s", "").replace("->", "to").split())
        p50, p99 = (round(float(v), 3) for v in np.percentile(times, (50, 99)))
        row = {"name": f"loop_{'raw_' if name in LAYOUTS else ''}{label}_ms", "value": p99, "p50": p50}
        rows.append({**row, "interval": _interval(draws[name]), "n": len(times), "target": None, "met": None})
    for layout in LAYOUTS:
        p50, p99 = (float(np.percentile(pooled[OVERHEAD], q) / np.percentile(pooled[layout], q)) for q in (50, 99))
        target = TARGET_RATIO if layout == TARGET_LAYOUT else None
        row = {"name": f"loop_overhead_p99_over_raw_{layout}_p99", "value": round(p99, 3), "p50": round(p50, 3)}
        row |= {"interval": _interval(draws[OVERHEAD] / draws[layout]), "n": len(pooled[OVERHEAD])}
        rows.append({**row, "target": target, "met": None if target is None else p99 <= target})
    return rows


def gate_figures(alone: dict[str, Blocks], beside: dict[str, Blocks]) -> list[dict[str, object]]:
    """Return the time from camera to command beside a gate, and its ratio to that without; blocks are paired."""
    count, rows = len(alone[DUE]), []
    chosen = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    for name, label, target in ((DUE, "chunk_due", GATE_TARGET), (NOT_DUE, "no_chunk_due", None)):
        (with_50, with_99), (bare_50, bare_99) = (
            map(float, np.percentile(np.concatenate(way[name]), (50, 99))) for way in (beside, alone)
        )
        draws, bare, n = (
            draws_of(beside[name], chosen, 99),
            draws_of(alone[name], chosen, 99),
            len(np.concatenate(beside[name])),
        )
        row = {"name": f"loop_beside_the_gate_{label}_ms", "value": round(with_99, 3), "p50": round(with_50, 3)}
        rows.append({**row, "interval": _interval(draws), "n": n, "target": None, "met": None})
        ratio = with_99 / bare_99
        row = {"name": f"loop_beside_the_gate_over_alone_{label}_p99", "value": round(ratio, 3)}
        row |= {"p50": round(with_50 / bare_50, 3), "interval": _interval(draws / bare), "n": n}
        rows.append({**row, "target": target, "met": None if target is None else ratio <= target})
    return rows


def _interval(draws: np.ndarray) -> list[float]:
    return [round(float(v), 3) for v in np.percentile(draws, (2.5, 97.5))]


def main(config: LoopBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LoopBenchmark)
    if config.quick:
        config = replace(config, blocks=3)
    profile = Path(str(resources.files("engram.config"))) / "fastdds.xml"
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(profile))
    os.environ["ROS_DOMAIN_ID"] = str(config.domain)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    where = machine()  # with the load before the measurement
    with tempfile.TemporaryDirectory() as folder:
        raw, ends = run_blocks(config, Path(folder))
        both, ways = stages(Path(folder), [end for _, end in ends]), [way for way, _ in ends]
    alone, beside = (of_way(both, ways, way) for way in (ALONE, BESIDE))
    print_table(alone | raw | {f"{name}, {BESIDE}": beside[name] for name in (DUE, NOT_DUE)})
    rows = figures(alone | raw) + gate_figures(alone, beside)
    save_report(config.output, "loop", where, config, figures=rows, seed=0)


if __name__ == "__main__":
    main()
