"""Objects on a table from one RGB-D picture, by geometry alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError
from engram.core.geometry import make_pose
from engram.core.types import CameraFrame, DetectedObject, SceneObservation
from engram.perception.box import Box, fit_box
from engram.perception.cloud import Cloud, above, gather, lift
from engram.perception.color import color_name, is_chromatic
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.perception.marks import MarkConfig, find_marks
from engram.perception.measure import hidden_share, pixel_area, position_covariance, surface_color
from engram.perception.scene import scene_observation
from engram.perception.segmentation import SegmentationConfig, extent, segment
from engram.perception.shape import ShapeConfig, is_handle, name_shape
from engram.perception.support import Plane, SupportConfig, find_support


@dataclass(frozen=True)
class GeometricDetectorConfig:
    """Ranges and thresholds; the parts' own configs hold theirs."""

    near_m: float = 0.10
    """Nearer returns are the camera's own mount."""
    far_m: float = 2.5
    """Farther returns are the room."""
    min_height_m: float = 0.006
    """Lower points are table."""
    min_size_m: float = 0.012
    """Things smaller than this in every direction are noise."""
    depth_noise_m: float = 0.002
    """Standard deviation of the camera's depth, m, at 1 m; grows with the square of the range."""
    uncolored: tuple[str, ...] = ("bin", "drawer", "handle", "mark")
    """Shapes that are named without their colour."""
    support: SupportConfig = field(default_factory=SupportConfig)
    """How the table is found."""
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    """How objects are told apart, and from the robot."""
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    """How shapes are named."""
    marks: MarkConfig = field(default_factory=MarkConfig)
    """How marks on the table are found."""


class GeometricDetector(Detector):
    """Table plane -> what rises above it -> clusters, split by hue -> upright boxes -> names.

    Works on any RGB-D camera whose pose in ``base_link`` is known; needs no training and nothing but the frame.
    """

    def __init__(self, config: GeometricDetectorConfig | None = None, encoder: TextEncoder | None = None) -> None:
        self.config = config or GeometricDetectorConfig()
        self.encoder = encoder or default_text_encoder()

    def detect(self, frame: CameraFrame) -> SceneObservation:
        """Return every object on the table; raises InvalidInputError when ``frame`` has no depth.

        Without a table in view there are no objects: nothing tells what stands and what is the room.
        """
        if frame.depth is None:
            raise InvalidInputError(f"camera {frame.name!r}: no depth; GeometricDetector needs an RGB-D frame")
        points, valid = lift(frame, self.config.near_m, self.config.far_m)
        plane = find_support(points[valid], self.config.support)
        objects = self._objects(frame, points, valid, plane) if plane is not None else ()
        return scene_observation(frame, objects)

    def _objects(
        self, frame: CameraFrame, points: np.ndarray, valid: np.ndarray, plane: Plane
    ) -> tuple[DetectedObject, ...]:
        cloud, table = above(frame, points, valid, plane, self.config.min_height_m)
        parts = [cloud.take(index) for index in segment(cloud, self.config.segmentation)]
        boxes = _fit_all(parts, plane, frame.pose.position)
        found = []
        for part, box in zip(parts, boxes, strict=True):
            shape = self._shape(frame, part, box, boxes)
            stray = box.hangs and shape != "handle" and is_chromatic(part.hsv).mean() < 0.3  # a finger of the robot
            if box.size.max() >= self.config.min_size_m and not stray:
                found.append(self._describe(frame, part, box, shape))
        for box, pixels in find_marks(frame, points, table, plane, self.config.marks):
            found.append(self._describe(frame, gather(frame, points, pixels), box, "mark"))
        return tuple(found)

    def _shape(self, frame: CameraFrame, part: Cloud, box: Box, boxes: list[Box]) -> str:
        if is_handle(box, boxes, self.config.shape):
            return "handle"
        return name_shape(part.points, box, pixel_area(part, frame.pose.position), self.config.shape)

    def _describe(self, frame: CameraFrame, part: Cloud, box: Box, shape: str) -> DetectedObject:
        color = surface_color(part)
        hidden = hidden_share(frame, part)
        label = shape if shape in self.config.uncolored else f"{color_name(color)} {shape}"
        return DetectedObject(
            label=label,
            score=_score(frame, part, hidden),
            pose=make_pose(box.centre, Rotation.from_euler("z", box.yaw)),
            position_covariance=position_covariance(
                frame, part, self.config.depth_noise_m, hidden * float(box.size.max())
            ),
            size=box.size,
            color=color,
            embedding=self.encoder.encode([label])[0],
        )


def _fit_all(parts: list[Cloud], plane: Plane, camera: np.ndarray) -> list[Box]:
    """Fit boxes from the lowest part upwards: a part that hangs over a lower one's footprint stands on it."""
    boxes: dict[int, Box] = {}
    for i in sorted(range(len(parts)), key=lambda i: (float(parts[i].height.min()), i)):
        part = parts[i]
        spacing, table = part.pixel, plane.at(part.middle)
        lowest = float(part.points[:, 2].min())
        if lowest - table <= 0.012 + spacing:
            boxes[i] = fit_box(part.points, table, camera, spacing)
            continue
        below = next((j for j in boxes if _stands_on(part, parts[j], spacing)), None)
        if below is None:  # it hangs in a gripper, which hides its top
            top = float(part.points[:, 2].max())
            hanging = fit_box(part.points, lowest - 0.5 * spacing, camera, spacing, top=top)
            boxes[i] = replace(hanging, hangs=True)
            continue
        seam = 0.5 * (lowest + float(parts[below].points[:, 2].max()))
        base = boxes[below].centre[2] - 0.5 * boxes[below].size[2]
        boxes[below] = fit_box(parts[below].points, base, camera, spacing, top=seam)
        boxes[i] = fit_box(part.points, seam, camera, spacing)
    return [boxes[i] for i in range(len(parts))]


def _stands_on(part: Cloud, lower: Cloud, spacing: float) -> bool:
    """Tell whether ``part`` begins where ``lower`` ends, and over it."""
    step = float(part.points[:, 2].min() - lower.points[:, 2].max())
    apart = part.middle - lower.middle
    reach = 0.5 * (extent(part.points) + extent(lower.points))
    return abs(step) <= 0.012 + spacing and float(np.abs(apart).max()) <= reach


def _score(frame: CameraFrame, part: Cloud, hidden: float) -> float:
    """Return 0..1: more points are surer; cut by the picture's border or partly hidden is less sure."""
    height, width = frame.color.shape[:2]
    row, column = part.pixels.T
    cut = float(np.mean((row == 0) | (row == height - 1) | (column == 0) | (column == width - 1)))
    return float((1.0 - np.exp(-len(part) / 12.0)) * (1.0 - min(1.0, 4.0 * cut)) * (1.0 - 0.8 * hidden))
