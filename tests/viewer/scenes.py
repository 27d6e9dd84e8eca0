"""A small scene for the tests of the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engram.core.robot import PANDA_2F85
from engram.core.types import JointState, Pose, SceneEdge, SceneNode
from engram.viewer.values import Graph

SECOND_NS = 10**9
SIZES = {"table": (0.9, 1.2, 0.04), "kitchen": (2.0, 3.0, 2.5)}


def joints(gripper: float = 0.0) -> JointState:
    """The Panda at home."""
    return JointState(0, PANDA_2F85.joint_names, np.array([*PANDA_2F85.home, gripper]), np.zeros(8))


def scene_node(name: str, label: str, x: float, layer: str = "object", state: str = "visible") -> SceneNode:
    """A node at (x, 0.1, 0.02) m, last seen at 8 s."""
    pose = Pose(np.array([x, 0.1, 0.02]), np.array([1.0, 0, 0, 0]))
    size, color = np.array(SIZES.get(label, (0.04,) * 3)), np.array([0.9, 0.1, 0.1])
    belief = 0.05 if state == "absent" else 0.9
    return SceneNode(
        *(name, layer, label, pose, np.eye(3) * 1e-4, size, color, np.zeros(384, np.float32)),
        *(belief, state, SECOND_NS, 8 * SECOND_NS, 3),
    )


def kitchen_graph(stamp_ns: int = 20 * SECOND_NS) -> Graph:
    """A red cube held by the robot, a cup believed gone, a box on the table in the kitchen."""
    nodes = [
        scene_node("object/1", "red cube", 0.4),
        scene_node("object/2", "cup", 0.5, state="absent"),
        scene_node("object/3", "box", 0.6, state="unseen"),
        scene_node("place/1", "table", 0.5, layer="place"),
        scene_node("room/1", "kitchen", 0.5, layer="room"),
        replace(scene_node("agent/1", "robot_b", 1.5, layer="agent"), embodiment=PANDA_2F85.embodiment()),
    ]
    edges = (
        SceneEdge("object/1", "object/3", "near"),
        SceneEdge("object/1", "agent/1", "held_by"),
        SceneEdge("object/3", "place/1", "on"),
    )
    return Graph({node.id: node for node in nodes}, edges, stamp_ns)
