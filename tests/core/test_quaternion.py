"""Single rotations: the same bits as SciPy's, over random turns from a hundredth of a millirad to beyond pi."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core import quaternion as quat

RNG = np.random.default_rng(0)
ROTATIONS = [tuple(q) for q in RNG.normal(size=(500, 4)).tolist()]
VECTORS = [tuple(v) for v in (RNG.normal(size=(500, 3)) * 10.0 ** RNG.uniform(-5, 0.5, (500, 1))).tolist()]


def scipy(q: quat.Quaternion) -> Rotation:
    return Rotation.from_quat(q, scalar_first=True)


def wxyz(turn: Rotation, **kwargs: bool) -> quat.Quaternion:
    return tuple(turn.as_quat(scalar_first=True, **kwargs).tolist())


def test_products_and_inverses_have_scipys_bits():
    for a, b in zip(ROTATIONS, reversed(ROTATIONS), strict=True):
        product = quat.multiply(quat.unit(a), quat.inverse(quat.unit(b)))
        assert product == wxyz(scipy(a) * scipy(b).inv())
        assert quat.canonical(product) == wxyz(scipy(a) * scipy(b).inv(), canonical=True)


def test_rotation_vectors_have_scipys_bits():
    for v, q in zip(VECTORS, ROTATIONS, strict=True):
        turn = Rotation.from_rotvec(v)
        assert quat.from_rotation_vector(v) == wxyz(turn)
        assert quat.rotation_vector(wxyz(turn)) == tuple(turn.as_rotvec().tolist())
        assert quat.rotation_vector(quat.unit(q)) == tuple(scipy(q).as_rotvec().tolist())


def test_two_quarter_turns_about_z_are_a_half_turn():
    quarter = quat.from_rotation_vector((0.0, 0.0, math.pi / 2))
    assert quarter == pytest.approx((math.sqrt(0.5), 0, 0, math.sqrt(0.5)))
    assert quat.rotation_vector(quat.multiply(quarter, quarter)) == pytest.approx((0, 0, math.pi))
    assert quat.multiply(quarter, quat.inverse(quarter)) == pytest.approx((1, 0, 0, 0))


@pytest.mark.parametrize("q", [(-0.5, 0.5, 0.5, 0.5), (0.0, -1.0, 0.0, 0.0), (0.0, 0.0, 0.0, -1.0)])
def test_the_canonical_sign_is_that_of_the_first_component_other_than_0(q):
    assert quat.canonical(q) == tuple(-c for c in q) == quat.canonical(tuple(-c for c in q))
    assert quat.canonical(q) == wxyz(scipy(q), canonical=True)
