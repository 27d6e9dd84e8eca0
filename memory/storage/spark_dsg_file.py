"""The graph of an instant as a file of spark_dsg (Hughes et al., Hydra), for Hydra, Khronos and its viewer, and back.

Layers and the geometry are spark_dsg's own; what it has no field for (belief, state, evidence, the kind of a relation)
lies in the metadata of nodes and edges, under ``engram``. Needs the optional package ``spark-dsg``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import DAMAGED, EngramError, InvalidInputError, StoreError
from engram.core.geometry import make_pose, rotation
from engram.core.types import EMBEDDING_DIM, GraphUpdate, Pose, SceneEdge, SceneNode
from engram.memory.storage.imported import graph_head, imported, imported_embodiment

_LAYERS = {"building": ("BUILDINGS", "B"), "room": ("ROOMS", "R"), "place": ("PLACES", "p"), "object": ("OBJECTS", "O")}
_AGENT = "a"
_KEY = "engram"


def _spark_dsg() -> Any:
    try:
        import spark_dsg
    except ImportError as error:
        raise InvalidInputError("files of spark_dsg need the package: pip install spark-dsg") from error
    return spark_dsg


def save(graph: GraphUpdate, path: Path) -> None:
    """Write nodes and relations of ``graph`` to ``path`` (.json, or .sparkdsg: binary).

    Raises:
        OSError: it could not be written whole.
    """
    dsg = _spark_dsg()
    out, symbols = dsg.DynamicSceneGraph(), {}
    for number, node in enumerate(graph.nodes):
        symbols[node.id] = symbol = dsg.NodeSymbol(_AGENT if node.layer == "agent" else _LAYERS[node.layer][1], number)
        layer = "OBJECTS" if node.layer == "agent" else _LAYERS[node.layer][0]
        attributes = _attributes(dsg, node)
        if node.layer == "agent":
            out.add_node(2, symbol, attributes, dsg.PartitionId(_AGENT))
        else:
            out.add_node(getattr(dsg.DsgLayers, layer), symbol, attributes)
    for edge in graph.edges:
        about = dsg.EdgeAttributes()
        about.metadata.set({_KEY: [edge.source, edge.relation]})
        out.insert_edge(symbols[edge.source], symbols[edge.target], about)
    out.metadata.set({_KEY: {"stamp_ns": graph.stamp_ns, "sequence": graph.sequence}})
    out.save(str(path))
    try:  # spark_dsg says nothing of a disk that is full
        dsg.DynamicSceneGraph.load(str(path))
    except (RuntimeError, ValueError) as error:
        raise OSError(f"spark_dsg did not write all of it, the disk may be full ({error})") from error


def load(path: Path) -> GraphUpdate:
    """Return the graph in ``path``: of ours as it was saved, of Hydra with what it says.

    Raises:
        StoreError: ``path`` cannot be read, or a node, which is named, is none that a memory may take in.
    """
    dsg = _spark_dsg()
    try:
        found = dsg.DynamicSceneGraph.load(str(path))
    except (RuntimeError, ValueError, OSError) as error:
        raise StoreError(f"{path}: not a graph of spark_dsg ({error})") from error
    heights = {5: "building", 4: "room", 3: "place", 2: "object"}
    nodes, ids = [], {}
    for entry in found.nodes:
        layer = "agent" if isinstance(entry.attributes, dsg.AgentNodeAttributes) else heights.get(entry.layer.layer)
        if layer is not None:
            try:
                node = imported(_node(entry, layer))
            except (*DAMAGED, EngramError) as error:
                raise StoreError(f"{path} node {entry.id.category}{entry.id.category_id}: {error!r}") from error
            nodes.append(node)
            ids[entry.id.value] = node.id
    edges = []
    for entry in found.edges:
        ends = [ids.get(entry.source), ids.get(entry.target)]
        source, relation, *_ = entry.info.metadata.get().get(_KEY, (ends[0], ""))  # files of before have a number more
        if None not in ends and relation:
            target = ends[1] if ends[0] == source else ends[0]
            edges.append(SceneEdge(source, str(target), relation))
    about = found.metadata.get().get(_KEY, {"stamp_ns": 0, "sequence": 1})
    try:
        head = graph_head(about["stamp_ns"], about["sequence"])
    except DAMAGED as error:
        raise StoreError(f"{path}: {error!r}") from error
    return GraphUpdate(*head, True, tuple(nodes), tuple(sorted(edges, key=str)))


def _attributes(dsg: Any, node: SceneNode) -> Any:
    kinds = {"room": dsg.RoomNodeAttributes, "place": dsg.PlaceNodeAttributes, "object": dsg.ObjectNodeAttributes,
             "building": dsg.SemanticNodeAttributes, "agent": dsg.AgentNodeAttributes}  # fmt: skip
    out = kinds[node.layer]()
    out.position = node.pose.position
    out.last_update_time_ns = max(0, node.last_seen_ns)
    out.is_active = node.state == "visible"
    if node.layer == "agent":  # spark_dsg leaves these two as they lie in RAM, and does not read every NaN back
        out.world_R_body = dsg.Quaternion(*node.pose.quaternion.tolist())
        out.external_key = 0
    else:
        turned = rotation(node.pose).as_matrix().astype(np.float32)
        size, centre = node.size.astype(np.float32), node.pose.position.astype(np.float32)
        out.name = node.label
        out.color = np.round(255 * np.clip(node.color, 0, 1)).astype(np.uint8)
        out.bounding_box = dsg.BoundingBox(dsg.BoundingBoxType.OBB, size, centre, turned)
        out.semantic_feature = node.embedding.reshape(-1, 1)
    out.metadata.set({_KEY: {
        "id": node.id, "label": node.label, "frame": node.pose.frame, "quaternion": node.pose.quaternion.tolist(),
        "covariance": node.position_covariance.tolist(), "size": node.size.tolist(), "color": node.color.tolist(),
        "belief": node.belief, "state": node.state, "first_seen_ns": node.first_seen_ns,
        "last_seen_ns": node.last_seen_ns, "observations": node.observations,
        "first_evidence": node.first_evidence, "last_evidence": node.last_evidence,
        "embedding": node.embedding.tolist(),
        "embodiment": None if node.embodiment is None else asdict(node.embodiment),
    }})  # fmt: skip
    return out


def _node(entry: Any, layer: str) -> SceneNode:
    attributes, ours = entry.attributes, entry.attributes.metadata.get().get(_KEY)
    position = np.array(attributes.position, np.float64).ravel()
    if ours is not None:
        pose = Pose(position, np.array(ours["quaternion"]), ours["frame"])
        return SceneNode(
            ours["id"], layer, ours["label"], pose, np.array(ours["covariance"]),
            np.array(ours["size"]), np.array(ours["color"]), np.array(ours["embedding"], np.float32), ours["belief"],
            ours["state"], ours["first_seen_ns"], ours["last_seen_ns"], ours["observations"], ours["first_evidence"],
            ours["last_evidence"], imported_embodiment(ours.get("embodiment")),
        )  # fmt: skip
    size, turn, label = np.full(3, 0.1), Rotation.identity(), layer
    color: np.ndarray = np.full(3, 0.5)
    if layer != "agent":
        label = attributes.name or layer
        color = np.array(attributes.color, np.float64).ravel()[:3] / 255
        if attributes.bounding_box.is_valid():
            size = np.array(attributes.bounding_box.dimensions, np.float64).ravel()
            turn = Rotation.from_matrix(np.array(attributes.bounding_box.world_R_center, np.float64))
    feature = np.array(getattr(attributes, "semantic_feature", ()), np.float32).ravel()
    embedding = feature if feature.shape == (EMBEDDING_DIM,) else np.zeros(EMBEDDING_DIM, np.float32)
    stamp = int(attributes.last_update_time_ns)
    return SceneNode(
        f"{layer}_{entry.id.category}{entry.id.category_id:04d}", layer, label, make_pose(position, turn, "map"),
        np.eye(3) * 1e-2, size, color, embedding, 0.9, "unseen", stamp, stamp, 1,
    )  # fmt: skip
