"""Tells a running learner which weights shall drive."""

from __future__ import annotations

from rclpy.client import Client

from engram.nodes.outsider import Outsider
from engram_interfaces.srv import PromotePolicy, RollbackPolicy


class LearnerClient(Outsider):
    """Asks the learner of a namespace."""

    def __init__(self, namespace: str = "", domain: int | None = None) -> None:
        super().__init__("engram_demo", namespace, domain)
        self._promote: Client = self.node.create_client(PromotePolicy, "policy/promote")
        self._rollback: Client = self.node.create_client(RollbackPolicy, "policy/rollback")
        self._will_greet(["learner_node"])

    def promote(self, version: str, reason: str, timeout_s: float) -> tuple[bool, str]:
        """Ask to let ``version`` ("" = the newest candidate) drive; return whether it does, and what was said."""
        self.wait_for(self._promote.service_is_ready, timeout_s, "service policy/promote")
        self._greet("learner_node", timeout_s)
        request = PromotePolicy.Request(version=version, reason=reason)
        answer = self._answer(self._promote.call_async(request), timeout_s, f"policy/promote {version!r}")
        return answer.accepted, answer.reason

    def roll_back(self, version: str, reason: str, timeout_s: float) -> tuple[bool, str]:
        """Ask to go back to ``version`` ("" = the one before); return whether it was done, and what was said."""
        self.wait_for(self._rollback.service_is_ready, timeout_s, "service policy/rollback")
        self._greet("learner_node", timeout_s)
        request = RollbackPolicy.Request(version=version, reason=reason)
        answer = self._answer(self._rollback.call_async(request), timeout_s, f"policy/rollback {version!r}")
        return answer.accepted, answer.reason
