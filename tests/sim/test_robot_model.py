"""What every simulated robot provides, and the errors for what it does not."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from engram.core.camera import CameraConfig
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.robot import PANDA_2F85
from engram.sim.robots.model import CORNERS, arm_model, low_poly, outermost, robot_spec
from examples.robot import GANTRY


def test_a_camera_of_the_configuration_is_where_it_says():
    hand = CameraConfig.looking_at("hand", (0.0, 0.0, 0.1), (0.1, 0.0, 0.0), fovy_deg=60.0, frame="hand")
    model = robot_spec(replace(GANTRY, cameras=(*GANTRY.cameras, hand))).compile()
    data = mujoco.MjData(model)
    data.qpos[:3] = 0.3, 0.1, 0.2
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    np.testing.assert_allclose(
        data.camera("hand").xpos, [0.3, 0.1, 0.3], atol=1e-12
    )  # the hand is where the joints say
    half = 0.5**0.5
    np.testing.assert_allclose(-data.camera("hand").xmat.reshape(3, 3)[:, 2], [half, 0.0, -half], atol=1e-9)
    np.testing.assert_allclose(data.camera("front").xpos, GANTRY.cameras[0].position)
    assert model.camera("hand").fovy[0] == 60.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": ""}, InvalidInputError, "cannot be simulated: its configuration names no model"),
        ({"model": "examples.robot:GANTRY"}, InvalidInputError, "is of type RobotConfig, expected a MjSpec"),
        ({"gripper_joint": "claw"}, InvalidInputError, "has no joint 'claw'; it has x, y, z, grip, right"),
        ({"tool_site": "tip"}, InvalidInputError, "has no site 'tip'; it has tool"),
        ({"hand_link": "palm"}, InvalidInputError, "has no body 'palm'; it has .*hand, left, right"),
        ({"cameras": (replace(GANTRY.cameras[0], frame="wrist"),)}, UnknownNameError, "camera 'front'.*'wrist'"),
    ],
)
def test_a_model_that_lacks_something_is_named_with_what_it_has(change, error, message):
    with pytest.raises(error, match=message):
        robot_spec(replace(GANTRY, **change))


def test_joints_in_another_order_are_refused():
    with pytest.raises(InvalidInputError, match="has the joints x, y, z, expected y, x, z"):
        arm_model(replace(GANTRY, arm_joints=("y", "x", "z")))


def test_simplified_meshes_keep_their_extent_and_lose_their_triangles():
    ball = np.random.default_rng(0).normal(size=(5000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    corners = outermost(ball)
    assert len(corners) <= CORNERS
    np.testing.assert_allclose(np.ptp(corners, axis=0), 2.0, atol=0.05)
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="thing", pos=[1, 0, 0])
    spec.add_mesh(name="ball", uservert=ball.ravel().tolist())
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="ball", pos=[0, 0, 0.5], rgba=[1, 0, 0, 1])
    low_poly(spec)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    assert model.nmesh == 1 and model.mesh_facenum[0] <= 2 * CORNERS
    np.testing.assert_allclose(data.geom_xpos[0], [1.0, 0.0, 0.5], atol=0.03)
    np.testing.assert_allclose(model.geom_rgba[0], [1, 0, 0, 1])


def test_the_panda_s_arm_has_its_seven_joints_and_nothing_else():
    assert arm_model(PANDA_2F85).njnt == 7
