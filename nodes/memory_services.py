"""The services of the memory node: questions, the graph, another robot's memory, what that left undecided."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from std_srvs.srv import Trigger

from engram.core.contracts import Memory
from engram.core.errors import InvalidInputError, StaleDataError, StoreError, UnknownNameError
from engram.nodes import messages
from engram.nodes.messages import requests
from engram.runtime.memory_feed import MemoryFeed
from engram.runtime.memory_requests import Asking, merge, question_of, resolve, undecided
from engram.runtime.worker import LATER_MAX, Worker
from engram_interfaces.srv import GetGraph, MemoryConflicts, MemoryMerge, MemoryQuery, MemoryResolve

if TYPE_CHECKING:
    from engram.nodes.base import EngramNode


class MemoryServices:
    """Offers the services for as long as ``node`` is active; each is answered in the memory's thread, after what waits
    there of scenes and commits.

    Args:
        node: whose services they are; its parameters say how long answers are.
        memory: what is asked.
        feed: publishes and commits what a service changes.
        thread: the memory's, which calls what it is given.
        boot_id: goes with every graph.
    """

    def __init__(
        self,
        node: EngramNode,
        memory: Memory,
        feed: MemoryFeed,
        thread: Worker[Callable[[], None]],
        boot_id: str,
    ) -> None:
        self._node, self._memory, self._feed = node, memory, feed
        self._thread, self._boot_id = thread, boot_id
        self.stopping = False  # from then on, questions are refused
        self._whole: tuple[int, int, GetGraph.Response] | None = None  # sequence, stamp; for all that wait for it
        self._serve(MemoryQuery, "memory/query", self._query, "answer", "no answer: ")
        self._serve(GetGraph, "memory/get_graph", self._graph)
        self._serve(Trigger, "memory/publish_graph", self._publish, "message", "not published: ")
        self._serve(MemoryMerge, "memory/merge", self._merge, "status", "not merged: ")
        self._serve(MemoryConflicts, "memory/conflicts", self._conflicts, "reason")
        self._serve(MemoryResolve, "memory/resolve", self._resolve, "reason")

    def _serve(self, kind: Any, name: str, answer: Callable[[Any], Any], field: str = "", prefix: str = "") -> None:
        """Offer ``name``, answered by ``answer(request)`` in the memory's thread.

        Args:
            field: of the response, says why there is no answer, after ``prefix``. A client who is told that way that
                it asked for something that does not exist is no problem of the node's.
        """

        async def call(request: Any, _: Any) -> Any:
            try:
                return await self._in_worker(lambda: answer(request))
            except Exception as error:
                if not field or not isinstance(error, InvalidInputError | UnknownNameError):
                    self._node.report(name, error)
                return kind.Response(**({field: f"{prefix}{error}"} if field else {}))

        self._node.serve(kind, name, call)

    async def _in_worker(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` gives when the memory's thread ran it.

        Raises:
            StaleDataError: ``work`` was not begun, as the node is being stopped or too many questions wait.
        """
        answered = self._node.promise()

        def job() -> None:
            try:
                self._check_running()
                answered.set_result(work())
            except Exception as error:
                answered.set_exception(error)
            if not self._thread.later:
                self._whole = None

        self._check_running()
        if not self._thread.put_later(job):
            raise StaleDataError(f"the memory is busy: {LATER_MAX} questions wait, ask again later")
        return await answered

    def _check_running(self) -> None:
        if self.stopping:
            raise StaleDataError("the memory node is being stopped")

    # -- in the memory's thread ------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _query(self, request: MemoryQuery.Request) -> MemoryQuery.Response:
        config = self._node.config
        asking = Asking(self._now_ns(), config.query_limit, config.offset_h)
        return requests.answer_to_msg(self._memory.query(question_of(requests.asked_from_msg(request), asking)))

    def _graph(self, request: GetGraph.Request) -> GetGraph.Response:
        which = self._feed.sequence, messages.from_stamp(request.at)
        if self._whole is None or self._whole[:2] != which:
            graph = messages.graph_to_msg(self._memory.graph(which[1] or None), self._boot_id, self._node.config.frame)
            self._whole = *which, GetGraph.Response(graph=graph)
        return self._whole[2]

    def _publish(self, _: Trigger.Request) -> Trigger.Response:
        wait_s = self._feed.share_full()
        later = f"it was published a moment ago; ask again in {wait_s:.1f} s"
        return Trigger.Response(success=not wait_s, message=later if wait_s else "published")

    def _merge(self, request: MemoryMerge.Request) -> MemoryMerge.Response:
        guess = requests.guess_from_msg(request.transform)
        status, conflicts = merge(self._memory, request.store_path, guess, undo=request.undo)
        graph = self._memory.graph()
        if graph.sequence != self._feed.sequence:
            self._feed.share(graph)
            status = self._not_durable("memory/merge", status) or status
        return MemoryMerge.Response(status=status, conflicts=list(conflicts))

    def _conflicts(self, _: MemoryConflicts.Request) -> MemoryConflicts.Response:
        pairs = [requests.conflict_to_msg(pair) for pair in undecided(self._memory)]
        return MemoryConflicts.Response(accepted=True, conflicts=pairs)

    def _resolve(self, request: MemoryResolve.Request) -> MemoryResolve.Response:
        done = resolve(self._memory, request.action, request.a, request.b, request.merge)
        self._feed.share(done.change)  # a sequence without a change is one to follow too
        why = self._not_durable("memory/resolve", done.reason)
        return MemoryResolve.Response(accepted=not why, reason=why or done.reason, merge=done.merge)

    def _not_durable(self, name: str, done: str) -> str:
        """Commit what ``name`` did; return it, ``done``, and why it is not durable. Empty: it is."""
        try:
            self._feed.commit(wait=True)
        except Exception as error:
            why = f"{done}; but that is not durable yet: {error}"
            self._node.report(name, StoreError(why))
            return why
        return ""
