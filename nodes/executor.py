"""rclpy's single-threaded executor with a wait set that is kept.

rclpy 9 builds the list of everything it can wait for anew before each wait, takes its locks, and wakes itself once
more after every callback: some 0.6 ms of CPU a message for a node of ours, which has about sixty entities. Here the
list is kept while it stays the same, every ready subscription is served after one wait and then once more until none
has a message (asking all costs a fifth of a wait), and nothing wakes itself.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor, await_or_execute
from rclpy.subscription import Subscription
from rclpy.utilities import timeout_sec_to_nsec

from engram.nodes.wait_set import KINDS, WaitedFor, entities_of, gather

EVENTS_PERIOD_S = 1.0
"""Time between two looks for QoS events (an incompatible or a lost peer); they only make warnings [s]."""
ROUNDS = 16
"""How often subscriptions are asked for more messages at most before timers and services have their turn."""


class KeptExecutor(SingleThreadedExecutor):
    """Runs callbacks in the thread that calls :meth:`spin`, like its parent, at a third of the cost a message.

    Args:
        on_error: takes what a callback raised, and the name of its topic, service or kind. It is the one guard of all
            callbacks: those of subscriptions, timers, services, actions, futures and coroutines, rclpy's own for the
            clock and for parameters included. Without it, spinning raises the error, as in the parent.
    """

    def __init__(self, on_error: Callable[[str, Exception], None] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._on_error = on_error
        self._waited: WaitedFor | None = None
        self._events_at = 0.0  # monotonic s
        self._asleep: Any = None  # the newest task, once it was called and waits for something
        self._take: dict[str, Callable[[Any], Any]] = {
            "subscription": self._take_subscription,
            "guard_condition": self._take_guard_condition,
            "timer": self._take_timer,
            "client": self._take_client,
            "service": self._take_service,
        }

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Stop, and let go of everything that was waited for."""
        self._release()
        return super().shutdown(timeout_sec)

    def _spin_once_impl(self, timeout_sec: Any = None, wait_condition: Callable[[], bool] = lambda: False) -> None:
        """Go on with coroutines, wait once, then call every callback that is ready."""
        self._run_tasks()
        if self._is_shutdown or wait_condition():
            return
        seconds = getattr(timeout_sec, "timeout", timeout_sec)
        try:
            self._wait_and_call(timeout_sec_to_nsec(seconds))
        except ShutdownException:
            return

    # -- coroutines ----------------------------------------------------------------------------------------------

    def _run_tasks(self) -> None:
        """If there is a new task, call every one that is not done; again when one is, for another may wait for it.

        Without a new one nothing has happened that a coroutine could have waited for: a future that is set calls
        back in a task of its own, and so do clients, services and timers.
        """
        progress = bool(self._tasks) and self._tasks[-1][0] is not self._asleep
        while progress:
            progress = False
            with self._tasks_lock:
                tasks = [task for task, _, _ in self._tasks]
            for task in tasks:
                if not (task.executing() or task.done()):
                    task()
                    progress = progress or task.done()
            with self._tasks_lock:
                self._tasks = [t for t in self._tasks if not (t[0].done() or t[0].cancelled())]
                newest = self._tasks[-1][0] if self._tasks else None
                self._asleep = newest if newest in tasks else None
            for task in tasks:
                error = task.exception() if task.done() else None
                if error is not None:
                    self._failed("callback", error)

    def _failed(self, name: str, error: Exception) -> None:
        """Hand over what a callback raised, so that whatever else is ready gets its turn."""
        if self._on_error is None or self._is_shutdown or not self._context.ok():
            raise error
        self._on_error(name, error)

    # -- one wait ------------------------------------------------------------------------------------------------

    def _wait_and_call(self, timeout_ns: int) -> None:
        waited = self._what_to_wait_for()
        closed = {id(e.callback_group) for e in waited.groups if not e.callback_group.can_execute(e)}
        wait_set, with_events = self._fill(waited, closed)
        wait_set.wait(timeout_ns)
        if self._is_shutdown:
            raise ShutdownException
        if not self._context.ok():
            raise ExternalShutdownException
        ready = {kind: wait_set.get_ready_entities(kind) for kind in KINDS}
        looked_at = [*waited.waitables, *(waited.events if with_events else ())]
        ready_waitables = [w for w in looked_at if self._open(w, closed) and w.is_ready(wait_set)]
        for kind in KINDS:
            for pointer in ready[kind]:
                entity = waited.by_pointer[kind].get(pointer)  # the executor's own guard conditions are not in there
                if entity is not None and self._open(entity, closed):
                    self._call(kind, entity, waited.nodes[id(entity)])
        for waitable in ready_waitables:
            self._make_handler(waitable, waited.nodes[id(waitable)], self._guarded(self._take_waitable, "action"))
        self._run_tasks()
        if ready["subscription"]:
            self._call_until_empty(waited)

    def _call_until_empty(self, waited: WaitedFor) -> None:
        """Serve what came meanwhile: the messages of one control step come within less than their callbacks take."""
        for _ in range(ROUNDS):
            taken = [
                self._take_and_call(entity)
                for entity in waited.by_kind["subscription"]
                if entity.callback_group.can_execute(entity) and not inspect.iscoroutinefunction(entity.callback)
            ]
            self._run_tasks()
            if not any(taken):
                return

    def _call(self, kind: str, entity: Any, node: Any) -> None:
        if kind == "timer" and not entity.handle.is_timer_ready():
            return
        if kind != "subscription" or inspect.iscoroutinefunction(entity.callback):
            name = getattr(entity, "srv_name", kind)
            self._make_handler(entity, node, self._guarded(self._take[kind], name))  # a task; _run_tasks calls it
            return
        self._take_and_call(entity)

    def _guarded(self, take: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        """Wrap ``take``: in rclpy, what it raises would leave the entity's callback group closed for good."""

        def call(entity: Any) -> Any:
            try:
                return take(entity)
            except Exception as error:
                self._failed(name, error)
                return None

        return call

    def _take_service(self, srv: Any) -> Callable[[], Any] | None:
        """Take a request. It is answered in any case: where the callback raises, with a response without content."""
        try:
            with srv.handle:
                request, header = srv.handle.service_take_request(srv.srv_type.Request)
        except InvalidHandle:  # an earlier callback has destroyed it
            return None

        async def answer() -> None:
            if header is None:
                return
            try:
                response = await await_or_execute(srv.callback, request, srv.srv_type.Response())
            except Exception as error:
                self._failed(srv.srv_name, error)
                response = srv.srv_type.Response()
            srv.send_response(response, header)

        return answer

    def _take_and_call(self, entity: Any) -> bool:
        """Hand over the next message of a subscription; tells whether there was one."""
        try:
            with entity.handle:
                taken = entity.handle.take_message(entity.msg_type, entity.raw)
            if taken is not None:
                message_only = entity._callback_type is Subscription.CallbackType.MessageOnly
                entity.callback(*(taken[:1] if message_only else taken))
            return taken is not None
        except InvalidHandle:  # an earlier callback has destroyed it
            return False
        except Exception as error:
            self._failed(entity.topic_name, error)
            return False

    @staticmethod
    def _open(entity: Any, closed: set[int]) -> bool:
        """Whether no coroutine of the entity's mutually exclusive group is under way."""
        return id(entity.callback_group) not in closed

    def _fill(self, waited: WaitedFor, closed: set[int]) -> tuple[Any, bool]:
        """Put everything into the wait set, as a wait takes out what is not ready; tells whether events are in it."""
        wait_set = waited.wait_set
        wait_set.clear_entities()
        for kind in KINDS:
            add = getattr(wait_set, f"add_{kind}")
            for entity in waited.by_kind[kind]:
                if not closed or self._open(entity, closed):
                    add(entity.handle)
        for guard in (self._guard, self._sigint_gc):
            if guard is not None:
                wait_set.add_guard_condition(guard.handle)
        now = time.monotonic()
        with_events = now - self._events_at > EVENTS_PERIOD_S
        if with_events:
            self._events_at = now
        for waitable in (*waited.waitables, *(waited.events if with_events else ())):
            waitable.add_to_wait_set(wait_set)
        return wait_set, with_events

    # -- what there is to wait for -------------------------------------------------------------------------------

    def _what_to_wait_for(self) -> WaitedFor:
        nodes = self.get_nodes()
        entities = entities_of(nodes)
        if self._waited is None or self._waited.entities != entities:
            self._release()
            self._waited = gather(nodes, entities, self._context)
        return self._waited

    def _release(self) -> None:
        if self._waited is not None:
            self._waited.held.close()
        self._waited = None
