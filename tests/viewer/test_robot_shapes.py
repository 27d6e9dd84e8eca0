"""The robot that the page draws stands where the robot's kinematics say."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.robot import PANDA_2F85
from engram.sim.robots.kinematics import ModelKinematics
from engram.viewer.robot_shapes import RobotShapes
from tests.viewer.scenes import joints


def hulls(gripper: float) -> dict[str, np.ndarray]:
    """Centre of every drawn hull in base_link, by name."""
    robot = RobotShapes()
    positions, quaternions = robot.poses(joints(gripper))
    turns = Rotation.from_quat(quaternions, scalar_first=True)
    shapes = robot.shapes()
    middles = [np.ptp(s.vertices, axis=0) / 2 + s.vertices.min(axis=0) for s in shapes]
    return {s.name: p + t.apply(m) for s, p, t, m in zip(shapes, positions, turns, middles, strict=True)}


def pad_positions(gripper: float) -> np.ndarray:
    return np.array([place for name, place in hulls(gripper).items() if "_pad_" in name])


def test_every_link_is_drawn_near_its_neighbours() -> None:
    places = hulls(0.0)
    assert {name.rsplit("_", 1)[0] for name in places} >= {f"link{i}" for i in range(8)}
    for name, place in places.items():
        others = [np.linalg.norm(place - other) for key, other in places.items() if key != name]
        assert min(others) < 0.25, f"{name} floats at {place}"
    # MuJoCo's own place of a link that has several hulls, by its collision mesh link5_c1 at home
    assert min(np.linalg.norm(p - (0.243, 0.080, 0.624)) for n, p in places.items() if n.startswith("link5")) < 0.03


def test_the_drawn_fingers_stand_around_the_tool_point_and_close() -> None:
    tool = ModelKinematics(PANDA_2F85).forward(np.array(PANDA_2F85.home)).position
    opened, closed = pad_positions(0.0), pad_positions(0.8)
    assert len(opened) == 4
    assert np.linalg.norm(opened.mean(axis=0) - tool) < 0.03
    widths = [np.ptp(p, axis=0).max() for p in (opened, closed)]
    assert 0.08 < widths[0] < 0.11  # the 2F-85 opens 85 mm, measured here between the middles of the pads
    assert widths[1] < 0.03
