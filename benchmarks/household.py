"""Weeks in several homes: our memory and three baselines see the same frames and answer the same questions.

    python -m engram.benchmarks.household [--quick]

The sensor model is fitted first, to rendered frames of other homes through the real perception, and checked on a home
that it was not fitted to. One day in the first home is seen through rendered images. Homes that the same code finished
are kept in ``--work`` and not run again. The last line is JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from engram.benchmarks.household_figures import figures
from engram.benchmarks.household_fit import fit_sensor
from engram.benchmarks.household_past import Past
from engram.benchmarks.household_scores import Looked, Merges, Scores, ask_everything, ask_how_sure, score_graph
from engram.benchmarks.memory_baselines import CaptionMemory, SightingMemory
from engram.benchmarks.report import save_report
from engram.core.contracts import Memory
from engram.core.provenance import digest, machine
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemoryConfig
from engram.memory.query.advice import AdviceConfig
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.store import GraphStore
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.sim.household.camera_sense import CameraSense
from engram.sim.household.layout import Home, make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import SensorRecord
from engram.sim.household.tour import Inspector, Sense, map_nodes
from engram.sim.household.world import HouseholdWorld

OURS = "engram"
RESULTS = Path(__file__).resolve().parent / "results" / "household.json"
CODE = ("core/*.py", "memory/*", "perception/**/*.py", "sim/household/*.py", "benchmarks/household*.py",
        "benchmarks/memory_baselines.py")  # fmt: skip
"""What the answers of a home depend on."""
FIRST_SEED = 10
"""Homes 0-9 are for development."""


@dataclass(frozen=True)
class HouseholdBenchmark:
    """How much is lived and seen."""

    quick: bool = False
    """Two homes and six days, the sensor model from one home."""
    homes: int = 5
    """Homes, seeds 10 and up."""
    days: int = 50
    """Days in each, three visits a day."""
    fit_homes: int = 3
    """Homes (seeds 900 ..) whose rendered frames the sensor model is fitted to."""
    camera_day: int = 1
    """The day in the first home that is seen through rendered images."""
    work: Path | None = None
    """Folder for the fitted sensor and finished homes; default: a temporary one."""


def map_memory(
    home: Home, encoder: TextEncoder, store: GraphStore | None = None, advice: AdviceConfig | None = None,
    ram_mb: float | None = None,
) -> RobotMemory:  # fmt: skip
    """Return our memory, with its defaults, of a robot that drives and knows the rooms and furniture of ``home``.

    ``ram_mb``: its four stores keep within it.
    """
    graph = GraphMemoryConfig(tracker=TrackerConfig(frame="map"), advice=advice or AdviceConfig())
    config = RobotMemoryConfig(graph=graph)
    return RobotMemory(store, config if ram_mb is None else config.within(ram_mb), encoder, map_nodes(home))


def run_home(seed: int, config: HouseholdBenchmark, record: SensorRecord, encoder: TextEncoder, folder: Path) -> dict:
    """Live ``config.days`` in one home; returns counts by memory and a row a day."""
    life = Life(make_home(seed), seed)
    world = HouseholdWorld(life.home, life.things)
    senses: dict[bool, Sense] = {False: ModelSense(record, encoder, seed), True: CameraSense(encoder, seed)}
    part, kept = folder / f"{home_name(seed, config)}.part.json", folder / f"store_{home_name(seed, config)}"
    shutil.rmtree(kept, ignore_errors=True)  # of a run that was cut off: the home begins anew
    store = GraphStore(kept)
    ours = map_memory(life.home, encoder, store)
    memories: dict[str, Memory] = {
        OURS: ours,
        "captions": CaptionMemory(encoder=encoder),
        "newest_100": SightingMemory(100, encoder),
        "full_history": SightingMemory(None, encoder),
    }
    scores = {name: Scores() for name in (*memories, "engram_camera")}
    inspector, looked, merges, days = Inspector(world, senses[False], seed), Looked(), Merges(), []
    past = Past(life, seed)
    for day in range(config.days):
        by_camera = seed == FIRST_SEED and day == config.camera_day
        inspector.sense = senses[by_camera]
        before = Counter(scores[OURS].count)
        mine = scores["engram_camera" if by_camera else OURS]
        started = time.process_time()
        for hour in VISIT_HOURS:
            stamp_ns = day * DAY_NS + hour * HOUR_NS
            life.advance(stamp_ns)
            for name, memory in memories.items():
                ask_how_sure(memory, life, scores[name], stamp_ns)
            world.arrange(life.oracle_placements())
            for spot, sights in inspector.visit(stamp_ns):
                for sight in sights:
                    change = ours.update(sight.scene)
                    merges.note(sight, change, life, mine)
                    for name in ("captions", "newest_100", "full_history"):
                        memories[name].update(sight.scene)
                looked.note(spot, sights)
            for name, memory in memories.items():
                judged = mine if name == OURS else scores[name]
                told = ask_everything(memory, life, looked, judged, stamp_ns + HOUR_NS)
                if name == OURS:
                    past.note(stamp_ns, looked, told)
            ours.commit()
        ours.consolidate(0.5)
        score_graph(ours, life, looked, mine)
        past.ask(memories, OURS, scores, stamp_ns + HOUR_NS)
        today = mine.count - before if not by_camera else mine.count
        days.append(_day(today, kept, time.process_time() - started))
        _save(part, seed, scores, days)
        print(f"home {seed} day {day}: {days[-1]}", file=sys.stderr, flush=True)
    ours.close()
    store.close()
    world.close()
    result = _save(part, seed, scores, days)
    part.rename(folder / f"{home_name(seed, config)}.json")
    return result


def home_name(seed: int, config: HouseholdBenchmark) -> str:
    """Return how the files of a home are called: a run of another length, or by other code, is another run."""
    return f"home_{seed}_days_{config.days}_code_{digest(*CODE)}"


def _day(count: Counter[str], store: Path, cpu_s: float) -> dict:
    """Return what a day is judged by: quality of the answers, size on disk and in RAM."""
    disk = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    return {
        "right": count["right"],
        "rightly_none": count["rightly none"],
        "knowable": count["knowable"],
        "right_of_knowable": count["right of knowable"],
        "questions": count["questions"],
        "stale": count["stale"],
        "ghosts": count["ghosts"],
        "believed": count["believed"],
        "disk_mb": round(disk / 2**20, 2),
        "ram_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1),
        "cpu_s": round(cpu_s, 1),
    }


def _save(path: Path, seed: int, scores: dict[str, Scores], days: list[dict]) -> dict:
    told = {
        name: {
            "count": dict(s.count),
            "error_m": [round(e, 5) for e in s.error_m],
            "told": [(round(sure, 3), bool(right)) for sure, right in s.told],
        }
        for name, s in scores.items()
    }
    result = {"seed": seed, "scores": told, "days": days}
    path.write_text(json.dumps(result))
    return result


def run(config: HouseholdBenchmark, folder: Path) -> tuple[list[dict], list[list[dict]]]:
    """Fit the sensor, live in every home that is not finished yet; return the figures and each home's days."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = default_text_encoder()
    record, fit = fit_sensor(encoder, config.fit_homes, 1 if config.quick else 2, folder)
    results = []
    for seed in range(FIRST_SEED, FIRST_SEED + config.homes):
        done = folder / f"{home_name(seed, config)}.json"
        results.append(
            json.loads(done.read_text()) if done.exists() else run_home(seed, config, record, encoder, folder)
        )
    return fit + figures(results), [result["days"] for result in results]


def main(config: HouseholdBenchmark | None = None) -> None:
    """Measure and print the figures, JSON last."""
    config = config or tyro.cli(HouseholdBenchmark)
    if config.quick:
        config = replace(config, homes=2, days=6, fit_homes=1)
    where = machine()
    with tempfile.TemporaryDirectory() as scratch:
        told, days = run(config, config.work or Path(scratch))
    for row in told:
        print(json.dumps(row))
    seeds = list(range(FIRST_SEED, FIRST_SEED + config.homes))
    save_report(RESULTS, "household", where, replace(config, work=None), seeds=seeds, figures=told, days=days)


if __name__ == "__main__":
    main()
