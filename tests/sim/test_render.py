"""Camera geometry against the scene's known geometry."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.geometry import backproject, from_frame, make_pose, project, to_frame
from engram.core.system_packages import LIBRARIES
from engram.core.types import Observation
from engram.sim.render import intrinsics
from engram.sim.scene import SceneConfig
from engram.sim.world import MujocoWorld, WorldConfig

CUBE = np.array([0.50, 0.10, 0.02])


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    world = MujocoWorld(WorldConfig())
    world.load(SceneConfig(cubes=("cube",)))
    world.set_pose("cube", make_pose(CUBE, Rotation.identity()))
    world.set_color("cube", (1.0, 0.0, 0.0))
    yield world
    world.close()


@pytest.fixture(scope="module")
def seen(world: MujocoWorld) -> Observation:
    return world.observe(depth=True)


def test_a_right_angle_of_view_puts_the_focus_half_the_height_away():
    np.testing.assert_allclose(intrinsics(90.0, 200, 100), [[50, 0, 100], [0, 50, 50], [0, 0, 1]])


@pytest.mark.render
@pytest.mark.parametrize("camera", ["front", "wrist"])
def test_the_cube_is_red_where_the_pinhole_model_puts_it(seen, camera):
    frame = seen.camera(camera)
    top = from_frame(CUBE + np.array([0, 0, 0.02]), frame.pose)
    column, row = project(top[None], frame.intrinsics)[0].astype(int)
    red, green, blue = frame.color[row, column].astype(int)
    assert red > 90
    assert max(green, blue) < red / 3


@pytest.mark.render
def test_depth_puts_the_table_at_zero_and_the_cube_at_4_cm(seen):
    frame = seen.camera("front")
    points = to_frame(backproject(frame.depth, frame.intrinsics), frame.pose)
    corner = points[100:, :20].reshape(-1, 3)  # bare table
    np.testing.assert_allclose(corner[:, 2], 0.0, atol=2e-3)
    on_top = (np.abs(points[..., :2] - CUBE[:2]) < 0.015).all(axis=-1) & (points[..., 2] > 0.02)
    assert on_top.sum() > 10
    np.testing.assert_allclose(points[on_top][:, 2], 0.04, atol=2e-3)


@pytest.mark.render
def test_depth_is_rendered_only_when_asked_for(world):
    assert world.observe().camera("front").depth is None


@pytest.mark.render
def test_the_front_camera_sees_the_whole_workspace(seen):
    frame = seen.camera("front")
    corners = np.array([[x, y, 0.0] for x in (0.3, 0.75) for y in (-0.3, 0.3)])
    pixels = project(from_frame(corners, frame.pose), frame.intrinsics)
    assert (pixels > 0).all()
    assert (pixels < 128).all()


@pytest.mark.render
def test_the_wrist_camera_sees_between_the_finger_tips(world, seen):
    frame = seen.camera("wrist")
    column, row = project(from_frame(world.tool_pose().position[None], frame.pose), frame.intrinsics)[0]
    assert 32 < column < 96
    assert 0 < row < 96


@pytest.mark.render
def test_randomised_looks_come_from_the_seed_alone():
    config = WorldConfig(image_size=32, randomise_lights=True, randomise_colors=True, randomise_cameras=True)
    first, second, plain = MujocoWorld(config), MujocoWorld(config), MujocoWorld(WorldConfig(image_size=32))
    first.reset("reach", 1)
    a, b, c = (w.reset("reach", 2).camera("front") for w in (first, second, plain))
    np.testing.assert_array_equal(a.color, b.color)
    assert (a.color != c.color).mean() > 0.5
    assert 0 < np.linalg.norm(a.pose.position - c.pose.position) < 0.03
    for world in (first, second, plain):
        world.close()


def test_a_machine_without_opengl_is_told_what_to_install():
    program = (
        "from engram.sim.world import MujocoWorld, WorldConfig\n"
        "MujocoWorld(WorldConfig(profile='none')).reset('reach', 0)\n"
        "MujocoWorld(WorldConfig()).reset('reach', 0)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "MUJOCO_GL": "disable"}, capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "EngramError: no OpenGL context" in ran.stderr
    assert f"Install {LIBRARIES} (apt-get)" in ran.stderr
    assert "profile 'none'" in ran.stderr


@pytest.mark.render
def test_a_picture_is_rendered_again_only_when_something_in_it_changed():
    world = MujocoWorld(WorldConfig(image_size=64))
    world.load(SceneConfig(cubes=("cube",)))

    def look(depth=False):
        return world.observe(depth=depth).camera("front")

    first = look()
    world.data.qpos[0] += 1e-14  # too little for the renderer
    assert look().color is first.color
    assert look(depth=True).depth is not None
    assert look().depth is None
    seen = [look().color]
    for change in (
        lambda: world.set_color("cube", (0.0, 1.0, 1.0)),
        lambda: world.set_pose("cube", make_pose(CUBE, Rotation.identity())),
        lambda: world.model.light_diffuse.__imul__(0.5),
        lambda: world.model.cam_pos.__iadd__(0.01),
    ):
        change()
        seen.append(look().color)
        assert look().color is seen[-1]
        assert (seen[-1] != seen[-2]).any()
    fresh = MujocoWorld(WorldConfig(image_size=64))
    fresh.load(SceneConfig(cubes=("cube",)))
    fresh.set_color("cube", (0.0, 1.0, 1.0))
    np.testing.assert_array_equal(seen[1], fresh.observe().camera("front").color)
    world.close()
    fresh.close()
