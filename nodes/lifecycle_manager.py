"""Brings the lifecycle nodes up: configures them side by side, activates them in order, watches, heals, reports.

The same node does it under ``ros2 launch`` and under ``engram up``. As in nav2, a node that was restarted comes back
unconfigured and is brought up again; the others go on meanwhile. Services (std_srvs/Trigger): ``~/startup``,
``~/pause``, ``~/shutdown``, ``~/is_active``.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import traceback

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_srvs.srv import Trigger

from engram.core.errors import EXIT_MISCONFIGURED, EngramError
from engram.nodes import messages, qos
from engram.nodes.executor import KeptExecutor
from engram.nodes.lifecycle_requests import ServiceRequests
from engram.nodes.params import check_unknown, declare
from engram.nodes.process import DESTROY_S
from engram.runtime import own_process
from engram.runtime.health import TOPIC
from engram.runtime.node_set import NodeSet
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig


class LifecycleManager(Node):
    """Gives a :class:`NodeSet` its parameters, its clients and its services, and tells how the nodes are."""

    def __init__(self) -> None:
        super().__init__("lifecycle_manager")
        config = declare(self, LifecycleManagerConfig)
        check_unknown(self)
        self.managed = NodeSet(config, lambda name: ServiceRequests(self, name), self.get_logger())
        self._diagnostics = self.create_publisher(DiagnosticArray, TOPIC, qos.DIAGNOSTICS)
        self.create_service(Trigger, "~/startup", lambda _, r: self._drive("active", r))
        self.create_service(Trigger, "~/pause", lambda _, r: self._drive("inactive", r))
        self.create_service(Trigger, "~/shutdown", lambda _, r: self._drive("unconfigured", r))
        self.create_service(Trigger, "~/is_active", self._is_active)

    def report(self, name: str, error: Exception) -> None:
        """Log what a callback raised; the manager goes on."""
        text = "".join(traceback.format_exception(error))
        self.get_logger().error(f"{name}: {text}", throttle_duration_sec=5.0)

    def _drive(self, goal: str, response: Trigger.Response) -> Trigger.Response:
        self.managed.drive(goal)
        response.success, response.message = True, f"goal is {goal}; {self.managed.summary()}"
        return response

    def _is_active(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = self.managed.active, self.managed.summary()
        return response

    def publish_diagnostics(self) -> None:
        """Publish the state of every managed node."""
        name, condition = self.get_fully_qualified_name(), self.managed.condition()
        stamp_ns = self.get_clock().now().nanoseconds
        self._diagnostics.publish(messages.condition_to_msg(name, condition, stamp_ns))


def main() -> int:
    """Run the node."""
    status = 0
    manager: LifecycleManager | None = None
    signal.signal(signal.SIGINT, own_process.interrupt_once)  # rclpy's own handler calls it
    try:
        rclpy.init()
        manager = LifecycleManager()
        executor = KeptExecutor(on_error=manager.report)
        executor.add_node(manager)
        published = 0.0
        with own_process.finishing_callbacks():
            while rclpy.ok() and not own_process.interrupted():
                executor.spin_once(timeout_sec=0.1)
                manager.managed.tick()
                if time.monotonic() - published >= 1.0:
                    published = time.monotonic()
                    manager.publish_diagnostics()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except EngramError as error:
        print(f"error: {error}", file=sys.stderr)
        status = EXIT_MISCONFIGURED
    except Exception:
        if rclpy.ok():  # else it was publishing while the context was ended
            raise
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the signal that ended the context may reach Python only now
            own_process.ignore_signals()
        own_process.ignore_signals()
        with own_process.ending_within(DESTROY_S, status):
            if manager is not None:
                manager.destroy_node()
            rclpy.try_shutdown()
        own_process.ignore_signals()  # rclpy has just put back the handlers that it found
    return status


if __name__ == "__main__":
    sys.exit(main())
