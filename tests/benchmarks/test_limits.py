"""Hostile policies, persons and encoders against the command pipeline: no limit is exceeded."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engram.benchmarks.hostile import FAULTS, LIMITS, POLICIES, HostileEpisode, usage
from engram.benchmarks.limits import EXACT, figures
from engram.core.pipeline import CommandPipeline
from tests.core.gantry import GANTRY, GantryKinematics

SMOOTH = replace(GANTRY, jerk_max=(20.0, 20.0, 20.0))  # 0.4 of what 5 m/s^2 allows in a step


def test_usage_of_a_sequence_by_hand():
    x = np.array([0.0, 0.05, 0.15, 0.15])  # 0.5, 1, 0 m/s; 5, 5, -10 m/s^2; 50, 0, -150 m/s^3
    commands = np.column_stack((x, 0 * x, 0 * x, np.full(4, 0.6)))
    used = usage(commands, SMOOTH, 0.1)
    assert used == pytest.approx({"position": 0.5, "velocity": 1.0, "acceleration": 2.0, "jerk": 7.5})


@pytest.mark.parametrize("robot", [GANTRY, SMOOTH])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_attack_moves_the_command_beyond_a_limit(robot, fault, policy):
    pipeline, counts = CommandPipeline(GantryKinematics(robot), robot, lockstep=False), Counter()
    for seed in range(2):
        episode = HostileEpisode(pipeline, np.random.default_rng(seed))
        episode.policy, episode.servos.fault = POLICIES[policy], fault
        for limit, share in usage(episode.run(), robot, 0.1).items():
            assert share <= 1.0 + EXACT, limit
        counts += pipeline.filter.counts
    assert counts["chunk_dt"] > 0


def test_jumps_and_second_publishers_are_found():
    pipeline = CommandPipeline(GantryKinematics(), GANTRY, lockstep=False)
    for fault in ("jump", "second_publisher"):
        before = pipeline.filter.counts["joint_jump"]
        for seed in range(4):
            episode = HostileEpisode(pipeline, np.random.default_rng(seed))
            episode.servos.fault, episode.policy = fault, POLICIES["anything"]
            episode.run()
        assert pipeline.filter.counts["joint_jump"] > before


def test_the_report_says_whether_a_limit_was_exceeded():
    rows = {row["name"]: row for row in figures({limit: [0.5, 1.2] for limit in LIMITS}, [0.001, 0.002])}
    assert (rows["episodes_beyond_jerk_limit"]["value"], rows["episodes_beyond_jerk_limit"]["met"]) == (1, False)
    assert rows["largest_share_of_velocity_limit"]["value"] == 1.2
