"""The memory judges: what the instruction wants is a relation of the scene graph, which holds, does not, or is unseen.

No person, no image classifier and no simulator is asked. Every condition of a relation is a margin in metres between
boxes that were measured with a known noise; the verdict's probability is the chance that all margins are positive,
times the belief in the objects (Gaussian errors, taken as independent).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Hand, SceneNode, Verdict
from engram.learning.rewards.contract import Moment, RewardSource
from engram.learning.rewards.goal import ABOVE, AT, HELD, IN, ON, OPEN, PRESSED, TOUCHED, Goal, goal_of

SURE = 0.8
"""Confirmed from this probability on, denied up to one minus it."""
_MOMENTS = (PRESSED, TOUCHED, ABOVE)
"""What happens at an instant; the other relations last."""
_CARRIED = (IN, ON, AT, HELD)
"""Where the hand brings a thing. The memory believes that a thing moves with the hand, whether it is seen or not."""
ALIASES = {"block": "cube", "box": "bin", "target": "mark", "goal": "mark", "basket": "bin", "knob": "handle"}
"""Other words for what the detector names."""


@dataclass(frozen=True)
class MemoryVerdictConfig:
    """What each relation demands."""

    contact_m: float = 0.012
    """Largest gap between the bottom of what lies and the top of what carries it."""
    mark_m: float = 0.005
    """What lies at a mark may be so far beyond the mark's edge, measured to its middle."""
    hover_m: tuple[float, float] = (0.05, 0.11)
    """Height of the tool point over the top of a thing that it is above."""
    hover_aside_m: float = 0.03
    """Farthest to the side for it."""
    touch_m: float = 0.02
    """Distance of the tool point from the surface of a thing that it touches."""
    press_m: float = 0.006
    """Height of the tool point, which lies between the finger tips, over the resting top of a thing that it presses."""
    press_aside: float = 0.6
    """Share of a thing's half width up to which the tool point presses it: what moves is less wide than the whole."""
    sunk_m: float = 0.01
    """What lies in something is so far below its rim, or by half its height where that is less."""
    clearance_m: float = 0.015
    """The fingers are open by so much more than a thing is wide when they have let go of it."""
    at_hand_m: float = 0.05
    """A thing of this episode that is so near to the tool point, and hidden, is there: the hand hides it."""
    open_m: float = 0.10
    """How far a handle has come out of what it is of since the episode began when that is open."""
    beside_m: float = 0.10
    """Largest free distance between a handle and what it is of."""
    opening_m: float = 0.085
    """Of the fingers of an open hand; 0 = not known, and a hand has let go of what it is away from."""
    away_m: float = 0.06
    """A hand so far away from the surface of a thing does not hold it."""
    beside_it_m: float = 0.01
    """Largest free distance of a thing from another one that it was brought to."""
    whole: float = 0.9
    """A flat thing of which less than this share of the area is seen is partly hidden."""
    flat_m: float = 0.01
    """What is less high is a mark, on which a thing lies when it is at it."""
    unseen_m: float = 0.02
    """What is believed farther than this from where it was last seen was moved out of sight. A held thing has to have
    been seen so much higher than at first."""
    believed: float = 0.2
    """What the memory believes in by less is not there, whatever the hand hides."""
    alike: float = 1.6
    """Largest ratio of sizes, along any axis, of a thing that is seen under another name and the one it may be."""
    lift_m: float = 0.03
    """A held thing is this high over where it was when the episode began."""
    sigma_m: float = 0.002
    """Error of a place beside the noise that the memory states."""


@dataclass(frozen=True)
class Margin:
    """One condition of a relation: ``metres`` above 0 = it holds."""

    words: str
    """What is wrong while it does not hold."""
    metres: float
    sigma_m: float

    @property
    def probability(self) -> float:
        """Return the chance that it holds."""
        return 0.5 * (1.0 + math.erf(self.metres / self.sigma_m / math.sqrt(2.0)))


class MemoryVerdict(RewardSource):
    """Confirms or denies the relation that an instruction names, by the objects that the memory believes in.

    ``pressed``, ``touched`` and ``above`` happen at an instant: once confirmed they stay so for the episode, unless
    the thing is known from before it alone. A press is a change: the hand must have been seen elsewhere before. What
    lasts counts where both things were seen in this episode: what was believed before it says nothing of what was done.
    What a hand brings to its place has to be seen there.
    """

    name = "memory"

    def __init__(self, config: MemoryVerdictConfig | None = None) -> None:
        self.config = config or MemoryVerdictConfig()
        self.goal: Goal | None = None
        self.begin("")

    def begin(self, instruction: str) -> None:
        """Take the words of a new episode."""
        self._words = instruction
        self.goal = goal_of(instruction) if instruction else None
        self._first: dict[str, SceneNode] = {}  # as each object was when it was first seen in this episode
        self._last: dict[str, SceneNode] = {}  # as each was when it was last seen in it
        self._whole: dict[str, SceneNode] = {}  # as each flat one was when most of it was seen
        self._free: set[str] = set()  # what the hand was seen not to press
        self._handled: set[str] = set()  # what the hand came to
        self._far_m: float | None = None  # how far from done it was at first
        self._latched: Verdict | None = None
        self._began_ns: int | None = None

    def knows(self, instruction: str) -> bool:
        """Whether ``instruction`` names a relation."""
        return goal_of(instruction) is not None

    @property
    def things(self) -> tuple[str, ...]:
        """What to look for in the memory, in words."""
        goal = self.goal
        if goal is None:
            return ()
        return tuple(filter(None, (goal.thing, goal.target, "handle" if goal.relation == OPEN else "")))

    def shift(self, by_ns: int, now_ns: int) -> None:
        """Let the episode have begun ``by_ns`` later, if it began after ``now_ns``."""
        if self._began_ns is not None and self._began_ns > now_ns:
            self._began_ns += by_ns

    def judge(self, moment: Moment) -> Verdict:
        """Return whether the relation holds now."""
        if self._began_ns is None:
            self._began_ns = moment.stamp_ns
        if self._latched is not None:
            return self._told(moment, CONFIRMED, self._latched.probability, 1.0, self._latched.reason, ())
        goal = self.goal
        if goal is None:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, f"no relation says {self._words!r}", ())
        there = [node for node in moment.objects if node.layer == "object" and node.state != "absent"]
        for node in there:
            if self._seen(node):
                self._first.setdefault(node.id, node)
                if self._last.setdefault(node.id, node).observations != node.observations:
                    self._last[node.id] = node
                if self._flat(node) and _area(node) > _area(self._whole.get(node.id)):
                    self._whole[node.id] = node
            if moment.hand is not None and self._at_hand(node, moment.hand):
                self._handled.add(node.id)
        things = self._called(goal.thing, there, alike=goal.relation in _CARRIED)
        targets: Sequence[SceneNode | None] = self._targets(goal, there, things) if goal.target else [None]
        for name, found in ((goal.thing, things), (goal.target, targets)):
            if not found:
                return self._told(moment, CANNOT_TELL, math.nan, math.nan, f"the memory knows no {name!r} here", ())
        if moment.hand is None:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, "where the hand is is not known", ())
        pairs: Sequence[tuple[SceneNode, SceneNode | None]] = [
            (thing, target) for thing in things for target in targets if thing is not target
        ]
        if goal.relation == OPEN:
            pairs = self._handles(things, there)
            if not pairs:
                reason = f"the memory knows no handle of the {goal.thing}"
                return self._told(moment, CANNOT_TELL, math.nan, math.nan, reason, ())
        if not pairs:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, f"{goal.thing!r} is one with its target", ())
        tried = [(thing, target, self._margins(goal, thing, target, moment.hand)) for thing, target in pairs]
        return self._best(moment, goal, tried)

    def _best(
        self, moment: Moment, goal: Goal, tried: Sequence[tuple[SceneNode, SceneNode | None, list[Margin]]]
    ) -> Verdict:
        """Return the verdict of the pair of objects that comes nearest to the goal, first of those that were seen."""
        judged = []
        for thing, target, margins in tried:
            belief = self._belief(thing, moment.hand) * (1.0 if target is None else self._belief(target, moment.hand))
            holds = math.prod(m.probability for m in margins)
            if goal.relation == PRESSED and holds <= 1.0 - SURE:
                self._free.add(thing.id)
            elif goal.relation == PRESSED and thing.id not in self._free:
                holds = 0.0
                margins = [Margin(f"the hand was at the {thing.label} already", -self.config.at_hand_m, 1.0)]
            probability, unseen = belief * holds, self._unseen(goal, thing, target)
            judged.append((probability >= SURE and not unseen, probability, thing, target, margins, unseen))
        _, probability, thing, target, margins, unseen = max(judged, key=lambda one: one[:2])
        far_m = sum(max(0.0, -m.metres) for m in margins)
        self._far_m = max(far_m, self._far_m or 0.0)
        progress = 1.0 - far_m / self._far_m if self._far_m > 0.0 else 1.0
        evidence = tuple(n.last_evidence for n in (thing, target) if n is not None and n.last_evidence)
        if probability >= SURE and goal.relation not in _MOMENTS and unseen:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, unseen, evidence)
        if probability >= SURE:
            verdict = self._told(moment, CONFIRMED, probability, 1.0, str(goal), evidence)
            if goal.relation in _MOMENTS and not unseen:
                self._latched = verdict
            return verdict
        worst = min(margins, key=lambda m: m.probability)
        outcome = DENIED if probability <= 1.0 - SURE else CANNOT_TELL
        return self._told(moment, outcome, probability, min(progress, 0.99), worst.words, evidence)

    def _seen(self, node: SceneNode) -> bool:
        """Whether ``node`` was seen in this episode."""
        return self._began_ns is not None and node.last_seen_ns >= self._began_ns

    def _unseen(self, goal: Goal, *things: SceneNode | None) -> str:
        """Say which of ``things`` was not seen as the goal's relation demands; empty: all were."""
        for node in (one for one in things if one is not None):
            if not self._seen(node):
                return f"the {node.label} has not been seen since the episode began"
            if goal.relation in _CARRIED and not self._seen_moved(node, held=goal.relation == HELD):
                return f"the {node.label} has not been seen since it was moved"
        return ""

    def _seen_moved(self, node: SceneNode, *, held: bool) -> bool:
        """Whether ``node`` was last seen where it is believed to be now; one that is ``held``, lifted."""
        last = self._uncovered(self._last[node.id]).pose.position
        if held:
            return bool(last[2] - self._first[node.id].pose.position[2] > self.config.unseen_m)
        return float(np.linalg.norm(node.pose.position - last)) <= self.config.unseen_m

    def _belief(self, node: SceneNode, hand: Hand | None) -> float:
        hidden = hand is not None and self._at_hand(node, hand) and node.state in ("visible", "occluded")
        return 1.0 if hidden and self._seen(node) and node.belief >= self.config.believed else node.belief

    def _at_hand(self, node: SceneNode, hand: Hand) -> bool:
        return float(np.linalg.norm(hand.pose.position - node.pose.position)) <= self.config.at_hand_m

    def _told(
        self, moment: Moment, outcome: str, probability: float, progress: float, reason: str, evidence: tuple[str, ...]
    ) -> Verdict:
        return Verdict(moment.stamp_ns, moment.episode, self.name, outcome, probability, progress, reason, evidence)

    def _targets(self, goal: Goal, there: Sequence[SceneNode], things: Sequence[SceneNode]) -> list[SceneNode]:
        """Return what the goal's target names, flat ones whole; also one that went away as one of ``things`` hid it."""
        gone = [node for node in self._gone(there) if self._flat(node)]
        hidden = [node for node in map(self._uncovered, gone) if any(_hides(thing, node) for thing in things)]
        return [self._uncovered(node) for node in self._called(goal.target, there) or called(goal.target, hidden)]

    def _uncovered(self, node: SceneNode) -> SceneNode:
        """Return ``node`` as it was seen whole, if it is flat, seems smaller now and lies about there: what stands on a
        mark hides a part of it, and the middle of the rest is another one."""
        whole = self._whole.get(node.id)
        if whole is None or _area(node) >= self.config.whole * _area(whole):
            return node
        moved = float(np.linalg.norm(node.pose.position - whole.pose.position))
        return node if moved > float(whole.size[:2].min()) / 2 else replace(node, pose=whole.pose, size=whole.size)

    def _flat(self, node: SceneNode) -> bool:
        return bool(2 * _half(node)[2] < self.config.flat_m)

    def _gone(self, there: Sequence[SceneNode]) -> list[SceneNode]:
        """Return what was seen in this episode and is not ``there`` any more, as it was last seen."""
        ids = {node.id for node in there}
        return [node for node in self._last.values() if node.id not in ids]

    def _called(self, description: str, there: Sequence[SceneNode], *, alike: bool = False) -> list[SceneNode]:
        """Return what ``description`` names: by the labels of now, else by those at first, before a hand hid them.

        A thing that is carried is often taken for another kind. With ``alike``, where what is named is out of sight
        since the hand came to it, what appeared since counts too, if it has the same adjectives and is about as large.
        """
        first = [replace(node, label=self._first[node.id].label) if node.id in self._first else node for node in there]
        named = {node.id for node in (called(description, there) or called(description, first))}
        found = [node for node in there if node.id in named]
        adjectives = set(description.casefold().split()[:-1])
        known = found or called(description, self._gone(there))
        if not (alike and known and adjectives) or any(node.state == "visible" for node in found):
            return found
        found_here = [node for node in known if node.id in self._handled]
        lost_ns = max(node.last_seen_ns for node in known)
        return found + [
            node
            for node in there
            if node.id not in named
            and node.state == "visible"
            and node.first_seen_ns > lost_ns
            and adjectives <= set(node.label.casefold().split())
            and any(self._as_large(node, other) for other in found_here)
        ]

    def _as_large(self, first: SceneNode, second: SceneNode) -> bool:
        ratio = np.sort(first.size) / np.maximum(np.sort(second.size), 1e-6)
        return bool((ratio <= self.config.alike).all() and (ratio >= 1.0 / self.config.alike).all())

    def _handles(
        self, drawers: Sequence[SceneNode], there: Sequence[SceneNode]
    ) -> list[tuple[SceneNode, SceneNode | None]]:
        """Return each handle with the one of ``drawers`` that it is of: the nearest thing of that kind, at first."""
        kinds = {word for drawer in drawers for word in drawer.label.casefold().split()[-1:]}
        alike = [n for n in there if n.id in self._first and kinds & set(n.label.casefold().split()[-1:])]
        found: list[tuple[SceneNode, SceneNode | None]] = []
        for handle in (n for n in there if n.id in self._first and n.label.casefold().endswith("handle")):
            gaps = [(_gap(self._first[handle.id], self._first[n.id]), n) for n in alike if n is not handle]
            gap, nearest = min(gaps, key=lambda one: one[0], default=(math.inf, handle))
            if gap <= self.config.beside_m and any(nearest is drawer for drawer in drawers):
                found.append((handle, nearest))
        return found

    def _margins(self, goal: Goal, thing: SceneNode, target: SceneNode | None, hand: Hand) -> list[Margin]:
        """Return the conditions of the goal's relation for these objects."""
        if target is None:
            alone = {ABOVE: self._above, TOUCHED: self._touched, PRESSED: self._pressed}
            return alone.get(goal.relation, self._held)(thing, hand)
        return {ON: self._on, IN: self._in, AT: self._at, OPEN: self._open}[goal.relation](thing, target, hand)

    def _on(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        return [
            self._over(thing, target),
            self._margin(
                f"the {thing.label} does not lie on the {target.label}",
                self.config.contact_m - abs(_low(thing) - _high(target)),
                thing,
                target,
            ),
            self._let_go(thing, hand),
        ]

    def _in(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        sunk = min(self.config.sunk_m, _half(target)[2])
        above = _high(target) - sunk - _low(thing)
        below = _low(thing) - (_low(target) - self.config.contact_m)
        return [
            self._over(thing, target),
            self._margin(f"the {thing.label} is over the {target.label}", above, thing, target),
            self._margin(f"the {thing.label} is under the {target.label}", below, thing, target),
            self._let_go(thing, hand),
        ]

    def _at(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        """At a mark: on it, its middle within the ellipse of its sides. At a thing: on it, in it or beside it."""
        config = self.config
        half, away = target.size / 2 + config.mark_m, _in_axes(thing.pose.position, target)
        if self._flat(target):
            left = _within_ellipse(away[:2], half[:2])
            air = config.contact_m - abs(_low(thing) - _high(target))
        else:
            left = config.beside_it_m - _gap(thing, target)
            air = _high(target) + config.contact_m - _low(thing)
        return [
            self._margin(f"the {thing.label} is not at the {target.label} yet", left, thing, target),
            self._margin(f"the {thing.label} is in the air", air, thing, target),
            self._let_go(thing, hand, pushes=True),
        ]

    def _above(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        low, high = self.config.hover_m
        over = np.append(thing.pose.position[:2], _high(thing) + (low + high) / 2)
        away = float(np.linalg.norm(hand.pose.position - over))
        return [self._margin(f"the hand is not above the {thing.label}", self.config.hover_aside_m - away, thing)]

    def _touched(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        left = self.config.touch_m - _distance(hand.pose.position, thing)
        return [self._margin(f"the hand is not at the {thing.label}", left, thing)]

    def _pressed(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        first, tool = self._first.get(thing.id, thing), hand.pose.position
        aside = np.abs(_in_axes(tool, thing)[:2]) - self.config.press_aside * thing.size[:2] / 2
        over = float(tool[2]) - _high(first)
        return [
            self._margin(f"the hand is beside the {thing.label}", -float(aside.max()), thing),
            self._margin(f"the hand is over the {thing.label}", self.config.press_m - over, thing),
            self._margin(f"the hand is under the {thing.label}", over + 2 * float(_half(first)[2]), thing),
        ]

    def _open(self, handle: SceneNode, drawer: SceneNode, hand: Hand) -> list[Margin]:
        """The handle has come out of what it is of: the face behind it stayed, though the whole may look longer now."""
        way = (handle.pose.position - self._first[handle.id].pose.position) * (1.0, 1.0, 0.0)  # it slides or swings
        came = float(np.linalg.norm(way))
        along = way / came if came > 0.0 else way
        back = [float(along @ n.pose.position - np.abs(along) @ _half(n)) for n in (drawer, self._first[drawer.id])]
        left = came - abs(back[0] - back[1]) - self.config.open_m
        return [self._margin(f"the {handle.label} has come {came:.2f} m", left, handle)]

    def _held(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        config, first = self.config, self._first.get(thing.id, thing)
        lifted = float(thing.pose.position[2] - first.pose.position[2])
        left = config.touch_m - _distance(hand.pose.position, thing)
        margins = [
            self._margin(f"the hand is not at the {thing.label}", left, thing),
            self._margin(f"the {thing.label} is not lifted", lifted - config.lift_m, thing),
        ]
        if config.opening_m > 0.0:
            opening = config.opening_m * (1.0 - hand.closed)
            wide = -self._fingers(thing, hand)
            narrow = opening - float(thing.size.min()) + config.clearance_m
            margins += [
                Margin(f"the hand is open around the {thing.label}", wide, config.sigma_m),
                Margin(f"nothing as wide as the {thing.label} is in the hand", narrow, config.sigma_m),
            ]
        return margins

    def _over(self, thing: SceneNode, target: SceneNode) -> Margin:
        """The middle of ``thing`` is within the edges of ``target``, as it is turned.

        A flat one may be round: then its corners are none of it, which nobody can tell.
        """
        offset = np.append((thing.pose.position - target.pose.position)[:2], 0.0)
        axes = _axes(target)
        aside = np.abs(axes.inv().apply(offset)) - target.size / 2
        aside = aside[np.argsort(np.abs(axes.as_matrix()[2]))[:2]]  # along the two axes that lie flattest
        left = -float(aside.max())
        if self._flat(target):
            left = min(left, max(_within_ellipse(axes.inv().apply(offset)[:2], target.size[:2] / 2), 0.0))
        return self._margin(f"the {thing.label} is beside the {target.label}", left, thing, target)

    def _fingers(self, thing: SceneNode, hand: Hand) -> float:
        """Return how much farther than a hold on ``thing`` needs the fingers are open [m]; < 0: they may hold it."""
        fits = [float(width) for width in thing.size if width <= self.config.opening_m]
        if not fits:
            return self.config.clearance_m  # too wide to be held, at any side
        return self.config.opening_m * (1.0 - hand.closed) - max(fits) - self.config.clearance_m

    def _let_go(self, thing: SceneNode, hand: Hand, *, pushes: bool = False) -> Margin:
        """The hand is away, or open wider than the thing; one that ``pushes`` is beside it, not around it."""
        config = self.config
        surface = _distance(hand.pose.position, thing)
        away = surface - config.away_m
        opened = self._fingers(thing, hand) if config.opening_m > 0.0 else -config.away_m
        beside = surface - config.mark_m if pushes else -config.away_m
        return Margin(f"the hand holds the {thing.label}", max(away, opened, beside), config.sigma_m)

    def _margin(self, words: str, metres: float, thing: SceneNode, target: SceneNode | None = None) -> Margin:
        variance = self.config.sigma_m**2 + sum(
            max(0.0, float(np.trace(node.position_covariance))) / 3 for node in (thing, target) if node is not None
        )
        return Margin(words, metres, math.sqrt(variance))


def called(description: str, nodes: Iterable[SceneNode]) -> list[SceneNode]:
    """Return the nodes that ``description`` names: by its words, else by other words for the same.

    What is called exactly so goes before what has more words before the same last one: "box" names a cereal box only
    where nothing is called box, and "orange" never names an orange cube.
    """
    own = [(node, node.label.casefold().split()) for node in nodes]
    wanted = description.casefold().split()
    others = [(node, _in_our_words(words)) for node, words in own]
    for words, labels in ((wanted, own), (_in_our_words(wanted), others)):
        named = [(node, label) for node, label in labels if label[-1:] == words[-1:] and set(words) <= set(label)]
        if named and words:
            return [node for node, label in named if label == words] or [node for node, _ in named]
    return []


def _in_our_words(words: Iterable[str]) -> list[str]:
    return [ALIASES.get(word, word) for word in words]


def _axes(node: SceneNode) -> Rotation:
    return Rotation.from_quat(node.pose.quaternion, scalar_first=True)


def _half(node: SceneNode) -> np.ndarray:
    """Return the half extents (3,) m of the upright box around ``node``, as it is turned."""
    return np.abs(_axes(node).as_matrix()) @ node.size / 2


def _area(node: SceneNode | None) -> float:
    """Return the area of ``node`` from above, as it lies [m2]; 0 of none."""
    return 0.0 if node is None else float(node.size[0] * node.size[1])


def _within_ellipse(place: np.ndarray, half: np.ndarray) -> float:
    """Return about how far ``place`` (2,) is inside the ellipse about 0 with these half axes (2,) [m]; < 0: outside."""
    return float((1.0 - np.linalg.norm(place / half)) * half.min())


def _hides(node: SceneNode, flat: SceneNode) -> bool:
    """Tell whether ``node`` stands over a part of ``flat``."""
    apart = np.abs(node.pose.position - flat.pose.position) - _half(node) - _half(flat)
    return bool((apart[:2] <= 0.0).all())


def _low(node: SceneNode) -> float:
    return float(node.pose.position[2] - _half(node)[2])


def _high(node: SceneNode) -> float:
    return float(node.pose.position[2] + _half(node)[2])


def _in_axes(place: np.ndarray, node: SceneNode) -> np.ndarray:
    """Return ``place`` (3,) m as seen from the middle of ``node``, along its axes."""
    return _axes(node).inv().apply(place - node.pose.position)


def _distance(place: np.ndarray, node: SceneNode) -> float:
    """Return the distance of ``place`` from the surface of ``node`` [m]; 0 inside."""
    return float(np.linalg.norm(np.maximum(np.abs(_in_axes(place, node)) - node.size / 2, 0.0)))


def _gap(first: SceneNode, second: SceneNode) -> float:
    """Return the free distance between the upright boxes around two things [m]."""
    apart = np.abs(first.pose.position - second.pose.position) - _half(first) - _half(second)
    return float(np.linalg.norm(np.maximum(apart, 0.0)))
