"""What talks to the hardware refuses what the safety node cannot have meant, whoever sends it.

The gantry moves 1 m/s, so 0.1 m a step of 0.1 s, within +-1 m; its gripper 8 rad/s within 0..0.8.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engram.benchmarks.hostile import HostileEpisode
from engram.benchmarks.limits import variants
from engram.core.command_guard import CommandGuard
from engram.core.pipeline import CommandPipeline
from engram.core.types import ActionChunk, JointCommand, JointState
from tests.core.gantry import GANTRY, GantryKinematics, joints

STEP_NS = 100_000_000


AGILE = replace(GANTRY, acceleration_max=(20.0,) * 3)
"""It turns round at full speed within a step."""


class Robot:
    """A guard before a gantry that goes at once where it is told."""

    def __init__(self, robot=AGILE, **options):
        self.guard = CommandGuard(robot, 0.1, **options)
        self.at, self.step = np.zeros(4), 0

    def send(self, x, *, after_s=0.1, age_s=0.0, step=None, duration_s=0.1, **other):
        """Command ``x`` [m] one step later; return why it was refused."""
        self.step += 1
        stamp = (self.step if step is None else step) * STEP_NS
        self.now = getattr(self, "now", 0.0) + after_s
        target = np.array([x, *[other.get(name, 0.0) for name in ("y", "z", "gripper")]])
        command = JointCommand(stamp, GANTRY.joint_names, target, duration_s)
        refusal = self.guard.refusal(command, joints(*self.at[:3], gripper=self.at[3]), self.now, age_s)
        if not refusal:
            self.at = target
        return refusal


def test_what_the_pipeline_decides_passes_unchanged():
    """10 s of the fastest motion that the filter allows, turns and holds included."""
    pipeline, robot = CommandPipeline(GantryKinematics(), GANTRY), Robot()
    draw, stamp = np.random.default_rng(3), 0
    for episode in range(25):
        action = np.append(draw.choice([-1.0, 1.0], 6), draw.choice([-1.0, 1.0]))
        chunk = ActionChunk(stamp, 0, "ee_delta", np.tile(action, (4, 1)), 0.1, 4, "v")
        for _ in range(4):
            state = joints(*robot.at[:3], gripper=robot.at[3], stamp_ns=stamp)
            decision = pipeline.step(state, chunk)
            assert decision is not None
            assert robot.guard.refusal(decision.command, state, stamp / 1e9) == "", episode
            robot.at, stamp = decision.command.positions, stamp + STEP_NS


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"x": 0.5}, "velocity: x 0.500 away, more than its speed allows"),
        ({"x": 0.0, "z": -0.3}, "velocity: z 0.300 away"),
        ({"x": 6.0, "duration_s": 1e-9}, "duration: 1e-09 s, expected the control period of 0.1 s"),
        ({"x": 6.0}, "position: x 5.000 outside its limits"),
        ({"x": 0.0, "gripper": 0.9}, "position: gripper 0.100 outside its limits"),
        ({"x": 0.01, "age_s": 0.6}, "stale: 0.60 s old, not executed; at most 0.5 s"),
        ({"x": 0.01, "age_s": -1.1}, "future: 1.10 s ahead of the clock, at most 1 s"),
        ({"x": 0.01, "age_s": float("nan")}, "stale"),
        ({"x": 0.01, "step": 1, "age_s": 0.5}, "replayed: 0.40 s before the last one"),
    ],
)
def test_each_kind_is_refused_by_its_name_counted_and_leaves_nothing_behind(how, words):
    robot = Robot(stale_after_s=0.5)
    for _ in range(5):
        assert robot.send(0.0) == ""
    refusal = robot.send(**how)
    assert refusal.startswith(words)
    assert robot.guard.counts == {refusal.partition(":")[0]: 1}
    assert robot.send(0.05) == ""


def test_many_small_steps_at_once_gain_nothing():
    """However often it is told, the arm gets 1 m/s and two steps beyond."""
    robot, accepted = Robot(), 0.0
    for _ in range(3000):
        if not robot.send(robot.at[0] + 0.09, after_s=0.001) and robot.at[0] > 0.9:
            break
        accepted = robot.at[0]
    assert robot.now >= accepted - 0.2 - 0.09
    assert robot.guard.counts["velocity"] > 500


def test_commands_that_come_early_and_late_are_no_fault():
    robot = Robot()
    for step in range(1, 9):
        assert robot.send(0.1 * step, after_s=0.02 if step % 2 else 0.18) == ""


def test_while_the_stop_is_latched_one_position_is_held():
    robot = Robot()
    robot.send(0.1)
    robot.guard.stop(True)
    assert robot.send(0.1) == ""
    assert robot.send(0.2) == ""  # in the step in which the stop came, a command may be on its way
    assert robot.send(0.3).startswith("stopped: x 0.200 away while the stop is latched")
    for _ in range(50):
        robot.send(robot.at[0] + 0.05)
    assert robot.at[0] <= 0.2
    robot.guard.stop(True)  # said again, it frees nothing
    assert robot.send(0.3)
    robot.guard.stop(False)
    assert robot.send(0.3) == ""


def test_an_arm_in_motion_may_brake_while_the_stop_is_latched_and_go_no_further():
    """At 1 m/s, braked by 2 m/s^2, after the last position was commanded once more, as when the button is pressed."""
    robot = Robot()
    robot.guard = CommandGuard(replace(GANTRY, acceleration_max=(2.0, 2.0, 2.0)), 0.1)
    for x in (0.1, 0.2):
        robot.send(x)
    robot.guard.stop(True)
    assert robot.send(0.2, step=2, after_s=0.01) == ""
    way = 0.2 + np.cumsum([0.08, 0.06, 0.04, 0.02, 0.0])
    assert [robot.send(x) for x in way] == [""] * len(way) and way[-1] - 0.2 > 0.1
    for _ in range(50):
        robot.send(robot.at[0] + 0.05)  # at rest it stays there
    assert robot.at[0] <= way[-1] + 0.1


@pytest.mark.parametrize("first", [-0.2, -0.1, 0.0, 0.1, 0.2])
def test_under_a_stop_no_arm_is_led_back_or_faster_on(first):
    """What comes first may have been on its way; whatever follows, the arm is led no farther than it would brake."""
    robot = Robot()
    robot.guard = CommandGuard(replace(GANTRY, acceleration_max=(2.0,) * 3, jerk_max=(20.0,) * 3), 0.1)
    for x in (0.03, 0.08, 0.13):
        assert robot.send(x) == ""
    robot.guard.stop(True)
    robot.send(robot.at[0] + first)
    held = robot.at[0]
    for way in (1.0, -1.0):
        for _ in range(40):
            tries = [robot.send(robot.at[0] + way * step) for step in (0.2, 0.1, 0.05, 0.02)]
            if all(tries):
                break
        if first not in (0.0, 0.1) or way < 0.0:  # beyond what was on its way, or back: held to where that led
            assert abs(robot.at[0] - held) <= 0.1 + 0.25, (first, way)
    assert abs(robot.at[0] - held) < 0.75


@pytest.mark.parametrize("jerk_max", [(), (8.0,) * 3, (20.0,) * 3])
@pytest.mark.parametrize("on_its_way", [False, True])
@pytest.mark.parametrize("at", [3, 5, 8, 14, 21])
def test_the_brake_of_the_pipeline_passes_whenever_the_stop_is_heard(at, on_its_way, jerk_max):
    """At ``at`` the stop is heard; a command of before may be ``on_its_way`` then, and be the fastest yet."""
    slow = replace(GANTRY, velocity_max=(0.5,) * 3, acceleration_max=(2.0,) * 3, jerk_max=jerk_max)
    draw, refused = np.random.default_rng(0), []
    pipeline, robot = CommandPipeline(GantryKinematics(), slow), Robot()
    robot.guard, target = CommandGuard(slow, 0.1), np.zeros(3)
    for step in range(at + 12):
        target = draw.uniform(-0.45, 0.45, 3) if step % 3 == 0 else target
        if step == at + on_its_way:
            pipeline.stop("test")
        robot.guard.stop(step >= at)
        state = joints(*robot.at[:3], stamp_ns=step * STEP_NS)
        wanted = ActionChunk(step * STEP_NS, 0, "joint_position", np.array([[*target, 0.0]]), 0.1, 1, "v")
        command = (pipeline.step(state, wanted) or pipeline.hold(state)).command
        refused += filter(None, [robot.guard.refusal(command, state, step / 10)])
        robot.at = command.positions
    assert not refused and not pipeline.filter.moves


def test_an_arm_that_rests_when_the_stop_comes_goes_one_step_at_most():
    robot = Robot()
    robot.guard = CommandGuard(replace(GANTRY, acceleration_max=(2.0, 2.0, 2.0)), 0.1)
    for x in (0.1, 0.1, 0.1):
        robot.send(x)
    robot.guard.stop(True)
    for _ in range(50):
        robot.send(robot.at[0] + 0.05)
    assert robot.at[0] <= 0.15 + 0.1 + 1e-9  # of the first command, which may have been on its way


def test_an_arm_that_goes_on_as_fast_as_before_does_not_brake():
    robot = Robot()
    for x in (0.1, 0.2):
        robot.send(x)
    robot.guard.stop(True)
    for _ in range(20):
        robot.send(robot.at[0] + 0.1)
    assert robot.at[0] <= 0.2 + 0.1 + 0.1 + 1e-9


def test_commands_of_a_clock_that_was_set_back_are_executed_after_a_pause():
    robot = Robot()
    robot.send(0.1, step=1000)
    assert robot.send(0.1, step=10).startswith("replayed")
    assert robot.send(0.1, step=11, after_s=1.5) == ""
    assert robot.send(0.15, step=12) == ""


def test_where_the_receivers_clock_was_set_back_nothing_is_replayed():
    robot = Robot(stale_after_s=0.5)
    assert robot.send(0.1, step=1000, age_s=0.05) == ""
    assert robot.send(0.15, step=998, age_s=0.35).startswith("replayed")  # its clock went on, by 0.1 s
    assert robot.send(0.2, step=10, age_s=0.05) == ""  # its clock shows 99 s less
    assert robot.send(0.25, step=8, age_s=0.35).startswith("replayed")


def test_after_a_pause_or_a_reset_motion_begins_where_the_arm_is():
    robot = Robot()
    robot.send(0.1)
    robot.at[0] = 0.8  # moved by hand, or by the next episode
    assert robot.send(0.85).startswith("velocity")
    robot.guard.forget()
    assert robot.send(0.85) == ""
    robot.at[0] = 0.0
    assert robot.send(0.05, after_s=1.5) == ""


def test_an_arm_that_is_outside_its_limits_may_come_back_and_not_go_further():
    robot = Robot()
    robot.at[0] = 1.2
    assert robot.send(1.25).startswith("position")
    assert robot.send(1.1) == ""


def test_other_joints_than_the_robot_s_are_refused():
    guard = CommandGuard(GANTRY, 0.1)
    command = JointCommand(0, ("x", "z", "y", "gripper"), np.zeros(4), 0.1)
    assert guard.refusal(command, joints(), 0.0).startswith("joints: x, z, y, gripper, expected x, y, z, gripper")


def test_a_share_of_the_speed_is_all_that_is_let_through():
    """A command at full speed, which a filter with 0.3 of it never gives, comes from somebody else."""
    slow = Robot(velocity_fraction=0.3)
    full = float(GANTRY.velocity_max[0]) * 0.1
    assert slow.send(full) == f"velocity: x {full:.3f} away, more than 0.3 of its speed allows"
    assert slow.send(0.3 * full) == ""
    assert slow.send(0.0, gripper=GANTRY.gripper_velocity_max * 0.1) == ""  # the gripper keeps its own


SLUGGISH = replace(GANTRY, acceleration_max=(2.0,) * 3)
"""Its steps differ by 0.02 m at most."""


@pytest.mark.parametrize(
    ("ways", "kind"),
    [
        ((1.0, -1.0), "acceleration"),
        ((1.0, 1.0, -1.0), "acceleration"),
        ((2.0, 0.0, -2.0, 0.0), "velocity"),
        ((1.0, 0.0, -1.0, 0.0), "acceleration"),
    ],
)
def test_full_speed_to_and_fro_does_not_reach_the_motors(ways, kind):
    """The arm is not turned round from one control step to the next; what is refused leaves it where it is."""
    robot = Robot(SLUGGISH, acceleration_fraction=0.5)
    steps = []
    for i in range(80):
        before = robot.at[0]
        robot.send(before + 0.1 * ways[i % len(ways)])
        steps.append(robot.at[0] - before)
    assert robot.guard.counts[kind] >= 20
    assert max(map(abs, steps)) <= 0.1 + 1e-9
    assert all(a * b >= 0.0 for a, b in pairwise(steps))


def test_a_share_of_the_acceleration_is_all_that_is_let_through():
    robot = Robot(SLUGGISH, acceleration_fraction=0.5)
    assert [robot.send(x) for x in (0.0, 0.0, 0.01, 0.03)] == [""] * 4
    assert robot.send(0.07) == "acceleration: x 0.040 away, more than 0.5 of its acceleration allows"
    assert robot.send(0.03 + 0.03 + 0.04) == ""  # that one was lost: two steps on
    assert robot.send(0.1, gripper=0.8) == ""  # the gripper knows no acceleration, and who repeats does no harm


def test_after_a_pause_one_command_leads_no_farther_than_one_step():
    robot = Robot(SLUGGISH)
    robot.send(0.0)
    assert robot.send(0.2, after_s=1.5).startswith("velocity: x 0.200 away")
    assert robot.send(0.1, after_s=1.5) == ""


@pytest.mark.parametrize(("lost", "late_s"), [(0.0, 0.1), (0.1, 0.05)])
def test_nothing_that_the_safety_node_commands_under_attack_is_refused_however_it_arrives(lost, late_s):
    """Hostile policies, persons and encoders; commands come up to a step late, and some do not come."""
    attacked, refused = variants(["panda_2f85", "so101"]), []
    for seed in range(24):
        robot, pipeline = attacked[seed % len(attacked)]
        draw = np.random.default_rng(seed)
        commands = HostileEpisode(pipeline, draw).run()
        guard, at_s, arrived = CommandGuard(robot, 0.1), 0.0, True
        measured = JointState(0, robot.joint_names, commands[0], np.zeros(commands.shape[1]))
        for step, positions in enumerate(commands[1:], 1):
            at_s = max(at_s, step / 10 + draw.uniform(0.0, late_s))
            arrived = not arrived or draw.random() >= lost  # no two in a row are lost
            if arrived:
                command = JointCommand(step * STEP_NS, robot.joint_names, positions, 0.1)
                refused += filter(None, [guard.refusal(command, measured, at_s)])
    assert not refused


def test_an_arm_that_stands_beside_its_last_command_begins_anew_from_there():
    """A new goal begins where the arm is measured, below where it was sent."""
    robot = Robot(SLUGGISH)
    for x in (0.0, 0.05, 0.05, 0.05):
        robot.send(x)
    robot.at[0] = 0.02
    assert robot.send(0.0) == ""
    robot.at[0] = 0.0
    assert [robot.send(x) for x in (-0.04, -0.1)] == [""] * 2


def test_a_burst_leads_no_farther_than_one_step_however_its_stamps_run_ahead():
    """Commands of one instant do not each make up a control step of their own."""
    robot = Robot(SLUGGISH)
    for x in (0.0, 0.0):
        robot.send(x)
    reached = []
    for _ in range(6):
        before = robot.at[0]
        for way in range(1, 5):
            robot.send(before + 0.1 * way, after_s=0.1 if way == 1 else 1e-4)
        reached.append(robot.at[0] - before)
    assert robot.guard.counts["early"] == 5
    assert max(reached) <= 0.1 + 1e-9


def test_the_first_command_of_a_new_goal_may_be_lost_where_the_arm_stands_beside_the_last_one():
    robot = Robot(SLUGGISH)
    for _ in range(4):
        robot.send(0.0)
    robot.at[0] = 0.005
    robot.step += 1  # 0.025 was sent and lost
    assert robot.send(0.005 + 0.02 + 0.04, after_s=0.2) == ""


def test_a_stop_lets_an_arm_brake_as_slowly_as_it_is_allowed_to():
    robot = Robot(replace(GANTRY, acceleration_max=(4.0,) * 3), acceleration_fraction=0.1)
    x, step = -0.9, 0.0
    robot.at[0] = x
    for _ in range(22):
        robot.send(x)
        step = min(0.08, step + 0.004)
        x += step
    robot.send(x)
    robot.guard.stop(True)
    way = []
    while step > 0.0:
        step = max(0.0, step - 0.004)
        x += step
        way.append(robot.send(x))
    assert not any(way)
