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

from engram.core.errors import EXIT_MISCONFIGURED, EngramError, InvalidInputError
from engram.nodes import messages, qos
from engram.nodes.executor import KeptExecutor
from engram.nodes.managed_node import ManagedNode
from engram.nodes.params import check_unknown, declare
from engram.runtime import own_process
from engram.runtime.health import ERROR, OK, TOPIC, WARN, Condition
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig


class LifecycleManager(Node):
    """Drives every managed node towards one goal: active, inactive or unconfigured."""

    def __init__(self) -> None:
        super().__init__("lifecycle_manager")
        self.config = declare(self, LifecycleManagerConfig)
        check_unknown(self)
        names = [name for name in self.config.node_names if name]
        optional = [name for name in self.config.optional_names if name]
        if not names or len({*names, *optional}) != len(names) + len(optional):
            known = [*names, *optional]
            raise InvalidInputError(f"parameter 'node_names': {known}, expected at least one name, none twice")
        self.goal = "active" if self.config.autostart else ""
        self.managed = [ManagedNode(self, name, self.config) for name in names]
        self.managed += [ManagedNode(self, name, self.config, optional=True) for name in optional]
        self._was_active = False
        self._ticked = time.monotonic()  # when it last looked at every node
        self._diagnostics = self.create_publisher(DiagnosticArray, TOPIC, qos.DIAGNOSTICS)
        self.create_service(Trigger, "~/startup", lambda _, r: self._set_goal("active", r))
        self.create_service(Trigger, "~/pause", lambda _, r: self._set_goal("inactive", r))
        self.create_service(Trigger, "~/shutdown", lambda _, r: self._set_goal("unconfigured", r))
        self.create_service(Trigger, "~/is_active", self._is_active)

    @property
    def active(self) -> bool:
        """Whether every node is active."""
        return all(m.state == "active" for m in self.managed if not m.not_wanted)

    def report(self, name: str, error: Exception) -> None:
        """Log what a callback raised; the manager goes on."""
        text = "".join(traceback.format_exception(error))
        self.get_logger().error(f"{name}: {text}", throttle_duration_sec=5.0)

    def tick(self) -> None:
        """One look at every node."""
        now = time.monotonic()
        if now - self._ticked > self.config.silent_after_s / 2:  # it was the manager that stood still
            for managed in self.managed:
                managed.heard(now)
        self._ticked = now
        before_active = True
        # what is activated last is deactivated first
        order = self.managed if self.goal in ("active", "") else self.managed[::-1]
        for managed in order:
            managed.watch(now)
            if self.goal:
                managed.advance(self._goal_of(managed), before_active, now)
            before_active = before_active and (managed.state == "active" or managed.failed or managed.not_wanted)
        if self.active != self._was_active:
            self._was_active = self.active
            self.get_logger().info("all nodes are active" if self.active else f"not active any more: {self.summary()}")

    def _goal_of(self, managed: ManagedNode) -> str:
        """Return where to drive a node: the one that moves the robot holds while another one hangs."""
        if managed.name != self.config.motion_node or self.goal != "active":
            return self.goal
        return "inactive" if any(m.hangs for m in self.managed if m is not managed and not m.optional) else "active"

    def summary(self) -> str:
        """Say in one line who is not active, and why."""
        wanted = [m for m in self.managed if not m.not_wanted]
        waiting = [f"{m.name} {m.condition}{': ' + m.note if m.note else ''}" for m in wanted if m.state != "active"]
        count = len(wanted) - len(waiting)
        return f"{count} of {len(wanted)} active" + (f"; {'; '.join(waiting)}" if waiting else "")

    def _set_goal(self, goal: str, response: Trigger.Response) -> Trigger.Response:
        self.goal = goal
        for managed in self.managed:
            managed.attempts = 0
        response.success, response.message = True, f"goal is {goal}; {self.summary()}"
        return response

    def _is_active(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = self.active, self.summary()
        return response

    def publish_diagnostics(self) -> None:
        """Publish the state of every managed node."""
        wanted = [m for m in self.managed if not m.not_wanted]
        gone = any(m.failed or m.state in ("absent", "silent") for m in wanted)
        level = ERROR if gone and self.goal else OK if self.active else WARN
        condition = Condition(level, self.summary(), {m.name: m.condition for m in wanted})
        stamp_ns = self.get_clock().now().nanoseconds
        self._diagnostics.publish(messages.condition_to_msg(self.get_fully_qualified_name(), condition, stamp_ns))


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
        while rclpy.ok():
            executor.spin_once(timeout_sec=0.1)
            manager.tick()
            if time.monotonic() - published >= 1.0:
                published = time.monotonic()
                manager.publish_diagnostics()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except EngramError as error:
        print(f"error: {error}", file=sys.stderr)
        status = EXIT_MISCONFIGURED
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the signal that ended the context may reach Python only now
            own_process.ignore_signals()
        own_process.ignore_signals()
        if manager is not None:
            manager.destroy_node()
        rclpy.try_shutdown()
        own_process.ignore_signals()  # rclpy has just put back the handlers that it found
    return status


if __name__ == "__main__":
    sys.exit(main())
