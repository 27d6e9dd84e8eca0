"""Who may acknowledge experience, send it, and tell the gate of candidates: participants over real DDS."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import by_robot
from engram.nodes.experience_topics import open_outbox
from engram.nodes.gate_node import GateNode
from engram.runtime.bounds import TEXT_MAX
from engram.runtime.parameters import BoundNodeConfig
from engram_interfaces.msg import Experience, ExperienceAck, PolicyManifest
from tests.core.gantry import GANTRY, GantryKinematics
from tests.learning.transitions import episode
from tests.nodes.participants import Graph

pytestmark = [pytest.mark.ros, pytest.mark.timeout(600)]


class Recording(EngramNode):
    """Has an episode in its spool."""

    config_class = BoundNodeConfig
    folder: Path

    def start(self) -> None:
        outbox = open_outbox(self, self.folder, GantryKinematics(), GANTRY)
        assert outbox is not None
        self.outbox = outbox
        for one in episode(0):
            self.outbox.spool.add(one)
        self.outbox.spool.commit()

    def stop(self) -> None:
        self.outbox.close()


def test_only_the_learner_makes_a_robot_forget_what_it_has_sent(graph: Graph, tmp_path: Path) -> None:
    Recording.folder = tmp_path
    node = graph.run(lambda: Recording("policy_node"), "writers:=[experience/ack=learner_node]", "robot_id:=r1")
    topic = ("experience/ack", qos.EXPERIENCE)
    stranger, learner = (graph.writer(name, ExperienceAck, *topic) for name in ("stranger", "learner_node"))
    spool = node.outbox.spool
    stranger.publish(messages.ack_to_msg("r1", spool.boot_id, 4))
    graph.until(lambda: "writer of experience/ack: from /stranger, expected /learner_node" in graph.said())
    assert len(spool) == 4
    for robot, sequence in (("r2", 4), ("r1", 3)):  # it tells other robots, too
        learner.publish(messages.ack_to_msg(robot, spool.boot_id, sequence))
    graph.until(lambda: len(spool) == 1)
    assert not node.health.counts["refused for another robot: experience/ack"]


class Storing(EngramNode):
    """Listens to experience as a learner does."""

    config_class = BoundNodeConfig

    def start(self) -> None:
        self.heard: list[tuple[str, int]] = []
        take = by_robot(self, "experience", lambda msg: self.heard.append((msg.robot_id, msg.sequence)))
        self.subscribe(Experience, "experience", take, qos.EXPERIENCE)


def test_each_robot_s_policy_node_sends_its_experience_and_no_stranger(graph: Graph) -> None:
    node = graph.run(lambda: Storing("learner_node"), "writers:=[experience=/*/policy_node]", "robot_id:=r1")
    topic = ("/experience", qos.EXPERIENCE)
    stranger = graph.writer("stranger", Experience, *topic)
    own = graph.writer("policy_node", Experience, *topic)
    other = graph.writer("policy_node", Experience, *topic, namespace="/r2")

    def told() -> bool:
        for out, robot, sequence in ((stranger, "ghost", 1), (own, "r1", 2), (other, "r2", 3)):
            out.publish(Experience(robot_id=robot, boot_id="b", sequence=sequence))
        return {("r1", 2), ("r2", 3)} <= set(node.heard) and "expected /*/policy_node" in graph.said()

    graph.until(told)
    for out, robot, sequence in ((stranger, "r1", 4), (other, "r1", 5), (own, "r1", 6)):
        out.publish(Experience(robot_id=robot, boot_id="b", sequence=sequence))
    graph.until(lambda: ("r1", 6) in node.heard)
    graph.until(lambda: "from /r2/policy_node, but /policy_node writes it" in graph.said())
    assert set(node.heard) == {("r1", 2), ("r2", 3), ("r1", 6)}


def test_experience_that_is_too_large_is_a_problem_only_if_a_robot_sends_it(graph: Graph) -> None:
    node = graph.run(lambda: Storing("learner_node"), "writers:=[experience=/*/policy_node]", "robot_id:=r1")
    topic = ("/experience", qos.EXPERIENCE)
    stranger, own = (graph.writer(name, Experience, *topic) for name in ("stranger", "policy_node"))
    counts, large = node.health.counts, Experience(robot_id="r1", boot_id="x" * (TEXT_MAX + 1))

    def told(out: Any, name: str) -> bool:
        out.publish(large)
        return bool(counts[name])

    graph.until(lambda: told(stranger, "problems writer of experience"))
    assert not counts["problems experience"]
    graph.until(lambda: told(own, "problems experience"))
    assert "boot_id" in graph.said() and not node.heard


def test_the_gate_hears_of_candidates_and_of_what_drives_from_the_learner_alone(graph: Graph) -> None:
    writers = "writers:=[policy/candidate=learner_node, policy/manifest=learner_node]"
    node = graph.run(GateNode, writers, "policy:=tests.ros.policies:OneWeight")
    offered: list[str] = []
    node.standing = SimpleNamespace(offer=offered.append, stop=lambda: True)
    node.promotions.add("c1")
    for topic, profile, stage in (("candidate", qos.LATCHED, "candidate"), ("manifest", qos.MANIFEST, "approved")):
        kind = (PolicyManifest, f"policy/{topic}", profile)
        graph.writer("stranger", *kind).publish(PolicyManifest(version="c1", stage=stage))
        graph.until(lambda topic=topic: f"writer of policy/{topic}: from /stranger, expected" in graph.said())
    assert not offered and node.promotions.next() == "c1"  # it is still to be asked for
    learner = graph.writer("learner_node", PolicyManifest, "policy/candidate", qos.LATCHED)
    learner.publish(PolicyManifest(version="c2", stage="candidate"))
    graph.until(lambda: offered == ["c2"])
