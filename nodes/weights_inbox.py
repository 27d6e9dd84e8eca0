"""Receives weights from the learner: a manifest announces them, slices bring them; verified, they go to the policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from engram.core.errors import WeightsError, unknown_name
from engram.core.types import PolicyManifest
from engram.learning.weights.manifest import check_signature, verify
from engram.learning.weights.slices import Assembler
from engram.nodes import messages, qos
from engram.runtime.parameters.policy import ACCEPT
from engram.runtime.policy_runner import PolicyRunner, check_lineage
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.msg import WeightChunk

if TYPE_CHECKING:
    from engram.nodes.base import EngramNode

EARLY = 1024
"""Slices kept that came before their manifest: the topics have no order between them."""


class WeightsInbox:
    """Assembles and verifies weight files in a worker thread of ``node``; refusals become diagnostics.

    Args:
        accept: "approved" (a robot), "any" (simulation: candidates too) or "none".
        runner: takes the verified files. Only weights of its policy's lineage are received at all.
        trusted_key: when given, manifests must be signed by its owner.
    """

    def __init__(
        self,
        node: EngramNode,
        folder: Path,
        accept: str,
        runner: PolicyRunner,
        trusted_key: Ed25519PublicKey | None = None,
    ) -> None:
        if accept not in ACCEPT:
            raise unknown_name("value of accept", accept, ACCEPT)
        self._node, self._folder, self._accept, self._runner = node, folder, accept, runner
        self._key = trusted_key
        self._assembler: Assembler | None = None
        self._early: list[tuple[str, int, bytes]] = []
        self._done = ""
        self._refused = ""  # version of another lineage, whose slices are not kept
        if accept == "none":
            return
        self._thread = node.worker("weights", lambda job: job(), capacity=8192)
        node.subscribe(PolicyManifestMsg, "policy/manifest", self._on_manifest, qos.LATCHED)
        node.subscribe(WeightChunk, "policy/weights", self._on_chunk, qos.WEIGHTS)

    def _on_manifest(self, msg: PolicyManifestMsg) -> None:
        manifest = messages.manifest_from_msg(msg)
        self._thread.put(lambda: self._begin(manifest, bytes(msg.signature), msg.chunk_size))

    def _on_chunk(self, msg: WeightChunk) -> None:
        self._thread.put(lambda: self._take(msg.version, msg.index, bytes(msg.data)))

    def _begin(self, manifest: PolicyManifest, signature: bytes, chunk_size: int) -> None:
        """Start to assemble a new version, if this robot takes it at all."""
        if manifest.version == self._done or (self._assembler and self._assembler.manifest == manifest):
            return
        self._assembler, self._refused = None, manifest.version
        check_lineage(self._runner.policy, manifest.lineage, manifest.version)
        self._refused = ""
        if self._accept == "approved" and manifest.stage != "approved":
            raise WeightsError(f"{manifest.version!r} is a {manifest.stage}: refused, only approved ones are taken")
        if manifest.stage in ("rejected", "rolled_back"):
            return
        if self._key is not None:
            check_signature(manifest, signature, self._key)
        self._assembler = Assembler(manifest, chunk_size)
        early, self._early = self._early, []
        for version, index, data in early:
            self._take(version, index, data)

    def _take(self, version: str, index: int, data: bytes) -> None:
        assembler = self._assembler
        if assembler is None or assembler.manifest.version != version:
            if version not in (self._done, self._refused):
                self._early = [*self._early[-EARLY:], (version, index, data)]
            return
        if assembler.add(index, data):
            self._assembler = None
            self._accept_file(assembler)

    def _accept_file(self, assembler: Assembler) -> None:
        manifest = assembler.manifest
        data = verify(assembler.data(), manifest)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{manifest.sha256}.safetensors"
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_bytes(data)
        partial.replace(path)
        for old in self._folder.glob("*.safetensors"):
            if old != path:
                old.unlink()
        self._done = manifest.version
        self._runner.offer_weights(path, manifest.version, manifest.lineage)
        self._node.health.count("weights received")  # who sees this count may rely on the offer
        self._node.get_logger().info(f"weights {manifest.version} received and verified")
