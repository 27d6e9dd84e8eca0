"""Fetching things in a home that is lived in, by what a memory says and what the robot sees, nothing else.

    python -m engram.benchmarks.fetch [--quick]

For a week the robot goes round three times a day. Then come days with a stream of 20 related tasks ("bring me the
phone"): half of them ask again for something asked for before, residents move things between tasks, and what was asked
for ends up where it was to be brought, whether the robot found it or not, so that every arm lives in the same world.
Four arms search: *none* without memory, *short_term* with a memory that knows only today's tasks, *long_term* with one
that knows only the rounds, *both*. A fifth, *advice*, answers "where is it?" and looks only when the memory advises to.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tyro

from engram.benchmarks.household import map_memory
from engram.benchmarks.household_figures import rate
from engram.benchmarks.household_fit import fit_sensor
from engram.benchmarks.household_scores import RIGHT_M, believed
from engram.benchmarks.report import save_report
from engram.core.contracts import Memory, MemoryAnswer, MemoryQuery
from engram.core.provenance import machine
from engram.memory.robot_memory import RobotMemory
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.sim.household.layout import Home, make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import SensorRecord
from engram.sim.household.tour import Inspector, Sight
from engram.sim.household.world import HouseholdWorld

ARMS = ("none", "short_term", "long_term", "both")
RESULTS = Path(__file__).resolve().parent / "results" / "fetch.json"
FIRST_SEED = 100
_TASK_NS = 12 * 60 * 1_000_000_000
_LOOK_NS = 20 * 1_000_000_000


@dataclass(frozen=True)
class FetchBenchmark:
    """How many homes, days and tasks."""

    quick: bool = False
    """One home, four days of rounds, one day of tasks."""
    homes: int = 5
    """Homes, seeds 100 and up."""
    rounds: int = 7
    """Days of rounds before the tasks."""
    streams: int = 4
    """Days of tasks in a home."""
    tasks: int = 20
    """Tasks a day."""
    looks: int = 7
    """A search ends after so many stops."""
    pace: float = 0.15
    """How lively the time between two tasks is, of that between two rounds."""
    work: Path | None = None
    """Folder of a fitted sensor model; default: fit one."""


@dataclass
class Tally:
    """What one arm did."""

    count: Counter[str] = field(default_factory=Counter)
    metres: list[float] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)

    def note(self, success: bool, metres: float, spots: Sequence[str], home: Home) -> None:
        """Count one task."""
        self.count["tasks"] += 1
        self.count["successes"] += success
        self.metres.append(metres)
        self.stops.append(len(spots))
        self.rooms.append(len({home.spots[spot].room for spot in spots}))


class Searcher:
    """One arm: where it goes next is decided by its memory, then by what is near and was not looked at yet."""

    def __init__(
        self, world: HouseholdWorld, life: Life, sense: ModelSense, memory: Memory | None, learns: bool
    ) -> None:
        self.world, self.life, self.memory, self.learns = world, life, memory, learns
        self._inspector = Inspector(world, sense, life.home.seed)
        self._looked_ns: dict[str, int] = {}  # today's looks, if it has a memory of today

    def fetch(self, name: str, start: np.ndarray, stamp_ns: int, limit: int) -> tuple[bool, float, list[str]]:
        """Search for a thing called ``name``; returns whether it was found, metres driven, spots looked at."""
        here, metres, spots = start, 0.0, []
        while len(spots) < limit:
            spot = self._next(name, here, spots, stamp_ns)
            if spot is None:
                break
            metres += self.world.home.metres(here, self.world.home.spots[spot].stop)
            here = self.world.home.spots[spot].stop
            spots.append(spot)
            if oracle_found(name, self.look(spot, stamp_ns + len(spots) * _LOOK_NS), self.life):
                return True, metres, spots
        return False, metres, spots

    def look(self, spot: str, stamp_ns: int) -> list[Sight]:
        """Look at ``spot``; an arm that learns remembers what it sees."""
        sights = self._inspector.look(spot, stamp_ns)
        if self.learns and self.memory is not None:
            for sight in sights:
                self.memory.update(sight.scene)
            self._looked_ns[spot] = stamp_ns
        return sights

    def _next(self, name: str, here: np.ndarray, done: Sequence[str], stamp_ns: int) -> str | None:
        home = self.world.home
        if self.memory is not None:
            answer = self.memory.query(MemoryQuery(text=name, limit=10, now_ns=stamp_ns, robot_place=_at(here)))
            for spot in suggested(answer, name, home):
                if spot not in done:
                    return spot
        left = [spot for spot in home.spots if spot not in done]
        if not left:
            return None
        return min(left, key=lambda s: (self._looked_ns.get(s, -1) > 0, home.metres(here, home.spots[s].stop)))

    def answer(self, name: str, start: np.ndarray, stamp_ns: int, limit: int) -> tuple[bool, float, list[str]]:
        """Say where a thing is, after the looks that the memory advises; returns whether that is right."""
        assert self.memory is not None
        here, metres, spots = start, 0.0, []
        while True:
            query = MemoryQuery(text=name, limit=10, now_ns=stamp_ns + len(spots) * _LOOK_NS, robot_place=_at(here))
            answer = self.memory.query(query)
            advice = answer.advice
            spot = None
            if advice is not None and advice.look and advice.place is not None and len(spots) < limit:
                spot = self.world.home.spot_of(advice.place) or _nearest(self.world.home, advice.place)
            if spot is None or spot in spots:
                return oracle_right(answer, name, self.life), metres, spots
            metres += self.world.home.metres(here, self.world.home.spots[spot].stop)
            here = self.world.home.spots[spot].stop
            spots.append(spot)
            self.look(spot, stamp_ns + len(spots) * _LOOK_NS)


def suggested(answer: MemoryAnswer, name: str, home: Home) -> list[str]:
    """Return the spots that an answer names, best first: where it is believed to be, then where it usually is."""
    places = [node.pose.position for node in believed(answer.nodes) if node.label == name]
    semantic = [one for one in answer.evidence if one.source == "semantic" and one.place is not None]
    places += [one.place for one in sorted(semantic, key=lambda one: -one.score) if one.place is not None]
    spots = [home.spot_of(place) for place in places]
    return list(dict.fromkeys(spot for spot in spots if spot is not None))


def oracle_found(name: str, sights: Sequence[Sight], life: Life) -> bool:
    """Whether some frame shows a thing called ``name`` that really is one: the grasp would succeed."""
    return any(
        seen.label == name and thing is not None and life.things[thing].name == name
        for sight in sights
        for seen, thing in zip(sight.scene.objects, sight.oracle_things, strict=True)
    )


def oracle_right(answer: MemoryAnswer, name: str, life: Life) -> bool:
    """Whether the answer names a place where such a thing is; no answer is right when all are out of the home."""
    placed = life.oracle_placements()
    there = [placed[thing] for thing, kind in life.things.items() if kind.name == name]
    places = [node.pose.position for node in believed(answer.nodes) if node.label == name]
    if not places:
        return all(at is None for at in there)
    return any(at is not None and float(np.linalg.norm(at.position - places[0])) <= RIGHT_M for at in there)


def _at(base: np.ndarray) -> np.ndarray:
    return np.array([base[0], base[1], 0.0])


def _nearest(home: Home, place: np.ndarray) -> str:
    return min(home.spots, key=lambda name: float(np.linalg.norm(home.spots[name].centre - place)))


def run_home(seed: int, config: FetchBenchmark, record: SensorRecord, encoder: TextEncoder) -> dict[str, Tally]:
    """Live a week of rounds, then days of tasks, in one home."""
    life = Life(make_home(seed), seed)
    world = HouseholdWorld(life.home, life.things)
    memories = {name: map_memory(life.home, encoder) for name in ("long_term", "both", "advice")}
    inspector = Inspector(world, ModelSense(record, encoder, seed), seed)
    rng, tallies = np.random.default_rng([seed, 5]), defaultdict(Tally)
    for day in range(config.rounds + config.streams):
        for hour in VISIT_HOURS:
            if day >= config.rounds and hour == VISIT_HOURS[0]:
                run_stream(day * DAY_NS + hour * HOUR_NS, config, record, encoder, world, life, memories, rng, tallies)
                continue
            stamp_ns = day * DAY_NS + hour * HOUR_NS
            life.advance(stamp_ns)
            world.arrange(life.oracle_placements())
            for _, sights in inspector.visit(stamp_ns):
                for sight in sights:
                    for memory in memories.values():
                        memory.update(sight.scene)
        for memory in memories.values():
            memory.consolidate(0.5)
    for memory in memories.values():
        memory.close()
    world.close()
    return tallies


def run_stream(
    start_ns: int, config: FetchBenchmark, record: SensorRecord, encoder: TextEncoder, world: HouseholdWorld,
    life: Life,
    memories: dict[str, RobotMemory], rng: np.random.Generator, tallies: dict[str, Tally],
) -> None:  # fmt: skip
    """Run one day's stream of tasks through every arm, in one world."""
    home, asked = life.home, []
    today = map_memory(home, encoder)
    known: dict[str, Memory | None] = {"none": None, "short_term": today, **memories}
    arms = {
        name: Searcher(world, life, ModelSense(record, encoder, home.seed), memory, learns=name != "long_term")
        for name, memory in known.items()
    }
    here = home.dock
    for task in range(config.tasks):
        stamp_ns = start_ns + task * _TASK_NS
        life.advance(stamp_ns, config.pace)
        world.arrange(life.oracle_placements())
        name = _draw_task(life, asked, rng)
        goal = str(rng.choice([spot.name for spot in home.spots.values() if not spot.closed]))
        found = {arm: arms[arm].fetch(name, here, stamp_ns, config.looks) for arm in ARMS}
        for arm, (success, metres, spots) in found.items():
            tallies[arm].note(success, metres, spots, home)
        told = memories["long_term"].query(MemoryQuery(text=name, limit=10, now_ns=stamp_ns))
        tallies["never_look"].note(oracle_right(told, name, life), 0.0, (), home)
        tallies["always_look"].note(*found["both"], home)
        tallies["advice"].note(*arms["advice"].answer(name, here, stamp_ns, config.looks), home)
        tallies["oracle"].note(*_oracle_way(name, here, life), home)
        thing = next(
            t for t, kind in life.things.items() if kind.name == name and life.oracle_placements()[t] is not None
        )
        life.oracle_carry(thing, goal, stamp_ns + _TASK_NS // 2)
        world.arrange(life.oracle_placements())
        for arm in ("short_term", "both"):
            if found[arm][0]:
                arms[arm].look(goal, stamp_ns + _TASK_NS // 2 + _LOOK_NS)
        here = home.spots[goal].stop
    today.close()


def _draw_task(life: Life, asked: list[str], rng: np.random.Generator) -> str:
    """Return what is asked for: half of the time again something of today, always something that is at home."""
    placed = life.oracle_placements()
    there = sorted({kind.name for thing, kind in life.things.items() if placed[thing] is not None})
    again = [name for name in asked if name in there]
    moving = [name for name in there if any(k.name == name and k.mobility != "fixed" for k in life.things.values())]
    name = str(rng.choice(again if again and rng.random() < 0.5 else moving))
    asked.append(name)
    return name


def _oracle_way(name: str, here: np.ndarray, life: Life) -> tuple[bool, float, list[str]]:
    placed = life.oracle_placements()
    there = [placed[thing] for thing, kind in life.things.items() if kind.name == name]
    spots = [at.spot for at in there if at is not None]
    best = min(spots, key=lambda spot: life.home.metres(here, life.home.spots[spot].stop))
    return True, life.home.metres(here, life.home.spots[best].stop), [best]


def figures(tallies: dict[str, Tally]) -> list[dict]:
    """Return success and exploration of each arm, their ratios, and what advice saves."""
    rows = []
    for arm in (*ARMS, "oracle"):
        tally = tallies[arm]
        rows.append(rate(f"fetch_{arm}_success", tally.count["successes"], tally.count["tasks"]))
        for looks in (1, 3, 5):  # a search that fails uses up all of its looks, so these are successes
            within = sum(stops <= looks for stops in tally.stops)
            rows.append(rate(f"fetch_{arm}_success_within_{looks}_looks", within, tally.count["tasks"]))
        for what in ("stops", "rooms", "metres"):
            rows.append(_mean(f"fetch_{arm}_{what}", getattr(tally, what)))
    share = {arm: tallies[arm].count["successes"] / max(1, tallies[arm].count["tasks"]) for arm in ARMS}
    ratio = share["both"] / max(share["none"], 1e-9)
    rows.append(_judged("fetch_success_both_over_none", ratio, len(tallies["both"].stops), ">= 2.3", ratio >= 2.3))
    for what in ("stops", "rooms", "metres"):
        part = float(np.mean(getattr(tallies["both"], what)) / max(np.mean(getattr(tallies["none"], what)), 1e-9))
        rows.append(
            _judged(f"fetch_{what}_both_over_none", part, len(tallies["both"].stops), "<= 0.333", part <= 1 / 3)
        )
    return rows + _advice_figures(tallies)


def _advice_figures(tallies: dict[str, Tally]) -> list[dict]:
    rows = []
    for arm in ("never_look", "always_look", "advice"):
        rows.append(rate(f"where_{arm}_right", tallies[arm].count["successes"], tallies[arm].count["tasks"]))
        rows.append(_mean(f"where_{arm}_metres", tallies[arm].metres))
    n = len(tallies["advice"].metres)
    right = {arm: tallies[arm].count["successes"] / n for arm in ("never_look", "always_look", "advice")}
    saved = float(np.mean(tallies["advice"].metres) / np.mean(tallies["always_look"].metres))
    rows.append(_judged("where_advice_metres_over_always", saved, n, "< 1", saved < 1))
    lost = right["always_look"] - right["advice"]
    rows.append(_judged("where_advice_right_below_always", lost, n, "<= 0.02", lost <= 0.02))
    gain = right["advice"] - right["never_look"]
    rows.append(_judged("where_advice_right_above_never", gain, n, "> 0", gain > 0))
    return rows


def _mean(name: str, values: Sequence[float]) -> dict:
    half = 1.96 * float(np.std(values)) / max(1.0, np.sqrt(len(values)))
    mean = float(np.mean(values))
    interval = [round(mean - half, 3), round(mean + half, 3)]
    return {"name": name, "value": round(mean, 3), "interval": interval, "n": len(values), "target": "", "met": None}


def _judged(name: str, value: float, n: int, target: str, met: bool) -> dict:
    return {"name": name, "value": round(value, 4), "interval": None, "n": n, "target": target, "met": bool(met)}


def main(config: FetchBenchmark | None = None) -> None:
    """Measure and print the figures, JSON last."""
    config = config or tyro.cli(FetchBenchmark)
    if config.quick:
        config = replace(config, homes=1, rounds=4, streams=1)
    where, encoder = machine(), default_text_encoder()
    total: dict[str, Tally] = defaultdict(Tally)
    with tempfile.TemporaryDirectory() as scratch:
        folder = config.work or Path(scratch)
        record, _ = fit_sensor(encoder, 1 if config.quick else 3, 1 if config.quick else 2, folder)
        for seed in range(FIRST_SEED, FIRST_SEED + config.homes):
            for arm, tally in run_home(seed, config, record, encoder).items():
                total[arm].count.update(tally.count)
                for what in ("metres", "stops", "rooms"):
                    getattr(total[arm], what).extend(getattr(tally, what))
            print(
                f"home {seed}: { ({a: t.count['successes'] for a, t in total.items()}) }", file=sys.stderr, flush=True
            )
    told = figures(total)
    for row in told:
        print(json.dumps(row))
    seeds = list(range(FIRST_SEED, FIRST_SEED + config.homes))
    output = (config.work or Path(tempfile.gettempdir())) / "fetch_quick.json" if config.quick else RESULTS
    save_report(output, "fetch", where, config, seeds=seeds, figures=told)


if __name__ == "__main__":
    main()
