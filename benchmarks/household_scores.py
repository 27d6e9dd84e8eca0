"""What a memory's answers are worth against the truth of a household.

A wrong answer counts as *stale* only when the robot could have known: it has looked at the answered place after the
thing was last there (or the thing was never there). An answer that is wrong because nobody has looked is *outdated*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from engram.core.contracts import Memory
from engram.core.questions import FindObject
from engram.core.types import GraphUpdate, SceneNode
from engram.sim.household.life import Life
from engram.sim.household.tour import Sight

RIGHT_M = 0.10
"""An answer farther than this from the thing is wrong."""
BELIEVED = 0.5
"""What is believed less is no answer."""


@dataclass
class Scores:
    """Counts and errors, added up over days and homes."""

    count: Counter[str] = field(default_factory=Counter)
    error_m: list[float] = field(default_factory=list)
    told: list[tuple[float, bool]] = field(default_factory=list)
    """Confidence of each answer, and whether it was right."""

    def add(self, other: Scores) -> None:
        """Take in what another home counted."""
        self.count.update(other.count)
        self.error_m += other.error_m
        self.told += other.told


class Looked:
    """When each spot was last looked at."""

    def __init__(self) -> None:
        self.at_ns: dict[str, int] = {}

    def note(self, spot: str, sights: Sequence[Sight]) -> None:
        """Remember a look."""
        self.at_ns[spot] = sights[-1].scene.stamp_ns

    def since(self, life: Life, place: np.ndarray, stamp_ns: int) -> bool:
        """Whether the robot looked at ``place`` (3,) m after ``stamp_ns``; off all furniture it never need look."""
        spot = life.home.spot_of(place)
        return spot is None or self.at_ns.get(spot, -1) > stamp_ns


def believed(nodes: Sequence[SceneNode]) -> list[SceneNode]:
    """Return the objects that are believed to be there."""
    return [n for n in nodes if n.layer == "object" and n.state != "absent" and n.belief >= BELIEVED]


def ask_everything(
    memory: Memory, life: Life, looked: Looked, scores: Scores, stamp_ns: int
) -> dict[str, list[np.ndarray]]:  # fmt: skip
    """Ask where each kind of thing is, at the end of a visit, and judge the answers.

    Return the places (3,) m that the memory told of each kind, best first.
    """
    told: dict[str, list[np.ndarray]] = {}
    for name in sorted({kind.name for kind in life.things.values()}):
        scores.count["questions"] += 1
        answer = memory.query(FindObject(name, now_ns=stamp_ns))
        answers = [node for node in believed(answer.nodes) if node.label == name]
        told[name] = [node.pose.position for node in answers]
        verdict = judge(answers[0].pose.position if answers else None, name, life, looked)
        scores.count[verdict] += 1
        scores.count["rightly none"] += not answers and _error(np.zeros(3), name, life) == np.inf
        if any(_in_view(thing, life, looked) for thing, kind in life.things.items() if kind.name == name):
            scores.count["knowable"] += 1
            scores.count["right of knowable"] += verdict == "right"
        if verdict == "right":
            scores.error_m.append(_error(answers[0].pose.position, name, life))
    return told


def ask_how_sure(memory: Memory, life: Life, scores: Scores, stamp_ns: int) -> None:
    """Ask where each kind of thing is, hours after the last look, and note how sure the answers are.

    A memory that gives no confidence is taken by its score, as the systems that it stands for report it.
    """
    for name in sorted({kind.name for kind in life.things.values()}):
        answer = memory.query(FindObject(name, now_ns=stamp_ns))
        if answer.nodes and answer.nodes[0].label == name and believed(answer.nodes[:1]):
            right = _error(answer.nodes[0].pose.position, name, life) <= RIGHT_M
            scores.told.append((answer.confidence or answer.scores[0], right))


def judge(place: np.ndarray | None, name: str, life: Life, looked: Looked) -> str:
    """Return right, stale, outdated or, without an answer, missing (it was in plain view) or unknown."""
    things = [thing for thing, kind in life.things.items() if kind.name == name]
    if place is None:
        return "missing" if any(_in_view(thing, life, looked) for thing in things) else "unknown"
    if _error(place, name, life) <= RIGHT_M:
        return "right"
    left_ns = [
        fact.until_ns
        for thing in things
        for fact in life.oracle_facts(thing)
        if fact.placement is not None
        and fact.until_ns is not None
        and float(np.linalg.norm(fact.placement.position - place)) <= RIGHT_M
    ]
    return "stale" if looked.since(life, place, max(left_ns, default=-1)) else "outdated"


def score_graph(memory: Memory, life: Life, looked: Looked, scores: Scores) -> None:
    """Hold what the memory believes to be there against what is there."""
    nodes = believed(memory.graph().nodes)
    placed = {thing: at for thing, at in life.oracle_placements().items() if at is not None}
    pairs = _pairs(nodes, placed, life)
    for node, thing in pairs:
        scores.count["matched"] += 1
        scores.count["named right"] += node.label == life.things[thing].name
    taken = {node.id for node, _ in pairs}
    for node in nodes:
        scores.count["believed"] += 1
        if node.id not in taken:
            left = _last_there(node.pose.position, life)
            scores.count["ghosts" if looked.since(life, node.pose.position, left) else "outdated nodes"] += 1
    found = {thing for node, thing in pairs if node.label == life.things[thing].name}
    for thing in placed:
        if _in_view(thing, life, looked):
            scores.count["in view"] += 1
            scores.count["recalled"] += thing in found


class Merges:
    """Which thing each node stands for, by the sights that were fused into it, as seen from outside."""

    def __init__(self) -> None:
        self._sights: dict[str, Counter[str]] = defaultdict(Counter)

    def note(self, sight: Sight, change: GraphUpdate, life: Life, scores: Scores) -> None:
        """Count the sights of one frame that went into a node of another thing."""
        nodes = [n for n in change.nodes if n.layer == "object" and n.last_seen_ns == sight.scene.stamp_ns]
        if not nodes or not sight.scene.objects:
            return
        places = np.array([one.pose.position for one in sight.scene.objects])
        apart = np.linalg.norm(places[:, None] - np.array([n.pose.position for n in nodes])[None], axis=2)
        for i, j in zip(*linear_sum_assignment(apart), strict=True):
            thing = sight.oracle_things[i]
            if thing is None or apart[i, j] > RIGHT_M:
                continue
            own = self._sights[nodes[j].id]
            if own:
                owner = own.most_common(1)[0][0]
                scores.count["fused"] += 1
                if owner != thing:
                    twin = life.things[owner].name == life.things[thing].name
                    scores.count["fused into its twin" if twin else "fused into another"] += 1
            own[thing] += 1


def _pairs(nodes: Sequence[SceneNode], placed: dict, life: Life) -> list[tuple[SceneNode, str]]:
    """Match believed nodes and things, one to one, near first and of the right name before others."""
    if not nodes or not placed:
        return []
    things = list(placed)
    apart = np.linalg.norm(
        np.array([n.pose.position for n in nodes])[:, None]
        - np.array([placed[thing].position for thing in things])[None],
        axis=2,
    )
    wrong = np.array([[n.label != life.things[thing].name for thing in things] for n in nodes])
    cost = np.where(apart <= RIGHT_M, apart + RIGHT_M * wrong, 1e3)
    matched = zip(*linear_sum_assignment(cost), strict=True)
    return [(nodes[i], things[j]) for i, j in matched if apart[i, j] <= RIGHT_M]


def _in_view(thing: str, life: Life, looked: Looked) -> bool:
    """Whether the robot has looked at where ``thing`` is since it is there."""
    fact = life.oracle_facts(thing)[-1]
    return fact.placement is not None and looked.at_ns.get(fact.placement.spot, -1) > fact.since_ns


def _error(place: np.ndarray, name: str, life: Life) -> float:
    """Return the distance (m) of ``place`` from the nearest thing of a kind; infinite when all are out."""
    placements = life.oracle_placements()
    there = [placements[thing] for thing, kind in life.things.items() if kind.name == name]
    return min((float(np.linalg.norm(at.position - place)) for at in there if at is not None), default=np.inf)


def _last_there(place: np.ndarray, life: Life) -> int:
    """Return when anything last left ``place`` (ns), -1 if nothing ever stood there."""
    left = [
        fact.until_ns
        for thing in life.things
        for fact in life.oracle_facts(thing)
        if fact.placement is not None
        and fact.until_ns is not None
        and float(np.linalg.norm(fact.placement.position - place)) <= RIGHT_M
    ]
    return max(left, default=-1)
