"""Episodic recall: direct matches by similarity, temporal contiguity and outcome, then associated entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engram.core.questions import Selection
from engram.core.types import Evidence
from engram.memory.graph.surroundings import Surroundings
from engram.memory.stores.episodic.episodes import UNKNOWN_WORTH, Episode, Event
from engram.memory.stores.episodic.event_log import EventLog
from engram.memory.stores.episodic.multi_hop import SpreadConfig, spread

SOURCE = "episodic"
_SEED_SHARE = 0.5
"""Activation spreads from matches that score at least half as much as the best."""


class EpisodicRecall:
    """Ranks events and episodes; reads the log, the episodes and the current relations."""

    def __init__(
        self,
        log: EventLog,
        episodes: Mapping[str, Episode],
        surroundings: Surroundings,
        spreading: SpreadConfig,
        association_weight: float,
    ) -> None:
        self._log, self._episodes, self._surroundings = log, episodes, surroundings
        self._spread, self._association_weight = spreading, association_weight

    def recall(self, selection: Selection) -> tuple[Evidence, ...]:
        """Return events and episodes, best first; later ones first among equals."""
        direct = self._events(selection) + self._cases_of(selection)
        found = {one.ids[0]: one for one in direct}
        if selection.vector is not None and direct:
            for one in self._associated(direct, selection):
                if one.ids[0] not in found or found[one.ids[0]].score < one.score:
                    found[one.ids[0]] = one
        ranked = sorted(found.values(), key=lambda one: (-one.score, -one.stamp_ns, one.ids[0]))
        return tuple(ranked[: selection.limit])

    def _events(self, selection: Selection) -> list[Evidence]:
        weights, log = self._log.index.config, self._log
        fits = np.array([self._fits(event, selection) for event in log.events], bool) if _filters(selection) else None
        similarity, near = self._similarity(selection.vector, fits), np.zeros(len(log.events))
        if selection.vector is not None:
            near = log.index.contiguity(similarity)
        relevance = weights.similarity_weight * similarity + weights.contiguity_weight * near
        if fits is not None:
            relevance *= fits
        order = np.lexsort((-np.arange(len(relevance)), -relevance))[: 4 * selection.limit]
        found = []
        for i in order[relevance[order] > 0]:
            event = log.events[i]
            episode = self._episodes.get(event.episode)
            worth = UNKNOWN_WORTH if episode is None else episode.worth
            score = relevance[i] + weights.outcome_weight * worth * max(similarity[i], near[i])
            found.append(self._event(event, float(score)))
        return found

    def _similarity(self, vector: np.ndarray | None, fits: np.ndarray | None) -> np.ndarray:
        """Return the cosine (n,) 0..1 of every event that was looked at, else 0.

        ``fits`` (n,) bool: which events pass the filter; None = there is none. Then the chunks are looked at that hold
        one which passes, all of them: those whose summaries fit the question best may hold none.
        """
        index, events = self._log.index, self._log.events
        if vector is None or fits is None:
            return index.similarity(vector)
        chunk = np.arange(len(events)) // index.config.chunk
        rows = np.flatnonzero(np.isin(chunk, chunk[fits]))
        scores = np.zeros(len(events))
        if len(rows):
            scores[rows] = np.clip(np.array([events[i].vector for i in rows]) @ vector, 0.0, 1.0)
        return scores

    def _cases_of(self, selection: Selection) -> list[Evidence]:
        if selection.place is not None or selection.relation or selection.target:  # an episode has no place of its own
            return []
        share, scored = self._log.index.config.outcome_weight, []
        for one in self._episodes.values():
            if _overlaps(one.start_ns, one.end_ns, selection):
                alike = 1.0 if selection.vector is None else max(0.0, float(one.vector @ selection.vector))
                scored.append((alike * (1 - share + share * one.worth), one.end_ns, one.id))
        scored.sort(reverse=True)
        return [self._case(self._episodes[key], score) for score, _, key in scored[: selection.limit]]

    def _associated(self, direct: Sequence[Evidence], selection: Selection) -> list[Evidence]:
        best = sorted(direct, key=lambda one: -one.score)[: self._log.index.config.seeds]
        seeds = {one.ids[0]: one.score for one in best if one.score >= _SEED_SHARE * best[0].score}
        active = spread(seeds, self._neighbours, self._spread)
        others = {
            key: share
            for key, share in active.items()
            if key not in seeds and key in self._log and self._fits(self._log.event(key), selection)
        }
        if not others:
            return []
        scale = self._association_weight * max(seeds.values()) / max(others.values())
        return [self._event(self._log.event(key), share * scale) for key, share in others.items()]

    def _neighbours(self, key: str) -> set[str]:
        """Return the graph neighbours of an entry.

        An event is linked to its objects and its task, a task to the memories read for it, and objects to objects that
        they are related to. Neighbours in time are not linked: contiguity covers them, and they would dominate.
        """
        if key in self._log:
            event = self._log.event(key)
            return {*event.node_ids} | ({event.episode} & self._episodes.keys())
        if key in self._episodes:
            return {one for one in self._episodes[key].memory_ids if self._is_known(one)}
        return {*self._log.about(key)} | self._surroundings.neighbours(key)

    def _is_known(self, key: str) -> bool:
        return key in self._log or key in self._episodes or key in self._surroundings.labels

    def _fits(self, event: Event, selection: Selection) -> bool:
        if not _overlaps(event.start_ns, event.end_ns, selection):
            return False
        if selection.target and not self._involves(event, selection.target):
            return False
        return selection.place is None or float(np.linalg.norm(event.place - selection.place)) <= selection.radius_m

    def _involves(self, event: Event, target: str) -> bool:
        """Whether an object of the event is ``target``, or stands in a relation to it now."""
        labels = self._surroundings.labels
        return any(
            target in (one, labels.get(one, ("", 0))[0]) or self._surroundings.stands(one, "", target)
            for one in event.node_ids
        )

    def _event(self, event: Event, score: float) -> Evidence:
        ids = (event.id, *([event.episode] if event.episode else []), *event.evidence)
        node_id = event.node_ids[0] if len(event.node_ids) == 1 else ""
        return Evidence(SOURCE, event.text, min(1.0, score), event.end_ns, ids, node_id, event.place)

    def _case(self, episode: Episode, score: float) -> Evidence:
        return Evidence(SOURCE, episode.text, min(1.0, score), episode.end_ns, (episode.id,))


def _filters(selection: Selection) -> bool:
    asked = (selection.valid_ns, selection.believed_ns, selection.place)
    return any(one is not None for one in asked) or bool(selection.target)


def _overlaps(start_ns: int, end_ns: int, selection: Selection) -> bool:
    if selection.believed_ns is not None and start_ns > selection.believed_ns:
        return False
    return selection.valid_ns is None or (start_ns <= selection.valid_ns[1] and end_ns >= selection.valid_ns[0])
