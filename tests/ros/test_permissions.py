"""The permissions for SROS 2 allow each node what it really does, and no node what only another does."""

import time

import pytest

from engram.app.launch_graph import find_launch_file, load_graph
from engram.app.permissions import NODES, permissions
from engram.core.ports import free_port
from engram.nodes.loop_client import LoopClient
from engram.nodes.teleop_client import TeleopClient
from tests.runtime.lerobotgantry import MOTORS

GANTRY = "tests.core.gantry:GANTRY"


def test_only_who_decides_may_command_and_begin_episodes():
    allowed = permissions()
    assert [node for node, may in allowed.items() if "/command" in may.publish] == ["safety_node"]
    assert [node for node, may in allowed.items() if "/policy/action_chunk" in may.publish] == ["policy_node"]
    assert [node for node, may in allowed.items() if "/task/status" in may.publish] == ["sim_node", "policy_node"]
    assert [node for node, may in allowed.items() if "/policy/weights" in may.publish] == ["learner_node"]
    assert [node for node, may in allowed.items() if "/safety/reset" in may.request] == ["viewer_node", "engram_demo"]


def test_a_namespace_is_in_every_name_but_those_that_all_robots_share():
    for node, may in permissions("r1").items():
        names = may.publish | may.subscribe | may.reply | may.request | may.execute | may.call
        shared = {name for name in names if not name.startswith("/r1/")}
        assert shared <= {"/clock", "/rosout", "/parameter_events", "/diagnostics"}, node


def test_a_robot_without_a_learner_has_the_topics_of_the_other_ones():
    allowed = permissions("r2", learner_of="r1")
    assert not {"learner_node", "gate_node"} & set(allowed)
    values = {"namespace": "r2", "learner_of": "r1"}
    remapped = {node.executable: dict(node.remaps) for node in load_graph(find_launch_file("robot"), values).nodes}
    for node in ("policy_node", "viewer_node"):
        there = {name for name in remapped[node].values() if name.startswith("/r1/")}
        may = allowed[node].publish | allowed[node].subscribe
        assert there and {name for name in may if name.startswith("/r1/")} == there, node


@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_running_nodes_publish_subscribe_serve_and_call_is_allowed(graph, tmp_path):
    graph.start("safety_node", robot=GANTRY, lockstep=True)
    graph.start("memory_node", use_sim_time=True, store=str(tmp_path / "memory"), lockstep=True)
    graph.start("perception_node")
    graph.start("sim_node", world_config__profile="none", lockstep=True)
    graph.start("viewer_node", port=free_port())
    graph.start("link_node")
    graph.start("lifecycle_manager", node_names=["safety_node"], autostart=False)
    graph.start(
        "policy_node", policy="tests.ros.policies:EyesAndNoise", robot=GANTRY, cameras=["front"], lockstep=True,
        experience=True, spool=str(tmp_path / "spool"), weights_folder=str(tmp_path / "weights"),
    )  # fmt: skip
    graph.start(
        "learner_node", policy="tests.ros.policies:EyesAndNoise", algorithm="tests.ros.trainers:Counting",
        folder=str(tmp_path / "learner"),
    )  # fmt: skip
    graph.start("gate_node", policy="tests.ros.policies:EyesAndNoise", folder=str(tmp_path / "learner"))
    graph.start(
        "robot_node", driver="lerobot", lerobot="tests.runtime.lerobotgantry:LeRobotGantry", robot=GANTRY,
        hardware_joints=list(MOTORS), unit="rad", gripper_closed=100.0,
    )  # fmt: skip
    outside = LoopClient(domain=graph.domain, count_commands=True), TeleopClient("person", domain=graph.domain)
    of_outside = [client.node.get_name() for client in outside]
    names = [name for name in NODES.values() if name not in ("lifecycle_manager", "far_link_node", *of_outside)]
    graph.active(*names)
    end = time.monotonic() + 3.0  # what a node has beside its lifecycle comes with it; the graph may lag behind
    while time.monotonic() < end:
        graph.spin(0.5)
    named = [*names, "lifecycle_manager", *of_outside]
    # on a busy machine DDS may have lost sight of one for a moment
    graph.wait(lambda: set(named) <= set(graph.node.get_node_names()), 30.0, "the graph knows all nodes")
    problems = [problem for name in named for problem in compare(graph.node, name)]
    for client in outside:
        client.close()
    assert not problems, "\n".join(problems)


def compare(node, name):
    """Yield each difference of what ROS knows of the node ``name`` to its permissions."""
    may = permissions()[name]
    found = {
        "publish": node.get_publisher_names_and_types_by_node(name, "/"),
        "subscribe": node.get_subscriber_names_and_types_by_node(name, "/"),
        "reply": node.get_service_names_and_types_by_node(name, "/"),
        "request": node.get_client_names_and_types_by_node(name, "/"),
    }
    for way, pairs in found.items():
        done = {topic for topic, _ in pairs if "/_action/" not in topic}
        patterns = getattr(may, way)
        missing = {topic for topic in done if not any(matches(topic, pattern) for pattern in patterns)}
        if missing:
            yield f"{name} may not {way} {', '.join(sorted(missing))}"
    actions = {topic.split("/_action/")[0] for topic, _ in found["reply"] if "/_action/" in topic}
    called = {topic.split("/_action/")[0] for topic, _ in found["request"] if "/_action/" in topic}
    if (actions, called) != (may.execute, may.call):
        yield f"{name} executes {actions} and calls {called}"


def matches(topic, pattern):
    head, star, tail = pattern.partition("*")
    return topic == pattern if not star else topic.startswith(head) and topic.endswith(tail)
