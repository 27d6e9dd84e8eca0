"""Objects and robots as they are seen, remembered and asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.statistics import Rate, wilson
from engram.core.types.basics import EMBEDDING_DIM, set_fields
from engram.core.types.sensing import Pose
from engram.core.words import short_name

MOST_TOKENS, WIDEST_TOKEN = 256, 4096
"""Entries of memory for a policy at one step, and numbers of each: a message that says more is refused."""
MOST_OBJECTS = 256
"""Objects of one observation. A table has tens of them; thousands are boxes of a detector that suppresses none of those
that overlap, and what a frame costs grows with their square."""
MOST_CELLS = 1 << 20
"""Cells of the depth grid of one observation."""
MOST_SKILLS = 64
"""Pairs of task and policy version in a robot's profile, the newest; semantic memory keeps more."""
MAX_LABEL = 200
"""Longest label of an object, and longest name of a camera [characters]."""
MAX_PLACE_M = 1e5
"""Farthest place, and greatest extent, that an observation may name [m]: beyond it a sensor or a sender is wrong."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What no label may have: control characters, halves of characters and what is none. XML or ROS could not carry it."""
POSITION_SIGMA_M = 0.01
"""Standard deviation of a detected position whose covariance is not given [m]."""


@dataclass(frozen=True, slots=True)
class DetectedObject:
    """One object that a detector found in one frame.

    A label and a pose are enough. The memory fills in what is None: see :mod:`engram.memory.graph.completion`.
    """

    label: str
    pose: Pose  # of the centre of the object's box
    score: float = 1.0  # 0..1, confidence of the detector
    position_covariance: np.ndarray | None = None  # (3, 3) m^2
    size: np.ndarray | None = None  # (3,) m, extents along the pose's axes
    color: np.ndarray | None = None  # (3,) rgb, 0..1
    embedding: np.ndarray | None = None  # (384,) float32, of the appearance or of the label; it is made of unit length

    def __post_init__(self) -> None:
        if not self.label.strip() or len(self.label) > MAX_LABEL:
            raise InvalidInputError(f"DetectedObject.label: {self.label[:40]!r}, expected 1..{MAX_LABEL} characters")
        if found := UNPRINTABLE.search(self.label):
            bad = f"{self.label[:40]!r} has {found.group()!r} at {found.start()}"
            raise InvalidInputError(f"DetectedObject.label: {bad}, expected printable characters")
        if not 0.0 <= self.score <= 1.0:
            raise InvalidInputError(f"DetectedObject.score: {self.score}, expected 0..1")
        if np.abs(self.pose.position).max() > MAX_PLACE_M:
            place = self.pose.position.tolist()
            raise InvalidInputError(f"DetectedObject.pose: position {place} m, expected at most {MAX_PLACE_M:g} m")
        for name, shape in _OBJECT_ARRAYS.items():
            value = getattr(self, name)
            if value is not None:
                dtype = np.float32 if name == "embedding" else np.float64
                set_fields(self, **{name: checked(f"DetectedObject.{name}", value, shape, dtype)})
        if self.embedding is not None:
            set_fields(self, embedding=_of_unit_length(self.embedding))
        noise = self.position_covariance
        if noise is not None and not (
            np.abs(noise).max() <= MAX_PLACE_M**2
            and np.allclose(noise, noise.T)
            and np.linalg.eigvalsh(noise).min() >= -1e-9 * np.abs(noise).max()
        ):
            raise InvalidInputError(
                f"DetectedObject.position_covariance: {noise.tolist()}, expected a symmetric matrix without negative "
                f"eigenvalues, at most {MAX_PLACE_M**2:g} m^2"
            )
        if self.size is not None and not ((self.size >= 0) & (self.size <= MAX_PLACE_M)).all():
            raise InvalidInputError(f"DetectedObject.size: {self.size.tolist()} m, expected 0..{MAX_PLACE_M:g}")


def _of_unit_length(embedding: np.ndarray) -> np.ndarray | None:
    """Return ``embedding`` at unit length, as cosines are compared; None of zeros, which say nothing."""
    length = float(np.linalg.norm(embedding.astype(np.float64)))
    if length == 0.0:
        return None
    if abs(length - 1.0) <= 1e-3:
        return embedding
    return checked("DetectedObject.embedding", embedding / length, (EMBEDDING_DIM,), np.float32)


_OBJECT_ARRAYS: Mapping[str, tuple[int, ...]] = {
    "position_covariance": (3, 3), "size": (3,), "color": (3,), "embedding": (EMBEDDING_DIM,)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hand:
    """The robot's hand while a frame was taken: what lies between its fingers is held."""

    pose: Pose  # tool frame (between the finger tips, z out of the palm), in base_link
    closed: float  # 0 = fully open .. 1 = fully closed
    agent: str = "robot0"  # whose hand it is

    def __post_init__(self) -> None:
        if not 0.0 <= self.closed <= 1.0:
            raise InvalidInputError(f"Hand.closed: {self.closed}, expected 0..1")


@dataclass(frozen=True, slots=True)
class Body:
    """The pose of a robot's base while a frame was taken."""

    pose: Pose  # its base_link, in the frame of the observation
    agent: str = "robot0"


@dataclass(frozen=True, slots=True)
class Skill:
    """Finished tasks of one policy version.

    On a robot the words of a goal name its task: long ones are cut, see :func:`~engram.core.words.short_name`.
    """

    task: str
    policy_version: str
    successes: int
    n: int
    last_ns: int = -1  # when it last succeeded; -1 = never

    def __post_init__(self) -> None:
        set_fields(self, task=short_name(self.task), policy_version=short_name(self.policy_version))

    @property
    def rate(self) -> Rate:
        """The success rate with its Wilson interval."""
        return wilson(self.successes, self.n)


@dataclass(frozen=True, slots=True)
class Embodiment:
    """What a robot is and can do: the embodiment profile of RoboOS-NeXT (Tan et al., 2025). 0 = not known."""

    kind: str  # kinematic type: arm, mobile manipulator, ...
    joints: int = 0  # of the arm
    reach_m: float = 0.0  # from the base to the tool point, at most
    payload_kg: float = 0.0
    gripper_m: float = 0.0  # widest opening between the fingers
    mobile_base: bool = False
    sensors: tuple[str, ...] = ()  # "front camera", ...
    skills: tuple[Skill, ...] = ()  # of more than MOST_SKILLS the last ones stay

    def __post_init__(self) -> None:
        set_fields(self, skills=self.skills[-MOST_SKILLS:])
        for name in ("joints", "reach_m", "payload_kg", "gripper_m"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InvalidInputError(f"Embodiment.{name}: {value}, expected a finite number of 0 or more")


DEPTH_RANGE_M = (0.0, 2.5)
"""Nearest and farthest depth at which a usual camera tells that something is missing [m]."""


@dataclass(frozen=True, slots=True)
class SceneObservation:
    """All objects seen in one frame, and the part of the world that the camera looked at.

    The camera's view makes a missing detection evidence of absence. Without a view (``image_size`` of 0 x 0, the
    default) the observation says where its objects are and nothing about any other object.

    Of more than ``MOST_OBJECTS`` objects those with the best scores stay. The others were seen, too: such an
    observation has no view.
    """

    stamp_ns: int
    camera: str = "unnamed"
    objects: tuple[DetectedObject, ...] = ()
    camera_pose: Pose = field(default_factory=lambda: Pose(np.zeros(3)))  # optical frame in the objects' frame
    intrinsics: np.ndarray = field(default_factory=lambda: np.eye(3))  # (3, 3) of the full image, pixels
    image_size: tuple[int, int] = (0, 0)  # (width, height), pixels
    depth_grid: np.ndarray = field(  # (h, w) float32, m: coarse depth over the image, 0 = no return
        default_factory=lambda: np.zeros((0, 0), np.float32)
    )
    hand: Hand | None = None  # None: nothing is known of the hand, and held_by stays as it was
    depth_range_m: tuple[float, float] = DEPTH_RANGE_M  # what the camera measures; nothing is missed beyond it
    body: Body | None = None  # None: nobody says where the robot stood
    left_out: int = 0  # objects that were seen beyond MOST_OBJECTS

    def __post_init__(self) -> None:
        if not (isinstance(self.stamp_ns, int | np.integer) and 0 <= self.stamp_ns < 2**63):
            raise InvalidInputError(f"SceneObservation.stamp_ns: {self.stamp_ns!r}, expected whole ns, 0..2^63 - 1")
        near, far = self.depth_range_m
        if not 0.0 <= near < far < math.inf:
            raise InvalidInputError(f"SceneObservation.depth_range_m: {near}..{far}, expected 0 <= nearest < farthest")
        if len(self.camera) > MAX_LABEL:
            named = self.camera[:40]
            raise InvalidInputError(f"SceneObservation.camera: {named!r}, expected 0..{MAX_LABEL} characters")
        if (cells := np.size(self.depth_grid)) > MOST_CELLS:
            expected = f"at most {MOST_CELLS} of a coarse grid"
            raise InvalidInputError(f"SceneObservation.depth_grid: {cells} cells, expected {expected}")
        self._keep_the_best()
        set_fields(
            self,
            intrinsics=checked("SceneObservation.intrinsics", self.intrinsics, (3, 3)),
            depth_grid=checked("SceneObservation.depth_grid", self.depth_grid, (None, None), np.float32),
        )

    def _keep_the_best(self) -> None:
        if (more := len(self.objects) - MOST_OBJECTS) > 0:
            kept = tuple(self.objects[i] for i in best_scores([seen.score for seen in self.objects]))
            set_fields(self, objects=kept, left_out=self.left_out + more)
        if self.left_out:
            set_fields(self, image_size=(0, 0), depth_grid=np.zeros((0, 0), np.float32))

    @property
    def has_view(self) -> bool:
        """Whether it says what the camera looked at."""
        return min(self.image_size) > 0 and self.depth_grid.size > 0

    @property
    def id(self) -> str:
        """The name by which evidence points at this observation: ``camera@stamp``."""
        return observation_id(self.camera, self.stamp_ns)


def best_scores(scores: Sequence[float], most: int = MOST_OBJECTS) -> list[int]:
    """Return the indices of the ``most`` highest of ``scores``, in their order; of equal ones the first, NaN last.

    >>> best_scores([0.5, 0.9, 0.5, 0.7], 3)
    [0, 1, 3]
    """
    ranked = np.argsort(-np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf), kind="stable")
    return sorted(ranked[:most].tolist())


def observation_id(camera: str, stamp_ns: int) -> str:
    """Return the name of the observation that ``camera`` made at ``stamp_ns``."""
    return f"{camera}@{stamp_ns}"


@dataclass(frozen=True, slots=True)
class SceneNode:
    """One node of the scene graph as seen from outside the memory."""

    id: str
    layer: str  # building, room, place, object, agent
    label: str
    pose: Pose
    position_covariance: np.ndarray  # (3, 3) m^2
    size: np.ndarray  # (3,) m
    color: np.ndarray  # (3,) rgb, 0..1
    embedding: np.ndarray  # (384,) float32
    belief: float  # 0..1, that it is (still) there
    state: str  # visible, occluded, unseen, absent
    first_seen_ns: int
    last_seen_ns: int
    observations: int
    first_evidence: str = ""  # observation ids, "camera@stamp"
    last_evidence: str = ""
    embodiment: Embodiment | None = None  # of an agent that introduced itself

    def __post_init__(self) -> None:
        if not 0.0 <= self.belief <= 1.0:
            raise InvalidInputError(f"SceneNode.belief: {self.belief}, expected 0..1")
        set_fields(
            self,
            position_covariance=checked("SceneNode.position_covariance", self.position_covariance, (3, 3)),
            size=checked("SceneNode.size", self.size, (3,)),
            color=checked("SceneNode.color", self.color, (3,)),
            embedding=checked("SceneNode.embedding", self.embedding, (EMBEDDING_DIM,), np.float32),
        )


@dataclass(frozen=True, slots=True)
class SceneEdge:
    """``source`` stands in ``relation`` (on, in, near, held_by) to ``target``."""

    source: str
    target: str
    relation: str


EVENT_KINDS: tuple[str, ...] = ("new", "moved", "absent", "returned", "held", "released", "merged", "split", "deleted")
"""What can happen to an object. A sighting that changes nothing is not an event."""


@dataclass(frozen=True, slots=True)
class GraphEvent:
    """Something happened to one object."""

    kind: str  # one of EVENT_KINDS
    node_id: str
    label: str
    stamp_ns: int
    place: np.ndarray  # (3,) m, base_link, after the event
    before: np.ndarray | None = None  # (3,) m, before it; None = not known or no other place
    other_id: str = ""  # merged: the id that is gone; split: the id that came out; held: the agent
    evidence: str = ""  # observation id

    def __post_init__(self) -> None:
        if self.kind not in EVENT_KINDS:
            raise unknown_name("event", self.kind, EVENT_KINDS)
        set_fields(self, place=checked("GraphEvent.place", self.place, (3,)))
        if self.before is not None:
            set_fields(self, before=checked("GraphEvent.before", self.before, (3,)))


@dataclass(frozen=True, slots=True)
class GraphUpdate:
    """What changed in the scene graph (``full``: everything there is)."""

    stamp_ns: int
    sequence: int
    full: bool
    nodes: tuple[SceneNode, ...]
    edges: tuple[SceneEdge, ...] = ()
    deleted_nodes: tuple[str, ...] = ()
    deleted_edges: tuple[SceneEdge, ...] = ()
    events: tuple[GraphEvent, ...] = ()  # stays inside the process; subscribers of the topic see nodes and edges
    shifted_ns: int = 0  # the clock began anew: every stamp from before this update moved by so much
    refused: str = ""  # why the frame was not taken in; empty = it was


@dataclass(frozen=True, slots=True)
class Evidence:
    """One remembered thing that an answer rests on."""

    source: str  # the store it comes from: graph, history, short_term, episodic, semantic
    text: str  # one sentence
    score: float  # 0..1, how well it fits the question
    stamp_ns: int  # when it was last known to be true
    ids: tuple[str, ...] = ()  # observation ids, episode or event ids
    node_id: str = ""  # the object it is about; empty = none
    place: np.ndarray | None = None  # (3,) m, base_link

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise InvalidInputError(f"Evidence.score: {self.score}, expected 0..1")
        if self.place is not None:
            set_fields(self, place=checked("Evidence.place", self.place, (3,)))


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether looking is worth the way, and where (value of information)."""

    look: bool
    text: str
    place: np.ndarray | None = None  # (3,) m, base_link: where to look; None = nowhere
    route: tuple[np.ndarray, ...] = ()  # (3,) m each: the order in which a search would best look, all places
    chances: tuple[float, ...] = ()  # that the object is at each place of the route
    labels: tuple[str, ...] = ()  # name of each place of the route


@dataclass(frozen=True, slots=True)
class Record:
    """One row that a store keeps on disk."""

    key: str  # unique within its store
    data: Mapping[str, Any]  # JSON values
    vector: np.ndarray | None = None  # (384,) float32

    def __post_init__(self) -> None:
        if self.vector is not None:
            set_fields(self, vector=checked(f"Record {self.key!r} vector", self.vector, (EMBEDDING_DIM,), np.float32))


@dataclass(frozen=True, slots=True)
class MemoryTokens:
    """At most ``MOST_TOKENS`` memory entries (k) for the policy's action head; ``mask`` False = padding."""

    stamp_ns: int
    version: int
    tokens: np.ndarray  # (k, d) float32
    age_s: np.ndarray  # (k,) float32, s since the entry was last true
    place: np.ndarray  # (k, 3) float32, m, base_link
    mask: np.ndarray  # (k,) bool
    source_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        tokens = checked("MemoryTokens.tokens", self.tokens, (None, None), np.float32)
        k = tokens.shape[0]
        if k > MOST_TOKENS or tokens.shape[1] > WIDEST_TOKEN:
            most = f"at most {MOST_TOKENS} of {WIDEST_TOKEN}"
            raise InvalidInputError(f"MemoryTokens.tokens: {k} of {tokens.shape[1]} numbers, expected {most}")
        if len(self.source_ids) != k:
            raise InvalidInputError(f"MemoryTokens.source_ids: {len(self.source_ids)} ids for {k} tokens")
        set_fields(
            self,
            tokens=tokens,
            age_s=checked("MemoryTokens.age_s", self.age_s, (k,), np.float32),
            place=checked("MemoryTokens.place", self.place, (k, 3), np.float32),
            mask=checked("MemoryTokens.mask", self.mask, (k,), np.bool_),
        )

    def filled(self) -> MemoryTokens:
        """Return them without the padding at their end."""
        used = np.flatnonzero(self.mask)
        return self.first(int(used[-1]) + 1) if len(used) else self._cut(0)

    def first(self, limit: int) -> MemoryTokens:
        """Return at most ``limit`` entries, the first ones; 0 = all."""
        if not limit or limit >= len(self.tokens):
            return self
        return self._cut(limit)

    def _cut(self, limit: int) -> MemoryTokens:
        arrays = (self.tokens[:limit], self.age_s[:limit], self.place[:limit], self.mask[:limit])
        return MemoryTokens(self.stamp_ns, self.version, *arrays, self.source_ids[:limit])
