"""The page on stopping says how long a stop takes: what the shipped limits of a Panda give."""

import numpy as np
import pytest
import yaml

from engram.core.motion_limits import MotionLimits
from engram.core.robot import PANDA_2F85
from tests.docs.pages import REPOSITORY

DT = 0.1
PAGE = REPOSITORY / "docs" / "how-to" / "stop_the_robot.md"
LONGEST_RUN_UP = 12
"""Control steps from rest to full speed and beyond."""


def shipped(node: str) -> dict:
    return yaml.safe_load((REPOSITORY / "config" / "robot.yaml").read_text())[f"/**/{node}"]["ros__parameters"]


def shipped_limits() -> MotionLimits:
    fraction, robot = shipped("safety_node")["safety"], PANDA_2F85
    return MotionLimits(
        np.array(robot.position_min),
        np.array(robot.position_max),
        np.array(robot.velocity_max) * fraction["velocity_fraction"],
        np.array(robot.acceleration_max) * fraction["acceleration_fraction"],
        np.array(robot.jerk_max) * fraction["jerk_fraction"],
        DT,
    )


def stop(joint: int, run_up: int) -> tuple[int, float]:
    """Return after how many commands ``joint`` rests that ran up so many steps, and how far it turns in these [rad]."""
    arm, low, high = shipped_limits(), np.array(PANDA_2F85.position_min), np.array(PANDA_2F85.position_max)
    begin, end = (low + high) / 2, (low + high) / 2
    begin[joint], end[joint] = low[joint], high[joint]
    arm.begin(begin)
    for _ in range(run_up):
        arm.take(arm.towards(end))
    moving, steps = arm.last.positions, 0
    while np.abs(arm.last.velocity).max() > 1e-6:
        arm.take(arm.stopping())
        steps += 1
    return steps, float(np.abs(arm.last.positions - moving).max())


def test_a_pandas_commands_rest_as_soon_as_the_page_says():
    stops = [stop(joint, run_up) for joint in range(7) for run_up in range(1, LONGEST_RUN_UP)]
    assert max(steps for steps, _ in stops) == 3 and "three control steps (0.3 s)" in PAGE.read_text()
    assert f"{max(way for _, way in stops):.3f} rad" == "0.063 rad" and "0.063 rad" in PAGE.read_text()


@pytest.mark.parametrize("share", ["velocity_fraction", "acceleration_fraction"])
def test_the_robot_node_allows_what_the_safety_node_gives_and_no_more(share):
    assert shipped("robot_node")[share] == shipped("safety_node")["safety"][share]
