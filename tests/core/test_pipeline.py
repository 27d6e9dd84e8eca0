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


def human(row, space: str = "ee_delta", *, active: bool = True, step: int = 0) -> HumanAction:
    return HumanAction(step * STEP_NS, "ann", active, space, np.array(row))


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


def test_what_a_limit_takes_of_a_motion_is_not_told_as_executed():
    """The gantry does 0.05 m a step: with a fifth of its speed, half of what is asked, from rest at first less."""
    config = SafetyConfig(velocity_fraction=0.2)
    p = CommandPipeline(GantryKinematics(), GANTRY, safety=config)
    asked = np.array([0.8, 0, 0, 0, 0, 0, -1.0])
    x, commanded, told = 0.0, [], []
    for step in range(6):
        decision = p.step(at(step, x), chunk(step, asked))
        commanded.append(float(decision.command.positions[0]))
        told.append(decision.row)
        x = commanded[-1]
    scale = p.controller.config.position_scale_m
    assert np.diff([0.0, *commanded]) / scale == pytest.approx([row[0] for row in told])
    assert 0.0 < told[-1][0] < asked[0]
    assert [row.tolist()[1:] for row in told] == [asked.tolist()[1:]] * 6


def test_motion_that_a_limit_takes_away_is_not_made_up_for_when_the_policy_turns_round():
    slow = CommandPipeline(GantryKinematics(), GANTRY, safety=SafetyConfig(velocity_fraction=0.1))
    right, left = np.array([1.0, 0, 0, 0, 0, 0, -1.0]), np.array([-1.0, 0, 0, 0, 0, 0, -1.0])
    path = [0.0]
    for step, action in enumerate([right] * 4 + [left] * 3):
        command = slow.step_action(joints(path[-1], stamp_ns=step * 100_000_000), action).command
        path.append(float(command.positions[0]))
    turned = np.diff(path)
    assert turned[:4] == pytest.approx([0.01] * 4)  # 0.05 m a step were asked for, 0.1 m/s are allowed
    assert turned[4:] == pytest.approx([-0.01] * 3)


def test_of_a_robot_that_turns_motions_the_policys_own_action_is_told():
    p = pipeline()

    class Turned(type(p.controller)):
        def understood(self, action):
            return action[[1, 0, *range(2, 7)]]

    p.controller = Turned(GantryKinematics(), GANTRY)
    decision = p.step(at(0), chunk(0, RIGHT))
    assert decision.command.positions == pytest.approx([0, 0.02, 0, 0])
    assert decision.row.tolist() == RIGHT.tolist()


def test_joint_positions_pass_by_the_controller():
    decision = pipeline().step(at(0), chunk(0, [0.03, 0.01, 0, 0.4], space="joint_position"))
    assert (decision.space, decision.row.tolist()) == ("joint_position", [0.03, 0.01, 0, 0.4])
    assert decision.command.positions.tolist() == [0.03, 0.01, 0, 0.4]


def test_after_joint_positions_relative_motion_begins_where_the_arm_is():
    p = pipeline()
    p.step(at(0), chunk(0, RIGHT))  # a target at 0.02 m
    p.step(at(1, 0.1), human=human([0.06, 0, 0, 0], "joint_position", step=1))
    assert p.step(at(2, 0.1), chunk(2, RIGHT)).command.positions[0] == pytest.approx(0.12)


def test_a_humans_joint_targets_are_told_as_the_policy_acts():
    p = pipeline()
    p.step(at(0), chunk(0, RIGHT))  # by motions of the tool
    told = p.step(at(1, 0.02), human=human([0.03, 0, 0, 0], "joint_position", step=1))
    assert (told.author, told.space) == ("human:ann", "ee_delta")
    assert told.row[:6] == pytest.approx([0.2, 0, 0, 0, 0, 0])  # from 0.02 m, where it was sent before, to 0.03 m
    by_joints = ActionChunk(at(2).stamp_ns, 1, "joint_position", np.array([[0.03, 0, 0, 0.0]]), 0.1, 1, "v3")
    p.step(at(2, 0.03), by_joints)
    told = p.step(at(3, 0.03), human=human([0.04, 0, 0, 0], "joint_position", step=3))
    assert (told.space, told.row.tolist()) == ("joint_position", [0.04, 0, 0, 0])


def test_a_human_goes_before_the_policy_and_one_who_is_not_active_does_not():
    p = pipeline()
    decision = p.step(at(0), chunk(0, RIGHT, RIGHT), human([0, 0.5, 0, 0, 0, 0, -1.0]))
    assert (decision.author, decision.command.positions[:2].tolist()) == ("human:ann", [0, 0.025])
    back = human([0, 0.5, 0, 0, 0, 0, -1.0], active=False, step=1)
    assert p.step(at(1), human=back) is None  # what was planned before the human drove is not executed
    assert p.step(at(1), chunk(0, RIGHT, RIGHT, RIGHT), back) is None
    assert p.step(at(1), chunk(1, RIGHT), back).author == "v3"


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
    assert p.filter.counts[f"chunk_{reason}"] == 1


def test_a_good_chunk_for_the_steps_of_a_refused_one_counts():
    p = pipeline()
    p.refuse(0, 8, NonFiniteError("nan"))
    assert p.step(at(0)).author == "hold:non_finite"
    assert p.step(at(1), chunk(1, RIGHT)).author == "v3"
    assert p.step(at(2)) is None  # waits for the next one: nothing of the refused one stays


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


@pytest.mark.parametrize(
    ("action", "reason"),
    [(np.full(7, np.nan), "non_finite"), (np.zeros(5), "chunk_dimension"), (np.zeros((2, 7)), "non_finite")],
)
def test_an_action_that_is_not_fit_to_run_becomes_a_hold(action, reason):
    p = pipeline()
    decision = p.step_action(joints(0.1), action)
    assert (decision.command.held, decision.command.positions[0]) == (reason, 0.1)
    assert p.filter.counts[reason] >= 1


def shaped(
    stamp_ns: int = 0, *, space: str = "ee_delta", rows: int = 1, dim: int = 7, dt_s: float = 0.1
) -> ActionChunk:
    return ActionChunk(stamp_ns, 1, space, np.zeros((rows, dim)), dt_s, rows, "odd")


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (shaped(dt_s=1e6), "chunk_dt"),
        (shaped(dt_s=0.1001), "chunk_dt"),
        (shaped(rows=65), "chunk_horizon"),
        (shaped(dim=8), "chunk_dimension"),
        (shaped(space="joint_position"), "chunk_dimension"),
        (shaped(1), "chunk_stamp"),  # of a step to come
        (shaped(400_000_000_000_000), "chunk_stamp"),
    ],
)
def test_of_a_chunk_that_is_not_fit_to_run_nothing_stays(odd, reason):
    p = pipeline()
    for step in range(2):
        decision = p.step(at(step), odd)
        assert decision is None or decision.author == f"hold:{reason}"
    assert p.filter.counts[reason] >= 1
    assert p.executor.chunk is None
    assert p.step(at(2), chunk(2, RIGHT)).author == "v3"
    assert p.step(at(3)) is None


def test_a_chunk_a_second_old_is_refused_and_the_clock_that_begins_anew_is_noticed():
    p = pipeline()
    assert p.step(at(20), chunk(20, RIGHT)).author == "v3"
    assert p.step(at(32), chunk(21, RIGHT)) is None
    assert p.filter.counts["chunk_stamp"] == 1
    p.executor.accept(chunk(5, RIGHT))  # 1.5 s before the current one: of a new clock
    assert p.executor.chunk.stamp_ns == 5 * STEP_NS


@pytest.mark.parametrize("stamp_ns", [0, 9 * STEP_NS, 31 * STEP_NS, 10**18])
def test_a_person_whose_message_is_not_of_now_does_not_drive(stamp_ns):
    p = pipeline()
    old = HumanAction(stamp_ns, "ann", True, "ee_delta", RIGHT)
    assert p.step(at(20), chunk(20, RIGHT), old).author == "v3"
    assert p.filter.counts["human_stamp"] == 1


def test_a_persons_misshapen_action_holds():
    assert pipeline().step(at(20), chunk(20, RIGHT), human([0, 0, 0], step=20)).command.held == "human_dimension"


@pytest.mark.parametrize("before", [0, 1, STEP_NS // 2, STEP_NS, 10**12])
def test_a_stamp_that_is_not_newer_repeats_the_last_command(before):
    p = pipeline(lockstep=False)
    first = p.step(at(20), chunk(20, RIGHT)).command
    again = p.step(joints(0.05, stamp_ns=20 * STEP_NS - before))
    assert (again.author, again.command.positions.tolist()) == ("hold:stamp_not_new", first.positions.tolist())
    assert p.step(at(21), chunk(21, RIGHT)).author == "v3"


@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize("jump", [0.5, -1.5])
def test_a_measured_jump_stops_the_robot_until_a_person_releases_it(moving, jump):
    p = pipeline()
    rows = np.tile(RIGHT if moving else np.zeros(7), (4, 1))
    p.step(at(0), chunk(0, *rows))
    before = p.step(at(1, 0.02 if moving else 0.0)).command.positions[0]
    stopped = p.step(at(2, jump))
    assert stopped.author == "hold:stopped"
    assert stopped.command.positions[0] == pytest.approx(before)
    assert p.step(at(3, before)).author == "hold:stopped"  # latched, although the measurement is back
    assert p.filter.stopped.startswith("joint_jump: x measured at")
    assert p.release().startswith("joint_jump")
    assert p.step(at(4, before), chunk(4, RIGHT)).author == "v3"


def test_two_publishers_that_differ_by_less_than_a_step_are_found():
    p = pipeline(lockstep=False)
    for step in range(20):  # 0.25 m apart: at 1 m/s each is one step and a half
        p.step(joints(0.25 * (step % 2), stamp_ns=step * STEP_NS))
    assert p.filter.stopped.startswith("joint_jump")


def far(step: int):
    return chunk(step, [0.9, 0.0, 0.0, 0.0], space="joint_position")


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_joint_that_is_driven_and_measured_without_any_change_stops_the_robot(lockstep):
    p = pipeline(lockstep=lockstep)
    authors = [p.step(at(step), far(step)).author for step in range(12)]
    assert authors.index("hold:stopped") in (6, 7)  # half a second after the command was half a step away
    assert authors[-1] == "hold:stopped"
    assert p.filter.stopped.startswith("joints_frozen: x measured at 0.000 without any change for 0.5 s")
    assert p.release().startswith("joints_frozen")
    authors = [p.step(at(step), far(step)).author for step in range(20, 30)]
    assert authors.index("hold:stopped") >= 4  # the time counts anew


def test_a_joint_that_moves_by_its_noise_or_rests_at_its_command_is_not_frozen():
    blocked, resting, held = pipeline(), pipeline(), pipeline()
    for step in range(30):
        assert blocked.step(at(step, 1e-9 * (step % 2)), far(step)).author == "v3"
        assert resting.step(at(step), chunk(step, np.zeros(7))).author == "v3"
        held.step(replace(at(step), held=True), far(step))
    assert not held.filter.stopped


def test_no_time_to_stand_still_stops_no_arm_that_rests():
    config = SafetyConfig(stale_after_s=0.5, frozen_after_s=0.0)
    p = CommandPipeline(GantryKinematics(), GANTRY, lockstep=True, safety=config)
    assert {p.step(at(step), chunk(step, np.zeros(7))).author for step in range(5)} == {"v3"}
    p.step(at(5), far(5))
    assert p.step(at(6), far(6)).author == "v3"  # the first measurement under way
    assert p.step(at(7), far(7)).author == "hold:stopped"


def test_fast_measurements_do_not_add_up_to_a_jump():
    p = pipeline(lockstep=False)
    for step in range(100):  # 0.1 m further every microsecond
        p.inspect(joints(0.1 * step, stamp_ns=1000 * step))
    assert p.filter.stopped.startswith("joint_jump")


def test_a_new_episode_may_begin_anywhere_and_explains_a_jump_within_the_grace():
    p = CommandPipeline(GantryKinematics(), GANTRY, lockstep=False, jump_grace_s=0.5)
    p.step(at(0))
    assert p.step(at(1, 0.5)).author == "hold:joint_jump"  # the joints came before the status of the new episode
    p.reset()
    assert p.step(at(2, 0.5), chunk(2, RIGHT)).author == "v3"
    authors = [p.step(at(step, -0.5)).author for step in range(3, 10)]
    assert authors == ["hold:joint_jump"] * 5 + ["hold:stopped"] * 2


def test_without_joint_states_the_last_command_is_held():
    p = pipeline(lockstep=False)
    assert p.hold_blind(0, "joints_lost") is None
    first = p.step(at(0), chunk(0, RIGHT)).command
    lost = p.hold_blind(7 * STEP_NS, "joints_lost")
    assert (lost.author, lost.command.stamp_ns) == ("hold:joints_lost", 7 * STEP_NS)
    assert lost.command.positions.tolist() == first.positions.tolist()


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


def test_after_a_hold_in_motion_the_arm_does_not_go_back_to_the_target_of_before():
    """It brakes beyond its last command; a policy that then asks for no motion gets none."""
    slow = SafetyConfig(acceleration_fraction=0.4)  # it takes several steps to stop
    p = CommandPipeline(GantryKinematics(), GANTRY, lockstep=False, safety=slow)
    x, fast = 0.0, np.array([1.0, 0, 0, 0, 0, 0, -1.0])
    for step in range(4):
        x = p.step(at(step, x), chunk(0, *[fast] * 4)).command.positions[0]
    for step in range(4, 10):
        x = p.step(at(step, x)).command.positions[0]
    still = np.array([0, 0, 0, 0, 0, 0, -1.0])
    after = [p.step(at(step, x), chunk(10, *[still] * 5)).command.positions[0] for step in range(10, 15)]
    assert after == pytest.approx([x] * 5, abs=1e-9)


def test_another_pipeline_goes_on_from_the_last_command_and_repeats_it_for_its_own_step():
    p, other = pipeline(), pipeline()
    fast = np.array([1.0, 0, 0, 0, 0, 0, -1.0])
    last = [p.step(at(step), chunk(step, fast)).command for step in range(2)][-1]
    again = other.resume(p.filter.state, last.stamp_ns, at(1, 0.03))
    assert (again.stamp_ns, again.duration_s, again.positions.tolist()) == (STEP_NS, 0.1, last.positions.tolist())
    assert other.hold(at(1, 0.03)).command.positions.tolist() == last.positions.tolist()
    assert other.hold(at(2)).command.positions.tolist() == p.hold(at(2)).command.positions.tolist()


def test_a_leader_arm_takes_over_only_from_near_where_the_arm_is():
    p = pipeline(lockstep=False)
    far = np.array([0.45, 0.3, -0.6, 0.0])
    held = p.step(at(0), human=human(far, "joint_position"))
    assert held.author == "hold:human_apart" and held.command.positions == pytest.approx([0, 0, 0, 0])
    near = np.array([0.1, 0.0, 0.0, 0.0])
    assert p.step(at(1), human=human(near, "joint_position", step=1)).author == "human:ann"
    # who drives may lead on, faster than the arm follows
    assert p.step(at(2), human=human(far, "joint_position", step=2)).author == "human:ann"


@pytest.mark.parametrize("broken", ["stop", "handed back", "silent", "braked"])
def test_a_leader_arm_that_lost_the_robot_has_to_come_near_again(broken):
    p = pipeline(lockstep=False)
    assert p.step(at(0), human=human(np.zeros(4), "joint_position")).author == "human:ann"
    far = np.array([0.0, 0.0, -0.6, 0.0])
    if broken == "stop":
        p.stop("by safety/stop")
        p.step(at(1), human=human(far, "joint_position", step=1))
        p.release()
    elif broken == "braked":  # no goal runs: the arm brakes, and no step is decided
        p.hold(at(1), "no_task")
    else:
        p.step(at(1), human=human(far, "joint_position", step=1, active=False) if broken == "handed back" else None)
    assert p.step(at(2), human=human(far, "joint_position", step=2)).author == "hold:human_apart"
