"""Scenes: what was asked for is there, at the stated sizes, and moves as stated."""

import mujoco
import numpy as np
import pytest

from engram.sim.scene import BUTTON_TRAVEL_M, DRAWER_TRAVEL_M, SceneConfig, build_scene, compiled_scene

EVERYTHING = SceneConfig(("red", "blue"), ("cup_a",), bin=True, drawer=True, buttons=("go", "stop"), mark=True)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return compiled_scene(EVERYTHING, "none")


def extent(model: mujoco.MjModel, body: str) -> np.ndarray:
    """Return the size (3,) m of the box around all geoms of ``body`` at the default pose."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for geom in np.flatnonzero(model.geom_bodyid == model.body(body).id):
        centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        corners = centre + half * np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
        world = corners @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
        low, high = np.minimum(low, world.min(axis=0)), np.maximum(high, world.max(axis=0))
    return high - low


def test_everything_asked_for_is_there_and_nothing_else(model):
    bodies = {model.body(i).name for i in range(model.nbody)}
    assert {"table", "red", "blue", "cup_a", "bin", "cabinet", "drawer", "handle", "go", "stop", "mark"} <= bodies
    empty = compiled_scene(SceneConfig(), "none")
    assert bodies - {empty.body(i).name for i in range(empty.nbody)} == {
        *("red", "blue", "cup_a", "bin", "cabinet", "drawer", "handle", "go", "go_cap", "stop", "stop_cap", "mark")
    }


def test_sizes_are_as_stated(model):
    np.testing.assert_allclose(extent(model, "red"), [0.04, 0.04, 0.04])
    np.testing.assert_allclose(extent(model, "bin"), [0.16, 0.16, 0.04], atol=1e-9)
    np.testing.assert_allclose(extent(model, "cup_a"), [0.06, 0.06, 0.08], atol=0.004)
    assert model.body("red").mass[0] == pytest.approx(0.05)


def test_drawer_and_buttons_travel_as_stated(model):
    np.testing.assert_allclose(model.joint("drawer").range, [0, DRAWER_TRAVEL_M])
    np.testing.assert_allclose(model.joint("go").range, [0, BUTTON_TRAVEL_M])
    data = mujoco.MjData(model)
    data.joint("drawer").qpos[0] = 0.1
    before = data.body("handle").xpos.copy()
    mujoco.mj_kinematics(model, data)
    closed = mujoco.MjData(model)
    mujoco.mj_kinematics(model, closed)
    np.testing.assert_allclose(data.body("handle").xpos - closed.body("handle").xpos, [-0.1, 0, 0], atol=1e-9)
    assert not np.array_equal(before, data.body("handle").xpos)


def test_a_pressed_button_springs_back(model):
    data = mujoco.MjData(model)
    data.joint("go").qpos[0] = 0.01
    mujoco.mj_step(model, data, nstep=400)
    assert abs(data.joint("go").qpos[0]) < 1e-3  # the stop gives way a little to the spring


def test_profiles_move_alike_bit_for_bit():
    states = []
    for profile in ("fast", "none"):
        model = compiled_scene(EVERYTHING, profile)
        data = mujoco.MjData(model)
        data.ctrl[:7] = 0.1
        mujoco.mj_step(model, data, nstep=100)
        states.append(data.qpos.copy())
    np.testing.assert_array_equal(*states)


def test_compiling_happens_once_a_process():
    assert compiled_scene(SceneConfig(), "none") is compiled_scene(SceneConfig(), "none")
    assert build_scene(SceneConfig(), "none").option.timestep == compiled_scene(SceneConfig(), "none").opt.timestep
