"""Record eviction traces from the robot's own memory as it goes round the simulated household.

    python -m engram.benchmarks.eviction_recording

The sensor model is fitted to rendered frames of one home through the real perception; the scene graph decides what is
new, moved or gone, with its errors. Writes benchmarks/traces/seen-<seed>.jsonl.gz; the last line is JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from engram.benchmarks.eviction_traces import TRACES, TraceEvent, wanted, write_trace
from engram.benchmarks.household import map_memory
from engram.benchmarks.household_fit import FIT_SEED, record_home
from engram.core.questions import FindObject
from engram.core.types import GraphUpdate
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.sim.household.camera_sense import CameraSense
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import SensorRecord
from engram.sim.household.tour import Inspector
from engram.sim.household.world import HouseholdWorld


@dataclass(frozen=True)
class RecordEviction:
    """How much is lived."""

    first_seed: int = 40
    """Of the homes: neither those of the fit nor those of the training."""
    homes: int = 10
    """Homes."""
    days: int = 15
    """Days in each, three visits a day."""
    questions: int = 8
    """After each visit, in the mean."""
    output: Path = TRACES
    """Where the traces go."""


def changes(update: GraphUpdate) -> list[TraceEvent]:
    """Return the events of ``update`` as ShortTermMemory takes them; what the graph gave up counts as gone."""
    found = []
    for event in update.events:
        gone = event.kind in ("absent", "deleted", "merged")
        key = event.other_id if event.kind == "merged" else event.node_id
        if event.kind != "split":
            found.append(TraceEvent(False, key, event.label, _mm(event.place), gone))
    return found


def record(seed: int, config: RecordEviction, sensor: SensorRecord, encoder: TextEncoder) -> list[TraceEvent]:
    """Live in the home of ``seed`` and return what its memory went through."""
    life, rng = Life(make_home(seed), seed), np.random.default_rng([seed, 9])
    world = HouseholdWorld(life.home, life.things)
    memory = map_memory(life.home, encoder)
    inspector = Inspector(world, ModelSense(sensor, encoder, seed), seed)
    things, weight = list(life.things), wanted(life, rng)
    trace: list[TraceEvent] = []
    for day in range(config.days):
        for hour in VISIT_HOURS:
            stamp_ns = day * DAY_NS + hour * HOUR_NS
            life.advance(stamp_ns)
            world.arrange(life.oracle_placements())
            for _, sights in inspector.visit(stamp_ns):
                for sight in sights:
                    trace += changes(memory.update(sight.scene))
            for i in rng.choice(len(things), rng.poisson(config.questions), p=weight):
                at, name = life.oracle_placements()[things[i]], life.things[things[i]].name
                if at is not None:  # nobody asks for what they took along
                    nodes = memory.query(FindObject(name, now_ns=stamp_ns + HOUR_NS)).nodes
                    key = nodes[0].id if nodes else f"unknown {name}"
                    trace.append(TraceEvent(True, key, name, _mm(at.position)))
    memory.close()
    world.close()
    return trace


def _mm(place: np.ndarray) -> tuple[float, float, float]:
    x, y, z = np.round(place, 3).tolist()
    return x, y, z


def main(config: RecordEviction | None = None) -> None:
    """Fit the sensor, record, write."""
    config = config or tyro.cli(RecordEviction)
    encoder = default_text_encoder()
    sensor = record_home(FIT_SEED, lambda: CameraSense(encoder, FIT_SEED), 1)
    told = []
    for seed in range(config.first_seed, config.first_seed + config.homes):
        trace = record(seed, config, sensor, encoder)
        write_trace(config.output / f"seen-{seed}.jsonl.gz", trace)
        told.append({"seed": seed, "events": len(trace), "questions": sum(one.question for one in trace)})
        print(told[-1], flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
