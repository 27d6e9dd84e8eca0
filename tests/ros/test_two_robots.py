"""Two simulated robots in namespaces of their own feed one learner, and its weights drive both."""

from dataclasses import replace

import numpy as np
import pytest

from engram.app.launch_graph import find_launch_file, load_graph
from engram.core.types import ActionChunk
from engram.learning.experience.reader import ExperienceReader
from engram.learning.weights.manifest import compare_specs, tensor_specs
from engram.nodes import qos
from engram_interfaces.msg import Experience, ExperienceAck, TaskStatus
from engram_interfaces.srv import PromotePolicy, ResetSim
from tests.ros.policies import OneWeight
from tests.ros.trainers import Counting
from tests.runtime.test_loop import GantryWorld

ROBOTS = ("r1", "r2")
HERE = "tests.ros.test_two_robots"
pytestmark = [pytest.mark.ros, pytest.mark.timeout(600)]


class SeenGantryWorld(GantryWorld):
    """A gantry whose camera shows something: what is done with a covered one is not learnt from."""

    def _observe(self):
        seen = super()._observe()
        frame, rng = seen.cameras["front"], np.random.default_rng(self.steps)
        return replace(seen, cameras={"front": replace(frame, color=rng.integers(0, 256, frame.color.shape, np.uint8))})


class GoesRight(OneWeight):
    """Succeeds in four steps, and takes the weights of ``Counting``."""

    def act(self):
        actions = np.tile([0.4, 0, 0, 0, 0, 0, -1.0], (4, 1))
        return ActionChunk(self.stamp, self.episode, "ee_delta", actions, 0.1, 3, self.version)

    def load_weights(self, path, version):
        compare_specs(tensor_specs(path.read_bytes()), {"count": ((Counting.size,), "F32")}, f"weights {version!r}")
        self._version = version


def start(graph, tmp_path):
    """Start two robots with the remappings of the launch file, and the learner of the first one."""
    shared = {"lockstep": True, "robot": "tests.core.gantry:GANTRY"}
    for robot in ROBOTS:
        learner_of = "none" if robot == ROBOTS[0] else ROBOTS[0]
        arguments = {"namespace": robot, "clock": f"/{robot}/clock", "learner_of": learner_of}
        launched = {node.name: node for node in load_graph(find_launch_file("sim"), arguments).nodes}
        folder = tmp_path / robot

        remaps = {
            name: (f"__ns:=/{robot}", *(f"{here}:={there}" for here, there in node.remaps if here != there))
            for name, node in launched.items()
        }
        graph.start("safety_node", remap=remaps["safety_node"], stop_folder=str(folder / "stop"), **shared)
        graph.start("sim_node", remap=remaps["sim_node"], world=f"{HERE}:SeenGantryWorld", **shared)
        graph.start(
            "policy_node",
            remap=remaps["policy_node"],
            policy=f"{HERE}:GoesRight",
            cameras=["front"],
            check_instructions=False,
            experience=True,
            spool=str(folder / "spool"),
            weights_folder=str(folder / "weights"),
            memory_folder=str(folder / "episode"),
            **shared,
        )
        assert ("learner_node" in launched) == (robot == ROBOTS[0])
    graph.start(
        "learner_node",
        remap=(f"__ns:=/{ROBOTS[0]}",),
        policy=f"{HERE}:GoesRight",
        algorithm="tests.ros.trainers:Counting",
        robot="tests.core.gantry:GANTRY",
        folder=str(tmp_path / "learner"),
        promote="manual",
        commit_period_s=0.1,
        learner__first_episodes=len(ROBOTS),
        learner__imitate_own=True,
        learner__updates_per_episode=10,
        learner__candidate_updates=20,
        learner__replay__chunk_size=4,
    )
    names = [f"{robot}/{node}" for robot in ROBOTS for node in ("safety_node", "sim_node", "policy_node")]
    graph.active(*names, f"{ROBOTS[0]}/learner_node")


def run_episodes(graph, statuses):
    """Let each robot reach its goal, in four steps."""
    numbers = {}
    for robot in ROBOTS:
        answer = graph.call(ResetSim, f"{robot}/sim/reset", ResetSim.Request(task="reach", seed=1))
        assert answer.accepted, answer.message
        numbers[robot] = answer.episode
    for robot, number in numbers.items():
        graph.wait(
            lambda robot=robot, number=number: [
                s for s in statuses[robot] if s.episode == number and s.state == "succeeded"
            ],
            120,
            f"{robot} succeeds",
        )


def test_two_robots_feed_one_learner_exactly_once_and_take_its_weights(graph, tmp_path):
    topics = qos.every_status(lockstep=True)
    statuses = {robot: graph.listen(TaskStatus, f"{robot}/{topics[0]}", topics[1]) for robot in ROBOTS}
    sent = graph.listen(Experience, f"{ROBOTS[0]}/experience", qos.EXPERIENCE)
    acks = graph.listen(ExperienceAck, f"{ROBOTS[0]}/experience/ack", qos.EXPERIENCE)
    start(graph, tmp_path)
    run_episodes(graph, statuses)

    def acknowledged():
        return {ack.robot_id for ack in acks if ack.sequence >= 4} == set(ROBOTS)

    graph.wait(acknowledged, 120, "both robots' steps are on the learner's disk")
    again = graph.node.create_publisher(Experience, f"{ROBOTS[0]}/experience", qos.EXPERIENCE)
    graph.matched(again)
    for msg in tuple(sent):  # from another process than the robots'
        again.publish(msg)
    refused = "refused from other writers: experience"
    graph.wait(lambda: int(graph.value("r1/learner_node", refused) or 0) > 0, 60, "the stranger's copies are refused")
    stored = ExperienceReader(tmp_path / "learner" / "experience")
    graph.wait(lambda: len(stored.catalogue()) == len(ROBOTS), 60, "both episodes are whole")
    for info in stored.catalogue():
        steps = stored.episode(info.number)
        assert [(one.step, one.robot_id) for one in steps] == [(step, info.robot_id) for step in range(4)]
        assert [one.sequence for one in steps] == [1, 2, 3, 4]
        assert {one.sequence for one in sent if one.robot_id == info.robot_id} >= {1, 2, 3, 4}
    assert stored.robots() == list(ROBOTS)

    graph.wait(lambda: graph.value("r1/learner_node", "learner candidates") == "1", 120, "a candidate")
    answer = graph.call(PromotePolicy, f"{ROBOTS[0]}/policy/promote", PromotePolicy.Request(reason="test"), 60)
    assert answer.accepted, answer.reason
    version = answer.reason.split()[0]
    for robot in ROBOTS:
        node = f"{robot}/policy_node"
        graph.wait(lambda node=node: graph.value(node, "weights received") == "1", 60, f"{node} gets it")
    run_episodes(graph, statuses)  # they are swapped between two chunks
    for robot in ROBOTS:
        node = f"{robot}/policy_node"
        graph.wait(lambda node=node: graph.value(node, "policy version") == version, 60, f"{node} takes it")
    graph.wait(lambda: len(stored.catalogue()) == 2 * len(ROBOTS), 60, "their next episodes, too")
    graph.wait(lambda: graph.value("r1/learner_node", "stored transitions") == "16", 60, "each step once")
    assert graph.value("r1/learner_node", "experience taken") in ("", "0")
    graph.wait(lambda: graph.value("r1/learner_node", "updates behind what drives") == "r1 0, r2 0", 60, "none behind")
