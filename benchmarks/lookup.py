"""What looking up is worth when no camera sees the target: the ceiling for policies on the suite ``unseen``.

    python -m engram.benchmarks.lookup [--quick]

A scripted policy takes the object in ``memory/context`` whose embedding is most like the instruction's, goes to where
that lies, and touches it or puts the cube there. It sees neither an image nor the simulator's state. Three figures for
each task: how often the words fit the name of the right thing best, how often the object that was looked up lies within
2 cm of the true target, and how often the policy succeeds. Every episode is kept in ``progress`` as it ends: a run that
was broken off goes on there. The last line is JSON, which also goes to benchmarks/results/lookup.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from engram.benchmarks.lookup_policy import CARRIED, LookupPolicy
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.provenance import digest, machine
from engram.core.statistics import wilson
from engram.perception.embedding import default_text_encoder
from engram.sim.tasks import UNSEEN_TASKS, task_class, with_options
from engram.sim.tasks.memory.unseen import UnseenTask
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import make_runtime

NEAR_M = 0.02
"""So near to the true target (horizontally) an object counts as the target."""
ALTERNATIVES = (3, 9)


@dataclass(frozen=True)
class LookupBenchmark:
    """What is measured."""

    quick: bool = False
    """Three seeds a task."""
    seeds: int = 100
    """Episodes of each task with each number of alternatives, seeds 0 .. seeds - 1."""
    progress: Path = Path("runs/lookup.jsonl")
    """One line an episode; delete it to begin anew."""
    output: Path = RESULTS / "lookup.json"
    """Where the JSON goes."""


def variants() -> list[str]:
    """Return the tasks with their options."""
    return [with_options(task, alternatives=count) for task in UNSEEN_TASKS for count in ALTERNATIVES]


def episodes(config: LookupBenchmark) -> Iterator[dict[str, Any]]:
    """Yield what came of every episode, those of ``config.progress`` first."""
    seeds = min(3, config.seeds) if config.quick else config.seeds
    lines = config.progress.read_text().splitlines() if config.progress.exists() else []
    code = digest("core/*.py", "perception/*.py", "memory/**/*.py", "runtime/*.py", "sim/**/*.py", "benchmarks/lookup*")
    known = {(e["code"], e["task"], e["seed"]): e for e in map(json.loads, lines)}
    world = MujocoWorld(WorldConfig(depth=True))
    policy = LookupPolicy(world.robot)
    runtime = make_runtime(policy, world)
    config.progress.parent.mkdir(parents=True, exist_ok=True)
    jobs = [(task, seed) for task in variants() for seed in range(seeds)]
    for task, seed in track(jobs, "episodes", console=Console(stderr=True)):
        episode = known.get((code, task, seed))
        if episode is None:
            result = runtime.run_episode(task, seed)
            assert isinstance(world.task, UnseenTask)
            error = np.linalg.norm(policy.found[:2] - world.task.places[world.task.oracle_cue])
            episode = {"code": code, "task": task, "seed": seed, "success": result.oracle_success}
            episode |= {"error_m": round(float(error), 5), "words": result.instruction}
            with config.progress.open("a") as out:
                out.write(json.dumps(episode) + "\n")
        yield episode
    world.close()


def word_margins(task: str) -> dict[str, float]:
    """Return for each sentence of ``task`` by how much its cosine with the right object's name beats all other names.

    The names are those that the geometric detector gives to what the task's scenes hold; the memory's embeddings are
    made of them.
    """
    kind, encoder = task_class(task), default_text_encoder()
    names = [*kind.slot_words, CARRIED, "drawer", "bin"]  # a cloth is taken for a drawer or a bin
    vectors = encoder.encode(names)
    margins = {}
    for thing in kind.slot_words:
        for wording in (*kind.instructions, *kind.held_out_instructions):
            sentence = wording.format(thing=thing)
            cosine = vectors @ encoder.encode([sentence])[0]
            right = names.index(thing)
            margins[sentence] = float(cosine[right] - np.delete(cosine, right).max())
    return margins


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the report."""
    rows = []
    for task in UNSEEN_TASKS:
        margins = list(word_margins(task).values())
        right = wilson(sum(margin > 0 for margin in margins), len(margins))
        rows.append(_rate(f"lookup_words_{task}", right, least_margin=round(min(margins), 3)))
    for task in variants():
        these = [e for e in found if e["task"] == task]
        name = task.replace(":alternatives=", "_")
        errors = [e["error_m"] for e in these if e["error_m"] <= NEAR_M]
        near = {"mean_error_m": round(float(np.mean(errors)), 4) if errors else None}
        rows.append(_rate(f"lookup_known_{name}", wilson(len(errors), len(these)), **near))
        rows.append(_rate(f"lookup_success_{name}", wilson(sum(e["success"] for e in these), len(these))))
    return rows


def _rate(name: str, rate: Any, **more: Any) -> dict[str, Any]:
    return figure(name, rate.rate, rate.n, (rate.low, rate.high), **more)


def main(config: LookupBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LookupBenchmark)
    where = machine()
    found = list(episodes(config))
    failures = {task: [e["seed"] for e in found if e["task"] == task and not e["success"]] for task in variants()}
    save_report(config.output, "lookup", where, config, figures=figures(found), failures=failures)


if __name__ == "__main__":
    main()
