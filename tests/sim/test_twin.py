"""A robot that nobody judges has the gap that a file names, as it is when things are arranged."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.robot import PANDA_2F85
from engram.core.types import JointCommand
from engram.sim.gaps import GAPS
from engram.sim.twin import GAP_FILE, ChangingWorkcell, UnjudgedWorkcell
from engram.sim.world import WorldConfig
from engram.sim.worlds import make_mujoco_world, make_world

BLIND = WorldConfig(profile="none")


@pytest.fixture
def gap(tmp_path, monkeypatch):
    path = tmp_path / "gap.txt"
    path.write_text("mounted\n")
    monkeypatch.setenv(GAP_FILE, str(path))
    return path


def test_the_robot_changes_when_things_are_arranged_anew(gap):
    world = make_world("engram.sim.twin:ChangingWorkcell", BLIND, judged=False)
    world.reset("reach", 0)
    first = world.tool_pose().position
    gap.write_text("knocked")
    world.reset("reach", 0)
    second = world.tool_pose().position
    assert first[1] * second[1] < 0.0 and abs(second[1]) > abs(first[1]) > 0.01  # to the other side, and farther
    assert not world.oracle_outcome().truncated


def test_a_twin_has_its_gap_by_name_and_is_no_world_to_measure_a_policy_in():
    late = make_world("twin:gap=late", BLIND, judged=False)
    assert isinstance(late, UnjudgedWorkcell) and late.gap == GAPS["late"]
    assert type(make_world("twin", BLIND, judged=False)) is UnjudgedWorkcell
    for make in (make_world, make_mujoco_world):
        for name in ("twin", "twin:gap=late", "engram.sim.twin:UnjudgedWorkcell"):
            with pytest.raises(InvalidInputError, match=f"world '{name}': no episode ends there"):
                make(name, BLIND)


def test_a_gap_that_no_such_world_has_is_named(gap, monkeypatch):
    for name, error, told in (
        ("turned", InvalidInputError, "'turned' has yaw_deg, and that cannot be built into"),
        ("worn", InvalidInputError, "'worn' has deadband"),
        ("careful", InvalidInputError, "'careful' has limits"),
        ("nope", UnknownNameError, "unknown gap 'nope'; .*valid: dim, "),
    ):
        gap.write_text(name)
        with pytest.raises(error, match=told):
            ChangingWorkcell(BLIND)
    monkeypatch.delenv(GAP_FILE)
    with pytest.raises(InvalidInputError, match=f"{GAP_FILE}: not set, expected a file"):
        ChangingWorkcell(BLIND)


def test_the_arm_moves_no_faster_than_its_motors(gap):
    """Of commands that come late two may come at once."""
    world = ChangingWorkcell(BLIND)
    world.reset("reach", 0)
    before = world.observe().joints
    most = np.array(PANDA_2F85.velocity_max) * 0.1
    far = before.positions + np.append(3 * most, 0.0)
    for _ in range(2):
        world.advance(JointCommand(0, before.names, far, 0.1))
        after = world.observe().joints.positions
        assert (np.abs(after - before.positions)[:-1] < 1.5 * most).all()
        before = world.observe().joints
