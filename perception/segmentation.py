"""Which points are one object: clusters in space, split where colours meet; the robot is left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import open3d as o3d
from scipy.spatial import cKDTree

from engram.perception.cloud import Cloud
from engram.perception.color import hue_groups

_SAME_WIDTH = 1.25  # pieces of one thing are together this many times as wide as the larger alone, at most
_SAME_WIDTH_GRAY = 1.08  # of the gray, which may be a black handle before a gray chest
_DRAWER_GAP_M = 0.03  # between a cabinet and what is seen of its open drawer


@dataclass(frozen=True)
class SegmentationConfig:
    """What counts as one thing, and what as the robot."""

    min_points: int = 8
    """Fewer points are noise."""
    gap_m: float = 0.012
    """Things nearer to each other than this are one cluster (more where pixels are coarser: ``gap_pixels``)."""
    gap_pixels: float = 2.4
    """The same gap in pixels at the things' range; surfaces seen at a slant are sampled that sparsely."""
    max_object_height_m: float = 0.30
    """A cluster that reaches higher above the table is the arm (or a wall): only what it holds is an object."""
    floating_m: float = 0.07
    """A cluster whose lowest point is higher than this is a part of the arm, or held by it."""
    robot_gap_m: float = 0.10
    """A cluster this near to the arm that hangs, or is taller than ``robot_min_height_m``, is more of the arm: its
    joints and fingers hide each other, so the arm falls into several clusters."""
    robot_min_height_m: float = 0.10
    """What ends lower than this stands on the table, however near the arm is."""
    robot_floating_m: float = 0.045
    """A cluster near the arm whose lowest point is higher than this hangs."""
    container_m: float = 0.11
    """A low gray thing under the arm that is as wide as this is no finger but a bin."""
    container_height_m: float = 0.06
    """How low it is."""
    workspace_min: tuple[float, float] = (0.18, -0.70)
    """x, y (m, base_link): an object's centre lies within; keeps out the robot's base."""
    workspace_max: tuple[float, float] = (1.20, 0.70)
    """x, y (m, base_link)."""
    min_part_m: float = 0.02
    """A coloured part of an arm or of a large grey thing must be this large to be an object of its own."""
    container_ratio: float = 2.4
    """A grey thing this many times larger than the coloured part touching it holds it (cube in a bin); a smaller
    one belongs to it (button on its base)."""


def segment(cloud: Cloud, config: SegmentationConfig) -> list[np.ndarray]:
    """Return one index array into ``cloud`` for each object, largest first."""
    segments: _Pieces = []
    hues = hue_groups(cloud.hsv, config.min_points)
    found = clusters(cloud, config)
    for index, robot in zip(found, _is_robot(cloud, found, config), strict=True):
        part, hue = cloud.take(index), hues[index]
        pieces = _held(part, hue, config) if robot else _split(part, hue, config)
        segments.extend((h, index[piece]) for h, piece in pieces)
    whole = _rejoin(cloud, segments, config)
    return [s for s in whole if _within(cloud.points[s], config)]


def clusters(cloud: Cloud, config: SegmentationConfig) -> list[np.ndarray]:
    """Group the points by DBSCAN (Open3D); index arrays, largest first."""
    if len(cloud) < config.min_points:
        return []
    gap = max(config.gap_m, config.gap_pixels * cloud.pixel)
    shape = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(cloud.points))
    labels = np.asarray(shape.cluster_dbscan(gap, 3))
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    groups = [g for g in groups if len(g) >= config.min_points]
    return sorted(groups, key=len, reverse=True)


def _is_robot(cloud: Cloud, found: list[np.ndarray], config: SegmentationConfig) -> list[bool]:
    """Tell which clusters belong to the arm: what reaches too high or hangs, and grown from there."""
    heights = [cloud.height[index] for index in found]
    robot = [bool(h.max() > config.max_object_height_m or h.min() > config.floating_m) for h in heights]
    more = [
        bool(h.max() > config.robot_min_height_m or h.min() > config.robot_floating_m) and not sure
        for h, sure in zip(heights, robot, strict=True)
    ]
    while any(robot) and any(more):
        tree = cKDTree(np.concatenate([cloud.points[f] for f, r in zip(found, robot, strict=True) if r]))
        near = [
            m and tree.query(cloud.points[f])[0].min() <= config.robot_gap_m for f, m in zip(found, more, strict=True)
        ]
        if not any(near):
            break
        robot = [r or n for r, n in zip(robot, near, strict=True)]
        more = [m and not n for m, n in zip(more, near, strict=True)]
    return robot


_Pieces = list[tuple[int, np.ndarray]]  # (hue group or -1, points)


def _split(part: Cloud, hue: np.ndarray, config: SegmentationConfig) -> _Pieces:
    """Split one cluster by hue; what has no hue is a container, or goes to the nearest coloured part."""
    colored = _pieces(part, hue, config)
    everything = np.arange(len(part))
    if not colored:
        return [(-1, everything)]
    rest = np.setdiff1d(everything, np.concatenate([piece for _, piece in colored]))
    if len(rest) >= config.min_points:
        largest = max(extent(part.points[piece]) for _, piece in colored)
        if extent(part.points[rest]) > config.container_ratio * largest:
            large = [(h, p) for h, p in colored if extent(part.points[p]) >= config.min_part_m]
            return [*large, (-1, rest)]
    return _absorb(part, colored, rest)


def _held(part: Cloud, hue: np.ndarray, config: SegmentationConfig) -> _Pieces:
    """Return what an arm holds, touches or hides: coloured parts of an object's size, and bins below it."""
    pieces = _pieces(part, hue, config)
    low = np.flatnonzero((hue < 0) & (part.height < config.container_height_m))
    bins = [low[c] for c in clusters(part.take(low), config)]
    smallest, largest = config.min_part_m, config.max_object_height_m
    held = [(h, p) for h, p in pieces if smallest <= extent(part.points[p]) <= largest]
    return held + [(-1, b) for b in bins if config.container_m <= extent(part.points[b]) <= largest]


def _pieces(part: Cloud, hue: np.ndarray, config: SegmentationConfig) -> _Pieces:
    """Return the connected pieces of each hue."""
    pieces: _Pieces = []
    for group in np.unique(hue[hue >= 0]):
        index = np.flatnonzero(hue == group)
        if len(index) >= config.min_points:
            whole = len(index) > 0.9 * len(part)
            found = [np.arange(len(index))] if whole else clusters(part.take(index), config)
            pieces.extend((int(group), index[c]) for c in found)
    return pieces


def _absorb(part: Cloud, pieces: _Pieces, rest: np.ndarray) -> _Pieces:
    """Give each point of ``rest`` to the piece it is nearest to."""
    if len(pieces) == 1 or not len(rest):
        return [(h, np.concatenate((p, rest)) if len(pieces) == 1 else p) for h, p in pieces]
    distance = np.stack([cKDTree(part.points[p]).query(part.points[rest])[0] for _, p in pieces])
    nearest = distance.argmin(axis=0)
    return [(h, np.concatenate((p, rest[nearest == i]))) for i, (h, p) in enumerate(pieces)]


def _rejoin(cloud: Cloud, segments: _Pieces, config: SegmentationConfig) -> list[np.ndarray]:
    """Put pieces of the same hue back together that are no wider together than the larger one alone.

    The far wall of a cup shows over the near one with nothing in between, and a wall seen at a grazing angle is
    sampled too sparsely to be linked; two things side by side are wider together. Two pieces of furniture of one
    hue side by side are an open drawer and its cabinet.
    """
    whole: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []  # hue, points, least and greatest x, y
    for hue, index in sorted(segments, key=lambda s: -len(s[1])):
        low, high = cloud.points[index, :2].min(axis=0), cloud.points[index, :2].max(axis=0)
        for i, (other_hue, other, other_low, other_high) in enumerate(whole):
            both_low, both_high = np.minimum(low, other_low), np.maximum(high, other_high)
            widths = (high - low).max(), (other_high - other_low).max()
            gap = np.maximum(low - other_high, other_low - high).max()
            drawer = hue >= 0 and min(widths) > config.container_m and gap <= _DRAWER_GAP_M
            slack = _SAME_WIDTH if hue >= 0 else _SAME_WIDTH_GRAY
            if hue == other_hue and (drawer or (both_high - both_low).max() <= slack * max(widths)):
                whole[i] = (hue, np.concatenate((other, index)), both_low, both_high)
                break
        else:
            whole.append((hue, index, low, high))
    return [index for _, index, _, _ in whole]


def extent(points: np.ndarray) -> float:
    """Return the larger horizontal extent (m) of points (N, 3)."""
    return float(np.ptp(points[:, :2], axis=0).max())


def _within(points: np.ndarray, config: SegmentationConfig) -> bool:
    centre = points[:, :2].mean(axis=0)
    return bool((centre >= config.workspace_min).all() and (centre <= config.workspace_max).all())
