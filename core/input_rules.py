"""Which action chunks and human actions are fit to drive the arm, and where chunks wait for their control step."""

from __future__ import annotations

from collections import Counter

from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, ActionChunk, HumanAction

NEAR_NS = 1_000_000_000
"""A stamp further than this from the control step [ns] is not of now."""
LONGEST_CHUNK = 64
"""The most rows of a chunk."""
WAITING_CHUNKS = 16
"""The most chunks that wait for their control step."""


def action_dim(robot: RobotConfig, space: str) -> int:
    """Return how many numbers an action of ``robot`` has in ``space``."""
    return EE_ACTION_DIM if space == "ee_delta" else len(robot.joint_names)


def unfit_chunk(chunk: ActionChunk, robot: RobotConfig, control_dt_s: float) -> str:
    """Return why ``chunk`` may never drive ``robot``, in one word; empty = it may."""
    rows, dim = chunk.actions.shape
    if not abs(chunk.dt_s - control_dt_s) <= 1e-6 * control_dt_s:
        return "chunk_dt"
    if rows > LONGEST_CHUNK:
        return "chunk_horizon"
    if dim != action_dim(robot, chunk.space):
        return "chunk_dimension"
    return ""


def is_near(stamp_ns: int, now_ns: int) -> bool:
    """Tell whether ``stamp_ns`` is of now; 0 says that nobody set it, unless time itself has just begun."""
    return abs(now_ns - stamp_ns) <= NEAR_NS and (stamp_ns > 0 or now_ns == stamp_ns)


def unfit_human(human: HumanAction, robot: RobotConfig, now_ns: int) -> str:
    """Return why ``human`` may not drive ``robot`` at the control step at ``now_ns``; empty = it may."""
    if not is_near(human.stamp_ns, now_ns):
        return "human_stamp"
    return "human_dimension" if len(human.action) != action_dim(robot, human.space) else ""


class ChunkInbox:
    """Chunks in the order in which they came, until the control step and the episode that they are for.

    Several wait, so that one that is not fit to run does not displace one that is.

    Args:
        counts: counts what is thrown away, by reason.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self._waiting: list[ActionChunk] = []
        self._episode = 0

    def add(self, chunk: ActionChunk) -> None:
        """Keep ``chunk``; beyond the capacity the oldest of other episodes goes, then the oldest."""
        self._waiting.append(chunk)
        if len(self._waiting) > WAITING_CHUNKS:
            others = [i for i, one in enumerate(self._waiting) if one.episode != self._episode]
            del self._waiting[others[0] if others else 0]
            self.counts["chunk_overflow"] += 1

    def take(self, episode: int, now_ns: int) -> list[ActionChunk]:
        """Return the chunks of ``episode`` that are due at the control step at ``now_ns``, oldest first.

        Chunks of earlier episodes, and those of this one whose stamp is far ahead, are thrown away.
        """
        self._episode = episode
        due, later = [], []
        for chunk in self._waiting:
            if chunk.episode < episode:
                self.counts["chunk_episode"] += 1
            elif chunk.episode > episode or now_ns < chunk.stamp_ns <= now_ns + NEAR_NS:
                later.append(chunk)
            elif chunk.stamp_ns > now_ns:
                self.counts["chunk_stamp"] += 1
            else:
                due.append(chunk)
        self._waiting = later
        return due
