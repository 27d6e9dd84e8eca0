"""What the nodes reported of themselves, newest only: for the goal and the tabs Policy, Learning, Gate and Nodes."""

from __future__ import annotations

from collections.abc import Mapping

from engram.runtime.policy_notes import CORRECTED_BY, JUDGED, MISTAKEN, POLICIES, POLICY_DRIVES, REMEMBERED
from engram.viewer.values import NodeState, PolicyState

MOST_NODES = 64
"""Nodes that are shown; beyond it the one goes that has been silent for longest."""


OF_POLICY = (POLICY_DRIVES, "policy version", REMEMBERED, MISTAKEN, CORRECTED_BY)


class Reports:
    """Keeps the newest diagnostics of every node; one that fell silent for ``stale_after_s`` is shown as stale.

    One thread may take in what another reads.
    """

    def __init__(self, stale_after_s: float) -> None:
        self.stale_after_s = stale_after_s
        self._newest: dict[str, tuple[float, NodeState]] = {}  # name -> when it reported [s], what

    def take(self, state: NodeState, now_s: float) -> None:
        """Take in one report."""
        newest = {name: one for name, one in self._newest.items() if name != state.name} | {state.name: (now_s, state)}
        if len(newest) > MOST_NODES:
            del newest[next(iter(newest))]
        self._newest = newest  # another thread may be reading the one before

    def states(self, now_s: float) -> list[NodeState]:
        """Return the condition of every node that ever reported, by name."""
        return [self._aged(state, now_s - heard_s) for _, (heard_s, state) in sorted(self._newest.items())]

    def policy(self) -> PolicyState:
        """Return what drives, by the policy node's report."""
        values = self._of_policy()
        names = tuple(filter(None, values.get(POLICIES, "").split(", ")))
        drives, version, remembered, mistaken, corrected_by = (values.get(key, "") for key in OF_POLICY)
        return PolicyState(drives, version, remembered, names, mistaken, corrected_by)

    def judged(self) -> str:
        """Return the word on the running goal that counts for the policy node; empty: nobody has judged it."""
        return self._of_policy().get(JUDGED, "")

    def of(self, name: str, now_s: float) -> NodeState | None:
        """Return the report of one node; None: it never reported."""
        heard_s, state = self._newest.get(name, (now_s, None))
        return self._aged(state, now_s - heard_s) if state is not None else None

    def _of_policy(self) -> Mapping[str, str]:
        reported = self._newest.get("policy_node")
        return reported[1].values if reported is not None else {}

    def _aged(self, state: NodeState, silent_s: float) -> NodeState:
        if silent_s <= self.stale_after_s:
            return state
        return NodeState(state.name, "stale", f"silent for {silent_s:.0f} s; before: {state.message}", state.values)
