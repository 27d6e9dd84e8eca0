"""A safety node that is killed in motion and comes back: its commands go on within the limits of the sequence."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from engram.benchmarks.faults_limits import CommandJudge
from engram.core.command_guard import CommandGuard
from engram.core.types import ActionChunk
from engram.runtime.last_command import GivenCommand
from tests.core.gantry import GANTRY, joints
from tests.runtime.test_safety_session import STEP_NS, Desk

ROBOT = replace(GANTRY, velocity_max=(0.5,) * 3, acceleration_max=(2.0,) * 3, jerk_max=(20.0,) * 3)
START = np.array([-0.4, 0.3, 0.0, 0.0])
LONG = 20  # steps


class Cell:
    """A simulation in lock-step, a policy that moves at full speed, and a guard and a judge of every command.

    The arm is measured ``lag`` of its last step behind its command.
    """

    def __init__(self, folder, lag: float = 0.0):
        self.folder, self.lag, self.writer = folder, lag, "sim"
        self.guard, self.judge = CommandGuard(ROBOT, 0.1), CommandJudge(ROBOT, 0.1, ROBOT.jerk_max)
        self.executed, self.found = [START], []
        self.start()

    def start(self, **options):
        """Start the safety node, also in place of one that was killed."""
        self.desk = Desk(self.folder, robot=ROBOT, **options)

    def show(self, step: int, episode: int = 1):
        """Show ``step`` and return what it is answered."""
        desk, stamp_ns = self.desk, step * STEP_NS
        given, again = len(desk.decisions), len(desk.repeated)
        target = [[0.45, -0.45 if step < 10 else 0.3, 0.1, 0.8]]  # it turns round in y
        desk.session.on_chunk(ActionChunk(stamp_ns, episode, "joint_position", np.array(target), 0.1, 1, "v"))
        before, last = self.executed[-2:] if len(self.executed) > 1 else (START, START)
        measured = last - self.lag * (last - before)
        desk.status(stamp_ns, episode, writer=self.writer)
        desk.session.on_joints(joints(*measured[:3], gripper=measured[3], stamp_ns=stamp_ns))
        self.measured = desk.session.joints
        return desk.repeated[-1] if len(desk.repeated) > again else desk.decisions[given].command

    def execute(self, command):
        self.guard.stop(bool(self.desk.latched_reasons[-1]))
        at_s = command.stamp_ns / 1e9
        self.found += self.judge.command(command.stamp_ns, command.positions, command.duration_s)
        self.found += filter(None, [self.guard.refusal(command, self.measured, at_s)])
        self.executed.append(command.positions)

    def run(self, first: int, last: int = LONG):
        for step in range(first, last):
            self.execute(self.show(step))


def killed(folder, at: int, how: str, lag: float = 0.0) -> Cell:
    """Return a cell whose safety node was killed at step ``at`` and started again."""
    cell = Cell(folder, lag)
    cell.run(1, at)
    if how == "delivered":
        cell.execute(cell.show(at))
    elif how == "written":
        cell.show(at)
    cell.start()
    cell.run(at + (how == "delivered"))
    return cell


def speeds(cell: Cell) -> np.ndarray:
    return np.abs(np.diff(cell.executed, axis=0)[:, :3]).max(axis=1) / 0.1


@pytest.mark.parametrize("how", ["before its answer", "written", "delivered"])
@pytest.mark.parametrize(("at", "lag"), [(3, 0.0), (6, 0.3), (9, 0.0), (11, 0.3), (13, 0.0)])
def test_a_node_that_is_killed_in_motion_brakes_from_its_last_command(how, at, lag, tmp_path):
    cell = killed(tmp_path, at, how, lag)
    assert not cell.found
    assert speeds(cell)[-1] == 0.0 and cell.desk.decisions[-1].author == "hold:stopped"
    assert speeds(cell).max() == pytest.approx(0.5) or at == 3 or lag


@pytest.mark.parametrize("at", [3, 8, 12])
def test_it_brakes_as_one_that_was_stopped_and_not_killed_to_the_bit(at, tmp_path):
    stopped = Cell(tmp_path / "stopped")
    stopped.run(1, at)
    stopped.desk.session.stop("button")
    stopped.run(at)
    np.testing.assert_array_equal(killed(tmp_path / "killed", at, "before its answer").executed, stopped.executed)


def test_a_step_that_was_answered_gets_the_same_answer(tmp_path):
    cell = Cell(tmp_path)
    cell.run(1, 8)
    answer = cell.show(8)
    cell.start()
    again = cell.show(8)
    assert (again.stamp_ns, again.duration_s, again.names) == (answer.stamp_ns, answer.duration_s, answer.names)
    np.testing.assert_array_equal(again.positions, answer.positions)
    assert cell.desk.decisions == []


def test_a_node_that_is_killed_while_it_brakes_brakes_on(tmp_path):
    cell = Cell(tmp_path)
    cell.run(1, 8)
    for step in range(8, LONG):
        cell.start()
        cell.execute(cell.show(step))
    assert not cell.found and speeds(cell)[-1] == 0.0


def test_after_the_release_motion_goes_on_from_where_it_came_to_rest(tmp_path):
    cell = killed(tmp_path, 8, "delivered")
    cell.desk.session.release()
    cell.run(LONG, LONG + 4)
    assert not cell.found and speeds(cell)[-1] > 0.3


@pytest.mark.parametrize("at", [4, 8, 12])
def test_a_release_before_the_first_status_does_not_forget_the_motion(at, tmp_path):
    cell = Cell(tmp_path)
    cell.run(1, at)
    cell.start()
    cell.desk.session.release()
    cell.run(at, at + 6)
    assert not cell.found


@pytest.mark.parametrize("order", ["joints first", "asked before it is known who tells"])
@pytest.mark.parametrize("answered", [False, True])
def test_the_order_in_which_the_new_node_hears_of_the_step_does_not_matter(order, answered, tmp_path):
    cell = Cell(tmp_path)
    cell.run(1, 8)
    if answered:
        cell.show(8)
    cell.start()
    if order == "joints first":
        cell.desk.session.on_joints(replace(cell.measured, stamp_ns=(7 + answered) * STEP_NS))  # of the record
        cell.desk.session.on_joints(replace(cell.measured, stamp_ns=8 * STEP_NS))
    else:
        cell.desk.status(8 * STEP_NS, writer="not discovered")
        cell.desk.session.on_joints(replace(cell.measured, stamp_ns=8 * STEP_NS))
        assert not cell.desk.decisions  # it waits for a chunk
        cell.desk.status(8 * STEP_NS)
    cell.run(8)
    assert not cell.found


@pytest.mark.parametrize(
    "what", ["as it is", "episode", "teller", "two steps later", "a step earlier", "damaged", "no folder"]
)
def test_what_may_not_apply_is_ignored(what, tmp_path):
    cell = Cell(tmp_path)
    cell.run(1, 8)
    step, episode = {"two steps later": 9, "a step earlier": 6}.get(what, 8), 2 if what == "episode" else 1
    if what == "teller":
        cell.writer = "another simulation"
    if what == "damaged":
        path = tmp_path / "last_command.bin"
        path.write_bytes(path.read_bytes()[:-1])
    cell.desk = Desk(None if what == "no folder" else tmp_path, robot=ROBOT)
    moved = cell.show(step, episode).positions - cell.measured.positions
    assert (moved[0] > 0.025) == (what == "as it is")  # from rest it is 0.02 m at most


class Fast:
    """A robot in free running that moves at full speed, and is driven for half a second when its node is killed."""

    def __init__(self, folder, *, simulated: bool):
        self.folder, self.simulated = folder, simulated
        self.desk, self.before = self.start(100.0), []
        self.move(5)

    def start(self, now_s: float, ahead_s: float = 0.0, writer: str = "sim") -> Desk:
        desk = Desk(self.folder, lockstep=False, simulated=self.simulated, robot=ROBOT)
        desk.now_s, desk.ahead_s = now_s, ahead_s
        desk.status(writer=writer)
        target = np.tile([0.45, 0.0, 0.0, 0.0], (30, 1))
        desk.session.on_chunk(ActionChunk(round(now_s * 1e9), 1, "joint_position", target, 0.1, 30, "v"))
        return desk

    def move(self, steps: int):
        for _ in range(steps):
            self.desk.real_time(x=self.commands[-1].positions[0] if self.commands else 0.0)

    @property
    def commands(self) -> list:
        """All commands, of the node before, too."""
        return [*self.before, *(decision.command for decision in self.desk.decisions)]

    def restart(self, after_s: float, clock_set_s: float = 0.0, writer: str = "sim"):
        """Kill the node, and start it again ``after_s`` after its last command."""
        now_s, self.before = self.desk.now_s, self.commands
        self.desk = self.start(now_s + after_s - 0.1 + clock_set_s, clock_set_s, writer)

    def violations(self) -> list:
        judge = CommandJudge(ROBOT, 0.1, ROBOT.jerk_max)
        return [one for c in self.commands for one in judge.command(c.stamp_ns, c.positions, c.duration_s)]


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("after_s", [0.05, 0.1, 0.149])
def test_a_restart_in_free_running_that_is_faster_than_the_arm_comes_to_rest_goes_on(after_s, simulated, tmp_path):
    robot = Fast(tmp_path, simulated=simulated)
    robot.restart(after_s)
    robot.move(12)
    assert not robot.violations()
    way = robot.commands[-1].positions[0] - robot.commands[4].positions[0]
    assert way > 0.03 and robot.desk.decisions[-1].author == "hold:stopped"  # it braked
    first = robot.desk.decisions[0].command
    assert first.stamp_ns / 1e9 == pytest.approx(100.5 + (after_s if after_s > 0.09 else after_s + 0.1))


@pytest.mark.parametrize(
    ("after_s", "clock_set_s", "simulated"),
    [(0.152, 0.0, False), (5.0, 0.0, False), (5.1, -5.0, False), (0.152, 0.0, True), (-0.3, 0.0, True)],
)
def test_an_arm_that_has_come_to_rest_is_left_alone(after_s, clock_set_s, simulated, tmp_path):
    robot = Fast(tmp_path, simulated=simulated)
    robot.restart(after_s, clock_set_s)
    robot.move(3)
    assert robot.desk.decisions == [] and robot.desk.told == ["hold:stopped"] * 3


def test_a_node_that_has_commanded_goes_on_from_its_own_command(tmp_path):
    """It did not know at first that it was restarted within the episode."""
    robot = Fast(tmp_path, simulated=False)
    robot.restart(0.1, writer="not discovered")
    robot.move(1)
    robot.desk.status()
    robot.desk.now_s -= 0.06
    robot.move(3)
    assert robot.desk.latched_reasons[-1].startswith("restarted")
    way = np.diff([command.positions[0] for command in robot.commands[4:9]])
    assert way == pytest.approx([0.02, 0.0, 0.02, 0.0])  # from rest; once more; and to rest


def test_a_simulation_that_keeps_time_slower_than_the_wall_clock_is_followed(tmp_path):
    robot = Fast(tmp_path, simulated=True)
    robot.restart(2.1, -2.0)
    robot.move(12)
    assert not robot.violations() and robot.commands[5].positions[0] > robot.commands[4].positions[0] + 0.02


def test_a_command_is_kept_before_anybody_hears_of_it(tmp_path):
    cell, kept = Cell(tmp_path), []
    session = cell.desk.session
    hear = cell.desk.command
    cell.desk.command = lambda *decision: (kept.append(session.last_command.read(session.latch.now)), hear(*decision))
    cell.run(1, 4)
    assert [one.stamp_ns for one in kept] == [decision.command.stamp_ns for decision in cell.desk.decisions]


def test_a_folder_that_is_deleted_in_motion_stops_the_node_that_is_killed_just_after(tmp_path):
    """The next command makes the folder anew, without the latch."""
    cell = Cell(tmp_path / "stop")
    cell.run(1, 8)
    shutil.rmtree(tmp_path / "stop")
    session = cell.desk.session
    session.last_command.write(GivenCommand(1, 8 * STEP_NS, 0.0, session.pipeline.filter.state), session.latch.now)
    cell.start()
    assert cell.desk.latched_reasons[-1].startswith("the file of the latched stop is damaged")
    cell.run(8)
    assert speeds(cell)[-1] == 0.0 and cell.desk.decisions[-1].author == "hold:stopped"


def test_a_disk_that_takes_no_command_stops_nothing_and_is_named(tmp_path):
    path = tmp_path / "last_command.bin"
    cell = Cell(tmp_path)
    path.symlink_to("/dev/full")
    cell.run(1, 4)
    assert cell.desk.decisions[-1].author == "v"
    assert "last_command.bin: after a restart in motion the arm would not brake" in cell.desk.says()
    assert cell.desk.health.counts["problems last_command"] == 1
    path.unlink()
    cell.run(4, 5)
    assert "last_command" not in cell.desk.says()
