"""What one message costs in a node of ours under either executor: CPU of the thread that spins.

One process, one lifecycle node with its services, parameters and diagnostics, as every node of ours has. A message is
published, then the executor is asked until it was heard. The two executors take turns, block by block.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Int32

from engram.nodes.base import EngramNode
from engram.nodes.executor import KeptExecutor

SUBSCRIPTIONS = 8
"""Topics that the node listens to, as the policy node does; one of them is published to."""
LIMIT_S = 60.0


class Listener(EngramNode):
    """Takes in what is published and does nothing with it."""

    def __init__(self, name: str, context: rclpy.Context) -> None:
        super().__init__(name, context=context)
        self.heard = 0
        self.numbers = self.create_publisher(Int32, "numbers", 10)

    def start(self) -> None:
        """Subscribe."""
        for index in range(SUBSCRIPTIONS):
            topic = "numbers" if index == 0 else f"numbers_{index}"
            self.create_subscription(Int32, topic, self._on_number, 10)

    def _on_number(self, msg: Int32) -> None:
        self.heard += 1


def message_ms(arms: Sequence[str], blocks: int, messages: int) -> dict[str, list[np.ndarray]]:
    """Return for each executor one array (messages,) a block: CPU time [ms] from spinning to having heard."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=rclpy.SignalHandlerOptions.NO)
    made: dict[str, tuple[SingleThreadedExecutor, Listener]] = {}
    for arm in arms:
        node = Listener(f"listener_{arm}", context)
        executor = (SingleThreadedExecutor if arm == "rclpy" else KeptExecutor)(context=context)
        executor.add_node(node)
        node.trigger_configure()
        node.trigger_activate()
        made[arm] = executor, node
    measured: dict[str, list[np.ndarray]] = {arm: [] for arm in arms}
    for block in range(blocks + 1):  # the first is thrown away: caches, discovery
        for arm in arms if block % 2 == 0 else reversed(arms):
            took = np.array([_one(*made[arm]) for _ in range(messages)])
            if block:
                measured[arm].append(took)
    for executor, node in made.values():
        executor.shutdown()
        node.close()
        node.destroy_node()
    rclpy.try_shutdown(context=context)
    return measured


def _one(executor: SingleThreadedExecutor, node: Listener) -> float:
    """Return the thread's CPU time [ms] for one message."""
    heard, end = node.heard, time.monotonic() + LIMIT_S
    node.numbers.publish(Int32(data=heard))
    time.sleep(0.001)  # it arrives on a thread of the middleware's
    begun = time.thread_time_ns()
    while node.heard == heard:
        if time.monotonic() > end:
            raise TimeoutError(f"{node.get_name()}: a message was not heard within {LIMIT_S:g} s")
        executor.spin_once(timeout_sec=1.0)
    return (time.thread_time_ns() - begun) / 1e6
