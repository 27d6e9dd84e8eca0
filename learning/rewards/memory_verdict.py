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

from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED, Hand, SceneNode, Verdict
from engram.learning.rewards.contract import Moment, RewardSource
from engram.learning.rewards.goal import ABOVE, AT, IN, ON, OPEN, PRESSED, TOUCHED, Goal, goal_of

SURE = 0.8
"""Confirmed from this probability on, denied up to one minus it."""
_MOMENTS = (PRESSED, TOUCHED, ABOVE)
"""What happens at an instant; the other relations last."""
ALIASES = {"block": "cube", "box": "bin", "target": "mark", "goal": "mark", "basket": "bin", "knob": "handle"}
"""Other words for what the detector names."""


@dataclass(frozen=True)
class MemoryVerdictConfig:
    """What each relation demands."""

    contact_m: float = 0.012
    """Largest gap between the bottom of what lies and the top of what carries it."""
    mark_m: float = 0.005
    """What lies at a mark may be so far beyond the mark's edge, measured to its middle."""
    hover_m: tuple[float, float] = (0.07, 0.13)
    """Height of the tool point over the middle of a thing that it is above."""
    hover_aside_m: float = 0.03
    """Farthest to the side for it."""
    touch_m: float = 0.02
    """Distance of the tool point from the surface of a thing that it touches."""
    press_m: float = 0.006
    """Height of the tool point, which lies between the finger tips, over the resting top of a thing that it presses."""
    press_aside: float = 0.6
    """Share of a thing's half width up to which the tool point presses it: what moves is less wide than the whole."""
    at_hand_m: float = 0.05
    """A thing so near to the tool point is there, though the hand hides it from the camera."""
    open_m: float = 0.10
    """How far a handle has come since the episode began when its drawer is open."""
    released: float = 0.3
    """A hand that is closed by less than this has let go; so has one that is farther away than ``away_m``."""
    away_m: float = 0.08
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

    ``pressed``, ``touched`` and ``above`` happen at an instant: once confirmed they stay so for the episode.
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
        self._first: dict[str, SceneNode] = {}  # as each object was when the episode began, or first seen
        self._far_m: float | None = None  # how far from done it was at first
        self._latched: Verdict | None = None
        self._began_ns: int | None = None

    @property
    def things(self) -> tuple[str, ...]:
        """What to look for in the memory, in words."""
        goal = self.goal
        if goal is None:
            return ()
        return tuple(filter(None, (goal.thing, goal.target, "handle" if goal.relation == OPEN else "")))

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
            self._first.setdefault(node.id, node)
        things = self._called(goal.thing, there)
        if goal.relation == OPEN:
            things = self._handles(goal, there)
        targets = self._called(goal.target, there) if goal.target else [None]
        for name, found in ((goal.thing, things), (goal.target, targets)):
            if not found:
                return self._told(moment, CANNOT_TELL, math.nan, math.nan, f"the memory knows no {name!r} here", ())
        if moment.hand is None:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, "where the hand is is not known", ())
        pairs = [(thing, target) for thing in things for target in targets if thing is not target]
        if not pairs:
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, f"{goal.thing!r} is one with its target", ())
        tried = [(thing, target, self._margins(goal, thing, target, moment.hand)) for thing, target in pairs]
        return self._best(moment, goal, tried)

    def _best(
        self, moment: Moment, goal: Goal, tried: Sequence[tuple[SceneNode, SceneNode | None, list[Margin]]]
    ) -> Verdict:
        """Return the verdict of the pair of objects that comes nearest to the goal."""
        judged = []
        for thing, target, margins in tried:
            belief = self._belief(thing, moment.hand) * (1.0 if target is None else self._belief(target, moment.hand))
            judged.append((belief * math.prod(m.probability for m in margins), thing, target, margins))
        probability, thing, target, margins = max(judged, key=lambda one: one[0])
        far_m = sum(max(0.0, -m.metres) for m in margins)
        self._far_m = max(far_m, self._far_m or 0.0)
        progress = 1.0 - far_m / self._far_m if self._far_m > 0.0 else 1.0
        evidence = tuple(n.last_evidence for n in (thing, target) if n is not None and n.last_evidence)
        if probability >= SURE and goal.relation not in _MOMENTS and not self._seen(thing):
            reason = f"the {thing.label} has not been seen since the episode began"
            return self._told(moment, CANNOT_TELL, math.nan, math.nan, reason, evidence)
        if probability >= SURE:
            verdict = self._told(moment, CONFIRMED, probability, 1.0, str(goal), evidence)
            if goal.relation in _MOMENTS:
                self._latched = verdict
            return verdict
        worst = min(margins, key=lambda m: m.probability)
        outcome = DENIED if probability <= 1.0 - SURE else CANNOT_TELL
        return self._told(moment, outcome, probability, min(progress, 0.99), worst.words, evidence)

    def _seen(self, node: SceneNode) -> bool:
        """Whether ``node`` was seen in this episode: what was believed before it says nothing of what was done."""
        return self._began_ns is not None and node.last_seen_ns >= self._began_ns

    def _belief(self, node: SceneNode, hand: Hand | None) -> float:
        if hand is not None and np.linalg.norm(hand.pose.position - node.pose.position) <= self.config.at_hand_m:
            return 1.0
        return node.belief

    def _told(
        self, moment: Moment, outcome: str, probability: float, progress: float, reason: str, evidence: tuple[str, ...]
    ) -> Verdict:
        return Verdict(moment.stamp_ns, moment.episode, self.name, outcome, probability, progress, reason, evidence)

    def _called(self, description: str, there: Sequence[SceneNode]) -> list[SceneNode]:
        """Return what ``description`` names: by the labels of now, else by those at first, before a hand hid them."""
        first = [replace(node, label=self._first[node.id].label) for node in there]
        named = {node.id for node in (called(description, there) or called(description, first))}
        return [node for node in there if node.id in named]

    def _handles(self, goal: Goal, there: Sequence[SceneNode]) -> list[SceneNode]:
        """Return the handles of what shall be opened: those that began beside it; or itself, where it has none."""
        drawers = self._called(goal.thing, there)
        handles = [node for node in there if node.label.split()[-1] == "handle"]
        beside = [
            handle
            for handle in handles
            if any(_gap(self._first[handle.id], self._first[drawer.id]) < 0.10 for drawer in drawers)
        ]
        return beside or (drawers if not handles else [])

    def _margins(self, goal: Goal, thing: SceneNode, target: SceneNode | None, hand: Hand) -> list[Margin]:
        """Return the conditions of the goal's relation for these objects."""
        if target is None:
            alone = {ABOVE: self._above, TOUCHED: self._touched, PRESSED: self._pressed, OPEN: self._open}
            return alone.get(goal.relation, self._held)(thing, hand)
        return {ON: self._on, IN: self._in, AT: self._at}[goal.relation](thing, target, hand)

    def _on(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        aside = np.abs(thing.pose.position[:2] - target.pose.position[:2]) - target.size[:2] / 2
        gap = abs((thing.pose.position[2] - thing.size[2] / 2) - (target.pose.position[2] + target.size[2] / 2))
        return [
            self._margin(f"the {thing.label} is beside the {target.label}", -float(aside.max()), thing, target),
            self._margin(
                f"the {thing.label} does not lie on the {target.label}", self.config.contact_m - gap, thing, target
            ),
            self._let_go(thing, hand),
        ]

    def _in(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        aside = np.abs(thing.pose.position[:2] - target.pose.position[:2]) - target.size[:2] / 2
        over = thing.pose.position[2] - thing.size[2] / 2 - (target.pose.position[2] + target.size[2] / 2)
        return [
            self._margin(f"the {thing.label} is beside the {target.label}", -float(aside.max()), thing, target),
            self._margin(f"the {thing.label} is over the {target.label}", -float(over), thing, target),
            self._let_go(thing, hand),
        ]

    def _at(self, thing: SceneNode, target: SceneNode, hand: Hand) -> list[Margin]:
        aside = float(np.linalg.norm(thing.pose.position[:2] - target.pose.position[:2]))
        within = float(target.size[:2].mean()) / 2 + self.config.mark_m
        gap = abs((thing.pose.position[2] - thing.size[2] / 2) - (target.pose.position[2] + target.size[2] / 2))
        return [
            self._margin(f"the {thing.label} is not at the {target.label} yet", within - aside, thing, target),
            self._margin(f"the {thing.label} is in the air", self.config.contact_m - gap, thing, target),
        ]

    def _above(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        offset, config = hand.pose.position - thing.pose.position, self.config
        low, high = config.hover_m
        middle = (low + high) / 2
        away = float(np.linalg.norm(offset - np.array([0.0, 0.0, middle])))
        return [self._margin(f"the hand is not above the {thing.label}", config.hover_aside_m - away, thing)]

    def _touched(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        away = np.maximum(np.abs(hand.pose.position - thing.pose.position) - thing.size / 2, 0.0)
        left = self.config.touch_m - float(np.linalg.norm(away))
        return [self._margin(f"the hand is not at the {thing.label}", left, thing)]

    def _pressed(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        first, tool = self._first[thing.id], hand.pose.position
        aside = np.abs(tool[:2] - first.pose.position[:2]) - self.config.press_aside * first.size[:2] / 2
        over = float(tool[2] - (first.pose.position[2] + first.size[2] / 2))
        return [
            self._margin(f"the hand is beside the {thing.label}", -float(aside.max()), thing),
            self._margin(f"the hand is over the {thing.label}", self.config.press_m - over, thing),
        ]

    def _open(self, handle: SceneNode, hand: Hand) -> list[Margin]:
        came = float(np.linalg.norm(handle.pose.position - self._first[handle.id].pose.position))
        left = came - self.config.open_m
        return [self._margin(f"the {handle.label} has come {came:.2f} m", left, handle)]

    def _held(self, thing: SceneNode, hand: Hand) -> list[Margin]:
        away = float(np.linalg.norm(hand.pose.position - thing.pose.position))
        lifted = float(thing.pose.position[2] - self._first[thing.id].pose.position[2])
        return [
            self._margin(f"the hand is not at the {thing.label}", self.config.away_m / 2 - away, thing),
            self._margin(f"the {thing.label} is not lifted", lifted - self.config.lift_m, thing),
        ]

    def _let_go(self, thing: SceneNode, hand: Hand) -> Margin:
        away = float(np.linalg.norm(hand.pose.position - thing.pose.position)) - self.config.away_m
        opened = 0.05 * (self.config.released - hand.closed) / self.config.released  # as a distance: half a finger
        return Margin(f"the hand holds the {thing.label}", max(away, opened), self.config.sigma_m)

    def _margin(self, words: str, metres: float, thing: SceneNode, target: SceneNode | None = None) -> Margin:
        variance = self.config.sigma_m**2 + sum(
            float(np.trace(node.position_covariance)) / 3 for node in (thing, target) if node is not None
        )
        return Margin(words, metres, math.sqrt(variance))


def called(description: str, nodes: Iterable[SceneNode]) -> list[SceneNode]:
    """Return the nodes that ``description`` names: by its words, else by other words for the same, else by its
    adjectives, which a thing keeps when the detector takes it for another kind."""
    wanted = description.casefold().split()
    if not wanted:
        return []
    labels = [(node, node.label.casefold().split()) for node in nodes]
    exact = [node for node, words in labels if set(wanted) <= set(words)]
    if not exact:
        same = {ALIASES.get(word, word) for word in wanted}
        exact = [node for node, words in labels if same <= {ALIASES.get(word, word) for word in words}]
    if len(wanted) > 1 and not any(node.state == "visible" for node in exact):
        exact += [
            n for n, words in labels if set(wanted[:-1]) <= set(words) and n.state == "visible" and n not in exact
        ]
    return exact


def _gap(first: SceneNode, second: SceneNode) -> float:
    """Return the free distance between two boxes [m]."""
    apart = np.abs(first.pose.position - second.pose.position) - (first.size + second.size) / 2
    return float(np.linalg.norm(np.maximum(apart, 0.0)))
