"""Receives experience, trains on it and announces better weights. It acknowledges experience after its own commit.

One worker thread owns the store, another one trains. A candidate is announced with its manifest. With ``promote: auto``
(simulation) it is deployed at once, until this node starts again; ``policy/promote`` approves it for good. No gate has
tried it out either way: what is checked is that names and shapes are those of the network and all values finite.
``policy/rollback`` goes back.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn

from engram.core.errors import EngramError
from engram.core.types import PolicyManifest
from engram.learning.experience.receiver import ExperienceReceiver
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import LearnerConfig
from engram.learning.weights.announcements import announced
from engram.learning.weights.keys import load_private_key
from engram.learning.weights.manifest import sign
from engram.learning.workspace import open_workspace
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.process import run
from engram.runtime.factories import make_learnable
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram_interfaces.msg import Experience, ExperienceAck, WeightChunk
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.srv import PromotePolicy, RollbackPolicy

BURST = 10
"""Updates between two looks at the store."""


class LearnerNode(EngramNode):
    """Stores experience and trains on it."""

    config_class = LearnerNodeConfig
    sections = {"learner": LearnerConfig, "store": ExperienceStoreConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("learner_node")

    def setup(self) -> None:
        """Open the store, load the policy, go on from the saved training state."""
        folder = Path(self.config.folder.replace("{robot_id}", self.config.robot_id)).expanduser()
        signing_key = self.config.signing_key.replace("{robot_id}", self.config.robot_id)
        self.key = load_private_key(signing_key) if signing_key else None
        policy = make_learnable(self.config.policy)
        self.store = ExperienceStore(folder / "experience", self.section["store"])
        workspace = open_workspace(folder, self.store, policy, self.config.algorithm, self.section["learner"])
        self.learner, self.library = workspace.learner, workspace.library
        if workspace.moved_aside:
            self.get_logger().error(f"{workspace.moved_aside}; training begins anew from {policy.version}")
            self.health.note("moved aside", workspace.moved_aside)
        self.stored, self.missing = self.store.size(), self.store.missing()
        self.saved = self.learner.metrics["updates"]
        self.acks = self.create_publisher(ExperienceAck, "experience/ack", qos.EXPERIENCE)
        self.manifests = self.create_publisher(PolicyManifestMsg, "policy/manifest", qos.LATCHED)
        self.chunks = self.create_publisher(WeightChunk, "policy/weights", qos.WEIGHTS)

    def start(self) -> None:
        """Take in experience, and train whenever there is something to learn."""
        self.receiver = ExperienceReceiver(self.store)
        self.keeping = self.worker("store", lambda job: job(), capacity=4096)
        self.training = self.worker("training", lambda job: job(), capacity=1)
        self.subscribe(Experience, "experience", self._on_experience, qos.EXPERIENCE)
        self.serve(PromotePolicy, "policy/promote", self._on_promote)
        self.serve(RollbackPolicy, "policy/rollback", self._on_rollback)
        self.every(self.config.commit_period_s, lambda: self.keeping.put(self._commit), "commit")
        self.every(0.2, self._keep_training, "training")
        self.busy = False
        if len(self.library.deployed) > 1 or self.library.forgotten:
            # a robot that starts now shall drive what drove before; one that ran on leaves a forgotten candidate
            self._announce(*self.library.get(self.library.current))

    def stop(self) -> None:
        """Make everything durable."""
        self.training.stop(60.0)
        self.keeping.stop(30.0)
        self._commit()
        self.learner.save()

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()

    # -- experience ----------------------------------------------------------------------------------------------

    def _on_experience(self, msg: Experience) -> None:
        what = messages.experience_from_msg(msg)
        self.health.count("experience")
        self.keeping.put(lambda: self.receiver.take(what))

    def _commit(self) -> None:
        """Store what was received and acknowledge it; in the store's thread."""
        if not len(self.receiver):
            return
        with self.health.timed("commit"):
            received = self.receiver.commit()
        for name, reasons in (("refused", received.refused), ("taken", received.taken)):
            if reasons:
                self.health.count(f"experience {name}", len(reasons))
                self.health.problem(f"experience {name}", reasons[0])
        self.stored, self.missing = self.store.size(), self.store.missing()
        for one in received.receipts:
            self.acks.publish(messages.ack_to_msg(one.robot_id, one.boot_id, one.sequence, self.stored))

    # -- training ------------------------------------------------------------------------------------------------

    def _keep_training(self) -> None:
        if not self.busy:
            self.busy = True
            self.training.put(self._train)

    def _train(self) -> None:
        """Look for new episodes and take a few updates; in the training thread."""
        try:
            self.learner.poll()
            for _ in range(BURST):
                if self.state != "active":
                    break
                with self.health.timed("update"):
                    if self.learner.step() is None:
                        break
                self.health.count("updates")
            candidate = self.learner.candidate()
            if candidate is not None:
                self._new_candidate(*candidate)
            updates = self.learner.metrics["updates"]
            if updates - self.saved >= self.config.save_every:
                self.learner.save()
                self.saved = updates
        finally:
            self.busy = False

    # -- weights -------------------------------------------------------------------------------------------------

    def _new_candidate(self, data: bytes, manifest: PolicyManifest) -> None:
        self.library.add(data, manifest)
        self.health.count("candidates")
        self._announce(data, manifest)
        if self.config.promote == "auto":  # it stays a candidate: a robot that takes only approved weights refuses it
            self.library.deploy(manifest.version)
            self.learner.promoted(manifest.version)

    def _announce(self, data: bytes, manifest: PolicyManifest) -> None:
        robots = tuple(filter(None, self.config.weights_for)) or (self.config.robot_id,)
        manifest = announced(manifest, robots, self.library.announcements.next(time.time_ns()))
        signature = sign(manifest, self.key) if self.key is not None else b""
        now_ns = self.get_clock().now().nanoseconds
        self.manifests.publish(messages.manifest_to_msg(manifest, now_ns, self.config.chunk_size, signature))
        for msg in messages.weight_chunks_to_msgs(manifest.version, data, self.config.chunk_size):
            self.chunks.publish(msg)
        self.get_logger().info(f"announced weights {manifest.version} ({manifest.stage}, {manifest.size} bytes)")

    def _on_promote(self, request: PromotePolicy.Request, response: PromotePolicy.Response) -> Any:
        try:
            self._announce(*self.library.approve(request.version, request.reason or "policy/promote"))
            self.learner.promoted(request.version)
            response.accepted, response.reason = True, f"{request.version} drives now; no gate has judged it"
        except EngramError as error:
            response.reason = str(error)
        return response

    def _on_rollback(self, request: RollbackPolicy.Request, response: RollbackPolicy.Response) -> Any:
        try:
            data, manifest = self.library.roll_back(request.version, request.reason or "policy/rollback")
            self._announce(data, manifest)
            self.learner.promoted(manifest.version)
            response.accepted, response.version = True, manifest.version
        except EngramError as error:
            response.reason, response.version = str(error), self.library.current
        return response

    def add_diagnostics(self) -> None:
        """Show what was learnt, and from what not."""
        if self.state == "active":
            for name, value in self.learner.metrics.items():
                self.health.note(f"learner {name}", f"{value:.4g}" if isinstance(value, float) else str(value))
            for reason, count in self.learner.passed_over.items():
                self.health.note(f"episodes not learnt from: {reason}", str(count))
            self.health.note("stored transitions", str(self.stored))
            self.health.note("transitions gone before they came", str(self.missing))
            self.health.note("lineage", str(self.learner.lineage))
            self.health.note("driving version", self.library.current)


def main() -> NoReturn:
    """Run the node."""
    run(LearnerNode)


if __name__ == "__main__":
    main()
