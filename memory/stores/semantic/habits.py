"""Statistics of a class of objects: where it stays, for how long, how often it is moved. Bounded counts only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from engram.core.statistics import Rate, wilson
from engram.memory.stores.semantic.rhythm import HOURS, Rhythm, hours_between, moved_between, rhythm_of
from engram.memory.stores.semantic.survival import Chance, MovingRate, SurvivalCurve

_PLACES = 32
_STAYS = 256
_CURVE_FROM = 10


@dataclass(slots=True)
class Stay:
    """Where an object rests now."""

    label: str
    key: str  # of the place
    support_label: str
    place: np.ndarray  # (3,) m, base_link
    since_ns: int  # when it probably came
    noticed_ns: int  # when it was first seen there
    seen_ns: int  # and last
    whole: bool  # its beginning was noticed

    def seconds(self, until_ns: int, rhythm: Rhythm | None = None) -> float:
        """Return how long it has lasted at ``until_ns``, by the clock or at the pace of ``rhythm``."""
        if rhythm is not None:
            return rhythm.seconds(self.since_ns, until_ns)
        return max(0.0, (until_ns - self.since_ns) / 1e9)

    def data(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "place": self.place.tolist()}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Stay:
        """Return the inverse of :meth:`data`."""
        return cls(**{**data, "place": np.array(data["place"])})


@dataclass(slots=True)
class UsualPlace:
    """One place of a class: how often and for how long objects stayed there."""

    label: str  # of what carries them; empty = just a place
    visits: int = 0
    seconds: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(3))  # (3,) m, base_link

    def add(self, place: np.ndarray, seconds: float) -> None:
        """Count one stay."""
        self.visits += 1
        self.seconds += seconds
        self.mean = self.mean + (place - self.mean) / self.visits


@dataclass(slots=True)
class Habits:
    """Statistics of one class or one object."""

    places: dict[str, UsualPlace] = field(default_factory=dict)
    stays_s: list[float] = field(default_factory=list)  # whole stays, at the pace of their class, newest last
    moves: int = 0
    exposure_s: float = 0.0
    vector: np.ndarray | None = None  # (384,) of the class
    seen_ns: int = 0
    hours: np.ndarray | None = None  # (2, 24) moves in each hour of the day, and s that it was watched over; of a class

    def add_stay(
        self, key: str, label: str, place: np.ndarray, seconds: float, whole_s: float | None = None, moved: bool = True
    ) -> None:
        """Count a stay of ``seconds`` at ``place`` (3,) m, ended by a ``moved`` object.

        ``whole_s``: how long it was at the pace of the class, if it was seen to begin.
        """
        self.places.setdefault(key, UsualPlace(label)).add(place, seconds)
        if len(self.places) > _PLACES:
            del self.places[min(self.places, key=lambda one: (self.places[one].seconds, one))]
        self.exposure_s += seconds
        self.moves += moved
        if moved and whole_s is not None:
            self.stays_s.append(whole_s)
            del self.stays_s[:-_STAYS]

    def add_hours(self, start_ns: int, seen_ns: int, gone_ns: int) -> None:
        """Count a stay by the hours of the day: it began at ``start_ns`` and ended after it was last seen."""
        watched_s = hours_between(start_ns, (seen_ns + gone_ns) // 2)
        self.hours = self.by_hour() + np.stack((moved_between(seen_ns, gone_ns), watched_s))

    def by_hour(self) -> np.ndarray:
        """Return (2, 24): moves in each hour of the day, and the seconds that it was watched over."""
        return np.zeros((2, HOURS)) if self.hours is None else self.hours

    def usual(self, limit: int) -> list[tuple[UsualPlace, float, Rate]]:
        """Return the places by share of the time, with that share and the share of visits (Wilson interval)."""
        seconds = sum(place.seconds for place in self.places.values())
        visits = sum(place.visits for place in self.places.values())
        ranked = sorted(self.places.items(), key=lambda item: (-item[1].seconds, -item[1].visits, item[0]))
        return [
            (place, place.seconds / seconds if seconds > 0 else place.visits / visits, wilson(place.visits, visits))
            for _, place in ranked[:limit]
        ]

    def with_running(self, stays: Sequence[Stay]) -> Habits:
        """Return a copy that also counts the stays that have not ended."""
        both = deepcopy(self)
        for stay in stays:
            seconds = stay.seconds(stay.seen_ns)
            both.add_stay(stay.key, stay.support_label, stay.place, seconds, moved=False)
        return both

    def rhythm(self, running: Sequence[Stay], home: Rhythm) -> tuple[Rhythm, np.ndarray]:
        """Return at what pace the hours go by, beside those of the ``home``, and the counts (2, 24) behind it."""
        hours = self.by_hour().copy()
        for stay in running:
            hours[1] += hours_between(stay.since_ns, stay.seen_ns)
        return rhythm_of(hours[0], hours[1], home), hours

    def curve(self, running: Sequence[Stay], rhythm: Rhythm) -> SurvivalCurve | None:
        """Return how long objects stay, given the stays that have not ended; None where few have."""
        if len(self.stays_s) < _CURVE_FROM:
            return None
        running_s = [one for one in (stay.seconds(stay.seen_ns, rhythm) for stay in running if stay.whole) if one > 0]
        return SurvivalCurve([*self.stays_s, *running_s], [True] * len(self.stays_s) + [False] * len(running_s))

    def bytes_used(self) -> int:
        """Return the RAM used by they [bytes]; parts measured by tracemalloc."""
        arrays = sum(one.nbytes for one in (self.vector, self.hours) if one is not None)
        return 700 + 550 * len(self.places) + 40 * len(self.stays_s) + arrays

    def data(self) -> dict[str, Any]:
        """Return JSON values."""
        places = {key: [p.label, p.visits, p.seconds, *p.mean.tolist()] for key, p in self.places.items()}
        return {
            "places": places,
            "stays_s": self.stays_s,
            "moves": self.moves,
            "exposure_s": self.exposure_s,
            "seen_ns": self.seen_ns,
            "hours": None if self.hours is None else self.hours.tolist(),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any], vector: np.ndarray | None) -> Habits:
        """Return the inverse of :meth:`data`."""
        places = {
            key: UsualPlace(label, visits, seconds, np.array(mean))
            for key, (label, visits, seconds, *mean) in data["places"].items()
        }
        hours = None if data.get("hours") is None else np.array(data["hours"])  # earlier versions counted none
        return cls(places, list(data["stays_s"]), data["moves"], data["exposure_s"], vector, data["seen_ns"], hours)


class HabitTable:
    """Habits by name, bounded: those changed longest ago go first. Keeps what changed and what is to be distilled."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.habits: OrderedDict[str, Habits] = OrderedDict()
        self.stale: dict[str, None] = {}  # to be distilled, oldest first
        self.changed: set[str] = set()
        self.removed: set[str] = set()

    def touch(self, name: str) -> Habits:
        """Return the habits of ``name``, now the newest, to be changed by the caller."""
        found = self.habits.pop(name, None) or Habits()
        self.put(name, found)
        self.changed.add(name)
        self.removed.discard(name)
        return found

    def put(self, name: str, habits: Habits) -> None:
        """Set the habits of ``name``; over the limit the oldest go."""
        self.habits[name] = habits
        self.stale[name] = None
        if len(self.habits) > self.limit:
            self.drop_oldest()

    def drop_oldest(self) -> tuple[str, int]:
        """Forget the habits that changed longest ago; return their name and the bytes that they held."""
        oldest, habits = self.habits.popitem(last=False)
        self.stale.pop(oldest, None)
        self.changed.discard(oldest)
        self.removed.add(oldest)
        return oldest, habits.bytes_used()

    def bytes_used(self) -> int:
        """Return the RAM used by the habits [bytes]."""
        return sum(habits.bytes_used() for habits in self.habits.values())


@dataclass(frozen=True)
class Survival:
    """Survival of a stay: Kaplan-Meier where many stays were seen, else a constant rate."""

    rate: MovingRate
    curve: SurvivalCurve | None

    def still_there(self, age_s: float, known_s: float = 0.0) -> Chance:
        """Return the chance that an object that was put somewhere is there ``age_s`` later.

        ``known_s``: it was still seen there after this time.
        """
        if self.curve is None:
            return self.rate.still_there(age_s - known_s)
        return self.curve.goes_on(known_s, age_s, self.rate)

    @property
    def median_s(self) -> float:
        """Time after which half of them have moved."""
        return self.curve.median_s if self.curve is not None and self.curve.median_s < inf else self.rate.median_s
