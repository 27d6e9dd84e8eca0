"""Transformation of another robot's nodes, facts, robots and grasps into our frame and ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.geometry import make_pose, rotation
from engram.core.types import SceneNode
from engram.memory.graph.embodiments import Embodiments
from engram.memory.graph.grasp import Grasp, Grasps
from engram.memory.graph.merges import of_another
from engram.memory.graph.tracker import Tracker
from engram.memory.storage.columns import half_extents
from engram.memory.storage.fact_columns import FOREVER, Fact
from engram.memory.storage.history import History
from engram.memory.storage.records import RecordTable, nodes_from
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import Stored


def counterparts(
    tracker: Tracker, stored: Stored, robot: str, transform: PlaneTransform, matched: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """Return their id -> the id here of every node of theirs that is here after the merge."""
    ours = {theirs_id: ours_id for ours_id, theirs_id in matched}
    agents = {about.label: about.id for about in map(tracker.columns.about, tracker.columns.agents)}
    here = {}
    for _, node, _ in nodes_from(stored.tables):
        moved = carried(node, robot, transform, tracker.config.frame)
        if node.layer == "object":
            here[node.id] = ours.get(moved.id, moved.id)
        elif node.layer == "agent":
            here[node.id] = agents.get(node.label, moved.id) if of_another(node.id) else moved.id
        else:
            known = _overlapping(tracker, moved)
            here |= {node.id: known} if known else {}
    return here


def _overlapping(tracker: Tracker, place: SceneNode) -> str:
    """Return the id of our place of that layer and label whose box overlaps that of ``place``, of several the nearest;
    empty = none."""
    columns, kind = tracker.columns, (place.layer, place.label)
    alike = [row for row in sorted(columns.fixed) if (columns.about(row).layer, columns.about(row).label) == kind]
    rows = np.array(alike, np.int64)
    offset = columns.position[rows] - place.pose.position
    reach = columns.half[rows] + half_extents(place.pose.quaternion[None], place.size[None])
    near = np.flatnonzero((np.abs(offset) < reach).all(axis=1))
    if not len(near):
        return ""
    return columns.about(int(rows[near[np.argmin(np.linalg.norm(offset[near], axis=1))]])).id


def take_agents(
    tracker: Tracker, stored: Stored, history: History, robot: str, transform: PlaneTransform, here: Mapping[str, str]
) -> dict[str, str]:
    """Take their robots in that are no robots of ours; return their name -> the id here.

    The robot whose memory it is comes by its own name, or as ``robot`` when that is taken here: two robots that nobody
    named are still two.
    """
    ours = {tracker.columns.about(row).label for row in tracker.columns.agents}
    profiles = Embodiments()
    profiles.restore(RecordTable().restore(stored.tables).get("agents", ()))
    taken = {}
    for _, node, votes in nodes_from(stored.tables):
        if node.layer != "agent" or here[node.id] != f"{robot}/{node.id}":
            continue
        name = robot if node.label in ours else node.label
        body = profiles.at(node.id)
        moved = replace(carried(node, robot, transform, tracker.config.frame), label=name, embodiment=body)
        tracker.scene.put(moved, votes)
        facts = [replace(carried_fact(fact, robot, transform, here), label=name) for fact in history.of(node.id)
                 if fact.believed_to == FOREVER]  # fmt: skip
        tracker.history.restate(facts, moved.id, stored.stamp_ns)
        if body is not None:
            tracker.embodiments.state(moved.id, body, node.first_seen_ns, believed_ns=stored.stamp_ns)
        taken[node.label] = moved.id
    return taken


def take_grips(tracker: Tracker, stored: Stored, here: Mapping[str, str], agents: Mapping[str, str]) -> None:
    """Take over what their robots hold; ``here``: see :func:`counterparts`."""
    held = Grasps(tracker.config.grasp)
    held.restore(stored.about.get("grips", {}))
    for name, node_id in held.pairs():
        if name in agents and node_id in here:
            label = tracker.columns.about(tracker.columns.row_of[agents[name]]).label
            tracker.grasps.take_over(label, Grasp(here[node_id], np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])))


def carried(node: SceneNode, robot: str, transform: PlaneTransform, frame: str) -> SceneNode:
    """Return their node in our frame: less certain by the spread of the landmarks."""
    turn = Rotation.from_euler("z", transform.yaw)
    matrix = turn.as_matrix()
    covariance = matrix @ node.position_covariance @ matrix.T + np.eye(3) * max(transform.spread_m, 0.01) ** 2
    return replace(
        node,
        id=f"{robot}/{node.id}",
        pose=make_pose(transform.apply(node.pose.position), turn * rotation(node.pose), frame),
        position_covariance=covariance,
        state="absent" if node.state == "absent" else "unseen",
        first_evidence=_theirs(node.first_evidence, robot),
        last_evidence=_theirs(node.last_evidence, robot),
    )


def _theirs(evidence: str, robot: str) -> str:
    return f"{robot}/{evidence}" if evidence else ""


def carried_fact(fact: Fact, robot: str, transform: PlaneTransform, here: Mapping[str, str]) -> Fact:
    """Return their fact in our frame; a relation to what is not ``here`` is left out."""
    evidence = tuple(_theirs(name, robot) for name in fact.evidence)
    target = here.get(fact.target, "")
    relation = fact.relation if target else ""
    return replace(fact, place=transform.apply(fact.place), evidence=evidence, relation=relation, target=target)
