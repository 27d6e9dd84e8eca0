"""The limits of a command sequence: closed forms by hand, and laws that hold for any request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.core.motion_limits import JointLimit, MotionLimits

DT = 0.1
FREE = JointLimit(-1.0, 1.0, speed=1.0, acceleration=5.0, jerk=np.inf, dt=DT)
SMOOTH = JointLimit(-1.0, 1.0, speed=1.0, acceleration=5.0, jerk=20.0, dt=DT)  # 2 m/s^2 more in each step


def test_without_a_jerk_limit_the_acceleration_alone_decides():
    assert FREE.up_to(0.0, 0.0, 1.0) == pytest.approx(0.5)
    assert FREE.up_to(0.8, 5.0, 1.0) == pytest.approx(1.0)
    assert FREE.down_to(0.3, 0.0, -1.0) == pytest.approx(-0.2)


def test_the_acceleration_is_taken_back_in_time_for_the_limit_of_velocity():
    # From 0.6 m/s at 2 m/s^2, 0.3 m/s more are allowed in all: 3 m/s^2 now and 1 m/s^2 in the step after it would be
    # 0.4 m/s, so the acceleration now is x with x + (x - 2) = 4 - 1 = 3: 2.5 m/s^2.
    assert SMOOTH.up_to(0.6, 2.0, 0.9) == pytest.approx(0.6 + 2.5 * DT)
    assert SMOOTH.up_to(0.0, 0.0, 1.0) == pytest.approx(0.2)  # jerk: 2 m/s^2 in the first step
    assert SMOOTH.up_to(0.0, 4.0, 10.0) == pytest.approx(0.5)  # acceleration: 5 m/s^2 at most


def test_a_joint_stops_before_the_end_of_its_range():
    # At 1 m/s a stop takes 0.5 m/s and then nothing: 0.05 m. So the next command may be at 0.95 m at 1 m/s.
    assert FREE.before_end(0.85, 1.0, 0.0, 1.0) == pytest.approx(1.0)
    assert FREE.before_end(0.90, 1.0, 0.0, 1.0) == pytest.approx(0.75)  # 0.975 m, then 0.025 m at 0.25 m/s
    assert FREE.mirrored().before_end(0.90, 1.0, 0.0, 1.0) == pytest.approx(0.75)


def test_a_command_comes_before_the_first_measurement_only_by_mistake():
    with pytest.raises(EngramError, match="begin"):
        limits(np.inf).stopping()


def limits(jerk: float, dt: float = DT, joints: int = 3) -> MotionLimits:
    one = np.ones(joints)
    return MotionLimits(-one, one, one, 5.0 * one, jerk * one, dt)


def check_sequence(positions: np.ndarray, jerk: float, dt: float, speed=1.0, acceleration=5.0, low=-1.0, high=1.0):
    """Assert that commands (k, n), at rest before the first, keep all limits."""
    rest = np.repeat(positions[:1], 3, axis=0)
    whole = np.vstack((rest, positions))
    v = np.diff(whole, axis=0) / dt
    a = np.diff(v, axis=0) / dt
    j = np.diff(a, axis=0) / dt
    assert (whole >= low - 1e-12).all()
    assert (whole <= high + 1e-12).all()
    assert (np.abs(v) <= np.asarray(speed) * (1 + 1e-9)).all()
    assert (np.abs(a) <= np.asarray(acceleration) * (1 + 1e-9)).all()
    assert (np.abs(j) <= np.asarray(jerk) * (1 + 1e-7)).all()


targets = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3)
steps = st.lists(st.one_of(st.none(), targets), min_size=1, max_size=60)


@pytest.mark.parametrize(("jerk", "dt"), [(np.inf, 0.1), (100.0, 0.1), (20.0, 0.1), (50.0, 0.02), (8.0, 0.05)])
@settings(max_examples=40, deadline=None)
@given(asked=steps)
def test_whatever_is_asked_the_commands_keep_all_limits_and_then_stop(jerk, dt, asked):
    arm = limits(jerk, dt)
    arm.begin(np.zeros(3))
    commands = [arm.last.positions]
    for target in [*asked, *[None] * 300]:
        plan = arm.stopping() if target is None else arm.towards(np.array(target))
        arm.take(plan)
        commands.append(plan.positions)
    check_sequence(np.array(commands), jerk, dt)
    assert (np.diff(commands[-20:], axis=0) == 0.0).all()


@pytest.mark.parametrize(("jerk", "dt"), [(20.0, 0.1), (8.0, 0.1), (4.0, 0.05)])
def test_a_stop_on_the_way_to_the_end_of_a_range_keeps_all_limits(jerk, dt):
    for steps in range(1, 80):
        arm = limits(jerk, dt)
        arm.begin(np.zeros(3))
        commands = [arm.last.positions]
        for step in range(steps + 200):
            arm.take(arm.towards(np.array([3.0, -3.0, 0.1])) if step < steps else arm.stopping())
            commands.append(arm.last.positions)
        check_sequence(np.array(commands), jerk, dt)


@pytest.mark.parametrize("jerk", [np.inf, 20.0])
def test_what_keeps_the_limits_is_commanded_to_the_bit(jerk):
    arm = limits(jerk)
    arm.begin(np.zeros(3))
    target = np.array([0.0013, -0.0007, 0.0])
    plan = arm.towards(target)
    assert plan.positions.tolist() == target.tolist()
    assert plan.limited == ()


def test_one_joint_at_the_end_of_its_range_does_not_stop_the_others():
    arm = limits(np.inf)
    arm.begin(np.array([1.0, 0.0, 0.0]))
    plan = arm.towards(np.array([1.05, 0.04, 0.0]))
    assert plan.positions == pytest.approx([1.0, 0.04, 0.0])
    assert plan.limited == ("position",)


def test_rest_is_where_a_stop_ends():
    arm = limits(20.0)
    arm.begin(np.zeros(3))
    for _ in range(8):
        arm.take(arm.towards(np.array([1.0, -1.0, 0.5])))
    foretold = arm.rest(arm.last)
    for _ in range(60):
        arm.take(arm.stopping())
    np.testing.assert_allclose(arm.last.positions, foretold, atol=1e-9)
