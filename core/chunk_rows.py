"""What a chunk of actions is to learn from a demonstration, its end included."""

from __future__ import annotations

import numpy as np

UNLEARNT_KEY = "action.unlearnt_is_pad"
"""(B, h) bool: rows of a chunk that are left out of the loss. LeRobot's processors hand on what is called so. Its own
``action_is_pad``, rows beyond the end of an episode, which repeat the last action, are learnt."""


def ends(idle: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return for each step (n,) the last of its episode at which something moves; -1 where nothing ever does.

    Args:
        idle: (n,) bool: the action commands no motion at all.
        last: (n,) last step of the step's episode.
    """
    end = np.full(len(last), -1, np.int64)
    np.maximum.at(end, last, np.where(idle, -1, np.arange(len(last))))
    return end[last]


def chunk_rows(
    action: np.ndarray, idle: np.ndarray, last: np.ndarray, end: np.ndarray, steps: np.ndarray, horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the next h actions from ``steps`` (b,) on (b, h, a), and which of them are not learnt (b, h).

    After the last motion of an episode comes rest, and it is learnt. Were it only left out of the loss, a flow that
    learns whole chunks would still see it in what it denoises, read off how far the end is, and wait for a sign that
    never comes when it acts by itself. Steps at which an arm was held before it moved on are not learnt, nor is
    anything from steps after the last motion.

    Args:
        action: (n, a), the gripper last: it stays as it is while the arm rests.
        idle, last, end: as in :func:`ends`.
    """
    coming = steps[:, None] + np.arange(horizon)
    there = np.minimum(coming, last[steps][:, None])
    ended = coming > end[steps][:, None]
    rows = action[there]
    rows[..., :-1][ended] = 0.0
    return rows, np.where(ended, (steps > end[steps])[:, None], idle[there])
