"""From the simulator's verdict to the status that is told of an episode. No ROS in here."""

from __future__ import annotations

from engram.core.types import EpisodeStatus, Observation, OracleOutcome


def episode_status(observation: Observation, outcome: OracleOutcome, robot_id: str) -> EpisodeStatus:
    """Return the status of the control step that ``observation`` was taken at."""
    state = "succeeded" if outcome.success else "failed" if outcome.over else "running"
    if state == "running" and observation.joints.held:
        state = "held"
    return EpisodeStatus(
        observation.stamp_ns,
        robot_id,
        outcome.episode + 1,  # worlds may count from 0, which a goal reads as "the current one"
        outcome.task,
        outcome.instruction,
        outcome.step,
        state,
        outcome.success,
        outcome.reward,
        outcome.truncated,
    )
