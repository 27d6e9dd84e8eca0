"""The MuJoCo model of a robot: what every one provides, and the arm alone for its kinematics.

A robot's ``model`` is called with a render profile and the robot's configuration. The spec that it returns has its
base at the world's origin, joints named as in the configuration, an actuator called like its joint for each of them
(its control is the joint's position), the site ``tool_site`` and the body ``hand_link``. Collision bits: contype
1 and conaffinity 2 touch the things on the table and not the robot itself.
"""

from __future__ import annotations

import functools
from typing import Literal

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.camera import CameraConfig
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.registry import resolve
from engram.core.robot import RobotConfig

Profile = Literal["fast", "photo", "none"]
PROFILES: tuple[str, ...] = ("fast", "photo", "none")
CORNERS = 160
"""Most corners that a simplified mesh keeps."""
ROBOT_CONTYPE, ROBOT_CONAFFINITY = 1, 2
"""Collision bits: the robot touches objects (contype 2, conaffinity 3) and never itself."""


def robot_spec(robot: RobotConfig, profile: Profile = "fast") -> mujoco.MjSpec:
    """Return the editable model of ``robot`` with its cameras, its base at the world's origin.

    Raises:
        InvalidInputError: the robot names no model, or the model lacks what every model provides.
        UnknownNameError: there is no such profile.
    """
    if profile not in PROFILES:
        raise unknown_name("render profile", profile, PROFILES)
    spec = checked_spec(robot, profile)
    for camera in robot.cameras:
        _add_camera(spec, camera, robot)
    return spec


def checked_spec(robot: RobotConfig, profile: Profile) -> mujoco.MjSpec:
    """Return what the robot's ``model`` gives; InvalidInputError unless joints, actuators, tool and hand are there."""
    if not robot.model:
        raise InvalidInputError(f"robot {robot.name!r} cannot be simulated: its configuration names no model")
    spec = resolve("robot model", robot.model, {}, mujoco.MjSpec, profile, robot)
    parts = (
        ("joint", robot.joint_names, [joint.name for joint in spec.joints]),
        ("actuator", robot.joint_names, [actuator.name for actuator in spec.actuators]),
        ("site", (robot.tool_site,), [site.name for site in spec.sites]),
        ("body", (robot.hand_link,), [body.name for body in spec.bodies]),
    )
    for kind, needed, there in parts:
        for name in needed:
            if name not in there:
                raise InvalidInputError(f"model {robot.model!r} has no {kind} {name!r}; it has {', '.join(there)}")
    return spec


def _add_camera(spec: mujoco.MjSpec, camera: CameraConfig, robot: RobotConfig) -> None:
    body = spec.worldbody if camera.fixed else spec.body(camera.frame)
    if body is None:
        links = [body.name for body in spec.bodies[1:]]
        raise unknown_name(f"link of camera {camera.name!r} on robot {robot.name}", camera.frame, ["base_link", *links])
    added = body.add_camera(name=camera.name, pos=camera.position, fovy=camera.fovy_deg)
    added.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
    added.alt.xyaxes = (*camera.right, *camera.up)


def kinematic_spec(robot: RobotConfig) -> mujoco.MjSpec:
    """Return the chain from the base to the tool site alone: no geoms, actuators, or joints but the arm's."""
    spec = checked_spec(robot, "none")
    for group in (spec.actuators, spec.equalities, spec.tendons, spec.sensors, spec.excludes, spec.geoms):
        for element in list(group):
            spec.delete(element)
    chain = _chain(spec, robot.tool_site)
    for body in list(spec.bodies[1:]):
        if body.name not in chain and body.parent.name in ("world", *chain):
            spec.delete(body)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for joint in list(spec.joints):
        if joint.name not in robot.arm_joints:
            spec.delete(joint)
    for name, low, high in zip(robot.arm_joints, robot.position_min, robot.position_max, strict=True):
        spec.joint(name).range, spec.joint(name).limited = [low, high], mujoco.mjtLimited.mjLIMITED_TRUE
    for body in spec.bodies[1:]:
        if body.joints and not body.explicitinertial:  # its mass came from geoms, which are gone: any will do
            body.mass, body.inertia, body.explicitinertial = 1.0, [1.0] * 3, True
    return spec


def _chain(spec: mujoco.MjSpec, site: str) -> set[str]:
    """Return the names of the bodies from the base to the one that carries ``site``."""
    body, names = spec.site(site).parent, set()
    while body is not None and body.name != "world":
        names.add(body.name)
        body = body.parent
    return names


@functools.lru_cache(maxsize=4)
def arm_model(robot: RobotConfig) -> mujoco.MjModel:
    """Return the compiled model of the arm alone; shared, so never to be changed.

    Raises:
        InvalidInputError: the joints between base and tool are not the robot's arm joints, in their order.
    """
    model = kinematic_spec(robot).compile()
    joints = tuple(model.joint(i).name for i in range(model.njnt))
    if joints != robot.arm_joints:
        raise InvalidInputError(
            f"robot {robot.name!r}: between base and {robot.tool_site!r} its model has the joints {', '.join(joints)}, "
            f"expected {', '.join(robot.arm_joints)}"
        )
    return model


def low_poly(spec: mujoco.MjSpec) -> None:
    """Replace every mesh that is shown by the hull of its outermost corners: triangles are what a picture costs."""
    model = spec.compile()
    for index, geom in [(geom.id, geom) for geom in spec.geoms if geom.meshname]:  # ids change with what is deleted
        mesh = int(model.geom_dataid[index])
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        turn = Rotation.from_quat(model.geom_quat[index], scalar_first=True)
        vertices = turn.apply(model.mesh_vert[first : first + count]) + model.geom_pos[index]  # in the body's frame
        hull = spec.add_mesh(name=f"hull_{index}", uservert=outermost(vertices).ravel().tolist())
        rgba = spec.material(geom.material).rgba if geom.material else geom.rgba
        geom.parent.add_geom(
            type=mujoco.mjtGeom.mjGEOM_MESH, meshname=hull.name, rgba=rgba, group=2, contype=0, conaffinity=0, mass=0.0
        )
        spec.delete(geom)
    shown = {geom.meshname for geom in spec.geoms}
    for mesh in [mesh for mesh in spec.meshes if mesh.name not in shown]:
        spec.delete(mesh)


def outermost(vertices: np.ndarray) -> np.ndarray:
    """Return those of ``vertices`` (v, 3) that lie farthest out in one of ``CORNERS`` directions all around."""
    return vertices[np.unique((vertices @ _directions().T).argmax(axis=0))]


@functools.cache
def _directions() -> np.ndarray:
    """Return evenly spread unit vectors (CORNERS, 3) on a spiral from pole to pole."""
    z = 1.0 - (2.0 * np.arange(CORNERS) + 1.0) / CORNERS
    turn = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(CORNERS)
    radius = np.sqrt(1.0 - z**2)
    return np.column_stack((radius * np.cos(turn), radius * np.sin(turn), z))
