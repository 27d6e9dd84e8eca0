"""The shapes that a robot can collide with itself, its table and known obstacles in: one convex hull for each link."""

from __future__ import annotations

import functools

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError

from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.sim.robots.model import checked_spec

TABLE = "barrier_table"
OBSTACLE = "barrier_obstacle_"
OBSTACLES_MAX = 16
"""Boxes that there is room for."""
FAR = (0.0, 0.0, -100.0)
"""Where the boxes are that are not used [m]."""

HIDDEN = 3
"""Geoms of this group and above are not shown; they count where a body has nothing else."""


@functools.lru_cache(maxsize=4)
def collision_model(robot: RobotConfig) -> mujoco.MjModel:
    """Return the compiled chain of links, each with a convex hull around its shapes, a table and room for obstacles.

    The hulls are called like the first body of their rigid part, the table's top ``TABLE``, the boxes ``OBSTACLE`` and
    a number; they are far away until somebody puts them somewhere. Shared, so never to be changed: copy it.

    Raises:
        InvalidInputError: the robot's model has no shapes.
    """
    spec = checked_spec(robot, "photo")
    hulls = _part_hulls(spec)
    if not hulls:
        raise InvalidInputError(f"robot {robot.name!r}: its model {robot.model!r} has no geoms to keep apart")
    for group in (spec.actuators, spec.tendons, spec.sensors, spec.excludes, spec.geoms, spec.cameras, spec.lights):
        for element in list(group):
            spec.delete(element)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for body in spec.bodies[1:]:
        if not body.explicitinertial:  # its mass came from geoms, which are gone: any will do
            body.mass, body.inertia, body.explicitinertial = 1.0, [1.0] * 3, True
        if body.name in hulls:
            spec.add_mesh(name=body.name, uservert=hulls[body.name].ravel().tolist())
            body.add_geom(name=body.name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=body.name, mass=0.0)
    low = (*robot.position_min, min(robot.gripper_open, robot.gripper_closed))
    high = (*robot.position_max, max(robot.gripper_open, robot.gripper_closed))
    for name, least, most in zip(robot.joint_names, low, high, strict=True):
        spec.joint(name).range, spec.joint(name).limited = [least, most], mujoco.mjtLimited.mjLIMITED_TRUE
    spec.worldbody.add_geom(name=TABLE, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1.0])
    for i in range(OBSTACLES_MAX):
        spec.worldbody.add_geom(name=f"{OBSTACLE}{i}", type=mujoco.mjtGeom.mjGEOM_BOX, size=[1e-3] * 3, pos=FAR)
    return spec.compile()


def _part_hulls(spec: mujoco.MjSpec) -> dict[str, np.ndarray]:
    """Return the corners (v, 3) m of the convex hull of each rigid part, in the frame of its first body.

    Bodies without a joint between them are one part, called like the first of them.
    """
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    shown = {int(model.geom_bodyid[g]) for g in range(model.ngeom) if model.geom_group[g] < HIDDEN}
    shapes: dict[int, list[np.ndarray]] = {}
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if body in shown and model.geom_group[geom] >= HIDDEN:  # what touches things is simpler than what is there
            continue
        part = int(model.body_weldid[body] or _below_world(model, body))
        corners = _corners(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        shapes.setdefault(part, []).append((corners - data.xpos[part]) @ data.xmat[part].reshape(3, 3))
    return {model.body(part).name: _hull(np.concatenate(found)) for part, found in shapes.items() if part > 0}


def _below_world(model: mujoco.MjModel, body: int) -> int:
    while model.body_parentid[body] > 0:
        body = model.body_parentid[body]
    return body


def _hull(points: np.ndarray) -> np.ndarray:
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:  # flat: MuJoCo needs a volume
        thick = np.concatenate([points + offset for offset in 1e-3 * np.vstack((np.eye(3), -np.eye(3)))])
        return thick[ConvexHull(thick).vertices]


def _corners(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return points (v, 3) m, in the geom's frame, whose convex hull encloses it."""
    size, kind = model.geom_size[geom], mujoco.mjtGeom(model.geom_type[geom])
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return np.asarray(model.mesh_vert[first : first + model.mesh_vertnum[mesh]], np.float64)
    shapes = mujoco.mjtGeom
    half = {
        shapes.mjGEOM_SPHERE: (size[0],) * 3,
        shapes.mjGEOM_CAPSULE: (size[0], size[0], size[1] + size[0]),
        shapes.mjGEOM_CYLINDER: (size[0], size[0], size[1]),
    }.get(kind, tuple(size))
    return np.array(np.meshgrid(*[(-h, h) for h in half])).reshape(3, -1).T


def coupled(model: mujoco.MjModel, robot: RobotConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return how all joints follow from those of the robot: ``qpos = offset + matrix @ positions``.

    (nq,) and (nq, n): what the model's joint equalities say, to first order; joints of neither stay where they begin.
    """
    n = len(robot.joint_names)
    offset, matrix = model.qpos0.copy(), np.zeros((model.nq, n))
    for column, name in enumerate(robot.joint_names):
        address = model.joint(name).qposadr[0]
        offset[address], matrix[address, column] = 0.0, 1.0
    for _ in range(model.neq):  # a joint may follow one that follows another
        for i in range(model.neq):
            if model.eq_type[i] != mujoco.mjtEq.mjEQ_JOINT or model.eq_obj2id[i] < 0:
                continue
            follower, leader = (model.jnt_qposadr[j[i]] for j in (model.eq_obj1id, model.eq_obj2id))
            start, ratio = model.eq_data[i, :2]
            offset[follower] = model.qpos0[follower] + start + ratio * (offset[leader] - model.qpos0[leader])
            matrix[follower] = ratio * matrix[leader]
    return offset, matrix


def link_pairs(model: mujoco.MjModel, robot: RobotConfig) -> list[tuple[int, int]]:
    """Return the pairs of geoms of links that can meet.

    Not those of one rigid part, of neighbours in the chain, or of two parts of the hand.
    """
    links = [g for g in range(model.ngeom) if model.geom_bodyid[g] > 0]
    weld = model.body_weldid
    hand = subtree(model, int(weld[model.body(robot.hand_link).id]))
    pairs = []
    for i, a in enumerate(links):
        for b in links[i + 1 :]:
            one, other = int(weld[model.geom_bodyid[a]]), int(weld[model.geom_bodyid[b]])
            neighbours = weld[model.body_parentid[one]] == other or weld[model.body_parentid[other]] == one
            within_hand = {int(model.geom_bodyid[a]), int(model.geom_bodyid[b])} <= hand
            if one != other and not neighbours and not within_hand:
                pairs.append((a, b))
    return pairs


def subtree(model: mujoco.MjModel, root: int) -> set[int]:
    """Return the bodies at and below ``root``."""
    inside = {root}
    for body in range(root + 1, model.nbody):
        if int(model.body_parentid[body]) in inside:
            inside.add(body)
    return inside
