"""What judges the trials of faults: limits by hand, what was lost by hand, messages that are really hostile."""

from __future__ import annotations

import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState

from engram.app.up import SupervisorConfig
from engram.benchmarks import faults
from engram.benchmarks.faults import FaultsBenchmark
from engram.benchmarks.faults_hostile import Block, plan
from engram.benchmarks.faults_hostile import figures as hostile_figures
from engram.benchmarks.faults_idle import IdleTrial
from engram.benchmarks.faults_idle import figures as idle_figures
from engram.benchmarks.faults_kills import Killer, Kills, patience, watched_figures
from engram.benchmarks.faults_kills import figures as kill_figures
from engram.benchmarks.faults_ledger import MemoryLedger, kept_experience, lost_and_doubled
from engram.benchmarks.faults_limits import CommandJudge, MotionJudge
from engram.benchmarks.faults_messages import clock, mutated, random_message, transforms, type_of
from engram.benchmarks.faults_policy import SPEED, Wave
from engram.benchmarks.faults_pretence import EPISODE, STEPS_AN_EPISODE, Pretender
from engram.benchmarks.faults_sensors import CLOCK_SET_S, DECLARED, Seen
from engram.benchmarks.faults_soak import slope
from engram.benchmarks.faults_timeline import DOUBT_S, Command, Episode, Measured, Stopped, Timeline
from engram.core.errors import UnknownNameError
from engram.core.input_rules import unfit_chunk, unfit_human
from engram.core.registry import make_robot
from engram.learning.experience.spool import Spool
from engram.learning.experience.store import ExperienceStore
from engram.nodes import messages
from tests.core.gantry import GANTRY
from tests.learning.transitions import episode

STEP_NS = 100_000_000


def kinds(judge, *xs, dt_s=0.1):
    """Return what each command of the gantry's x axis breaks, one control step apart."""
    return [
        [one.kind for one in judge.command(i * STEP_NS, np.array([x, 0.0, 0.0, 0.0]), dt_s)] for i, x in enumerate(xs)
    ]


def test_commands_are_checked_against_the_command_before():
    speed, acceleration = GANTRY.velocity_max[0], GANTRY.acceleration_max[0]
    step = 0.9 * min(speed, acceleration * 0.1) * 0.1
    assert kinds(CommandJudge(GANTRY, 0.1), 0.0, step, 2 * step, 2 * step) == [[], [], [], []]
    too_fast = kinds(CommandJudge(GANTRY, 0.1), 0.0, 1.01 * speed * 0.1)
    assert too_fast == [[], ["velocity"]]
    jerk = CommandJudge(GANTRY, 0.1, jerk_max=(0.5 * step / 0.1**3,) * 3)
    assert kinds(jerk, 0.0, step, 2 * step, 4 * step)[3][-1:] == ["jerk"]  # the rate goes from 0 to step / dt^2
    back_and_forth = kinds(CommandJudge(GANTRY, 0.1), 0.0, 0.09 * speed, 0.0)
    assert back_and_forth[2] == ["acceleration"] or 1.8 * speed / 0.1 <= acceleration


def test_what_is_not_finite_out_of_range_too_long_or_early_is_found_and_missed_commands_are_not():
    judge = CommandJudge(GANTRY, 0.1)
    assert kinds(judge, math.nan) == [["not_finite"]]
    assert kinds(CommandJudge(GANTRY, 0.1), GANTRY.position_max[0] + 0.01) == [["position"]]
    assert kinds(CommandJudge(GANTRY, 0.1), 0.0, dt_s=1e6) == [["duration"]]
    far = np.array([0.9 * GANTRY.velocity_max[0], 0.0, 0.0, 0.0])
    near = CommandJudge(GANTRY, 0.1)
    assert not near.command(0, 0.0 * far, 0.1)
    assert not near.command(10 * STEP_NS, far, 0.1)  # nine commands in between were missed
    assert not near.command(10 * STEP_NS, far, 0.1)  # shown again
    assert not near.command(10 * STEP_NS + STEP_NS // 4, far, 0.1)  # a hold, repeated
    assert [one.kind for one in near.command(10 * STEP_NS + STEP_NS // 2, 0.99 * far, 0.1)] == ["early"]
    assert not near.command(0, 0.0 * far, 0.1)  # the clock began anew


def test_a_motion_counts_when_nobody_allowed_it_and_once_for_each_stretch():
    judge, found = MotionJudge(GANTRY), []
    for i, x in enumerate((0.0, 0.02, 0.04, 0.05, 0.08)):
        found += judge.measured(i * STEP_NS, np.array([x, 0, 0, 0]), allowed=i < 1)
    assert [one.kind for one in found] == ["motion_not_allowed"]  # from 0.02 on: 0.08 is 0.06 away
    far = judge.measured(5 * STEP_NS, np.array([0.08 + 0.16 * GANTRY.velocity_max[0], 0, 0, 0]), allowed=True)
    assert [one.kind for one in far] == ["fast_motion"]


def told(*rows, read_at_s=0.0):
    """Return what is found in rows of (second, what), read in their order and at once."""
    timeline = Timeline(CommandJudge(GANTRY, 0.1), MotionJudge(GANTRY))
    for at_s, what in rows:
        timeline.add(round(at_s * 1e9), read_at_s, what)
    assert timeline.judge(read_at_s + 0.5 * DOUBT_S) == []
    return [one.kind for _, one in timeline.judge(read_at_s + DOUBT_S)]


def test_a_reader_that_was_kept_waiting_judges_what_was_said_in_its_order():
    at = lambda t, x: (t, Measured(round(t * 1e9), np.array([x, 0.0, 0.0, 0.0])))  # noqa: E731
    moving = [at(1.0 + 0.1 * i, 0.05 * i) for i in range(5)]
    running, stopped = (0.5, Episode(1, running=True)), (1.5, Stopped(stopped=True))
    assert told(running, *moving, stopped) == []
    assert told(stopped, *reversed(moving), running) == []  # the stop is read first, and was said last
    assert told(running, stopped, at(2.4, 0.0), at(2.45, 0.2)) == ["fast_motion"]  # what came before was not read
    assert "motion_not_allowed" in told(stopped, running, *moving, at(2.6, 0.2), at(2.7, 0.25))
    later = [(2.0 + t, one) for t, one in (at(1.5, 0.25), at(1.6, 0.3), at(2.4, 0.4), at(2.5, 0.45))]
    assert told(running, *moving, stopped, *later[:2]) == []  # a simulation that waited for two seconds
    assert told(running, *moving, stopped, *later) == ["motion_not_allowed"]
    assert told(stopped, running, at(2.6, 0.2), at(2.7, 0.25), (3.0, Episode(2, running=True))) == []
    quick = Command(round(1.02e9), np.array([0.01, 0.0, 0.0, 0.0]), 0.1)
    assert told(running, (1.02, quick), (1.0, Command(round(1e9), np.zeros(4), 0.1))) == ["early"]


def test_a_command_that_comes_while_no_episode_runs_is_found_and_one_that_brakes_is_not():
    at = lambda t, x=0.0: (t, Command(round(t * 1e9), np.full(4, x), 0.1))  # noqa: E731
    running, ended = (0.5, Episode(1, running=True)), (1.5, Episode(1, running=False))
    assert told(at(0.1)) == ["command_not_allowed"]
    assert told(running, at(1.0), ended, at(2.4)) == []
    assert told(running, at(1.0), ended, at(2.6, 1e-4)) == ["command_not_allowed"]
    assert told(running, at(1.0), ended, at(2.6)) == []  # it is held where it is
    assert told(running, at(1.0), ended, (2.0, Stopped(stopped=True)), at(2.6, 1e-4)) == []
    assert told(running, (0.6, Stopped(stopped=True)), at(1.0), ended, at(1.6)) == []  # held until the end


def test_nothing_is_wrong_in_what_a_process_sends_that_pretends_to_drive():
    robot, now_ns = make_robot("panda_2f85"), 10**18
    pretender, spaces = Pretender(robot), set()
    pretender.joints = np.append(robot.position_max, 0.0)  # at its limits: the targets lie within
    for number in range(STEPS_AN_EPISODE):
        made = {topic: pretender.message(f"/{topic}", now_ns) for topic in pretender.topics}
        assert all(serialize_message(one) for one in made.values())
        status = messages.status_from_msg(made["task/status"])
        chunk = messages.chunk_from_msg(made["policy/action_chunk"])
        human = messages.intervention_from_msg(made["intervention"])
        assert status.running and status.episode == chunk.episode == EPISODE
        assert unfit_chunk(chunk, robot, 0.1) == unfit_human(human, robot, now_ns) == ""
        command = messages.command_from_msg(made["command"], robot.joint_names)
        kinds_found = [one.kind for one in CommandJudge(robot, 0.1).command(now_ns, command.positions, 0.1)]
        assert (number, kinds_found) == (number, [])
        spaces |= {chunk.space, human.space}
    assert spaces == {"ee_delta", "joint_position"}
    assert messages.status_from_msg(pretender.message("task/status", now_ns)).episode == EPISODE + 1


def test_commands_that_come_while_nobody_drives_are_counted_and_refusals_that_are_not_counted_are_named():
    blocks = [Block("all topics", 40, 0, under_stop=False, down={"policy_node": None})]
    idle = object.__new__(IdleTrial)
    idle.attack, idle.topics, idle.commands = SimpleNamespace(blocks=blocks), ["/command", "/intervention", "/tf"], 2
    idle.refused, idle.stopped = Counter({"robot_node: refused from other writers: command": 3}), ["all topics"]
    found = [{"at": 1.0, "kind": "command_not_allowed", "text": ""}, {"at": 1.0, "kind": "counts"}]
    rows = {row["name"]: row for row in idle_figures(idle, found, ["/clock"], moves=True)}
    assert rows["idle_commands_not_allowed"]["value"] == 3
    assert rows["idle_topics_without_counted_refusal"]["names"] == ["/intervention"]
    assert rows["idle_messages"]["not_heard"] == ["/clock"]
    assert [name for name, row in rows.items() if row["met"] is False] == [
        *("idle_commands_not_allowed", "idle_stops"),
        *("idle_nodes_down_over_10_s", "idle_topics_without_counted_refusal"),
    ]


def test_facts_are_acknowledged_by_their_sequence_and_what_was_told_after_it_may_go():
    ledger = MemoryLedger()
    ledger.told("a", 1, {"cup": 1, "bowl": 1})
    ledger.told("a", 2, {"cup": 2}, deleted=["bowl"])
    ledger.told("a", 3, {"cup": 3})
    ledger.durable(2)
    assert ledger.acknowledged == {"cup": 2}
    ledger.told("b", 3, {"cup": 2})  # the process was killed: what was not durable is forgotten
    ledger.durable(3)
    assert ledger.lost({"cup": 2}) == []
    assert ledger.lost({"cup": 1}) == ["cup: seen 2 times, now 1"]
    assert ledger.lost({}) == ["cup: seen 2 times, now 0"]


def test_a_node_that_is_told_apart_from_another_gives_sightings_back_and_nothing_else_lowers_them():
    ledger = MemoryLedger()
    ledger.told("a", 1, {"cup": 8, "bowl": 8, "plate": 8})
    ledger.told("a", 2, {"cup": 6})
    ledger.durable(2)
    assert ledger.acknowledged == {"cup": 6, "bowl": 8, "plate": 8}
    ledger.told("a", 3, {"plate": 5})  # killed before anybody hears whether that is durable
    ledger.told("b", 3, {"bowl": 6})  # what a process begins with is what was kept
    ledger.told("b", 4, {"bowl": 5})
    ledger.durable(4)
    assert ledger.lost({"cup": 6, "bowl": 5, "plate": 5}) == ["bowl: seen 8 times, now 5"]


def test_what_was_deleted_shortly_before_a_kill_may_be_there_or_not():
    ledger = MemoryLedger()
    ledger.told("a", 1, {"cup": 1, "bowl": 1, "plate": 1})
    ledger.durable(1)
    ledger.told("a", 2, {}, deleted=["bowl"])
    ledger.told("b", 2, {"cup": 1})  # the deletion was durable, and nobody heard so
    ledger.told("b", 3, {}, deleted=["plate"])
    assert ledger.lost({"cup": 1}) == ledger.lost({"cup": 1, "plate": 1}) == []
    assert ledger.lost({"plate": 1}) == ["cup: seen 1 times, now 0"]


def test_steps_of_experience_are_found_in_spool_or_store_and_doubles_are_seen(tmp_path):
    spool, store = Spool(tmp_path / "spool", "panda"), ExperienceStore(tmp_path / "store")
    for one in episode(0, 4):
        spool.add(one)
    spool.commit()
    sent = spool.due(0.0, 10)
    store.append(sent[:2])
    store.commit()
    files = tmp_path / "spool" / "spool.sqlite", tmp_path / "store" / "experience.sqlite"
    identities = [(one.robot_id, one.boot_id, one.sequence) for one in sent]
    kept = kept_experience(*files)
    assert lost_and_doubled(identities, kept) == ([], [])
    assert lost_and_doubled([*identities, ("panda", "x", 9)], kept)[0] == [("panda", "x", 9)]
    spool.add(episode(0, 4)[0])  # the same step under another number
    spool.commit()
    assert len(lost_and_doubled(identities, kept_experience(*files))[1]) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("engram_interfaces/msg/ActionChunk", "engram_interfaces/msg/SceneObservation", "sensor_msgs/msg/Image"),
        *(
            "trajectory_msgs/msg/JointTrajectory",
            "engram_interfaces/msg/Experience",
            "vision_msgs/msg/Detection3DArray",
        ),
    ],
)
def test_random_messages_differ_travel_and_hold_what_is_not_finite(name):
    cls, rng = type_of(name), np.random.default_rng(0)
    made = [serialize_message(random_message(cls, rng)) for _ in range(30)]
    assert len({*made}) > 25
    assert all(deserialize_message(data, cls) is not None for data in made)
    text = "".join(str(deserialize_message(data, cls)) for data in made)
    assert "Image" in name or ("nan" in text and "inf" in text)


def test_a_changed_message_keeps_the_most_of_a_good_one_and_the_good_one_stays():
    good = JointState(name=["x", "y"], position=[0.1, 0.2], velocity=[0.0, 0.0])
    before, rng = str(good), np.random.default_rng(1)
    changed = [mutated(good, rng) for _ in range(50)]
    assert str(good) == before
    assert sum(str(one) != before for one in changed) > 40
    assert sum(list(one.name) == ["x", "y"] for one in changed) > 15


def test_times_and_transforms_are_of_the_worst_kind():
    rng = np.random.default_rng(0)
    assert {clock(rng).clock.sec < 0 for _ in range(30)} == {True, False}
    cycles = 0
    for _ in range(30):
        pairs = [(t.header.frame_id, t.child_frame_id) for t in transforms(rng).transforms]
        cycles += len(pairs) > 1 and pairs[-1][1] == pairs[0][0]
    assert cycles > 10


def test_a_reaction_is_complete_or_says_what_is_missing():
    assert Seen("nan", "moving", moved_rad=0.01, goal="failed: joints_lost", said="x").missing() == []
    assert Seen("nan", "moving", moved_rad=0.2).missing() == ["moved 0.20 rad", "the goal goes on", "no diagnostic"]
    assert Seen("jump", "still", goal="g", said="x", beyond=("early", "velocity")).missing() == [
        *("no latched stop", "2 beyond limits, first early")
    ]
    assert Seen("freeze", "still").missing() == []
    assert {fault for fault, _ in DECLARED} == {
        *__import__("engram.benchmarks.faults_robot").benchmarks.faults_robot.FAULTS,
        "jump_unseen",
        *CLOCK_SET_S,
    }
    assert Seen("clock_back", "moving", moved_rad=0.3).missing() == []
    stood = Seen("clock_back", "moving", stopped=True, goal="failed: joints_lost").missing()
    assert stood == ["stopped", "the goal ended: failed: joints_lost"]
    assert Seen("clock_ahead", "moving").missing() == ["the arm does not go on"]


def test_recovery_times_are_pooled_and_a_node_that_stays_down_is_named():
    rows = {row["name"]: row for row in kill_figures(Kills({"a": [2.0, 4.0], "b": [12.0]}, ["b"]), 4)}
    assert (rows["kills_recovered"]["value"], rows["kills_recovered"]["met"]) == (0.75, False)
    assert rows["kills_recovered"]["down"] == ["b"]
    assert rows["kills_recovery_p50_s"]["value"] == 4.0
    assert (rows["kills_recovery_over_limit"]["value"], rows["kills_recovery_over_limit"]["n"]) == (1, 3)


class FakeLoop:
    """A loop whose nodes are only names; what was said before a kill is heard when it spins after that."""

    def __init__(self, hear):
        node = SimpleNamespace(create_subscription=lambda *_: None)
        self.names, self.client, self.every_turn = ("safety_node", "policy_node"), self, None
        self.node, self.killed, self.heard = node, [], {"safety_node": math.inf}
        self.supervisor = SimpleNamespace(children={name: SimpleNamespace(process=1) for name in self.names})
        self._hear, self._said = hear, False

    def kill(self, name):
        self.killed.append(name)
        self._said = True
        return 0.0

    def spin(self, seconds):
        if self._said:
            self._hear()
        self._said = False
        self.every_turn()

    def active(self, name):
        return True

    def value(self, name, key):
        return ""

    def trigger(self, service, timeout_s):
        pass


def killed_in(ends: bool):
    """Return what two kills of the safety node give, whose episode ``ends`` just before each, or runs."""
    pilot = SimpleNamespace(running=True, idle=False, joints=np.zeros(4), stopped=True, moved_at=6.5)
    pilot.turn, pilot.moved = lambda: None, lambda _: 0.5
    pilot.wait_running = lambda _: setattr(pilot, "episode", 7)
    loop = FakeLoop(lambda: setattr(pilot, "episode", None if ends else 7))
    killer = Killer(loop, pilot, seed=0, together=1, only=("safety_node",))
    kills = killer.run(2, 0.0)
    assert loop.killed == ["safety_node"] * 2 and not pilot.idle
    return kills


def test_a_safety_node_is_killed_in_an_episode_if_no_word_of_its_end_comes_after_the_kill():
    kills = killed_in(ends=False)
    assert (kills.episode_kills, kills.moved_unarmed, kills.stopped_kills, kills.stops_lost) == (1, 1, 1, 1)
    assert kills.safety[1] == (
        "in an episode, without a stop: moved 0.500 rad while it was to be held, last motion 6.5 s after the kill"
    )
    kills = killed_in(ends=True)  # the next episode runs, as it should
    assert (kills.episode_kills, kills.moved_unarmed, kills.stopped_kills) == (0, 0, 1)
    assert kills.safety[1].startswith("outside an episode, without a stop: moved 0.500 rad")


def test_a_node_to_kill_that_is_none_of_the_loop_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="node to kill 'safty_node'"):
        faults.kills(FaultsBenchmark(kill="policy_node,safty_node"), tmp_path)


def test_the_link_is_left_out_where_it_cannot_be_cut_unless_it_was_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(faults, "why_not", lambda: "network namespaces need root")
    assert faults._possible(FaultsBenchmark()) == ("kills", "hostile", "idle", "sensors", "soak")
    assert "link: left out: network namespaces need root" in capsys.readouterr().err
    assert faults._possible(FaultsBenchmark(parts=("idle",))) == ("idle",)
    with pytest.raises(SystemExit, match="link: network namespaces need root"):
        faults._possible(FaultsBenchmark(parts=("link",)))
    monkeypatch.setattr(faults, "why_not", lambda: "")
    assert faults._possible(FaultsBenchmark()) == tuple(faults.PARTS)


def test_the_policy_of_the_trials_moves_whatever_the_task_unless_it_is_told_to_stay():
    for words, speed in (("reach the red cube", SPEED), ("wave", SPEED), ("stay", 0.0)):
        policy = Wave()
        policy.reset(words)
        assert np.abs(policy.act().actions[:, 1]).max() == speed


def test_a_slope_is_per_hour_without_the_warm_up_and_has_an_interval():
    at_s = [36.0 * i for i in range(100)]  # an hour
    values = [50.0 if i < 20 else 100.0 + 0.2 * i for i in range(100)]
    value, low, high = slope(at_s, values)
    assert value == pytest.approx(20.0) and low == pytest.approx(high)
    assert slope(at_s[:5], values[:5])[0] == 0.0


def test_an_attack_is_planned_in_episodes_and_under_a_stop():
    whole = plan(["/command"], ["/a/get_state", "/a/set_parameters"], quick=False)
    assert [(name, stopped) for name, _, stopped in whole] == [
        *(("/command", False), ("/a/get_state", False), ("/a/set_parameters", False)),
        *(("/command", True), ("/a/get_state", True), ("/a/set_parameters", True)),
    ]
    quick = plan(["/command", "/tf"], ["/a/get_state", "/a/set_parameters", "/a/change_state"], quick=True)
    assert quick[2] == ("services /a", ["service:/a/set_parameters", "service:/a/change_state"], False)
    assert quick[3:] == [
        ("all topics", ["topic:/command", "topic:/tf"], True),
        ("all services", ["service:/a/set_parameters", "service:/a/change_state"], True),
    ]


def test_a_node_that_stays_down_and_a_topic_whose_refusals_nobody_counts_are_named():
    blocks = [
        Block("/command", 10, 0, under_stop=False, topic=True, refused=9),
        Block("/tf", 10, 0, under_stop=False, topic=True, down={"memory_node": None}),
        Block("/experience/ack", 10, 0, under_stop=False, topic=True),
        Block("services /a", 10, 0, under_stop=False),
    ]
    rows = {row["name"]: row for row in hostile_figures(blocks, ["succeeded"], ["failed"], 1)}
    assert rows["hostile_messages"]["value"] == 40
    assert rows["hostile_nodes_down_over_10_s"]["down"] == ["memory_node after /tf: not back"]
    assert rows["hostile_topics_without_counted_refusal"]["names"] == ["/tf"]
    assert [name for name, row in rows.items() if row["met"] is False] == [
        *("hostile_nodes_down_over_10_s", "hostile_restarts"),
        *("hostile_topics_without_counted_refusal", "hostile_episodes_after"),
    ]


def test_what_the_watcher_wrote_is_counted_by_kind_within_a_time(tmp_path):
    rows = [
        {"at": 1.0, "kind": "counts", "commands": 5, "motions": 50},
        {"at": 2.0, "kind": "velocity", "text": "x: 3, limit 1"},
        {"at": 3.0, "kind": "motion_not_allowed", "text": "x: 0.5 rad"},
        {"at": 4.0, "kind": "counts", "commands": 9, "motions": 90},
        {"at": 9.0, "kind": "jerk", "text": "later"},
    ]
    path = tmp_path / "watched.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"at": 9.5, "ki')  # cut off by a kill
    commands, motions = watched_figures("x", path, 0.5, 5.0)
    assert (commands["value"], commands["n"], commands["kinds"], commands["met"]) == (1, 4, {"velocity": 1}, False)
    assert (motions["value"], motions["n"], motions["examples"]) == (1, 40, ["motion_not_allowed x: 0.5 rad"])


def test_a_node_is_not_killed_so_often_that_it_is_given_up():
    allowed, window_s = SupervisorConfig.max_restarts, SupervisorConfig.restart_window_s
    at, kills = 0.0, []
    for _ in range(3 * allowed):
        at += patience(kills[-1] if kills else None, at)
        kills.append(at)
    assert kills[0] == 0.0
    assert all(later - earlier > window_s for earlier, later in zip(kills, kills[allowed:], strict=False))
