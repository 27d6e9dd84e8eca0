"""What the client asks of a node set, against small nodes of this test."""

import gc
import os
import threading
import time
from pathlib import Path

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import GetParameters, SetParametersAtomically
from rclpy.action import ActionServer
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from engram.app import cli
from engram.nodes import loop_client, qos
from engram.nodes.loop_client import LoopClient
from engram.runtime.episode_report import LoopError
from engram.runtime.goal_words import Standing
from engram.runtime.health import Condition
from engram.runtime.policy_notes import POLICY_READY, describe_driver
from engram_interfaces.action import ExecuteTask

pytestmark = pytest.mark.ros


class Driven(Node):
    """Takes a policy and a ablation, remembers in which steps, and says what drives."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context)
        self.declare_parameter("policy", "first")
        self.declare_parameter("ablation", "zeroed")
        self.asked: list[dict[str, str]] = []
        self.add_on_set_parameters_callback(self._on_parameters)
        self.told = self.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self.create_timer(0.05, self._tell)

    def _on_parameters(self, changed: list) -> SetParametersResult:
        self.asked.append({p.name: p.value for p in changed})
        return SetParametersResult(successful=self.asked[-1]["policy"] != "refused", reason="for a test")

    def _tell(self) -> None:
        driver = describe_driver(*(self.get_parameter(name).value for name in ("policy", "ablation")))
        values = [KeyValue(key=POLICY_READY, value=driver)]
        self.told.publish(DiagnosticArray(status=[DiagnosticStatus(name="policy_node", values=values)]))


class LateToDiscover(Node):
    """Its first answer of each service is dropped, as rmw_fastrtps does where it has not discovered the client."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context, start_parameter_services=False)
        self.asked: list[str] = []
        self.create_service(GetParameters, "policy_node/get_parameters", self._answer("greeting"))
        self.create_service(Trigger, "stop", self._answer("stop"))
        self.create_service(SetParametersAtomically, "policy_node/set_parameters_atomically", self._answer("policy"))
        ActionServer(self, ExecuteTask, "execute_task", self._execute)
        for service in self.services:
            drop_first(service)

    def _answer(self, name):
        def answer(_, response):
            self.asked.append(name)
            if name == "policy":
                response.result.successful, response.result.reason = False, "for a test"
            return response

        return answer

    def _execute(self, handle):
        self.asked.append("goal")
        handle.succeed()
        return ExecuteTask.Result(outcome="succeeded")


def drop_first(service) -> None:
    send = service.send_response
    left = [lambda *_: None]
    service.send_response = lambda *answer: (left.pop() if left else send)(*answer)


@pytest.fixture(params=[Driven])
def driven(request):
    domain, context = int(os.environ["ROS_DOMAIN_ID"]), rclpy.Context()
    rclpy.init(context=context, domain_id=domain, signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node, executor = request.param(context), SingleThreadedExecutor(context=context)
    executor.add_node(node)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            executor.spin_once(0.1)

    thread = threading.Thread(target=spin)
    thread.start()
    client = LoopClient(domain=domain)
    yield node, client
    ended.set()
    thread.join(10)
    client.close()
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_a_policy_and_its_ablation_change_in_one_step(driven):
    node, client = driven
    client.drive_by("second", "", 60.0)  # a policy without memory would refuse the ablation of the one before
    assert node.asked == [{"policy": "second", "ablation": ""}]
    with pytest.raises(LoopError, match="policy 'refused' was refused: for a test"):
        client.drive_by("refused", "", 60.0)


@pytest.mark.parametrize("driven", [LateToDiscover], indirect=True)
def test_an_answer_that_is_lost_because_the_client_was_not_discovered_yet_is_asked_for_again(driven):
    node, client = driven
    assert client.do("reach", 60.0).outcome == "succeeded"
    # a goal is given once, to a server that has discovered us
    assert node.asked.count("goal") == 1 and node.asked.index("goal") == node.asked.count("greeting") >= 2
    assert client.trigger("stop", 60.0) == (False, "")
    client.diagnostics["policy_node"] = Condition("OK", "")
    with pytest.raises(LoopError, match="was refused: for a test"):
        client.drive_by("second", "", 60.0)
    assert node.asked.count("stop") >= 2 and node.asked.count("policy") >= 2


class Tells(Node):
    """Carries a goal out, and tells how it stands meanwhile."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context)
        self.server = ActionServer(self, ExecuteTask, "execute_task", self._execute)

    def _execute(self, handle):
        now = ExecuteTask.Feedback(step=3, progress=0.25, phase="intervention", policy_version="base-1")
        for _ in range(20):  # the client may not have discovered the feedback yet
            handle.publish_feedback(now)
            time.sleep(0.05)
        handle.succeed()
        return ExecuteTask.Result(outcome="succeeded", reason="judged by memory: it lies there", steps=84)


@pytest.mark.parametrize("driven", [Tells], indirect=True)
def test_who_waits_for_a_goal_is_told_how_it_stands(driven):
    _, client = driven
    told = []
    assert client.do("reach", 60.0, told.append).outcome == "succeeded"
    assert set(told) == {Standing("intervention", 0.25, "base-1")}


@pytest.mark.parametrize("driven", [Tells], indirect=True)
def test_the_command_shows_how_the_goal_stands_and_who_judged_it(driven, capsys):
    assert cli.main(["do", "reach", "--domain", os.environ["ROS_DOMAIN_ID"], "--timeout-s", "60"]) == 0
    out, err = capsys.readouterr()
    assert out == "succeeded after 84 steps (judged by memory: it lies there)\n"
    assert err.endswith(" s: a person drives, progress 25 %\n") and err.count("\n") == 1


class ResultLost(ActionServer):
    """Its first result is lost on the way, as rclpy's is where the client is not discovered yet."""

    lost = 0

    def _send_result_response(self, request_header, future) -> None:
        if self.lost:
            super()._send_result_response(request_header, future)
        self.lost += 1


class LosesResults(Node):
    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context)
        self.server = ResultLost(self, ExecuteTask, "execute_task", self._execute)

    def _execute(self, handle):
        handle.succeed()
        return ExecuteTask.Result(outcome="succeeded")


@pytest.mark.parametrize("driven", [LosesResults], indirect=True)
def test_a_result_that_was_lost_is_asked_for_again(driven, monkeypatch):
    monkeypatch.setattr("engram.nodes.loop_client.GOAL_AGAIN_S", 3.0)
    node, client = driven
    assert client.do("reach", 60.0).outcome == "succeeded" and node.server.lost > 1


class Forgetful(ResultLost):
    """Knows no goal any more when the result is asked for again, as a policy node that was restarted."""

    async def _execute_get_result_request(self, request) -> None:
        if self.lost:
            self._goal_handles.clear()
        await super()._execute_get_result_request(request)


class Forgets(Node):
    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context)
        self.server = Forgetful(self, ExecuteTask, "execute_task", lambda handle: ExecuteTask.Result())


@pytest.mark.parametrize("driven", [Forgets], indirect=True)
def test_a_goal_of_which_a_restarted_policy_node_knows_nothing_is_lost(driven, monkeypatch):
    monkeypatch.setattr("engram.nodes.loop_client.GOAL_AGAIN_S", 3.0)
    with pytest.raises(LoopError, match=r"execute_task 'reach' is lost: the policy node was restarted"):
        driven[1].do("reach", 60.0)


class Swallowing(ActionServer):
    """Takes its first goal and neither answers nor executes it, as rclpy does where its answer could not be sent."""

    swallowed = 0

    async def _execute_goal_request(self, request) -> None:
        if self.swallowed:
            await super()._execute_goal_request(request)
        self.swallowed += 1


class LosesGoals(Node):
    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("policy_node", context=context)
        self.server = Swallowing(self, ExecuteTask, "execute_task", self._execute)

    def _execute(self, handle):
        handle.succeed()
        return ExecuteTask.Result(outcome="succeeded")


@pytest.mark.parametrize("driven", [LosesGoals], indirect=True)
def test_a_goal_that_is_not_answered_is_given_anew(driven, monkeypatch):
    monkeypatch.setattr(loop_client, "GOAL_AGAIN_S", 2.0)
    node, client = driven
    assert client.do("reach", 60.0).outcome == "succeeded"
    assert node.server.swallowed == 2


@pytest.mark.parametrize("driven", [LateToDiscover], indirect=True)
def test_what_is_never_answered_is_named(driven):
    node, client = driven
    for service in node.services:
        service.send_response = lambda *_: None
    client.wait_for(client._execute.server_is_ready, 60.0, "execute_task")
    with pytest.raises(LoopError, match=r"policy_node/get_parameters: not within 10 s"):
        client.do("reach", 10.0)
    assert set(node.asked) == {"greeting"} and len(node.asked) >= 2


@pytest.mark.parametrize("driven", [LateToDiscover], indirect=True)
def test_a_time_that_is_no_number_is_no_time(driven):
    _, client = driven
    with pytest.raises(LoopError, match="never: not within nan s"):
        client.wait_for(lambda: False, float("nan"), "never")
    with pytest.raises(LoopError, match="the nodes are not active after nan s"):
        client.wait_active(float("nan"))


def test_a_client_that_is_closed_leaves_no_participant_behind():
    # those that stay fill the ports that others look at on one machine: after about 30, nodes no longer find each other
    def ports() -> int:
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        ours = {os.readlink(link) for link in links if os.path.lexists(link)}
        lines = Path("/proc/self/net/udp").read_text().splitlines()[1:]
        return sum(f"socket:[{line.split()[9]}]" in ours for line in lines)

    gc.collect()
    gc.disable()  # what only the collector ends is there for as long as it pleases
    try:
        before = ports()
        client = LoopClient(domain=int(os.environ["ROS_DOMAIN_ID"]))
        client.spin(0.1)
        during = ports()
        client.close()
        assert during > before == ports()
    finally:
        gc.enable()
