"""What the learner node answers where a disk refuses something, and what the gate node makes of it."""

import errno
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from engram.core.errors import StoreError, WeightsError
from engram.learning.weights.manifest import make_manifest
from engram.learning.weights.slices import FILE_SLICES
from engram.nodes import qos
from engram.nodes.gate_node import GateNode
from engram.nodes.learner_node import LearnerNode
from engram.runtime.health import Health
from engram.runtime.promotions import AGAIN_S, NotYetError, Promotions
from engram_interfaces.srv import PromotePolicy, RollbackPolicy

pytestmark = pytest.mark.ros
FULL = OSError(errno.ENOSPC, "No space left on device")


class Session:
    """Answers as it is told to."""

    driving, unannounced = "v1", ""

    def __init__(self, error=None):
        self.error = error

    def promote(self, version, reason):
        if self.error is not None:
            raise self.error
        return f"{version} drives now"

    def roll_back(self, version, reason):
        if self.error is not None:
            raise self.error
        return "v0"


class Damaged(Session):
    @property
    def driving(self):
        raise self.error


def promoted(session):
    node = SimpleNamespace(session=session)
    return LearnerNode._on_promote(node, PromotePolicy.Request(version="v2"), PromotePolicy.Response())


@pytest.mark.parametrize(
    ("error", "asks_again", "reason"),
    [
        (None, False, "v2 drives now"),
        (WeightsError("v2: rejected"), False, "v2: rejected"),
        (NotYetError("v2 has to wait: v1 is tried first"), True, "ask again: v2 has to wait: v1 is tried first"),
        (FULL, True, "ask again: [Errno 28] No space left on device"),
        (StoreError("versions.sqlite: disk is full"), True, "ask again: versions.sqlite: disk is full"),
    ],
)
def test_the_gate_asks_again_where_only_the_learner_s_disk_or_a_canary_is_in_the_way(error, asks_again, reason):
    answer = promoted(Session(error))
    assert (answer.accepted, answer.reason) == (error is None, reason)
    now = [0.0]
    future = SimpleNamespace(result=lambda: answer)
    gate = SimpleNamespace(asked=future, promotions=Promotions(lambda: now[0]), health=Health())
    gate.get_logger = lambda: SimpleNamespace(info=lambda _: None)
    gate.promotions.add("v2")
    gate.promotions.next()
    GateNode._on_promoted(gate, future)
    now[0] += AGAIN_S
    assert gate.promotions.next() == ("v2" if asks_again else "")
    assert (reason in gate.health.condition("active").message) == (error is not None)


def test_a_file_of_any_size_goes_out_in_as_many_slices_as_are_latched_and_the_same_when_it_is_sent_again():
    sent = {"manifests": [], "chunks": []}
    node = SimpleNamespace(
        config=SimpleNamespace(chunk_size=1024),
        get_clock=lambda: SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=1)),
        get_logger=lambda: SimpleNamespace(info=lambda _: None),
        send=lambda *what: LearnerNode.send(node, *what),
        **{name: SimpleNamespace(publish=made.append) for name, made in sent.items()},
    )
    data = save({"w": np.ones(300_000, np.float32)})
    manifest = make_manifest(data, "v1", stage="approved")
    LearnerNode.announce(node, data, manifest, b"")
    (told,), first = sent["manifests"], list(sent["chunks"])
    assert len(first) <= FILE_SLICES <= qos.WEIGHTS.depth // 2
    assert b"".join(bytes(one.data) for one in first) == data and len(first[0].data) == told.chunk_size > 1024
    LearnerNode.send(node, data, manifest)
    assert sent["chunks"] == first * 2 and len(sent["manifests"]) == 1


def rolled_back(session):
    node = SimpleNamespace(session=session)
    return LearnerNode._on_rollback(node, RollbackPolicy.Request(), RollbackPolicy.Response())


def test_a_rollback_that_fails_says_why_and_one_that_waits_for_the_disk_says_so():
    for error in (FULL, StoreError("disk is full")):
        answer = rolled_back(Session(error))
        assert (answer.accepted, answer.reason, answer.version) == (False, str(error), "v1")
    session = Session()
    session.unannounced = "; not announced yet"
    answer = rolled_back(session)
    assert (answer.accepted, answer.reason, answer.version) == (True, "v0 drives again; not announced yet", "v0")
    response = RollbackPolicy.Response()
    with pytest.raises(StoreError):
        LearnerNode._on_rollback(
            SimpleNamespace(session=Damaged(StoreError("damaged"))), RollbackPolicy.Request(), response
        )
    assert response.reason == "damaged"
