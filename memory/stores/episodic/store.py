"""Episodic memory: events segmented by surprise, and the tasks they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engram.core.contracts import MemoryStore, StoreState
from engram.core.questions import Selection
from engram.core.types import EMBEDDING_DIM, Evidence, GraphEvent, GraphUpdate, Record
from engram.memory.graph.surroundings import Surroundings, describe
from engram.memory.stores.episodic.episodes import ABANDONED, RUNNING, Episode, Event, Past, unit
from engram.memory.stores.episodic.event_index import RecallConfig
from engram.memory.stores.episodic.event_log import EventLog
from engram.memory.stores.episodic.multi_hop import SpreadConfig
from engram.memory.stores.episodic.recall import SOURCE, EpisodicRecall
from engram.memory.stores.episodic.surprise import Boundaries, SurpriseConfig

_COUNTERS = "counters"
_VALUE = "value/"
"""Rows that earlier versions wrote, of what a memory was worth to tasks; nothing read it."""
_EPISODE_BYTES = 2600
"""RAM of a task without the ids it used; tracemalloc."""
GOES_ON_S = 60.0
"""A task that is under way when it is first heard of is the interrupted one only if that was known to run at most so
long before [s]: a killed node is back by then."""


@dataclass(frozen=True)
class EpisodicConfig:
    """Bounds, and the settings of the parts."""

    max_events: int = 4096
    """Over it, the most alike neighbours in time are merged, an eighth at once."""
    max_episodes: int = 1024
    """Over it, the least valuable task of the older half goes."""
    budget_mb: float = 64.0
    """RAM [MB]; above it events are merged and tasks go as they do above their counts."""
    longest_s: float = 60.0
    """An event ends after this time even without surprise."""
    association_weight: float = 0.3
    """Score of the strongest association, as a share of the best direct match."""
    recall: RecallConfig = field(default_factory=RecallConfig)
    surprise: SurpriseConfig = field(default_factory=SurpriseConfig)
    spread: SpreadConfig = field(default_factory=SpreadConfig)


class EpisodicMemory(MemoryStore):
    """Events and episodes; ``embed`` maps an instruction to its unit vector (384,)."""

    name = SOURCE

    def __init__(self, embed: Callable[[str], np.ndarray], config: EpisodicConfig | None = None) -> None:
        self.config = config or EpisodicConfig()
        self._embed = embed
        self._surroundings = Surroundings()
        self._boundaries = Boundaries(self.config.surprise)
        self._log = EventLog(self.config.max_events, self.config.recall)
        self._episodes: dict[str, Episode] = {}
        self._issued = {"event": 0, "episode": 0}
        self._current = ""  # episode
        self._interrupted = ""  # the episode that ran when the process before ended, while it may still go on
        self._open = False  # whether the newest event may still grow
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        self._recall = EpisodicRecall(
            self._log,
            self._episodes,
            self._surroundings,
            self.config.spread,
            self.config.association_weight,
        )

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, oldest first."""
        return tuple(self._log.events)

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """All episodes, oldest first."""
        return tuple(self._episodes.values())

    def past(self) -> Past:
        """Return what it holds, for answers on another thread."""
        return Past(self.episodes, self.events, self._issued["episode"])

    def update(self, change: GraphUpdate, stamp_ns: int) -> None:
        """Add the step to the running event, or begin a new one where it surprises."""
        self._surroundings.follow(change)
        if change.full:
            return
        if change.shifted_ns:
            self._shift(change.shifted_ns)
        surprise, boundary = self._boundaries.step(change.events)
        self._open &= not boundary
        for event in change.events:
            if self._open and event.stamp_ns - self._log.events[-1].start_ns <= self.config.longest_s * 1e9:
                self._log.replace_last(self._extended(self._log.events[-1], event))
            else:
                self._begin_event(event, surprise)

    def begin(self, task: str, instruction: str, stamp_ns: int, under_way: bool = False) -> str:
        """Begin an episode and return its id; one that still runs is abandoned.

        The interrupted one goes on if it is told to have begun when it did, or to be ``under_way`` soon after.
        """
        was = self._episodes.get(self._interrupted)
        if was is not None and (was.task, was.instruction) == (task, instruction):
            soon = was.start_ns < stamp_ns <= was.end_ns + GOES_ON_S * 1e9
            if soon if under_way else stamp_ns == was.start_ns:
                self._put(replace(was, outcome=RUNNING, end_ns=was.start_ns))
                self._current, self._interrupted = was.id, ""
                return was.id
        if self._current:
            self._close(ABANDONED, stamp_ns)
        self._open, self._interrupted = False, ""
        key = self._new_id("episode")
        vector = unit(np.asarray(self._embed(instruction)))
        self._put(Episode(key, task, instruction, stamp_ns, stamp_ns, RUNNING, None, "", (), 0, vector))
        self._current = key
        return key

    def end(
        self,
        outcome: str,
        return_: float | None,
        stamp_ns: int,
        memory_ids: Sequence[str] = (),
        policy_version: str = "",
    ) -> None:
        """End the running episode. Without one, nothing happens.

        Args:
            outcome: how it ended.
            return_: 0..1: a task that succeeded is worth more than one that failed. None says nothing of it.
            stamp_ns: when it ended.
            memory_ids: the memories that its actions were based on: recall finds it and them together.
            policy_version: the weights that drove.
        """
        self._current = self._current or self._interrupted
        if not self._current:
            return
        key, ids = self._current, tuple(dict.fromkeys(one for one in memory_ids if one))
        ended = replace(self._episodes[key], return_=return_, policy_version=policy_version, memory_ids=ids)
        self._episodes[key] = ended
        self._close(outcome, stamp_ns)

    def interrupt(self, stamp_ns: int) -> None:
        """Abandon, at ``stamp_ns``, what ran when the process before ended; :meth:`begin` may tell that it goes on."""
        if self._current:
            key = self._current
            self._close(ABANDONED, stamp_ns)
            self._interrupted = key

    def recall(self, selection: Selection) -> tuple[Evidence, ...]:
        """Return events and episodes that fit, best first, and entries associated with them."""
        return self._recall.recall(selection)

    def state(self) -> StoreState:
        """Return events, episodes and counters that changed since the last call."""
        self._shrink()
        log = self._log.state()
        rows = [*log.changed, *(self._episodes[key].record() for key in sorted(self._changed))]
        if rows:
            rows.append(Record(_COUNTERS, {**self._issued, "current": self._current or self._interrupted}))
        removed = [*log.removed, *sorted(self._removed)]
        self._changed.clear()
        self._removed.clear()
        return StoreState(tuple(rows), tuple(removed))

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored rows; an episode that ran when they were stored runs, unless it is interrupted."""
        ordered = sorted(records, key=lambda one: (len(one.key), one.key))  # ids count up: oldest first
        self._log.restore(Event.of(one) for one in ordered if one.key.startswith("event_"))
        for record in ordered:
            if record.key == _COUNTERS:
                self._issued = {kind: record.data[kind] for kind in self._issued}
                self._current = record.data["current"]
            elif record.key.startswith(_VALUE):
                self._removed.add(record.key)
            elif record.key.startswith("episode_"):
                self._episodes[record.key] = Episode.of(record)
        was = self._episodes.get(self._current)
        if was is None or was.outcome != RUNNING:
            self._current, self._interrupted = "", self._current

    def _shift(self, by_ns: int) -> None:
        """Move the times of everything that was: the clock began anew."""
        self._open = False
        self._log.shift(by_ns)
        for key, one in self._episodes.items():
            self._episodes[key] = replace(one, start_ns=one.start_ns + by_ns, end_ns=one.end_ns + by_ns)
            self._changed.add(key)

    def _begin_event(self, change: GraphEvent, surprise: float) -> None:
        episode = self._episodes.get(self._current)
        stamp_ns, key = change.stamp_ns, self._new_id("event")
        if episode is None:
            vector, weight = np.zeros(EMBEDDING_DIM, np.float32), 0
        else:  # what it is done for weighs as much as one change
            vector, weight = episode.vector, 1
            self._put(replace(episode, events=episode.events + 1))
        blank = Event(key, stamp_ns, stamp_ns, change.place, (), (), (), surprise, weight, self._current, vector)
        self._log.append(self._extended(blank, change))
        self._open = True

    def _extended(self, event: Event, change: GraphEvent) -> Event:
        sentence = describe(change, self._surroundings.support(change.node_id)[1])
        return event.extended(change, sentence, self._surroundings.embedding(change.node_id))

    def _close(self, outcome: str, stamp_ns: int) -> None:
        episode = self._episodes[self._current]
        self._put(replace(episode, outcome=outcome, end_ns=max(episode.start_ns, stamp_ns)))
        self._current, self._interrupted, self._open = "", "", False

    def _put(self, episode: Episode) -> None:
        self._episodes[episode.id] = episode
        self._changed.add(episode.id)
        if len(self._episodes) > self.config.max_episodes:
            self._drop_episode()

    def _drop_episode(self) -> None:
        """Forget the least valuable task of the older half."""
        older = list(self._episodes)[: len(self._episodes) // 2]
        worst = min(older, key=lambda key: (self._episodes[key].worth, self._episodes[key].start_ns))
        del self._episodes[worst]
        self._changed.discard(worst)
        self._removed.add(worst)

    def bytes_used(self) -> int:
        """Return the RAM used by events and tasks [bytes]."""
        return self._log.bytes_used() + self._episode_bytes()

    def _episode_bytes(self) -> int:
        return sum(_EPISODE_BYTES + 70 * len(one.memory_ids) for one in self._episodes.values())

    def _shrink(self) -> None:
        """Over the budget, tasks may take a quarter of it, and events are merged into the rest."""
        budget = int(self.config.budget_mb * (1 << 20))
        if self.bytes_used() <= budget:
            return
        while len(self._episodes) > 1 and self._episode_bytes() > budget // 4:
            self._drop_episode()
        self._log.shrink(budget - self._episode_bytes())

    def _new_id(self, kind: str) -> str:
        self._issued[kind] += 1
        return f"{kind}_{self._issued[kind]:06d}"
