"""Experience in, better weights out. Acknowledges after its own commit, never before.

One worker owns the store, another trains. A candidate is announced with its manifest; with ``promote: auto``
(simulation) it drives at once, otherwise when ``policy/promote`` says so. Either way no gate has tried it out: what is
checked is that its names and shapes are those of the network and its values finite. ``policy/rollback`` goes back.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError, WeightsError
from engram.core.types import PolicyManifest, Transition
from engram.learning.experience.database import set_aside
from engram.learning.experience.store import SqliteExperienceStore
from engram.learning.learner import Learner, LearnerConfig
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import compare_specs, make_manifest, sign, tensor_specs
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode, NodeConfig
from engram.nodes.params import param
from engram.nodes.process import run
from engram.runtime.factories import make_trainer
from engram_interfaces.msg import Experience, ExperienceAck, WeightChunk
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.srv import PromotePolicy, RollbackPolicy


@dataclass(frozen=True)
class LearnerNodeConfig(NodeConfig):
    """Parameters of the learner node."""

    niceness: int = param(10, 0, 19)
    """No command waits for it, so on a busy machine it stands back."""
    policy: str = "base"
    """Checkpoint to start from, or package.module:factory of a Trainer of your own."""
    folder: str = "~/.local/share/engram/{robot_id}/learner"
    """Folder for experience, training state and weights; "{robot_id}" is filled in."""
    promote: str = param("manual", choices=("auto", "manual"))
    """Who lets a candidate drive: this node at once (simulation; names, shapes and finite values are checked, but
    no gate tries it out first), or policy/promote."""
    commit_period_s: float = param(0.5, 0.05, 60.0)
    """Time between two commits of received experience [s]; each is acknowledged."""
    save_every: int = param(50, 1, 1000000)
    """Updates between two saved training states."""
    chunk_size: int = param(65536, 1024, 1048576)
    """Size of the slices in which weights travel [bytes]."""
    signing_key: str = ""
    """PEM file with the Ed25519 private key that signs manifests; empty: they are not signed."""
    nice: int = param(10, 0, 19)
    """How far this process steps back for the others (Unix nice)."""


class LearnerNode(EngramNode):
    """Stores experience and trains on it."""

    config_class = LearnerNodeConfig
    sections = {"learner": LearnerConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("learner_node")

    def setup(self) -> None:
        """Open the store, load the policy, go on from the saved training state."""
        os.nice(self.config.nice)
        folder = Path(self.config.folder.replace("{robot_id}", self.config.robot_id)).expanduser()
        self.key = _private_key(self.config.signing_key) if self.config.signing_key else None
        trainer, version, chunk_steps = make_trainer(self.config.policy)
        settings: LearnerConfig = self.section["learner"]
        if chunk_steps:
            settings = dataclasses.replace(
                settings, replay=dataclasses.replace(settings.replay, chunk_size=chunk_steps)
            )
        self.store = SqliteExperienceStore(folder / "experience")
        try:
            self._resume(folder, trainer, version, settings)
        except (UnknownNameError, WeightsError) as error:
            aside = set_aside(folder, ("training", "weights"))
            self.get_logger().error(
                f"{error}; training and weights of {folder} are set aside in {aside.name}, "
                f"learning begins anew from {version} with the experience that is there"
            )
            self.health.note("set aside", f"{aside}: {error}")
            self._resume(folder, trainer, version, settings)
        self.stored = self.store.size()
        self.saved = self.learner.metrics["updates"]
        self.acks = self.create_publisher(ExperienceAck, "experience/ack", qos.EXPERIENCE)
        self.manifests = self.create_publisher(PolicyManifestMsg, "policy/manifest", qos.LATCHED)
        self.chunks = self.create_publisher(WeightChunk, "policy/weights", qos.WEIGHTS)

    def _resume(self, folder: Path, trainer: Any, version: str, settings: LearnerConfig) -> None:
        """Go on with what ``folder`` holds.

        Raises:
            WeightsError: it is damaged or does not fit the network of ``trainer``, which is then unchanged.
            UnknownNameError: the weights that drove are gone.
        """
        self.library = WeightsLibrary(folder / "weights")
        if self.library.current:
            data, _ = self.library.get(self.library.current)
            what = f"{folder / 'weights'}: {self.library.current}"
            compare_specs(tensor_specs(data), tensor_specs(trainer.weights()), what)
        self.learner = Learner(self.store, trainer, folder / "training", self.library.current or version, settings)
        if not self.library.current:
            self._keep_first(trainer.weights(), version)

    def start(self) -> None:
        """Take in experience, and train whenever there is something to learn."""
        self.received: list[Transition] = []
        self.keeping = self.worker("store", lambda job: job(), capacity=4096)
        self.training = self.worker("training", lambda job: job(), capacity=1)
        self.subscribe(Experience, "experience", self._on_experience, qos.EXPERIENCE)
        self.serve(PromotePolicy, "policy/promote", self._on_promote)
        self.serve(RollbackPolicy, "policy/rollback", self._on_rollback)
        self.every(self.config.commit_period_s, lambda: self.keeping.put(self._commit), "commit")
        self.every(0.2, self._keep_training, "training")
        self.busy = False
        if len(self.library.deployed) > 1:  # a robot that starts now shall drive what drove before
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
        transition = messages.transition_from_msg(msg)
        self.health.count("experience")
        self.keeping.put(lambda: self.received.append(transition))

    def _commit(self) -> None:
        """Store what was received and acknowledge it; in the store's thread."""
        received, self.received = self.received, []
        if not received:
            return
        with self.health.timed("commit"):
            self.store.append(received)
            acknowledged = self.store.commit()
        self.stored = self.store.size()
        for robot_id, boot_id in dict.fromkeys((one.robot_id, one.boot_id) for one in received):
            sequence = acknowledged.get((robot_id, boot_id), 0)
            self.acks.publish(messages.ack_to_msg(robot_id, boot_id, sequence, self.stored))

    # -- training ------------------------------------------------------------------------------------------------

    def _keep_training(self) -> None:
        if not self.busy:
            self.busy = True
            self.training.put(self._train)

    def _train(self) -> None:
        """Look for new episodes and take updates for a moment; in the training thread."""
        try:
            self.learner.poll()
            for _ in range(10):
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

    def _new_candidate(self, data: bytes, manifest: PolicyManifest) -> None:
        self.library.add(data, manifest)
        self.health.count("candidates")
        self._announce(data, manifest)
        if self.config.promote == "auto":
            self._promote(manifest.version, "promote: auto; names, shapes and finite values checked, no gate has run")

    def _keep_first(self, data: bytes, version: str) -> None:
        """The weights that training began with can always be gone back to."""
        self.library.add(data, make_manifest(data, version, stage="approved"))
        self.library.approve(version, "shipped")

    # -- weights -------------------------------------------------------------------------------------------------

    def _promote(self, version: str, reason: str) -> None:
        self._announce(*self.library.approve(version, reason))
        self.learner.promoted(version)

    def _announce(self, data: bytes, manifest: PolicyManifest) -> None:
        signature = sign(manifest, self.key) if self.key is not None else b""
        now_ns = self.get_clock().now().nanoseconds
        self.manifests.publish(messages.manifest_to_msg(manifest, now_ns, self.config.chunk_size, signature))
        for msg in messages.weight_chunks_to_msgs(manifest.version, data, self.config.chunk_size):
            self.chunks.publish(msg)
        self.get_logger().info(f"announced weights {manifest.version} ({manifest.stage}, {manifest.size} bytes)")

    def _on_promote(self, request: PromotePolicy.Request, response: PromotePolicy.Response) -> Any:
        try:
            self._promote(request.version, request.reason or "policy/promote")
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
        """Show what was learnt."""
        if self.state == "active":
            for name, value in self.learner.metrics.items():
                self.health.note(f"learner {name}", f"{value:.4g}" if isinstance(value, float) else str(value))
            self.health.note("stored transitions", str(self.stored))
            self.health.note("driving version", self.library.current)


def _private_key(path: str) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(Path(path).expanduser().read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"signing_key {path!r}: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError(f"signing_key {path!r}: a {type(key).__name__}, expected an Ed25519 private key")
    return key


def main() -> NoReturn:
    """Run the node."""
    run(LearnerNode)


if __name__ == "__main__":
    main()
