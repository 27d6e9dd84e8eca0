"""Every message, service and action of engram_interfaces crosses two processes over Fast DDS unharmed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rclpy
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from engram_interfaces.action import ExecuteTask
from tests.interfaces.filling import fill
from tests.interfaces.peer import (
    FEEDBACK_SEED,
    GOAL_SEED,
    MESSAGES,
    REQUEST_SEED,
    RESPONSE_SEED,
    RESULT_SEED,
    SERVICES,
)

pytestmark = pytest.mark.ros
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def peer() -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interfaces.peer"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n", f"the peer ended with {process.poll()}"
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class Caller:
    """A node with an executor of its own, and futures awaited with a limit."""

    def __init__(self) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = Node("caller", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def result(self, future):
        self.executor.spin_until_future_complete(future, TIMEOUT_S)
        assert future.done(), f"no answer within {TIMEOUT_S} s"
        return future.result()

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture(scope="module")
def caller(peer) -> Iterator[Caller]:
    caller = Caller()
    yield caller
    caller.close()


def wait_until(caller: Caller, condition) -> None:
    """Spin until condition() holds; discovery is the only thing waited for."""
    clock = caller.node.get_clock()
    start = clock.now()
    while not condition():
        assert (clock.now() - start).nanoseconds < TIMEOUT_S * 1e9, "the peer was not discovered"
        caller.executor.spin_once(0.02)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_message_comes_back_equal(caller: Caller, cls: type) -> None:
    arrived = rclpy.task.Future()
    publisher = caller.node.create_publisher(cls, f"there/{cls.__name__}", 10)
    subscription = caller.node.create_subscription(cls, f"back/{cls.__name__}", arrived.set_result, 10)
    wait_until(caller, lambda: publisher.get_subscription_count() and subscription.get_publisher_count())

    sent = fill(cls)

    def came_back() -> bool:
        if not arrived.done():
            publisher.publish(sent)  # again: the peer may have matched later than we did, and missed the first
            caller.executor.spin_once(0.2)
        return arrived.done()

    wait_until(caller, came_back)
    assert arrived.result() == sent
    assert sent != cls()


@pytest.mark.parametrize("cls", SERVICES, ids=lambda cls: cls.__name__)
def test_service_answers(caller: Caller, cls: type) -> None:
    client = caller.node.create_client(cls, f"serve/{cls.__name__}")
    wait_until(caller, client.service_is_ready)

    response = caller.result(client.call_async(fill(cls.Request, REQUEST_SEED)))

    assert response == fill(cls.Response, RESPONSE_SEED)


def test_action_gives_feedback_and_result(caller: Caller) -> None:
    client = ActionClient(caller.node, ExecuteTask, "execute_task")
    wait_until(caller, client.server_is_ready)
    feedback = []

    goal = caller.result(
        client.send_goal_async(fill(ExecuteTask.Goal, GOAL_SEED), lambda message: feedback.append(message.feedback))
    )
    result = caller.result(goal.get_result_async())

    assert goal.accepted
    assert result.result == fill(ExecuteTask.Result, RESULT_SEED)
    wait_until(caller, lambda: feedback)
    assert feedback == [fill(ExecuteTask.Feedback, FEEDBACK_SEED)]
    client.destroy()
