from dataclasses import replace

import numpy as np
import pytest

from engram.core.control import ChunkExecutor, ControlConfig, EndEffectorController, proprioception
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk
from tests.core.gantry import GANTRY, GantryKinematics, joints


def controller() -> EndEffectorController:
    return EndEffectorController(
        GantryKinematics(), GANTRY, ControlConfig(position_scale_m=0.05, position_leash_m=0.06)
    )


@pytest.mark.parametrize("name", vars(ControlConfig()))
@pytest.mark.parametrize("value", [0.0, -0.05, float("nan"), float("inf")])
def test_scales_and_rates_are_numbers_above_zero(name, value):
    with pytest.raises(InvalidInputError, match=rf"ControlConfig\.{name}: "):
        ControlConfig(**{name: value})


def test_a_control_step_is_as_long_as_the_nodes_allow():
    for value in (0.005, 2.0):
        with pytest.raises(InvalidInputError, match=r"ControlConfig\.control_dt_s: .*expected 0\.01 \.\. 1 s"):
            ControlConfig(control_dt_s=value)


def test_one_action_moves_by_its_scale_and_maps_the_gripper():
    command = controller().command(np.array([1.0, -0.5, 0, 0, 0, 0, 0.0]), joints(0.1, 0.1, 0.1))
    np.testing.assert_allclose(command.positions, [0.15, 0.075, 0.1, 0.4])  # gripper 0 = half of 0.8
    assert command.names == ("x", "y", "z", "gripper")


def test_the_target_integrates_although_the_arm_lags():
    c = controller()
    c.command(np.array([0.5, 0, 0, 0, 0, 0, -1]), joints())
    command = c.command(np.array([0.5, 0, 0, 0, 0, 0, -1]), joints(0.02))
    assert command.positions[0] == pytest.approx(0.05)  # 2 x 0.5 x 0.05, not 0.02 + 0.025


def test_pushing_against_a_wall_does_not_wind_up():
    c = controller()
    for _ in range(50):
        command = c.command(np.array([1.0, 0, 0, 0, 0, 0, -1]), joints(0.1))
    assert command.positions[0] == pytest.approx(0.16)  # 0.1 measured + 0.06 leash


def test_the_target_stays_in_the_workspace():
    c = controller()
    for x in np.arange(0.3, 0.6, 0.05):
        command = c.command(np.array([1.0, 0, 0, 0, 0, 0, -1]), joints(min(float(x), 0.5)))
    assert command.positions[0] == pytest.approx(0.5)


def test_reset_starts_from_the_measured_tool_again():
    c = controller()
    c.command(np.array([1.0, 0, 0, 0, 0, 0, -1]), joints())
    c.reset()
    assert c.command(np.zeros(7), joints(0.3)).positions[0] == pytest.approx(0.3)


def test_what_a_held_arm_is_told_does_not_pile_up():
    c = controller()
    for _ in range(5):
        held = replace(joints(0.3), held=True)
        assert c.command(np.array([1.0, 0, 0, 0, 0, 0, -1]), held).positions[0] == pytest.approx(0.3)
    assert c.command(np.array([0.2, 0, 0, 0, 0, 0, -1]), joints(0.3)).positions[0] == pytest.approx(0.31)


def test_a_non_finite_action_is_refused():
    with pytest.raises(InvalidInputError, match="action: 1 of 7 values are not finite"):
        controller().command(np.array([0, 0, 0, 0, 0, 0, np.nan]), joints())


def test_proprioception_layout():
    state = proprioception(joints(0.1, 0.2, 0.3, gripper=0.4), GantryKinematics(), GANTRY)
    np.testing.assert_allclose(state, [0.1, 0.2, 0.3, 1, 0, 0, 0, 0.5, 0.1, 0.2, 0.3], rtol=1e-6)


def rows(stamp_s: float, *, first: float = 0.0) -> ActionChunk:
    actions = np.arange(4)[:, None] + np.full((4, 7), first)
    return ActionChunk(int(stamp_s * 1e9), 1, "ee_delta", actions, 0.1, 2, "v")


def test_lockstep_executes_the_agreed_rows_and_then_waits():
    executor = ChunkExecutor(lockstep=True)
    executor.accept(rows(1.0))
    got = [executor.action(int(t * 1e9)) for t in (0.9, 1.0, 1.1, 1.2)]
    assert got[0] is None and got[3] is None
    assert [a[0] for a in got[1:3]] == [0, 1]


def test_free_running_bridges_a_late_policy_up_to_the_horizon():
    executor = ChunkExecutor(lockstep=False)
    executor.accept(rows(1.0))
    assert executor.action(int(1.3e9))[0] == 3
    assert executor.action(int(1.4e9)) is None


def motions(stamp: int, *x: float, space: str = "ee_delta") -> ActionChunk:
    """Return a chunk for the control step ``stamp`` whose rows move along x."""
    actions = np.zeros((len(x), 7))
    actions[:, 0], actions[:, 6] = x, -1.0
    return ActionChunk(stamp * 100_000_000, 1, space, actions, 0.1, 2, "v")


def moved(executor: ChunkExecutor, first: int, last: int) -> list[float | None]:
    """Return the motion along x of control steps ``first`` to ``last``; None = held."""
    actions = [executor.action(step * 100_000_000) for step in range(first, last + 1)]
    return [None if action is None else round(float(action[0]), 6) for action in actions]


def test_what_a_late_chunk_wanted_by_now_is_made_up_for():
    executor = ChunkExecutor(lockstep=False)
    assert moved(executor, 0, 1) == [None, None]  # nothing there yet: held
    chunk = motions(0, 0.5, 0.5, 0.5, 0.25, 0.0)
    executor.accept(chunk)
    assert moved(executor, 2, 2) == [1.0]
    executor.accept(chunk)  # the safety node takes its newest chunk at every step
    assert moved(executor, 3, 4) == [0.75, 0.0]  # 1.75 in all, as wanted


def test_what_an_older_chunk_did_meanwhile_counts_and_too_much_is_taken_back():
    executor = ChunkExecutor(lockstep=False)
    executor.accept(motions(0, 0.5, 0.5, 0.5, 0.5))
    assert moved(executor, 0, 3) == [0.5, 0.5, 0.5, 0.5]
    executor.accept(motions(2, 0.5, 0.1, 0.0, 0.0, 0.0))  # asked at step 2, here after step 3
    assert moved(executor, 4, 6) == [-0.4, 0.0, 0.0]


def test_a_chunk_in_time_is_executed_as_it_is():
    executor = ChunkExecutor(lockstep=False)
    executor.accept(motions(0, 0.5, 0.5))
    assert moved(executor, 0, 1) == [0.5, 0.5]
    executor.accept(motions(2, 0.2, 0.1))
    assert moved(executor, 2, 3) == [0.2, 0.1]


def test_a_step_is_not_told_twice_otherwise():
    executor = ChunkExecutor(lockstep=False)
    moved(executor, 0, 1)
    executor.accept(motions(0, 0.5, 0.5, 0.0, 0.0))
    assert moved(executor, 2, 2) == moved(executor, 2, 2) == [1.0]
    assert moved(executor, 3, 3) == [0.0]


def test_nothing_is_owed_for_steps_that_somebody_else_drove():
    executor = ChunkExecutor(lockstep=False)
    moved(executor, 0, 0)
    executor.accept(motions(0, 0.5, 0.5, 0.5, 0.5))
    assert moved(executor, 1, 1) == [1.0]
    executor.accept(motions(1, 0.1, 0.1, 0.1, 0.1))  # a human drove step 2
    assert moved(executor, 3, 3) == [0.1]
    executor.accept(motions(2, 0.1, 0.1, 0.1, 0.1))
    assert moved(executor, 4, 4) == [0.1]


def test_nothing_is_owed_in_lock_step_nor_by_joint_positions():
    waiting = ChunkExecutor(lockstep=True)
    moved(waiting, 0, 0)
    waiting.accept(motions(0, 0.5, 0.5))
    assert moved(waiting, 1, 1) == [0.5]
    joints = ChunkExecutor(lockstep=False)
    moved(joints, 0, 0)
    joints.accept(motions(0, 0.5, 0.5, space="joint_position"))
    assert moved(joints, 1, 1) == [0.5]


def test_where_the_robot_held_instead_nothing_more_is_owed_and_nothing_was_done():
    executor = ChunkExecutor(lockstep=False)
    moved(executor, 0, 1)
    executor.accept(motions(0, 0.5, 0.5, 0.5, 0.5, 0.5))
    assert moved(executor, 2, 2) == [1.0]
    executor.held(200_000_000)  # a stop, say: that was not let through
    assert moved(executor, 3, 3) == [0.5]
    executor.accept(motions(2, 0.3, 0.3, 0.0, 0.0))
    assert moved(executor, 4, 4) == [0.1]  # 0.6 wanted in steps 2 and 3, 0.5 done


def test_who_is_told_to_stand_still_does_not_go_back():
    executor = ChunkExecutor(lockstep=False)
    executor.accept(motions(0, 0.5, 0.5, 0.5, 0.5))
    moved(executor, 0, 2)
    executor.accept(motions(2, 0.0, 0.0, 0.0, 0.0))
    assert moved(executor, 3, 4) == [0.0, 0.0]


def test_a_new_episode_owes_nothing():
    executor = ChunkExecutor(lockstep=False)
    moved(executor, 0, 0)
    executor.accept(motions(0, 0.5, 0.5, 0.5))
    executor.reset()
    executor.accept(motions(0, 0.5, 0.5, 0.5))
    assert moved(executor, 1, 1) == [0.5]


def test_an_older_chunk_never_replaces_a_newer_one():
    executor = ChunkExecutor(lockstep=True)
    assert executor.accept(rows(1.0, first=10))
    assert not executor.accept(rows(0.9))
    assert executor.action(int(1e9))[0] == 10
