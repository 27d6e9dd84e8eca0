"""Weights that arrive at a node go through its worker, also those that the disk has refused at first."""

from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from engram.learning.weights.manifest import make_manifest
from engram.nodes import messages
from engram.nodes.weights_inbox import WeightsInbox
from engram.runtime.health import Health
from tests.ros.policies import LINEAGE, OneWeight

pytestmark = pytest.mark.ros


class Node:
    """A node whose worker works at once, and whose timers are called by the test."""

    def __init__(self):
        self.health, self.errors, self.timers = Health(), [], []
        self.config = SimpleNamespace(trusted_key="", robot_id="r", accept="any", episodes="status", weights_max_mb=1)

    def worker(self, name, handle, capacity):
        def put(job, *, keep=False):
            try:
                handle(job)
            except OSError as error:
                self.errors.append(error)

        return SimpleNamespace(put=put, put_once=put)

    def subscribe(self, *_):
        """Take no messages but those of the test."""

    def every(self, period_s, callback, name):
        self.timers.append(callback)


def test_weights_that_the_disk_refused_are_tried_again_while_nothing_more_arrives(tmp_path, monkeypatch):
    node, offered = Node(), []
    runner = SimpleNamespace(policy=OneWeight(), offer_weights=lambda *what: offered.append(what))
    inbox = WeightsInbox(node, tmp_path, runner)
    data = save({"count": np.ones(4, np.float32)})
    manifest = make_manifest(data, "v1", parent="v0", stage="approved", lineage=LINEAGE)
    with monkeypatch.context() as disk:
        disk.setattr(type(tmp_path), "write_bytes", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        inbox._on_manifest(messages.manifest_to_msg(manifest, 1, 64, b""))
        for msg in messages.weight_chunks_to_msgs("v1", data, 64):
            inbox._on_chunk(msg)
        for again in node.timers:
            again()
        assert [str(error) for error in node.errors] == ["no space left"] * 2 and not offered
    for _ in range(2):
        for again in node.timers:
            again()
    assert [version for _, version, _ in offered] == ["v1"] and len(node.errors) == 2
