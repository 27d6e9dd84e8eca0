"""One decision a control step: whose action it is, what becomes of it, and when there is none yet."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, NonFiniteError
from engram.core.pipeline import CommandPipeline
from engram.core.safety import SafetyConfig
from engram.core.types import ActionChunk, HumanAction
from tests.core.gantry import GANTRY, GantryKinematics, joints

STEP_NS = 100_000_000
RIGHT = np.array([0.4, 0, 0, 0, 0, 0, -1.0])  # 0.02 m a step along x


def pipeline(*, lockstep: bool = True) -> CommandPipeline:
    return CommandPipeline(GantryKinematics(), GANTRY, lockstep=lockstep, safety=SafetyConfig(stale_after_s=0.5))


def chunk(step: int, *rows, space: str = "ee_delta", execute: int = 0) -> ActionChunk:
    return ActionChunk(step * STEP_NS, 1, space, np.array(rows), 0.1, execute or len(rows), "v3")


def human(row, space: str = "ee_delta", *, active: bool = True) -> HumanAction:
    return HumanAction(0, "ann", active, space, np.array(row))


def at(step: int, x: float = 0.0):
    return joints(x, stamp_ns=step * STEP_NS)


def test_a_policys_row_becomes_a_command_that_names_its_version():
    decision = pipeline().step(at(3), chunk(3, RIGHT))
    assert (decision.author, decision.space, decision.command.stamp_ns) == ("v3", "ee_delta", 3 * STEP_NS)
    assert decision.row.tolist() == RIGHT.tolist()
    assert decision.command.positions == pytest.approx([0.02, 0, 0, 0])


def test_what_an_action_asks_beyond_one_is_executed_and_told_as_one():
    decision = pipeline().step(at(0), chunk(0, [1.5, 0, 0, 0, 0, 0, -2.0]))
    assert decision.row.tolist() == [1, 0, 0, 0, 0, 0, -1]


def test_joint_positions_pass_by_the_controller():
    decision = pipeline().step(at(0), chunk(0, [0.03, 0.01, 0, 0.4], space="joint_position"))
    assert (decision.space, decision.row.tolist()) == ("joint_position", [0.03, 0.01, 0, 0.4])
    assert decision.command.positions.tolist() == [0.03, 0.01, 0, 0.4]


def test_after_joint_positions_relative_motion_begins_where_the_arm_is():
    p = pipeline()
    p.step(at(0), chunk(0, RIGHT))  # a target at 0.02 m
    p.step(at(1, 0.3), human=human([0.3, 0, 0, 0], "joint_position"))
    assert p.step(at(2, 0.3), chunk(2, RIGHT)).command.positions[0] == pytest.approx(0.32)


def test_a_human_goes_before_the_policy_and_one_who_is_not_active_does_not():
    p = pipeline()
    decision = p.step(at(0), chunk(0, RIGHT, RIGHT), human([0, 0.5, 0, 0, 0, 0, -1.0]))
    assert (decision.author, decision.command.positions[:2].tolist()) == ("human:ann", [0, 0.025])
    assert p.step(at(1), human=human([0, 0.5, 0, 0, 0, 0, -1.0], active=False)).author == "v3"


def test_in_lock_step_a_step_without_a_row_waits_and_free_running_holds_it():
    assert pipeline().step(at(0)) is None
    decision = pipeline(lockstep=False).step(joints(0.1, gripper=0.2))
    assert (decision.author, decision.command.held, decision.space) == ("hold:no_command", "no_command", "ee_delta")
    assert decision.row.tolist() == [0, 0, 0, 0, 0, 0, -0.5]  # the gripper a quarter closed, and left there
    assert decision.command.positions.tolist() == [0.1, 0, 0, 0.2]


def test_a_chunk_is_due_without_one_and_when_its_rows_are_executed_but_not_for_a_stopped_robot():
    p = pipeline()
    assert p.chunk_due(0)
    p.step(at(0), chunk(0, RIGHT, RIGHT, RIGHT, execute=2))
    assert [p.chunk_due(step * STEP_NS) for step in (1, 2)] == [False, True]
    p.stop("test")
    assert not p.chunk_due(2 * STEP_NS)


@pytest.mark.parametrize(
    ("error", "reason"), [(NonFiniteError("nan"), "non_finite"), (InvalidInputError("shape"), "invalid_chunk")]
)
def test_the_steps_of_a_refused_chunk_are_held_at_once_and_no_others(error, reason):
    p = pipeline()
    p.refuse(2 * STEP_NS, 2, error)
    p.reset()  # it may be the first chunk of the episode that begins
    held = [decision and decision.author for decision in (p.step(at(step)) for step in range(1, 5))]
    assert held == [None, f"hold:{reason}", f"hold:{reason}", None]
    assert p.step(at(3), chunk(3, RIGHT)).author == "v3"  # a good one for the same step counts


def test_a_stop_goes_before_a_human_and_lasts_until_it_is_released():
    p = pipeline()
    p.stop("button")
    assert p.step(at(0), chunk(0, RIGHT), human(RIGHT)).author == "hold:stopped"
    assert p.hold(at(0), "no_task").author == "hold:stopped"
    p.reset()
    assert p.step(at(1)).author == "hold:stopped"
    assert (p.release(), p.release()) == ("button", "")
    assert p.step(at(2), chunk(2, RIGHT)).command.positions[0] == pytest.approx(0.02)


def test_joint_states_that_are_too_old_hold():
    decision = pipeline(lockstep=False).step(at(0), chunk(0, RIGHT), age_s=0.6)
    assert decision.author == "hold:stale"


@pytest.mark.parametrize("action", [np.full(7, np.nan), np.zeros(5), np.zeros((2, 7))])
def test_an_action_that_is_not_fit_to_run_becomes_a_hold(action):
    p = pipeline()
    decision = p.step_action(joints(0.1), action)
    assert (decision.command.held, decision.command.positions[0]) == ("non_finite", 0.1)
    assert p.filter.counts["non_finite"] == 1


def test_a_decision_travels_as_a_chunk_of_one_row():
    executed = pipeline().step(at(4), chunk(4, RIGHT)).as_chunk(9)
    assert (executed.stamp_ns, executed.episode, executed.policy_version, executed.execute_steps) == (
        4 * STEP_NS, 9, "v3", 1,
    )  # fmt: skip
    assert executed.actions.tolist() == [RIGHT.tolist()]


def test_what_a_stopped_robot_was_not_let_do_counts_as_not_done():
    p = pipeline(lockstep=False)
    p.executor.accept(chunk(0, *np.tile([0.2, 0, 0, 0, 0, 0, -1.0], (8, 1)), execute=3))
    p.stop("test")
    for step in range(3):
        assert p.step(at(step)).command.held
    p.release()
    late = chunk(2, *np.tile([0.1, 0, 0, 0, 0, 0, -1.0], (8, 1)), execute=3)
    assert p.step(at(3), late).row[0] == pytest.approx(0.2)  # its own row, and that of step 2


def test_the_arm_that_the_cell_holds_is_not_led_away():
    p = pipeline()
    p.step(replace(at(0), held=True), chunk(0, RIGHT, RIGHT))
    assert p.step(at(1)).command.positions[0] == pytest.approx(0.02)  # 0.02 m in all, not 0.04
