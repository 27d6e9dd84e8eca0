"""The services of the memory node: questions, the graph, another robot's memory, what that left undecided."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engram.core.contracts import Memory
from engram.core.errors import InvalidInputError, StaleDataError, StoreError, UnknownNameError
from engram.nodes import messages
from engram.nodes.memory_answers import Asking, answer_query, conflicts, merge, question_from, resolve
from engram.runtime.memory_feed import MemoryFeed
from engram.runtime.worker import Worker
from engram_interfaces.srv import GetGraph, MemoryConflicts, MemoryMerge, MemoryRecall, MemoryResolve
from engram_interfaces.srv import MemoryQuery as MemoryQuerySrv

if TYPE_CHECKING:
    from engram.nodes.base import EngramNode


class MemoryServices:
    """Offers the services for as long as ``node`` is active; each is answered in the memory's thread.

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
        node.serve(MemoryMerge, "memory/merge", self._on_merge)
        node.serve(MemoryConflicts, "memory/conflicts", self._on_conflicts)
        node.serve(MemoryResolve, "memory/resolve", self._on_resolve)
        node.serve(MemoryQuerySrv, "memory/query", self._on_query)
        node.serve(MemoryRecall, "memory/recall", self._on_recall)
        node.serve(GetGraph, "memory/get_graph", self._on_get_graph)

    async def _in_worker(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` gives when the memory's thread ran it.

        Raises:
            StaleDataError: the node is being stopped, and ``work`` was not begun.
        """
        answered = self._node.promise()

        def job() -> None:
            try:
                self._check_running()
                answered.set_result(work())
            except Exception as error:
                answered.set_exception(error)

        self._check_running()
        self._thread.put(job, keep=True)
        return await answered

    def _check_running(self) -> None:
        if self.stopping:
            raise StaleDataError("the memory node is being stopped")

    async def _on_query(
        self, request: MemoryQuerySrv.Request, response: MemoryQuerySrv.Response
    ) -> MemoryQuerySrv.Response:
        config, now_ns = self._node.config, self._node.get_clock().now().nanoseconds
        asking = Asking(now_ns, config.query_limit, config.utc_offset_h)
        try:
            query = question_from(request, asking)
            return await self._in_worker(lambda: answer_query(self._memory, query, response))
        except Exception as error:
            self._node.report("memory/query", error)
            response.answer = f"no answer: {error}"
            return response

    async def _on_recall(self, request: MemoryRecall.Request, response: MemoryRecall.Response) -> MemoryRecall.Response:
        stamp_ns = self._node.get_clock().now().nanoseconds
        try:
            tokens = await self._in_worker(lambda: self._memory.context(request.instruction, stamp_ns))
            first = messages.first_tokens(tokens, request.limit)
            response.context = messages.tokens_to_msg(first, self._node.config.frame)
        except Exception as error:
            self._node.report("memory/recall", error)
        return response

    async def _on_get_graph(self, request: GetGraph.Request, response: GetGraph.Response) -> GetGraph.Response:
        at_ns = messages.from_stamp(request.at) or None
        graph = await self._in_worker(lambda: self._memory.graph(at_ns))
        response.graph = messages.graph_to_msg(graph, self._boot_id, self._node.config.frame)
        return response

    async def _on_merge(self, request: MemoryMerge.Request, response: MemoryMerge.Response) -> MemoryMerge.Response:
        def work() -> MemoryMerge.Response:
            merged = merge(self._memory, request, response)
            self._feed.share(self._memory.graph())
            self._feed.commit(wait=True)
            return merged

        try:
            return await self._in_worker(work)
        except Exception as error:
            self._node.report("memory/merge", error)
            response.status = f"not merged: {error}"
            return response

    async def _on_conflicts(
        self, request: MemoryConflicts.Request, response: MemoryConflicts.Response
    ) -> MemoryConflicts.Response:
        try:
            return await self._in_worker(lambda: conflicts(self._memory, response))
        except Exception as error:
            return self._refused("memory/conflicts", error, response)

    async def _on_resolve(
        self, request: MemoryResolve.Request, response: MemoryResolve.Response
    ) -> MemoryResolve.Response:
        def work() -> MemoryResolve.Response:
            change = resolve(self._memory, request, response)
            self._feed.share(change)  # a sequence without a change is one to follow too
            try:
                self._feed.commit(wait=True)
            except Exception as error:
                raise StoreError(f"{response.reason}; but that is not durable yet: {error}") from error
            response.accepted = True
            return response

        try:
            return await self._in_worker(work)
        except Exception as error:
            return self._refused("memory/resolve", error, response)

    def _refused(self, name: str, error: Exception, response: Any) -> Any:
        """Answer with why not; whoever asked for something that is not there has no problem of ours."""
        if not isinstance(error, InvalidInputError | UnknownNameError):
            self._node.report(name, error)
        response.accepted, response.reason = False, str(error)
        return response
