"""Three weeks in one home under a small budget, beside a memory without bounds: size on disk and in RAM, and answers.

    python -m engram.benchmarks.memory_weeks [--quick]

Both memories get the same frames of the fitted sensor model and the same questions. Bytes in RAM are what the stores
count; the growth that tracemalloc sees in a process of its own is not measured here. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from engram.benchmarks.household import FIRST_SEED, map_memory
from engram.benchmarks.household_fit import fit_sensor
from engram.benchmarks.household_scores import Looked, Scores, ask_everything
from engram.benchmarks.report import figure, save_report
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.memory.storage.disk_budget import bytes_in
from engram.memory.storage.store import GraphStore, GraphStoreConfig
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import SensorRecord
from engram.sim.household.tour import Inspector
from engram.sim.household.world import HouseholdWorld

RESULTS = Path(__file__).resolve().parent / "results" / "memory_weeks.json"
UNBOUNDED_MB = 1e6
_MB = 1 << 20


@dataclass(frozen=True)
class WeeksBenchmark:
    """How long, and within what."""

    quick: bool = False
    """Four days."""
    days: int = 21
    """Days, three visits each."""
    ram_mb: float = 2.0
    """Budget of the four stores in RAM [MB]."""
    disk_mb: float = 8.0
    """Budget of the files [MB]."""
    fit_homes: int = 3
    """Homes that the sensor model is fitted to."""
    work: Path | None = None
    """Folder that keeps the fitted sensor; default: a temporary one."""
    output: Path = RESULTS
    """Where the JSON goes."""


def live(config: WeeksBenchmark, record: SensorRecord, encoder: TextEncoder, folder: Path) -> list[dict]:
    """Live in the home; return a row a day."""
    life = Life(make_home(FIRST_SEED), FIRST_SEED)
    world = HouseholdWorld(life.home, life.things)
    inspector = Inspector(world, ModelSense(record, encoder, FIRST_SEED), FIRST_SEED)
    budgets = {"bounded": (config.ram_mb, config.disk_mb), "unbounded": (UNBOUNDED_MB, UNBOUNDED_MB)}
    stores = {name: GraphStore(folder / name, GraphStoreConfig(budget_mb=disk)) for name, (_, disk) in budgets.items()}
    memories = {name: map_memory(life.home, encoder, stores[name], ram_mb=ram) for name, (ram, _) in budgets.items()}
    scores, looked, days = {name: Scores() for name in memories}, Looked(), []
    for day in range(config.days):
        before = {name: Counter(score.count) for name, score in scores.items()}
        row: dict = {"day": day}
        for hour in VISIT_HOURS:
            stamp_ns = day * DAY_NS + hour * HOUR_NS
            life.advance(stamp_ns)
            world.arrange(life.oracle_placements())
            for spot, sights in inspector.visit(stamp_ns):
                for sight in sights:
                    for memory in memories.values():
                        memory.update(sight.scene)
                looked.note(spot, sights)
            for name, memory in memories.items():
                memory.consolidate(0.2)
                ask_everything(memory, life, looked, scores[name], stamp_ns + HOUR_NS)
                memory.commit()
                stores[name].wait()
                mine = row.setdefault(name, {"ram_mb": 0.0, "disk_mb": 0.0})
                mine["ram_mb"] = round(max(mine["ram_mb"], sum(memory.bytes_used().values()) / _MB), 3)
                mine["disk_mb"] = round(max(mine["disk_mb"], bytes_in(folder / name) / _MB), 2)
        for name, score in scores.items():
            today = score.count - before[name]
            row[name] |= {"right": today["right"], "questions": today["questions"]}
        days.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    for name, memory in memories.items():
        memory.close()
        stores[name].close()
    world.close()
    return days


def figures(days: list[dict], config: WeeksBenchmark) -> list[dict]:
    """Judge the days: budgets hold at every commit, and the last week's answers are as good as without bounds."""
    found: list[dict] = []
    for kind, budget in (("ram_mb", config.ram_mb), ("disk_mb", config.disk_mb)):
        most = max(day["bounded"][kind] for day in days)
        free = max(day["unbounded"][kind] for day in days)
        met = most <= budget
        found.append(figure(f"weeks_most_{kind}", most, len(days), target=f"<= {budget}", met=met, unbounded=free))
    rates = {}
    for name in ("bounded", "unbounded"):
        last = [day[name] for day in days[-7:]]
        rates[name] = wilson(sum(day["right"] for day in last), sum(day["questions"] for day in last))
    ours, free = rates["bounded"], rates["unbounded"]
    found.append(figure(
        "weeks_right_answers_last_week", ours.rate, ours.n, (ours.low, ours.high), ">= unbounded - 0.01",
        ours.rate >= free.rate - 0.01, digits=4, unbounded=round(free.rate, 4),
    ))  # fmt: skip
    return found


def main(config: WeeksBenchmark | None = None) -> None:
    """Live, judge, save."""
    config = config or tyro.cli(WeeksBenchmark)
    if config.quick:
        config = replace(config, days=4, fit_homes=1)
    where = machine()
    with tempfile.TemporaryDirectory() as scratch:
        encoder, work = default_text_encoder(), config.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        record, _ = fit_sensor(encoder, config.fit_homes, 1 if config.quick else 2, work)
        days = live(config, record, encoder, Path(scratch) / "stores")
    save_report(
        config.output, "memory_weeks", where, config, seeds=[FIRST_SEED], figures=figures(days, config), days=days
    )


if __name__ == "__main__":
    main()
