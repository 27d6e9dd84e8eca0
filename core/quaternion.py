"""Single rotations as tuples of floats (w, x, y, z): for the control step, where one rotation is turned at a time.

SciPy's ``Rotation`` is made for arrays: on one rotation it spends some hundred microseconds a control step around a
dozen products. The formulas and the order of their operations are SciPy's, so both give the same bits.
"""

from __future__ import annotations

import math

Quaternion = tuple[float, float, float, float]
"""(w, x, y, z)"""
Vector = tuple[float, float, float]
SMALL_RAD = 1e-3
"""Below this angle sines are replaced by their series [rad]."""


def unit(q: Quaternion) -> Quaternion:
    """Return ``q`` at length 1; it must not be all zeros."""
    w, x, y, z = q
    length = math.sqrt(x * x + y * y + z * z + w * w)
    return w / length, x / length, y / length, z / length


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the unit quaternion that turns by ``b``, then by ``a`` (both about fixed axes)."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return unit(
        (
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + bw * ax + (ay * bz - az * by),
            aw * by + bw * ay + (az * bx - ax * bz),
            aw * bz + bw * az + (ax * by - ay * bx),
        )
    )


def inverse(q: Quaternion) -> Quaternion:
    """Return the opposite rotation of a unit quaternion."""
    return q[0], -q[1], -q[2], -q[3]


def canonical(q: Quaternion) -> Quaternion:
    """Return the one of ``q`` and ``-q`` whose first component other than 0 is positive: w is never negative."""
    first = q[0] or q[1] or q[2] or q[3]
    return (-q[0], -q[1], -q[2], -q[3]) if first < 0 else q


def from_rotation_vector(v: Vector) -> Quaternion:
    """Return the rotation by ``|v|`` rad about ``v``."""
    x, y, z = v
    angle = math.sqrt(x * x + y * y + z * z)
    if angle <= SMALL_RAD:
        squared = angle * angle
        scale = 0.5 - squared / 48 + squared * squared / 3840
    else:
        scale = math.sin(angle / 2) / angle
    return math.cos(angle / 2), scale * x, scale * y, scale * z


def rotation_vector(q: Quaternion) -> Vector:
    """Return axis times angle of a unit quaternion, the angle from 0 to pi rad."""
    w, x, y, z = (-q[0], -q[1], -q[2], -q[3]) if q[0] < 0 else q
    angle = 2 * math.atan2(math.sqrt(x * x + y * y + z * z), w)
    if angle <= SMALL_RAD:
        squared = angle * angle
        scale = 2 + squared / 12 + 7 * squared * squared / 2880
    else:
        scale = angle / math.sin(angle / 2)
    return scale * x, scale * y, scale * z
