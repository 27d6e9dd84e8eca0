"""RGB-D pictures of known geometry, raycast exactly by Open3D: the tests' ground truth is what was put in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import open3d as o3d
from scipy.spatial.transform import Rotation

from engram.core.geometry import make_pose, rotation
from engram.core.types import CameraFrame, Pose

COLORS = {
    "red": (0.85, 0.10, 0.10),
    "green": (0.10, 0.65, 0.15),
    "blue": (0.10, 0.20, 0.85),
    "yellow": (0.90, 0.80, 0.10),
    "white": (0.92, 0.92, 0.92),
    "gray": (0.5, 0.5, 0.5),
    "black": (0.05, 0.05, 0.05),
}
_LIGHT = np.array([0.4, 0.3, 0.87])


@dataclass(frozen=True)
class Solid:
    """One coloured triangle mesh, already in base_link."""

    mesh: o3d.geometry.TriangleMesh
    color: tuple[float, float, float]


def box(centre: tuple, size: tuple, color: str, yaw: float = 0.0) -> Solid:
    """Return an upright box around ``centre`` (m) with edges ``size`` (m)."""
    mesh = o3d.geometry.TriangleMesh.create_box(*size)
    mesh.translate(-0.5 * np.array(size))
    return _placed(mesh, centre, yaw, color)


def cylinder(centre: tuple, radius: float, height: float, color: str) -> Solid:
    """Return an upright solid cylinder."""
    return _placed(o3d.geometry.TriangleMesh.create_cylinder(radius, height, 32), centre, 0.0, color)


def cup(foot: tuple, radius: float, height: float, color: str) -> list[Solid]:
    """Return an open cup standing on ``foot``: a ring of 24 wall boxes and a floor."""
    x, y, z = foot
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    width = 2 * np.pi * radius / 24
    wall = [
        box((x + radius * np.cos(a), y + radius * np.sin(a), z + height / 2), (0.005, width, height), color, a)
        for a in angles
    ]
    return [*wall, cylinder((x, y, z + 0.003), radius, 0.006, color)]


def tray(foot: tuple, width: float, height: float, color: str, wall: float = 0.008) -> list[Solid]:
    """Return an open square box standing on ``foot``."""
    x, y, z = foot
    half = (width - wall) / 2
    sides = [
        box(
            (x + dx * half, y + dy * half, z + height / 2),
            (width if dy else wall, wall if dy else width, height),
            color,
        )
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))
    ]
    return [*sides, box((x, y, z + wall / 2), (width, width, wall), color)]


def table(height: float = 0.0) -> Solid:
    """Return a white table top whose surface is at ``height`` m."""
    return box((0.5, 0.0, height - 0.02), (1.2, 1.6, 0.04), "white")


def camera_pose(eye: tuple = (1.25, 0.0, 0.75), target: tuple = (0.45, 0.0, 0.02)) -> Pose:
    """Return the optical frame at ``eye`` that looks at ``target``, both m in base_link."""
    z = np.subtract(target, eye)
    z = z / np.linalg.norm(z)
    x = np.cross(z, (0, 0, 1.0))
    x /= np.linalg.norm(x)
    return make_pose(np.array(eye, float), Rotation.from_matrix(np.stack((x, np.cross(z, x), z), axis=1)))


def render(solids: list[Solid], pose: Pose | None = None, size: int = 128, fovy_deg: float = 50.0) -> CameraFrame:
    """Raycast ``solids``: exact depth at pixel centres, Lambert-shaded colour."""
    pose = pose or camera_pose()
    focal = 0.5 * size / np.tan(0.5 * np.deg2rad(fovy_deg))
    intrinsics = np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1.0]])
    scene = o3d.t.geometry.RaycastingScene(nthreads=1)
    ids = {scene.add_triangles(o3d.t.geometry.TriangleMesh.from_legacy(s.mesh)): i for i, s in enumerate(solids)}
    u, v = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5)
    optical = np.stack(((u - size / 2) / focal, (v - size / 2) / focal, np.ones_like(u)), axis=-1)
    turn = rotation(pose).as_matrix()
    rays = np.concatenate((np.broadcast_to(pose.position, (size, size, 3)), optical @ turn.T), axis=-1)
    hit = scene.cast_rays(o3d.core.Tensor(rays.astype(np.float32)))
    depth = hit["t_hit"].numpy()  # the rays' z in the optical frame is 1, so t is the depth
    normals = hit["primitive_normals"].numpy()
    palette = np.array([s.color for s in solids])
    geometry = hit["geometry_ids"].numpy()
    seen = np.isfinite(depth)
    index = np.array([ids.get(int(g), 0) for g in geometry.ravel()]).reshape(size, size)
    shade = 0.45 + 0.55 * np.clip(normals @ _LIGHT, 0, 1)
    color = np.where(seen[..., None], palette[index] * shade[..., None], 0.3)
    return CameraFrame(
        name="front",
        stamp_ns=7,
        color=(255 * color).astype(np.uint8),
        intrinsics=intrinsics,
        pose=pose,
        depth=np.where(seen, depth, 0.0).astype(np.float32),
    )


def _placed(mesh: o3d.geometry.TriangleMesh, centre: tuple, yaw: float, color: str) -> Solid:
    mesh.rotate(Rotation.from_euler("z", yaw).as_matrix(), center=(0, 0, 0))
    mesh.translate(np.array(centre, float))
    return Solid(mesh, COLORS[color])
