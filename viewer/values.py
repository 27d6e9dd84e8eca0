"""What the page is told to show, and what a visitor can ask for. Frozen values, no ROS and no viser in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest

import numpy as np

from engram.core.errors import unknown_name
from engram.core.types import SceneEdge, SceneNode

MOST_SHOWN = 300
"""Objects that the page shows at most, and rooms, and robots: a browser draws no more of them smoothly."""
MOST_RELATIONS = 3000
KINDS = (("object", "objects"), ("building", "room", "place"), ("agent",))
"""Layers of the objects, the rooms and the robots."""
LEVELS = ("ok", "warn", "error", "stale")


@dataclass(frozen=True)
class PageActions:
    """What a visitor can ask for. Called from viser's threads."""

    instruct: Callable[[str], None]
    """Do what the words say (action execute_task)."""
    ask: Callable[[str], None]
    """Ask the memory a question (service memory/query)."""
    tell: Callable[[str], None]
    """Say that the instruction ``succeeded`` or ``failed``, or ``cancel`` it (services execute_task/succeeded, ...)."""
    stop: Callable[[], None]
    """Stop the robot until it is released (service safety/stop)."""
    release: Callable[[], None]
    """Release the stop (service safety/reset)."""
    show_past: Callable[[int | None], None]
    """Show the graph as it was at a stamp [ns]; None: live (service memory/get_graph)."""
    choose_policy: Callable[[str], None]
    """Let another policy drive from the next episode on (parameter ``policy`` of the policy node)."""


@dataclass(frozen=True)
class NodeState:
    """The condition of one node: a line of the node table."""

    name: str
    level: str  # of LEVELS
    message: str
    values: Mapping[str, str] = field(default_factory=dict)  # what its diagnostics say beside the message

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise unknown_name("level", self.level, LEVELS)


@dataclass(frozen=True)
class PolicyState:
    """The policy that drives, and what it remembers of its episode."""

    name: str = ""
    version: str = ""  # of the weights
    remembered: str = ""
    available: tuple[str, ...] = ()  # names that may drive instead
    mistaken: str = ""  # in simulation: goals taken for reached that the simulator saw fail
    corrected_by: str = ""  # the correction of all motions that drives in this episode


@dataclass(frozen=True)
class Outcome:
    """An episode that ended."""

    episode: int
    instruction: str
    state: str  # succeeded, failed
    steps: int
    policy: str  # the policy that drove


@dataclass(frozen=True)
class Candidate:
    """Weights that the learner or an operator announced on policy/candidate or policy/manifest."""

    version: str
    parent: str  # version that it was trained from; "" = the first
    stage: str  # one of engram.core.types.STAGES
    metrics: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskFound:
    """What the gate found of a candidate on one task."""

    task: str
    pairs: int  # of episodes
    candidate: int  # successes
    approved: int  # of the policy that drives
    decision: str  # not worse, worse, not shown


@dataclass(frozen=True)
class Judged:
    """What the gate found so far of a candidate."""

    version: str
    decision: str  # open, promote, reject, not_shown, failed
    reason: str
    pairs: int  # of episodes
    tasks: tuple[TaskFound, ...] = ()  # once it is decided


@dataclass(frozen=True)
class Answer:
    """What the memory answered to a question."""

    question: str
    text: str
    confidence: float = 0.0  # 0..1; 0 = the memory says nothing of it
    age_s: float = -1.0  # of the evidence; -1 = no evidence
    details: tuple[str, ...] = ()  # advice, the order of a search, evidence: a sentence each
    node_id: str = ""  # the object that the answer is about; "" = none
    label: str = ""
    place: np.ndarray | None = None  # (3,) m, map: where the object is


@dataclass(frozen=True)
class Graph:
    """The scene graph at one time: now, or a past that a visitor asked for."""

    nodes: Mapping[str, SceneNode] = field(default_factory=dict)
    edges: tuple[SceneEdge, ...] = ()
    stamp_ns: int = 0
    past: bool = False
    left_out: int = 0  # objects, rooms and robots that are not in it
    relations_left_out: int = 0

    def shown(self) -> Graph:
        """Return the part that the page has room for: what was seen last, what is believed absent at the end."""
        if len(self.nodes) <= MOST_SHOWN and len(self.edges) <= MOST_RELATIONS:
            return self
        kinds = [[n for n in self.nodes.values() if n.layer in layers] for layers in KINDS]
        kept = {n.id: n for kind in kinds for n in nlargest(MOST_SHOWN, kind, key=_last_seen)}
        edges = [e for e in self.edges if e.source in kept and e.target in kept]
        edges.sort(key=lambda e: e.relation == "near")
        return replace(
            self,
            nodes=kept,
            edges=tuple(edges[:MOST_RELATIONS]),
            left_out=sum(map(len, kinds)) - len(kept),
            relations_left_out=len(self.edges) - len(edges[:MOST_RELATIONS]),
        )

    def of(self, *layers: str) -> list[SceneNode]:
        """Return the nodes of these layers, sorted by label."""
        return sorted((n for n in self.nodes.values() if n.layer in layers), key=lambda n: (n.label, n.id))

    @property
    def objects(self) -> list[SceneNode]:
        """What can be picked up, moved, lost: those believed absent come last."""
        return sorted(self.of(*KINDS[0]), key=lambda n: n.state == "absent")

    @property
    def rooms(self) -> list[SceneNode]:
        """Buildings, rooms and places: what objects are in or on."""
        return self.of(*KINDS[1])

    def label(self, node_id: str) -> str:
        """Return the label of a node, its id where it is unknown."""
        node = self.nodes.get(node_id)
        return node.label if node is not None else node_id

    def held_by(self, agent_id: str) -> list[str]:
        """Return the labels of the objects that an agent holds."""
        return [self.label(e.source) for e in self.edges if e.relation == "held_by" and e.target == agent_id]


def _last_seen(node: SceneNode) -> tuple[bool, int]:
    return node.state != "absent", node.last_seen_ns
