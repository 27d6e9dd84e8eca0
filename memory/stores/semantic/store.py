"""Semantic memory: usual places of objects, how long they stay there, and success rates of skills."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf

import numpy as np

from engram.core.contracts import MemoryStore, StoreState
from engram.core.questions import Selection
from engram.core.statistics import Rate
from engram.core.types import EMBEDDING_DIM, Evidence, GraphEvent, GraphUpdate, Record, Skill
from engram.core.words import short_name
from engram.memory.graph.surroundings import Surroundings
from engram.memory.storage.place_keys import place_key
from engram.memory.stores.semantic.habits import Habits, HabitTable, Stay, Survival, UsualPlace
from engram.memory.stores.semantic.rhythm import HOURS, Rhythm, rhythm_of
from engram.memory.stores.semantic.survival import Chance, MovingRate, SurvivalCurve, moving_rate

Usual = tuple[UsualPlace, float, Rate]
"""A place, the share of the time and the share of the stays that were there."""
_STAY, _CLASS, _OBJECT, _SKILL = "stay/", "class/", "object/", "skill/"
_BEGINS = ("new", "moved", "returned", "released")
_ENDS = ("moved", "held", "absent")
_KNOWN_WELL = 5
_STAY_BYTES, _SKILL_BYTES, _SUMMARY_BYTES = 900, 500, 3500
"""RAM of a running stay, of a skill and of what was distilled of a class or object; tracemalloc."""
_SAME = 0.02
"""A rate is computed again when the time that it rests on grew by this share."""


@dataclass(frozen=True)
class SemanticConfig:
    """Bounds and thresholds."""

    settle_s: float = 2.0
    """A shorter stay is a step of one carrying motion and is not counted."""
    max_classes: int = 512
    """Classes whose habits are kept, those changed longest ago first out."""
    max_objects: int = 4096
    """The same for single objects."""
    max_skills: int = 1024
    """Pairs of task and policy version that are kept."""
    alike: float = 0.5
    """Least cosine of a class or task to the words of a question."""
    budget_mb: float = 32.0
    """RAM [MB]; above it single objects, then classes go, those changed longest ago first."""


@dataclass(frozen=True)
class Summary:
    """Summary of one class or object, computed by consolidation."""

    usual: tuple[Usual, ...]
    curve: SurvivalCurve | None = None
    rhythm: Rhythm = field(default_factory=Rhythm)
    hours: np.ndarray = field(default_factory=lambda: np.zeros((2, HOURS)))  # what the rhythm rests on


class SemanticMemory(MemoryStore):
    """Counts as things happen, in constant time; :meth:`consolidate` distils the counts when there is time.

    ``embed`` gives the vector of a task's name; ``clock`` the CPU time [s] of the thread that consolidates.
    """

    name = "semantic"

    def __init__(
        self,
        embed: Callable[[str], np.ndarray],
        config: SemanticConfig | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.config = config or SemanticConfig()
        self._embed, self._clock = embed, clock
        self._surroundings = Surroundings()
        self._stays: dict[str, Stay] = {}  # by object
        self._of_class: dict[str, set[str]] = {}
        self._resting_s: dict[str, float] = {}  # class -> sum over its stays that have not ended
        self._half_move_s = 0.0  # time in which half an object moves, over all classes
        self._rhythm = Rhythm()  # of all classes together
        self._rates: dict[str, MovingRate] = {}
        self._tables = {_CLASS: HabitTable(self.config.max_classes), _OBJECT: HabitTable(self.config.max_objects)}
        self._summaries: dict[str, Summary] = {}
        self._skills: OrderedDict[str, Skill] = OrderedDict()
        self._skill_vectors: dict[str, np.ndarray] = {}
        self._changed: set[str] = set()
        self._removed: set[str] = set()

    # -- what happens ----------------------------------------------------------------------------------------------

    def update(self, change: GraphUpdate, stamp_ns: int) -> None:
        """Begin and end stays as the events say; a detection extends them."""
        self._surroundings.follow(change)
        if change.shifted_ns:
            self._shift(change.shifted_ns)
        for event in change.events:
            self._take(event)
        for node in change.nodes:
            stay = self._stays.get(node.id)
            if stay is not None and node.last_seen_ns > stay.seen_ns:
                self._resting_s[stay.label] += (node.last_seen_ns - stay.seen_ns) / 1e9
                stay.seen_ns = node.last_seen_ns
        for node_id in change.deleted_nodes:
            self._drop_stay(node_id)

    def skill(self, task: str, policy_version: str, success: bool, stamp_ns: int = -1) -> None:
        """Count one finished task of a policy, at ``stamp_ns``."""
        key = _skill_key(task, policy_version)
        known = self._skills.pop(key, Skill(task, policy_version, 0, 0))
        self._skills[key] = Skill(task, policy_version, known.successes + int(success), known.n + 1,
                                  stamp_ns if success else known.last_ns)  # fmt: skip
        self._keep_row(key)
        if len(self._skills) > self.config.max_skills:
            self._forget_row(self._skills.popitem(last=False)[0])

    def consolidate(self, budget_s: float) -> int:
        """Distil what changed for at most ``budget_s`` of this thread's CPU time and return how much is left.

        Each call does at least one class or object, so that it gets on; when nothing changed it refreshes the class
        that was distilled longest ago, whose objects have been resting since.
        """
        start = self._clock()
        if not self.stale:
            oldest = next((key for key in self._summaries if key.startswith(_CLASS)), "")
            if oldest:
                self._tables[_CLASS].stale[oldest.removeprefix(_CLASS)] = None
        for prefix, table in self._tables.items():
            while table.stale:
                name = next(iter(table.stale))
                del table.stale[name]
                self._summaries.pop(prefix + name, None)  # the newest goes to the end
                if name in table.habits:
                    self._summaries[prefix + name] = self._distil(prefix, name)
                if self._clock() - start >= budget_s:
                    return self.stale
        known = self._tables[_CLASS].habits.values()
        moves = sum(habits.moves for habits in known)
        seconds = sum(habits.exposure_s for habits in known) + sum(self._resting_s.values())
        self._half_move_s = 0.5 * seconds / moves if moves else 0.0
        made = [self._summaries[_CLASS + name] for name in self._tables[_CLASS].habits]
        if made:
            self._rhythm = rhythm_of(*np.sum([one.hours for one in made], axis=0))
        return 0

    @property
    def stale(self) -> int:
        """Classes and objects that wait for consolidation."""
        return sum(len(table.stale) for table in self._tables.values())

    # -- what is asked ---------------------------------------------------------------------------------------------

    def survival(self, label: str) -> Survival | None:
        """Return how long objects of a class stay where they are; None while that is not distilled yet."""
        summary, habits = self._summaries.get(_CLASS + label), self._tables[_CLASS].habits.get(label)
        if summary is None or habits is None:
            return None
        exposure = habits.exposure_s + self._resting_s.get(label, 0.0)
        if exposure <= 0:
            return None
        rate = self._rates.get(label)  # its interval costs more than all else here
        if rate is None or rate.moves != habits.moves or abs(exposure - rate.exposure_s) > _SAME * exposure:
            rate = self._rates[label] = moving_rate(habits.moves, exposure, self._half_move_s)
        return Survival(rate, summary.curve)

    def still_there(self, node_id: str, label: str, now_ns: int) -> Chance | None:
        """Return the chance that an object is where it was last seen; None without any experience of its class."""
        survival, stay = self.survival(label), self._stays.get(node_id)
        if survival is None or stay is None:
            return None
        rhythm = self._summaries[_CLASS + label].rhythm
        if not stay.whole:  # since when it lies there is not known
            return survival.rate.still_there(rhythm.seconds(stay.seen_ns, now_ns))
        return survival.still_there(stay.seconds(now_ns, rhythm), known_s=stay.seconds(stay.seen_ns, rhythm))

    def usual_places(self, label: str, node_id: str = "") -> tuple[Usual, ...]:
        """Return the usual places of an object if it is known well, else of its class, the best first."""
        own = self._summaries.get(_OBJECT + node_id)
        if own is not None and sum(place.visits for place, _, _ in own.usual) >= _KNOWN_WELL:
            return own.usual
        summary = self._summaries.get(_CLASS + label)
        return summary.usual if summary else ()

    def skills(self) -> tuple[Skill, ...]:
        """Return what was tried, the pair of task and policy version that was tried last at the end."""
        return tuple(self._skills.values())

    def recall(self, selection: Selection) -> tuple[Evidence, ...]:
        """Return the usual places of matching classes and the success rates of matching skills.

        The score of a place is its share of the time x how well the class fits the words.
        """
        found: list[Evidence] = []
        if selection.relation in ("", "in", "on"):
            known = {n: h for n, h in self._tables[_CLASS].habits.items() if _CLASS + n in self._summaries}
            for (name, habits), fit in zip(known.items(), _fits(list(known.values()), selection.vector), strict=True):
                if fit >= self.config.alike:
                    found += self._habit_evidence(name, habits, selection, fit)
        if selection.vector is not None and selection.place is None and not (selection.relation or selection.target):
            found += self._skill_evidence(selection.vector)
        found.sort(key=lambda one: (-one.score, one.text))
        return tuple(found[: selection.limit])

    # -- on disk ---------------------------------------------------------------------------------------------------

    def state(self) -> StoreState:
        """Return stays, habits and skills that changed since the last call."""
        self._shrink()
        rows, removed = [], sorted(self._removed)
        for key in sorted(self._changed):
            if key.startswith(_STAY):
                rows.append(Record(key, self._stays[key.removeprefix(_STAY)].data()))
            else:
                rows.append(Record(key, asdict(self._skills[key])))
        for prefix, table in self._tables.items():
            rows += [Record(prefix + n, table.habits[n].data(), table.habits[n].vector) for n in sorted(table.changed)]
            removed += sorted(prefix + name for name in table.removed)
            table.changed.clear()
            table.removed.clear()
        self._changed.clear()
        self._removed.clear()
        return StoreState(tuple(rows), tuple(removed))

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored rows; the summaries are distilled again in the background."""
        for record in sorted(records, key=lambda one: (one.data.get("seen_ns", 0), one.key)):
            prefix, slash, name = record.key.partition("/")
            if prefix + slash in self._tables:
                self._tables[prefix + slash].put(name, Habits.of(record.data, record.vector))
            elif prefix + slash == _STAY:
                self._put_stay(name, Stay.of(record.data))
            else:
                self._skills[record.key] = Skill(**record.data)
        self._changed.clear()

    def bytes_used(self) -> int:
        """Return the RAM used by habits, what was made of them, running stays and skills [bytes]."""
        rest = _STAY_BYTES * len(self._stays) + _SKILL_BYTES * len(self._skills) + _SUMMARY_BYTES * len(self._summaries)
        return rest + sum(table.bytes_used() for table in self._tables.values())

    # -- parts -----------------------------------------------------------------------------------------------------

    def _shift(self, by_ns: int) -> None:
        """Move the times of running stays and last sights: the clock began anew."""
        for node_id, stay in self._stays.items():
            for name in ("since_ns", "noticed_ns", "seen_ns"):
                setattr(stay, name, getattr(stay, name) + by_ns)
            self._keep_row(_STAY + node_id)
        for key, skill in self._skills.items():
            if skill.last_ns != -1:
                self._skills[key] = replace(skill, last_ns=skill.last_ns + by_ns)
                self._keep_row(key)
        for table in self._tables.values():
            for name, habits in table.habits.items():
                habits.seen_ns += by_ns
                table.changed.add(name)

    def _shrink(self) -> None:
        """Let habits of single objects, then skills, habits of classes and running stays go, the oldest first."""
        excess = self.bytes_used() - int(self.config.budget_mb * (1 << 20))
        excess = self._shrink_habits(_OBJECT, excess)
        while excess > 0 and self._skills:
            self._forget_row(self._skills.popitem(last=False)[0])
            excess -= _SKILL_BYTES
        excess = self._shrink_habits(_CLASS, excess)
        for node_id in sorted(self._stays, key=lambda one: self._stays[one].seen_ns) if excess > 0 else ():
            if excess <= 0:
                break
            self._drop_stay(node_id)
            excess -= _STAY_BYTES

    def _shrink_habits(self, prefix: str, excess: int) -> int:
        table = self._tables[prefix]
        while excess > 0 and table.habits:
            name, size = table.drop_oldest()
            excess -= size + _SUMMARY_BYTES * (self._summaries.pop(prefix + name, None) is not None)
        return excess

    def _take(self, event: GraphEvent) -> None:
        if event.kind in ("deleted", "merged"):
            self._drop_stay(event.other_id if event.kind == "merged" else event.node_id)
            return
        before, left_ns = self._stays.get(event.node_id), event.stamp_ns
        if event.kind in _ENDS and before is not None:
            # it left between its last sight there and now: the middle is the best guess
            left_ns = (before.seen_ns + event.stamp_ns) // 2
            if event.stamp_ns - before.noticed_ns >= self.config.settle_s * 1e9:
                self._count(event, before, left_ns)
            self._drop_stay(event.node_id)
        if event.kind in _BEGINS:
            support_id, support_label = self._surroundings.support(event.node_id)
            key, whole = place_key(support_id, event.place), event.kind != "new"
            since_ns = left_ns if event.kind == "moved" else event.stamp_ns
            seen_ns = event.stamp_ns
            stay = Stay(event.label, key, support_label, event.place, since_ns, seen_ns, seen_ns, whole)
            self._put_stay(event.node_id, stay)
            self._learn_class(event)

    def _count(self, event: GraphEvent, stay: Stay, left_ns: int) -> None:
        known = self._summaries.get(_CLASS + stay.label)
        lived_s = stay.seconds(left_ns, known.rhythm if known is not None else self._rhythm)
        for prefix, name in ((_CLASS, stay.label), (_OBJECT, event.node_id)):
            habits = self._tables[prefix].touch(name)
            whole_s = lived_s if stay.whole else None
            habits.add_stay(stay.key, stay.support_label, stay.place, stay.seconds(left_ns), whole_s)
            habits.seen_ns = event.stamp_ns
        self._tables[_CLASS].habits[stay.label].add_hours(stay.since_ns, stay.seen_ns, event.stamp_ns)

    def _learn_class(self, event: GraphEvent) -> None:
        vector, habits = self._surroundings.embedding(event.node_id), self._tables[_CLASS].touch(event.label)
        habits.seen_ns = event.stamp_ns
        if vector is not None:
            habits.vector = vector

    def _put_stay(self, node_id: str, stay: Stay) -> None:
        self._drop_stay(node_id)
        self._stays[node_id] = stay
        self._of_class.setdefault(stay.label, set()).add(node_id)
        self._resting_s[stay.label] = self._resting_s.get(stay.label, 0.0) + stay.seconds(stay.seen_ns)
        self._keep_row(_STAY + node_id)

    def _drop_stay(self, node_id: str) -> None:
        stay = self._stays.pop(node_id, None)
        if stay is not None:
            self._of_class[stay.label].discard(node_id)
            self._resting_s[stay.label] -= stay.seconds(stay.seen_ns)
            self._forget_row(_STAY + node_id)

    def _keep_row(self, key: str) -> None:
        self._changed.add(key)
        self._removed.discard(key)

    def _forget_row(self, key: str) -> None:
        self._changed.discard(key)
        self._removed.add(key)

    def _distil(self, prefix: str, name: str) -> Summary:
        habits = self._tables[prefix].habits[name]
        if prefix == _OBJECT:
            return Summary(tuple(habits.usual(limit=8)))
        running = [self._stays[one] for one in sorted(self._of_class.get(name, ()))]
        rhythm, hours = habits.rhythm(running, self._rhythm)
        usual = habits.with_running(running).usual(limit=8)
        return Summary(tuple(usual), habits.curve(running, rhythm), rhythm, hours)

    def _habit_evidence(self, label: str, habits: Habits, selection: Selection, fit: float) -> list[Evidence]:
        summary = self._summaries[_CLASS + label]
        found = []
        for place, share, visits in summary.usual:
            away = (
                selection.place is not None and float(np.linalg.norm(place.mean - selection.place)) > selection.radius_m
            )
            if not away and selection.target in ("", place.label):
                text = _sentence(label, place, share, visits, self.survival(label))
                found.append(Evidence(self.name, text, fit * share, habits.seen_ns, place=place.mean))
        return found

    def _skill_evidence(self, vector: np.ndarray) -> list[Evidence]:
        found = []
        for skill in self._skills.values():
            if skill.task not in self._skill_vectors:
                self._skill_vectors[skill.task] = np.asarray(self._embed(skill.task.replace("_", " ")))
            fit = float(np.clip(self._skill_vectors[skill.task] @ vector, 0.0, 1.0))
            if fit >= self.config.alike:
                text = f"{skill.task} with policy {skill.policy_version or 'unnamed'} succeeds {skill.rate}"
                found.append(Evidence(self.name, text, fit * skill.rate.rate, 0))
        return found


def _skill_key(task: str, policy_version: str) -> str:
    return f"{_SKILL}{short_name(task)}@{short_name(policy_version)}"


def _fits(habits: Sequence[Habits], vector: np.ndarray | None) -> list[float]:
    """Return how well each class fits the words, 0..1; 1 without words."""
    if vector is None:
        return [1.0] * len(habits)
    nothing = np.zeros(EMBEDDING_DIM, np.float32)
    vectors = np.array([nothing if one.vector is None else one.vector for one in habits]).reshape(-1, EMBEDDING_DIM)
    return np.clip(vectors @ vector, 0.0, 1.0).tolist()


def _sentence(label: str, place: UsualPlace, share: float, visits: Rate, survival: Survival | None) -> str:
    x, y, z = place.mean
    where = f"at the {place.label}" if place.label else f"near x {x:.1f}, y {y:.1f}, z {z:.1f} m"
    text = f"the {label} is usually {where}: {100 * share:.0f} % of the time, {visits.successes} of {visits.n} stays"
    if survival is not None and survival.median_s < inf:
        text += f"; half of them move within {_duration(survival.median_s)}"
    return text


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
