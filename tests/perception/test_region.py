import numpy as np

from engram.core.geometry import scene_in_frame
from engram.core.types import Pose
from engram.perception.region import Region, attend
from tests.memory.scenes import IDENTITY, seen, view

# the camera of tests.memory.scenes is 1 m above (0.5, 0, 0) and looks straight down: depth = 1 - z
LOW_BOX = Region(Pose(np.array([0.5, 0.0, 0.25]), IDENTITY), np.array([0.2, 0.2, 0.05]))


def test_rays_that_miss_the_region_are_not_judged():
    grid = attend(view([], depth=1.0), LOW_BOX).depth_grid
    assert grid[0, 0] == 0.0 and grid[16, 16] > 0.0


def test_a_ray_through_the_region_ends_where_it_leaves_it():
    assert attend(view([], depth=1.0), LOW_BOX).depth_grid[16, 16] == np.float32(0.8)  # its floor is at z = 0.2


def test_what_is_measured_before_or_in_the_region_is_kept():
    for depth in (0.4, 0.75):
        assert attend(view([], depth=depth), LOW_BOX).depth_grid[16, 16] == np.float32(depth)


def test_a_scene_is_carried_into_the_map():
    quarter = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])  # 90 degrees to the left
    base = Pose(np.array([10.0, 20.0, 0.0]), quarter, "map")
    carried = scene_in_frame(view([seen("red cube", (1.0, 0.0, 0.5), noise_m=0.1)]), base, np.diag([0.0, 0.0, 1.0]))
    found = carried.objects[0]
    np.testing.assert_allclose(found.pose.position, [10.0, 21.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.position_covariance, np.diag([0.01, 0.01, 1.01]), atol=1e-12)
    np.testing.assert_allclose(carried.camera_pose.position, [10.0, 20.5, 1.0], atol=1e-12)
    assert found.pose.frame == carried.camera_pose.frame == "map"
