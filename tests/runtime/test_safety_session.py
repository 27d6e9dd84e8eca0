"""What the safety node does with its inputs, without ROS and with a clock of the test's own."""

import shutil

import numpy as np
import pytest

from engram.core.errors import NonFiniteError
from engram.core.pipeline import CommandPipeline
from engram.core.safety import SafetyConfig
from engram.core.types import ActionChunk, EpisodeStatus, HumanAction
from engram.runtime import stop_latch
from engram.runtime.health import Health
from engram.runtime.last_command import LastCommandFile
from engram.runtime.loop import Runtime
from engram.runtime.safety_session import SafetySession, SessionConfig
from engram.runtime.stop_latch import StopLatch
from tests.core.gantry import GANTRY, GantryKinematics, joints
from tests.runtime.test_loop import GantryWorld, GoRight

STEP_NS = 100_000_000
RIGHT = np.array([0.4, 0, 0, 0, 0, 0, -1.0])  # 0.02 m a step along x


class Desk:
    """A session with everything around it: plays robot, simulation and policy."""

    def __init__(
        self,
        folder=None,
        *,
        lockstep: bool = True,
        simulated: bool | None = None,
        grace_s: float = 0.0,
        safety=None,
        robot=GANTRY,
    ):
        self.decisions, self.episodes, self.latched_reasons, self.told, self.repeated = [], [], [], [], []
        self.now_s, self.ahead_s = 100.0, 0.0  # the clock, and by how much it was set ahead
        self.slept_s, self.misread_s = 0.0, 0.0  # how long the machine was suspended, and by how much that is misread
        self.health = Health()
        simulated = lockstep if simulated is None else simulated
        pipeline = CommandPipeline(GantryKinematics(), robot, lockstep=lockstep, safety=safety, jump_grace_s=grace_s)
        self.session = SafetySession(
            pipeline,
            StopLatch(folder),
            LastCommandFile(folder, robot.joint_names, pipeline.control_dt_s),
            SessionConfig(lockstep, simulated, chunk_timeout_s=5.0, joints_timeout_s=0.5),
            self,
            self.health,
            lambda: round(self.now_s * 1e9),
            lambda: self.now_s - self.ahead_s - self.slept_s,
            lambda: self.slept_s + self.misread_s,
        )

    def command(self, decision, episode):
        self.decisions.append(decision)
        self.episodes.append(episode)

    def tell(self, decision, episode):
        self.told.append(decision.author)

    def repeat(self, command):
        self.repeated.append(command)

    def latched(self, reason):
        self.latched_reasons.append(reason)

    def status(self, stamp_ns: int = 0, episode: int = 1, state: str = "running", writer: str = "sim"):
        self.session.on_status(EpisodeStatus(stamp_ns, "r", episode, "reach", "go", 0, state), lambda: [writer])

    def chunk(self, stamp_ns: int, *rows, episode: int = 1, dt_s: float = 0.1):
        self.session.on_chunk(
            ActionChunk(stamp_ns, episode, "ee_delta", np.array(rows or [RIGHT]), dt_s, len(rows) or 1, "v")
        )

    def step(self, stamp_ns: int, x: float = 0.0, episode: int = 1):
        """Show one step in lock-step and return how it was answered, None if it was not."""
        before = len(self.decisions)
        self.status(stamp_ns, episode)
        self.session.on_joints(joints(x, stamp_ns=stamp_ns))
        return self.decisions[-1] if len(self.decisions) > before else None

    def real_time(self, seconds: float = 0.1, x: float | None = 0.0):
        """Let time pass in free running, with joint states if ``x`` is given, and return the newest decision."""
        for _ in range(round(seconds / 0.1)):
            self.now_s += 0.1
            if x is not None:
                self.session.on_joints(joints(x, stamp_ns=round(self.now_s * 1e9)))
            self.session.watch()
        return self.decisions[-1] if self.decisions else None

    def lose(self, seconds: float, how: str = "slept"):
        """Suspend the machine: its clock goes on, the time that waiting is measured in does not; frozen: both do."""
        self.now_s += seconds
        self.slept_s += seconds if how == "slept" else 0.0

    def wait(self, seconds: float) -> list[str]:
        """Let time pass without news and return the authors of what was decided meanwhile."""
        before = len(self.decisions)
        self.now_s += seconds
        self.session.watch_answer()
        return [decision.author for decision in self.decisions[before:]]

    def says(self) -> str:
        return self.health.condition("active").message


def test_lock_step_waits_for_the_chunk_in_whatever_order_things_come():
    desk = Desk()
    desk.chunk(STEP_NS)
    assert desk.step(STEP_NS).author == "v"
    assert desk.step(2 * STEP_NS) is None
    desk.chunk(2 * STEP_NS)
    assert [d.author for d in desk.decisions] == ["v", "v"]
    desk.session.on_joints(joints(stamp_ns=2 * STEP_NS))  # shown again: the same answer
    assert (len(desk.decisions), desk.repeated) == (2, [desk.decisions[-1].command])


@pytest.mark.parametrize("stamp_ns", [0, 3 * STEP_NS, 10**18])
def test_chunks_that_are_not_fit_to_run_block_no_good_one(stamp_ns):
    desk = Desk()
    for _ in range(40):  # more than wait at a time
        desk.chunk(stamp_ns, episode=7)
        desk.chunk(stamp_ns, dt_s=1e6)
    desk.chunk(STEP_NS)
    for _ in range(7):
        desk.chunk(stamp_ns, episode=7)
    assert desk.step(STEP_NS).author == "v"
    assert desk.step(2 * STEP_NS) is None or stamp_ns == 3 * STEP_NS


def test_a_chunk_full_of_nan_holds_its_own_steps_and_no_others():
    desk = Desk()
    assert desk.step(STEP_NS) is None
    desk.session.on_bad_chunk(STEP_NS, 1, 2**32 - 1, NonFiniteError("nan"))
    assert desk.decisions[-1].author == "hold:non_finite"
    desk.chunk(2 * STEP_NS)
    assert desk.step(2 * STEP_NS).author == "v"
    assert desk.step(3 * STEP_NS) is None


def test_a_bad_chunk_of_another_time_or_an_earlier_episode_holds_nothing():
    desk = Desk()
    desk.chunk(STEP_NS, episode=2)
    assert desk.step(STEP_NS, episode=2).author == "v"
    desk.session.on_bad_chunk(10**18, 2, 64, NonFiniteError("nan"))
    desk.session.on_bad_chunk(2 * STEP_NS, 1, 64, NonFiniteError("nan"))
    assert desk.step(2 * STEP_NS, episode=2) is None


def test_a_bad_chunk_of_two_seconds_ahead_holds_nothing_when_its_time_has_come():
    desk = Desk()
    desk.chunk(STEP_NS)
    assert desk.step(STEP_NS).author == "v"
    desk.session.on_bad_chunk(21 * STEP_NS, 1, 64, NonFiniteError("nan"))
    assert desk.step(21 * STEP_NS) is None


def test_a_policy_that_is_lost_is_held_after_the_time_limit():
    desk = Desk()
    assert desk.step(STEP_NS) is None
    desk.now_s += 4.9
    desk.session.watch()
    assert not desk.decisions
    desk.now_s += 0.2
    desk.session.watch()
    assert desk.decisions[-1].author == "hold:no_command"
    assert "policy/action_chunk: none for step" in desk.says()


def test_without_a_policy_free_running_holds_when_the_chunk_is_used_up():
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), RIGHT, RIGHT)
    assert [desk.real_time(x=x).author for x in (0.0, 0.02)] == ["v", "v"]
    desk.real_time(x=0.04)
    assert desk.wait(0.04) == []
    assert desk.wait(0.02) == ["hold:no_command"]


def answering(*, rows: int = 8, late_s: float = 0.03) -> Desk:
    """Return a desk in free running whose first chunk of ``rows``, all execute, came in time and drives."""
    desk = Desk(lockstep=False)
    desk.status()
    desk.real_time()
    desk.wait(late_s)
    desk.chunk(round(100.1e9), *[RIGHT] * rows)
    return desk


def test_a_step_waits_for_the_answer_that_begins_with_it_and_starts_at_its_first_row():
    desk = answering(rows=2)
    assert [d.author for d in desk.decisions] == ["v"]
    desk.now_s = 100.1
    desk.real_time(x=0.02)
    desk.real_time(x=0.04)  # the third step: the next chunk is due
    assert len(desk.decisions) == 2
    desk.wait(0.03)
    desk.chunk(round(100.3e9), [-1.0, 0, 0, 0, 0, 0, -1.0])
    assert [d.author for d in desk.decisions] == ["v"] * 3
    assert desk.decisions[-1].command.positions[0] < 0.04  # back at once, nothing made up for
    assert desk.health.counts.get("answers late", 0) == 0


def test_a_policy_that_answered_late_is_not_waited_for_until_it_answers_in_time():
    desk = answering(rows=2)
    desk.now_s = 100.1
    desk.real_time(0.2, x=0.02)
    assert desk.wait(0.06) == ["hold:no_command"]
    desk.chunk(round(100.3e9), RIGHT, RIGHT)  # 0.06 s after its step: late
    assert desk.health.counts["answers late"] == 1
    desk.now_s = 100.3
    assert [desk.real_time(x=0.02).author for _ in range(2)] == ["v", "hold:no_command"]  # at once
    desk.wait(0.02)
    desk.chunk(round(100.5e9), RIGHT)  # in time
    desk.now_s = 100.5
    count = len(desk.decisions)
    desk.real_time(x=0.02)
    assert len(desk.decisions) == count


@pytest.mark.parametrize("who", ["human", "stop", "held"])
def test_no_answer_is_waited_for_where_the_policy_does_not_drive(who):
    desk = answering(rows=1)
    desk.now_s = 100.1
    if who == "human":
        desk.session.on_human(HumanAction(round(100.2e9), "ann", True, "ee_delta", -RIGHT))
    elif who == "stop":
        desk.session.stop("test")
    else:
        desk.status(state="held")
    count = len(desk.decisions)
    desk.real_time(x=0.02)
    assert len(desk.decisions) == count + 1


def test_a_step_that_waits_is_decided_before_the_next_begins():
    desk = answering(rows=1)
    desk.now_s = 100.1
    desk.real_time(x=0.02)
    assert len(desk.decisions) == 1
    desk.now_s = 100.24  # nobody watched: the next joints come
    desk.session.on_joints(joints(0.02, stamp_ns=round(100.3e9)))
    assert [round(d.command.stamp_ns / 1e9, 1) for d in desk.decisions] == [100.1, 100.2]


def test_joints_that_come_while_a_step_waits_begin_no_step_of_their_own():
    desk = answering(rows=1)
    for ms in range(10, 110, 10):
        desk.now_s = 100.1 + ms / 1e3
        desk.session.on_joints(joints(0.02, stamp_ns=round(desk.now_s * 1e9)))
        desk.session.watch_answer()
    assert len(desk.decisions) == 1
    for ms in range(110, 180, 10):
        desk.now_s = 100.1 + ms / 1e3
        desk.session.on_joints(joints(0.02, stamp_ns=round(desk.now_s * 1e9)))
        desk.session.watch_answer()
    assert [round(d.command.stamp_ns / 1e9, 1) for d in desk.decisions] == [100.1, 100.2]


def test_motion_begins_with_the_newest_joints_and_waits_a_step_longer():
    desk = Desk(lockstep=False)
    desk.status()
    desk.real_time()
    assert desk.wait(0.09) == []
    desk.session.on_joints(joints(0.0, stamp_ns=round(desk.now_s * 1e9)))
    desk.chunk(round(desk.now_s * 1e9), RIGHT)
    assert desk.decisions[-1].author == "v"
    other = Desk(lockstep=False)
    other.status()
    other.real_time()
    assert other.wait(0.16) == ["hold:no_command"]


@pytest.mark.parametrize("running", [True, False])
def test_joints_that_are_lost_hold_the_last_command_in_an_episode(running):
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9))
    driven = desk.real_time()
    if not running:
        desk.status(state="stopped")
    count = len(desk.decisions)
    lost = desk.real_time(1.0, None)
    if not running:
        assert len(desk.decisions) == count
        assert "joints_lost" not in desk.says()
        return
    assert lost.author == "hold:joints_lost"
    assert lost.command.positions.tolist() == driven.command.positions.tolist()
    assert lost.command.stamp_ns == round(desk.now_s * 1e9)
    assert "joints_lost: no valid joint_states for 1.0 s: holds" in desk.says()
    assert desk.health.condition("active").level == "error"
    desk.real_time(0.2, 0.02)
    assert "joints_lost" not in desk.says()


def test_a_person_who_falls_silent_hands_back_to_the_policy():
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), *[RIGHT] * 12)
    desk.session.on_human(HumanAction(round(100.1e9), "ann", True, "ee_delta", -RIGHT))
    assert [desk.real_time().author for _ in range(5)] == ["human:ann"] * 5
    desk.real_time()
    assert desk.wait(0.06) == ["hold:no_command"]  # what was planned before ann drove is not executed
    desk.now_s = 100.6
    desk.chunk(round(100.6e9), *[RIGHT] * 12)
    assert [desk.real_time().author for _ in range(2)] == ["v"] * 2
    assert "intervention: 'ann' was active and fell silent" in desk.says()


@pytest.mark.parametrize("stamp_ns", [0, round(80e9), round(120e9)])
def test_a_person_of_another_time_moves_nothing_after_the_episode(stamp_ns):
    """What the policy had planned beyond its end is not executed because of a message that is refused."""
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), *[RIGHT] * 30)
    moved = [desk.real_time().command.positions[0] for _ in range(3)][-1]
    desk.status(state="stopped")
    rest = desk.real_time(1.0).command.positions[0]
    count = len(desk.decisions)
    for _ in range(5):
        desk.session.on_human(HumanAction(stamp_ns, "ann", True, "ee_delta", RIGHT))
        desk.real_time()
    assert len(desk.decisions) == count and rest - moved < 0.1
    assert desk.session.pipeline.filter.counts["human_stamp"] == 5


@pytest.mark.parametrize("ends", ["episode", "person"])
def test_an_arm_in_motion_comes_to_rest_within_its_limits_when_nobody_drives_any_more(ends):
    desk, fast = Desk(lockstep=False), np.array([1.0, 0, 0, 0, 0, 0, -1.0])
    if ends == "episode":
        desk.status()
        desk.chunk(round(100.1e9), *[fast] * 30)
    x = 0.0
    for _ in range(6):
        if ends == "person":
            desk.session.on_human(HumanAction(round((desk.now_s + 0.1) * 1e9), "ann", True, "ee_delta", fast))
        x = desk.real_time(x=x).command.positions[0]
    if ends == "episode":
        desk.status(state="stopped")
    else:
        desk.session.on_human(HumanAction(round(desk.now_s * 1e9), "ann", False, "ee_delta", fast))
    for _ in range(10):
        x = desk.real_time(x=x).command.positions[0]
    xs = [0.0, *[one.command.positions[0] for one in desk.decisions]]
    speeds = np.diff(xs) / 0.1
    assert speeds.max() > 0.4 and speeds[-1] == 0.0
    assert np.abs(np.diff(speeds)).max() / 0.1 <= 5.0 + 1e-9
    count = len(desk.decisions)
    desk.real_time(0.5, x=x)
    assert len(desk.decisions) == count  # at rest it is left alone


def test_an_episode_that_begins_in_the_motion_of_another_begins_at_rest():
    desk, fast = Desk(lockstep=False), np.array([1.0, 0, 0, 0, 0, 0, -1.0])
    desk.status()
    desk.chunk(round(100.1e9), *[fast] * 30)
    x = 0.0
    for _ in range(6):
        x = desk.real_time(x=x).command.positions[0]
    desk.status(state="stopped")
    desk.status(episode=2)
    desk.chunk(round((desk.now_s + 0.1) * 1e9), *[-fast] * 30, episode=2)
    for _ in range(8):
        x = desk.real_time(x=x).command.positions[0]
    speeds = np.diff([0.0, *[one.command.positions[0] for one in desk.decisions]]) / 0.1
    assert speeds.max() > 0.4 and speeds.min() < -0.4  # it goes on to drive the second one
    assert np.abs(np.diff(speeds)).max() / 0.1 <= 5.0 + 1e-9
    assert desk.episodes[-1] == 2


def test_a_robot_whose_clock_was_set_back_goes_on():
    """As NTP does after a start without a battery: everything that comes is an hour older then."""
    desk = Desk(lockstep=False)
    desk.now_s = 5000.0
    desk.status()
    desk.chunk(round(5000.1e9), *[RIGHT] * 10)
    desk.real_time(0.3)
    desk.now_s, desk.ahead_s = 1400.0, 1400.0 - desk.now_s
    desk.status(episode=2)
    desk.chunk(round(1400.1e9), *[RIGHT] * 10, episode=2)
    assert desk.real_time(0.5).author == "v"
    assert desk.decisions[-1].command.stamp_ns == round(1400.5e9)


@pytest.mark.parametrize("set_s", [0.06, 0.2, 300.0, -0.3, -300.0, -1e5])
@pytest.mark.parametrize("goes_on", [True, False])
def test_stamps_that_are_set_in_motion_keep_the_limits(set_s, goes_on):
    """A driver's stamp that is wrong, or a clock that was set: no time passed in which the arm came to rest."""
    desk = Desk(lockstep=False, safety=SafetyConfig(acceleration_fraction=0.4))
    fast = np.array([1.0, 0, 0, 0, 0, 0, -1.0])
    desk.now_s = 1e6
    desk.status()
    desk.chunk(round((desk.now_s + 0.1) * 1e9), *[fast] * 30)
    x = 0.0
    for _ in range(5):
        x = desk.real_time(x=x).command.positions[0]
    desk.now_s, desk.ahead_s = desk.now_s + set_s, set_s
    for _ in range(8):
        if goes_on:
            desk.chunk(round((desk.now_s + 0.1) * 1e9), *[fast] * 3)
        x = desk.real_time(x=x).command.positions[0]
    speeds = np.diff([0.0, *[one.command.positions[0] for one in desk.decisions]]) / 0.1
    assert speeds.max() > 0.3 and not desk.session.pipeline.filter.stopped
    assert np.abs(np.diff(speeds)).max() / 0.1 <= 2.0 + 1e-6


@pytest.mark.parametrize("set_s", [300.0, -300.0])
def test_a_clock_that_is_set_hides_no_jump(set_s):
    desk = Desk(lockstep=False)
    desk.now_s = 1e6
    desk.status()
    desk.chunk(round((desk.now_s + 0.1) * 1e9), *[RIGHT] * 10)
    desk.real_time(0.3)
    desk.now_s, desk.ahead_s = desk.now_s + set_s, set_s
    desk.real_time(x=-0.4)
    assert desk.session.pipeline.filter.stopped.startswith("joint_jump: x measured at -0.400")


def test_an_idle_arm_that_is_moved_by_hand_is_not_stopped_when_the_clock_was_set_back():
    desk = Desk(lockstep=False)
    desk.now_s = 1e6
    desk.real_time(0.3)
    desk.now_s, desk.ahead_s = desk.now_s - 300.0, -300.0
    for x in np.linspace(0.0, 0.6, 13):  # 0.5 a second, half of what its motors can do
        desk.real_time(x=x)
    assert not desk.session.pipeline.filter.stopped


def test_joint_states_of_a_step_that_do_not_come_are_named_in_lock_step():
    desk = Desk()
    desk.status(STEP_NS)
    desk.now_s += 1.0
    desk.session.watch()
    assert "joints_lost: none of the step that task/status tells of" in desk.says()
    assert not desk.decisions


def test_joint_states_out_of_order_are_counted_and_do_nothing():
    desk = Desk(lockstep=False)
    desk.status()
    desk.real_time(0.2)
    count = len(desk.decisions)
    for stamp_ns in (1, round(90e9), round(desk.now_s * 1e9) - 1):
        desk.session.on_joints(joints(0.5, stamp_ns=stamp_ns))
    assert len(desk.decisions) == count
    assert desk.session.pipeline.filter.counts["joints_out_of_order"] == 3


@pytest.mark.parametrize("ahead_ns", [300_000_000, 10**9, 10**18])
def test_joints_of_the_future_are_counted_and_outdate_no_good_ones(ahead_ns):
    desk = Desk(lockstep=False)
    desk.status()
    desk.session.on_joints(joints(stamp_ns=round(desk.now_s * 1e9) + ahead_ns))
    assert not desk.decisions
    assert desk.session.pipeline.filter.counts["joints_future"] == 1
    desk.chunk(round(100.1e9))
    assert desk.real_time().author == "v"


@pytest.mark.parametrize("running", [True, False])
def test_a_jump_is_found_in_motion_and_at_rest_and_tells_everybody(running, tmp_path):
    desk = Desk(tmp_path, lockstep=False)
    if running:
        desk.status()
    desk.real_time(0.3)
    desk.real_time(0.1, -1.5)
    assert desk.latched_reasons[-1].startswith("joint_jump: x measured at -1.500")
    assert StopLatch(tmp_path).stopped.startswith("joint_jump")
    assert desk.session.release().startswith("joint_jump")
    assert (desk.latched_reasons[-1], StopLatch(tmp_path).stopped) == ("", "")


def test_a_jump_between_two_control_steps_is_found():
    desk = Desk(lockstep=False)
    desk.status()
    desk.real_time(0.3)
    desk.session.on_joints(joints(0.5, stamp_ns=round(desk.now_s * 1e9) + 1000))  # a second publisher
    assert desk.latched_reasons[-1].startswith("joint_jump")


def test_a_simulated_arm_is_somewhere_else_when_an_episode_begins():
    desk = Desk(lockstep=False, simulated=True, grace_s=1.0)
    desk.status()
    desk.real_time(0.3, 0.4)
    assert desk.real_time(0.1, -0.4).author == "hold:joint_jump"  # the status comes after the joint states
    desk.status(episode=2)
    desk.chunk(round(desk.now_s * 1e9) + STEP_NS, episode=2)
    assert desk.real_time(0.1, -0.4).author == "v"
    assert desk.latched_reasons == [""]


def test_an_arm_that_was_moved_by_hand_at_rest_moves_again_after_a_release():
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9))
    desk.real_time(0.2)
    desk.session.stop("button")
    desk.status(state="stopped")
    for step in range(40):  # 0.4 m in 4 s
        desk.real_time(0.1, 0.01 * step)
    desk.session.release()
    desk.real_time(0.2, 0.4)  # at rest: nobody commands the arm
    assert desk.latched_reasons[-1] == ""
    desk.status(episode=2)
    desk.chunk(round(desk.now_s * 1e9) + STEP_NS, episode=2)
    assert desk.real_time(0.1, 0.4).command.positions[0] == pytest.approx(0.42)


def test_a_node_that_was_kept_from_running_goes_on_from_its_last_command_and_holds_first():
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), *[RIGHT] * 8)
    there = desk.real_time(0.2).command.positions[0]
    desk.now_s += 2.0
    desk.chunk(round((desk.now_s + 0.1) * 1e9))
    assert desk.real_time(0.1, there).author == "hold:silent"
    assert desk.decisions[-1].command.positions[0] == there
    desk.chunk(round((desk.now_s + 0.1) * 1e9))
    assert desk.real_time(0.1, there).author == "v"


@pytest.mark.parametrize("driven", [True, False])
def test_a_jump_while_nothing_was_measured_stops_and_commands_nothing_far(driven):
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), *[RIGHT] * 8)
    there = desk.real_time(0.2).command.positions[0]
    if not driven:
        desk.status(state="succeeded")
    desk.now_s += 2.0
    desk.status(episode=1 + (not driven))
    decision = desk.real_time(0.3, 0.4)
    assert "further than it was commanded in the 2.1" in desk.latched_reasons[-1]
    assert decision.command.positions[0] == there


def test_a_stop_at_rest_commands_nothing_and_names_a_jump_that_comes_later():
    desk = Desk(lockstep=False)
    desk.status()
    desk.real_time(0.3)
    desk.status(state="succeeded")
    for step in range(20):
        desk.real_time(0.1, 0.01 * step)  # moved by hand
    given = len(desk.decisions)
    desk.session.stop("button")
    desk.real_time(0.2, 0.2)
    desk.status(episode=2)
    desk.real_time(0.2, -0.4)
    assert (len(desk.decisions), desk.told[-1]) == (given, "hold:stopped")
    assert desk.latched_reasons[-1].startswith("button; joint_jump: x measured at -0.400")
    assert desk.session.release().startswith("button; joint_jump")
    desk.chunk(round((desk.now_s + 0.1) * 1e9), episode=2)
    assert desk.real_time(0.1, -0.4).command.positions[0] == pytest.approx(-0.38)


def test_motion_begins_with_joints_that_are_not_stale():
    desk = Desk(lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9))
    desk.session.on_joints(joints(stamp_ns=round(99.0e9)))
    assert (desk.decisions, "stale: joint_states are 1.00 s old" in desk.says()) == ([], True)
    assert desk.real_time(0.1).author == "v"
    desk.session.stop("button")
    desk.now_s += 2.0
    assert desk.told == [] and desk.real_time(0.2) and desk.told == ["hold:stopped"] * 2  # at rest by now
    desk.session.release()
    desk.now_s += 2.0
    desk.session.on_joints(joints(stamp_ns=round((desk.now_s - 1.0) * 1e9)))
    assert desk.wait(0.2) == []


def test_an_arm_that_is_far_from_its_command_in_an_episode_stops():
    desk = Desk(lockstep=False)
    desk.status()
    for step in range(40):
        desk.real_time(0.1, 0.01 * step)
    assert desk.latched_reasons[-1].startswith("joint_jump: x measured 0.2")


def test_a_person_who_drives_without_episodes_begins_where_the_arm_is():
    desk = Desk(lockstep=False)
    for x in (0.0, 0.4):
        for _ in range(20):  # nobody drives; the arm is moved by hand
            desk.real_time(0.1, x if not desk.decisions else min(x, desk.session.joints.positions[0] + 0.05))
        desk.session.on_human(HumanAction(round(desk.now_s * 1e9), "ann", True, "ee_delta", RIGHT))
        assert desk.real_time(0.1, x).command.positions[0] == pytest.approx(x + 0.02)
        desk.session.on_human(HumanAction(round(desk.now_s * 1e9), "ann", False, "ee_delta", RIGHT))


def test_a_simulation_that_begins_anew_is_followed():
    desk = Desk()
    desk.chunk(50 * STEP_NS, episode=3)
    assert desk.step(50 * STEP_NS, 0.4, episode=3).author == "v"
    desk.chunk(STEP_NS, episode=1)
    assert desk.step(STEP_NS, -0.4, episode=1).author == "v"


def test_a_stop_is_on_disk_when_the_call_returns_and_there_after_a_restart(tmp_path):
    Desk(tmp_path).session.stop("by safety/stop")
    desk = Desk(tmp_path)
    assert desk.latched_reasons == ["by safety/stop"]
    desk.chunk(STEP_NS)
    assert desk.step(STEP_NS).author == "hold:stopped"
    assert "stopped: by safety/stop; call safety/reset to go on" in desk.says()


def test_an_episode_that_ran_before_the_restart_is_held_until_it_is_released(tmp_path):
    before = Desk(tmp_path)
    before.chunk(STEP_NS)
    assert before.step(STEP_NS).author == "v"
    desk = Desk(tmp_path)
    desk.chunk(2 * STEP_NS, RIGHT, RIGHT)
    assert desk.step(2 * STEP_NS).author == "hold:stopped"
    assert desk.session.release().startswith("restarted")
    assert desk.step(3 * STEP_NS).author == "v"


def test_a_person_does_not_drive_before_it_is_known_what_ran(tmp_path):
    before = Desk(tmp_path, lockstep=False)
    before.status()
    desk = Desk(tmp_path, lockstep=False)
    for _ in range(3):
        desk.session.on_human(HumanAction(round(desk.now_s * 1e9), "ann", True, "ee_delta", RIGHT))
        assert desk.real_time() is None
    assert "what ran before the restart is not known: give a goal, or call safety/reset" in desk.says()


def test_a_stop_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    desk = Desk(tmp_path / "file" / "x")
    desk.session.stop("button")
    assert "would not survive a restart" in desk.says()
    assert desk.latched_reasons[-1] == "button"
    (tmp_path / "file").unlink()  # there is room again: the next call writes it
    desk.session.stop("button")
    assert "would not survive a restart" not in desk.says()
    assert StopLatch(tmp_path / "file" / "x").stopped == "button"


def test_a_note_of_the_episode_that_cannot_be_written_is_named_and_written_later(tmp_path):
    (tmp_path / "file").write_text("")
    desk = Desk(tmp_path / "file" / "x", lockstep=False)
    desk.status()
    assert "would not survive a restart" in desk.says()
    (tmp_path / "file").unlink()
    desk.now_s += 2.0
    desk.session.watch()  # no other status comes on a robot
    assert "would not survive a restart" not in desk.says()
    assert StopLatch(tmp_path / "file" / "x").unfinished


@pytest.mark.parametrize("what", ["a stop", "an episode"])
def test_a_latch_whose_folder_somebody_deletes_is_written_again_and_named(what, tmp_path):
    desk = Desk(tmp_path / "stop", lockstep=False)
    if what == "a stop":
        desk.session.stop("button")
    else:
        desk.status()
    desk.session.watch()
    assert "stop_folder" not in desk.says()
    shutil.rmtree(tmp_path / "stop")
    desk.now_s += 1.1
    desk.session.watch()
    assert "stop_folder" in desk.says() and "stop.json: somebody deleted or changed it" in desk.says()
    again = Desk(tmp_path / "stop", lockstep=False)
    assert (again.latched_reasons[-1], again.session.latch.unfinished) == (
        ("button", False) if what == "a stop" else ("", True)
    )


def test_a_stop_that_is_pressed_again_is_on_disk_again(tmp_path):
    desk = Desk(tmp_path / "stop")
    desk.session.stop("button")
    shutil.rmtree(tmp_path / "stop")
    desk.session.stop("button")
    assert StopLatch(tmp_path / "stop").stopped == "button"


class Driven(Desk):
    """A robot that moves at full speed, and notes in which order it was told what, and what was written."""

    def __init__(self, folder, monkeypatch):
        self.journal, write = [], stop_latch.write_atomic
        super().__init__(folder, lockstep=False, safety=SafetyConfig(acceleration_fraction=0.4))
        monkeypatch.setattr(stop_latch, "write_atomic", lambda *file: (self.journal.append("disk"), write(*file)))
        self.status()
        self.chunk(round(100.1e9), *[np.array([1.0, 0, 0, 0, 0, 0, -1.0])] * 30)
        self.x = 0.0
        for _ in range(5):
            self.x = self.real_time(x=self.x).command.positions[0]
        self.journal.clear()

    def command(self, decision, episode):
        super().command(decision, episode)
        self.journal.append(decision.author)

    def latched(self, reason):
        super().latched(reason)
        self.journal.append("told")


def test_a_stop_is_told_and_holds_before_the_disk_has_it(tmp_path, monkeypatch):
    desk = Driven(tmp_path, monkeypatch)
    desk.session.stop("button")
    assert desk.journal == ["told", "hold:stopped", "disk"]
    assert StopLatch(tmp_path).stopped == "button"


@pytest.mark.parametrize("early", [False, True])
def test_a_jump_is_told_and_braked_for_before_the_disk_has_it(early, tmp_path, monkeypatch):
    desk = Driven(tmp_path, monkeypatch)
    before = desk.decisions[-1].command.positions[0]
    if early:  # a robot may report faster than it is controlled
        desk.session.on_joints(joints(-0.4, stamp_ns=round((desk.now_s + 0.02) * 1e9)))
        assert desk.journal == ["told"]
    desk.now_s += 0.1
    desk.session.on_joints(joints(-0.4, stamp_ns=round(desk.now_s * 1e9)))
    assert desk.journal == ["told", "hold:stopped", "disk"]
    assert desk.decisions[-1].command.positions[0] > before  # it brakes
    assert StopLatch(tmp_path).stopped.startswith("joint_jump")


def test_a_jump_after_which_no_joints_come_gets_on_disk(tmp_path, monkeypatch):
    desk = Driven(tmp_path, monkeypatch)
    desk.session.on_joints(joints(-0.4, stamp_ns=round((desk.now_s + 0.02) * 1e9)))
    desk.real_time(1.2, x=None)
    assert StopLatch(tmp_path).stopped.startswith("joint_jump")


def test_the_end_of_a_goal_holds_before_the_disk_has_it(tmp_path, monkeypatch):
    desk = Driven(tmp_path, monkeypatch)
    desk.status(state="stopped")
    assert desk.journal == ["hold:no_task", "disk"]
    assert not StopLatch(tmp_path).unfinished


@pytest.mark.parametrize("how", ["slept", "frozen"])
@pytest.mark.parametrize("first", ["joints", "chunk", "watch", "status"])
def test_after_time_was_lost_in_an_episode_a_person_releases_the_robot(first, how, tmp_path):
    """The machine was suspended, or all of it was paused: both clocks run on then."""
    desk = Desk(tmp_path, lockstep=False)
    desk.status()
    desk.chunk(round(100.1e9), *[RIGHT] * 8)
    there = desk.real_time(0.3).command.positions[0]
    desk.real_time(0.1, None)
    count = len(desk.decisions)
    desk.lose(7200.0, how)
    if first == "chunk":
        desk.chunk(round((desk.now_s + 0.1) * 1e9), *[RIGHT] * 8)
    elif first == "watch":
        desk.session.watch()
    elif first == "status":
        desk.status()
    desk.real_time(0.5, there)
    # an arm that had no command for so long rests, and gets none
    assert {decision.author for decision in desk.decisions[count:]} == ({"hold:stopped"} if how == "slept" else set())
    (reason,) = desk.latched_reasons[1:]
    said = "the machine slept" if how == "slept" else "the safety node did not run"
    assert reason == f"suspended: {said} for 7200 s while the robot was driven"
    assert StopLatch(tmp_path).stopped.startswith("suspended")
    desk.session.release()
    desk.chunk(round((desk.now_s + 0.1) * 1e9), *[RIGHT] * 8)
    assert desk.real_time(0.3, there).author == "v"


@pytest.mark.parametrize("how", ["slept", "frozen"])
@pytest.mark.parametrize("first", ["joints", "watch", "hand"])
def test_after_time_was_lost_under_a_person_s_hand_the_arm_waits_for_a_release(first, how):
    desk = Desk(lockstep=False)
    desk.status(state="idle")
    desk.session.on_human(HumanAction(round(100.1e9), "ann", True, "ee_delta", RIGHT))
    there = desk.real_time(0.1).command.positions[0]
    count = len(desk.decisions)
    desk.lose(7200.0, how)
    if first == "watch":
        desk.session.watch()
    elif first == "joints":
        desk.real_time(0.1, there)
    desk.session.on_human(HumanAction(round((desk.now_s + 0.1) * 1e9), "ann", True, "ee_delta", RIGHT))
    desk.real_time(0.3, there)
    assert {decision.author for decision in desk.decisions[count:]} == ({"hold:stopped"} if how == "slept" else set())
    assert desk.latched_reasons[-1].startswith("suspended")


@pytest.mark.parametrize(
    "why", ["nobody drove", "lock-step", "simulated", "it was short", "the node waited between two clocks"]
)
@pytest.mark.parametrize("how", ["slept", "frozen"])
def test_time_that_was_lost_stops_nothing_that_it_does_not_concern(why, how):
    desk = Desk(lockstep=why == "lock-step", simulated=why in ("lock-step", "simulated"))
    desk.status(state="idle" if why == "nobody drove" else "running")
    desk.chunk(round(100.1e9), *[RIGHT] * 8)
    desk.real_time(0.2)
    if why == "it was short":
        desk.lose(0.9 if how == "slept" else 2.8, how)
    elif why == "the node waited between two clocks":
        for desk.misread_s in (-5.0, 0.0):
            desk.session.watch()
    else:
        desk.lose(7200.0, how)
    if why == "nobody drove":
        desk.status()  # a goal that comes first thing is a new one
    desk.real_time(0.2)
    desk.status()
    desk.real_time(0.2)
    assert desk.latched_reasons == [""]


class Kept(GoRight):
    """Keeps the chunks that it gave, by stamp."""

    def __init__(self) -> None:
        super().__init__(speed=0.4)
        self.given = {}

    def act(self):
        chunk = super().act()
        self.given[chunk.stamp_ns] = chunk
        return chunk


def test_in_lock_step_it_commands_what_the_in_process_loop_commands_to_the_bit():
    policy, seen = Kept(), []
    loop = Runtime(GantryWorld(), policy, CommandPipeline(GantryKinematics(), GANTRY))
    expected = loop.run_episode("reach", 7, episode=1, on_step=lambda saw, *_: seen.append(saw.joints))
    desk = Desk()
    for measured in seen:
        desk.status(measured.stamp_ns)
        desk.session.on_joints(measured)
        if (chunk := policy.given.get(measured.stamp_ns)) is not None:
            desk.session.on_chunk(chunk)
    np.testing.assert_array_equal([d.command.positions for d in desk.decisions], expected.commands)
