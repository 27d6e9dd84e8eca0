"""Random tabletop scenes and the simulator's truth about them: for scores, never for perception."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError
from engram.core.geometry import from_frame, make_pose, to_frame
from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.placement import COLORS, Region, place, upright
from engram.sim.world import MujocoWorld

SCENE = SceneConfig(
    cubes=tuple(f"cube_{i}" for i in range(5)),
    cups=tuple(f"cup_{i}" for i in range(3)),
    buttons=("button_0", "button_1"),
    bin=True,
    drawer=True,
    mark=True,
)
"""Everything that may be on the table: one model for all scenes; what a scene lacks is parked out of sight."""
_RADIUS = {"cube": 0.036, "cup": 0.042, "button": 0.042, "bin": 0.12, "mark": 0.05}
_PARKED_X = -1.2  # behind the robot
_SETTLE_S = 0.25


@dataclass(frozen=True)
class OracleThing:
    """One thing on the table as the simulator knows it."""

    name: str
    label: str
    centre: np.ndarray  # (3,) m, base_link, middle of its box
    visible: float  # 0..1, share of the pixels it fills alone that are its own


def draw_scene(world: MujocoWorld, rng: np.random.Generator) -> dict[str, str]:
    """Arrange a freshly loaded ``SCENE``; returns body -> label of what is on the table.

    2 to 6 cubes and cups in any of 4 colours; in about a quarter of the scenes each a bin, a drawer, one or two
    buttons, a mark; in some a cube stands on another or lies in the bin.
    """
    where = _draw_places(rng)
    names = list(where)
    furniture = [n for n in ("bin", "drawer") if n in names]
    _park(world, names)
    for name, xy in where.items():
        yaw = rng.uniform(-0.15, 0.15) if name in furniture else rng.uniform(-np.pi, np.pi)
        centre = xy - (0.085 * np.array([np.cos(yaw), np.sin(yaw)]) if name == "drawer" else 0.0)
        z = CUBE_HALF_M if name.startswith("cube") else world.oracle_pose(name).position[2]
        world.set_pose(name, upright(centre, z, yaw))
    labels: dict[str, str] = {name: name for name in furniture}
    for name in names:
        if name not in furniture and name != "mark":
            color = str(rng.choice(sorted(COLORS)))
            world.set_color(name, COLORS[color])
            labels[name] = f"{color} {name.split('_')[0]}"
    if "mark" in names:
        labels["mark"] = "mark"
    if "drawer" in names:
        labels["handle"] = "handle"
    _pile(world, rng, [n for n in names if n.startswith("cube")], "bin" in names, labels)
    world.settle(_SETTLE_S)
    return labels


_DRAWER_REGION = Region(x=(0.62, 0.66), y=(-0.15, 0.15), radius=0.19)


def _draw_places(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return body -> centre (2,) m; things that do not fit on the table together are drawn again."""
    while True:
        names = sorted(_draw_names(rng), key=lambda name: name != "drawer")  # the largest first
        try:
            return dict(zip(names, place(rng, [_region(n) for n in names]), strict=True))
        except InvalidInputError:
            continue


def _region(name: str) -> Region:
    if name == "drawer":
        return _DRAWER_REGION
    radius = _RADIUS[name.split("_")[0]]
    return Region(x=(0.33 + radius, 0.74 - radius), y=(-0.30 + radius, 0.30 - radius), radius=radius)


def _draw_names(rng: np.random.Generator) -> list[str]:
    loose = int(rng.integers(2, 7))
    cups = int(rng.integers(0, min(3, loose) + 1))
    cubes = min(loose - cups, len(SCENE.cubes))
    names = [*SCENE.cubes[:cubes], *SCENE.cups[:cups]]
    extra = rng.random(4)
    if extra[0] < 0.25:
        names.append("drawer")
    elif extra[1] < 0.33:
        names.append("bin")
    if extra[2] < 0.25:
        names.extend(SCENE.buttons[: int(rng.integers(1, 3))])
    if extra[3] < 0.25:
        names.append("mark")
    return names


def _pile(
    world: MujocoWorld, rng: np.random.Generator, cubes: list[str], has_bin: bool, labels: dict[str, str]
) -> None:
    """Sometimes put the last cube onto the first one, of another colour, or into the bin."""
    chance = rng.random()
    if len(cubes) < 2 or chance > 0.3:
        return
    last, first = cubes[-1], cubes[0]
    if has_bin:
        here = world.oracle_pose("bin").position
        spot = np.array([here[0], here[1], CUBE_HALF_M + 0.005])
    elif labels[last].split()[0] != labels[first].split()[0]:
        spot = world.oracle_pose(first).position + np.array([0.0, 0.0, 2 * CUBE_HALF_M])
    else:
        return
    world.set_pose(last, make_pose(spot, Rotation.from_euler("z", rng.uniform(-np.pi, np.pi))))


def _park(world: MujocoWorld, names: list[str]) -> None:
    everything = (*SCENE.cubes, *SCENE.cups, *SCENE.buttons, "bin", "drawer", "mark")
    for i, name in enumerate(n for n in everything if n not in names):
        z = world.oracle_pose(name).position[2]
        world.set_pose(name, upright(np.array([_PARKED_X, -1.5 + 0.3 * i]), z))


class OracleEye:
    """Says where things of one loaded ``world`` are and how much of each the front camera sees."""

    def __init__(self, world: MujocoWorld, size: int = 128) -> None:
        self._world = world
        self._model = copy.copy(world.model)  # its colours are painted over, the world's are not
        self._alpha = self._model.geom_rgba[:, 3].copy()
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = size
        self._renderer = mujoco.Renderer(self._model, size, size)
        self._renderer.enable_segmentation_rendering()

    def close(self) -> None:
        """Free the rendering context."""
        self._renderer.close()

    def oracle_things(self, labels: dict[str, str]) -> list[OracleThing]:
        """Return the truth about every body of ``labels`` (body -> label)."""
        geoms = {name: _geoms_of(self._model, name) for name in labels}
        visible = self._oracle_visible(geoms)
        centres = {name: _centre(self._world, own) for name, own in geoms.items()}
        if "handle" in centres:  # the stem behind the grip is not what is meant
            centres["handle"] = self._world.oracle_pose("handle").position
        return [OracleThing(n, label, centres[n], visible[n]) for n, label in labels.items()]

    def _oracle_visible(self, geoms: dict[str, np.ndarray]) -> dict[str, float]:
        """Return name -> share (0..1) of the pixels that the geoms fill alone which are theirs in the full picture."""
        model, shares = self._model, {}
        model.geom_rgba[:, 3] = self._alpha
        full = _geom_image(self._renderer, self._world.data)
        for name, own in geoms.items():
            model.geom_rgba[:, 3] = 0.0
            model.geom_rgba[own, 3] = self._alpha[own]
            alone = np.isin(_geom_image(self._renderer, self._world.data), own).sum()
            shares[name] = float(np.isin(full, own).sum() / alone) if alone else 0.0
        return shares


def _geom_image(renderer: mujoco.Renderer, data: mujoco.MjData) -> np.ndarray:
    renderer.update_scene(data, "front")
    image = renderer.render()
    return np.where(image[..., 1] == mujoco.mjtObj.mjOBJ_GEOM, image[..., 0], -1)


def _geoms_of(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Return the geoms of a body and what hangs on it; a drawer's are its cabinet's too, without the handle."""
    root = model.body("cabinet" if name == "drawer" else name).id
    owners = {root}
    for body in range(root + 1, model.nbody):
        if model.body_parentid[body] in owners and not (name == "drawer" and model.body(body).name == "handle"):
            owners.add(body)
    return np.flatnonzero(np.isin(model.geom_bodyid, sorted(owners)))


def _centre(world: MujocoWorld, geoms: np.ndarray) -> np.ndarray:
    """Return the middle (3,) m of the box around ``geoms`` in the axes of the first one's body."""
    model, data = world.model, world.data
    frame = world.oracle_pose(model.body(int(model.geom_bodyid[geoms[0]])).name)
    corners = []
    for g in geoms:
        middle, half = model.geom_aabb[g, :3], model.geom_aabb[g, 3:]
        signs = np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, -1).T
        in_world = (middle + signs * half) @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g]
        corners.append(from_frame(in_world, frame))
    points = np.concatenate(corners)
    return to_frame(0.5 * (points.min(axis=0) + points.max(axis=0)), frame)
