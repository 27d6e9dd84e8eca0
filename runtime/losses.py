"""What a running goal has lost: joint states, a camera, transforms, memory, the policy, or the safety node. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engram.runtime.parameters.policy import PolicyNodeConfig

JOINTS, SAFETY, OBSERVATION = "joint_states", "safety/executed", "observation"
"""What is heard of while all is well."""


@dataclass(frozen=True)
class LossLimits:
    """How long each part may be missing before the goal fails; wall clock [s]."""

    parts_s: float
    """Joint states, cameras, transforms, memory."""
    policy_s: float
    """The policy's answer to an observation."""
    safety_s: float
    """Word from the safety node about what was executed."""
    lockstep: bool = False
    """While the policy is asked, nothing else comes."""


def limits_of(config: PolicyNodeConfig) -> LossLimits:
    """Return the limits that the policy node's parameters set."""
    if not config.lockstep:
        return LossLimits(config.lost_after_s, config.policy_timeout_s, config.lost_after_s)
    # Behind a simulation that is gone, all is lost at once: its own limit comes first, and names it.
    wait_s = config.status_timeout_s
    return LossLimits(1.5 * wait_s, config.policy_timeout_s, 2.0 * wait_s, lockstep=True)


class LossWatch:
    """Notes when each part was last heard of, and names the first that is lost.

    Call it from the thread that owns the goal, but for :meth:`answered`, which any thread may call.
    """

    def __init__(self, limits: LossLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock = limits, clock
        self.begin()

    def begin(self) -> None:
        """A goal begins: everything counts as heard of now."""
        self._heard = dict.fromkeys((JOINTS, SAFETY, OBSERVATION), self._clock())
        self._asked_at: float | None = None

    def heard(self, part: str) -> None:
        """``part`` is there."""
        self._heard[part] = self._clock()

    def asked(self) -> None:
        """The policy was given an observation."""
        self.heard(OBSERVATION)
        if self._asked_at is None:
            self._asked_at = self._clock()

    def answered(self) -> None:
        """The policy has dealt with what it was given, without an error."""
        self._asked_at = None

    def found(self, missing: Sequence[str], awaits_memory: bool) -> str:
        """Return what is lost, and since when; empty = nothing.

        Args:
            missing: parts that the oldest observation waits for, as ``ObservationInbox.missing`` names them.
            awaits_memory: whether an observation waits for its memory context.
        """
        asked_at, limits = self._asked_at, self.limits
        if asked_at is not None and self._clock() - asked_at > limits.policy_s:
            return f"policy_lost: no answer to an observation for {self._clock() - asked_at:.1f} s"
        if asked_at is not None and limits.lockstep:
            return ""
        if self._silent(JOINTS) > limits.parts_s:
            return f"joints_lost: no valid joint_states for {self._silent(JOINTS):.1f} s"
        waited = self._silent(OBSERVATION)
        if waited > limits.parts_s and missing:
            tf = all(" tf (" in part for part in missing)
            return f"{'tf' if tf else 'camera'}_lost: {waited:.1f} s without {', '.join(missing)}"
        if waited > limits.parts_s and awaits_memory:
            return f"memory_lost: {waited:.1f} s without memory/context"
        if self._silent(SAFETY) > limits.safety_s:
            return f"safety_lost: nothing was executed for {self._silent(SAFETY):.1f} s"
        return ""

    def _silent(self, part: str) -> float:
        return self._clock() - self._heard[part]
