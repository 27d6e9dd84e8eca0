"""Distances between links, checked by hand on the gantry and by laws on the Panda."""

import numpy as np
import pytest

from engram.core.robot import PANDA_2F85
from engram.sim.robots.collision_model import TABLE, collision_model, coupled, link_pairs
from engram.sim.robots.separation import Separation
from engram.sim.robots.so101 import SO101
from examples.robot import GANTRY

LOW = np.array((*PANDA_2F85.position_min, PANDA_2F85.gripper_open))
HIGH = np.array((*PANDA_2F85.position_max, PANDA_2F85.gripper_closed))


@pytest.fixture(scope="module")
def panda() -> Separation:
    model = collision_model(PANDA_2F85)
    return Separation(model, PANDA_2F85, link_pairs(model, PANDA_2F85))


def test_a_finger_above_the_table():
    model = collision_model(GANTRY)
    pairs = [(model.geom(TABLE).id, model.geom(name).id) for name in ("hand", "left", "right")]
    separation = Separation(model, GANTRY, pairs)
    at = separation.place(np.array([0.5, 0.0, 0.3, 0.0]))
    # hand: its box ends 0.12 - 0.02 above the tool; fingers: carried 0.05 above it, 0.06 long
    found = separation.distances(at, np.arange(3), np.ones(3))
    np.testing.assert_allclose(found.value, (0.4, 0.29, 0.29), atol=1e-9)
    np.testing.assert_allclose(separation.slopes(at, np.arange(3), found), [[0, 0, 1, 0]] * 3, atol=1e-9)


def test_the_other_finger_follows_the_gripper():
    offset, matrix = coupled(collision_model(GANTRY), GANTRY)
    np.testing.assert_allclose(offset + matrix @ (0.5, 0.1, 0.3, 0.02), (0.5, 0.1, 0.3, 0.02, 0.02))


def test_the_hulls_enclose_the_model():
    """The lowest point of the gripper at home is that of its shown meshes."""
    from engram.sim.robots.model import robot_spec

    model = robot_spec(PANDA_2F85, "photo").compile()
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)  # every joint at zero
    lowest = {}
    for geom in range(model.ngeom):
        if model.geom_group[geom] == 2 and model.geom_dataid[geom] >= 0:
            mesh = model.geom_dataid[geom]
            corners = model.mesh_vert[model.mesh_vertadr[mesh] :][: model.mesh_vertnum[mesh]]
            z = corners @ data.geom_xmat[geom].reshape(3, 3)[2] + data.geom_xpos[geom, 2]
            body = model.body(model.geom_bodyid[geom]).name
            lowest[body] = min(lowest.get(body, np.inf), float(z.min()))
    hulls = collision_model(PANDA_2F85)
    names = ["link4", "link5", "link6", "right_driver"]
    separation = Separation(hulls, PANDA_2F85, [(hulls.geom(TABLE).id, hulls.geom(name).id) for name in names])
    found = separation.distances(separation.place(np.zeros(8)), np.arange(4), np.full(4, 5.0)).value
    told = [lowest["link4"], lowest["link5"], lowest["link6"], min(lowest["right_driver"], lowest["right_coupler"])]
    np.testing.assert_allclose(found, told, atol=1e-6)


def test_no_distance_is_below_what_a_plane_between_the_two_proves(panda):
    """Where MuJoCo says 0 for links that are apart, the answer is still theirs."""
    rng, chosen = np.random.default_rng(0), np.arange(len(panda.first))
    measured = 0
    for _ in range(250):
        at = panda.place(rng.uniform(LOW, HIGH))
        found = panda.distances(at, chosen, np.full(len(chosen), 0.1)).value
        for pair in np.flatnonzero(found < 0.1):
            between = at.geom_position[panda.second[pair]] - at.geom_position[panda.first[pair]]
            proven = panda.gap(at, int(pair), between / np.linalg.norm(between), at)
            assert found[pair] >= min(proven, 0.1) - 3e-5
            measured += 1
    assert measured > 1000


def test_the_distance_is_the_gap_along_its_normal(panda):
    rng, chosen = np.random.default_rng(1), np.arange(len(panda.first))
    for _ in range(40):
        at = panda.place(rng.uniform(LOW, HIGH))
        found = panda.distances(at, chosen, np.full(len(chosen), 0.1))
        for pair in np.flatnonzero((found.value < 0.1) & found.normals().any(axis=1)):
            assert found.value[pair] == pytest.approx(panda.gap(at, int(pair), found.normals()[pair], at), abs=5e-4)


def test_slopes_are_those_of_finite_differences(panda):
    rng, chosen = np.random.default_rng(2), np.arange(len(panda.first))
    errors = []
    for _ in range(20):
        middle, direction = rng.uniform(LOW, HIGH), rng.normal(size=8)
        at = panda.place(middle)
        found = panda.distances(at, chosen, np.full(len(chosen), 0.1))
        near = np.flatnonzero((found.value < 0.1) & (found.value > 0.001))
        wide = np.full(len(chosen), 0.2)
        ends = [panda.distances(panda.place(middle + h * direction), chosen, wide).value for h in (-1e-5, 1e-5)]
        told = panda.slopes(at, chosen, found)[near] @ direction
        errors.extend(np.abs((ends[1] - ends[0])[near] / 2e-5 - told))
    assert len(errors) > 100
    assert np.percentile(errors, 95) < 0.01  # where the nearest points jump from face to face there is no slope


@pytest.mark.parametrize("robot", [PANDA_2F85, SO101, GANTRY], ids=lambda robot: robot.name)
def test_no_distance_changes_by_more_than_the_levers_say(robot):
    model = collision_model(robot)
    table = model.geom(TABLE).id
    links = [g for g in range(model.ngeom) if model.body_weldid[model.geom_bodyid[g]] > 0]
    separation = Separation(model, robot, [*link_pairs(model, robot), *((table, link) for link in links)])
    low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
    high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
    rng, chosen = np.random.default_rng(3), np.arange(len(separation.first))
    far = np.full(len(chosen), 0.5)
    for _ in range(60):
        one, other = rng.uniform(low, high, (2, len(low)))
        step = 0.1 * (other - one) * rng.integers(0, 2, len(low))  # some joints rest
        before, after = (separation.distances(separation.place(at), chosen, far).value for at in (one, one + step))
        both = (before < 0.5) & (after < 0.5)
        assert (np.abs(after - before) <= separation.levers @ np.abs(step) + 3e-5)[both].all()


def test_what_turns_about_the_vertical_changes_no_height():
    model = collision_model(PANDA_2F85)
    separation = Separation(model, PANDA_2F85, [(model.geom(TABLE).id, model.geom("link7").id)])
    assert separation.levers[0, 0] == 0.0
    assert (separation.levers[0, 1:7] > 0.0).all()
    model = collision_model(GANTRY)
    separation = Separation(model, GANTRY, [(model.geom(TABLE).id, model.geom("left").id)])
    np.testing.assert_array_equal(separation.levers, [[0.0, 0.0, 1.0, 0.0]])
