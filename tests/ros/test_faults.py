"""A small part of the proof of faults: sensors of a robot that fail, and messages from outside, stopped and not."""

import os

import pytest

from engram.benchmarks.faults_hostile import Attack, set_stopped
from engram.benchmarks.faults_idle import IdleTrial
from engram.benchmarks.faults_kills import COMMAND_LIMITS, MOTION_LIMITS
from engram.benchmarks.faults_limits import STILL_RAD
from engram.benchmarks.faults_loop import findings
from engram.benchmarks.faults_sensors import robot_loop

DOMAIN = int(os.environ["ROS_DOMAIN_ID"])
FAULTS = (
    ("clock_back", "moving"),
    ("jump", "moving"),
    ("jump_unseen", "moving"),
    ("nan", "still"),
    ("second_publisher", "moving"),
)
TOPICS = ("/command", "/policy/action_chunk", "/joint_states", "/intervention", "/task/status", "/tf_static")
pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(600)]


def test_failing_sensors_and_hostile_messages_never_move_the_arm_wrongly(tmp_path):
    with robot_loop(tmp_path, DOMAIN) as robot:
        seen = [robot.run(fault, arm) for fault, arm in FAULTS]
        assert {(one.fault, one.arm): one.missing() for one in seen} == {key: [] for key in FAULTS}

        robot.make_ready()
        attack = Attack(robot.loop, robot, seed=0, rate=200.0)
        start = robot.joints
        try:
            assert {*TOPICS} <= {*attack.targets()["topics"]}
            idle = IdleTrial(robot, list(TOPICS), attack)
            pretended = idle.block("pretended", idle.topics, 2.0)  # by one who drives, it says, while nobody does
            assert (idle.commands, idle.stopped, idle.uncounted(), pretended.down) == (0, [], [], {})
            set_stopped(robot.loop, robot, stopped=True)
            blocks = [attack.block(name, [f"topic:{name}"], 30, under_stop=True) for name in TOPICS]
        finally:
            attack.close()
        assert {block.name: block.down for block in blocks if block.down} == {}
        assert [block.name for block in blocks if block.sent < 25] == []
        assert abs(robot.joints - start)[:-1].max() < STILL_RAD
        assert robot.stopped
        assert {block.name for block in blocks if not block.refused} == set()
    found = [row for row in findings(robot.watched) if row["kind"] in {*COMMAND_LIMITS, *MOTION_LIMITS}]
    assert found == []
