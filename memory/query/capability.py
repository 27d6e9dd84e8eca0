"""Which robot can: answers from embodiment profiles, from where everybody and everything is, and from skills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import MemoryAnswer
from engram.core.errors import UnknownNameError
from engram.core.questions import Capability, Selection
from engram.core.types import SceneNode, Skill
from engram.memory.graph.embodiments import described, words
from engram.memory.query.assemble import assembled
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import THING
from engram.memory.query.hits import Hits
from engram.memory.query.names import anchors, called
from engram.memory.query.registry import register
from engram.memory.query.task_words import contradicts
from engram.memory.storage.fact_columns import FOREVER

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


def answer_capability(question: Capability, context: QueryContext) -> MemoryAnswer:
    """Name the robots that can, best first, with the reasons; without any, say why not.

    reach, grasp: ``target``, where it is (or was). hold: it is in their hand. have: the profile says ``text``. do: they
    succeeded in a task like ``text``. be: every agent called ``text``.

    Raises:
        UnknownNameError: nothing is known like the target.
    """
    nodes = _agents(question, context)
    verdicts = _verdicts(question, context, nodes)
    order = sorted(range(len(nodes)), key=lambda i: (-verdicts[i].score, nodes[i].id))
    best = [i for i in order if verdicts[i].score > 0][: question.limit]
    reasons = "; ".join(f"{nodes[i].label} {verdicts[i].reason}" for i in best or order[: question.limit])
    hits = Hits(
        tuple(nodes[i] for i in best), tuple(verdicts[i].score for i in best), tuple(verdicts[i].sure for i in best),
        (None,) * len(best),
    )  # fmt: skip
    text = f"{reasons}." if best else f"No robot that I know: {reasons}." if reasons else "I know of no robot."
    confidence = max(hits.confidence, default=0.5 if reasons else 0.0)
    return assembled(question, context, hits, text, confidence)


def _verdicts(question: Capability, context: QueryContext, nodes: Sequence[SceneNode]) -> list[Verdict]:
    if question.ability in ("reach", "grasp"):
        thing = _thing(question, context)
        return [_reaches(node, thing, grasp=question.ability == "grasp") for node in nodes]
    if question.ability == "hold":
        return [_holds(node, question, context) for node in nodes]
    if question.ability == "have":
        return [_has(node, question.text) for node in nodes]
    if question.ability == "do":
        return [_does(node, question, context) for node in nodes]
    tracker = context.tracker
    meant = {tracker.columns.about(row).id for row in called(tracker, question.text)}
    return [_is(node, not question.text or node.id in meant) for node in nodes]


def _agents(question: Capability, context: QueryContext) -> list[SceneNode]:
    """Return every agent, where and what it was at the time of the question."""
    tracker = context.tracker
    nodes = tracker.columns.nodes(sorted(tracker.columns.agents))
    if not context.is_past:
        return nodes
    history, then = tracker.history, []
    believed = FOREVER - 1 if context.believed_ns is None else context.believed_ns
    for node in nodes:
        facts = history.facts(history.select(context.valid_ns, context.believed_ns, [node.id]))
        if facts:
            fact = max(facts, key=lambda one: (one.valid_from, one.believed_from))
            profile = tracker.embodiments.at(node.id, context.about_ns(question), believed)
            then.append(replace(node, pose=replace(node.pose, position=fact.place), embodiment=profile))
    return then


def _thing(question: Capability, context: QueryContext) -> Thing:
    """Return what the target means: an object, then or now, else a known place."""
    wanted = Selection(
        question.target, question.place, question.radius_m, 1, valid_ns=context.valid_ns,
        believed_ns=context.believed_ns, now_ns=question.now_ns,
    )  # fmt: skip
    hits = context.search(wanted)
    if hits.nodes and hits.nodes[0].state != "absent":
        node = hits.nodes[0]
        label = node.label if hits.is_believed(0) else f"{node.label} that I may have seen"
        return Thing(label, node.pose.position, node.size, hits.confidence[0])
    tracker = context.tracker
    known = [node for node in map(tracker.scene.node, anchors(tracker, question.target)) if node.state != "absent"]
    if not known:
        raise UnknownNameError(f"{question.target!r} is gone: nobody can reach it")
    node = known[0]
    return Thing(node.label, node.pose.position, node.size, node.belief if node.layer == "object" else 1.0)


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


def _holds(node: SceneNode, question: Capability, context: QueryContext) -> Verdict:
    """Whether a thing called ``question.target`` is, or was then, held by ``node``; empty = anything."""
    history, past = context.tracker.history, context.is_past
    rows = history.of_target(history.select(context.valid_ns, context.believed_ns), [node.id])
    facts = [fact for fact in history.facts(rows) if fact.relation == "held_by"]
    wanted = set(question.target.split())
    held = [fact.label for fact in facts if fact.node_id == question.target or wanted <= set(fact.label.split())]
    if not held:
        return Verdict(0.0, 0.5, f"{'did' if past else 'does'} not hold {question.target or 'anything'}")
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


def _does(node: SceneNode, question: Capability, context: QueryContext) -> Verdict:
    """Whether it ever succeeded in a task like ``question.text``, in the asked time if there is one."""
    known: Sequence[Skill] = node.embodiment.skills if node.embodiment is not None else ()
    names, embed = {skill.task for skill in known if not contradicts(question.text, skill.task)}, context.embed
    vector = embed(question.text)
    alike = {name: float(embed(name.replace("_", " ")) @ vector) for name in names}
    best = max(alike.values(), default=0.0)
    least = max(_ALIKE, best - 0.05)
    fits = [skill for skill in known if alike.get(skill.task, 0.0) >= least and skill.successes]
    if context.valid_ns is not None:
        fits = [skill for skill in fits if context.valid_ns[0] <= skill.last_ns]
    if not fits:
        tried = ", ".join(sorted({skill.task for skill in known})) or "nothing"
        return Verdict(0.0, 0.5, f"has not, as far as I know; it has tried: {tried}")
    skill = max(fits, key=lambda one: (one.rate.low, one.last_ns))
    done = f"did {skill.task.replace('_', ' ')} {skill.successes} of {skill.n} times"
    return Verdict(skill.rate.rate, min(1.0, alike[skill.task] / 0.7), f"{done} ({skill.policy_version or 'unnamed'})")


def _is(node: SceneNode, meant: bool) -> Verdict:
    return Verdict(1.0 if meant else 0.0, 1.0, described(node.embodiment))


_CAN = r"^(?:(?:can|could|is able to) )?"
_ABILITIES = (
    (rf"{_CAN}reach(?:es)? {THING}(?P<target>.+)$", "reach"),
    (rf"{_CAN}(?:grasp|grip|lift|carry|take|pick up|fetch)s? {THING}(?P<target>.+)$", "grasp"),
    (rf"^(?:(?:is|was|were) )?(?:holding|holds|held|hold)(?: {THING}(?P<target>.+))?$", "hold"),
    (r"^(?:has|have|had) (?:(?:a|an|the|any) |(?!.*ed\b))(?P<text>.+)$", "have"),
    (r"^what can (?P<text>\S+) do$", "be"),
    (r"^(?:(?:is|are|were) there|do you know|did you know)?$", "be"),
    (r"^(?:(?:can|could|has|have|did|does|is able to|knows how to) )?(?P<text>.+)$", "do"),
)
"""What is asked of robots, the first that fits."""
_ABOUT_ROBOTS = re.compile(r"^(?:which|what|are there any|do you know any) robots?\b|^who\b|^what can \S+ do\b")


def _rule(words: str) -> Capability | None:
    if _ABOUT_ROBOTS.match(words) is None:
        return None
    said = re.sub(r"^(?:(?:which|what|are there any|do you know any) robots?|who)\b\s*", "", words).strip()
    for pattern, ability in _ABILITIES:
        match = re.match(pattern, said)
        if match is not None:
            parts = {name: part.strip() for name, part in match.groupdict().items() if part}
            return Capability(ability, parts.get("text", ""), parts.get("target", ""))
    return Capability("be")


register(Capability, answer_capability, _rule)
