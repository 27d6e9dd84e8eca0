"""Value objects that cross the boundaries between parts.

Every array is checked once, at construction, and is read-only afterwards. Lengths are metres, angles radians,
times integer nanoseconds (``stamp_ns``), quaternions (w, x, y, z), frames REP-105 names, camera frames optical
(x right, y down, z forward).
"""

from engram.core.types.action import ActionChunk, HumanAction, JointCommand
from engram.core.types.basics import ACTION_SPACES, EE_ACTION_DIM, EMBEDDING_DIM, ActionSpace, unchecked
from engram.core.types.experience import (
    EPISODE_STATES,
    STAGES,
    UNJUDGED,
    EpisodeResult,
    EpisodeStatus,
    OracleOutcome,
    PolicyManifest,
    Transition,
)
from engram.core.types.lineage import CORRECTION, NOBODY, ActionSource, Lineage
from engram.core.types.scene import (
    DEPTH_RANGE_M,
    EVENT_KINDS,
    MOST_TOKENS,
    POSITION_SIGMA_M,
    Advice,
    Body,
    DetectedObject,
    Embodiment,
    Evidence,
    GraphEvent,
    GraphUpdate,
    Hand,
    MemoryTokens,
    Record,
    SceneEdge,
    SceneNode,
    SceneObservation,
    Skill,
    observation_id,
)
from engram.core.types.sensing import CameraFrame, JointState, Observation, Pose
from engram.core.types.verdict import CANNOT_TELL, CONFIRMED, DENIED, VERDICTS, Verdict

__all__ = [
    "ACTION_SPACES",
    "CANNOT_TELL",
    "CONFIRMED",
    "CORRECTION",
    "DENIED",
    "DEPTH_RANGE_M",
    "EE_ACTION_DIM",
    "EMBEDDING_DIM",
    "EPISODE_STATES",
    "EVENT_KINDS",
    "MOST_TOKENS",
    "NOBODY",
    "POSITION_SIGMA_M",
    "STAGES",
    "UNJUDGED",
    "VERDICTS",
    "ActionChunk",
    "ActionSource",
    "ActionSpace",
    "Advice",
    "Body",
    "CameraFrame",
    "DetectedObject",
    "Embodiment",
    "EpisodeResult",
    "EpisodeStatus",
    "Evidence",
    "GraphEvent",
    "GraphUpdate",
    "Hand",
    "HumanAction",
    "JointCommand",
    "JointState",
    "Lineage",
    "MemoryTokens",
    "Observation",
    "OracleOutcome",
    "PolicyManifest",
    "Pose",
    "Record",
    "SceneEdge",
    "SceneNode",
    "SceneObservation",
    "Skill",
    "Transition",
    "Verdict",
    "observation_id",
    "unchecked",
]
