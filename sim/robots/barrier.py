"""Keeps a robot apart from itself, its table and obstacles, by the shapes of its simulated model.

A quadratic program bends a step so that it keeps the margins to first order. Whatever comes out is certified before it
is commanded: see :mod:`engram.sim.robots.certificate`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import daqp
import mujoco
import numpy as np

from engram.core.collision import CollisionConfig, Obstacle
from engram.core.contracts import Follow, MotionBarrier
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.sim.robots.certificate import Certificate
from engram.sim.robots.collision_model import FAR, OBSTACLE, OBSTACLES_MAX, TABLE, collision_model, link_pairs, subtree
from engram.sim.robots.separation import Separation

ROUNDS = 4
"""Quadratic programs solved at most; each knows the directions that the ones before it found too near."""


class ModelBarrier(MotionBarrier):
    """Convex hulls of the links, distances by MuJoCo, quadratic programs by daqp."""

    def __init__(self, robot: RobotConfig) -> None:
        if robot.collision is None:
            raise InvalidInputError(f"robot {robot.name!r}: its collision is None, expected a CollisionConfig")
        self._fixed = robot.collision.obstacles
        if self.obstacles_max < 0:
            raise InvalidInputError(f"robot {robot.name!r}: {len(self._fixed)} obstacles, at most {OBSTACLES_MAX}")
        self._model = copy.copy(collision_model(robot))
        pairs, self._margins = _pairs(self._model, robot, robot.collision)
        self._separation = Separation(self._model, robot, pairs)
        self._names = {geom: self._model.geom(geom).name for geom in range(self._model.ngeom)}
        self._names[self._model.geom(TABLE).id] = "table"
        self._nearest = ""
        self.set_obstacles(())

    @property
    def nearest(self) -> str:
        """Return what the last call of :meth:`limit` kept apart; empty: nothing was in the way."""
        return self._nearest

    @property
    def obstacles_max(self) -> int:
        """Return how many obstacles there is room for, besides those of the robot's configuration."""
        return OBSTACLES_MAX - len(self._fixed)

    def set_obstacles(self, obstacles: Sequence[Obstacle]) -> None:
        """Put the robot's own and these ``obstacles`` into the scene.

        Raises:
            InvalidInputError: there are more than there is room for.
        """
        if len(obstacles) > self.obstacles_max:
            raise InvalidInputError(f"{len(obstacles)} obstacles, expected at most {self.obstacles_max}")
        boxes = (*self._fixed, *obstacles)
        geoms = [self._model.geom(f"{OBSTACLE}{i}").id for i in range(OBSTACLES_MAX)]
        used, unused = geoms[: len(boxes)], geoms[len(boxes) :]
        for geom, box in zip(used, boxes, strict=True):
            _place(self._model, geom, box)
            self._names[geom] = box.name
        self._model.geom_pos[unused] = FAR
        self._separation.refresh(used)
        self._used = np.flatnonzero(~np.isin(self._separation.first, unused))

    def limit(self, start: np.ndarray, goal: np.ndarray, follow: Follow) -> np.ndarray | None:
        """Return ``goal`` if the way to it is certified, else the nearest positions (n,) whose way is; or None."""
        certificate = Certificate(self._separation, self._margins, self._used, start)
        self._nearest = ""
        way = follow(goal)
        if certificate.holds(way):
            return goal
        self._nearest = self._pair_name(certificate.worst)
        for from_start in (False, True):
            safe = self._bent(certificate, goal, way, follow, from_start)
            if safe is not None:
                return safe
        return None

    def _bent(
        self, certificate: Certificate, goal: np.ndarray, way: Sequence[np.ndarray], follow: Follow, from_start: bool
    ) -> np.ndarray | None:
        """Return positions (n,) near ``goal`` whose way is certified, if quadratic programs find any."""
        start, asked = certificate.start, goal
        rows, least = np.zeros((0, len(start))), np.zeros(0)
        for round_ in range(ROUNDS):
            more, more_least = certificate.constraints(asked, way, from_start=from_start and round_ == 0)
            rows, least = np.concatenate((rows, more)), np.concatenate((least, more_least))
            found = _nearest(start, goal, rows, least)
            if found is None:
                return None
            asked, way = found, follow(found)
            if certificate.holds(way):
                return asked
        return None

    def _pair_name(self, pair: int) -> str:
        ends = int(self._separation.second[pair]), int(self._separation.first[pair])
        return "/".join(self._names[geom] for geom in ends)


def _pairs(
    model: mujoco.MjModel, robot: RobotConfig, config: CollisionConfig
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return the pairs of geoms (p, 2) that are kept apart, and by how much (p,) m."""
    hand = subtree(model, int(model.body_weldid[model.body(robot.hand_link).id]))
    links = [geom for geom in range(model.ngeom) if model.body_weldid[model.geom_bodyid[geom]] > 0]
    pairs = [(pair, config.self_margin_m) for pair in link_pairs(model, robot)]
    for link in links:
        in_hand = int(model.geom_bodyid[link]) in hand
        table = config.hand_table_margin_m if in_hand else config.table_margin_m
        pairs.append(((model.geom(TABLE).id, link), table))
    for i in range(OBSTACLES_MAX):
        obstacle = model.geom(f"{OBSTACLE}{i}").id
        pairs += [((obstacle, link), config.obstacle_margin_m) for link in links]
    return [pair for pair, _ in pairs], np.array([margin for _, margin in pairs])


def _place(model: mujoco.MjModel, geom: int, box: Obstacle) -> None:
    half = np.divide(box.size, 2.0)
    model.geom_pos[geom], model.geom_size[geom] = box.position, half
    model.geom_sameframe[geom] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE  # else MuJoCo skips the turn
    model.geom_quat[geom] = np.cos(box.yaw_rad / 2), 0.0, 0.0, np.sin(box.yaw_rad / 2)
    model.geom_aabb[geom], model.geom_rbound[geom] = (0.0, 0.0, 0.0, *half), np.linalg.norm(half)


def _nearest(start: np.ndarray, goal: np.ndarray, rows: np.ndarray, least: np.ndarray) -> np.ndarray | None:
    """Return the positions (n,) nearest to ``goal`` with ``rows @ positions >= least``, if any.

    No arm joint goes farther from ``start`` than the farthest goes to ``goal``; the gripper stays between the two.
    """
    step = np.abs(goal - start)[:-1].max()
    low = np.append(start[:-1] - step, min(start[-1], goal[-1]))
    high = np.append(start[:-1] + step, max(start[-1], goal[-1]))
    upper, lower = np.concatenate((high, np.full(len(least), 1e30))), np.concatenate((low, least))
    sense = np.zeros(len(upper), np.int32)
    found, _, exit_flag, _ = daqp.solve(np.eye(len(goal)), -goal, np.ascontiguousarray(rows), upper, lower, sense)
    return np.clip(found, low, high) if exit_flag > 0 else None
