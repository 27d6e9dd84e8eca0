"""The Panda arm with a Robotiq 2F-85, from the gym-hil wheel, edited at load with ``mujoco.MjSpec``.

The physics is the same in every render profile: position servos, gravity compensation, collisions on the hand only,
and the gripper's four-bar linkages closed by joint equalities (they are parallelograms: the finger pads keep their
direction). Only the visual geoms differ: fitted primitives (``fast``), the maker's meshes (``photo``).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco

from engram.core.errors import EngramError
from engram.core.robot import RobotConfig
from engram.sim.robots.model import ROBOT_CONAFFINITY, ROBOT_CONTYPE, Profile

TOOL_OFFSET_M = 0.150
"""Tool point along the gripper's axis: finger tips end 12 mm beyond it when they hold a 4 cm cube [m]."""
SERVO_STIFFNESS = (9000.0, 9000.0, 6000.0, 6000.0, 1500.0, 1500.0, 1000.0)
"""Position gain per arm joint [N m/rad]."""
SERVO_LAG_S = 0.02
"""Damping over stiffness: how far a servo trails a moving target that is not fed forward [s]."""
EFFORT_MAX = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
"""Torque limits per arm joint [N m], Franka datasheet."""

_GRIPPER_COUPLING = {  # joint -> ratio to the right driver's angle
    "right_spring_link_joint": 1.0,
    "right_follower_joint": -1.0,
    "left_driver_joint": 1.0,
    "left_spring_link_joint": 1.0,
    "left_follower_joint": -1.0,
}
_FAST_ARM = {  # link -> (primitive fitted to its collision meshes, colour)
    "link0": (mujoco.mjtGeom.mjGEOM_BOX, (0.90, 0.92, 0.93, 1.0)),
    "link1": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.95, 0.95, 0.95, 1.0)),
    "link2": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.88, 0.88, 0.90, 1.0)),
    "link3": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.95, 0.95, 0.95, 1.0)),
    "link4": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.88, 0.88, 0.90, 1.0)),
    "link5": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.95, 0.95, 0.95, 1.0)),
    "link6": (mujoco.mjtGeom.mjGEOM_BOX, (0.88, 0.88, 0.90, 1.0)),
    "link7": (mujoco.mjtGeom.mjGEOM_CAPSULE, (0.30, 0.30, 0.32, 1.0)),
}


def assets_dir() -> Path:
    """Return the folder of the robot's model files; raises EngramError when gym-hil is not installed."""
    found = importlib.util.find_spec("gym_hil")
    if found is None or not found.submodule_search_locations:
        raise EngramError("the Panda's model comes from the package gym-hil, which is not installed: uv sync")
    return Path(found.submodule_search_locations[0]) / "assets"


def panda_spec(profile: Profile, robot: RobotConfig) -> mujoco.MjSpec:
    """Return the editable model of the arm and gripper, its base at the world's origin.

    See :mod:`engram.sim.robots.model` for what it provides.
    """
    spec = mujoco.MjSpec.from_file(str(assets_dir() / "panda.xml"))
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    for exclude in list(spec.excludes):
        spec.delete(exclude)
    _explicit_inertia(spec)
    _close_linkage(spec, robot)
    _replace_actuators(spec, robot)
    spec.body(robot.hand_link).add_site(name=robot.tool_site, pos=[0, 0, TOOL_OFFSET_M], size=[0.004] * 3, group=4)
    _set_geoms(spec, profile, robot.hand_link)
    for body in spec.bodies[1:]:
        body.gravcomp = 1.0
    return spec


def _explicit_inertia(spec: mujoco.MjSpec) -> None:
    """Give the two bodies whose mass came from visual meshes fixed numbers: profiles must not change the physics."""
    mount = spec.body("base_mount")
    mount.mass, mount.inertia, mount.explicitinertial = 0.15, [1.0e-4, 5.4e-5, 5.2e-5], True
    for side in ("right", "left"):
        pad = spec.body(f"{side}_silicone_pad")
        pad.mass, pad.inertia, pad.explicitinertial = 0.0013, [2.0e-7, 1.5e-7, 5.2e-8], True
        pad.ipos = [0, -0.0058, 0.0185]


def _close_linkage(spec: mujoco.MjSpec, robot: RobotConfig) -> None:
    """Weld the couplers to their drivers and couple the other gripper joints to the right driver."""
    for element in (*spec.equalities, *spec.tendons, *spec.actuators):
        spec.delete(element)
    for side in ("right", "left"):
        spec.delete(spec.joint(f"{side}_coupler_joint"))
    spec.joint("right_driver_joint").name = robot.gripper_joint
    for name, ratio in _GRIPPER_COUPLING.items():
        joint = spec.joint(name)
        joint.stiffness, joint.limited = [0.0, 0.0, 0.0], mujoco.mjtLimited.mjLIMITED_FALSE
        joint.armature, joint.damping = 0.001, [0.02, 0.0, 0.0]
        equality = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, name1=name, name2=robot.gripper_joint)
        equality.data[:5] = [0, ratio, 0, 0, 0]
        equality.solref, equality.solimp = [0.005, 1], [0.95, 0.99, 0.001, 0.5, 2]


def _replace_actuators(spec: mujoco.MjSpec, robot: RobotConfig) -> None:
    for name, stiffness, effort in zip(robot.arm_joints, SERVO_STIFFNESS, EFFORT_MAX, strict=True):
        servo = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=stiffness, kv=stiffness * SERVO_LAG_S)
        servo.forcerange, servo.forcelimited = [-effort, effort], mujoco.mjtLimited.mjLIMITED_TRUE
    drivers = spec.add_tendon(name="drivers")  # the motor drives both fingers alike
    for joint in (robot.gripper_joint, "left_driver_joint"):
        drivers.wrap_joint(joint, 0.5)
    servo = spec.add_actuator(name=robot.gripper_joint, target="drivers", trntype=mujoco.mjtTrn.mjTRN_TENDON)
    servo.set_to_position(kp=40.0, kv=1.5)
    servo.forcerange, servo.forcelimited = [-5.0, 5.0], mujoco.mjtLimited.mjLIMITED_TRUE


def _set_geoms(spec: mujoco.MjSpec, profile: Profile, hand: str) -> None:
    """Keep the collisions of hand and pads; make the rest visual only, in the shape that ``profile`` wants."""
    for geom in list(spec.geoms):
        geom.mass = 0.0
        visual = geom.group == 2
        pad = geom.name.endswith(("_pad1", "_pad2"))
        body = geom.parent.name
        if pad:
            geom.group = 3 if profile == "photo" else 2
            geom.rgba = [0.12, 0.12, 0.12, 1.0]
            geom.condim, geom.friction = 4, [1.0, 0.02, 0.0001]
            geom.contype, geom.conaffinity = ROBOT_CONTYPE, ROBOT_CONAFFINITY
        elif not visual and body in (hand, "link7"):
            _fit(geom, mujoco.mjtGeom.mjGEOM_CAPSULE if body == "link7" else mujoco.mjtGeom.mjGEOM_BOX)
            geom.contype, geom.conaffinity = ROBOT_CONTYPE, ROBOT_CONAFFINITY
            geom.group = 3 if profile == "photo" else 2
            geom.rgba = [0.3, 0.3, 0.32, 1.0] if body == "link7" else [0.15, 0.15, 0.16, 1.0]
        elif visual == (profile == "photo"):
            geom.contype, geom.conaffinity, geom.group = 0, 0, 2
            if profile != "photo":
                _fit(geom, _FAST_ARM.get(body, (mujoco.mjtGeom.mjGEOM_BOX,))[0])
                geom.rgba = _FAST_ARM.get(body, (None, (0.35, 0.35, 0.37, 1.0)))[1]
        else:
            spec.delete(geom)
    _bake(spec)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)


def _fit(geom: mujoco.MjsGeom, shape: mujoco.mjtGeom) -> None:
    geom.type = shape
    geom.material = ""


def _bake(spec: mujoco.MjSpec) -> None:
    """Replace each primitive that the compiler fits to a mesh by a plain one with its numbers: the mesh is not kept.

    The geom itself is replaced: one that once named a mesh is moved by the mesh's offset again at the next compile.
    """
    fitted = [geom for geom in spec.geoms if geom.meshname and geom.type != mujoco.mjtGeom.mjGEOM_MESH]
    model = spec.compile()
    numbers = [(model.geom_size[geom.id], model.geom_pos[geom.id], model.geom_quat[geom.id]) for geom in fitted]
    for geom, (size, pos, quat) in zip(fitted, numbers, strict=True):
        geom.parent.add_geom(
            type=geom.type,
            size=size,
            pos=pos,
            quat=quat,
            rgba=geom.rgba,
            group=geom.group,
            contype=geom.contype,
            conaffinity=geom.conaffinity,
            condim=geom.condim,
            friction=geom.friction,
            mass=0.0,
        )
        spec.delete(geom)
