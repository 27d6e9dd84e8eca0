"""Receives experience, trains on it and announces better weights. It acknowledges experience after its own commit.

A candidate is announced with its manifest. ``policy/promote`` approves it for good; with ``promote: gated`` only what
the gate promoted (``engram validate --learner``). With ``promote: auto`` it drives at once, until this node starts
again. ``policy/rollback`` goes back. This node does so, too, once the robots' episodes show that what drives is worse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from engram.core.errors import CannotTrainError, EngramError
from engram.core.registry import make_robot
from engram.core.types import PolicyManifest
from engram.learning.experience.receiver import Receipt
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner_config import LearnerConfig
from engram.learning.weights.keys import load_private_key
from engram.learning.weights.slices import slice_size
from engram.learning.workspace import EXPERIENCE, open_workspace
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import by_robot
from engram.nodes.process import run
from engram.runtime.experience_session import ExperienceSession
from engram.runtime.factories import make_learnable
from engram.runtime.learner_session import LearnerSession
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram.runtime.promotions import answer
from engram.validation.of_learner import GATE
from engram.validation.validate import KeptVerdicts, proof_in
from engram_interfaces.msg import Experience, ExperienceAck, WeightChunk
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.srv import PromotePolicy, RollbackPolicy


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
        key = load_private_key(signing_key) if signing_key else None
        policy = make_learnable(self.config.policy, make_robot(self.config.robot))
        self.store = ExperienceStore(folder / EXPERIENCE, self.section["store"])
        try:
            workspace = open_workspace(folder, self.store, policy, self.config.algorithm, self.section["learner"])
        except CannotTrainError as error:
            self.get_logger().warning(f"experience is kept, and nothing is trained: {error}")
            self.session: ExperienceSession = ExperienceSession(self.store, self, self.health, str(error))
        else:
            if workspace.moved_aside:
                self.get_logger().error(workspace.moved_aside)
            proof, verdicts = proof_in(folder / GATE, self.config.policy), KeptVerdicts(folder / GATE)
            told = self.config, self.store, workspace, key, self, self.health
            self.session = LearnerSession(*told, proof=proof, verdicts=verdicts)
        self.acks = self.create_publisher(ExperienceAck, "experience/ack", qos.EXPERIENCE)
        self.candidates = self.create_publisher(PolicyManifestMsg, "policy/candidate", qos.LATCHED)
        self.manifests = self.create_publisher(PolicyManifestMsg, "policy/manifest", qos.MANIFEST)
        self.chunks = self.create_publisher(WeightChunk, "policy/weights", qos.WEIGHTS)

    def start(self) -> None:
        """Take in experience, and train whenever there is something to learn."""
        self.keeping = self.worker("store", lambda job: job(), capacity=4096)
        self.training = self.worker("training", lambda job: job(), capacity=1)
        self.subscribe(Experience, "experience", by_robot(self, "experience", self._on_experience), qos.EXPERIENCE)
        self.serve(PromotePolicy, "policy/promote", self._on_promote)
        self.serve(RollbackPolicy, "policy/rollback", self._on_rollback)
        self.every(self.config.commit_period_s, lambda: self.keeping.put(self.session.commit), "commit")
        self.every(0.2, self._keep_training, "training")
        self.busy = False
        self.session.begin()

    def stop(self) -> None:
        """Make everything durable."""
        self.training.stop(60.0)
        self.keeping.stop(30.0)
        self.session.end()

    def teardown(self) -> None:
        """Let go of experience and weights."""
        self.store.close()
        self.session.close()

    # -- inputs --------------------------------------------------------------------------------------------------

    def _on_experience(self, msg: Experience) -> None:
        what = messages.experience_from_msg(msg)
        if size := self.session.reserve(what):
            self.keeping.put(lambda: self.session.take(what, size), keep=True)

    def _keep_training(self) -> None:
        if not self.busy:
            self.busy = True
            self.training.put(self._train)

    def _train(self) -> None:
        """Train for a while; in the training thread."""
        try:
            self.session.train(lambda: self.state == "active")
        finally:
            self.busy = False

    def _on_promote(self, request: PromotePolicy.Request, response: PromotePolicy.Response) -> Any:
        told = request.version, request.reason or "policy/promote"
        response.accepted, response.reason = answer(lambda: self.session.promote(*told))
        return response

    def _on_rollback(self, request: RollbackPolicy.Request, response: RollbackPolicy.Response) -> Any:
        try:
            response.version = self.session.roll_back(request.version, request.reason or "policy/rollback")
            response.accepted, response.reason = True, f"{response.version} drives again{self.session.unannounced}"
        except (OSError, EngramError) as error:
            response.reason = str(error)
            response.version = self.session.driving  # may fail, too: then the reason is said all the same
        return response

    # -- outputs -------------------------------------------------------------------------------------------------

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell a robot what is on disk."""
        self.acks.publish(messages.ack_to_msg(receipt.robot_id, receipt.boot_id, receipt.sequence))

    def announce(self, data: bytes, manifest: PolicyManifest, signature: bytes) -> None:
        """Publish weights in slices, their manifest first; of a candidate that is kept back, the manifest alone."""
        size = slice_size(manifest, self.config.chunk_size) if data else self.config.chunk_size
        told = messages.manifest_to_msg(manifest, self.get_clock().now().nanoseconds, size, signature)
        if manifest.stage in ("candidate", "rejected"):
            self.candidates.publish(told)
        if data:  # else what drives stays latched, for a policy node that starts later
            self.manifests.publish(told)
            self.send(data, manifest)
        self.get_logger().info(f"announced weights {manifest.version} ({manifest.stage}, {manifest.size} bytes)")

    def send(self, data: bytes, manifest: PolicyManifest) -> None:
        """Publish the slices of weights, whose manifest is latched."""
        for msg in messages.weight_chunks_to_msgs(manifest.version, data, slice_size(manifest, self.config.chunk_size)):
            self.chunks.publish(msg)

    def add_diagnostics(self) -> None:
        """Show what was learnt, and from what not."""
        if self.state == "active":
            self.session.show()


def main() -> NoReturn:
    """Run the node."""
    run(LearnerNode, ahead=("engram.policies", "torch._dynamo"))  # a network, and what torch's first optimiser imports


if __name__ == "__main__":
    main()
