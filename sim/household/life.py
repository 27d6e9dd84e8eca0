"""What happens in a home while nobody looks: things are moved by habit, taken out and brought back.

Everything here is simulator state, hence the ``oracle_`` names: for scoring, never for a robot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.sim.household.kinds import BY_NAME, KINDS, MOBILITY, Kind
from engram.sim.household.layout import Home
from engram.sim.household.world import Placement

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
VISIT_HOURS = (9, 14, 20)
"""When the robot inspects the home; things move in between."""
TWINS = ("red mug", "plate", "notepad", "toy block", "cereal box", "sponge")
"""Kinds of which a home has two."""


@dataclass(frozen=True)
class LifeConfig:
    """How lively a home is."""

    habit: tuple[float, float, float] = (0.55, 0.25, 0.10)
    """Chances of a thing's three usual spots; the rest is shared by all spots."""
    carried: float = 0.7
    """Chance that what its owner carries leaves in the morning; it is back in the evening."""
    lost: float = 0.003
    """Chance, between two visits, that a thing that moves leaves the home for days."""
    returned: float = 0.12
    """Chance, between two visits, that such a thing is back."""


@dataclass(frozen=True)
class OracleFact:
    """``thing`` was at ``placement`` (None: out of the home) from ``since_ns`` until ``until_ns`` (None: still)."""

    thing: str
    kind: str
    placement: Placement | None
    since_ns: int
    until_ns: int | None = None

    def holds_at(self, stamp_ns: int) -> bool:
        """Whether it was true at ``stamp_ns``."""
        return self.since_ns <= stamp_ns and (self.until_ns is None or stamp_ns < self.until_ns)


class Life:
    """The script of one home from its seed; the same seed gives the same days."""

    def __init__(
        self, home: Home, seed: int, config: LifeConfig | None = None, kinds: Sequence[Kind] = KINDS,
        twins: Sequence[str] = TWINS,
    ) -> None:  # fmt: skip
        self.home, self.config = home, config or LifeConfig()
        self.things: dict[str, Kind] = {kind.name: kind for kind in kinds}
        self.things |= {f"second {name}": BY_NAME[name] for name in twins}
        self.now_ns = 0
        self._rng = np.random.default_rng([seed, 1])
        self._spots = list(home.spots)
        self._habits = {thing: self._draw_habit(kind) for thing, kind in self.things.items()}
        self._taken: dict[str, tuple[str, int]] = {}  # thing -> spot and slot
        self._facts: dict[str, list[OracleFact]] = {thing: [] for thing in self.things}
        for thing in self.things:
            self._record(thing, self._put(thing), 0)

    def advance(self, until_ns: int, pace: float = 1.0) -> None:
        """Live until ``until_ns``, at most one move a thing; ``pace`` scales the chance that a thing is moved.

        Chances are those of the time between two visits, so call it once for each such time.
        """
        hour = (until_ns // HOUR_NS) % 24
        events = [(int(self._rng.integers(self.now_ns + 1, until_ns)), thing) for thing in self.things]
        draws = self._rng.random((len(events), 2))
        for (stamp_ns, thing), draw in sorted(zip(events, draws.tolist(), strict=True)):
            self._maybe_move(thing, stamp_ns, hour, draw, pace)
        self.now_ns = until_ns

    def oracle_placements(self, stamp_ns: int | None = None) -> Mapping[str, Placement | None]:
        """Return where every thing is now, or was at ``stamp_ns``."""
        if stamp_ns is None:
            return {thing: facts[-1].placement for thing, facts in self._facts.items()}
        return {thing: self.oracle_fact(thing, stamp_ns).placement for thing in self.things}

    def oracle_habits(self) -> Mapping[str, np.ndarray]:
        """Return each thing's chances (spots,) of where it is put, in the order of ``home.spots``."""
        return self._habits

    def oracle_fact(self, thing: str, stamp_ns: int) -> OracleFact:
        """Return what was true of ``thing`` at ``stamp_ns``."""
        return next(fact for fact in reversed(self._facts[thing]) if fact.since_ns <= stamp_ns)

    def oracle_facts(self, thing: str) -> tuple[OracleFact, ...]:
        """Return all that was ever true of ``thing``, oldest first, without gaps."""
        return tuple(self._facts[thing])

    def oracle_carry(self, thing: str, spot: str, stamp_ns: int) -> None:
        """Put ``thing`` onto ``spot``, as the robot did after it fetched it."""
        self._taken.pop(thing, None)
        self._record(thing, self._put(thing, spot), stamp_ns)
        self.now_ns = max(self.now_ns, stamp_ns)

    def _maybe_move(self, thing: str, stamp_ns: int, hour: int, draw: list[float], pace: float) -> None:
        kind, out = self.things[thing], thing not in self._taken
        if out:
            back = (kind.carried and hour == VISIT_HOURS[2]) or draw[0] < self.config.returned
            if back:
                self._record(thing, self._put(thing), stamp_ns)
            return
        leaves = kind.carried and hour == VISIT_HOURS[1] and draw[0] < self.config.carried
        if leaves or (MOBILITY[kind.mobility] > 0 and draw[0] > 1 - self.config.lost):
            del self._taken[thing]
            self._record(thing, None, stamp_ns)
        elif draw[1] < pace * MOBILITY[kind.mobility]:
            self._record(thing, self._put(thing), stamp_ns)

    def _put(self, thing: str, spot: str | None = None) -> Placement:
        """Draw a free slot by habit, or on ``spot``, another one than now."""
        free: list[int] = []
        while not free:
            name = spot or self._spots[int(self._rng.choice(len(self._spots), p=self._habits[thing]))]
            used = {slot for where, slot in self._taken.values() if where == name}
            free = [i for i in range(len(self.home.spots[name].slots)) if i not in used]
            spot = None  # a full spot: wherever habit says
        slot = int(self._rng.choice(free))
        self._taken[thing] = (name, slot)
        where, kind = self.home.spots[name], self.things[thing]
        xy = where.slots[slot] + self._rng.uniform(-0.02, 0.02, 2)
        position = where.to_map(np.array([*xy, 0.5 * kind.size[2]]))
        return Placement(name, position, float(self._rng.uniform(-np.pi, np.pi)))

    def _record(self, thing: str, placement: Placement | None, stamp_ns: int) -> None:
        facts = self._facts[thing]
        if facts:
            facts[-1] = replace(facts[-1], until_ns=stamp_ns)
        facts.append(OracleFact(thing, self.things[thing].name, placement, stamp_ns))

    def _draw_habit(self, kind: Kind) -> np.ndarray:
        """Return chances (n_spots,); what never moves stands in the open."""
        open_ = np.array([not self.home.spots[name].closed for name in self._spots])
        order = self._rng.permutation(len(self._spots))
        usual = [i for i in order if open_[i] or kind.mobility != "fixed"][: len(self.config.habit)]
        chances = np.full(len(self._spots), (1 - sum(self.config.habit)) / len(self._spots))
        chances[usual] += self.config.habit
        return chances / chances.sum()
