"""Which rows of an action chunk are trained on, at the end of a demonstration in particular."""

from __future__ import annotations

import numpy as np

UNLEARNT_KEY = "action.unlearnt_is_pad"
"""(B, h) bool: rows of a chunk that are left out of the loss. LeRobot's processors pass a feature of this name
through. LeRobot's own ``action_is_pad`` marks rows beyond the end of an episode; those repeat the last action and
are trained on."""


def ends(idle: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return for each step (n,) the last step of its episode with a motion; -1 where nothing ever moves.

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

    Rows after the last motion of an episode are rest, and they are trained on. If they were only left out of the loss,
    the flow would still see them in its noisy input during training and learn to read the distance to the end from
    them. That cue is missing when the policy acts. Steps at which the arm was held before it moved on are left out, and
    so are all chunks that begin after the last motion.

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
