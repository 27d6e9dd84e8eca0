"""The page's node as a process."""

import os
import socket

import numpy as np
import pytest

from engram.core.ports import free_port
from engram.core.types import ActionChunk, Verdict
from engram.nodes import messages, qos
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import Verdict as VerdictMsg
from tests.ros.processes import NodeProcess

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]


def test_a_port_in_use_is_an_error_that_names_its_owner_and_the_end():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = NodeProcess("viewer_node", {"port": port}, int(os.environ["ROS_DOMAIN_ID"]))
        assert process.child.wait(240) == 1
    assert f"configure failed: port {port} is in use by" in process.output()
    assert f"(pid {os.getpid()}); choose another with port:=N" in process.output()
    assert "Traceback" not in process.output()


def test_what_is_executed_counts_by_the_word_of_the_safety_node_alone_and_verdicts_by_that_of_the_memory(graph):
    graph.start("viewer_node", port=free_port(), writers=["safety/executed=safety_node", "verdict=memory_node"])
    graph.active("viewer_node")
    recording = graph.node.create_publisher(ActionChunkMsg, "safety/executed", qos.SENSOR)
    graph.matched(recording)
    opens = ActionChunk(10**9, 1, "ee_delta", np.array([[0.0] * 6 + [-1.0]]), 0.1, 1, "base")
    words = "writer of safety/executed: from /test, expected /safety_node"

    tell = lambda: recording.publish(messages.chunk_to_msg(opens, "robot0"))  # noqa: E731
    graph.problem("viewer_node", words, telling=tell)
    assert int(graph.value("viewer_node", "refused from other writers: safety/executed")) >= 1
    another = graph.node.create_publisher(VerdictMsg, "verdict", qos.COMMAND)
    graph.matched(another)
    verdict = messages.verdict_to_msg(Verdict(10**9, 1, "memory", "confirmed", 0.9), "robot0")
    tell = lambda: another.publish(verdict)  # noqa: E731
    graph.problem("viewer_node", "writer of verdict: from /test, expected /memory_node", telling=tell)
