"""A node of your own: publishes the robot's success rate over its last episodes.

    engram up sim extra_node:=examples.node:SuccessRate task:=reach
    ros2 topic echo /success_rate

A subclass of EngramNode has a lifecycle, typed parameters and diagnostics, and the lifecycle manager brings it up with
our nodes. Its parameters stand in the launch file's params_file under /**/extra_node. A plain rclpy node works, too:
name its main function instead.
"""

from collections import deque
from dataclasses import dataclass

from std_msgs.msg import Float32

from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.runtime.parameters import NodeConfig, param
from engram_interfaces.msg import TaskStatus


@dataclass(frozen=True)
class SuccessRateConfig(NodeConfig):
    """Parameters."""

    episodes: int = param(20, 1, 1000)
    """How many of the newest episodes count."""


class SuccessRate(EngramNode):
    """Counts how episodes end."""

    config_class = SuccessRateConfig

    def __init__(self) -> None:
        super().__init__("success_rate")

    def setup(self) -> None:
        """Build what does not depend on others: called once, when the node is configured."""
        self.results: deque[bool] = deque(maxlen=self.config.episodes)
        self.counted = -1  # number of the last episode that is in the results
        self.rate = self.create_publisher(Float32, "success_rate", qos.LATCHED)

    def start(self) -> None:
        """Subscribe: called when the node is activated."""
        self.subscribe(TaskStatus, "task/status", self.on_status, qos.LATCHED)

    def on_status(self, status: TaskStatus) -> None:
        """Take in what an episode is doing; an error in here becomes a diagnostic and does not end the node."""
        if status.state in ("succeeded", "failed") and status.episode != self.counted:
            self.counted = status.episode
            self.results.append(status.state == "succeeded")
            self.rate.publish(Float32(data=sum(self.results) / len(self.results)))
            self.health.note("success rate", f"{sum(self.results)} of {len(self.results)}")
