from dataclasses import replace

import numpy as np
import pytest

from engram.core.contracts import MotionBarrier
from engram.core.errors import InvalidInputError
from engram.core.safety import SafetyConfig, SafetyFilter
from tests.core.gantry import GANTRY, GantryKinematics, joints


def safety(**config) -> SafetyFilter:
    return SafetyFilter(GANTRY, GantryKinematics(), SafetyConfig(**config))


def test_a_harmless_command_passes_unchanged():
    command = safety().filter(np.array([0.02, 0, 0, 0.4]), joints(), 0.1)
    np.testing.assert_array_equal(command.positions, [0.02, 0, 0, 0.4])
    assert command.held == ""


def test_velocity_is_limited():
    f = safety()
    f.filter(np.array([0.05, 0, 0, 0]), joints(), 0.1)  # 0.5 m/s, the most that 5 m/s^2 allows from rest
    command = f.filter(np.array([0.45, 0, 0, 0]), joints(0.05), 0.1)
    assert command.positions[0] == pytest.approx(0.05 + 1.0 * 0.1)
    assert f.counts["velocity_limited"] == 1


def test_acceleration_is_limited_from_the_last_command():
    f = safety()
    command = f.filter(np.array([0.1, 0, 0, 0]), joints(), 0.1)
    assert command.positions[0] == pytest.approx(5.0 * 0.1 * 0.1)  # a * dt * dt
    assert f.counts["acceleration_limited"] == 1


def test_position_is_limited():
    f = SafetyFilter(GANTRY, GantryKinematics(), SafetyConfig(workspace_margin_m=2.0))
    command = f.filter(np.array([0, 0, 0, 2.0]), joints(gripper=0.75), 0.1)
    assert command.positions[3] == pytest.approx(0.8)
    assert f.counts["position_limited"] == 1


@pytest.mark.parametrize(
    ("positions", "age_s", "reason"),
    [
        (np.array([np.nan, 0, 0, 0]), 0.0, "non_finite"),
        (np.array([np.inf, 0, 0, 0]), 0.0, "non_finite"),
        (np.zeros(3), 0.0, "wrong_shape"),
        (np.zeros(4), 0.51, "stale"),
        (np.zeros(4), float("nan"), "stale"),
        (np.zeros(4), -0.3, "future"),
        (np.zeros(4), float("-inf"), "future"),
        (None, 0.0, "no_command"),
    ],
)
def test_what_is_not_fit_to_run_becomes_a_hold(positions, age_s, reason):
    f = safety()
    command = f.filter(positions, joints(0.1, 0.2, 0.3), 0.1, age_s)
    assert command.held == reason
    np.testing.assert_array_equal(command.positions, [0.1, 0.2, 0.3, 0.0])
    assert f.counts[reason] == 1


@pytest.mark.parametrize("duration_s", [0.0, -0.1, 1e-9, 0.2, float("nan"), float("inf")])
def test_a_duration_that_is_not_the_control_period_becomes_a_hold(duration_s):
    command = safety().filter(np.array([0.02, 0, 0, 0]), joints(), duration_s)
    assert (command.held, command.positions[0], command.duration_s) == ("wrong_duration", 0.0, 0.1)


def test_a_hold_repeats_the_last_command_wherever_the_joints_are_measured():
    f = safety()
    f.filter(np.array([0.02, 0, 0, 0.3]), joints(0.01, gripper=0.1), 0.1)
    for x, gripper in ((0.02, 0.2), (0.5, 0.8), (-1.5, 0.0), (0.02, 0.2)):
        assert f.filter(None, joints(x, gripper=gripper), 0.1).positions.tolist() == [0.02, 0, 0, 0.3]


def test_a_hold_in_motion_brakes_within_the_limits():
    f = safety(workspace_margin_m=1.0)
    for here, there in ((0.0, 0.05), (0.05, 0.15)):  # 0.5 m/s, then 1 m/s
        f.filter(np.array([there, 0, 0, 0]), joints(here), 0.1)
    stop = [f.hold(joints(0.15), "stopped").positions[0] for _ in range(3)]
    assert stop == pytest.approx([0.20, 0.20, 0.20])  # 5 m/s^2 takes 0.5 m/s off in each step


def test_a_hold_without_a_command_before_stays_within_the_joints_ranges():
    assert safety().hold(joints(1.2, gripper=-0.1), "no_command").positions.tolist() == [1.0, 0, 0, 0]


def test_a_jumped_measurement_does_not_move_the_command_faster_than_the_limits():
    f = safety()
    for step, x in enumerate((0.0, 0.5, -1.5, 0.5, 0.0)):
        before = 0.0 if f.last is None else f.last[0]
        command = f.filter(np.array([x + 0.02, 0, 0, 0]), joints(x), 0.1)
        assert abs(command.positions[0] - before) <= 0.05 * (step + 1) + 1e-12  # 0.5 m/s more in each step
        assert abs(command.positions[0] - before) <= 0.1 + 1e-12


def test_a_blocked_arm_is_led_away_no_further_than_one_step_and_its_stop():
    f = safety(workspace_margin_m=1.0)
    for _ in range(20):  # asked to go on and on, measured at 0
        command = f.filter(np.array([0.9, 0, 0, 0]), joints(), 0.1)
    assert command.positions[0] <= 0.15 + 1e-12


def test_the_hold_of_an_arm_that_the_cell_moves_goes_along_within_the_limits():
    f = safety()
    f.hold(joints(), "no_command")
    way = [f.hold(replace(joints(0.3, gripper=0.8), held=True), "no_command").positions[0] for _ in range(6)]
    assert way[:2] == pytest.approx([0.05, 0.15])  # 0.5 m/s, then 1 m/s
    assert way[-1] == pytest.approx(0.3)
    assert f.hold(joints(0.3), "no_command").positions.tolist() == pytest.approx([0.3, 0, 0, 0.8])


def test_an_arm_far_from_its_last_command_is_named():
    f = safety()
    assert f.lag(joints(0.9)) == ""  # no command yet
    f.hold(joints(), "no_command")
    assert f.lag(joints(0.249)) == ""  # 1 m/s for 0.1 s, 0.05 s of slack, and half of the 0.2 s that a stop takes
    assert f.lag(joints(0, 0.26)) == "y measured 0.260 away from its last command"
    assert f.lag(joints(gripper=0.8)) == ""


def test_stop_latches_until_reset_and_survives_a_new_episode():
    f = safety()
    f.stop("button")
    assert f.filter(np.zeros(4), joints(), 0.1).held == "stopped"
    f.forget()
    assert f.filter(np.zeros(4), joints(), 0.1).held == "stopped"
    f.reset()
    assert f.filter(np.zeros(4), joints(), 0.1).held == ""


def test_another_filter_goes_on_from_the_last_command_to_the_bit():
    f, other = safety(acceleration_fraction=0.4), safety(acceleration_fraction=0.4)
    assert f.state is None
    for _ in range(3):
        f.filter(np.array([0.3, -0.1, 0.05, 0.8]), joints(0.1), 0.1)
    assert f.state.shape == (10,)
    other.resume(f.state)
    back = np.array([-0.3, 0.2, 0.05, 0.0])
    for x in (0.1, 0.12, 0.15):
        commands = [one.filter(back, joints(x), 0.1).positions for one in (f, other)]
        np.testing.assert_array_equal(*commands)
    np.testing.assert_array_equal(other.state, f.state)


def test_leaving_the_workspace_holds_but_coming_back_is_allowed():
    f = safety()
    assert f.filter(np.array([0.53, 0, 0, 0]), joints(0.5), 0.1).held == "workspace"
    f.forget()
    assert f.filter(np.array([0.55, 0, 0, 0]), joints(0.56), 0.1).held == ""


def test_all_arm_joints_slow_down_together_so_that_the_tool_keeps_to_its_way():
    f = safety()
    command = f.filter(np.array([0.3, -0.15, 0.06, 0.0]), joints(), 0.1)  # 3 m/s asked, 1 m/s allowed, 0.5 in one step
    np.testing.assert_allclose(command.positions[:3], [0.05, -0.025, 0.01], rtol=1e-12)
    assert (f.counts["velocity_limited"], f.counts["acceleration_limited"]) == (1, 1)


def test_the_gripper_is_limited_by_its_own_speed_and_slows_no_arm_joint():
    f = SafetyFilter(GANTRY, GantryKinematics(), control_dt_s=0.05)
    command = f.filter(np.array([0.02, 0.01, 0, 0.8]), joints(), 0.05)
    np.testing.assert_allclose(
        command.positions[:2], [0.0125, 0.00625], rtol=1e-12
    )  # 5 m/s^2 x (0.05 s)^2, and half of it
    assert command.positions[3] == pytest.approx(8.0 * 0.05)


def test_a_turn_that_is_too_sharp_goes_part_of_the_way_from_the_old_velocity_to_the_new():
    f = safety(workspace_margin_m=1.0)
    f.filter(np.array([0.05, 0, 0, 0]), joints(), 0.1)  # now 0.5 m/s along x
    command = f.filter(np.array([0.05, 0.1, 0, 0]), joints(0.05), 0.1)  # asked: 1 m/s along y; 0.5 m/s may change
    np.testing.assert_allclose((command.positions[:3] - [0.05, 0, 0]) / 0.1, [0.25, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("name", ["velocity_fraction", "acceleration_fraction", "jerk_fraction"])
@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_share_of_a_limit_is_above_zero_and_at_most_one(name, share):
    with pytest.raises(InvalidInputError, match=name):
        SafetyConfig(**{name: share})


class Crowd(MotionBarrier):
    """Lets every motion through, and is near to another thing each time."""

    obstacles_max = 0
    nearest = ""

    def limit(self, start, goal, follow):
        self.nearest = f"hand/thing {int(self.nearest.rpartition(' ')[2] or 0) + 1}"
        return goal

    def set_obstacles(self, obstacles):
        """There are none."""


def test_of_things_that_were_near_a_few_are_counted_by_name(monkeypatch):
    """A memory has no end of things; the diagnostics have one."""
    monkeypatch.setattr("engram.core.safety.MOST_COUNTS", 3)
    f = SafetyFilter(GANTRY, GantryKinematics(), SafetyConfig(), barrier=Crowd())
    for _ in range(10):
        f.filter(np.zeros(4), joints(), 0.1)
    named = [name for name in f.counts if name.startswith("near hand/")]
    assert 1 <= len(named) <= 3 and f.counts["near other things"] + len(named) == 10
