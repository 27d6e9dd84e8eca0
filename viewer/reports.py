"""What the nodes reported of themselves, newest only: for the goal and the tabs Policy, Learning, Gate and Nodes."""

from __future__ import annotations

from collections.abc import Mapping

from engram.runtime.policy_notes import CORRECTED_BY, JUDGED, MISTAKEN, POLICIES, POLICY_DRIVES, REMEMBERED
from engram.viewer.values import NodeState, PolicyState

MOST_NODES = 64
"""Nodes that are shown; beyond it the one goes that has been silent for longest."""


OF_POLICY = (POLICY_DRIVES, "policy version", REMEMBERED, MISTAKEN, CORRECTED_BY)


class Reports:
    """Keeps the newest diagnostics of every node; one that fell silent for ``stale_after_s`` is shown as stale."""

    def __init__(self, stale_after_s: float) -> None:
        self.stale_after_s = stale_after_s
        self._newest: dict[str, tuple[float, NodeState]] = {}  # name -> when it reported [s], what

    def take(self, state: NodeState, now_s: float) -> None:
        """Take in one report."""
        self._newest.pop(state.name, None)
        self._newest[state.name] = (now_s, state)
        if len(self._newest) > MOST_NODES:
            del self._newest[next(iter(self._newest))]

    def states(self, now_s: float) -> list[NodeState]:
        """Return the condition of every node that ever reported, by name."""
        return [self._aged(name, now_s) for name in sorted(self._newest)]

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
        return self._aged(name, now_s) if name in self._newest else None

    def _of_policy(self) -> Mapping[str, str]:
        return self._newest["policy_node"][1].values if "policy_node" in self._newest else {}

    def _aged(self, name: str, now_s: float) -> NodeState:
        heard_s, state = self._newest[name]
        silent_s = now_s - heard_s
        if silent_s <= self.stale_after_s:
            return state
        return NodeState(name, "stale", f"silent for {silent_s:.0f} s; before: {state.message}", state.values)
