"""Brings the lifecycle nodes up: configures them side by side, activates them in order, watches, heals, reports.

The same node does it under ``ros2 launch`` and under ``engram up``. As in nav2, a node that was restarted comes back
unconfigured and is brought up again; the others go on meanwhile. Services (std_srvs/Trigger): ``~/startup``,
``~/pause``, ``~/shutdown``, ``~/is_active``.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.client import Client
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from std_srvs.srv import Trigger

from engram.core.errors import EXIT_MISCONFIGURED, EngramError, InvalidInputError
from engram.nodes import qos
from engram.nodes.params import check_unknown, declare, param

STATES = {
    State.PRIMARY_STATE_UNCONFIGURED: "unconfigured",
    State.PRIMARY_STATE_INACTIVE: "inactive",
    State.PRIMARY_STATE_ACTIVE: "active",
    State.PRIMARY_STATE_FINALIZED: "finalized",
}
STEPS: dict[str, dict[str, int]] = {
    "active": {"unconfigured": Transition.TRANSITION_CONFIGURE, "inactive": Transition.TRANSITION_ACTIVATE},
    "inactive": {"unconfigured": Transition.TRANSITION_CONFIGURE, "active": Transition.TRANSITION_DEACTIVATE},
    "unconfigured": {"active": Transition.TRANSITION_DEACTIVATE, "inactive": Transition.TRANSITION_CLEANUP},
}
"""Goal -> state now -> the transition that leads there."""
VERBS = {
    Transition.TRANSITION_CONFIGURE: "configure",
    Transition.TRANSITION_ACTIVATE: "activate",
    Transition.TRANSITION_DEACTIVATE: "deactivate",
    Transition.TRANSITION_CLEANUP: "cleanup",
}


@dataclass(frozen=True)
class LifecycleManagerConfig:
    """Parameters of the lifecycle manager."""

    node_names: tuple[str, ...] = ("",)
    """Lifecycle nodes to manage, in the order in which they are activated; relative names."""
    autostart: bool = True
    """Bring the nodes up at start; false: wait for ~/startup."""
    poll_period_s: float = param(0.5, 0.05, 60.0)
    """How often each node is asked for its state [s]."""
    silent_after_s: float = param(10.0, 0.5, 3600.0)
    """A node that did not answer for this long, and is in no transition, is reported as silent [s]."""
    slow_after_s: float = param(120.0, 1.0, 3600.0)
    """A transition that takes longer is reported as slow; the manager goes on waiting for it [s]."""
    max_attempts: int = param(3, 1, 100)
    """How often a transition that fails is tried before the node is left alone; a restarted node starts anew."""
    retry_s: float = param(2.0, 0.0, 600.0)
    """Pause before a failed transition is tried again [s]."""


class ManagedNode:
    """What the manager knows of one node, and the requests on their way to it."""

    def __init__(self, node: Node, name: str, config: LifecycleManagerConfig) -> None:
        self.name = name
        self.config = config
        self.state = "absent"  # one of STATES, absent, silent
        self.attempts = 0  # failed transitions since the last success
        self.note = ""
        self._log = node.get_logger()
        self._get: Client = node.create_client(GetState, f"{name}/get_state")
        self._change: Client = node.create_client(ChangeState, f"{name}/change_state")
        self._asked: tuple[Future, float] | None = None
        self._changing: tuple[Future, float, int] | None = None
        self._unmoved = 0  # answers in a row from before a transition that should have begun
        self._heard = self._polled = self._retry_at = 0.0

    @property
    def changing(self) -> str:
        """The transition under way, or an empty string."""
        return VERBS[self._changing[2]] if self._changing else ""

    @property
    def failed(self) -> bool:
        """Whether the manager has given up on this node."""
        return self.attempts >= self.config.max_attempts

    @property
    def condition(self) -> str:
        """The transition under way, "failed" when given up, else the state."""
        return self.changing or ("failed" if self.failed else self.state)

    def watch(self, now: float) -> None:
        """Ask for the state when it is time, take in the answer."""
        if self._asked is not None:
            future, since = self._asked
            if future.done():
                self._asked = None
                self._take_state(future, since, now)
            elif now - since > self.config.silent_after_s / 2:  # lost, or the node is busy: ask again
                self._get.remove_pending_request(future)
                self._asked = None
        if not self._get.service_is_ready():
            self._lost("absent")
        elif now - self._heard > self.config.silent_after_s and self._changing is None and self._heard > 0:
            self._lost("silent")
        if self._asked is None and now - self._polled >= self.config.poll_period_s and self._get.service_is_ready():
            self._polled = now
            self._asked = (self._get.call_async(GetState.Request()), now)

    def _lost(self, state: str) -> None:
        if self.state not in ("absent", "silent"):
            self._log.warning(f"{self.name} is {state}, it was {self.state}")
            self.attempts = 0
        self.state, self._changing = state, None

    def _take_state(self, future: Future, asked_at: float, now: float) -> None:
        response = future.result()
        self._heard = now
        state = STATES.get(response.current_state.id) if response is not None else None
        if state is None:  # in the middle of a transition
            return
        if self.state in ("active", "inactive") and state == "unconfigured" and not self._changing:
            self._log.warning(f"{self.name} was restarted")
            self.attempts = 0
        before, self.state = self.state, state
        if self._changing is None or state != before or asked_at - self._changing[1] <= 1.0:
            self._unmoved = 0
            return
        self._unmoved += 1
        if self._unmoved > 1:  # a node in a transition does not answer: this one never got the request
            self._changing, self._unmoved = None, 0

    def advance(self, goal: str, may_activate: bool, now: float) -> None:
        """Take the next step towards ``goal``, if one is due."""
        if self._changing is not None:
            self._take_transition(now)
            return
        step = STEPS[goal].get(self.state)
        if step is None or self.failed or now < self._retry_at or not self._change.service_is_ready():
            return
        if step == Transition.TRANSITION_ACTIVATE and not may_activate:
            return
        request = ChangeState.Request()
        request.transition.id = step
        self._changing = (self._change.call_async(request), now, step)

    def _take_transition(self, now: float) -> None:
        assert self._changing is not None
        future, since, step = self._changing
        if not future.done():
            if now - since > self.config.slow_after_s and not self.note:
                self.note = f"{VERBS[step]} takes longer than {self.config.slow_after_s:g} s"
                self._log.warning(f"{self.name}: {self.note}")
            return
        response = future.result()
        self._heard = now
        if response is None or not response.success:
            self._failed(f"{VERBS[step]} failed; the node's own log says why", now)
            return
        self._changing, self.attempts, self.note = None, 0, ""
        self._polled = 0.0  # ask at once
        self.state = {"configure": "inactive", "activate": "active", "deactivate": "inactive"}.get(
            VERBS[step], "unconfigured"
        )
        self._log.info(f"{self.name}: {VERBS[step]} took {now - since:.1f} s, now {self.state}")

    def _failed(self, note: str, now: float) -> None:
        self._changing = None
        self.attempts += 1
        self.note = note
        self._retry_at = now + self.config.retry_s
        last = "; giving up until it is restarted" if self.failed else ""
        self._log.error(f"{self.name}: {note} (attempt {self.attempts} of {self.config.max_attempts}){last}")


class LifecycleManager(Node):
    """Drives every managed node towards one goal: active, inactive or unconfigured."""

    def __init__(self) -> None:
        super().__init__("lifecycle_manager")
        self.config = declare(self, LifecycleManagerConfig)
        check_unknown(self)
        names = [name for name in self.config.node_names if name]
        if not names or len(set(names)) != len(names):
            raise InvalidInputError(f"parameter 'node_names': {names}, expected at least one name, none twice")
        self.goal = "active" if self.config.autostart else ""
        self.managed = [ManagedNode(self, name, self.config) for name in names]
        self._was_active = False
        self._diagnostics = self.create_publisher(DiagnosticArray, "diagnostics", qos.DIAGNOSTICS)
        self.create_service(Trigger, "~/startup", lambda _, r: self._set_goal("active", r))
        self.create_service(Trigger, "~/pause", lambda _, r: self._set_goal("inactive", r))
        self.create_service(Trigger, "~/shutdown", lambda _, r: self._set_goal("unconfigured", r))
        self.create_service(Trigger, "~/is_active", self._is_active)

    @property
    def active(self) -> bool:
        """Whether every node is active."""
        return all(m.state == "active" for m in self.managed)

    def tick(self) -> None:
        """One look at every node."""
        now = time.monotonic()
        before_active = True
        # what is activated last is deactivated first
        order = self.managed if self.goal in ("active", "") else self.managed[::-1]
        for managed in order:
            managed.watch(now)
            if self.goal:
                managed.advance(self.goal, before_active, now)
            before_active = before_active and (managed.state == "active" or managed.failed)
        if self.active != self._was_active:
            self._was_active = self.active
            self.get_logger().info("all nodes are active" if self.active else f"not active any more: {self.summary()}")

    def summary(self) -> str:
        """Say in one line who is not active, and why."""
        waiting = [f"{m.name} {m.condition}{': ' + m.note if m.note else ''}" for m in self.managed]
        waiting = [text for m, text in zip(self.managed, waiting, strict=True) if m.state != "active"]
        count = len(self.managed) - len(waiting)
        return f"{count} of {len(self.managed)} active" + (f"; {'; '.join(waiting)}" if waiting else "")

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
        status = DiagnosticStatus(name=self.get_fully_qualified_name(), message=self.summary())
        gone = any(m.failed or m.state in ("absent", "silent") for m in self.managed)
        status.level = DiagnosticStatus.OK if self.active else DiagnosticStatus.WARN
        if gone and self.goal:
            status.level = DiagnosticStatus.ERROR
        status.values = [KeyValue(key=m.name, value=m.condition) for m in self.managed]
        msg = DiagnosticArray(status=[status])
        msg.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(msg)


def main() -> int:
    """Run the node."""
    status = 0
    manager: LifecycleManager | None = None
    try:
        rclpy.init()
        manager = LifecycleManager()
        executor = SingleThreadedExecutor()
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
        if manager is not None:
            with contextlib.suppress(KeyboardInterrupt):  # launchers send a second SIGINT while we leave
                manager.destroy_node()
        rclpy.try_shutdown()
    return status


if __name__ == "__main__":
    sys.exit(main())
