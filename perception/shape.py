"""What kind of thing a box of points is, by a few measures of its shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.perception.box import Box

SHAPES: tuple[str, ...] = ("cube", "cup", "button", "bin", "drawer", "box", "handle", "mark")


@dataclass(frozen=True)
class ShapeConfig:
    """Where one kind ends and the next begins."""

    furniture_m: float = 0.11
    """Wider things are bins (hollow) or drawers."""
    flat_ratio: float = 0.70
    """Small things lower than this part of their width are buttons."""
    tall_ratio: float = 1.35
    """Small things higher than this many widths are cups when round or hollow, else boxes."""
    hollow_share: float = 0.35
    """A thing is hollow when its middle shows less than this part of the top face that a solid one would."""
    cube_ratio: float = 1.6
    """A cube's longest edge over its shortest is below this; else it is a box."""
    handle_gap_m: float = 0.07
    """A small thing in the air within this distance of a drawer is its handle."""
    handle_size_m: float = 0.06
    """Larger things are no handles."""


def closed_share(points: np.ndarray, box: Box, pixel_area: float) -> float:
    """Return how much of the middle of the top face is there, 0 (open) .. 1 (closed).

    Args:
        points: (N, 3) m, base_link.
        box: around them.
        pixel_area: m^2 of a horizontal surface that one pixel sees.
    """
    local = box.local(points)
    middle = (np.abs(local[:, :2]) < 0.5).all(axis=1)
    expected = 0.25 * box.size[0] * box.size[1] / pixel_area
    return float(min(1.0, np.sum(local[middle, 2] > 0.6) / max(expected, 1.0)))


def name_shape(points: np.ndarray, box: Box, pixel_area: float, config: ShapeConfig) -> str:
    """Return the name in ``SHAPES`` that fits points (N, 3) m in ``box`` best."""
    width, height = float(box.size[:2].max()), float(box.size[2])
    narrow = float(box.size[:2].min())
    is_hollow = not box.covered and closed_share(points, box, pixel_area) < config.hollow_share
    if width > config.furniture_m:
        return "bin" if is_hollow else "drawer"
    if is_hollow:
        return "cup"
    if height < config.flat_ratio * width:
        return "button"
    if height > config.tall_ratio * width:
        return "cup"
    return "cube" if max(width, height) < config.cube_ratio * min(narrow, height) else "box"


def is_handle(box: Box, others: list[Box], config: ShapeConfig) -> bool:
    """Tell whether a small thing hangs in the air at the side of something wide."""
    if not box.hangs or box.size[:2].max() > config.handle_size_m:
        return False
    wide = [o for o in others if o.size[:2].max() > config.furniture_m]
    outside = [np.abs(o.local(box.centre[None])[0]) - 1.0 for o in wide]  # in half extents
    return any(
        float(np.max(gap[:2] * 0.5 * o.size[:2])) <= config.handle_gap_m and gap[2] <= 0.2
        for gap, o in zip(outside, wide, strict=True)
    )
