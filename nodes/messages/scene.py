"""What perception saw, what the scene graph became, what memory hands to the policy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import (
    DEPTH_RANGE_M,
    EMBEDDING_DIM,
    MOST_TOKENS,
    DetectedObject,
    Embodiment,
    GraphUpdate,
    MemoryTokens,
    SceneEdge,
    SceneNode,
    SceneObservation,
    best_scores,
)
from engram.memory.storage.embodiment_json import embodiment_from
from engram.nodes.messages.basics import (
    floats,
    from_stamp,
    header,
    point,
    pose_from_msg,
    pose_to_msg,
    reshape,
    to_stamp,
    vector3,
    xyz,
)
from engram_interfaces.msg import (
    MemoryContext,
    ObjectObservation,
    SceneGraphUpdate,
)
from engram_interfaces.msg import (
    SceneEdge as SceneEdgeMsg,
)
from engram_interfaces.msg import (
    SceneNode as SceneNodeMsg,
)
from engram_interfaces.msg import (
    SceneObservation as SceneObservationMsg,
)

BASE = "base_link"
"""Frame of the places in a memory context: a policy acts on them before its arm."""


def _embedding(values: Any, name: str) -> np.ndarray:
    """Return the embedding (384,) float32; an empty one (the sender has none) reads as zeros, which match nothing."""
    if not len(values):
        return np.zeros(EMBEDDING_DIM, np.float32)
    return reshape(name, values, (EMBEDDING_DIM,), np.float32)


def _object_to_msg(found: DetectedObject) -> ObjectObservation:
    msg = ObjectObservation(label=found.label, score=float(found.score), pose=pose_to_msg(found.pose))
    if found.position_covariance is not None:
        msg.position_covariance = found.position_covariance.reshape(9)
    if found.size is not None:
        msg.size = vector3(found.size)
    if found.color is not None:
        msg.color = found.color.astype(np.float32)
    if found.embedding is not None:
        msg.embedding = floats(found.embedding)
    return msg


def _object_from_msg(msg: ObjectObservation, frame: str) -> DetectedObject:
    return DetectedObject(
        msg.label,
        pose_from_msg(msg.pose, frame),
        msg.score,
        _given(np.array(msg.position_covariance, np.float64).reshape(3, 3)),
        _given(xyz(msg.size)),
        _given(np.array(msg.color, np.float64)),
        _embedding(msg.embedding, f"object {msg.label!r} embedding") if len(msg.embedding) else None,
    )


def _given(values: np.ndarray) -> np.ndarray | None:
    """Return ``values``; None if all are zero, the default of a message: the sender does not know them."""
    return values if values.any() else None


def scene_to_msg(scene: SceneObservation) -> SceneObservationMsg:
    """Return what one camera frame showed."""
    msg = SceneObservationMsg(header=header(scene.stamp_ns, scene.camera_pose.frame), camera=scene.camera)
    msg.objects = [_object_to_msg(found) for found in scene.objects]
    msg.camera_pose = pose_to_msg(scene.camera_pose)
    msg.camera_k = scene.intrinsics.reshape(9)
    msg.width, msg.height = (int(n) for n in scene.image_size)
    msg.min_depth, msg.max_depth = (float(depth_m) for depth_m in scene.depth_range_m)
    msg.depth_grid = floats(scene.depth_grid)
    msg.depth_grid_height, msg.depth_grid_width = scene.depth_grid.shape
    return msg


def scene_from_msg(msg: SceneObservationMsg) -> SceneObservation:
    """Return the observation with the objects that it keeps; raises InvalidInputError when an array does not fit."""
    frame = msg.header.frame_id
    kept = best_scores([found.score for found in msg.objects])  # a conversion costs more than a look at the score
    grid = reshape(
        "SceneObservation.depth_grid", msg.depth_grid, (msg.depth_grid_height, msg.depth_grid_width), np.float32
    )
    return SceneObservation(
        from_stamp(msg.header.stamp), msg.camera, tuple(_object_from_msg(msg.objects[i], frame) for i in kept),
        pose_from_msg(msg.camera_pose, frame), np.array(msg.camera_k, np.float64).reshape(3, 3),
        (msg.width, msg.height), grid,
        depth_range_m=(round(msg.min_depth, 6), round(msg.max_depth, 6)) if msg.max_depth else DEPTH_RANGE_M,
        left_out=len(msg.objects) - len(kept),
    )  # fmt: skip


def node_to_msg(node: SceneNode) -> SceneNodeMsg:
    """Return one node of the scene graph; its frame goes into the header of the message around it."""
    msg = SceneNodeMsg(id=node.id, layer=node.layer, label=node.label, pose=pose_to_msg(node.pose))
    msg.position_covariance = node.position_covariance.reshape(9)
    msg.size = vector3(node.size)
    msg.color = node.color.astype(np.float32)
    msg.belief, msg.state = float(node.belief), node.state
    msg.first_seen, msg.last_seen = to_stamp(node.first_seen_ns), to_stamp(node.last_seen_ns)
    msg.observations = int(node.observations)
    msg.embedding = floats(node.embedding)
    msg.first_evidence, msg.last_evidence = node.first_evidence, node.last_evidence
    msg.embodiment = "" if node.embodiment is None else json.dumps(asdict(node.embodiment), ensure_ascii=False)
    return msg


def node_from_msg(msg: SceneNodeMsg, frame: str) -> SceneNode:
    """Return one node of the scene graph in ``frame``."""
    return SceneNode(
        msg.id, msg.layer, msg.label, pose_from_msg(msg.pose, frame),
        np.array(msg.position_covariance, np.float64).reshape(3, 3), xyz(msg.size), np.array(msg.color, np.float64),
        _embedding(msg.embedding, f"node {msg.id!r} embedding"), msg.belief, msg.state,
        from_stamp(msg.first_seen), from_stamp(msg.last_seen), msg.observations, msg.first_evidence, msg.last_evidence,
        _embodiment(msg.embodiment),
    )  # fmt: skip


def _embodiment(text: str) -> Embodiment | None:
    """Return the profile of a robot; "?" stands for half a surrogate pair, which nothing could pass on."""
    if not text:
        return None
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        body = embodiment_from(json.loads(plain))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"SceneNode.embodiment: {error!r}, expected the JSON of a robot's profile") from None
    if not body.kind or not all(isinstance(one, str) for one in (body.kind, *body.sensors)):
        raise InvalidInputError(f"SceneNode.embodiment: kind {str(body.kind)[:40]!r} or a sensor is no text")
    return body


def _edge_to_msg(edge: SceneEdge) -> SceneEdgeMsg:
    return SceneEdgeMsg(source=edge.source, target=edge.target, relation=edge.relation)


def _edge_from_msg(msg: SceneEdgeMsg) -> SceneEdge:
    return SceneEdge(msg.source, msg.target, msg.relation)


def graph_to_msg(update: GraphUpdate, boot_id: str, frame: str = "base_link") -> SceneGraphUpdate:
    """Return a change of the scene graph, or all of it; ``boot_id`` names the run of the memory that counts."""
    msg = SceneGraphUpdate(header=header(update.stamp_ns, frame), boot_id=boot_id)
    msg.sequence, msg.full = int(update.sequence), bool(update.full)
    msg.nodes = [node_to_msg(node) for node in update.nodes]
    msg.edges = [_edge_to_msg(edge) for edge in update.edges]
    msg.deleted_nodes = list(update.deleted_nodes)
    msg.deleted_edges = [_edge_to_msg(edge) for edge in update.deleted_edges]
    return msg


def graph_from_msg(msg: SceneGraphUpdate) -> GraphUpdate:
    """Return the update; boot_id stays with the message."""
    return GraphUpdate(
        from_stamp(msg.header.stamp), msg.sequence, msg.full,
        tuple(node_from_msg(node, msg.header.frame_id) for node in msg.nodes),
        tuple(_edge_from_msg(edge) for edge in msg.edges), tuple(msg.deleted_nodes),
        tuple(_edge_from_msg(edge) for edge in msg.deleted_edges),
    )  # fmt: skip


def tokens_to_msg(tokens: MemoryTokens) -> MemoryContext:
    """Return k memory tokens of d numbers, with places in base_link, as a message."""
    count, dim = tokens.tokens.shape
    msg = MemoryContext(header=header(tokens.stamp_ns, BASE), version=int(tokens.version), count=count, dim=dim)
    msg.tokens, msg.age = floats(tokens.tokens), floats(tokens.age_s)
    msg.place = [point(place) for place in tokens.place]
    msg.source_ids, msg.mask = list(tokens.source_ids), [bool(valid) for valid in tokens.mask]
    return msg


def tokens_from_msg(msg: MemoryContext) -> MemoryTokens:
    """Return the tokens; InvalidInputError for arrays that do not fit ``count`` x ``dim``, and for another frame."""
    k = msg.count
    if (frame := msg.header.frame_id) != BASE:
        raise InvalidInputError(f"MemoryContext.header.frame_id: {frame[:100]!r}, expected {BASE!r}")
    if k > MOST_TOKENS:
        raise InvalidInputError(f"MemoryContext.count: {k}, expected at most {MOST_TOKENS}")
    place = np.array([(p.x, p.y, p.z) for p in msg.place], np.float32)
    return MemoryTokens(
        from_stamp(msg.header.stamp),
        msg.version,
        reshape("MemoryContext.tokens", msg.tokens, (k, msg.dim), np.float32),
        reshape("MemoryContext.age", msg.age, (k,), np.float32),
        reshape("MemoryContext.place", place, (k, 3), np.float32),
        reshape("MemoryContext.mask", msg.mask, (k,), np.bool_),
        tuple(msg.source_ids),
    )
