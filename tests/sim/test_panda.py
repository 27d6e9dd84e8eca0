"""The edited robot model against hand arithmetic, and the same physics in every render profile."""

import mujoco
import numpy as np
import pytest

from engram.core.errors import UnknownNameError
from engram.core.robot import PANDA_2F85
from engram.sim.robots.model import PROFILES, kinematic_spec, robot_spec
from engram.sim.robots.panda import EFFORT_MAX


@pytest.fixture(scope="module")
def models() -> dict[str, mujoco.MjModel]:
    return {profile: robot_spec(PANDA_2F85, profile).compile() for profile in PROFILES}


def test_the_tool_at_home_is_where_trigonometry_puts_it(models):
    # joints 1, 3 and 5 are zero: a planar arm of offsets from Franka's drawing, the hand straight down
    upper, lower = -0.35, -0.35 + 2.35  # angles from the vertical

    def along(angle: float) -> np.ndarray:
        return np.array([np.sin(angle), np.cos(angle)])

    def across(angle: float) -> np.ndarray:
        return np.array([np.cos(angle), -np.sin(angle)])

    elbow = np.array([0, 0.333]) + 0.316 * along(upper) + 0.0825 * across(upper)
    wrist = elbow - 0.0825 * across(lower) + 0.384 * along(lower)
    tool = wrist + np.array([0.088, -(0.107 + 0.0038 + 0.150)])
    model = models["none"]
    data = mujoco.MjData(model)
    for name, angle in zip(PANDA_2F85.arm_joints, PANDA_2F85.home, strict=True):
        data.joint(name).qpos[0] = angle
    mujoco.mj_kinematics(model, data)
    site = data.site(PANDA_2F85.tool_site)
    np.testing.assert_allclose(site.xpos, [tool[0], 0.0, tool[1]], atol=1e-5)
    np.testing.assert_allclose(site.xmat.reshape(3, 3), np.diag([1, -1, -1]), atol=1e-3)  # z along the fingers, down


def test_profiles_differ_in_looks_only(models):
    for profile in ("photo", "none"):
        for field in ("body_mass", "body_inertia", "body_ipos", "dof_armature", "actuator_gainprm"):
            np.testing.assert_array_equal(getattr(models[profile], field), getattr(models["fast"], field))
    colliding = {p: sorted(m.geom_type[m.geom_contype > 0].tolist()) for p, m in models.items()}
    assert colliding["photo"] == colliding["fast"] == colliding["none"]
    assert models["fast"].nmesh == 0
    assert models["photo"].nmeshface > 100_000


def _corners(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return points (n, 3) that span the geom, in its body's frame: the vertices of a mesh, the box of a primitive."""
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
    mesh = model.geom_dataid[geom]
    if mesh >= 0:
        first = model.mesh_vertadr[mesh]
        points = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
    else:
        x, y, z = model.geom_size[geom]
        half = (x, x, x + y) if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE else (x, y, z)
        points = np.array(np.meshgrid(*((-h, h) for h in half))).reshape(3, -1).T
    return points @ rotation.reshape(3, 3).T + model.geom_pos[geom]


def test_fitted_primitives_lie_where_the_meshes_lie(models):
    fast, photo = models["fast"], models["photo"]
    for body in (*(f"link{i}" for i in range(8)), "base", "right_driver", "left_follower"):
        middles = []
        for model in (fast, photo):
            shown = [g for g in range(model.ngeom) if model.geom_bodyid[g] == model.body(body).id]
            corners = np.concatenate([_corners(model, g) for g in shown if model.geom_group[g] == 2])
            middles.append((corners.min(0) + corners.max(0)) / 2)
        assert np.abs(middles[0] - middles[1]).max() < 0.03, body


def test_servos_are_named_and_limited_as_the_datasheet_says(models):
    model = models["fast"]
    assert [model.actuator(i).name for i in range(model.nu)] == list(PANDA_2F85.joint_names)
    np.testing.assert_array_equal(model.actuator_forcerange[:7, 1], EFFORT_MAX)


def test_the_arm_holds_itself_up_without_torque(models):
    model = models["none"]
    data = mujoco.MjData(model)
    data.qpos[:7] = PANDA_2F85.home
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.qfrc_bias[:7] - data.qfrc_gravcomp[:7], 0.0, atol=1e-9)


def test_closing_the_gripper_brings_the_pads_together(models):
    model = models["none"]
    data = mujoco.MjData(model)
    gaps = []
    for angle in (0.0, 0.8):
        mujoco.mj_resetData(model, data)
        data.qpos[:7] = PANDA_2F85.home
        data.ctrl[:] = (*PANDA_2F85.home, angle)
        mujoco.mj_step(model, data, nstep=500)
        gaps.append(np.linalg.norm(data.geom("right_pad1").xpos - data.geom("left_pad1").xpos))
    assert gaps[0] == pytest.approx(0.0932, abs=0.002)  # 85 mm stroke and two half pads of 4 mm
    assert gaps[1] == pytest.approx(0.008, abs=0.002)


def test_the_kinematic_model_is_the_arm_alone():
    model = kinematic_spec(PANDA_2F85).compile()
    assert (model.nq, model.ngeom, model.nu) == (7, 0, 0)
    np.testing.assert_allclose(model.jnt_range[:, 0], PANDA_2F85.position_min)


def test_an_unknown_profile_is_named_with_the_valid_ones():
    with pytest.raises(UnknownNameError, match=r"unknown render profile 'fats'.*did you mean 'fast'"):
        robot_spec(PANDA_2F85, "fats")
