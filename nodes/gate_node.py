"""Judges the learner's candidates in simulation, unasked and at low priority, and asks to promote what it promotes.

It stands beside the learner, whose folder it reads and writes verdicts into. Of the candidates that come while one is
judged, only the newest is judged next. With ``practise`` the policy practises in the same simulation while nothing is
judged. Where robot or policy cannot be simulated, the diagnostics say so, and nothing is promoted.
"""

from __future__ import annotations

import json
from typing import NoReturn

from rclpy.client import Client
from rclpy.task import Future

from engram.core.errors import EngramError
from engram.learning.weights.gate_verdict import GateVerdict
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.process import run
from engram.runtime.parameters.gate import GateNodeConfig
from engram.runtime.promotions import Promotions
from engram.validation.gate import OPEN, PROMOTE
from engram.validation.standing import StandingGate, standing_gate
from engram.validation.validate import Progress
from engram_interfaces.msg import GateVerdict as GateVerdictMsg
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.srv import PromotePolicy

FAILED = "failed"


class GateNode(EngramNode):
    """Hears of candidates, tells verdicts."""

    config_class = GateNodeConfig

    def __init__(self) -> None:
        super().__init__("gate_node")
        self.standing: StandingGate | None = None
        self.cannot = ""  # why nothing can be judged

    def setup(self) -> None:
        """Find out whether the learner's candidates can be simulated."""
        self.verdicts = self.create_publisher(GateVerdictMsg, "policy/gate", qos.LATCHED)
        self.promotions = Promotions()
        self.asked: Future | None = None
        self.client: Client = self.create_client(PromotePolicy, "policy/promote")
        self.cannot = ""

    def start(self) -> None:
        """Judge from now on."""
        try:
            self.standing = standing_gate(self.config, self)
            self.standing.start()
        except EngramError as error:
            self.cannot = str(error)
            self.get_logger().warning(f"no candidate can be judged: {error}")
        subscribe_bound(self, PolicyManifestMsg, "policy/candidate", self._on_candidate, qos.LATCHED)
        subscribe_bound(self, PolicyManifestMsg, "policy/manifest", self._on_manifest, qos.MANIFEST, every=True)
        self.every(0.5, self._promote, "policy/promote")

    def stop(self) -> None:
        """End the validation that runs; it goes on where it was when the node starts again."""
        if self.standing is not None and not self.standing.stop():
            self.get_logger().warning("an episode was still running after a minute")
        self.standing = None

    def _on_candidate(self, msg: PolicyManifestMsg) -> None:
        if self.standing is not None and msg.stage == "candidate":
            self.standing.offer(msg.version)

    def _on_manifest(self, msg: PolicyManifestMsg) -> None:
        if msg.stage in ("canary", "approved"):
            self.promotions.drives(msg.version)

    def _promote(self) -> None:
        """Ask the learner for what was promoted, one after the other."""
        ready = self.client.service_is_ready()
        if self.asked is not None and self.promotions.is_lost(learner_there=ready):
            self.client.remove_pending_request(self.asked)
            self.asked = None
        if ready and (version := self.promotions.next()):
            self.asked = self.client.call_async(PromotePolicy.Request(version=version, reason="the gate node"))
            self.asked.add_done_callback(self._on_promoted)

    def _on_promoted(self, future: Future) -> None:
        if future is not self.asked:
            return
        self.asked, answer = None, future.result() or PromotePolicy.Response()
        self.promotions.answered(accepted=answer.accepted, reason=answer.reason)
        if answer.accepted:
            self.health.count("promoted")
            self.get_logger().info(answer.reason)
        else:  # meanwhile others may have been promoted
            self.health.problem("policy/promote", answer.reason or "no reason; the learner's diagnostics tell more")

    # -- what the gate's thread tells ----------------------------------------------------------------------------

    def progress(self, version: str, progress: Progress) -> None:
        """Tell how far the validation of ``version`` is."""
        self._tell(version, OPEN, progress.gate.reason, progress.gate.pairs)

    def judged(self, version: str, verdict: GateVerdict) -> None:
        """Tell the verdict, and have it promoted."""
        report = dict(verdict.report)
        self._tell(version, verdict.decision, verdict.reason, int(report["pairs"]), json.dumps(report))
        self.health.count(f"verdicts {verdict.decision}")
        self.get_logger().info(f"{version}: {verdict.decision}, {verdict.reason}")
        if verdict.decision == PROMOTE and self.config.promote:
            self.promotions.add(version)

    def found(self, what: str) -> None:
        """Tell what was found out of the robot's gap."""
        self.get_logger().info(what)
        self.health.note("robot", what)

    def practised(self, what: str) -> None:
        """Tell what was practised in simulation, or why nothing is."""
        self.get_logger().info(f"practice: {what}")
        self.health.note("practice", what)

    def passed_over(self, error: EngramError) -> None:
        """Tell what the learner was taught and cannot be tried."""
        self.report("taught", error)

    def failed(self, version: str, error: EngramError) -> None:
        """Tell why ``version`` could not be judged."""
        self.report("validation", error)
        self.health.count(f"verdicts {FAILED}")
        self._tell(version, FAILED, str(error), 0)

    def _tell(self, version: str, decision: str, reason: str, pairs: int, report: str = "") -> None:
        msg = GateVerdictMsg(candidate=version, decision=decision, reason=reason, pairs=pairs, report_json=report)
        msg.header = messages.header(self.get_clock().now().nanoseconds)
        self.verdicts.publish(msg)
        shown = reason if decision == OPEN else f"{decision}, {reason}"
        self.health.note("candidate", f"{version}: {shown}; {pairs} pairs")

    def add_diagnostics(self) -> None:
        """Show what is judged, or why nothing is."""
        self.health.note("judges", (self.cannot and f"nothing: {self.cannot}") or "every candidate")


def main() -> NoReturn:
    """Run the node."""
    run(GateNode)


if __name__ == "__main__":
    main()
