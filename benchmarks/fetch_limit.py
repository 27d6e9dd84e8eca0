"""How little a search can need: one whose memory could not be better, beside no memory and beside perfect knowledge.

    python -m engram.benchmarks.fetch_limit

The searches of :mod:`engram.benchmarks.fetch` again, in the same homes on the same days, with perfect eyes for all.
*limit* knows from the simulator how this home lives: where each thing is usually put, how often it is moved, who
carries it out. What it sees on its rounds and its searches turns that into the exact chance of each thing at each spot
(a Bayes filter), by which it searches like every arm of the fetching robot. No memory can know more from the same
looks; a better order of the search could need less. Takes a minute; prints the figures, JSON last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tyro

from engram.benchmarks.fetch import LOOK_M, TASK_NS, FetchBenchmark, draw_task, oracle_way
from engram.benchmarks.fetch_figures import Trip, limit_figures
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.memory.query.advice import search_order
from engram.sim.household.kinds import MOBILITY
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.tour import TourConfig


class OracleBelief:
    """The exact chances of where each thing is, by the rules of the home's life and what was seen since it began.

    Slots are left out: that a full spot sends a thing elsewhere is rare.
    """

    def __init__(self, life: Life) -> None:
        self.life, self.spots = life, list(life.home.spots)
        habits = life.oracle_habits()
        self._habits = np.array([habits[thing] for thing in life.things])
        self._kinds = list(life.things.values())
        self._things = {thing: i for i, thing in enumerate(life.things)}
        self.chances = self._habits.copy()  # (things, spots); what is missing to 1 is out of the home

    def advance(self, hour: int, pace: float) -> None:
        """Take in that the home lived on until ``hour``, as :meth:`Life.advance` does."""
        config = self.life.config
        moves = pace * np.array([MOBILITY[kind.mobility] for kind in self._kinds])
        carried = np.array([kind.carried for kind in self._kinds])
        leaves = np.where(moves > 0, config.lost, 0.0) + np.where(carried & (hour == VISIT_HOURS[1]), config.carried, 0)
        back = np.where(carried & (hour == VISIT_HOURS[2]), 1.0, config.returned)
        home = self.chances.sum(1)
        stay = (1 - moves)[:, None] * self.chances + (moves * home)[:, None] * self._habits
        self.chances = (1 - leaves)[:, None] * stay + ((1 - home) * back)[:, None] * self._habits

    def look(self, spot: str) -> None:
        """See everything that is at ``spot``, and that nothing else is."""
        at, placed = self.spots.index(spot), self.life.oracle_placements()
        for thing, i in self._things.items():
            where = placed[thing]
            if where is not None and where.spot == spot:
                self.put(thing, spot)
            else:
                gone = self.chances[i, at]
                self.chances[i, at] = 0.0
                self.chances[i] /= max(1.0 - gone, 1e-9)

    def put(self, thing: str, spot: str) -> None:
        """Know that ``thing`` is at ``spot``."""
        self.chances[self._things[thing]] = np.eye(len(self.spots))[self.spots.index(spot)]

    def of(self, name: str) -> np.ndarray:
        """Return the chance (spots,) that a thing called ``name`` is there."""
        some = [i for i, kind in enumerate(self._kinds) if kind.name == name]
        return 1.0 - np.prod(1.0 - self.chances[some], axis=0)


@dataclass(frozen=True)
class _Robot:
    """Searches with perfect eyes, by ``belief`` or by what is near."""

    life: Life
    belief: OracleBelief | None

    def fetch(self, name: str, start: np.ndarray, day: str) -> Trip:
        """Search for a thing called ``name`` until it is found."""
        home, here, metres = self.life.home, start, 0.0
        placed = self.life.oracle_placements()
        there = {at.spot for thing, at in placed.items() if at is not None and self.life.things[thing].name == name}
        done: list[str] = []
        while not done or done[-1] not in there:
            spot = self._next(name, here, done)
            metres += home.metres(here, home.spots[spot].stop)
            here = home.spots[spot].stop
            done.append(spot)
            if self.belief is not None:
                self.belief.look(spot)
        return Trip(day, True, len(done), len({home.spots[spot].room for spot in done}), round(metres, 3))

    def _next(self, name: str, here: np.ndarray, done: Sequence[str]) -> str:
        home = self.life.home
        left = [spot for spot in home.spots if spot not in done]
        ways = {spot: home.metres(here, home.spots[spot].stop) for spot in left}
        if self.belief is not None:
            chance = dict(zip(self.belief.spots, self.belief.of(name), strict=True))
            if likely := [spot for spot in left if chance[spot] > 1e-9]:
                p = np.array([chance[spot] for spot in likely])
                between = [[home.metres(home.spots[a].stop, home.spots[b].stop) for b in likely] for a in likely]
                order = search_order(p / p.sum(), np.array([[ways[spot] for spot in likely], *between]), LOOK_M)
                return likely[order[0]]
        return min(left, key=lambda spot: ways[spot])


def run_home(seed: int, config: FetchBenchmark) -> dict[str, list[Trip]]:
    """Live the days of :func:`engram.benchmarks.fetch.run_home` up to the questions, with the same tasks."""
    life = Life(make_home(seed), seed)
    belief = OracleBelief(life)
    tasks, opens = np.random.default_rng([seed, 5]), np.random.default_rng([seed, 6])
    trips: dict[str, list[Trip]] = defaultdict(list)
    for number in range(config.rounds + config.streams):
        for hour in VISIT_HOURS:
            stamp_ns = number * DAY_NS + hour * HOUR_NS
            if number >= config.rounds and hour == VISIT_HOURS[0]:
                for told in _stream(life, belief, config, tasks, stamp_ns):
                    for arm, trip in told.items():
                        trips[arm].append(trip)
                continue
            life.advance(stamp_ns)
            belief.advance(hour, 1.0)
            for spot in life.home.spots.values():
                if not spot.closed or opens.random() < TourConfig.open_chance:
                    belief.look(spot.name)
    return trips


def _stream(
    life: Life, belief: OracleBelief, config: FetchBenchmark, rng: np.random.Generator, start_ns: int
) -> Iterator[dict[str, Trip]]:
    """Fetch one thing after another; yield each arm's trip."""
    home, here, day = life.home, life.home.dock, f"home {life.home.seed} day {start_ns // DAY_NS}"
    arms = {"none": _Robot(life, None), "limit": _Robot(life, belief)}
    asked: list[str] = []
    for task in range(config.tasks):
        now_ns = start_ns + task * TASK_NS
        life.advance(now_ns, config.pace)
        belief.advance((now_ns // HOUR_NS) % 24, config.pace)
        name = draw_task(life, asked, rng)
        goal = str(rng.choice([spot.name for spot in home.spots.values() if not spot.closed]))
        told = {arm: robot.fetch(name, here, day) for arm, robot in arms.items()}
        yield {**told, "oracle": Trip(day, True, 1, 1, round(oracle_way(name, here, life).metres, 3))}
        placed = life.oracle_placements()
        thing = next(t for t, kind in life.things.items() if kind.name == name and placed[t] is not None)
        life.oracle_carry(thing, goal, now_ns + TASK_NS // 2)
        put = life.oracle_placements()[thing]
        assert put is not None
        belief.put(thing, put.spot)
        here = home.spots[goal].stop


def main(config: FetchBenchmark | None = None) -> None:
    """Measure and print the figures, JSON last."""
    config, where = (config or tyro.cli(FetchBenchmark)).sized(), machine()
    total: dict[str, list[Trip]] = defaultdict(list)
    homes = list(range(config.first_seed, config.first_seed + config.homes))
    for seed in homes:
        for arm, trips in run_home(seed, config).items():
            total[arm] += trips
    told = limit_figures(total)
    for row in told:
        print(json.dumps(row))
    output = config.report("fetch_limit")
    save_report(output, "fetch_limit", where, replace(config, work=None), seeds=homes, figures=told)


if __name__ == "__main__":
    main()
