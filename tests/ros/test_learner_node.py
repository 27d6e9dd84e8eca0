"""Experience -> durable -> acknowledged -> weights, and the learner's restart, with the learner as a process."""

import os
import signal
import time

import numpy as np
import pytest

from engram.app import cli
from engram.core.types import ActionSource, Transition
from engram.learning.experience.spool import Spool
from engram.learning.weights.gate_verdict import GateVerdict, write_verdict
from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import verify
from engram.nodes import messages, qos
from engram.policies.checkpoint import export
from engram.policies.opening import open_policy
from engram.validation.gate import Gate
from engram.validation.trials import NOMINAL, environment_digest
from engram_interfaces.msg import Experience, ExperienceAck, PolicyManifest, WeightChunk
from engram_interfaces.srv import PromotePolicy, RollbackPolicy
from tests.policies.tiny import tiny_vla
from tests.ros.policies import LINEAGE, OTHER
from tests.ros.trainers import Counting

NICENESS = 3
RECORDED_NS = time.time_ns() + 3600 * 10**9
"""The clock was set back by an hour since: experience is a record, and none waits until its time comes again."""
OWN = ActionSource("eyes", LINEAGE.id)
pytestmark = [pytest.mark.ros, pytest.mark.timeout(900)]


def episode(number: int, steps: int, cameras=("front",), size=8, source=OWN) -> list[Transition]:
    rng = np.random.default_rng(number)
    return [
        Transition(
            "", "", 0, number, step, RECORDED_NS + step * 10**8, "reach", "go",
            {name: rng.integers(0, 255, (size, size, 3), dtype=np.uint8) for name in cameras},
            rng.random(15, dtype=np.float32),
            rng.random(7, dtype=np.float32), rng.random(7, dtype=np.float32), float(step == steps - 1), "oracle",
            step == steps - 1, False, step == steps - 1, "v0", "v0", (), source,
        )
        for step in range(steps)
    ]  # fmt: skip


def start(graph, tmp_path, promote, policy="tests.ros.policies:OneWeight", algorithm="tests.ros.trainers:Counting"):
    return graph.start(
        "learner_node",
        policy=policy,
        algorithm=algorithm,
        folder=str(tmp_path / "learner"),
        promote=promote,
        commit_period_s=0.1,
        learner__first_episodes=1,
        learner__imitate_own=True,
        learner__updates_per_episode=20,
        learner__candidate_updates=20,
        learner__replay__chunk_size=4,
        niceness=NICENESS,
    )


def assemble(manifest, chunks):
    """Return the verified weight file of ``manifest`` out of the slices heard, None while some are missing."""
    data = {c.index: bytes(c.data) for c in chunks if c.version == manifest.version}
    count = -(-manifest.size // manifest.chunk_size)
    if len(data) < count:
        return None
    return verify(b"".join(data[i] for i in range(count)), messages.manifest_from_msg(manifest))


class Robot:
    """Sends the six transitions of one episode, and hears what the learner says."""

    def __init__(self, graph, tmp_path, **how):
        self.graph = graph
        self.out = graph.node.create_publisher(Experience, "experience", qos.EXPERIENCE)
        self.acks = graph.listen(ExperienceAck, "experience/ack", qos.EXPERIENCE)
        self.candidates = graph.listen(PolicyManifest, "policy/candidate", qos.LATCHED)
        self.manifests = graph.listen(PolicyManifest, "policy/manifest", qos.MANIFEST)
        self.spool = Spool(tmp_path / "spool", "r")
        for transition in episode(1, 6, **how):
            self.spool.add(transition)
        self.spool.commit()

    def send(self):
        self.graph.wait(self.out.get_subscription_count, 180, "the learner listens")
        sent = list(self.spool.due(0.0, 100))
        gone = self.spool.gone()

        def tell():  # the learner stores once what comes twice, and acknowledges it again
            for what in gone:
                self.out.publish(messages.gone_to_msg(what))
            for transition in sent:
                self.out.publish(messages.transition_to_msg(transition))

        self.graph.wait_telling(tell, lambda: self.acks and self.acks[-1].sequence == 6, 120, "ack of 6", period_s=5.0)


def test_experience_is_acknowledged_once_durable_and_becomes_weights(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    acks, manifests, spool = robot.acks, robot.manifests, robot.spool
    chunks = graph.listen(WeightChunk, "policy/weights", qos.WEIGHTS)
    learner = start(graph, tmp_path, "manual")
    graph.active("learner_node")
    robot.send()
    assert (acks[-1].robot_id, acks[-1].boot_id) == ("r", spool.boot_id)
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, learner.child.pid) == min(19, mine + NICENESS)  # once, not twice
    candidate = graph.wait(lambda: robot.candidates, 180, "a candidate")[-1]
    assert not manifests  # it drives nobody yet

    request = PromotePolicy.Request(version=candidate.version, reason="test")
    assert graph.call(PromotePolicy, "policy/promote", request).accepted
    graph.wait(lambda: manifests and manifests[-1].stage == "approved", 180, "approval")
    assert messages.manifest_from_msg(manifests[-1]).lineage == LINEAGE
    assert graph.wait(lambda: assemble(manifests[-1], chunks), 180, "all slices")
    refused = graph.call(PromotePolicy, "policy/promote", PromotePolicy.Request(version="nonsense"))
    assert not refused.accepted
    assert "unknown weights version 'nonsense'" in refused.reason

    learner.end(signal.SIGKILL)  # it goes on with what it acknowledged and what drove
    graph.diagnostics.clear()
    manifests.clear()
    start(graph, tmp_path, "manual")
    graph.active("learner_node")
    assert graph.value("learner_node", "stored transitions") == "6"
    graph.wait(lambda: manifests and manifests[-1].version == candidate.version, 180, "what drove is announced")
    back = graph.call(RollbackPolicy, "policy/rollback", RollbackPolicy.Request())
    assert back.accepted
    assert back.version == "v0"


def test_behind_the_gate_a_candidate_drives_with_a_verdict_that_fits_and_not_without(graph, tmp_path, capsys):
    robot = Robot(graph, tmp_path)
    start(graph, tmp_path, "gated")
    graph.active("learner_node")
    robot.send()
    candidate = graph.wait(lambda: robot.candidates, 180, "a candidate")[-1]
    request = PromotePolicy.Request(version=candidate.version, reason="test")
    refused = graph.call(PromotePolicy, "policy/promote", request)
    assert not refused.accepted
    assert "the gate has not judged" in refused.reason

    folder = tmp_path / "learner"
    drives = WeightsLibrary(folder / "weights", read_only=True).get("v0")[1].sha256
    report = Gate(("reach",)).report() | {"on": NOMINAL, "worst_cases": {}}
    for environment, decision, told in (
        ("another", "promote", "the gate's verdict is void: environment another"),
        (environment_digest(), "not_shown", "did not promote"),
    ):
        found = GateVerdict(candidate.sha256, drives, environment, decision, "worse: reach", report)
        write_verdict(folder / "gate" / "verdicts", found)
        refused = graph.call(PromotePolicy, "policy/promote", request)
        assert not refused.accepted
        assert told in refused.reason
    assert not [m for m in robot.manifests if m.stage == "approved"]
    found = GateVerdict(candidate.sha256, drives, environment_digest(), "promote", "not worse by 0.1", report)
    write_verdict(folder / "gate" / "verdicts", found)
    domain = ["--domain", str(graph.domain)]
    assert cli.main(["promote", *domain]) == 0  # the newest candidate
    assert capsys.readouterr().out == f"{candidate.version} drives now; the gate: not worse by 0.1\n"
    graph.wait(lambda: robot.manifests and robot.manifests[-1].stage == "approved", 180, "approval")
    assert cli.main(["rollback", "--reason", "test", *domain]) == 0
    assert capsys.readouterr().out == "v0 drives again\n"
    assert cli.main(["promote", candidate.version, *domain]) == 1
    assert "rolled_back, because test" in capsys.readouterr().out
    went = graph.wait(lambda: graph.value("learner_node", "training went back"), 60, "a diagnostic")
    assert went == f"to v0, because of {candidate.version}: test"


def test_what_the_gate_rejects_is_marked_told_and_not_learnt_on_from(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    start(graph, tmp_path, "gated")
    graph.active("learner_node")
    robot.send()
    candidate = graph.wait(lambda: robot.candidates, 180, "a candidate")[-1]
    folder = tmp_path / "learner"
    drives = WeightsLibrary(folder / "weights", read_only=True).get("v0")[1].sha256
    report = Gate(("reach",)).report() | {"on": NOMINAL, "worst_cases": {}}
    found = GateVerdict(candidate.sha256, drives, environment_digest(), "reject", "worse: reach", report)
    write_verdict(folder / "gate" / "verdicts", found)
    graph.wait(lambda: robot.candidates[-1].stage == "rejected", 60, "the mark is told")
    assert robot.candidates[-1].version == candidate.version
    marked = WeightsLibrary(folder / "weights", read_only=True).manifest(candidate.version)
    assert (marked.stage, marked.metrics["because"]) == ("rejected", "the gate: reject, worse: reach")
    went = graph.wait(lambda: graph.value("learner_node", "training went back"), 60, "a diagnostic")
    assert went == f"to v0, because of {candidate.version}: the gate: reject, worse: reach"
    assert not robot.manifests


def test_a_policy_that_starts_late_hears_of_what_drives_whatever_candidates_came_since(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    start(graph, tmp_path, "manual")
    graph.active("learner_node")
    robot.send()
    first = graph.wait(lambda: robot.candidates, 180, "a candidate")[-1].version
    assert graph.call(PromotePolicy, "policy/promote", PromotePolicy.Request(version=first)).accepted
    for transition in episode(2, 6):
        robot.spool.add(transition)
    robot.spool.commit()
    due = [messages.transition_to_msg(one) for one in robot.spool.due(0.0, 100)]
    graph.wait_telling(
        lambda: [robot.out.publish(one) for one in due], lambda: robot.candidates[-1].version != first, 180, "another"
    )
    late = graph.listen(PolicyManifest, "policy/manifest", qos.MANIFEST)
    chunks = graph.listen(WeightChunk, "policy/weights", qos.WEIGHTS)
    graph.wait(lambda: late, 60, "what drives is latched")
    graph.spin(1.0)
    assert {(told.version, told.stage) for told in late} == {(first, "approved")}
    assert graph.wait(lambda: assemble(late[-1], chunks), 60, "its slices, too")


def test_a_learner_does_not_wait_for_what_is_gone_and_a_bad_step_keeps_out_no_good_one(graph, tmp_path):
    """Another learner has the first episode; among the steps of the second, hostile ones are sent."""
    robot = Robot(graph, tmp_path)
    robot.spool.acknowledge(6, 0.0)
    for transition in episode(2, 6):
        robot.spool.add(transition)
    robot.spool.commit()
    start(graph, tmp_path, "manual")
    graph.active("learner_node")
    graph.wait(robot.out.get_subscription_count, 60, "the learner listens")
    due = robot.spool.due(0.0, 100)
    (gone,) = robot.spool.gone()
    hostile = messages.transition_to_msg(due[0])
    hostile.reward, hostile.sequence = float("nan"), 99

    def tell():
        for msg in [messages.gone_to_msg(gone), hostile, *map(messages.transition_to_msg, due)]:
            robot.out.publish(msg)

    graph.wait_telling(tell, lambda: robot.acks and robot.acks[-1].sequence == 12, 120, "ack of 12", period_s=5.0)
    graph.wait(lambda: graph.value("learner_node", "stored transitions") == "6", 60, "a diagnostic")
    graph.wait(lambda: graph.value("learner_node", "transitions gone before they came") == "6", 60, "a diagnostic")


def test_state_of_an_older_network_is_set_aside_and_learning_begins_anew_with_the_experience(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    manifests = robot.manifests
    old = start(graph, tmp_path, "auto")
    graph.active("learner_node")
    robot.send()
    candidate = graph.wait(lambda: [m for m in manifests if m.stage == "candidate"], 180, "a candidate")[-1]
    request = PromotePolicy.Request(version=candidate.version, reason="test")
    assert graph.call(PromotePolicy, "policy/promote", request).accepted
    drove = graph.wait(lambda: [m for m in manifests if m.stage == "approved"], 180, "an approval")[-1]
    assert old.end() == 0

    graph.spin(1.0)  # what the old one told last is on its way
    graph.diagnostics.clear()
    manifests.clear()
    new = start(graph, tmp_path, "auto", algorithm="tests.ros.trainers:Wider")
    folder = tmp_path / "learner"
    (aside,) = graph.wait(lambda: list(folder.glob("set-aside-*")), 120, "what does not fit is set aside")
    graph.active("learner_node")
    why = f"{folder / 'weights'}: {drove.version}: tensor 'count' has shape (20000,), expected (30000,)"
    assert why in new.output()
    assert str(aside) in graph.value("learner_node", "moved aside")
    assert WeightsLibrary(aside / "weights", read_only=True).versions == ["v0", drove.version]
    assert (aside / "training" / "current").exists()
    assert graph.value("learner_node", "stored transitions") == "6"
    again = graph.wait(lambda: [m for m in manifests if m.stage == "candidate"], 180, "a candidate from old experience")
    assert (again[0].parent, again[0].size > 4 * 30_000) == ("v0", True)


def test_a_candidate_that_nobody_approved_does_not_outlive_its_run(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    chunks = graph.listen(WeightChunk, "policy/weights", qos.WEIGHTS)
    old = start(graph, tmp_path, "auto")
    graph.active("learner_node")
    robot.send()
    candidate = graph.wait(lambda: [m for m in robot.manifests if m.stage == "candidate"], 180, "a candidate")[-1]
    graph.wait(lambda: graph.value("learner_node", "driving version") == candidate.version, 180, "it drives")
    assert old.end() == 0

    graph.diagnostics.clear()
    robot.manifests.clear()
    chunks.clear()
    start(graph, tmp_path, "auto")
    graph.active("learner_node")
    first = graph.wait(lambda: robot.manifests, 180, "what drives is announced: a robot may still run the candidate")[0]
    assert (first.version, first.stage) == ("v0", "approved")
    assert graph.wait(lambda: assemble(first, chunks), 180, "all slices") == Counting(None).weights()
    assert graph.value("learner_node", "driving version") == "v0"
    refused = graph.call(PromotePolicy, "policy/promote", PromotePolicy.Request(version=candidate.version))
    assert not refused.accepted
    assert refused.reason.startswith(f"unknown weights version {candidate.version!r}")


def test_experience_of_another_policy_is_stored_and_counted_and_not_learnt_from(graph, tmp_path):
    robot = Robot(graph, tmp_path, source=ActionSource("other eyes", OTHER.id))
    start(graph, tmp_path, "auto")
    graph.active("learner_node")
    robot.send()
    key = "episodes not learnt from: other lineage"
    graph.wait(lambda: graph.value("learner_node", key) == "1", 180, "the episode is passed over")
    assert graph.value("learner_node", "stored transitions") == "6"
    assert graph.value("learner_node", "learner updates") == "0"
    assert not robot.manifests and not robot.candidates


def test_of_a_policy_that_cannot_be_trained_the_experience_is_kept_all_the_same(graph, tmp_path):
    robot = Robot(graph, tmp_path)
    start(graph, tmp_path, "gated", "tests.ros.policies:EyesAndNoise", "behavior_cloning")
    graph.active("learner_node")
    robot.send()
    graph.wait(lambda: graph.value("learner_node", "stored transitions") == "6", 60, "a diagnostic")
    why = "v0 is a EyesAndNoise; behavior cloning needs a policy of type engram_vla"
    assert graph.value("learner_node", "trains") == f"nothing: {why}"
    refused = graph.call(PromotePolicy, "policy/promote", PromotePolicy.Request())
    assert not refused.accepted and refused.reason == f"there is no version yet: nothing is trained, {why}"
    refused = graph.call(RollbackPolicy, "policy/rollback", RollbackPolicy.Request())
    assert not refused.accepted and why in refused.reason
    assert not robot.manifests


def test_a_policy_with_memory_learns_from_the_episodes_that_robots_send(graph, tmp_path):
    policy = tiny_vla(memory="bank", memory_steps=4, memory_events=2, memory_details=1)
    export(tmp_path / "policy", policy.network, policy.preprocess, policy.postprocess, {})
    lineage = open_policy(tmp_path / "policy").lineage
    robot = Robot(graph, tmp_path, cameras=policy.cameras, size=32, source=ActionSource("tiny", lineage.id))
    chunks = graph.listen(WeightChunk, "policy/weights", qos.WEIGHTS)
    start(graph, tmp_path, "manual", str(tmp_path / "policy"), "behavior_cloning")
    graph.active("learner_node")
    robot.send()
    candidate = graph.wait(lambda: robot.candidates, 120, "a candidate")[-1]
    request = PromotePolicy.Request(version=candidate.version, reason="test")
    assert graph.call(PromotePolicy, "policy/promote", request).accepted
    approved = graph.wait(lambda: robot.manifests, 180, "approval")[-1]
    data = graph.wait(lambda: assemble(approved, chunks), 180, "all slices")
    (tmp_path / "candidate.safetensors").write_bytes(data)
    before = policy.network.state_dict()
    policy.load_weights(tmp_path / "candidate.safetensors", candidate.version)
    after = policy.network.state_dict()
    assert policy.version == candidate.version
    assert any((before[name] != after[name]).any() for name in after if name.startswith("model.recall.memory."))
