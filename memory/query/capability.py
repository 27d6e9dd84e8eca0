"""Which robot can: answers from embodiment profiles, from where everybody and everything is, and from skills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import MemoryQuery
from engram.core.errors import UnknownNameError, unknown_name
from engram.core.types import SceneNode, Skill
from engram.memory.graph.embodiments import described, words
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query.current import Embed, Hits, RetrievalConfig, anchors, called
from engram.memory.query.search import search
from engram.memory.query.temporal import asked
from engram.memory.storage.history import FOREVER

ABILITIES: tuple[str, ...] = ("reach", "grasp", "hold", "have", "do", "be")
_ALIKE = 0.5
"""Least cosine between what is asked for and the name of a task."""
_HALF_WAY_M = 10.0
"""A robot that has so far to drive scores half."""


@dataclass(frozen=True)
class Thing:
    """What shall be reached."""

    label: str
    place: np.ndarray  # (3,) m
    size: np.ndarray  # (3,) m
    sure: float  # 0..1, that it is there


@dataclass(frozen=True)
class Verdict:
    """Whether one robot can."""

    score: float  # 0..1; 0 = it cannot
    sure: float  # 0..1
    reason: str


def able(tracker: Tracker, index: VectorIndex, query: MemoryQuery, config: RetrievalConfig, embed: Embed) -> Hits:
    """Return the agents that have ``query.ability``, best first, with the reasons; without any, why not.

    reach, grasp: ``query.target``, where it is (or was, at ``valid_ns``). hold: it is in their hand. have: the profile
    says ``query.text``. do: they succeeded in a task like ``query.text``. be: every agent called ``query.text``.

    Raises:
        UnknownNameError: another ability, or nothing is known like the target.
    """
    if query.ability not in ABILITIES:
        raise unknown_name("ability", query.ability, ABILITIES)
    nodes = _agents(tracker, query)
    if query.ability in ("reach", "grasp"):
        thing = _thing(tracker, index, query, config, embed)
        verdicts = [_reaches(node, thing, grasp=query.ability == "grasp") for node in nodes]
    elif query.ability == "hold":
        verdicts = [_holds(tracker, node, query) for node in nodes]
    elif query.ability == "have":
        verdicts = [_has(node, query.text) for node in nodes]
    elif query.ability == "do":
        verdicts = [_does(node, query, embed) for node in nodes]
    else:
        meant = {tracker.columns.about(row).id for row in called(tracker, query.text)}
        verdicts = [_is(node, not query.text or node.id in meant) for node in nodes]
    order = sorted(range(len(nodes)), key=lambda i: (-verdicts[i].score, nodes[i].id))
    best = [i for i in order if verdicts[i].score > 0][: query.limit]
    told = best or order[: query.limit]
    return Hits(
        tuple(nodes[i] for i in best), tuple(verdicts[i].score for i in best), tuple(verdicts[i].sure for i in best),
        (None,) * len(best), tuple(f"{nodes[i].label} {verdicts[i].reason}" for i in told),
    )  # fmt: skip


def _agents(tracker: Tracker, query: MemoryQuery) -> list[SceneNode]:
    """Return every agent, where and what it was at the asked time."""
    nodes = tracker.columns.nodes(sorted(tracker.columns.agents))
    if query.valid_ns is None and query.believed_ns is None:
        return nodes
    history, then = tracker.history, []
    for node in nodes:
        facts = history.facts(history.select(query.valid_ns, query.believed_ns, [node.id]))
        if facts:
            fact = max(facts, key=lambda one: (one.valid_from, one.believed_from))
            believed = FOREVER - 1 if query.believed_ns is None else query.believed_ns
            profile = tracker.agents.at(node.id, asked(query), believed)
            then.append(replace(node, pose=replace(node.pose, position=fact.place), embodiment=profile))
    return then


def _thing(tracker: Tracker, index: VectorIndex, query: MemoryQuery, config: RetrievalConfig, embed: Embed) -> Thing:
    """Return what ``query.target`` means: an object, then or now, else a known place."""
    wanted = replace(query, ability="", text=query.target, target="", vector=embed(query.target), limit=1)
    hits = search(tracker, index, wanted, config)
    if hits.nodes and hits.nodes[0].state != "absent":
        node = hits.nodes[0]
        return Thing(node.label, node.pose.position, node.size, hits.confidence[0])
    known = [node for node in map(tracker.scene.node, anchors(tracker, query.target)) if node.state != "absent"]
    if not known:
        raise UnknownNameError(f"{query.target!r} is gone: nobody can reach it")
    return Thing(known[0].label, known[0].pose.position, known[0].size, 1.0)


def _reaches(node: SceneNode, thing: Thing, *, grasp: bool) -> Verdict:
    body = node.embodiment
    if body is None or not body.reach_m or node.belief == 0:
        return Verdict(0.0, 0.0, "has not said how far it reaches, or where it stands")
    narrow = float(thing.size.min())
    if grasp and body.gripper_m and narrow > body.gripper_m:
        how = f"opens its gripper {body.gripper_m:.3f} m, the {thing.label} is {narrow:.3f} m"
        return Verdict(0.0, thing.sure, how)
    away = float(np.linalg.norm(thing.place - node.pose.position))
    what = "grasp" if grasp else "reach"
    if away <= body.reach_m:
        how = f"{away:.2f} m away, it reaches {body.reach_m:.2f} m"
        return Verdict(1.0, thing.sure, f"can {what} the {thing.label}: {how}")
    rise = abs(float(thing.place[2] - node.pose.position[2]))
    if body.mobile_base and rise <= body.reach_m:
        score = _HALF_WAY_M / (_HALF_WAY_M + away)
        return Verdict(score, thing.sure, f"can drive there and {what} the {thing.label}, {away:.1f} m away")
    return Verdict(0.0, thing.sure, f"reaches {body.reach_m:.2f} m, the {thing.label} is {away:.2f} m away")


def _holds(tracker: Tracker, node: SceneNode, query: MemoryQuery) -> Verdict:
    """Whether a thing called ``query.target`` is, or was then, held by ``node``; empty = anything."""
    history = tracker.history
    rows = history.of_target(history.select(query.valid_ns, query.believed_ns), [node.id])
    facts = [fact for fact in history.facts(rows) if fact.relation == "held_by"]
    wanted = set(query.target.split())
    held = [fact.label for fact in facts if fact.node_id == query.target or wanted <= set(fact.label.split())]
    past = query.valid_ns is not None or query.believed_ns is not None
    if not held:
        return Verdict(0.0, 0.5, f"{'did' if past else 'does'} not hold {query.target or 'anything'}")
    return Verdict(1.0, 1.0, f"{'held' if past else 'holds'} the {', the '.join(dict.fromkeys(held))}")


def _has(node: SceneNode, text: str) -> Verdict:
    """Whether the profile has a feature with all words of ``text``; one s at the end is no difference."""
    if node.embodiment is None:
        return Verdict(0.0, 0.0, "has not introduced itself")
    wanted = {word.rstrip("s") for word in text.split()}
    found = [one for one in words(node.embodiment) if wanted <= {word.rstrip("s") for word in one.split()}]
    if not found:
        return Verdict(0.0, 1.0, f"has: {', '.join(words(node.embodiment))}")
    return Verdict(1.0, 1.0, f"has: {', '.join(found)}")


def _does(node: SceneNode, query: MemoryQuery, embed: Embed) -> Verdict:
    """Whether it ever succeeded in a task like ``query.text``, in the asked time if there is one."""
    known: Sequence[Skill] = node.embodiment.skills if node.embodiment is not None else ()
    names = {skill.task for skill in known}
    vector = embed(query.text)
    alike = {name: float(embed(name.replace("_", " ")) @ vector) for name in names}
    best = max(alike.values(), default=0.0)
    fits = [skill for skill in known if alike[skill.task] >= max(_ALIKE, best - 0.05) and skill.successes]
    if query.valid_ns is not None:
        fits = [skill for skill in fits if query.valid_ns[0] <= skill.last_ns]
    if not fits:
        tried = ", ".join(sorted(names)) or "nothing"
        return Verdict(0.0, 0.5, f"has not, as far as I know; it has tried: {tried}")
    skill = max(fits, key=lambda one: (one.rate.low, one.last_ns))
    done = f"did {skill.task.replace('_', ' ')} {skill.successes} of {skill.n} times"
    return Verdict(skill.rate.rate, min(1.0, alike[skill.task] / 0.7), f"{done} ({skill.policy_version or 'unnamed'})")


def _is(node: SceneNode, meant: bool) -> Verdict:
    return Verdict(1.0 if meant else 0.0, 1.0, described(node.embodiment))
