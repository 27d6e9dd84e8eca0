"""A correction of a policy's motions: few numbers that turn, scale and shift the translation of every one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk

REACH_OF_SCALE = 2.2
REACH_OF_YAW_RAD = 0.45
REACH_OF_SHIFT = 0.12
"""How far one search goes, unless it is told otherwise."""
ADDED = 3
"""So many searches may add up to a correction. Turned as far as that, a motion still leads towards its goal."""


@dataclass(frozen=True)
class MotionCorrection:
    """Turns, scales and shifts the translation of every motion; only of ``ee_delta`` actions.

    Raises:
        InvalidInputError: it is more than ``ADDED`` searches reach, or not finite.
    """

    scale: float = 1.0
    """How far a motion leads, as a multiple of what the policy says."""
    yaw_rad: float = 0.0
    """By how much it is turned about the vertical axis of base_link [rad]."""
    shift_x: float = 0.0
    shift_y: float = 0.0
    """What is added to it along base_link's axes [1 = the most a control step can do]."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidInputError(
                    f"MotionCorrection.{name}: {getattr(self, name)}, expected {least:.3g} .. {most:.3g}"
                )

    def __str__(self) -> str:
        told = {
            f"times {self.scale:.2f}": self.scale != 1.0,
            f"turned by {np.degrees(self.yaw_rad):.0f} degrees": self.yaw_rad != 0.0,
            f"shifted by {self.shift_x:+.2f}, {self.shift_y:+.2f}": (self.shift_x, self.shift_y) != (0.0, 0.0),
        }
        return ", ".join(words for words, differs in told.items() if differs) or "as they are"

    @classmethod
    def of(cls, matrix: np.ndarray, shift: np.ndarray) -> MotionCorrection:
        """Return the correction with this :meth:`matrix` (3, 3) and :attr:`shift` (3,).

        Raises:
            InvalidInputError: there is none, or it is out of bounds or not finite.
        """
        made = cls(float(matrix[2, 2]), float(np.arctan2(matrix[1, 0], matrix[0, 0])), float(shift[0]), float(shift[1]))
        if not (np.allclose(made.matrix(), matrix, atol=1e-6) and np.allclose(made.shift, shift, atol=1e-6)):
            raise InvalidInputError(
                f"MotionCorrection: matrix {np.round(matrix, 3).tolist()}, shift {np.round(shift, 3).tolist()}; "
                "expected a scale of all three axes, a turn about the third, and a shift along the first two"
            )
        return made

    def matrix(self) -> np.ndarray:
        """Return what it does to a translation (3, 3)."""
        cos, sin = self.scale * np.cos(self.yaw_rad), self.scale * np.sin(self.yaw_rad)
        return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, self.scale]])

    @property
    def shift(self) -> np.ndarray:
        """What is added to a translation (3,), once it is turned and scaled."""
        return np.array([self.shift_x, self.shift_y, 0.0])

    def then(self, other: MotionCorrection) -> MotionCorrection:
        """Return the correction that does what this one does, and then what ``other`` does, within what may be."""
        x, y, _ = (other.matrix() @ self.shift + other.shift).tolist()
        both = {
            "scale": self.scale * other.scale, "yaw_rad": self.yaw_rad + other.yaw_rad, "shift_x": x, "shift_y": y
        }  # fmt: skip
        return MotionCorrection(**{name: float(np.clip(value, *BOUNDS[name])) for name, value in both.items()})

    def apply(self, chunk: ActionChunk) -> ActionChunk:
        """Return ``chunk`` corrected, within what actions may be."""
        if chunk.space != "ee_delta" or self == MotionCorrection():
            return chunk
        actions = chunk.actions.copy()
        actions[:, :3] = (actions[:, :3] @ self.matrix().T + self.shift).clip(-1.0, 1.0)
        return replace(chunk, actions=actions)


BOUNDS = {
    "scale": (REACH_OF_SCALE**-ADDED, REACH_OF_SCALE**ADDED),
    "yaw_rad": (-ADDED * REACH_OF_YAW_RAD, ADDED * REACH_OF_YAW_RAD),
    "shift_x": (-ADDED * REACH_OF_SHIFT, ADDED * REACH_OF_SHIFT),
    "shift_y": (-ADDED * REACH_OF_SHIFT, ADDED * REACH_OF_SHIFT),
}
"""What each number of a correction may be: least and most."""
