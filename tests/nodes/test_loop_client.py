"""What the client asks of a node set, against small nodes of this test."""

import os
import threading

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import SetParametersResult
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from engram.nodes import qos
from engram.nodes.loop_client import LoopClient
from engram.runtime.episode_report import LoopError
from engram.runtime.policy_notes import POLICY_READY, describe_driver

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


@pytest.fixture
def driven():
    domain, context = int(os.environ["ROS_DOMAIN_ID"]), rclpy.Context()
    rclpy.init(context=context, domain_id=domain, signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node, executor = Driven(context), SingleThreadedExecutor(context=context)
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
