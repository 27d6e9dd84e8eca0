"""Weights that arrive at a node: from its learner alone, and tried again where the disk refuses them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from engram.learning.weights import receiver
from engram.learning.weights.manifest import make_manifest
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.weights_inbox import WeightsInbox
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram_interfaces.msg import PolicyManifest, WeightChunk
from tests.nodes.participants import Graph
from tests.ros.policies import LINEAGE, OneWeight

pytestmark = [pytest.mark.ros, pytest.mark.timeout(600)]
LEARNER = "writers:=[policy/manifest=learner_node, policy/weights=learner_node]"


class Receiving(EngramNode):
    """Takes weights as policy_node does."""

    config_class = PolicyNodeConfig
    folder: Path

    def start(self) -> None:
        self.offered: list[str] = []
        runner = SimpleNamespace(policy=OneWeight(), offer_weights=lambda _, version, __: self.offered.append(version))
        self.inbox = WeightsInbox(self, self.folder, runner)


class Learner:
    """Announces weights in the name of a node ``name``."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.manifests = graph.writer(name, PolicyManifest, "policy/manifest", qos.MANIFEST)
        self.node = graph.nodes[-1]
        self.chunks = self.node.create_publisher(WeightChunk, "policy/weights", qos.WEIGHTS)
        graph.until(self.chunks.get_subscription_count)

    def announce(self, version: str, value: float, stamp_ns: int = 1, lost: int = 0) -> None:
        data = save({"count": np.full(4, value, np.float32)})
        manifest = make_manifest(data, version, parent="v0", stage="approved", lineage=LINEAGE)
        self.manifests.publish(messages.manifest_to_msg(manifest, stamp_ns, 64, b""))
        for msg in list(messages.weight_chunks_to_msgs(version, data, 64))[lost:]:
            self.chunks.publish(msg)


def test_weights_come_from_the_learner_alone(graph: Graph, tmp_path: Path) -> None:
    Receiving.folder = tmp_path
    node = graph.run(lambda: Receiving("policy_node"), "accept:=any", LEARNER)
    Learner(graph, "stranger").announce("foreign", 3.0)
    learner = Learner(graph, "learner_node")
    learner.announce("v1", 1.0)
    graph.until(lambda: node.offered)
    refused = [f"refused from other writers: policy/{topic}" for topic in ("manifest", "weights")]
    graph.until(lambda: all(node.health.counts[name] for name in refused))
    assert node.offered == ["v1"]


def test_a_manifest_counts_whatever_the_learner_s_clock_says(graph: Graph, tmp_path: Path) -> None:
    """It comes once: refused for its stamp, it would not come again when the clocks agree."""
    Receiving.folder = tmp_path
    node = graph.run(lambda: Receiving("policy_node"), "accept:=any", LEARNER)
    Learner(graph, "learner_node").announce("v1", 1.0, time.time_ns() + 60 * 10**9)
    graph.until(lambda: node.offered == ["v1"])


def test_weights_that_the_disk_refused_are_tried_again_while_nothing_more_arrives(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Receiving.folder = tmp_path
    node = graph.run(lambda: Receiving("policy_node"), "accept:=any", LEARNER)
    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        Learner(graph, "learner_node").announce("v1", 1.0)
        graph.until(lambda: "no space left" in graph.said())
        assert not node.offered
    graph.until(lambda: node.offered == ["v1"])


def test_slices_that_do_not_come_are_a_problem_until_they_are_sent_again(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "STALLED_S", 0.1)
    Receiving.folder = tmp_path
    node = graph.run(lambda: Receiving("policy_node"), "accept:=any", LEARNER)
    learner = Learner(graph, "learner_node")
    learner.announce("v1", 1.0, lost=1)
    graph.until(lambda: "weights: weights 'v1': 1 of 2 slices are missing; announced" in graph.said())
    learner.announce("v1", 1.0)
    graph.until(lambda: node.offered == ["v1"])
