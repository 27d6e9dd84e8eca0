"""Questions about the past and about relations, held against everything that was ever true in a household.

The world stands still while the robot goes round, so what was true at the end of a round is what was true at its begin.
What could be *known* of it: the robot looked at the place while the thing lay there, in that round, or both before it
and after it; what was seen before only may have been elsewhere by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engram.benchmarks.household_scores import RIGHT_M, Looked, Scores, believed
from engram.core.contracts import Memory
from engram.core.questions import AtTime, FindObject
from engram.memory.query.language import parse
from engram.sim.household.life import DAY_NS, Life, OracleFact

SPANS: Mapping[str, tuple[int, int]] = {"0_to_1_days": (0, 1), "2_to_7_days": (2, 7), "over_7_days": (8, 10**6)}
"""How many days back is asked, from and to."""
EACH = 4
"""Questions of each span a day: where a thing was, and as many where it was believed to be."""
OPEN, CLOSED = 4, 2
"""Surfaces, and drawers or cupboards, whose contents are asked for a day: now, and as many in a past round."""
AGAIN = 3
"""Of what was said of contents on earlier days, so much is asked again a day, each but once."""
_ALL = 100
"""More than ever lies in one place."""


@dataclass(frozen=True)
class Round:
    """One round through the home."""

    begin_ns: int
    end_ns: int  # its last frame
    spots: frozenset[str]  # that were looked at
    told: Mapping[str, Sequence[np.ndarray]]  # kind -> places (3,) m that the memory then believed in, best first


@dataclass(frozen=True)
class Contents:
    """What the memory said was in or on a spot, when it was asked."""

    spot: str
    stamp_ns: int
    names: Counter[str]


class Past:
    """What the rounds of one home saw, and questions about it; which ones depends on ``seed`` only."""

    def __init__(self, life: Life, seed: int) -> None:
        self.life, self.rounds = life, list[Round]()
        self._kinds = sorted({kind.name for kind in life.things.values()})
        self._said: list[Contents] = []
        self._rng = np.random.default_rng([seed, 5])

    def note(self, begin_ns: int, looked: Looked, told: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Remember the round that began at ``begin_ns``, after which the memory ``told`` where each kind is."""
        spots = frozenset(spot for spot, stamp_ns in looked.at_ns.items() if stamp_ns >= begin_ns)
        self.rounds.append(Round(begin_ns, max(looked.at_ns[spot] for spot in spots), spots, told))

    def draw(self) -> list[tuple[str, str, Round]]:
        """Return a day's questions, (span, kind, an earlier round)."""
        today = self.rounds[-1].begin_ns // DAY_NS
        ages = np.array([today - one.begin_ns // DAY_NS for one in self.rounds[:-1]], np.int64)
        drawn = []
        for span, (least, most) in SPANS.items():
            fits = np.flatnonzero((ages >= least) & (ages <= most))
            for _ in range(EACH if len(fits) else 0):
                drawn.append((span, str(self._rng.choice(self._kinds)), self.rounds[int(self._rng.choice(fits))]))
        return drawn

    def ask(self, memories: Mapping[str, Memory], ours: str, scores: Mapping[str, Scores], now_ns: int) -> None:
        """Ask all ``memories`` a day's questions about places, and the one called ``ours`` what only it can answer."""
        questions = self.draw()
        for name, memory in memories.items():
            self.ask_where(memory, questions, scores[name], now_ns)
        self.ask_believed(memories[ours], self.draw(), scores[ours], now_ns)
        self.ask_contents(memories[ours], scores[ours], now_ns)

    # -- where something was -------------------------------------------------------------------------------------

    def ask_where(
        self, memory: Memory, questions: Sequence[tuple[str, str, Round]], scores: Scores, now_ns: int
    ) -> None:
        """Ask where things were at the end of earlier rounds, and judge the answers; counts end in the span."""
        for span, name, then in questions:
            answer = memory.query(AtTime(FindObject(name, now_ns=now_ns), (then.end_ns, then.end_ns)))
            places = [node.pose.position for node in believed(answer.nodes) if node.label == name]
            verdict = self.judge(places[0] if places else None, name, then)
            for what in ("questions", verdict):
                scores.count[f"past {what} {span}"] += 1
            if self.knowable(name, then):
                scores.count[f"past knowable {span}"] += 1
                scores.count[f"past right of knowable {span}"] += verdict == "right"

    def ask_believed(
        self, memory: Memory, questions: Sequence[tuple[str, str, Round]], scores: Scores, now_ns: int
    ) -> None:
        """Ask where the memory thought things were, and hold that against what it told then."""
        for span, name, then in questions:
            at = then.end_ns
            answer = memory.query(AtTime(FindObject(name, now_ns=now_ns), (at, at), believed_ns=at))
            places = [node.pose.position for node in believed(answer.nodes) if node.label == name]
            scores.count[f"believed then {span}"] += 1
            scores.count[f"believed then same {span}"] += same(places, then.told[name])

    def judge(self, place: np.ndarray | None, name: str, then: Round) -> str:
        """Return right, wrong or, without an answer, rightly none (none was at home) or missing."""
        there = [fact.placement.position for fact in self._facts(name, then) if fact.placement is not None]
        if place is None:
            return "missing" if there else "rightly none"
        return "right" if _nearest(place, there) <= RIGHT_M else "wrong"

    def knowable(self, name: str, then: Round) -> bool:
        """Whether the robot could know where a thing of this kind was at the end of a round."""
        return any(self._seen_around(fact, then) for fact in self._facts(name, then))

    def _seen_around(self, fact: OracleFact, then: Round) -> bool:
        if fact.placement is None:
            return False
        looks = [one.begin_ns for one in self.rounds
                 if fact.placement.spot in one.spots and fact.holds_at(one.begin_ns)]  # fmt: skip
        return bool(looks) and looks[0] <= then.begin_ns <= looks[-1]

    def _facts(self, name: str, then: Round) -> list[OracleFact]:
        things = [thing for thing, kind in self.life.things.items() if kind.name == name]
        return [self.life.oracle_fact(thing, then.begin_ns) for thing in things]

    # -- what was in or on something -----------------------------------------------------------------------------

    def ask_contents(self, memory: Memory, scores: Scores, now_ns: int) -> None:
        """Ask what is, was and was thought to be in or on pieces of furniture, in words; the last with all said then.

        Only of what the robot could know is asked: it has looked since anything there changed, or in that round.
        """
        now, earlier = self.rounds[-1], self.rounds[:-1]
        for spot in self._spots(frozenset(self.life.home.spots)):
            said = Contents(spot, now_ns, self._contents(memory, spot, now_ns))
            self._said.append(said)
            looks = [one for one in self.rounds if spot in one.spots]
            if looks and self.oracle_contents(spot, looks[-1]) == self.oracle_contents(spot, now):
                self._hold("now", said, now, scores)
        if not earlier:
            return
        then = earlier[int(self._rng.integers(len(earlier)))]
        for spot in self._spots(then.spots):
            at = then.end_ns
            self._hold("then", Contents(spot, at, self._contents(memory, spot, now_ns, (at, at))), then, scores)
        old = [said for said in self._said if said.stamp_ns < now_ns]
        for i in self._rng.permutation(len(old))[:AGAIN].tolist():
            said, at = old[i], old[i].stamp_ns
            self._said.remove(said)
            names = self._contents(memory, said.spot, now_ns, (at, at), at)
            scores.count["contents believed then"] += 1
            scores.count["contents believed then same"] += names == said.names

    def oracle_contents(self, spot: str, then: Round) -> frozenset[str]:
        """Return the things that were in or on ``spot``."""
        placed = self.life.oracle_placements(then.begin_ns)
        return frozenset(thing for thing, at in placed.items() if at is not None and at.spot == spot)

    def _hold(self, when: str, said: Contents, then: Round, scores: Scores) -> None:
        """Count which of the names said are true, and which of the true ones were said."""
        there = Counter(self.life.things[thing].name for thing in self.oracle_contents(said.spot, then))
        relation = _relation(self.life, said.spot)
        scores.count[f"{relation} {when} asked"] += 1
        scores.count[f"{relation} {when} told"] += said.names.total()
        scores.count[f"{relation} {when} there"] += there.total()
        scores.count[f"{relation} {when} right"] += (said.names & there).total()

    def _contents(
        self, memory: Memory, spot: str, now_ns: int, valid_ns: tuple[int, int] | None = None,
        believed_ns: int | None = None,
    ) -> Counter[str]:  # fmt: skip
        """Return the names of what the memory says is in or on ``spot``."""
        query = parse(f"what is {_relation(self.life, spot)} the {spot}?", now_ns, _ALL)
        answer = memory.query(query if valid_ns is None else AtTime(query, valid_ns, believed_ns))
        return Counter(node.label for node in believed(answer.nodes))

    def _spots(self, among: frozenset[str]) -> list[str]:
        drawn = []
        for closed, count in ((False, OPEN), (True, CLOSED)):
            fits = sorted(name for name in among if self.life.home.spots[name].closed == closed)
            drawn += [fits[i] for i in self._rng.permutation(len(fits))[:count].tolist()]
        return drawn


def same(places: Sequence[np.ndarray], told: Sequence[np.ndarray]) -> bool:
    """Whether the first of ``places`` (3,) m is one of those ``told``; or that both are none.

    Of two mugs that it knew, a memory may name either first.
    """
    if not places or not told:
        return not places and not told
    return _nearest(places[0], told) <= RIGHT_M


def _nearest(place: np.ndarray, others: Sequence[np.ndarray]) -> float:
    return min((float(np.linalg.norm(place - other)) for other in others), default=np.inf)


def _relation(life: Life, spot: str) -> str:
    return "in" if life.home.spots[spot].closed else "on"
