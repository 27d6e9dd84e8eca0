"""Camera images of a scene by MuJoCo's renderer, with pinhole intrinsics and optical-frame poses."""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.camera import intrinsics
from engram.core.errors import EngramError, unknown_name
from engram.core.system_packages import LIBRARIES
from engram.core.types import CameraFrame, Pose

if TYPE_CHECKING:
    from engram.sim.world import WorldConfig

_OPTICAL = np.diag([1.0, -1.0, -1.0])  # MuJoCo's cameras look along -z with y up


class SceneRenderer:
    """Renders any of several models into images of one size; a context is made for each on first use."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._renderers: dict[int, mujoco.Renderer] = {}
        self._newest: dict[tuple[int, str], tuple[bytes, np.ndarray, np.ndarray | None]] = {}
        self._model: mujoco.MjModel | None = None

    def use(self, model: mujoco.MjModel) -> None:
        """Choose the model of the following frames."""
        if model is not self._model and id(model) not in self._renderers:
            self._renderers[id(model)] = _open(model, self.width, self.height)
            if not _live:
                atexit.register(_close_live)  # after MuJoCo's own hook, so that it runs before it
            _live.add(self)
        self._model = model

    def frame(self, camera: str, data: mujoco.MjData, stamp_ns: int, depth: bool = False) -> CameraFrame:
        """Return what ``camera`` sees; the depth image, in metres along the optical axis, only when asked for."""
        assert self._model is not None
        renderer = self._renderers[id(self._model)]
        index = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
        if index < 0:
            raise unknown_name("camera", camera, (self._model.camera(i).name for i in range(self._model.ncam)))
        scene, which = scene_bytes(self._model, data, index), (id(self._model), camera)
        shown, color, metres = self._newest.get(which, (b"", None, None))
        if shown != scene or color is None or (depth and metres is None):
            renderer.update_scene(data, camera=index)
            color, metres = renderer.render(), None
            color.flags.writeable = False  # a fresh array each time: no need to copy it again
            if depth:
                renderer.enable_depth_rendering()
                metres = renderer.render()
                metres.flags.writeable = False
                renderer.disable_depth_rendering()
            self._newest[which] = (scene, color, metres)
        return CameraFrame(
            name=camera,
            stamp_ns=stamp_ns,
            color=color,
            intrinsics=_intrinsics(float(self._model.cam_fovy[index]), self.width, self.height),
            pose=optical_pose(data, index),
            depth=metres if depth else None,
        )

    def close(self) -> None:
        """Free all contexts."""
        self._newest.clear()
        while self._renderers:
            self._renderers.popitem()[1].close()
        self._model = None


def scene_bytes(model: mujoco.MjModel, data: mujoco.MjData, camera: int) -> bytes:
    """Return all that a picture of ``camera`` depends on, to a millionth of a millionth.

    MuJoCo hands it to the renderer in single precision: the same bytes are the same picture, as while a robot is held
    still.
    """
    light = (data.light_xpos, data.light_xdir, model.light_diffuse)
    lamp = (model.vis.headlight.ambient, model.vis.headlight.diffuse)
    things = (data.geom_xpos, data.geom_xmat, data.site_xpos, data.site_xmat, model.geom_rgba)
    parts = (data.cam_xpos[camera], data.cam_xmat[camera], model.cam_fovy, *light, *lamp, *things)
    values = np.concatenate([np.ravel(part) for part in parts], dtype=np.float64)
    return (np.rint(values * 1e12) + 0.0).tobytes()  # without + 0.0, 0 and -0 would differ


_live: weakref.WeakSet[SceneRenderer] = weakref.WeakSet()


def _close_live() -> None:
    for renderer in list(_live):
        renderer.close()


@functools.lru_cache(maxsize=64)
def _intrinsics(fovy_deg: float, width: int, height: int) -> np.ndarray:
    matrix = intrinsics(fovy_deg, width, height)
    matrix.flags.writeable = False
    return matrix


def optical_pose(data: mujoco.MjData, camera: int) -> Pose:
    """Return the pose of a camera's optical frame (x right, y down, z forward) in base_link."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, (data.cam_xmat[camera].reshape(3, 3) @ _OPTICAL).ravel())
    return Pose(data.cam_xpos[camera].copy(), quaternion if quaternion[0] >= 0 else -quaternion)


def randomise_look(model: mujoco.MjModel, config: WorldConfig, camera: str, rng: np.random.Generator) -> None:
    """Change lights, table colour and ``camera`` of ``model`` as ``config`` allows; the draws never depend on it."""
    light, ambient = rng.uniform(0.6, 1.3, 2)
    tilt = rng.uniform(-0.3, 0.3, 2)
    table = rng.uniform(0.45, 0.85) * (1.0 + rng.uniform(-0.1, 0.1, 3))
    shift, turn = rng.uniform(-0.015, 0.015, 3), rng.uniform(-0.015, 0.015, 3)
    if config.randomise_lights:
        model.light_diffuse[0] *= light
        model.vis.headlight.ambient[:] *= ambient
        model.light_dir[0, :2] += tilt
    if config.randomise_colors:
        model.geom("table_fixed").rgba[:3] = np.clip(table, 0.0, 1.0)
    if config.randomise_cameras and camera:
        index = model.camera(camera).id
        model.cam_pos[index] += shift
        turned = Rotation.from_quat(model.cam_quat[index], scalar_first=True) * Rotation.from_rotvec(turn)
        model.cam_quat[index] = turned.as_quat(scalar_first=True)


def check_rendering() -> None:
    """Raise EngramError that says what to install unless this process can render."""
    _open(mujoco.MjModel.from_xml_string("<mujoco/>"), 16, 16).close()


def _open(model: mujoco.MjModel, width: int, height: int) -> mujoco.Renderer:
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height  # a larger buffer costs time to clear
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:  # EGL, OSMesa and GLFW each fail in their own way
        raise EngramError(
            f"no OpenGL context for camera images (MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r}: {error}). "
            f"Install {LIBRARIES} (apt-get), set MUJOCO_GL=egl before mujoco is imported, or use profile 'none'."
        ) from error
