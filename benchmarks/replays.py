"""Demonstrations that are replayed on robots that differ from the one that showed them.

    python -m engram.benchmarks.replays [--quick]

Scripted experts demonstrate a task in the simulated tabletop. On each twin (``engram.sim.gaps``), where something
differs, they are replayed in other scenes, moved to where the memory sees the things of the words. Nothing is learnt.
The simulator scores; it also says how often the memory was right. Episodes are kept in ``work`` and gone on with.
Prints a table; the last line is JSON, which also goes to benchmarks/results/replays.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.app.improve import ImproveConfig, practise
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.errors import unknown_name
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.runtime.record import RecordConfig, record
from engram.sim.gaps import GAPS
from engram.sim.tasks import TASKS


@dataclass(frozen=True)
class ReplaysBenchmark:
    """What is measured."""

    quick: bool = False
    """Two replays on two twins."""
    tasks: tuple[str, ...] = ("pick_place", "stack")
    """Tasks in which a thing is grasped and let go."""
    on: tuple[str, ...] = tuple(GAPS)
    """Twins."""
    demonstrations: int = 10
    """Of each task."""
    episodes: int = 30
    """Replays of each task on each twin."""
    seed: int = 0
    """Of the scenes: those of a practice with this seed."""
    work: Path = Path("runs/replays")
    """Folder of demonstrations and episodes."""
    output: Path = RESULTS / "replays.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for field, known in (("tasks", TASKS), ("on", GAPS)):
            for name in getattr(self, field):
                if name not in known:
                    raise unknown_name(f"ReplaysBenchmark.{field}", name, known)
        for name in ("demonstrations", "episodes"):
            positive_int(f"ReplaysBenchmark.{name}", getattr(self, name))


def replayed(config: ReplaysBenchmark, task: str, on: str) -> list[dict[str, Any]]:
    """Return what came of each episode."""
    shown = str(shown_by_experts(config.work, task, config.demonstrations))
    wanted = ImproveConfig(task, on, search=0, updates=0, exploration=0.0, seed=config.seed, measured=1)
    wanted = replace(wanted, episodes=2 if config.quick else config.episodes, measure_at=(0,))
    found: list[dict[str, Any]] = practise(replace(wanted, demonstrations=shown, work=config.work))["episodes"]
    return found


def shown_by_experts(work: Path, task: str, episodes: int) -> Path:
    """Return the folder of demonstrations in the simulation without a gap, those of an earlier run if there are any."""
    folder = work / "shown" / f"{task}_{episodes}"
    if not folder.is_dir():
        record(RecordConfig(str(folder), tasks=(task,), episodes=episodes, workers=1))
    return folder


def figures(found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the success of the replays of each task on each twin, and how often the memory was wrong."""
    rows = []
    for (task, on), episodes in found.items():
        rate = wilson(sum(one["oracle_success"] for one in episodes), len(episodes))
        rows.append(figure(f"replays_{task}_on_{on}", rate.rate, rate.n, (rate.low, rate.high)))
    every = [one for episodes in found.values() for one in episodes]
    for name, told, true in (("false", "success", "oracle_success"), ("missed", "oracle_success", "success")):
        n = sum(one[told] for one in every)
        wrong = wilson(sum(one[told] and not one[true] for one in every), n) if n else None
        if wrong is not None:
            rows.append(figure(f"replays_{name}_successes", wrong.rate, n, (wrong.low, wrong.high)))
    return rows


def main(config: ReplaysBenchmark | None = None) -> None:
    """Replay, print, save."""
    config = config or tyro.cli(ReplaysBenchmark)
    where, twins = machine(), config.on[:2] if config.quick else config.on
    rows = figures({(task, on): replayed(config, task, on) for on in twins for task in config.tasks})
    table = Table("figure", "share", "95 % interval", "n", title="Replays")
    for row in rows:
        low, high = row["interval"]
        table.add_row(row["name"], f"{row['value']:.3f}", f"{low:.3f}..{high:.3f}", str(row["n"]))
    Console(stderr=True).print(table)
    save_report(config.output, "replays", where, replace(config, work=Path(config.work.name)), figures=rows)


if __name__ == "__main__":
    main()
