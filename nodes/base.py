"""What every node has: lifecycle, parameters, diagnostics, guarded callbacks."""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
from collections.abc import Callable
from traceback import format_exception
from typing import Any, ClassVar

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile
from rclpy.task import Future

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError, WeightsError
from engram.nodes import messages, qos
from engram.nodes.params import check_unknown, declare, keep_clock
from engram.runtime.bound_topic import Taker
from engram.runtime.bounds import check_sizes
from engram.runtime.health import DROPS, ERROR, TOPIC, Health, sendable
from engram.runtime.parameters import NodeConfig
from engram.runtime.worker import STUCK_S, Worker
from engram_interfaces.msg import Experience, PolicyManifest

AHEAD_S = 10.0
"""A message whose stamp is farther ahead of the node's clock is refused [s]; in lock-step it may come before /clock."""
LASTING = (InvalidInputError, UnknownNameError, WeightsError)
"""What keeps a node from starting and would do so again: its parameters are read when it starts."""


class EngramNode(LifecycleNode):
    """A lifecycle node that reports problems instead of dying of them.

    Only what its parameters name, and would keep it from starting again and again, ends it: see ``unfit``. Subclasses
    set ``config_class`` (and ``sections``: prefix -> dataclass) and fill in setup, start, stop and teardown.
    """

    config_class: ClassVar[type[NodeConfig]] = NodeConfig
    sections: ClassVar[dict[str, type]] = {}

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.config: Any = self._named(declare(self, self.config_class))
        self.section: dict[str, Any] = {prefix: declare(self, cls, prefix) for prefix, cls in self.sections.items()}
        check_unknown(self)
        keep_clock(self)
        self.health = Health(self.config.trace_file)
        self.state = "unconfigured"
        self.unfit: EngramError | None = None  # why it can never start as it is configured
        self._live: list[tuple[Callable[[Any], bool], Any]] = []  # made by start, destroyed by stop
        self._workers: list[Worker] = []
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.async_group = ReentrantCallbackGroup()
        self._diagnostics = self.create_publisher(DiagnosticArray, TOPIC, qos.DIAGNOSTICS)
        self.create_timer(self.config.diagnostics_period_s, self.publish_diagnostics, clock=self._steady)
        self._lasting = set(self.publishers)  # setup makes the others

    def _named(self, config: NodeConfig) -> NodeConfig:
        """Return ``config`` with the robot's name filled in."""
        named = (config.robot_id or self.get_namespace()).strip("/").replace("/", "_") or "robot0"
        return dataclasses.replace(config, robot_id=named)

    def setup(self) -> None:
        """Build collaborators and publishers (slow things belong here); an EngramError keeps the node inactive."""

    def start(self) -> None:
        """Subscribe, serve, start workers."""

    def stop(self) -> None:
        """Undo what :meth:`start` did beyond subscriptions, services, timers and workers: those are undone here."""

    def teardown(self) -> None:
        """Let go of what :meth:`setup` built."""

    def add_diagnostics(self) -> None:
        """Called before each diagnostic, to bring counters and problems up to date."""

    # -- building blocks -----------------------------------------------------------------------------------------

    def guarded(self, name: str, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``callback``: while inactive it is not called; what it raises becomes a problem called ``name``."""

        @functools.wraps(callback)
        def call(*args: Any) -> Any:
            try:
                return callback(*args) if self.state == "active" else None
            except Exception as error:
                self.report(name, error)
                return None

        return call

    def report(self, key: str, error: Exception) -> None:
        """Turn an exception into a problem: ours in their own words, unexpected ones with their type and a trace."""
        if not self.context.ok():  # a signal ended the context under a worker's feet: no problem of ours
            return
        if isinstance(error, EngramError):
            self.health.problem(key, str(error))
            self.get_logger().warning(sendable(f"{key}: {error}"), throttle_duration_sec=5.0)
        else:
            self.health.problem(key, f"{type(error).__name__}: {error}", ERROR)
            self.get_logger().error(sendable(f"{key}: {''.join(format_exception(error))}"), throttle_duration_sec=5)

    def subscribe(self, msg_type: type, topic: str, callback: Callable[..., None], profile: QoSProfile) -> None:
        """Subscribe for as long as the node is active; too large messages and those from the future are refused."""

        @functools.wraps(callback)  # it may take what rclpy knows of the message's way, too
        def take(msg: Any, *info: Any) -> None:
            if not isinstance(callback, Taker):  # that one asks first who wrote it
                check_sizes(msg)
                self.check_stamp(msg)
            callback(msg, *info)

        subscription = self.create_subscription(msg_type, topic, self.guarded(topic, take), profile)
        self._live.append((self.destroy_subscription, subscription))

    def check_stamp(self, msg: Any) -> None:
        """Raise InvalidInputError for a stamp of the future; before the first /clock none is. Records may have any."""
        header, now_ns = getattr(msg, "header", None), self.get_clock().now().nanoseconds
        ahead_s = (messages.from_stamp(header.stamp) - now_ns) / 1e9 if header is not None else 0.0
        if now_ns and ahead_s > AHEAD_S and not isinstance(msg, (DiagnosticArray, Experience, PolicyManifest)):
            raise InvalidInputError(f"stamp {ahead_s:.1f} s ahead of this node's clock, expected at most {AHEAD_S:g} s")

    def serve(self, srv_type: type, name: str, callback: Callable[[Any, Any], Any]) -> None:
        """Offer a service for as long as the node is active; ``callback`` may be a coroutine."""

        async def call(request: Any, response: Any) -> Any:
            try:
                check_sizes(request)
                answer = callback(request, response)
                return await answer if inspect.isawaitable(answer) else answer
            except Exception as error:
                self.report(name, error)
                return response

        service = self.create_service(srv_type, name, call, callback_group=self.async_group)
        self._live.append((self.destroy_service, service))

    def every(self, period_s: float, callback: Callable[[], None], name: str) -> None:
        """Call ``callback`` every ``period_s`` of wall clock for as long as the node is active."""
        timer = self.create_timer(period_s, self.guarded(name, callback), clock=self._steady)
        self._live.append((self.destroy_timer, timer))

    def worker(self, name: str, handle: Callable[[Any], None], capacity: int) -> Worker:
        """Start a worker thread for as long as the node is active; its errors and drops show in the diagnostics."""
        on_error, on_drop = functools.partial(self.report, name), functools.partial(self.health.count, name + DROPS)
        worker: Worker = Worker(name, handle, capacity=capacity, on_error=on_error, on_drop=on_drop)
        self._workers.append(worker)
        return worker

    def promise(self) -> Future:
        """Return a future that a worker thread may set and a service coroutine may await."""
        future: Future = Future(executor=self.executor)
        # rclpy looks at an awaited future only when it is awake: a done-callback is what wakes it.
        future.add_done_callback(lambda _: None)
        return future

    # -- lifecycle -----------------------------------------------------------------------------------------------

    def _transition(self, name: str, action: Callable[[], None], then: str) -> TransitionCallbackReturn:
        try:
            action()
        except Exception as error:
            self.report(name, error)
            self.get_logger().error(f"{name} failed: {error}")
            if name in ("configure", "activate") and isinstance(error, LASTING):
                self.unfit = error
            return TransitionCallbackReturn.FAILURE
        self.health.clear(name)
        self.state = then
        return TransitionCallbackReturn.SUCCESS

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Build what the node needs."""
        self._undo_setup()  # of an attempt that failed
        return self._transition("configure", self.setup, "inactive")

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start working."""
        super().on_activate(state)
        self.state = "active"
        result = self._transition("activate", self.start, "active")
        if result != TransitionCallbackReturn.SUCCESS:
            self._halt()
            self.state = "inactive"
        gc.freeze()  # a million objects of the libraries stay for good: no collection needs to look at them again
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working, keep what was built."""
        self.state = "inactive"
        result = self._transition("deactivate", self._halt, "inactive")
        super().on_deactivate(state)
        return result

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of what was built."""
        result = self._transition("cleanup", self.teardown, "unconfigured")
        self._undo_setup()
        return result

    def _undo_setup(self) -> None:
        """Destroy the publishers that setup made: a latched one would go on telling what it said last."""
        for publisher in set(self.publishers) - self._lasting:
            self.destroy_publisher(publisher)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working and let go of everything, from any state."""
        return self._transition("shutdown", self.close, "finalized")

    def _halt(self) -> None:
        self.stop()
        for destroy, entity in self._live:
            destroy(entity)
        self._live.clear()
        if not all([worker.stop() for worker in self._workers]):
            self.get_logger().warning("a worker was still busy after 5 s")
        self._workers.clear()

    def close(self) -> None:
        """Leave in order, whatever the state; may be called twice."""
        state, self.state = self.state, "finalized"
        if state == "active":
            self._halt()
        if state in ("active", "inactive"):
            self.teardown()
            self.health.write_trace()

    def destroy_node(self) -> None:
        """Let go of everything in ROS. rclpy 9 forgets the state machine, which keeps the participant and its 64 MB."""
        super().destroy_node()
        self._state_machine.destroy_when_not_in_use()

    def publish_diagnostics(self) -> None:
        """Publish this node's condition."""
        for worker in self._workers:
            if worker.busy_s > STUCK_S:
                self.health.problem(worker.name, f"busy with one item for {worker.busy_s:.0f} s; {len(worker)} wait")
        try:
            self.add_diagnostics()
        except Exception as error:
            self.report("diagnostics", error)
        name, condition = self.get_fully_qualified_name(), self.health.condition(self.state)
        stamp_ns = self.get_clock().now().nanoseconds
        self._diagnostics.publish(messages.condition_to_msg(name, condition, stamp_ns, self.config.robot_id))
