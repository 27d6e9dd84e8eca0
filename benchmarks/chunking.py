"""How often to decide: success and steps at 1, 2, 4, 8 and 16 control steps a chunk, with adaptive chunks and with the
mean of all chunks, pushed, and with answers that come late.

    python -m engram.benchmarks.chunking [--quick]

The same checkpoint and seeds in every arm. A pushed episode is one in which the object that the words name gets a kick
of some 6 cm while the robot is on its way (``engram.sim.pushes``). While an answer is late, the robot moves on
(``engram.benchmarks.lateness``); with and without real-time chunking. Every episode is kept in ``progress`` as it ends:
a run that was broken off goes on there. Prints one table; the last line is JSON, which also goes to
benchmarks/results/chunking.json.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.lateness import LateRuntime
from engram.benchmarks.report import RESULTS, save_report
from engram.core.pipeline import CommandPipeline
from engram.core.provenance import digest, machine
from engram.core.statistics import wilson
from engram.policies import load_policy
from engram.policies.checkpoint import fingerprint
from engram.policies.opening import checkpoint_folder
from engram.policies.vla.chunking import AdaptiveChunks, follow
from engram.runtime.loop import Runtime
from engram.sim.pushes import PushedRunner, pushable
from engram.sim.tasks import TASKS
from engram.sim.world import MujocoWorld, WorldConfig

RATES = (1, 2, 4, 8, 16)
DELAYS = (2, 4, 8)
"""Control steps by which answers come late; a decision falls every ``max(DELAYS)`` steps in all of these arms."""


@dataclass(frozen=True)
class ChunkingBenchmark:
    """What is measured."""

    quick: bool = False
    """Two seeds a task."""
    seeds: int = 20
    """Episodes a task and arm, seeds 0 .. seeds - 1."""
    policy: str = "base"
    """Checkpoint's name or folder."""
    adaptive_m: float = 0.02
    """Departure at which an adaptive chunk is left [m]."""
    progress: Path = Path("runs/chunking.jsonl")
    """One line an episode; delete it to begin anew."""
    output: Path = RESULTS / "chunking.json"
    """Where the JSON goes."""


@dataclass(frozen=True)
class Arm:
    """One way to let chunks follow one another."""

    execute_steps: int
    adaptive_m: float = 0.0
    pushed: bool = False
    ensemble: bool = False
    late: int = 0
    real_time: bool = False

    @property
    def name(self) -> str:
        """As in the table."""
        way = f"{self.execute_steps} steps" + (f", left early at {self.adaptive_m:g} m" if self.adaptive_m else "")
        way += ", mean of all chunks" if self.ensemble else ""
        way += f", answers {self.late} steps late" if self.late else ""
        return way + (", real-time chunking" if self.real_time else "") + (", pushed" if self.pushed else "")

    @property
    def tasks(self) -> tuple[str, ...]:
        """What it runs."""
        return tuple(task for task in TASKS if pushable(task) or not self.pushed)


def arms(adaptive_m: float) -> list[Arm]:
    """Return every arm: fixed, adaptive and averaged, undisturbed and pushed; then with late answers."""
    ways = [*((n, 0.0) for n in RATES), (8, adaptive_m), (16, adaptive_m)]
    asked = [arm for pushed in (False, True)
             for arm in (*(Arm(n, m, pushed) for n, m in ways), Arm(1, pushed=pushed, ensemble=True))]  # fmt: skip
    return asked + [Arm(max(DELAYS), late=late, real_time=real_time) for late in DELAYS for real_time in (False, True)]


def episodes(arm: Arm, config: ChunkingBenchmark, world: MujocoWorld) -> Callable[[str, int], dict[str, Any]]:
    """Return what runs one episode of ``arm`` and tells what came of it."""
    delay = arm.late if arm.real_time else 0
    loaded = load_policy(config.policy, execute_steps=arm.execute_steps, real_time_delay=delay)
    policy = follow(loaded, arm.ensemble, arm.adaptive_m)
    pipeline = CommandPipeline(world.kinematics, world.robot, lockstep=not arm.late)
    late = LateRuntime(world, policy, pipeline, delay=arm.late) if arm.late else None
    run: Any = (late or Runtime(world, policy, pipeline)).run_episode
    if arm.pushed:
        run = PushedRunner(run, world, arm.tasks)

    def one(task: str, seed: int) -> dict[str, Any]:
        result = run(task, seed)
        cut = policy.cut if isinstance(policy, AdaptiveChunks) else 0
        return {"success": result.oracle_success, "steps": result.steps, "cut": cut, "version": policy.version}

    return one


def measure(config: ChunkingBenchmark) -> Iterator[dict[str, Any]]:
    """Yield every episode, those of ``config.progress`` first."""
    seeds = min(2, config.seeds) if config.quick else config.seeds
    jobs = [(arm, task, seed) for seed in range(seeds) for arm in arms(config.adaptive_m) for task in arm.tasks]
    lines = config.progress.read_text().splitlines() if config.progress.exists() else []
    known: dict[tuple[object, ...], dict[str, Any]] = {
        (e["arm"], e["policy"], e["code"], e["task"], e["seed"]): e for e in map(json.loads, lines)
    }
    code = digest("core/*.py", "policies/**/*.py", "sim/**/*.py")
    acts = f"{config.policy} {fingerprint(checkpoint_folder(config.policy))}"
    world = MujocoWorld(WorldConfig(profile="fast"))
    runners: dict[Arm, Callable[[str, int], dict[str, Any]]] = {}
    config.progress.parent.mkdir(parents=True, exist_ok=True)
    for arm, task, seed in track(jobs, "episodes", console=Console(stderr=True)):
        key = {"arm": arm.name, "policy": acts, "code": code, "task": task, "seed": seed}
        episode = known.get(tuple(key.values()))
        if episode is None:
            if arm not in runners:
                runners[arm] = episodes(arm, config, world)
            episode = key | runners[arm](task, seed)
            with config.progress.open("a") as out:
                out.write(json.dumps(episode) + "\n")
        yield episode
    world.close()


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rate with interval, steps of the successes and chunks left early per episode."""
    rate = wilson(sum(e["success"] for e in found), len(found))
    steps = [e["steps"] for e in found if e["success"]]
    return {
        "value": round(rate.rate, 4),
        "interval": [round(rate.low, 4), round(rate.high, 4)],
        "n": rate.n,
        "steps": round(float(np.mean(steps)), 2) if steps else None,
        "chunks_left_early": round(float(np.mean([e["cut"] for e in found])), 2),
    }


def main(config: ChunkingBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(ChunkingBenchmark)
    where = machine()
    by_arm: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for episode in measure(config):
        by_arm[episode["arm"]].append(episode)
    shown = Table("chunk", "success", "95 % interval", "n", "steps", "left early", title=f"policy {config.policy}")
    figures = []
    for name, found in by_arm.items():
        tasks = {task: [e for e in found if e["task"] == task] for task in dict.fromkeys(e["task"] for e in found)}
        whole = summary(found)
        per_task = {task: [sum(e["success"] for e in es), len(es)] for task, es in tasks.items()}
        figures.append({"name": f"chunks of {name}", **whole, "target": None, "met": None, "per_task": per_task})
        low, high = whole["interval"]
        shown.add_row(name, f"{whole['value']:.3f}", f"{low:.3f}..{high:.3f}", str(whole["n"]), str(whole["steps"]),
                      str(whole["chunks_left_early"]))  # fmt: skip
    Console(width=120, stderr=True).print(shown)
    versions = sorted({e["version"] for es in by_arm.values() for e in es})
    save_report(config.output, "chunking", where, config, figures=figures, policy_versions=versions)


if __name__ == "__main__":
    main()
