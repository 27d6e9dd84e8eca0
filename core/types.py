"""Value objects that cross the boundaries between parts.

Every array is checked once, at construction, and is read-only afterwards. Lengths are metres, angles radians,
times integer nanoseconds (``stamp_ns``), quaternions (w, x, y, z), frames REP-105 names, camera frames optical
(x right, y down, z forward).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from engram.core.arrays import checked, positive_int
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.statistics import Rate, wilson

ActionSpace = Literal["ee_delta", "joint_position"]
ACTION_SPACES: tuple[str, ...] = ("ee_delta", "joint_position")
EE_ACTION_DIM = 7
"""ee_delta: (dx, dy, dz, drx, dry, drz, gripper), each in [-1, 1]; scaled by :class:`ControlConfig`."""
STATE_DIM = 15
"""Proprioception: see :func:`engram.core.control.proprioception`."""
EMBEDDING_DIM = 384
"""Text and object embeddings (MiniLM)."""


def _set(instance: object, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def unchecked[T](cls: type[T], *values: Any) -> T:
    """Return a ``cls`` with ``values`` for all its fields in their order, without its checks.

    For many objects made of rows that were checked together: one call of NumPy for all instead of six for each.
    """
    instance = object.__new__(cls)
    for name, value in zip(cls.__slots__, values, strict=True):  # type: ignore[attr-defined]
        object.__setattr__(instance, name, value)
    return instance


@dataclass(frozen=True, slots=True)
class Pose:
    """A rigid transform of a child frame in ``frame``."""

    position: np.ndarray  # (3,) m
    quaternion: np.ndarray  # (4,) w x y z, unit
    frame: str = "base_link"

    def __post_init__(self) -> None:
        quaternion = checked("Pose.quaternion", self.quaternion, (4,))
        norm = float(np.linalg.norm(quaternion))
        if abs(norm - 1.0) > 1e-3:
            raise InvalidInputError(f"Pose.quaternion: norm {norm:.4f}, expected 1")
        _set(self, position=checked("Pose.position", self.position, (3,)), quaternion=quaternion)


@dataclass(frozen=True, slots=True)
class CameraFrame:
    """One camera's picture at one instant; ``depth`` is None for a colour-only camera."""

    name: str
    stamp_ns: int
    color: np.ndarray  # (H, W, 3) uint8, rgb
    intrinsics: np.ndarray  # (3, 3) pinhole K, pixels
    pose: Pose  # optical frame in base_link
    depth: np.ndarray | None = None  # (H, W) float32, m; 0 or NaN = no return

    def __post_init__(self) -> None:
        color = checked(f"camera {self.name!r} color", self.color, (None, None, 3), np.uint8)
        _set(self, color=color, intrinsics=checked(f"camera {self.name!r} intrinsics", self.intrinsics, (3, 3)))
        if self.depth is not None:
            depth = checked(f"camera {self.name!r} depth", self.depth, color.shape[:2], np.float32, finite=False)
            if not np.isfinite(depth).any():
                raise InvalidInputError(f"camera {self.name!r} depth: no finite value in {depth.shape}")
            _set(self, depth=depth)


@dataclass(frozen=True, slots=True)
class JointState:
    """Measured joint positions and velocities, arm joints first, the gripper joint last."""

    stamp_ns: int
    names: tuple[str, ...]
    positions: np.ndarray  # (n,) rad or m
    velocities: np.ndarray  # (n,) rad/s or m/s
    held: bool = False
    """The cell holds the arm: commands that answer this state are not executed."""

    def __post_init__(self) -> None:
        n = len(self.names)
        _set(
            self,
            positions=checked("JointState.positions", self.positions, (n,)),
            velocities=checked("JointState.velocities", self.velocities, (n,)),
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """What the robot senses at one control step."""

    stamp_ns: int
    cameras: Mapping[str, CameraFrame]
    joints: JointState

    def __post_init__(self) -> None:
        _set(self, cameras=MappingProxyType(dict(self.cameras)))

    def camera(self, name: str) -> CameraFrame:
        """Return the frame of camera ``name``; raises UnknownNameError with the cameras there are."""
        if name not in self.cameras:
            raise unknown_name("camera", name, self.cameras)
        return self.cameras[name]


@dataclass(frozen=True, slots=True)
class DetectedObject:
    """One object that a detector found in one frame, in ``base_link``."""

    label: str
    score: float  # 0..1
    pose: Pose
    position_covariance: np.ndarray  # (3, 3) m^2
    size: np.ndarray  # (3,) m, extents along the pose's axes
    color: np.ndarray  # (3,) rgb, 0..1
    embedding: np.ndarray  # (384,) float32, unit length

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise InvalidInputError(f"DetectedObject.score: {self.score}, expected 0..1")
        _set(
            self,
            position_covariance=checked("DetectedObject.position_covariance", self.position_covariance, (3, 3)),
            size=checked("DetectedObject.size", self.size, (3,)),
            color=checked("DetectedObject.color", self.color, (3,)),
            embedding=checked("DetectedObject.embedding", self.embedding, (EMBEDDING_DIM,), np.float32),
        )


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
    """Where a robot stood while a frame was taken."""

    pose: Pose  # its base_link, in the frame of the observation
    agent: str = "robot0"


@dataclass(frozen=True, slots=True)
class Skill:
    """Finished tasks of one policy version."""

    task: str
    policy_version: str
    successes: int
    n: int
    last_ns: int = -1  # when it last succeeded; -1 = never

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
    skills: tuple[Skill, ...] = ()

    def __post_init__(self) -> None:
        for name in ("joints", "reach_m", "payload_kg", "gripper_m"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InvalidInputError(f"Embodiment.{name}: {value}, expected a finite number of 0 or more")


@dataclass(frozen=True, slots=True)
class SceneObservation:
    """All objects seen in one frame, with the camera's frustum: what was looked at and not seen counts too."""

    stamp_ns: int
    camera: str
    objects: tuple[DetectedObject, ...]
    camera_pose: Pose  # optical frame in base_link
    intrinsics: np.ndarray  # (3, 3) of the full image, pixels
    image_size: tuple[int, int]  # (width, height), pixels
    depth_grid: np.ndarray  # (h, w) float32, m: coarse depth over the image, 0 = no return
    hand: Hand | None = None  # None: nothing is known of the hand, and held_by stays as it was
    body: Body | None = None  # None: nobody says where the robot stood

    def __post_init__(self) -> None:
        _set(
            self,
            intrinsics=checked("SceneObservation.intrinsics", self.intrinsics, (3, 3)),
            depth_grid=checked("SceneObservation.depth_grid", self.depth_grid, (None, None), np.float32),
        )

    @property
    def id(self) -> str:
        """The name by which evidence points at this observation: ``camera@stamp``."""
        return observation_id(self.camera, self.stamp_ns)


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
        _set(
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
    confidence: float = 1.0


EVENT_KINDS: tuple[str, ...] = ("new", "moved", "absent", "returned", "held", "released", "merged", "split", "deleted")
"""What can happen to an object; a sight that changes nothing is no event."""


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
        _set(self, place=checked("GraphEvent.place", self.place, (3,)))
        if self.before is not None:
            _set(self, before=checked("GraphEvent.before", self.before, (3,)))


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
    events: tuple[GraphEvent, ...] = ()  # stays inside the process; readers of the topic see nodes and edges
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
            _set(self, place=checked("Evidence.place", self.place, (3,)))


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether looking is worth its way, and where (value of information)."""

    look: bool
    text: str
    place: np.ndarray | None = None  # (3,) m, base_link: where to look; None = nowhere
    label: str = ""  # name of that place
    probability: float = 0.0  # that the object is there
    cost_m: float = 0.0  # way there
    value_m: float = 0.0  # what searching is worth after its way, in metres; above 0 = look
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
            _set(self, vector=checked(f"Record {self.key!r} vector", self.vector, (EMBEDDING_DIM,), np.float32))


@dataclass(frozen=True, slots=True)
class MemoryTokens:
    """k memory entries for the policy's action head; ``mask`` False = padding."""

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
        if len(self.source_ids) != k:
            raise InvalidInputError(f"MemoryTokens.source_ids: {len(self.source_ids)} ids for {k} tokens")
        _set(
            self,
            tokens=tokens,
            age_s=checked("MemoryTokens.age_s", self.age_s, (k,), np.float32),
            place=checked("MemoryTokens.place", self.place, (k, 3), np.float32),
            mask=checked("MemoryTokens.mask", self.mask, (k,), np.bool_),
        )


@dataclass(frozen=True, slots=True)
class ActionChunk:
    """The policy's answer to one observation: the next ``horizon`` actions, ``dt_s`` apart.

    Row i is meant for the control step at ``stamp_ns + i * dt_s``. ``execute_steps`` rows are executed before the
    next chunk is due; later rows bridge a policy that is late.
    """

    stamp_ns: int  # of the observation it answers
    episode: int
    space: str
    actions: np.ndarray  # (horizon, dim) float64
    dt_s: float
    execute_steps: int
    policy_version: str
    memory_ids: tuple[str, ...] = ()
    inference_s: float = 0.0

    def __post_init__(self) -> None:
        if self.space not in ACTION_SPACES:
            raise unknown_name("action space", self.space, ACTION_SPACES)
        actions = checked("ActionChunk.actions", self.actions, (None, None))
        if not 0 < self.execute_steps <= len(actions):
            raise InvalidInputError(f"ActionChunk.execute_steps: {self.execute_steps}, expected 1..{len(actions)}")
        if not (np.isfinite(self.dt_s) and self.dt_s > 0):
            raise InvalidInputError(f"ActionChunk.dt_s: {self.dt_s}, expected seconds above 0")
        _set(self, actions=actions)

    def row(self, stamp_ns: int) -> int:
        """Return the row that is meant for the control step at ``stamp_ns``; below 0 or past the end, there is none."""
        return round((stamp_ns - self.stamp_ns) / (self.dt_s * 1e9))


@dataclass(frozen=True, slots=True)
class JointCommand:
    """Joint targets to reach ``duration_s`` after ``stamp_ns``; ``held`` names why the robot is told to hold."""

    stamp_ns: int  # of the control step it is for
    names: tuple[str, ...]
    positions: np.ndarray  # (n,) rad or m
    duration_s: float
    held: str = ""

    def __post_init__(self) -> None:
        _set(self, positions=checked("JointCommand.positions", self.positions, (len(self.names),)))


@dataclass(frozen=True, slots=True)
class Transition:
    """One control step of experience; (robot_id, boot_id, sequence) identifies it exactly once."""

    robot_id: str
    boot_id: str
    sequence: int
    episode: int
    step: int
    stamp_ns: int
    task: str
    instruction: str
    images: Mapping[str, np.ndarray]  # name -> (H, W, 3) uint8
    state: np.ndarray  # (15,) float32
    action: np.ndarray  # (7,) float32, proposed by the policy
    executed_action: np.ndarray  # (7,) float32, what was let through
    reward: float
    reward_source: str
    terminated: bool
    truncated: bool
    success: bool
    intervention: bool
    policy_version: str
    memory_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        images = {
            n: checked(f"Transition.images[{n!r}]", im, (None, None, 3), np.uint8) for n, im in self.images.items()
        }
        _set(
            self,
            images=MappingProxyType(images),
            state=checked("Transition.state", self.state, (STATE_DIM,), np.float32),
            action=checked("Transition.action", self.action, (None,), np.float32),
            executed_action=checked("Transition.executed_action", self.executed_action, (None,), np.float32),
        )


@dataclass(frozen=True, slots=True)
class PolicyManifest:
    """What a weight file is: its digest, ancestry, stage and measured results."""

    version: str
    parent: str
    sha256: str
    size: int  # bytes
    stage: Literal["candidate", "approved", "rejected", "rolled_back"]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive_int("PolicyManifest.size", self.size)
        if len(self.sha256) != 64:
            raise InvalidInputError(f"PolicyManifest.sha256: {len(self.sha256)} characters, expected 64")


@dataclass(frozen=True, slots=True)
class OracleOutcome:
    """What the simulator knows of the running task; never an input of perception, memory or policy."""

    task: str
    instruction: str
    episode: int
    step: int
    success: bool
    reward: float
    truncated: bool
    failed: bool = False
    """A choice was made that is final, and wrong: no step can lead to success any more."""

    @property
    def over(self) -> bool:
        """Whether the episode ends here."""
        return self.success or self.truncated or self.failed
