"""Our executor calls what rclpy's own calls, and keeps its wait set while nothing changes."""

import threading
import time

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Int32
from std_srvs.srv import Trigger

from engram.nodes.executor import KeptExecutor

LIMIT_S = 100.0


@pytest.fixture(params=[SingleThreadedExecutor, KeptExecutor], ids=["rclpy", "kept"])
def spinning(request):
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node("executor_test", context=context)
    executor = request.param(context=context)
    executor.add_node(node)
    yield node, executor
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def spin_until(executor, condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        executor.spin_once(timeout_sec=0.05)


def test_messages_timers_and_services_reach_their_callbacks(spinning):
    node, executor = spinning
    heard, ticks = [], []
    node.create_subscription(Int32, "numbers", lambda msg: heard.append(msg.data), 10)
    node.create_timer(0.01, lambda: ticks.append(1))
    node.create_service(Trigger, "ask", lambda request, response: Trigger.Response(success=True, message="yes"))
    numbers, client = node.create_publisher(Int32, "numbers", 10), node.create_client(Trigger, "ask")
    for value in range(5):
        numbers.publish(Int32(data=value))
    spin_until(executor, lambda: len(heard) == 5 and len(ticks) >= 3 and client.service_is_ready())
    assert heard == [0, 1, 2, 3, 4]
    answer = client.call_async(Trigger.Request())
    spin_until(executor, answer.done)
    assert answer.result().message == "yes"


def test_a_coroutine_goes_on_when_a_thread_sets_what_it_awaits(spinning):
    node, executor = spinning
    awaited = Future(executor=executor)
    awaited.add_done_callback(lambda _: None)

    async def answer(request, response):
        response.message = await awaited
        return response

    node.create_service(Trigger, "ask", answer)
    client = node.create_client(Trigger, "ask")
    spin_until(executor, client.service_is_ready)
    asked = client.call_async(Trigger.Request())
    threading.Timer(0.3, lambda: awaited.set_result("from the thread")).start()
    spin_until(executor, asked.done)
    assert asked.result().message == "from the thread"


def test_subscriptions_come_and_go_while_it_spins(spinning):
    node, executor = spinning
    early, late = [], []
    first = node.create_subscription(Int32, "numbers", lambda msg: early.append(msg.data), 10)
    numbers = node.create_publisher(Int32, "numbers", 10)
    numbers.publish(Int32(data=1))
    spin_until(executor, lambda: early == [1])
    node.create_subscription(Int32, "numbers", lambda msg: late.append(msg.data), 10)
    node.destroy_subscription(first)
    numbers.publish(Int32(data=2))
    spin_until(executor, lambda: late == [2])
    assert early == [1]


def test_what_a_callback_raises_comes_out_of_spin(spinning):
    node, executor = spinning
    node.create_subscription(Int32, "numbers", lambda msg: 1 // msg.data, 10)
    node.create_publisher(Int32, "numbers", 10).publish(Int32(data=0))
    with pytest.raises(ZeroDivisionError):
        spin_until(executor, lambda: False)


@pytest.mark.parametrize("spinning", [KeptExecutor], indirect=True)
def test_the_wait_set_is_made_once_while_nothing_changes(spinning):
    node, executor = spinning
    heard = []
    node.create_subscription(Int32, "numbers", lambda msg: heard.append(msg.data), 10)
    numbers = node.create_publisher(Int32, "numbers", 10)
    executor.spin_once(timeout_sec=0.0)
    kept = executor._waited.wait_set
    for value in range(20):
        numbers.publish(Int32(data=value))
        spin_until(executor, lambda: heard and heard[-1] == value)  # noqa: B023 - called at once
        assert executor._waited.wait_set is kept
    node.create_timer(1.0, lambda: None)
    executor.spin_once(timeout_sec=0.0)
    assert executor._waited.wait_set is not kept


@pytest.mark.parametrize("spinning", [KeptExecutor], indirect=True)
def test_a_coroutine_that_waits_is_left_alone_while_messages_come(spinning):
    node, executor = spinning
    looks, heard = [], []

    class Door:
        open = False

        def __await__(self):
            while not self.open:
                looks.append(1)
                yield

    door = Door()

    async def wait() -> str:
        await door
        return "through"

    waiting = executor.create_task(wait)
    node.create_subscription(Int32, "numbers", lambda msg: heard.append(msg.data), 10)
    numbers = node.create_publisher(Int32, "numbers", 10)
    spin_until(executor, lambda: looks)
    before = len(looks)
    for value in range(20):
        numbers.publish(Int32(data=value))
        spin_until(executor, lambda: heard and heard[-1] == value)  # noqa: B023 - called at once
    assert len(looks) == before
    door.open = True
    executor.create_task(lambda: None)  # as a future does when it is set
    spin_until(executor, waiting.done)
    assert waiting.result() == "through"
