"""The tabletop as a robot's surroundings: nothing ends an episode there, and nobody says whether it went well."""

from __future__ import annotations

from dataclasses import replace

from engram.core.types import OracleOutcome
from engram.sim.world import MujocoWorld


class UnjudgedWorkcell(MujocoWorld):
    """A tabletop whose simulator keeps its verdict to itself: time goes on, whatever happens.

    ``sim_node`` plays a robot's hardware with it (:mod:`engram.benchmarks.twin`). The reward is left as it is, for
    those who score.
    """

    def oracle_outcome(self) -> OracleOutcome:
        """Return the outcome of an episode that is never over."""
        return replace(super().oracle_outcome(), success=False, truncated=False, failed=False)
