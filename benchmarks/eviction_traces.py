"""Traces for the eviction policies: the changes a robot noticed and the questions that came later.

``household`` goes round the simulated household; ``seen`` are recordings of the robot's own memory there, with all its
errors (:mod:`engram.benchmarks.eviction_recording`); ``made_up`` draws a larger home from the assumptions written down
in :class:`MadeUpHome`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from engram.memory.stores.short_term.eviction import EvictionPolicy, Write
from engram.sim.household.kinds import MOBILITY
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.tour import route
from engram.sim.household.world import Placement

TRACES = Path(__file__).resolve().parent / "traces"
NEAR_M = 0.3
"""An answer is right when the remembered place is this near to the true one (KARMA's threshold)."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A change that was noticed, or a question."""

    question: bool
    key: str  # node id in the scene graph
    label: str
    place: tuple[float, float, float]  # m: of a change, where it was seen; of a question, where it truly is
    absent: bool = False


@dataclass(frozen=True)
class Score:
    """Of n questions: answered rightly, wrongly, or passed on to the scene graph."""

    hits: int
    stale: int
    n: int

    def __add__(self, other: Score) -> Score:
        return Score(self.hits + other.hits, self.stale + other.stale, self.n + other.n)


def play(policy: EvictionPolicy, trace: Iterable[TraceEvent]) -> Score:
    """Let the policy live through a trace, as ShortTermMemory would."""
    held: dict[str, TraceEvent] = {}
    hits = stale = n = 0
    for one in trace:
        if not one.question:
            held[one.key] = one
            for key in policy.write(Write(one.key, one.label, one.absent)):
                held.pop(key, None)
            continue
        n += 1
        known = [entry for entry in held.values() if entry.label == one.label and not entry.absent]
        right = any(float(np.linalg.norm(np.subtract(entry.place, one.place))) <= NEAR_M for entry in known)
        hits += right
        stale += bool(known) and not right
        policy.read(one.key, one.label)
    return Score(hits, stale, n)


@dataclass(frozen=True)
class MadeUpHome:
    """What is assumed of people and robot in a made-up trace."""

    days: int = 20
    rooms: int = 5
    objects: int = 120
    classes: int = 40
    """Classes are owned by Zipf's law; an object is asked for as its class, by another Zipf's law."""
    tours: int = 4
    """A day; the robot passes every room."""
    sessions: int = 10
    """A day; a session asks for a few things of what is going on in one room."""
    questions: int = 5
    """A session, in the mean."""
    seen: float = 0.95
    """Chance that an object in a room is noticed on a tour."""
    tidy_days: int = 7
    """Every so often somebody moves everything in one room: a sweep of changes."""


def made_up(seed: int, home: MadeUpHome | None = None) -> list[TraceEvent]:
    """Return the trace of one made-up home."""
    home = home or MadeUpHome()
    rng = np.random.default_rng(seed)
    owned = 1.0 / np.arange(1, home.classes + 1)
    kind = rng.choice(home.classes, home.objects, p=owned / owned.sum())
    wanted = rng.permutation(1.0 / np.arange(1, home.classes + 1) ** 1.2)  # how much each class is asked for
    moves_a_day = np.exp(rng.uniform(np.log(0.05), np.log(5.0), home.classes))
    true = rng.uniform(0, 4, (home.objects, 3)) + 10.0 * rng.integers(home.rooms, size=(home.objects, 1))
    believed = np.full((home.objects, 3), np.nan)
    trace: list[TraceEvent] = []

    def note(i: int) -> None:
        if not np.allclose(believed[i], true[i], atol=0.05):
            believed[i] = true[i]
            trace.append(TraceEvent(False, f"object_{i}", f"class {kind[i]}", tuple(true[i].tolist())))

    def tour() -> None:
        for room in rng.permutation(home.rooms):
            here = np.flatnonzero((true[:, 0] // 10).astype(int) == room)
            gone = np.flatnonzero(((believed[:, 0] // 10) == room) & ((true[:, 0] // 10) != room))
            for i in rng.permutation(here[rng.random(len(here)) < home.seen]):
                note(int(i))
            for i in gone:  # looked at its place: it is not there
                believed[i] = np.nan
                trace.append(TraceEvent(False, f"object_{i}", f"class {kind[i]}", (0.0, 0.0, 0.0), absent=True))

    def move(i: int, room: int) -> None:
        true[i] = rng.uniform(0, 4, 3) + 10.0 * room

    for day in range(home.days):
        if day % home.tidy_days == home.tidy_days - 1:
            busy = int(rng.integers(home.rooms))
            for i in np.flatnonzero((true[:, 0] // 10).astype(int) == busy):
                move(int(i), busy)
        slots = rng.permutation([0] * home.tours + [1] * home.sessions)
        for slot in slots:
            for i in np.flatnonzero(rng.random(home.objects) < moves_a_day[kind] / len(slots)):
                move(int(i), int(rng.integers(home.rooms)))
            if slot == 0:
                tour()
                continue
            room = int(rng.integers(home.rooms))
            weight = wanted[kind] * np.where((true[:, 0] // 10).astype(int) == room, 5.0, 1.0)
            for i in rng.choice(home.objects, rng.poisson(home.questions), p=weight / weight.sum()):
                trace.append(TraceEvent(True, f"object_{i}", f"class {kind[i]}", tuple(true[i].tolist())))
                if rng.random() < 0.7:  # it was fetched: the robot knows where it went
                    move(int(i), room)
                    note(int(i))
    return trace


@dataclass(frozen=True)
class AskingPeople:
    """Who asks what in the simulated household, and what the robot notices; days and habits are the household's."""

    days: int = 30
    questions: int = 6
    """After each of the three visits a day, in the mean."""
    fetched: float = 0.5
    """Chance that the thing is brought to where it was asked for, so that the robot knows its place."""
    opened: float = 0.35
    """Chance that a visit looks into a drawer or cupboard (the household's own)."""


def household(seed: int, people: AskingPeople | None = None) -> list[TraceEvent]:
    """Return the trace of a robot that goes round a simulated home and notices everything it looks at.

    Things, habits and moves are those of :mod:`engram.sim.household`; detection and identity are the simulator's
    (``oracle_``): the trace is about what to keep, not about seeing.
    """
    people, home = people or AskingPeople(), make_home(seed)
    life, rng = Life(home, seed), np.random.default_rng([seed, 9])
    things = list(life.things)
    order = route(home, home.dock, list(home.spots))
    weight = wanted(life, rng)
    believed: dict[str, tuple[float, float, float] | None] = {}
    trace: list[TraceEvent] = []

    def note(thing: str, place: tuple[float, float, float] | None) -> None:
        before = believed.get(thing)
        moved = place is not None and (before is None or float(np.linalg.norm(np.subtract(place, before))) > 0.05)
        if moved or (place is None and before is not None):
            believed[thing] = place
            trace.append(TraceEvent(False, thing, life.things[thing].name, place or (0.0, 0.0, 0.0), place is None))

    def visit() -> None:
        now = life.oracle_placements()
        for name in order:
            if home.spots[name].closed and rng.random() > people.opened:
                continue
            here = {thing: _place(at) for thing, at in now.items() if at is not None and at.spot == name}
            kept_here = [t for t, at in believed.items() if at and bool(home.spots[name].holds(np.array(at)))]
            gone = [thing for thing in kept_here if thing not in here]
            for thing in gone:
                note(thing, None)
            for thing, place in here.items():
                note(thing, place)

    for day in range(people.days):
        for hour in VISIT_HOURS:
            life.advance(day * DAY_NS + hour * HOUR_NS)
            visit()
            asker = str(rng.choice([name for name, spot in home.spots.items() if not spot.closed]))
            for i in rng.choice(len(things), rng.poisson(people.questions), p=weight):
                at = life.oracle_placements()[things[i]]
                if at is None:  # nobody asks for what they took along
                    continue
                trace.append(TraceEvent(True, things[i], life.things[things[i]].name, _place(at)))
                if rng.random() < people.fetched:
                    life.oracle_carry(things[i], asker, life.now_ns + HOUR_NS // 60)
                    after = life.oracle_placements()[things[i]]
                    note(things[i], _place(after) if after else None)
    return trace


def wanted(life: Life, rng: np.random.Generator) -> np.ndarray:
    """Return the chance (n,) of each thing to be asked for: what moves a lot is used a lot; homes have favourites."""
    use = np.sqrt([MOBILITY[kind.mobility] + 0.01 for kind in life.things.values()])
    weight = use * rng.lognormal(0, 1, len(use))
    return weight / weight.sum()


def write_trace(path: Path, trace: Iterable[TraceEvent]) -> None:
    """Write one event a line, JSON, compressed; the same events give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(json.dumps(asdict(one)) for one in trace).encode(), mtime=0))


def seen(homes: int) -> list[list[TraceEvent]]:
    """Return the first ``homes`` recorded traces."""
    found = []
    for path in sorted(TRACES.glob("seen-*.jsonl.gz"))[:homes]:
        rows = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
        found.append([TraceEvent(**{**row, "place": tuple(row["place"])}) for row in rows])
    return found


def _place(at: Placement) -> tuple[float, float, float]:
    x, y, z = at.position.tolist()
    return x, y, z
