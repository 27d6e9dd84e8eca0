"""Our executor calls what rclpy's own calls, and keeps its wait set while nothing changes."""

import threading
import time

import pytest
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future
from rosgraph_msgs.msg import Clock as ClockMsg
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


@pytest.fixture
def guarded():
    """A node under our executor, and what its callbacks raised: name -> the errors."""
    context, errors = rclpy.Context(), {}
    rclpy.init(context=context)
    sim_time = Parameter("use_sim_time", value=True)
    node = Node("executor_test", context=context, parameter_overrides=[sim_time])
    executor = KeptExecutor(on_error=lambda name, error: errors.setdefault(name, []).append(error), context=context)
    executor.add_node(node)
    yield node, executor, errors
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_every_callback_is_guarded_and_everything_else_goes_on(guarded):
    """Subscription, timer, service, a future's callback: each raises once, and each is called again."""
    node, executor, errors = guarded
    calls = {"numbers": 0, "timer": 0, "ask": 0, "future": 0}

    def failing(name, answer=None):
        def call(*_):
            calls[name] += 1
            if calls[name] == 1:
                raise ZeroDivisionError(name)
            return answer

        return call

    node.create_subscription(Int32, "numbers", failing("numbers"), 10)
    node.create_timer(0.01, failing("timer"), clock=Clock(clock_type=ClockType.STEADY_TIME))
    node.create_service(Trigger, "ask", failing("ask", Trigger.Response(success=True)))
    numbers, client = node.create_publisher(Int32, "numbers", 10), node.create_client(Trigger, "ask")
    spin_until(executor, lambda: client.service_is_ready() and numbers.get_subscription_count())
    first = client.call_async(Trigger.Request())
    spin_until(executor, first.done)
    assert not first.result().success  # nobody waits for ever: the answer has no content
    for _ in range(2):
        numbers.publish(Int32())
        executor.create_task(failing("future"))
    second = client.call_async(Trigger.Request())
    spin_until(executor, lambda: second.done() and min(calls.values()) >= 2)
    assert second.result().success
    assert sorted(str(error) for found in errors.values() for error in found) == ["ask", "future", "numbers", "timer"]
    assert [str(error) for error in errors["/numbers"]] == ["numbers"]


def test_a_clock_with_negative_seconds_is_refused_and_the_next_one_counts(guarded):
    node, executor, errors = guarded
    clock = node.create_publisher(ClockMsg, "/clock", 1)
    spin_until(executor, clock.get_subscription_count)

    def tell(seconds):
        msg = ClockMsg()
        msg.clock.sec = seconds
        clock.publish(msg)

    tell(7)
    spin_until(executor, lambda: node.get_clock().now().nanoseconds == 7 * 10**9)
    for number in range(6):
        tell(-1)
        spin_until(executor, lambda: len(errors.get("/clock", [])) == number + 1)  # noqa: B023 - called at once
    tell(8)
    spin_until(executor, lambda: node.get_clock().now().nanoseconds == 8 * 10**9)


def test_a_request_that_cannot_be_taken_does_not_close_the_service(guarded):
    """In rclpy the callback group would stay closed, and with it every other service of the node."""
    node, executor, errors = guarded
    take, failures = executor._take["service"], [1]

    def once(entity):
        if failures:
            failures.pop()
            take(entity)  # it is gone, as a malformed one is
            raise RuntimeError("malformed")
        return take(entity)

    executor._take["service"] = once
    node.create_service(Trigger, "ask", lambda request, response: Trigger.Response(success=True))
    client = node.create_client(Trigger, "ask")
    spin_until(executor, client.service_is_ready)
    client.call_async(Trigger.Request())
    spin_until(executor, lambda: errors)
    answer = client.call_async(Trigger.Request())
    spin_until(executor, answer.done)
    assert answer.result().success
