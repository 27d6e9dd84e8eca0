"""Tabletop scenes: which things are on the table, built as one MuJoCo model with the robot.

The table's top is z = 0 of ``base_link``. Agents are named as in :class:`SceneConfig` (``bin``, ``drawer``,
``handle``, ``mark``, ``table`` besides); joints of drawers and buttons carry their body's name. A geom whose name ends
with ``_fixed`` keeps its colour when its body is painted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import mujoco
import numpy as np

from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.props import Prop, add_prop
from engram.sim.robots.model import Profile, robot_spec

CUBE_HALF_M = 0.02
CUP_HEIGHT_M, CUP_RADIUS_M = 0.08, 0.03
BIN_HALF_M = 0.08
"""Half of the bin's outer width and depth [m]."""
DRAWER_TRAVEL_M = 0.15
BELT_TOP_M, BELT_TRAVEL_M = 0.008, 0.36
"""Height of what a thing on the belt stands on, and how far it goes [m]."""
BUTTON_TRAVEL_M = 0.012
TIMESTEP_S = 0.0025
OBJECT_BITS = {"contype": 2, "conaffinity": 3}
PALETTE = (
    (0.85, 0.10, 0.10, 1.0),
    (0.10, 0.30, 0.90, 1.0),
    (0.10, 0.65, 0.20, 1.0),
    (0.95, 0.80, 0.10, 1.0),
    (0.60, 0.20, 0.75, 1.0),
)
"""Default colours of cubes, cups and buttons, in turn."""
_BOX, _CYLINDER, _SPHERE = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_SPHERE)
_GREY, _WOOD = (0.35, 0.35, 0.38, 1.0), (0.55, 0.40, 0.26, 1.0)


@dataclass(frozen=True)
class SceneConfig:
    """What stands on the table; body names are free except those of ``bin``, ``drawer`` and ``mark``."""

    cubes: tuple[str, ...] = ()
    """4 cm cubes that move freely; cubes, bin and mark are of the size that the robot's table has."""
    cups: tuple[str, ...] = ()
    """Open cups, 6 cm wide and 8 cm high, that move freely."""
    bin: bool = False
    """A shallow open box, 16 cm square, fixed to the table: body ``bin``."""
    drawer: bool = False
    """A cabinet whose drawer slides out towards its local -x: bodies ``cabinet``, ``drawer``, ``handle``."""
    drawers: tuple[str, ...] = ()
    """Narrower cabinets of the same kind, one for each drawer: bodies ``<name>_cabinet``, ``<name>`` and
    ``<name>_handle``."""
    buttons: tuple[str, ...] = ()
    """Domes on springs, 12 mm of travel: the joint of the same name counts metres down."""
    belt: bool = False
    """A plate that a motor drives towards local -x: body, joint and actuator (its control is the speed) ``belt``."""
    mark: bool = False
    """A flat disc without collisions, 8 cm wide: body ``mark``."""
    props: tuple[Prop, ...] = ()
    """Things that the task's script moves; out of sight until it does."""


def build_scene(config: SceneConfig, profile: Profile = "fast", robot: RobotConfig = PANDA_2F85) -> mujoco.MjSpec:
    """Return the editable model of robot, table, cameras, lights and the things of ``config``."""
    spec, table = robot_spec(robot, profile), robot.table
    spec.modelname = "engram_tabletop"
    _set_options(spec, profile)
    _add_room(spec)
    for i, name in enumerate(config.cubes):
        xy = table.place((0.42 + 0.09 * (i // 4), -0.18 + 0.12 * (i % 4)))
        _add_cube(spec, name, xy, PALETTE[i % len(PALETTE)], table.scale)
    for i, name in enumerate(config.cups):
        _add_cup(spec, name, (0.60, -0.18 + 0.12 * i), PALETTE[(i + 2) % len(PALETTE)])
    for i, name in enumerate(config.buttons):
        _add_button(spec, name, (0.50, -0.15 + 0.15 * i), PALETTE[i % len(PALETTE)])
    if config.bin:
        _add_bin(spec, table.place((0.52, 0.14)), table.scale)
    if config.drawer:
        _add_drawer(spec, (0.60, 0.0), "cabinet", "drawer", "handle", 0.10)
    for i, name in enumerate(config.drawers):
        _add_drawer(spec, (0.60, 0.125 * i), f"{name}_cabinet", name, f"{name}_handle", 0.06)
    if config.belt:
        _add_belt(spec, (0.76, 0.0))
    if config.mark:
        _add_mark(spec, table.place((0.55, -0.12)), table.scale)
    for prop in config.props:
        add_prop(spec, prop)
    return spec


@functools.lru_cache(maxsize=32)
def compiled_scene(
    config: SceneConfig, profile: Profile, timestep_s: float = TIMESTEP_S, robot: RobotConfig = PANDA_2F85
) -> mujoco.MjModel:
    """Return the compiled model of a scene, made once a process: copy it before you change it."""
    spec = build_scene(config, profile, robot)
    spec.option.timestep = timestep_s
    return spec.compile()


def _set_options(spec: mujoco.MjSpec, profile: Profile) -> None:
    spec.option.timestep = TIMESTEP_S
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0  # a held cube must not creep out of the fingers
    spec.visual.quality.shadowsize = 2048 if profile == "photo" else 0
    spec.visual.quality.offsamples = 4 if profile == "photo" else 0
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1280, 960
    spec.visual.headlight.ambient = [0.35] * 3
    spec.visual.headlight.diffuse = [0.35] * 3
    spec.visual.headlight.specular = [0.0] * 3
    spec.visual.map.znear, spec.visual.map.zfar = 0.01, 10.0
    spec.stat.extent, spec.stat.center = 1.0, [0.5, 0.0, 0.1]


def _add_room(spec: mujoco.MjSpec) -> None:
    table = spec.worldbody.add_body(name="table")
    table.add_geom(
        name="table_fixed",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[2.0, 2.0, 0.1],
        rgba=[0.78, 0.76, 0.72, 1.0],
        **OBJECT_BITS,
    )
    spec.worldbody.add_light(
        name="lamp", pos=[0.3, 0.6, 1.8], dir=[0.1, -0.3, -1.0], diffuse=[0.45] * 3, specular=[0.1] * 3, castshadow=True
    ).type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL


def _add_cube(spec: mujoco.MjSpec, name: str, xy: np.ndarray, rgba: tuple[float, ...], scale: float) -> None:
    half, mass = CUBE_HALF_M * scale, 0.05 * scale**3
    body = spec.worldbody.add_body(name=name, pos=[*xy, half])
    body.add_freejoint(name=name)
    body.add_geom(type=_BOX, size=[half] * 3, mass=mass, rgba=rgba, friction=[0.8, 0.01, 0.0001], **OBJECT_BITS)


def _add_cup(spec: mujoco.MjSpec, name: str, xy: tuple[float, float], rgba: tuple[float, ...]) -> None:
    """A floor and eight staves; the origin is the middle of the floor's underside."""
    body = spec.worldbody.add_body(name=name, pos=[*xy, 0.0])
    body.add_freejoint(name=name)
    wall, floor = 0.002, 0.003
    middle = CUP_RADIUS_M - wall
    common = {"rgba": rgba, "friction": [0.8, 0.01, 0.0001], **OBJECT_BITS}
    body.add_geom(type=_CYLINDER, size=[CUP_RADIUS_M, floor, 0], pos=[0, 0, floor], mass=0.03, **common)
    for i in range(8):
        angle = 2.0 * np.pi * i / 8
        body.add_geom(
            type=_BOX,
            size=[wall, middle * np.tan(np.pi / 8), CUP_HEIGHT_M / 2 - floor],
            pos=[middle * np.cos(angle), middle * np.sin(angle), CUP_HEIGHT_M / 2 + floor],
            quat=[np.cos(angle / 2), 0, 0, np.sin(angle / 2)],
            mass=0.004,
            **common,
        )


def _add_bin(spec: mujoco.MjSpec, xy: np.ndarray, scale: float) -> None:
    """The origin is the middle of the floor's underside."""
    body = spec.worldbody.add_body(name="bin", pos=[*xy, 0.0])
    common = {"type": _BOX, "rgba": (0.30, 0.32, 0.36, 1.0), **OBJECT_BITS}
    half, wall, height, floor = BIN_HALF_M * scale, 0.004 * scale, 0.02 * scale, 0.002 * scale
    body.add_geom(size=[half, half, floor], pos=[0, 0, floor], **common)
    for sign in (-1, 1):
        body.add_geom(size=[wall, half, height], pos=[sign * (half - wall), 0, height], **common)
        body.add_geom(size=[half, wall, height], pos=[0, sign * (half - wall), height], **common)


def _add_drawer(
    spec: mujoco.MjSpec, xy: tuple[float, float], cabinet_name: str, drawer_name: str, handle_name: str, width: float
) -> None:
    """The origins of cabinet and closed drawer are the foot of the drawer's front; the handle's is its middle.

    ``width`` is half of the cabinet's [m].
    """
    cabinet = spec.worldbody.add_body(name=cabinet_name, pos=[*xy, 0.0])
    depth, height, wall = 0.17, 0.09, 0.005
    common = {"type": _BOX, "rgba": _WOOD, **OBJECT_BITS}
    for sign in (-1, 1):
        cabinet.add_geom(
            size=[depth / 2, wall, height / 2], pos=[depth / 2, sign * (width - wall), height / 2], **common
        )
    cabinet.add_geom(size=[depth / 2, width, wall], pos=[depth / 2, 0, height - wall], **common)
    cabinet.add_geom(size=[wall, width, height / 2], pos=[depth - wall, 0, height / 2], **common)
    drawer = cabinet.add_body(name=drawer_name)
    drawer.add_joint(
        name=drawer_name,
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[-1, 0, 0],
        range=[0, DRAWER_TRAVEL_M],
        damping=[4.0, 0.0, 0.0],
        frictionloss=1.0,
        armature=0.1,
    )
    common["rgba"] = (0.80, 0.66, 0.45, 1.0)
    inner = width - 2 * wall - 0.003
    drawer.add_geom(size=[0.005, inner, 0.036], pos=[0.005, 0, 0.041], mass=0.1, **common)
    drawer.add_geom(size=[0.075, inner, 0.002], pos=[0.08, 0, 0.007], mass=0.1, **common)
    for sign in (-1, 1):
        drawer.add_geom(size=[0.075, 0.003, 0.02], pos=[0.08, sign * (inner - 0.003), 0.027], mass=0.05, **common)
    handle = drawer.add_body(name=handle_name, pos=[-0.05, 0, 0.06])
    common["rgba"] = (0.15, 0.15, 0.17, 1.0)
    handle.add_geom(size=[0.02, 0.006, 0.006], pos=[0.03, 0, -0.015], mass=0.02, **common)
    handle.add_geom(size=[0.011, 0.011, 0.03], mass=0.05, friction=[1.0, 0.01, 0.0001], **common)
    for inside in (drawer_name, handle_name):
        spec.add_exclude(bodyname1=cabinet_name, bodyname2=inside)


def _add_button(spec: mujoco.MjSpec, name: str, xy: tuple[float, float], rgba: tuple[float, ...]) -> None:
    """The origin is the foot of the housing; the dome's top is 34 mm above it."""
    housing = spec.worldbody.add_body(name=name, pos=[*xy, 0.0])
    housing.add_geom(
        name=f"{name}_fixed", type=_CYLINDER, size=[0.032, 0.007, 0], pos=[0, 0, 0.007], rgba=_GREY, **OBJECT_BITS
    )
    cap = housing.add_body(name=f"{name}_cap", pos=[0, 0, 0.012])
    cap.add_joint(
        name=name,
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[0, 0, -1],
        range=[0, BUTTON_TRAVEL_M],
        stiffness=[150.0, 0.0, 0.0],
        springref=-0.004,
        damping=[2.0, 0.0, 0.0],
        armature=0.02,
    )
    cap.add_geom(type=_SPHERE, size=[0.022, 0, 0], mass=0.02, rgba=rgba, **OBJECT_BITS)
    for around in (name, "table"):  # the dome's lower half is inside the housing
        spec.add_exclude(bodyname1=around, bodyname2=f"{name}_cap")


def _add_belt(spec: mujoco.MjSpec, xy: tuple[float, float]) -> None:
    """The origin is on the table, under the middle of the plate."""
    belt = spec.worldbody.add_body(name="belt", pos=[*xy, 0.0])
    plate = belt.add_body(name="belt_plate")
    plate.add_joint(
        name="belt", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[-1, 0, 0], range=[0, BELT_TRAVEL_M], armature=0.1
    )
    plate.add_geom(
        type=_BOX, size=[0.03, 0.026, 0.002], pos=[0, 0, BELT_TOP_M - 0.002], mass=0.3, rgba=_GREY, **OBJECT_BITS
    )
    motor = spec.add_actuator(name="belt", target="belt", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.set_to_velocity(kv=40.0)
    spec.add_exclude(bodyname1="table", bodyname2="belt_plate")


def _add_mark(spec: mujoco.MjSpec, xy: np.ndarray, scale: float) -> None:
    body = spec.worldbody.add_body(name="mark", pos=[*xy, 0.0])
    common = {"type": _CYLINDER, "contype": 0, "conaffinity": 0}
    body.add_geom(
        name="mark_fixed", size=[0.04 * scale, 0.0004, 0], pos=[0, 0, 0.0004], rgba=(0.1, 0.1, 0.1, 1.0), **common
    )
    body.add_geom(size=[0.033 * scale, 0.0008, 0], pos=[0, 0, 0.0008], rgba=(0.97, 0.97, 0.97, 1.0), **common)
