"""What every node does with messages and workers, in a node of this process."""

import threading
import time

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import Parameter as ParameterMsg
from rcl_interfaces.msg import ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import Bool
from trajectory_msgs.msg import JointTrajectory

from engram.core.errors import InvalidInputError
from engram.nodes import base, messages, qos
from engram.nodes.base import AHEAD_S, EngramNode
from engram.nodes.executor import KeptExecutor
from engram_interfaces.msg import Experience

SECOND = 10**9


@pytest.fixture
def make():
    context, nodes = rclpy.Context(), []
    rclpy.init(context=context)

    def made(*arguments):
        nodes.append(EngramNode("small_node", context=context, cli_args=["--ros-args", *arguments]))
        nodes[-1].trigger_configure()
        nodes[-1].trigger_activate()
        return nodes[-1]

    yield made
    for node in nodes:
        node.close()
        node.destroy_node()
    rclpy.try_shutdown(context=context)


def stamped(stamp_ns):
    return JointTrajectory(header=messages.header(stamp_ns))


def test_a_stamp_from_the_future_is_refused_on_the_wall_clock(make):
    node, now_ns = make(), time.time_ns()
    for accepted in (0, now_ns - 10**6 * SECOND, now_ns + round(0.9 * AHEAD_S * SECOND)):
        node.check_stamp(stamped(accepted))
    with pytest.raises(InvalidInputError, match=r"stamp 1000000.* s ahead of this node's clock"):
        node.check_stamp(stamped(now_ns + 10**6 * SECOND))
    node.check_stamp(Bool())  # has none
    for recorded in (DiagnosticArray, Experience):  # by another machine's clock, or before the clock was set back
        node.check_stamp(recorded(header=messages.header(now_ns + 10**6 * SECOND)))


def test_half_a_surrogate_pair_in_an_error_ends_nothing(make):
    node = make()
    for error in (InvalidInputError("label '\ud800'"), ValueError("\udfff")):
        node.report("scene", error)
        node.health.note("said", "\ud800")
        node.publish_diagnostics()
    condition = node.health.condition("active")
    assert condition.message == "scene: ValueError: ?" and condition.values["said"] == "?"


def test_before_the_first_clock_of_a_simulation_no_stamp_is_of_the_future(make):
    make("-p", "use_sim_time:=true").check_stamp(stamped(500 * SECOND))


def test_a_node_whose_worker_hangs_is_not_simply_active(make, monkeypatch):
    monkeypatch.setattr(base, "STUCK_S", 0.05)
    node, go_on = make(), threading.Event()
    worker = node.worker("detector", lambda item: go_on.wait(60), capacity=4)
    node.publish_diagnostics()
    assert node.health.condition(node.state).message == "active"
    worker.put(1)
    worker.put(2)
    time.sleep(0.2)
    node.publish_diagnostics()
    condition = node.health.condition(node.state)
    assert condition.level == "warn" and condition.message.endswith("1 wait")
    assert condition.message.startswith("detector: busy with one item for 0 s")
    go_on.set()


def test_nobody_on_the_network_changes_what_time_it_is(make):
    node = make()
    (result,) = node.set_parameters([Parameter("use_sim_time", value=True)])
    assert (result.successful, result.reason) == (False, "use_sim_time is read at the start: set it at launch")
    assert node.get_parameter("use_sim_time").value is False


def test_a_callback_may_take_the_message_alone_or_with_its_writer(make):
    node, heard = make(), []

    class Reader:
        def alone(self, msg):
            heard.append((msg.data,))

        def with_info(self, msg, info):
            heard.append((msg.data, len(info["publisher_gid"]["data"]) > 0))

    node.subscribe(Bool, "told", Reader().alone, qos.LATCHED)
    node.subscribe(Bool, "told", Reader().with_info, qos.LATCHED)
    node.create_publisher(Bool, "told", qos.LATCHED).publish(Bool(data=True))
    executor = KeptExecutor(on_error=node.report, context=node.context)
    executor.add_node(node)
    end = time.monotonic() + 60
    while len(heard) < 2 and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    executor.shutdown()
    assert sorted(heard, key=len) == [(True,), (True, True)]


def test_calls_that_make_no_sense_are_answered(make):
    """rclpy's own service for parameters raises for a type that does not exist, and left the caller waiting."""
    node, asking = make(), []
    executor = KeptExecutor(on_error=node.report, context=node.context)
    executor.add_node(node)
    nonsense = ParameterValue(type=99)
    for kind, name, request in (
        (ChangeState, "change_state", ChangeState.Request(transition=Transition(id=200))),
        (SetParameters, "set_parameters", SetParameters.Request(parameters=[ParameterMsg(value=nonsense)])),
    ):
        client = node.create_client(kind, f"small_node/{name}")
        end = time.monotonic() + 60
        while not client.service_is_ready() and time.monotonic() < end:
            executor.spin_once(timeout_sec=0.05)
        asking.append(client.call_async(request))
    while not all(answer.done() for answer in asking) and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    executor.shutdown()
    transition, parameters = (answer.result() for answer in asking)
    assert not transition.success and list(parameters.results) == []
    assert node.health.condition("active").values["problems small_node/set_parameters"] == "1"
