"""What the robot's memory has seen and the arm cannot take: obstacles for its motion barrier. No ROS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from engram.core.collision import USUAL_DISTANCES, Obstacle
from engram.core.geometry import rotation
from engram.core.robot import RobotConfig
from engram.core.types import GraphUpdate, SceneNode
from engram.runtime.graph_mirror import GraphMirror

TOPIC = "memory/graph"
BASE = "base_link"
"""Frame of the arm, in which obstacles are told."""
LABEL = "obstacle"
"""An object of this label is one whatever its size."""
BELIEF = 0.5
"""A thing that is believed to be there with less is none."""
SIGMAS = 2.0
"""A box grows by so many standard deviations of the object's position on every side."""
GRID_M = 0.01
"""Positions are rounded to this, and boxes grow by as much: not every sighting changes the obstacles [m]."""
UPRIGHT = 0.995
"""Cosine of the tilt up to which a box keeps its turn; what lies askew becomes the upright box around it."""
BEYOND = 2.0
"""No part of an arm gets farther from its base than so many times as far as its tool point does."""


class KnownObstacles:
    """Follows the scene graph and tells a barrier's obstacles whenever they change.

    Args:
        robot: whose gripper decides what can be taken.
        most: obstacles that there is room for. With more of them in the arm's reach they are not known.
        tell: takes the obstacles, at each change.
    """

    def __init__(self, robot: RobotConfig, most: int, tell: Callable[[Sequence[Obstacle]], None]) -> None:
        self._robot, self._most, self._tell = robot, most, tell
        self._mirror = GraphMirror()
        self._told: tuple[Obstacle, ...] = ()
        self._elsewhere = ""  # frame of objects that cannot be told, as it is not that of the arm; empty: none are
        self._found = 0  # obstacles in reach, those for which there is no room included
        self.lost = True
        """What there is, is not known: only the full graph counts."""

    @property
    def unknown(self) -> str:
        """Why the obstacles are not known; empty: they are."""
        if self.lost:
            return f"{TOPIC} has not told them yet"
        if frame := self._elsewhere[:100]:
            return f"{TOPIC} has objects in frame {frame!r}, expected {BASE!r}: see frame of memory_node"
        if self._found > self._most:
            return f"{TOPIC} has {self._found} obstacles in the arm's reach, there is room for {self._most}"
        return ""

    def take(self, boot_id: str, update: GraphUpdate) -> bool:
        """Take in a change of the graph. True: one before it was lost just now, so the full graph must be asked for."""
        before, self.lost = self.lost, not self._mirror.apply(boot_id, update)
        nodes = self._mirror.nodes.values()
        frames = (node.pose.frame for node in nodes if node.layer == "object" and node.pose.frame != BASE)
        self._elsewhere = next(frames, "")
        found = obstacles(nodes, self._robot)
        self._found, told = len(found), found[: self._most]
        if told != self._told:
            self._told = told
            self._tell(told)
        return self.lost and not before

    def lose(self) -> bool:
        """A change was refused, whatever it said: those told last stand, and only the full graph counts next.

        Returns:
            Whether it must be asked for.
        """
        before, self.lost, self._mirror.boot_id = self.lost, True, ""
        return not before


def obstacles(nodes: Iterable[SceneNode], robot: RobotConfig) -> tuple[Obstacle, ...]:
    """Return the objects among ``nodes`` that ``robot`` cannot take and may touch, as boxes.

    Such are those called ``LABEL``, and those that are wider than the gripper opens in two directions. Left out is what
    no part of the arm reaches: it is too far away, or below the table.
    """
    boxes = (
        _box(node)
        for node in nodes
        if node.layer == "object"
        and node.pose.frame == BASE
        and node.state != "absent"
        and node.belief >= BELIEF
        and (node.label == LABEL or int((node.size > robot.gripper_opening_m).sum()) >= 2)
    )
    return tuple(sorted((box for box in boxes if _may_touch(box, robot)), key=lambda box: box.name))


def _may_touch(box: Obstacle, robot: RobotConfig) -> bool:
    """Tell whether a part of the arm can come to ``box``; it can where the arm's reach is not known."""
    margins = robot.collision or USUAL_DISTANCES
    lowest = min(0.0, margins.table_margin_m, margins.hand_table_margin_m)
    if _ends(box)[1, 2] < lowest - margins.obstacle_margin_m:
        return False
    reach = BEYOND * robot.reach_m + margins.obstacle_margin_m
    nearest = np.clip(0.0, *_ends(box))  # place in the upright box around it, from the base
    return not robot.reach_m or float(np.linalg.norm(nearest)) <= reach


def _ends(box: Obstacle) -> np.ndarray:
    """Return the least and the greatest corner (2, 3) m of the box along the axes of the base around ``box``."""
    cos, sin, (width, depth, height) = abs(math.cos(box.yaw_rad)), abs(math.sin(box.yaw_rad)), box.size
    half = np.array((cos * width + sin * depth, sin * width + cos * depth, height)) / 2.0
    return np.array((box.position - half, box.position + half))


def _box(node: SceneNode) -> Obstacle:
    axes = rotation(node.pose).as_matrix()
    size, yaw = np.maximum(node.size, 1e-3), 0.0
    if axes[2, 2] > UPRIGHT:
        yaw = math.atan2(axes[1, 0], axes[0, 0])
    else:
        size = np.abs(axes) @ size
    turn = np.array([[math.cos(yaw), math.sin(yaw), 0.0], [-math.sin(yaw), math.cos(yaw), 0.0], [0.0, 0.0, 1.0]])
    spread = np.sqrt(np.maximum(np.diag(turn @ node.position_covariance @ turn.T), 0.0))
    grown = (np.ceil((size + 2.0 * SIGMAS * spread) / GRID_M - 1e-6) + 1.0) * GRID_M
    x, y, z = (np.round(node.pose.position / GRID_M) * GRID_M).tolist()
    width, depth, height = grown.tolist()
    return Obstacle(node.id, (x, y, z), (width, depth, height), round(yaw, 2))
