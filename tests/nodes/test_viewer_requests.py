"""What the page is told of services that do not answer, against a node that nobody spins."""

import os
import time
from types import SimpleNamespace

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.task import Future
from std_srvs.srv import Trigger

from engram.nodes import viewer_requests
from engram.nodes.viewer_requests import VisitorRequests
from engram_interfaces.msg import SceneGraphUpdate
from engram_interfaces.srv import GetGraph

pytestmark = pytest.mark.ros


class Page:
    def __init__(self):
        self.replies = []

    def reply(self, text):
        self.replies.append(text)


@pytest.fixture
def nodes():
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=int(os.environ["ROS_DOMAIN_ID"]))
    made = [rclpy.create_node(name, context=context) for name in ("page", "hangs")]
    yield made
    for node in made:
        for waitable in list(node.waitables):  # action clients, which would keep the participant alive
            waitable.destroy()
        node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_a_stop_that_is_not_answered_is_told_and_asked_for_again(nodes, monkeypatch):
    monkeypatch.setattr(viewer_requests, "UNANSWERED_S", 0.3)
    node, hanging = nodes
    heard = []

    def answer(name, response):
        heard.append(name)
        response.message = "was heard"
        return response

    for name in ("safety/stop", "safety/reset"):
        hanging.create_service(Trigger, name, lambda _, response, name=name: answer(name, response))
    requests = VisitorRequests(node, lambda words: words, lambda _: None, lambda work: work())
    requests.page = page = Page()
    executor, other = (SingleThreadedExecutor(context=node.context) for _ in range(2))
    executor.add_node(node)
    other.add_node(hanging)

    def until(condition, *spun):
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, page.replies
            for one in spun:
                one.spin_once(0.02)
            requests.carry_out()

    until(lambda: all(c.service_is_ready() for c in (requests._stop, requests._release)), executor)
    requests.actions.release()
    requests.actions.stop()
    until(lambda: len(page.replies) >= 4, executor)
    told = "no answer for 0.3 s! Do not rely on it: use the robot's own stop."
    assert page.replies[0] == f"release: {told}"
    assert set(page.replies[1:]) == {f"stop: {told}"}
    until(lambda: page.replies[-1] == "stop: was heard", executor, other)
    assert heard.count("safety/reset") == 1 and heard.count("safety/stop") > 1
    seen = list(page.replies)
    time.sleep(0.4)
    requests.carry_out()
    assert page.replies == seen  # what was answered is not overdue


@pytest.mark.parametrize("full", [True, False])
def test_a_memory_that_refuses_its_graph_shows_no_empty_one(full):
    told, answer = [], Future()
    client = SimpleNamespace(service_is_ready=lambda: True, call_async=lambda _: answer)
    drawing = []
    asking = SimpleNamespace(_graph=client, _draw=drawing.append)
    assert VisitorRequests.ask_graph(asking, 5, lambda boot, graph: told.append(boot))
    answer.set_result(GetGraph.Response(graph=SceneGraphUpdate(boot_id="boot", full=full)))
    assert not told and len(drawing) == full  # a large graph takes long to read: not in the node's thread
    for work in drawing:
        work()
    assert told == ["boot"] * full
