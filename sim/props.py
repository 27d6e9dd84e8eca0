"""Things that a task's script moves: shells, lamps, patches, a tunnel, a cloth, a lens cap, and pebbles as distractors.
They push only the robot.

They are MuJoCo mocap bodies and begin out of sight, under the table, until a task puts them somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import mujoco

Shape = Literal["shell", "ball", "block", "cup", "button", "lamp", "patch", "plate", "cap", "tunnel", "cloth", "pebble"]
AWAY_M = -0.5
"""Height of what is out of sight: under the table, which no camera looks through [m]."""
SHELL_HEIGHT_M, BALL_RADIUS_M, BLOCK_HALF_M = 0.07, 0.02, 0.02
CUP_HEIGHT_M, BUTTON_HEIGHT_M = 0.07, 0.016
CAP_RADIUS_M = 0.06
CLOTH_HALF_M = (0.11, 0.29, 0.015)
"""Half of the length, width and height of a cloth over things up to 3 cm high."""
TUNNEL_HALF_M = (0.06, 0.31, 0.034)

_BOX, _CYLINDER, _SPHERE = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_SPHERE)
_ELLIPSOID = mujoco.mjtGeom.mjGEOM_ELLIPSOID
_SOLID = {"contype": 0, "conaffinity": 1}  # for the robot alone: things go through
_GHOST = {"contype": 0, "conaffinity": 0}


@dataclass(frozen=True)
class Prop:
    """A body of the given shape; its origin is the middle of its underside, of a ball, a block and a cap the centre."""

    name: str
    shape: Shape


def add_prop(spec: mujoco.MjSpec, prop: Prop) -> None:
    """Add ``prop`` out of sight."""
    body = spec.worldbody.add_body(name=prop.name, mocap=True, pos=[0.0, 0.0, AWAY_M])
    if prop.shape == "shell":
        half = SHELL_HEIGHT_M / 2
        body.add_geom(type=_CYLINDER, size=[0.034, half, 0], pos=[0, 0, half], rgba=(0.48, 0.30, 0.18, 1), **_SOLID)
    elif prop.shape == "ball":
        body.add_geom(type=_SPHERE, size=[BALL_RADIUS_M, 0, 0], rgba=(0.90, 0.15, 0.10, 1), **_GHOST)
    elif prop.shape == "block":
        body.add_geom(type=_BOX, size=[BLOCK_HALF_M] * 3, rgba=(0.5, 0.5, 0.5, 1), **_SOLID)
    elif prop.shape == "cup":
        half = CUP_HEIGHT_M / 2
        body.add_geom(type=_CYLINDER, size=[0.022, half, 0], pos=[0, 0, half], rgba=(0.5, 0.5, 0.5, 1), **_SOLID)
    elif prop.shape == "button":
        half = BUTTON_HEIGHT_M / 2
        body.add_geom(type=_CYLINDER, size=[0.020, half, 0], pos=[0, 0, half], rgba=(0.5, 0.5, 0.5, 1), **_SOLID)
    elif prop.shape == "lamp":
        body.add_geom(type=_CYLINDER, size=[0.020, 0.008, 0], pos=[0, 0, 0.008], rgba=(0.2, 0.2, 0.2, 1), **_GHOST)
    elif prop.shape == "patch":
        body.add_geom(type=_CYLINDER, size=[0.036, 0.0008, 0], pos=[0, 0, 0.0008], rgba=(0.3, 0.3, 0.34, 1), **_GHOST)
    elif prop.shape == "plate":
        body.add_geom(type=_CYLINDER, size=[0.065, 0.0008, 0], pos=[0, 0, 0.0008], rgba=(0.95, 0.95, 0.97, 1), **_GHOST)
    elif prop.shape == "cap":
        body.add_geom(type=_SPHERE, size=[CAP_RADIUS_M, 0, 0], rgba=(0.1, 0.1, 0.1, 1), **_GHOST)
    elif prop.shape == "cloth":
        body.add_geom(type=_BOX, size=CLOTH_HALF_M, pos=[0, 0, CLOTH_HALF_M[2]], rgba=(0.48, 0.30, 0.18, 1), **_GHOST)
    elif prop.shape == "pebble":
        body.add_geom(type=_ELLIPSOID, size=[0.026, 0.018, 0.014], pos=[0, 0, 0.012], rgba=(0.5, 0.5, 0.5, 1), **_GHOST)
    else:
        body.add_geom(type=_BOX, size=TUNNEL_HALF_M, pos=[0, 0, TUNNEL_HALF_M[2]], rgba=(0.25, 0.30, 0.40, 1), **_SOLID)
