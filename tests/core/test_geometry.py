import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from engram.core.geometry import backproject, from_frame, make_pose, matrix, project, to_frame

vectors = arrays(np.float64, 3, elements=st.floats(-2, 2))


@given(vectors, vectors, vectors)
def test_to_frame_and_from_frame_are_inverse(position, turn, point):
    pose = make_pose(position, Rotation.from_rotvec(turn))
    np.testing.assert_allclose(from_frame(to_frame(point, pose), pose), point, atol=1e-12)
    np.testing.assert_allclose(matrix(pose) @ [*point, 1], [*to_frame(point, pose), 1], atol=1e-12)


def test_a_pixel_is_lifted_by_hand():
    # f = 100 px, principal point (1, 1): the pixel centre (1.5, 0.5) at 2 m is (0.5, -0.5) / 100 * 2 off the axis.
    k = np.array([[100.0, 0, 1], [0, 100, 1], [0, 0, 1]])
    points = backproject(np.full((2, 2), 2.0), k)
    np.testing.assert_allclose(points[0, 1], [0.01, -0.01, 2.0])
    np.testing.assert_allclose(project(points.reshape(-1, 3), k), [[0.5, 0.5], [1.5, 0.5], [0.5, 1.5], [1.5, 1.5]])
