"""What perception saw in, the robot's memory out: graph changes, context for the policy, answers.

One worker thread owns the memory and its store, because the memory takes one caller at a time. Commits are grouped;
a restart goes on from the last one. Changes carry a sequence number under a boot id: a reader that misses one, or
sees a new boot id, asks ``memory/get_graph`` for everything.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from engram.core.contracts import Memory, MemoryQuery
from engram.core.types import SceneObservation
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode, NodeConfig, run
from engram.nodes.factories import make_memory
from engram.nodes.memory_answers import answer_query
from engram.nodes.params import param
from engram_interfaces.msg import MemoryContext, SceneGraphUpdate, TaskStatus
from engram_interfaces.msg import SceneObservation as SceneObservationMsg
from engram_interfaces.srv import GetGraph, MemoryRecall
from engram_interfaces.srv import MemoryQuery as MemoryQuerySrv


@dataclass(frozen=True)
class MemoryNodeConfig(NodeConfig):
    """Parameters of the memory node."""

    memory: str = "graph"
    """Memory: graph, or package.module:factory of your own."""
    store: str = "~/.local/share/engram/{robot_id}/memory"
    """Folder of the store; "{robot_id}" is filled in; empty: nothing survives a restart."""
    commit_period_s: float = param(1.0, 0.05, 3600.0)
    """Time between two group commits [s]: at most so much is lost in a crash."""
    query_limit: int = param(5, 1, 1000)
    """Nodes in an answer when the question does not say."""


class MemoryNode(EngramNode):
    """Feeds the memory and publishes what changed in it."""

    config_class = MemoryNodeConfig

    def __init__(self) -> None:
        super().__init__("memory_node")

    def setup(self) -> None:
        """Open the memory; its last durable state is there again."""
        folder = self.config.store.replace("{robot_id}", self.config.robot_id)
        self.memory: Memory
        self.memory, self.close_store = make_memory(self.config.memory, Path(folder).expanduser() if folder else None)
        self.boot_id = uuid.uuid4().hex
        self.statuses: dict[int, messages.EpisodeStatus] = {}  # the last ones, by stamp
        self.scene_ns = self.context_ns = -1  # newest scene taken in; newest scene with a context
        self.durable = self.changed = self.memory.graph().sequence
        self.deltas = self.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
        self.contexts = self.create_publisher(MemoryContext, "memory/context", qos.COMMAND)

    def start(self) -> None:
        """Listen to perception and offer the services."""
        self.thread = self.worker("memory", lambda job: job(), capacity=256)
        self.subscribe(SceneObservationMsg, "scene/observation", self._on_scene, qos.EVENTS)
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        self.serve(MemoryQuerySrv, "memory/query", self._on_query)
        self.serve(MemoryRecall, "memory/recall", self._on_recall)
        self.serve(GetGraph, "memory/get_graph", self._on_get_graph)
        self.every(self.config.commit_period_s, lambda: self.thread.put(self._commit), "commit")
        self.thread.put(self._publish_all)

    def stop(self) -> None:
        """Make what is known durable."""
        self.thread.stop(30.0)
        self._commit()

    def teardown(self) -> None:
        """Close the store."""
        self.close_store()

    # -- the worker's thread -------------------------------------------------------------------------------------

    def _take_in(self, scene: SceneObservation, received_s: float) -> None:
        with self.health.timed("update"):
            update = self.memory.update(scene)
        if update.nodes or update.edges or update.deleted_nodes or update.deleted_edges:
            self.deltas.publish(messages.graph_to_msg(update, self.boot_id))
            self.changed = update.sequence
        self.scene_ns = scene.stamp_ns
        self._publish_context()
        self.health.seconds("scene to memory", time.monotonic() - received_s)

    def _publish_context(self) -> None:
        """Publish what matters for the instruction, once a scene; in lock-step with the words of that very step."""
        stamp_ns = self.scene_ns
        newest = next(reversed(self.statuses.values()), None)
        status = self.statuses.get(stamp_ns) if self.config.lockstep else newest
        if status is None or not status.instruction or stamp_ns == self.context_ns:
            return
        with self.health.timed("context"):
            tokens = self.memory.context(status.instruction, stamp_ns)
        self.contexts.publish(messages.tokens_to_msg(tokens))
        self.context_ns = stamp_ns
        self.health.trace("context sent", stamp_ns)

    def _publish_all(self) -> None:
        self.deltas.publish(messages.graph_to_msg(self.memory.graph(), self.boot_id))

    def _commit(self) -> None:
        if self.changed != self.durable:
            with self.health.timed("commit"):
                self.memory.commit()
            self.durable = self.changed
            self.health.count("commits")

    # -- topics and services -------------------------------------------------------------------------------------

    def _on_status(self, msg: TaskStatus) -> None:
        status = messages.status_from_msg(msg)
        self.thread.put(lambda: self._take_status(status))

    def _take_status(self, status: messages.EpisodeStatus) -> None:
        self.statuses[status.stamp_ns] = status
        while len(self.statuses) > 64:
            del self.statuses[next(iter(self.statuses))]
        if self.config.lockstep:  # the scene of this step may have been there first
            self._publish_context()

    def _on_scene(self, msg: SceneObservationMsg) -> None:
        scene = messages.scene_from_msg(msg)
        self.health.count("scenes")
        received_s = time.monotonic()
        self.thread.put(lambda: self._take_in(scene, received_s))

    async def _in_worker(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` gives when the memory's thread ran it."""
        answered = self.promise()

        def job() -> None:
            try:
                answered.set_result(work())
            except Exception as error:
                answered.set_exception(error)

        self.thread.put(job)
        return await answered

    async def _on_query(
        self, request: MemoryQuerySrv.Request, response: MemoryQuerySrv.Response
    ) -> MemoryQuerySrv.Response:
        place = messages.xyz(request.place) if request.use_place else None
        radius = request.radius if request.radius > 0 else float("inf")
        query = MemoryQuery(request.text, place, radius, request.limit or self.config.query_limit)
        try:
            return await self._in_worker(lambda: answer_query(self.memory, query, request.near, response))
        except Exception as error:
            self.report("memory/query", error)
            response.answer = f"no answer: {error}"
            return response

    async def _on_recall(self, request: MemoryRecall.Request, response: MemoryRecall.Response) -> MemoryRecall.Response:
        stamp_ns = self.get_clock().now().nanoseconds
        try:
            tokens = await self._in_worker(lambda: self.memory.context(request.instruction, stamp_ns))
            response.context = messages.tokens_to_msg(messages.first_tokens(tokens, request.limit))
        except Exception as error:
            self.report("memory/recall", error)
        return response

    async def _on_get_graph(self, request: GetGraph.Request, response: GetGraph.Response) -> GetGraph.Response:
        if messages.from_stamp(request.at):
            self.report("memory/get_graph", ValueError("at: only 0 (now) is known to this memory"))
        graph = await self._in_worker(self.memory.graph)
        response.graph = messages.graph_to_msg(graph, self.boot_id)
        return response

    def add_diagnostics(self) -> None:
        """Show what is durable."""
        if self.state == "active":
            self.health.note("sequence", str(self.changed))
            self.health.note("durable sequence", str(self.durable))


def main() -> NoReturn:
    """Run the node."""
    run(MemoryNode)


if __name__ == "__main__":
    main()
