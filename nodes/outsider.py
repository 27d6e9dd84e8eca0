"""Joins a running node set from outside and asks its services, over its public interface only.

One thread: every wait spins the client and calls ``idle`` (a supervisor's step, a progress bar).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import rclpy
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from engram.nodes import qos
from engram.nodes.claims import hear_bound
from engram.nodes.executor import KeptExecutor
from engram.runtime.asking import STOPPED, ask_again
from engram.runtime.episode_report import LoopError
from engram.runtime.health import Health

AGAIN_S = 3.0
"""How long to wait for an answer before the request is sent again [s]."""


class Outsider:
    """A ROS node of its own context, so that several domains can be joined from one process.

    A server that has not discovered a client yet waits 0.1 s for it, then drops its answer for good (rmw_fastrtps). So
    requests that may be carried out twice are sent again; before the others, the server's node is greeted.
    """

    def __init__(
        self, name: str, namespace: str = "", domain: int | None = None, idle: Callable[[], object] = lambda: None
    ) -> None:
        self.idle = idle
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain, signal_handler_options=rclpy.SignalHandlerOptions.NO)
        self.node = Node(name, namespace=namespace, context=self._context)
        self._executor = KeptExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._greetings: dict[str, Client] = {}

    def _will_greet(self, names: Sequence[str]) -> None:
        """Make ready to greet the nodes ``names``, after all clients: who answers it has discovered those, too."""
        self._greetings |= {n: self.node.create_client(GetParameters, f"{n}/get_parameters") for n in names}

    def spin(self, seconds: float) -> None:
        """Take in messages for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._once()

    def _once(self) -> None:
        self._executor.spin_once(timeout_sec=0.05)
        self.idle()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Spin until ``condition`` holds; raises LoopError naming ``what`` after ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while not condition():
            if not time.monotonic() <= end:  # nor for a time that is no number
                raise LoopError(f"{what}: not within {timeout_s:g} s")
            self._once()

    def _answer(self, future: Future, timeout_s: float, what: str) -> Any:
        self.wait_for(future.done, timeout_s, what)
        if (result := future.result()) is None:
            raise LoopError(f"{what}: no answer")
        return result

    def _ask(self, client: Client, request: Any, timeout_s: float, what: str) -> Any:
        """Return the answer to ``request``, which is sent again while there is none."""
        send = partial(client.call_async, request)
        return ask_again(send, self._answer, client.remove_pending_request, AGAIN_S, timeout_s, what)

    def _greet(self, name: str, timeout_s: float) -> None:
        """Wait until the node ``name``, whose other services are there, has discovered us."""
        greeting = self._greetings[name]
        try:
            # this service is found last: it may be on its way
            self.wait_for(greeting.service_is_ready, min(AGAIN_S, timeout_s), name)
        except LoopError:
            return  # the node goes by another name
        self._ask(greeting, GetParameters.Request(), timeout_s, f"{name}/get_parameters")

    def trigger(self, service: str, timeout_s: float) -> tuple[bool, str]:
        """Call a Trigger ``service`` until it answers, and return whether it succeeded and what it said."""
        client: Client = self.node.create_client(Trigger, service)
        end = time.monotonic() + timeout_s
        self.wait_for(client.service_is_ready, timeout_s, f"service {service}")
        answer = self._ask(client, Trigger.Request(), end - time.monotonic(), service)
        self.node.destroy_client(client)
        return answer.success, answer.message

    def hear_stopped(self, hear: Callable[[bool], None]) -> Health:
        """Tell ``hear`` whether a stop is latched, as the safety node itself says; returns where others are named."""
        health = Health()
        hear_bound(self.node, health, ("safety_node",), Bool, STOPPED, lambda msg: hear(msg.data), qos.LATCHED)
        return health

    def close(self) -> None:
        """Leave the graph at once: a participant ends with its last entity, and a node does not end action clients."""
        self._executor.shutdown()
        waitables: list[Any] = list(self.node.waitables)
        for waitable in waitables:
            waitable.destroy()
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)
