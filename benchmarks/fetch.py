"""Fetching things in a home that is lived in, by what a memory says and what the robot sees, nothing else.

    python -m engram.benchmarks.fetch [--quick]

For a week the robot goes round three times a day. Then come days with a stream of 20 related tasks ("bring me the
phone"): half of them ask again for something asked for before, residents move things between tasks, and what was asked
for ends up where it was to be brought, whether the robot found it or not, so that every arm lives in the same world.
Four arms search: *none* without memory, *short_term* with a memory that knows only today's tasks, *long_term* with one
that knows only the rounds, *both*. Success is finding within a limit of looks; every search goes on until it finds, so
that rooms and metres are those to success.

On other days the robot is asked where things are, at the pace at which things move between rounds: *never* answers at
once, *always* looks until it sees the thing, *advised* looks as long as its memory says that it is worth the way.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from engram.benchmarks.fetch_figures import ARMS, ASKERS, Trip, figures
from engram.benchmarks.household import CODE, map_memory
from engram.benchmarks.household_fit import fit_sensor
from engram.benchmarks.household_scores import RIGHT_M, believed
from engram.benchmarks.report import RESULTS, save_report
from engram.core.contracts import Memory, MemoryAnswer
from engram.core.provenance import digest, machine
from engram.core.questions import FindObject
from engram.memory.query.advice import AdviceConfig, search_order
from engram.memory.robot_memory import RobotMemory
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.sim.household.layout import Home, make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import SensorRecord
from engram.sim.household.tour import Inspector, Sight
from engram.sim.household.world import HouseholdWorld

FIRST_SEED = 300
"""Homes 100-299 are for development: the limit of looks was set on homes 200-202, the search on 100-102 and 200-205."""
TASK_NS = 12 * 60 * 1_000_000_000
_LOOK_NS = 20 * 1_000_000_000
_PUT_LOOKS = 3


@dataclass(frozen=True)
class FetchBenchmark:
    """How many homes, days and tasks."""

    quick: bool = False
    """Three homes, four days of rounds, one day of tasks, one of questions."""
    homes: int = 6
    """Homes: as many of 4, 5 and 6 rooms."""
    first_seed: int = FIRST_SEED
    """Seed of the first of them, one by one from there."""
    rounds: int = 7
    """Days of rounds before the tasks."""
    streams: int = 3
    """Days of tasks in a home, and then days of questions."""
    tasks: int = 20
    """Tasks or questions a day."""
    looks: int = 5
    """Success is finding within so many stops: where, in homes for development, a search without memory succeeds in
    35 to 40 of 100 tasks. The figures tell success within any other limit, too."""
    pace: float = 0.15
    """How lively the time between two tasks is, of that between two rounds."""
    worth_m: float = 60.0
    """Way [m] that a right answer in place of a wrong one is worth to who asks: about a walk through the home."""
    work: Path | None = None
    """Folder for the fitted sensor and finished homes; default: a temporary one."""

    def sized(self) -> FetchBenchmark:
        """Return itself, or the smaller one that ``quick`` means."""
        return replace(self, homes=3, rounds=4, streams=1) if self.quick else self

    def report(self, name: str) -> Path:
        """Return the file for the figures: those of other homes do not replace what is quoted."""
        return (RESULTS if self.first_seed == FIRST_SEED else Path("runs/bench")) / f"{name}.json"


@dataclass(frozen=True)
class Search:
    """What one search did."""

    success: bool
    spots: tuple[str, ...] = ()  # looked at, in order
    metres: float = 0.0


class Searcher:
    """One arm: its memory says how likely the thing is where, its planner how long the ways are; without memory it
    looks at what is near and was not looked at yet."""

    def __init__(
        self, world: HouseholdWorld, life: Life, sense: ModelSense, memory: Memory | None, learns: bool
    ) -> None:
        self.world, self.life, self.memory, self.learns = world, life, memory, learns
        self._inspector = Inspector(world, sense, life.home.seed)
        self._looked_ns: dict[str, int] = {}  # today's looks, if it has a memory of today
        self._ways: dict[str, dict[str, float]] = {}  # its planner's, from stop to stop [m]

    def fetch(self, name: str, start: np.ndarray, stamp_ns: int) -> Search:
        """Search for a thing called ``name`` until it is found or every spot was looked at."""
        here, metres = start, 0.0
        spots: list[str] = []
        while (spot := self._next(self._ask(name, here, stamp_ns), name, here, spots)) is not None:
            metres += self.world.home.metres(here, self.world.home.spots[spot].stop)
            here = self.world.home.spots[spot].stop
            spots.append(spot)
            if oracle_found(name, self.look(spot, stamp_ns + len(spots) * _LOOK_NS), self.life):
                return Search(True, tuple(spots), metres)
        return Search(False, tuple(spots), metres)

    def answer(self, name: str, start: np.ndarray, stamp_ns: int, limit: int, asker: str) -> Search:
        """Say where a thing is, after the looks that ``asker`` takes; success is a right answer."""
        here, metres = start, 0.0
        spots: list[str] = []
        while True:
            answer = self._ask(name, here, stamp_ns + len(spots) * _LOOK_NS)
            assert answer is not None
            seen = any(n.label == name and n.last_seen_ns >= stamp_ns for n in believed(answer.nodes))
            worth = asker == "always" or (asker == "advised" and answer.advice is not None and answer.advice.look)
            spot = None if seen or not worth or len(spots) == limit else self._next(answer, name, here, spots)
            if spot is None:
                return Search(oracle_right(answer, name, self.life), tuple(spots), metres)
            metres += self.world.home.metres(here, self.world.home.spots[spot].stop)
            here = self.world.home.spots[spot].stop
            spots.append(spot)
            self.look(spot, stamp_ns + len(spots) * _LOOK_NS)

    def look(self, spot: str, stamp_ns: int) -> list[Sight]:
        """Look at ``spot``; an arm that learns remembers what it sees."""
        sights = self._inspector.look(spot, stamp_ns)
        if self.learns and self.memory is not None:
            for sight in sights:
                self.memory.update(sight.scene)
            self._looked_ns[spot] = stamp_ns
        return sights

    def bring(self, name: str, taken: str, spot: str, stamp_ns: int) -> None:
        """See that what was taken is gone from there; then look at what was put down at ``spot`` until it is seen,
        three times at most: the robot knows what it has done."""
        self.look(taken, stamp_ns)
        stamp_ns += _LOOK_NS
        for times in range(_PUT_LOOKS):
            sights = self.look(spot, stamp_ns + times * _LOOK_NS)
            if any(seen.label == name for sight in sights for seen in sight.scene.objects):
                return

    def _ask(self, name: str, here: np.ndarray, stamp_ns: int) -> MemoryAnswer | None:
        if self.memory is None:
            return None
        return self.memory.query(FindObject(name, limit=10, now_ns=stamp_ns, robot_place=_at(here)))

    def _next(self, answer: MemoryAnswer | None, name: str, here: np.ndarray, done: Sequence[str]) -> str | None:
        home = self.world.home
        left = [spot for spot in home.spots if spot not in done]
        chances = suggested(answer, name, home) if answer is not None else {}
        here_to = {spot: home.metres(here, home.spots[spot].stop) for spot in left}
        if likely := [spot for spot in left if chances.get(spot, 0.0) > 0]:
            p = np.array([chances[spot] for spot in likely])
            seen = sum(chances.get(spot, 0.0) for spot in done)
            ways = np.array([[here_to[spot] for spot in likely], *(self._ways_from(spot, likely) for spot in likely)])
            return likely[search_order(p / max(1.0 - seen, float(p.sum())), ways, LOOK_M)[0]]
        return min(left, key=lambda spot: (self._looked_ns.get(spot, -1) > 0, here_to[spot]), default=None)

    def _ways_from(self, spot: str, others: Sequence[str]) -> list[float]:
        """Return the ways [m] from the stop before ``spot`` to those before ``others``."""
        home = self.world.home
        if spot not in self._ways:
            stop = home.spots[spot].stop
            self._ways[spot] = {name: home.metres(stop, other.stop) for name, other in home.spots.items()}
        return [self._ways[spot][other] for other in others]


LOOK_M = AdviceConfig().look_m
"""A look takes as long as this way."""


def suggested(answer: MemoryAnswer, name: str, home: Home) -> dict[str, float]:
    """Return the spots that an answer names, each with the chance that the thing is there, or its share of habits."""
    if answer.advice is not None and answer.advice.route:
        told = list(zip(answer.advice.route, answer.advice.chances, strict=True))
    else:
        told = [(n.pose.position, n.belief) for n in believed(answer.nodes) if n.label == name]
        habits = (one for one in answer.evidence if one.source == "semantic")
        told += [(one.place, one.score) for one in habits if one.place is not None]
    chances: dict[str, float] = {}
    for place, chance in told:
        if (spot := home.spot_of(place)) is not None:
            chances[spot] = chances.get(spot, 0.0) + chance
    return chances


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


def run_home(seed: int, config: FetchBenchmark, record: SensorRecord, encoder: TextEncoder) -> dict[str, list[Trip]]:
    """Live a week of rounds, then days of tasks and days of questions, in one home."""
    life = Life(make_home(seed), seed)
    world = HouseholdWorld(life.home, life.things)
    advice = AdviceConfig(worth_m=config.worth_m)
    memories = {name: map_memory(life.home, encoder, advice=advice) for name in ("long_term", "both", *ASKERS)}
    day = _Stream(config, record, encoder, world, life, memories, np.random.default_rng([seed, 5]))
    inspector = Inspector(world, ModelSense(record, encoder, seed), seed)
    for number in range(config.rounds + 2 * config.streams):
        for hour in VISIT_HOURS:
            stamp_ns = number * DAY_NS + hour * HOUR_NS
            if number >= config.rounds and hour == VISIT_HOURS[0]:
                (day.tasks if number < config.rounds + config.streams else day.questions)(stamp_ns)
                continue
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
    return day.trips


class _Stream:
    """One day's stream of tasks or questions, through every arm, in one world."""

    def __init__(
        self, config: FetchBenchmark, record: SensorRecord, encoder: TextEncoder, world: HouseholdWorld, life: Life,
        memories: dict[str, RobotMemory], rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.config, self.record, self.encoder, self.world, self.life = config, record, encoder, world, life
        self.memories, self.rng = memories, rng
        self.trips: dict[str, list[Trip]] = defaultdict(list)

    def _arm(self, memory: Memory | None, learns: bool = True) -> Searcher:
        sense = ModelSense(self.record, self.encoder, self.life.home.seed)
        return Searcher(self.world, self.life, sense, memory, learns)

    def _trip(self, search: Search, start_ns: int) -> Trip:
        home = self.life.home
        rooms = len({home.spots[spot].room for spot in search.spots})
        day = f"home {home.seed} day {start_ns // DAY_NS}"
        return Trip(day, search.success, len(search.spots), rooms, round(search.metres, 3))

    def tasks(self, start_ns: int) -> None:
        """Fetch one thing after another."""
        life, home, here = self.life, self.life.home, self.life.home.dock
        asked: list[str] = []
        today = map_memory(home, self.encoder)
        known = {"none": None, "short_term": today, **{n: self.memories[n] for n in ("long_term", "both")}}
        arms = {name: self._arm(memory, learns=name != "long_term") for name, memory in known.items()}
        for task in range(self.config.tasks):
            stamp_ns = start_ns + task * TASK_NS
            life.advance(stamp_ns, self.config.pace)
            self.world.arrange(life.oracle_placements())
            name = draw_task(life, asked, self.rng)
            goal = str(self.rng.choice([spot.name for spot in home.spots.values() if not spot.closed]))
            found = {arm: arms[arm].fetch(name, here, stamp_ns) for arm in ARMS}
            for arm, search in {**found, "oracle": oracle_way(name, here, life)}.items():
                self.trips[arm].append(self._trip(search, start_ns))
            placed = life.oracle_placements()
            thing = next(t for t, kind in life.things.items() if kind.name == name and placed[t] is not None)
            life.oracle_carry(thing, goal, stamp_ns + TASK_NS // 2)
            self.world.arrange(life.oracle_placements())
            for arm in ("short_term", "both"):
                if found[arm].success:
                    arms[arm].bring(name, found[arm].spots[-1], goal, stamp_ns + TASK_NS // 2)
            here = home.spots[goal].stop
        today.close()

    def questions(self, start_ns: int) -> None:
        """Answer where one thing after another is; things move as they do between rounds."""
        life, home = self.life, self.life.home
        arms = {name: self._arm(self.memories[name]) for name in ASKERS}
        here = {name: home.dock for name in ASKERS}
        pace = TASK_NS / (VISIT_HOURS[1] - VISIT_HOURS[0]) / HOUR_NS
        for question in range(self.config.tasks):
            stamp_ns = start_ns + question * TASK_NS
            life.advance(stamp_ns, pace)
            self.world.arrange(life.oracle_placements())
            placed = life.oracle_placements()
            name = str(self.rng.choice(sorted({k.name for t, k in life.things.items() if placed[t] is not None})))
            for asker, arm in arms.items():
                search = arm.answer(name, here[asker], stamp_ns, self.config.looks, asker)
                self.trips[asker].append(self._trip(search, start_ns))
                if search.spots:
                    here[asker] = home.spots[search.spots[-1]].stop


def draw_task(life: Life, asked: list[str], rng: np.random.Generator) -> str:
    """Return what is asked for: half of the time again something of today, always something that is at home."""
    placed = life.oracle_placements()
    there = sorted({kind.name for thing, kind in life.things.items() if placed[thing] is not None})
    again = [name for name in asked if name in there]
    moving = [name for name in there if any(k.name == name and k.mobility != "fixed" for k in life.things.values())]
    name = str(rng.choice(again if again and rng.random() < 0.5 else moving))
    asked.append(name)
    return name


def oracle_way(name: str, here: np.ndarray, life: Life) -> Search:
    """Return the way of who knows where the nearest thing called ``name`` is."""
    placed = life.oracle_placements()
    there = [placed[thing] for thing, kind in life.things.items() if kind.name == name]
    spots = [at.spot for at in there if at is not None]
    best = min(spots, key=lambda spot: life.home.metres(here, life.home.spots[spot].stop))
    return Search(True, (best,), life.home.metres(here, life.home.spots[best].stop))


def finished_home(
    seed: int, config: FetchBenchmark, record: SensorRecord, encoder: TextEncoder, folder: Path
) -> dict[str, list[Trip]]:
    """Return what :func:`run_home` does, from ``folder`` if it ran before with the same settings and code."""
    others = ("homes", "first_seed", "looks", "quick", "work")
    settings = [value for name, value in asdict(config).items() if name not in others]
    told = "_".join(f"{value:g}" for value in settings)
    path = folder / f"fetch_{seed}_{told}_code_{digest(*CODE, 'benchmarks/fetch.py')}.json"
    if not path.exists():
        trips = run_home(seed, config, record, encoder)
        path.write_text(json.dumps({arm: [astuple(trip) for trip in told] for arm, told in trips.items()}))
    return {arm: [Trip(*trip) for trip in told] for arm, told in json.loads(path.read_text()).items()}


def main(config: FetchBenchmark | None = None) -> None:
    """Measure and print the figures, JSON last."""
    config = (config or tyro.cli(FetchBenchmark)).sized()
    where, encoder = machine(), default_text_encoder()
    total: dict[str, list[Trip]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        folder = config.work or Path(scratch)
        record, _ = fit_sensor(encoder, 1 if config.quick else 3, 1 if config.quick else 2, folder)
        for seed in range(config.first_seed, config.first_seed + config.homes):
            for arm, trips in finished_home(seed, config, record, encoder, folder).items():
                total[arm] += trips
            found = {arm: sum(trip.success and trip.looks <= config.looks for trip in total[arm]) for arm in total}
            print(f"home {seed}: {found}", file=sys.stderr, flush=True)
    told = figures(total, config.looks)
    for row in told:
        print(json.dumps(row))
    seeds = list(range(config.first_seed, config.first_seed + config.homes))
    save_report(config.report("fetch"), "fetch", where, replace(config, work=None), seeds=seeds, figures=told)


if __name__ == "__main__":
    main()
