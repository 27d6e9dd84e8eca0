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


def test_an_older_chunk_never_replaces_a_newer_one():
    executor = ChunkExecutor(lockstep=True)
    assert executor.accept(rows(1.0, first=10))
    assert not executor.accept(rows(0.9))
    assert executor.action(int(1e9))[0] == 10
