"""Actions and commands: what a policy, a person or the safety filter sends to the robot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types.basics import ACTION_SPACES, set_fields

HOLD, HUMAN = "hold:", "human:"
"""How the author of an executed action begins when it is not a policy's version."""


@dataclass(frozen=True, slots=True)
class ActionChunk:
    """The policy's answer to one observation: the next ``horizon`` actions, ``dt_s`` apart.

    Row i is meant for the control step at ``stamp_ns + i * dt_s``. ``execute_steps`` rows are executed before the
    next chunk is due; later rows bridge a policy that is late.
    """

    stamp_ns: int  # of the observation it answers
    episode: int
    space: str
    actions: np.ndarray  # (horizon, dim) float64
    dt_s: float
    execute_steps: int
    policy_version: str
    memory_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.space not in ACTION_SPACES:
            raise unknown_name("action space", self.space, ACTION_SPACES)
        actions = checked("ActionChunk.actions", self.actions, (None, None))
        if not 0 < self.execute_steps <= len(actions):
            raise InvalidInputError(f"ActionChunk.execute_steps: {self.execute_steps}, expected 1..{len(actions)}")
        if not (np.isfinite(self.dt_s) and self.dt_s > 0):
            raise InvalidInputError(f"ActionChunk.dt_s: {self.dt_s}, expected seconds above 0")
        set_fields(self, actions=actions)

    def row(self, stamp_ns: int) -> int:
        """Return the row that is meant for the control step at ``stamp_ns``; below 0 or past the end, there is none."""
        return round((stamp_ns - self.stamp_ns) / (self.dt_s * 1e9))

    def spent(self, stamp_ns: int) -> bool:
        """Tell whether the next chunk is due at the control step at ``stamp_ns``: ``execute_steps`` rows are over."""
        return self.row(stamp_ns) >= self.execute_steps


@dataclass(frozen=True, slots=True)
class JointCommand:
    """Joint targets to reach ``duration_s`` after ``stamp_ns``; ``held`` names why the robot is told to hold."""

    stamp_ns: int  # of the control step it is for
    names: tuple[str, ...]
    positions: np.ndarray  # (n,) rad or m
    duration_s: float
    held: str = ""

    def __post_init__(self) -> None:
        set_fields(self, positions=checked("JointCommand.positions", self.positions, (len(self.names),)))


@dataclass(frozen=True, slots=True)
class HumanAction:
    """A human takes over (``active``) or hands back."""

    stamp_ns: int
    who: str
    active: bool
    space: str
    action: np.ndarray  # (a,), read only while active

    def __post_init__(self) -> None:
        if self.space not in ACTION_SPACES:
            raise unknown_name("action space", self.space, ACTION_SPACES)
        object.__setattr__(self, "action", checked("HumanAction.action", self.action, (None,)))
