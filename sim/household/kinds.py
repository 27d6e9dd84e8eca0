"""The kinds of things in a home: how they look, how often they move, and how a robot names what it sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLORS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.10, 0.10),
    "orange": (0.95, 0.50, 0.05),
    "yellow": (0.95, 0.85, 0.10),
    "green": (0.10, 0.65, 0.20),
    "cyan": (0.10, 0.75, 0.80),
    "blue": (0.10, 0.25, 0.90),
    "purple": (0.50, 0.15, 0.80),
    "pink": (0.95, 0.30, 0.70),
}
SIZES: dict[str, tuple[float, float, float]] = {
    "cup": (0.07, 0.07, 0.12),
    "cube": (0.075, 0.075, 0.075),
    "box": (0.09, 0.045, 0.08),
    "button": (0.10, 0.10, 0.035),
}
"""Extents of a shape [m]: x, y, z."""
MOBILITY: dict[str, float] = {"fixed": 0.0, "rare": 0.03, "daily": 0.15, "restless": 0.45}
"""Chance that a thing is moved between two visits (three a day)."""


@dataclass(frozen=True)
class Kind:
    """One kind of thing: its shape and colour are what tells it from others."""

    name: str
    shape: str
    color: str
    mobility: str
    carried: bool = False
    """Its owner takes it along in the morning and brings it back in the evening, on most days."""

    @property
    def size(self) -> np.ndarray:
        """Extents (3,) m."""
        return np.array(SIZES[self.shape])

    @property
    def rgb(self) -> np.ndarray:
        """Colour (3,), 0..1."""
        return np.array(COLORS[self.color])


KINDS: tuple[Kind, ...] = (
    Kind("red mug", "cup", "red", "restless"),
    Kind("juice bottle", "cup", "orange", "daily"),
    Kind("mustard jar", "cup", "yellow", "daily"),
    Kind("wine bottle", "cup", "green", "rare"),
    Kind("water bottle", "cup", "cyan", "restless", carried=True),
    Kind("blue mug", "cup", "blue", "restless"),
    Kind("shampoo", "cup", "purple", "rare"),
    Kind("flower vase", "cup", "pink", "fixed"),
    Kind("toy block", "cube", "red", "restless"),
    Kind("radio", "cube", "orange", "rare"),
    Kind("sugar tin", "cube", "yellow", "daily"),
    Kind("tea tin", "cube", "green", "daily"),
    Kind("loudspeaker", "cube", "cyan", "fixed"),
    Kind("alarm clock", "cube", "blue", "fixed"),
    Kind("candle", "cube", "purple", "rare"),
    Kind("gift box", "cube", "pink", "daily"),
    Kind("first-aid kit", "box", "red", "fixed"),
    Kind("cereal box", "box", "orange", "daily"),
    Kind("sponge", "box", "yellow", "daily"),
    Kind("tissue box", "box", "green", "daily"),
    Kind("camera", "box", "cyan", "rare", carried=True),
    Kind("dictionary", "box", "blue", "rare"),
    Kind("chocolate", "box", "purple", "daily"),
    Kind("jewellery box", "box", "pink", "fixed"),
    Kind("wallet", "button", "red", "daily", carried=True),
    Kind("remote control", "button", "orange", "restless"),
    Kind("notepad", "button", "yellow", "restless"),
    Kind("salad bowl", "button", "green", "daily"),
    Kind("phone", "button", "cyan", "restless", carried=True),
    Kind("plate", "button", "blue", "daily"),
    Kind("glasses case", "button", "purple", "restless"),
    Kind("hairbrush", "button", "pink", "daily"),
)
"""Every kind there is: 32."""
BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS}
_BY_LOOKS: dict[str, str] = {f"{kind.color} {kind.shape}": kind.name for kind in KINDS}


def name_of(looks: str) -> str | None:
    """Return the kind that looks like ``looks`` ("red cup" -> "red mug"); None: no such thing in the household."""
    return _BY_LOOKS.get(looks)
