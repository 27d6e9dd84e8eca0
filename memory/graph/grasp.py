"""Grasps (relation held_by): an object between the closed fingers is held and moves with the hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.geometry import from_frame, make_pose, rotation, to_frame
from engram.core.types import Hand, Pose
from engram.memory.storage.columns import ABSENT, NodeColumns


@dataclass(frozen=True)
class GraspConfig:
    """When a hand holds an object."""

    closed_min: float = 0.1
    """A hand more open than this holds nothing."""
    opens_by: float = 0.1
    """A hand that has opened by so much lets go of what it holds, and takes nothing until it closes again."""
    closed_max: float = 0.97
    """Fingers closed beyond this have nothing between them."""
    reach_m: float = 0.02
    """The tool point may lie this far outside an object's box."""
    size_max_m: float = 0.10
    """What is thicker than this along all three axes does not fit between the fingers."""
    slipped_m: float = 0.08
    """A detection of the object this far from the hand [m] means that it slipped."""


@dataclass(frozen=True)
class Grasp:
    """An object in a hand, and how."""

    node_id: str
    offset: np.ndarray  # (3,) m, in the tool frame
    turn: np.ndarray  # (4,) wxyz, of the object in the tool frame


class Grasps:
    """Which hand holds what. Geometry alone: the tool pose, the fingers' opening and the boxes in memory."""

    def __init__(self, config: GraspConfig) -> None:
        self.config = config
        self._grasps: dict[str, Grasp] = {}
        self._closest: dict[str, float] = {}  # agent -> how far its hand was closed at most since it holds something
        self._widest: dict[str, float] = {}  # agent -> how far its hand was closed at least since it let go

    def holder(self, node_id: str) -> str | None:
        """Return the agent that holds ``node_id``."""
        return next((agent for agent, grip in self._grasps.items() if grip.node_id == node_id), None)

    def held(self, agent: str) -> str | None:
        """Return what ``agent`` holds."""
        grip = self._grasps.get(agent)
        return grip.node_id if grip else None

    def pairs(self) -> list[tuple[str, str]]:
        """Return (agent, node id) of everything that is held."""
        return [(agent, grip.node_id) for agent, grip in self._grasps.items()]

    def carry(self, hand: Hand, columns: NodeColumns) -> tuple[str | None, str | None]:
        """Move what the hand holds along with it; return the ids of what it took and what it let go.

        A hand takes the nearest object whose box holds its tool point, when the fingers have closed on something.
        """
        agent, before = hand.agent, self._grasps.get(hand.agent)
        closed = self.config.closed_min <= hand.closed <= self.config.closed_max
        if before is not None:
            closest = self._closest[agent] = max(hand.closed, self._closest.get(agent, 0.0))
            if closed and hand.closed > closest - self.config.opens_by and before.node_id in columns:
                self._carry(before, hand, columns)
                return None, None
            del self._grasps[agent]
            self._widest[agent] = hand.closed
            return None, before.node_id
        widest = self._widest[agent] = min(hand.closed, self._widest.get(agent, 0.0))
        row = self._between(hand, columns) if closed and hand.closed >= widest + self.config.opens_by else None
        if row is None:
            return None, None
        self._closest[agent] = hand.closed
        node_id = columns.about(row).id
        self.forget(node_id)  # another hand had it until now
        offset = from_frame(columns.position[row], hand.pose)
        object_pose = Pose(columns.position[row], columns.quaternion[row])
        turn = (rotation(hand.pose).inv() * rotation(object_pose)).as_quat(canonical=True, scalar_first=True)
        self._grasps[agent] = Grasp(node_id, offset, turn)
        return node_id, None

    def slipped(self, node_id: str, sight: np.ndarray, expected: np.ndarray) -> bool:
        """Tell whether a sight at (3,) m shows that the hand no longer has ``node_id``, and let it go then."""
        agent = self.holder(node_id)
        if agent is None or np.linalg.norm(sight - expected) <= self.config.slipped_m:
            return False
        del self._grasps[agent]
        return True

    def take_over(self, agent: str, grip: Grasp) -> None:
        """Record that another robot holds something."""
        self._grasps[agent] = grip
        self._closest.pop(agent, None)

    def open(self, agent: str) -> None:
        """Forget what ``agent`` holds."""
        self._grasps.pop(agent, None)

    def forget(self, node_id: str) -> None:
        """Forget the grasp of an object that was removed."""
        agent = self.holder(node_id)
        if agent is not None:
            del self._grasps[agent]

    def as_json(self) -> dict[str, Any]:
        """Return the grasps for the store."""
        return {a: [g.node_id, g.offset.tolist(), g.turn.tolist()] for a, g in self._grasps.items()}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Restore stored grasps."""
        self._grasps = {a: Grasp(n, np.array(offset), np.array(turn)) for a, (n, offset, turn) in stored.items()}

    def _between(self, hand: Hand, columns: NodeColumns) -> int | None:
        point, margin = hand.pose.position, 0.5
        rows = sorted(columns.objects_within(point - margin, point + margin))
        fits = self.config.size_max_m
        rows = [row for row in rows if columns.state[row] != ABSENT and columns.size[row].min() <= fits]
        if not rows:
            return None
        outside = np.abs(columns.position[rows] - point) - columns.half[rows] - self.config.reach_m
        inside = np.flatnonzero((outside <= 0).all(axis=1))
        if not len(inside):
            return None
        apart = np.linalg.norm(columns.position[rows] - point, axis=1)
        return rows[int(inside[np.argmin(apart[inside])])]

    @staticmethod
    def _carry(grip: Grasp, hand: Hand, columns: NodeColumns) -> None:
        row = columns.row_of[grip.node_id]
        turn = rotation(hand.pose) * rotation(Pose(np.zeros(3), grip.turn))
        columns.position[row] = to_frame(grip.offset, hand.pose)
        columns.quaternion[row] = make_pose(np.zeros(3), turn).quaternion
        columns.moved([row])
