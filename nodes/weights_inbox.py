"""Receives weights from the learner: a manifest announces them, slices bring them; verified, they go to the policy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from engram.learning.weights.keys import keys_for
from engram.learning.weights.receiver import WeightsReceiver
from engram.nodes import messages, qos
from engram.nodes.claims import subscribe_bound
from engram.runtime.policy_runner import PolicyRunner, check_lineage
from engram_interfaces.msg import PolicyManifest as PolicyManifestMsg
from engram_interfaces.msg import WeightChunk

if TYPE_CHECKING:
    from engram.nodes.base import EngramNode

QUEUED_MAX = 64 << 20
"""Slices that wait for the worker [bytes]; what comes beyond is dropped."""
AGAIN_S = 2.0
"""After so long it is tried again what the disk has refused, and said again what has not come [s]."""
OVERHEAD = 4096
"""What a slice counts beyond its data [bytes], so that a million empty ones are bounded, too."""


class WeightsInbox:
    """Hands what arrives to a :class:`WeightsReceiver` in a worker thread of ``node``; refusals become diagnostics.

    Raises:
        InvalidInputError: the node's parameters accept weights without knowing from whom.
    """

    def __init__(self, node: EngramNode, folder: Path, runner: PolicyRunner) -> None:
        config = node.config
        self._node, self._queued, self._lock = node, 0, threading.Lock()
        trusted = config.trusted_key.replace("{robot_id}", config.robot_id)
        keys = keys_for(config.accept, trusted, simulated=config.episodes == "status")
        if config.accept == "none":
            return
        self._receiver = WeightsReceiver(
            folder,
            config.accept,
            lambda lineage, version: check_lineage(runner.policy, lineage, version),
            runner.offer_weights,
            node.health.count,
            keys=keys,
            robot_id=config.robot_id,
            size_max=config.weights_max_mb << 20,
        )
        self._thread = node.worker("weights", lambda job: job(), capacity=64)  # manifests; slices are bounded by bytes
        subscribe_bound(node, PolicyManifestMsg, "policy/manifest", self._on_manifest, qos.MANIFEST, every=True)
        subscribe_bound(node, WeightChunk, "policy/weights", self._on_chunk, qos.WEIGHTS, every=True)
        node.every(AGAIN_S, self._go_on, "weights")

    def _go_on(self) -> None:
        if self._receiver.waits:
            self._thread.put_once(self._receiver.go_on)

    def _on_manifest(self, msg: PolicyManifestMsg) -> None:
        manifest = messages.manifest_from_msg(msg)
        self._thread.put(lambda: self._receiver.begin(manifest, bytes(msg.signature), msg.chunk_size))

    def _on_chunk(self, msg: WeightChunk) -> None:
        size = len(msg.data) + OVERHEAD
        with self._lock:
            if self._queued + size > QUEUED_MAX:
                self._node.health.count("weights slices dropped: queue")
                return
            self._queued += size
        self._thread.put(lambda: self._take(msg, size), keep=True)

    def _take(self, msg: WeightChunk, size: int) -> None:
        with self._lock:
            self._queued -= size
        self._receiver.take(msg.version, msg.index, bytes(msg.data))
