"""Whether the memory judges right, without simulator truth: its verdicts beside the simulator's.

    python -m engram.benchmarks.verdicts [--quick]

Episodes run as a goal on a robot does: they end when the memory is certain of success, or by their time limit; the
simulator ends none. Each task is done in three ways: by the policy as it was trained; with the horizontal direction of
every action turned by 15 degrees, which makes near misses; and by a policy that heard the words for another thing,
while the memory judges the right ones. What counts is the simulator's verdict at the end; for what happens at an
instant (a press, a hand above something) its verdict at any time. Finished episodes are kept in ``work``. Prints a
table; the last line is JSON, which also goes to benchmarks/results/verdicts.json.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.contracts import Policy
from engram.core.pipeline import CommandPipeline
from engram.core.provenance import digest, machine
from engram.core.statistics import wilson
from engram.core.types import (
    CANNOT_TELL,
    CONFIRMED,
    VERDICTS,
    ActionChunk,
    EpisodeResult,
    JointCommand,
    MemoryTokens,
    Observation,
    OracleOutcome,
)
from engram.learning.rewards.memory_verdict import MemoryVerdict
from engram.policies.loading import load_policy
from engram.runtime.loop import Runtime
from engram.runtime.reconstruction import make_perception
from engram.sim.tasks import TASKS, get_task
from engram.sim.world import MujocoWorld, WorldConfig

TRAINED, TURNED, MISHEARD = "as trained", "turned 15 degrees", "another thing"
WAYS = (TRAINED, TURNED, MISHEARD)
TURN_RAD = np.deg2rad(15.0)
MOMENTARY = ("reach", "press_button")
"""Tasks whose goal holds at an instant."""
RECENT = 3
"""Control steps before the end whose truth counts for a lasting goal: for so long a verdict is held."""
FIRST_SEED = 5_000
AGREEMENT, FALSE_SUCCESS = 0.97, 0.01
"""Targets: least share of verdicts that are right, and largest share of confirmed successes that were none."""


@dataclass(frozen=True)
class VerdictBenchmark:
    """What is measured."""

    quick: bool = False
    """Two episodes of each task in each way."""
    seeds: int = 40
    """Episodes of each task in each way, seeds 5000 and up: nothing was tuned on them."""
    policy: str = "base"
    """What drives."""
    work: Path = Path("runs/verdicts")
    """Folder of finished episodes, one line each; delete it to begin anew."""
    output: Path = RESULTS / "verdicts.json"
    """Where the JSON goes."""


class Disturbed(Policy):
    """A policy whose actions are turned about the vertical, or that is told other words than the judge."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.turn_rad = 0.0
        self.told = ""  # empty: the episode's own words

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        self.policy.reset(self.told or instruction, episode=episode, seed=seed)

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step."""
        self.policy.observe(observation, memory)

    def act(self) -> ActionChunk:
        """Return the policy's chunk, turned."""
        chunk = self.policy.act()
        c, s = np.cos(self.turn_rad), np.sin(self.turn_rad)
        actions = chunk.actions.copy()
        actions[:, :2] = actions[:, :2] @ np.array([[c, s], [-s, c]])
        return replace(chunk, actions=actions)

    def load_weights(self, path: Path, version: str) -> None:
        """Take other weights."""
        self.policy.load_weights(path, version)

    @property
    def version(self) -> str:
        """Version of the policy's weights."""
        return self.policy.version


def jobs(seeds: int) -> list[tuple[str, str, int]]:
    """Return way, task and seed of each episode; a task with one thing alone has no other to be told of."""
    return [
        (way, task, FIRST_SEED + seed)
        for seed in range(seeds)
        for way in WAYS
        for task in TASKS
        if way != MISHEARD or get_task(task).slots()
    ]


def episodes(config: VerdictBenchmark) -> Iterator[dict[str, Any]]:
    """Yield what came of every episode, finished ones as they were kept."""
    kept = config.work / "episodes.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    code = digest("core/**/*.py", "perception/*.py", "memory/**/*.py", "runtime/loop.py", "sim/**/*.py",
                  "learning/rewards/*.py", "runtime/episode_judge.py", "benchmarks/verdicts.py")  # fmt: skip
    known = {(e["code"], e["policy"], e["way"], e["task"], e["seed"]): e for e in map(json.loads, lines)}
    world = MujocoWorld(WorldConfig(depth=True))
    policy = Disturbed(load_policy(config.policy))
    detector, fresh_memory = make_perception()
    pipeline = CommandPipeline(world.kinematics, world.robot)
    runtime = Runtime(
        world, policy, pipeline, detector=detector, fresh_memory=fresh_memory, judge=MemoryVerdict()
    )  # fmt: skip
    config.work.mkdir(parents=True, exist_ok=True)
    todo = jobs(2 if config.quick else config.seeds)
    for way, task, seed in track(todo, "episodes", console=Console(file=sys.stderr)):
        episode = known.get((code, config.policy, way, task, seed))
        if episode is None:
            episode = {"code": code, "policy": config.policy, "way": way, "task": task, "seed": seed}
            episode |= judged(runtime, world, policy, way, task, seed)
            with kept.open("a") as out:
                out.write(json.dumps(episode) + "\n")
        yield episode
    world.close()


def judged(
    runtime: Runtime, world: MujocoWorld, policy: Disturbed, way: str, task: str, seed: int
) -> dict[str, Any]:  # fmt: skip
    """Run one episode; return what the memory said at its end, and what is true by the simulator."""
    world.reset(task, seed)
    assert world.task is not None
    policy.turn_rad = TURN_RAD if way == TURNED else 0.0
    policy.told = ""
    if way == MISHEARD:
        policy.told = world.instruction
    words = world.task.swapped_instruction() if way == MISHEARD else ""
    truths: list[bool] = []

    def note(_: Observation, __: JointCommand, outcome: OracleOutcome) -> None:
        truths.append(outcome.success)

    result: EpisodeResult = runtime.run_episode(task, seed, words, on_step=note)
    assert result.verdict is not None
    outcome = CONFIRMED if result.judged_success else result.verdict.outcome
    if outcome == CONFIRMED and not result.judged_success:
        outcome = CANNOT_TELL  # it came too late to be held
    truth = any(truths if task in MOMENTARY else truths[-RECENT:] if result.judged_success else truths[-1:])
    first = truths.index(True) if True in truths else -1
    return {
        "words": result.instruction, "verdict": outcome, "truth": truth, "steps": result.steps, "first_success": first,
        "reason": result.verdict.reason,
    }  # fmt: skip


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the report: of all episodes, and agreement of each way and each task."""
    told = [e for e in found if e["verdict"] != CANNOT_TELL]
    confirmed = [e for e in told if e["verdict"] == CONFIRMED]
    rows = [
        _share("verdict_agreement", [_right(e) for e in told], f">= {AGREEMENT}", lambda rate: rate >= AGREEMENT),
        _share(
            "verdict_false_success", [not e["truth"] for e in confirmed], f"<= {FALSE_SUCCESS}",
            lambda rate: rate <= FALSE_SUCCESS,
        ),
        _share("verdict_missed_success", [e["verdict"] != CONFIRMED for e in found if e["truth"]]),
        _share("verdict_cannot_tell", [e["verdict"] == CANNOT_TELL for e in found]),
    ]  # fmt: skip
    for key, names in (("way", WAYS), ("task", tuple(TASKS))):
        for name in names:
            if those := [_right(e) for e in told if e[key] == name]:
                rows.append(_share(f"verdict_agreement_{name.replace(' ', '_')}", those))
    return rows


def _right(episode: dict[str, Any]) -> bool:
    return bool((episode["verdict"] == CONFIRMED) == episode["truth"])


def _share(name: str, hits: list[bool], target: str | None = None, meets: Any = None) -> dict[str, Any]:
    if not hits:
        return figure(name, float("nan"), 0)
    rate = wilson(sum(hits), len(hits))
    return figure(
        name, rate.rate, rate.n, (rate.low, rate.high), target, meets(rate.rate) if meets is not None else None, 4
    )


def table(found: list[dict[str, Any]]) -> Table:
    """Return how often the simulator and the memory said what, a row for each task and way."""
    kinds = [(truth, verdict) for truth in (True, False) for verdict in VERDICTS]
    head = [f"{'done' if truth else 'not done'}: {verdict.replace('_', ' ')}" for truth, verdict in kinds]
    shown = Table("task", "way", *head, title="Episodes by simulator's truth and memory's verdict")
    counts = Counter((e["task"], e["way"], e["truth"], e["verdict"]) for e in found)
    for task in TASKS:
        for way in WAYS:
            shown.add_row(task, way, *(str(counts[task, way, *kind]) for kind in kinds))
    return shown


def main(config: VerdictBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(VerdictBenchmark)
    where = machine()
    found = list(episodes(config))
    Console(stderr=True, width=150).print(table(found))
    keep = ("way", "task", "seed", "words", "verdict", "truth", "reason")
    wrong = [{k: e[k] for k in keep} for e in found if e["verdict"] != CANNOT_TELL and not _right(e)]
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "verdicts", where, told, figures=figures(found), wrong=wrong)


if __name__ == "__main__":
    main()
