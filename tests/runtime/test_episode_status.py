"""What is told of an episode, by the simulator's verdict."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.types import JointState, Observation, OracleOutcome
from engram.runtime.episode_status import episode_status

JOINTS = JointState(7, ("joint1",), np.zeros(1), np.zeros(1))
RUNNING = OracleOutcome("reach", "go", 0, 3, success=False, reward=0.5, truncated=False)


@pytest.mark.parametrize(
    ("outcome", "held", "state"),
    [
        (RUNNING, False, "running"),
        (RUNNING, True, "held"),
        (replace(RUNNING, success=True), True, "succeeded"),
        (replace(RUNNING, truncated=True), False, "failed"),
        (replace(RUNNING, failed=True), True, "failed"),
    ],
)
def test_the_state_is_the_verdict_and_held_only_while_it_runs(outcome, held, state):
    status = episode_status(Observation(7, {}, replace(JOINTS, held=held)), outcome, "r1")
    assert (status.state, status.stamp_ns, status.robot_id) == (state, 7, "r1")
    assert (status.episode, status.step, status.oracle_reward) == (1, 3, 0.5)  # episodes are told from 1 on
