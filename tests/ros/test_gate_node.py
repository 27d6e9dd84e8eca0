"""The gate node hears of candidates, tells verdicts, and asks the learner for what it promotes; nothing else."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from engram.learning.weights.library import WeightsLibrary
from engram.nodes import messages, qos
from engram_interfaces.msg import GateVerdict, PolicyManifest
from engram_interfaces.srv import PromotePolicy
from tests.validation.made import add_candidate, run_before

pytestmark = [pytest.mark.ros, pytest.mark.timeout(600)]


class Learner:
    """Announces candidates and notes what it is asked to promote."""

    def __init__(self, graph, folder):
        self.graph, self.folder, self.asked = graph, folder, []
        self.manifests = graph.node.create_publisher(PolicyManifest, "policy/candidate", qos.LATCHED)
        self.verdicts = graph.listen(GateVerdict, "policy/gate", qos.LATCHED)
        self.serve()

    def serve(self):
        self.service = self.graph.node.create_service(PromotePolicy, "policy/promote", self._on_promote)

    def _on_promote(self, request, response):
        self.asked.append(request.version)
        response.accepted, response.reason = True, "it drives"
        return response

    def announce(self, version, stage="candidate"):
        manifest = WeightsLibrary(self.folder / "weights", read_only=True).get(version)[1]
        manifest = replace(manifest, stage=stage)
        self.manifests.publish(messages.manifest_to_msg(manifest, 1, 65536))

    def verdict(self, version):
        def found():
            return [v for v in self.verdicts if v.candidate == version and v.decision != "open"]

        return self.graph.wait(found, 120, f"a verdict on {version}")[-1]


def start(graph, tmp_path, **parameters):
    words = {"folder": str(tmp_path), "policy": "base", "tasks": ["reach"], **parameters}
    process = graph.start("gate_node", **words)
    graph.active("gate_node")
    return process


@pytest.fixture
def learner(graph, tmp_path):
    library = WeightsLibrary(tmp_path / "weights")
    drives = add_candidate(library, "v0")
    library.approve("v0", "test")
    equal, worse = (add_candidate(library, name, factor) for name, factor in (("equal", 1.0001), ("worse", 1.0002)))
    library.close()
    run_before(tmp_path, {drives: True, equal: True, worse: False})
    return Learner(graph, tmp_path)


def test_a_candidate_is_judged_unasked_and_only_what_is_not_worse_is_promoted(graph, tmp_path, learner):
    start(graph, tmp_path)
    learner.announce("worse")
    told = learner.verdict("worse")
    assert told.decision == "reject"
    assert told.reason.startswith("worse: reach 0 of ")
    assert json.loads(told.report_json)["tasks"][0]["candidate"] == 0
    learner.verdicts.clear()
    learner.announce("worse", stage="rejected")  # as the learner does once it has read the verdict
    graph.spin(1.0)
    learner.announce("equal")
    assert learner.verdict("equal").decision == "promote"
    assert not [told for told in learner.verdicts if told.candidate == "worse"]
    graph.wait(lambda: learner.asked, 60, "the learner is asked")
    graph.wait(lambda: graph.value("gate_node", "promoted") == "1", 60, "a diagnostic")
    assert learner.asked == ["equal"]
    assert "equal: promote, not worse by 0.1" in graph.value("gate_node", "candidate")
    lacking = WeightsLibrary(tmp_path / "weights", read_only=True).get("equal")[1]
    msg = messages.manifest_to_msg(lacking, 1, 65536)
    msg.version = "gone"
    learner.manifests.publish(msg)
    told = learner.verdict("gone")
    assert (told.decision, "unknown weights version 'gone'" in told.reason) == ("failed", True)


def test_the_budget_bounds_what_is_tried(graph, tmp_path, learner):
    start(graph, tmp_path, budget=3)
    learner.announce("equal")
    told = learner.verdict("equal")
    assert (told.decision, told.pairs) == ("not_shown", 3)
    assert "not shown within 3 pairs a task" in told.reason


def test_a_cluster_that_does_not_answer_is_named(graph, tmp_path, learner):
    start(graph, tmp_path, ray="127.0.0.1:1")
    learner.announce("equal")
    told = learner.verdict("equal")
    assert told.decision == "failed" and told.reason.startswith("ray '127.0.0.1:1': no cluster answers there")


def test_a_person_may_keep_the_last_word_and_what_cannot_be_simulated_is_said(graph, tmp_path, learner):
    process = start(graph, tmp_path, promote=False)
    learner.announce("equal")
    assert learner.verdict("equal").decision == "promote"
    graph.spin(2.0)
    assert not learner.asked
    assert process.end() == 0
    graph.diagnostics.clear()
    start(graph, tmp_path, policy="tests.ros.policies:OneWeight")
    told = graph.wait(lambda: graph.value("gate_node", "judges"), 60, "a diagnostic")
    assert told.startswith("nothing: policy 'tests.ros.policies:OneWeight' is no checkpoint")


def test_another_robot_than_the_simulated_one_is_not_judged_on_its_tabletop(graph, tmp_path, learner):
    start(graph, tmp_path, robot="examples.robot:GANTRY")
    told = graph.wait(lambda: graph.value("gate_node", "judges"), 60, "a diagnostic")
    assert told.startswith("nothing: robot 'examples.robot:GANTRY': the gate simulates a panda_2f85 alone")


def test_a_panda_with_a_camera_of_its_own_is_judged(graph, tmp_path, learner):
    start(graph, tmp_path, robot="examples.camera:PANDA_WITH_SIDE")
    learner.announce("worse")
    assert learner.verdict("worse").decision == "reject"


CRASHES = """
import os, rclpy
from engram_interfaces.srv import PromotePolicy
rclpy.init()
node = rclpy.create_node("learner_that_crashes")
node.create_service(PromotePolicy, "policy/promote", lambda request, response: os._exit(1))
rclpy.spin(node)
"""


def test_a_learner_that_died_before_it_answered_does_not_keep_its_successor_from_being_asked(graph, tmp_path, learner):
    learner.service.destroy()
    crashes = subprocess.Popen([sys.executable, "-c", CRASHES])
    start(graph, tmp_path)
    try:
        learner.announce("equal")
        assert crashes.wait(120) == 1  # it was asked
    finally:
        crashes.kill()
    learner.serve()
    graph.wait(lambda: learner.asked, 120, "the next learner is asked")
    assert learner.asked == ["equal"]


def test_between_verdicts_it_practises_or_says_why_it_does_not(graph, tmp_path, learner):
    start(graph, tmp_path, practise=True)
    told = graph.wait(lambda: graph.value("gate_node", "practice"), 60, "a diagnostic")
    assert told == "waits: the robot has not been asked for anything yet"
    learner.announce("equal")
    assert learner.verdict("equal").decision == "promote"
