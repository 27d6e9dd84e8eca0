"""Leads a tool along a path that was recorded, on a robot whose motions may differ from those that were recorded."""

from __future__ import annotations

import numpy as np

CLOSES = 0.0
"""A gripper command above this closes the hand."""
LAG_M = 0.03
"""The path goes on while the tool is nearer than this to where it has just been led."""
LATE_STEPS = 2
"""And while it is at most so many control steps behind."""
MENDS = 0.2
"""Share of its distance to the path that the tool is led back by in a control step. With much more, a robot that
carries out its commands two steps late swings about the path."""
HARDER, HARDEST = 0.1, 0.6
"""What is added to that share in each control step in which the tool rests beside a place where the path stands, as
small motions may have no effect on the robot; and the most of it."""
CLOSE_M, AT_REST_M, REST_STEPS = 0.008, 0.003, 2
"""Before the hand closes or opens, and at the end, the tool is as near, and moves by no more in each of so many control
steps: in one alone, a tool that swings may just turn."""
MOVES, AT_REST = 0.05, 0.01
"""The hand has moved when it has opened or closed by more, and rests when it does so by less in a control step."""
PATIENCE = 12
"""Control steps after which neither rest nor the hand is waited for any longer."""


class PathFollower:
    """Follows a path: the motion that was recorded, and a share of the tool's distance from the path.

    The path stands where the hand is to close or to open, until the tool rests there and then until the hand does, and
    at its end.

    Args:
        path: places (n, 3) m, one for each control step.
        gripper: commands (n,) at these places, -1 open to 1 closed.
    """

    def __init__(self, path: np.ndarray, gripper: np.ndarray) -> None:
        keys = np.flatnonzero(np.diff(gripper > CLOSES)) + 1
        # these and the last one come twice: in the second step the hand moves, and the tool does not
        rows = np.sort(np.r_[np.arange(len(path)), keys, len(path) - 1])
        self._path, self._gripper = path[rows], gripper[rows]
        self._keys = frozenset((keys + np.arange(len(keys))).tolist())
        self._at = self._near = 0  # where the tool is led to, and the nearest place to where it is
        self._feed = np.zeros(3)  # recorded motion of this control step, m
        self._waited = self._rested = self._still = 0  # control steps
        self._tool_was: np.ndarray | None = None
        self._hand_was = self._hand_at_key = 0.0
        self.is_over = False
        """Whether the tool has come to the end."""

    def step(self, tool: np.ndarray, hand: float) -> None:
        """Go on by a control step at most: the tool is at ``tool`` (3,) m, the hand closed by ``hand`` 0..1."""
        rests = self._tool_was is not None and float(np.linalg.norm(tool - self._tool_was)) < AT_REST_M
        self._still = self._still + 1 if rests else 0
        before, passed = self._path[self._at], self._path[self._near : self._at + 1]
        self._near += int(np.argmin(np.linalg.norm(passed - tool, axis=1)))
        if self._may_go_on(tool, hand):
            self._waited = self._rested = 0
            if self._at in self._keys:
                self._hand_at_key = hand
            self.is_over |= self._at == len(self._path) - 1
            self._at = min(self._at + 1, len(self._path) - 1)
        else:
            self._waited += 1
            self._rested += rests
        self._feed, self._tool_was, self._hand_was = self._path[self._at] - before, tool, hand

    def motion(self, tool: np.ndarray) -> np.ndarray:
        """Return how far a tool that is at ``tool`` (3,) m is led in this control step (3,) m.

        While the path goes on, only what the tool is beside it counts: one that is late is not hurried.
        """
        goal = self._path[self._near if self._feed.any() else self._at]
        return np.asarray(self._feed + min(HARDEST, MENDS + HARDER * self._rested) * (goal - tool))

    @property
    def gripper(self) -> float:
        """Command of this control step, -1 open to 1 closed."""
        return float(self._gripper[max(0, self._at - 1)])

    def _may_go_on(self, tool: np.ndarray, hand: float) -> bool:
        far = float(np.linalg.norm(self._path[self._at] - tool))
        patient = self._waited < PATIENCE
        if patient and self._at - 1 in self._keys:  # the hand was told to move
            return abs(hand - self._hand_at_key) > MOVES and abs(hand - self._hand_was) < AT_REST
        if patient and (self._at in self._keys or self._at == len(self._path) - 1):
            return far < CLOSE_M and self._still >= REST_STEPS
        beside = float(np.linalg.norm(self._path[self._near] - tool))
        close_m = CLOSE_M if patient else LAG_M  # what it has met may keep the tool so far away
        return beside < LAG_M and (self._at - self._near <= LATE_STEPS or far < close_m)
