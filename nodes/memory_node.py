"""What perception saw in, the robot's memory out: graph changes, context for the policy, answers.

One worker thread owns the memory and its store, because the memory takes one caller at a time. While it is busy, only
scenes and chunks may be dropped: joint states are matched to their scene on arrival, tf and commits wait once, and
what a service was asked is answered. Commits are grouped; a restart goes on from the last one. The robot itself is an
agent in the graph: with its configuration as its profile, where it stands by tf, and its skills. Changes carry a
sequence number under a boot id: a reader that misses one, or sees a new boot id, asks ``memory/get_graph`` for
everything. Joint states tell where the hand is, and so what it holds; ``task/status`` tells where episodes begin and
how they end.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sensor_msgs.msg import JointState as JointStateMsg

from engram.core.contracts import Kinematics, Memory
from engram.core.control import hand
from engram.core.errors import EngramError, InvalidInputError, StaleDataError, StoreError, UnknownNameError
from engram.core.geometry import scene_in_frame
from engram.core.registry import make_kinematics, make_robot
from engram.core.types import EpisodeStatus, GraphUpdate, JointState, SceneObservation
from engram.memory.graph.fusion import FusionConfig
from engram.memory.robot_memory import RobotMemory
from engram.nodes import messages, qos
from engram.nodes.assembly import subscribe_transforms
from engram.nodes.base import EngramNode, NodeConfig, run
from engram.nodes.memory_answers import Asking, answer_query, conflicts, merge, query_from, resolve
from engram.nodes.params import param
from engram.runtime.episode_follower import EpisodeFollower
from engram.runtime.factories import Budget, make_memory
from engram.runtime.transforms import TransformBuffer
from engram_interfaces.msg import ActionChunk, MemoryContext, SceneGraphUpdate, TaskStatus
from engram_interfaces.msg import SceneObservation as SceneObservationMsg
from engram_interfaces.srv import GetGraph, MemoryConflicts, MemoryMerge, MemoryRecall, MemoryResolve
from engram_interfaces.srv import MemoryQuery as MemoryQuerySrv


@dataclass(frozen=True)
class MemoryNodeConfig(NodeConfig):
    """Parameters of the memory node."""

    niceness: int = param(5, 0, 19)
    """Stands back for the control path, which takes the newest memory there is; 0 where a policy waits for it."""
    memory: str = "robot"
    """Memory: robot (four stores), graph (the scene graph alone), or package.module:factory of your own."""
    store: str = "~/.local/share/engram/{robot_id}/memory"
    """Folder of the store; "{robot_id}" is filled in; empty: nothing survives a restart."""
    commit_period_s: float = param(1.0, 0.05, 3600.0)
    """Time between two group commits [s]: at most so much is lost in a crash."""
    query_limit: int = param(5, 1, 1000)
    """Nodes in an answer when the question does not say."""
    places: str = ""
    """YAML file of rooms and places: a list of {layer, label, centre, size} [m]; empty: a table in base_link."""
    frame: str = "base_link"
    """Frame of every place: base_link for an arm on its table, map for a robot that drives (tf tells where it is)."""
    map: str = ""
    """Name and version of that map; a store of another map is refused: see `engram memory reanchor`."""
    base_sigma_m: float = param(0.015, 0.0, 10.0)
    """Standard deviation of the robot's place in `frame` [m]: added to that of what it sees from there."""
    robot: str = "panda_2f85"
    """Robot whose joint states tell where the hand is, and whose embodiment profile the graph shows."""
    track_hand: bool = True
    """Know where the hand is, so that things can be held; false: joint states are not listened to."""
    budget_mb: float = param(256.0, 1.0, 65536.0)
    """RAM of the four stores [MB]; above it the oldest facts and events are merged and dropped."""
    disk_mb: float = param(512.0, 8.0, 1048576.0)
    """Files of the store [MB]; near it the older snapshots are deleted."""
    new_belief: float = param(0.1, 0.001, 0.999)
    """Belief in a new object before its first sight is counted: lower where perception errs often."""
    free_ratio: float = param(0.05, 0.001, 0.999)
    """P(missed | there) / P(missed | gone) where the camera saw through its place: lower gives objects up sooner."""
    background_share: float = param(0.05, 0.0, 1.0)
    """Share of one core for the consolidation of habits."""
    utc_offset_h: float = param(0.0, -14.0, 14.0)
    """Local time less UTC [h], for times of day in questions."""


KEPT = 64
"""Statuses and joint states kept while they wait for the scene of their instant."""
MAX_PENDING_TF = 8
"""Scenes that wait for tf; above it the oldest is given up, and diagnostics say so."""
HAND_NS = 100_000_000
"""In free running, joint states this near to a scene tell where the hand was."""


class MemoryNode(EngramNode):
    """Feeds the memory and publishes what changed in it."""

    config_class = MemoryNodeConfig

    def __init__(self) -> None:
        super().__init__("memory_node")

    def setup(self) -> None:
        """Open the memory; its last durable state is there again."""
        config = self.config
        folder, places = config.store.replace("{robot_id}", config.robot_id), config.places
        self.robot = make_robot(config.robot)
        self.kinematics: Kinematics | None = make_kinematics(self.robot) if config.track_hand else None
        self.memory: Memory
        self.memory, self.close_store = make_memory(
            config.memory,
            Path(folder).expanduser() if folder else None,
            Path(places).expanduser() if places else None,
            Budget(config.budget_mb, config.disk_mb),
            config.frame,
            config.map,
            FusionConfig(prior=config.new_belief, free_ratio=config.free_ratio),
        )
        gc.collect()
        gc.freeze()  # what was restored stays: a full collection over it would hold up an update (0.1 s at 1e4 objects)
        self.transforms = TransformBuffer()
        self.pending_tf: list[tuple[SceneObservation, float]] = []  # scenes that wait for tf of their instant
        self.boot_id = uuid.uuid4().hex
        self.statuses: dict[int, EpisodeStatus] = {}  # the last ones, by stamp
        self.joints: dict[int, JointState] = {}  # the last ones, by stamp
        self.waiting: tuple[SceneObservation, float] | None = None  # a scene without the joints of its instant
        self.episodes = EpisodeFollower(self.memory)
        self.episode_changed = False  # since the last commit
        self.looked_with: set[str] = set()  # cameras that the robot's profile names
        self.scene_ns = self.context_ns = -1  # newest scene taken in; newest scene with a context
        self.durable = self.changed = self.memory.graph().sequence
        self.deltas = self.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
        contexts = qos.every_step(qos.COMMAND, lockstep=self.config.lockstep)
        self.contexts = self.create_publisher(MemoryContext, "memory/context", contexts)

    def start(self) -> None:
        """Listen to perception and offer the services."""
        self.stopping = False
        self.queued: set[Callable[[], None]] = set()  # jobs of `_once` that wait
        self.thread = self.worker("memory", lambda job: job(), capacity=256)
        self.subscribe(SceneObservationMsg, "scene/observation", self._on_scene, qos.EVENTS)
        topic, profile = qos.every_status(lockstep=self.config.lockstep)
        self.subscribe(TaskStatus, topic, self._on_status, profile)
        if self.kinematics is not None:
            self.subscribe(
                JointStateMsg, "joint_states", self._on_joints, qos.sensor_subscription(lockstep=self.config.lockstep)
            )
        self.subscribe(ActionChunk, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        if self.config.frame != "base_link":
            subscribe_transforms(self, self.transforms, lambda: self._once(self._place_homeless))
        self.serve(MemoryMerge, "memory/merge", self._on_merge)
        self.serve(MemoryConflicts, "memory/conflicts", self._on_conflicts)
        self.serve(MemoryResolve, "memory/resolve", self._on_resolve)
        self.serve(MemoryQuerySrv, "memory/query", self._on_query)
        self.serve(MemoryRecall, "memory/recall", self._on_recall)
        self.serve(GetGraph, "memory/get_graph", self._on_get_graph)
        self.every(self.config.commit_period_s, lambda: self._once(self._commit), "commit")
        self._once(self._publish_all)

    def stop(self) -> None:
        """Make what is known durable, and answer those who wait: with an error, unless it is their turn."""
        self.stopping = True
        self.thread.stop(30.0)
        self._commit(wait=True)
        if self.executor is not None:  # its next round sends the answers: until then their services must be there
            services = [entry for entry in self._live if entry[0] == self.destroy_service]
            for entry in services:
                self._live.remove(entry)
                self.executor.create_task(*entry)

    def teardown(self) -> None:
        """Close the store."""
        self.close_store()

    # -- the worker's thread -------------------------------------------------------------------------------------

    def _take_in(self, scene: SceneObservation, joints: JointState | None, received_s: float) -> None:
        if self.kinematics is not None and joints is not None:
            scene = replace(scene, hand=hand(joints, self.kinematics, self.robot, self.config.robot_id))
        if scene.camera_pose.frame == self.config.frame:
            self._remember(scene, received_s)
        else:
            self.pending_tf.append((scene, received_s))
            self._place_homeless()

    def _place_homeless(self) -> None:
        """Carry waiting scenes into the memory's frame, oldest first, as far as tf says where the robot was."""
        sigma, frame = self.config.base_sigma_m, self.config.frame
        while self.pending_tf:
            scene, received_s = self.pending_tf[0]
            try:
                base = self.transforms.lookup(frame, scene.camera_pose.frame, scene.stamp_ns)
            except EngramError as error:
                if len(self.pending_tf) <= MAX_PENDING_TF:
                    return
                self.health.count("scenes without tf")
                self.health.problem("tf", str(error))
                self.pending_tf.pop(0)
                continue
            self.pending_tf.pop(0)
            covariance = np.eye(3) * sigma**2
            self._remember(scene_in_frame(scene, base, covariance, self.config.robot_id), received_s)

    def _remember(self, scene: SceneObservation, received_s: float) -> None:
        with self.health.timed("update"):
            update = self.memory.update(scene)
        self._publish_change(update)
        if update.refused:
            self.health.count("scenes refused")
            self.health.problem("localisation", update.refused)
        else:
            self.health.clear("localisation")
        if scene.camera not in self.looked_with:
            self._introduce(scene)
        self.scene_ns = scene.stamp_ns
        self._publish_context()
        self.health.seconds("scene to memory", time.monotonic() - received_s)

    def _introduce(self, scene: SceneObservation) -> None:
        """Tell the memory whose it is: the robot's own configuration, and the cameras that it has looked with."""
        self.looked_with.add(scene.camera)
        known = self.robot.embodiment(tuple(f"{name} camera" for name in sorted(self.looked_with)))
        self._publish_change(self.memory.introduce(self.config.robot_id, known, scene.stamp_ns))

    def _publish_change(self, update: GraphUpdate) -> None:
        if update.nodes or update.edges or update.deleted_nodes or update.deleted_edges:
            self._publish(update)

    def _publish(self, update: GraphUpdate) -> None:
        self.deltas.publish(messages.graph_to_msg(update, self.boot_id, self.config.frame))
        self.changed = update.sequence

    def _publish_context(self) -> None:
        """Publish what matters for the instruction, once a scene; in lock-step with the words of that very step."""
        stamp_ns = self.scene_ns
        newest = next(reversed(self.statuses.values()), None)
        status = self.statuses.get(stamp_ns) if self.config.lockstep else newest
        if status is None or not status.instruction or stamp_ns == self.context_ns:
            return
        with self.health.timed("context"):
            tokens = self.memory.context(status.instruction, stamp_ns)
        self.contexts.publish(messages.tokens_to_msg(tokens, self.config.frame))
        self.context_ns = stamp_ns
        self.health.trace("context sent", stamp_ns)

    def _publish_all(self) -> None:
        self.deltas.publish(messages.graph_to_msg(self.memory.graph(), self.boot_id, self.config.frame))

    def _commit(self, wait: bool = False) -> None:
        """Make durable what changed; while old snapshots are deleted, scenes go first: the next period will do."""
        if (self.changed != self.durable or self.episode_changed) and (wait or not self.memory.busy):
            with self.health.timed("commit"):
                self.memory.commit()
            self.durable, self.episode_changed = self.changed, False
            self.health.count("commits")
        self.memory.consolidate(self.config.background_share * self.config.commit_period_s)

    # -- topics and services -------------------------------------------------------------------------------------

    def _on_status(self, msg: TaskStatus) -> None:
        status = messages.status_from_msg(msg)
        self.thread.put(lambda: self._take_status(status), keep=True)

    def _take_status(self, status: EpisodeStatus) -> None:
        self.statuses[status.stamp_ns] = status
        while len(self.statuses) > KEPT:
            del self.statuses[next(iter(self.statuses))]
        self.episode_changed |= self.episodes.status(status)
        if self.config.lockstep:  # the scene of this step may have been there first
            self._publish_context()

    def _on_chunk(self, msg: ActionChunk) -> None:
        chunk = messages.chunk_from_msg(msg)
        self.health.count("chunks")
        self.thread.put(partial(self.episodes.chunk, chunk))

    def _on_joints(self, msg: JointStateMsg) -> None:
        joints = messages.joints_from_msg(msg, self.robot.joint_names)
        self.joints[joints.stamp_ns] = joints
        while len(self.joints) > KEPT:
            del self.joints[next(iter(self.joints))]
        if self.waiting is not None and self.waiting[0].stamp_ns == joints.stamp_ns:
            self._pass_on(*self.waiting)

    def _on_scene(self, msg: SceneObservationMsg) -> None:
        """Pass a scene on with the joints of its instant; in lock-step it waits for them."""
        scene = messages.scene_from_msg(msg)
        self.health.count("scenes")
        received_s = time.monotonic()
        if self.waiting is not None:  # its joint states were lost
            self._pass_on(*self.waiting)
        if self.kinematics is not None and self.config.lockstep and scene.stamp_ns not in self.joints:
            self.waiting = (scene, received_s)
        else:
            self._pass_on(scene, received_s)

    def _pass_on(self, scene: SceneObservation, received_s: float) -> None:
        self.waiting = None
        joints = self._joints_at(scene.stamp_ns)
        self.thread.put(lambda: self._take_in(scene, joints, received_s))

    def _joints_at(self, stamp_ns: int) -> JointState | None:
        """Return the joint states of ``stamp_ns``, in free running the nearest ones; None = there are none so near."""
        nearest = min(self.joints, key=lambda stamp: abs(stamp - stamp_ns), default=None)
        if nearest is None or abs(nearest - stamp_ns) > (0 if self.config.lockstep else HAND_NS):
            return None
        return self.joints[nearest]

    def _once(self, job: Callable[[], None]) -> None:
        """Have the worker do ``job``, which is not dropped; while it waits, once is enough."""
        if job in self.queued:
            return
        self.queued.add(job)

        def run() -> None:
            self.queued.discard(job)  # first: what comes from now on, this run may miss
            job()

        self.thread.put(run, keep=True)

    async def _in_worker(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` gives when the memory's thread ran it.

        Raises:
            StaleDataError: the node is being stopped, and ``work`` was not begun.
        """
        answered = self.promise()

        def job() -> None:
            try:
                self._check_running()
                answered.set_result(work())
            except Exception as error:
                answered.set_exception(error)

        self._check_running()
        self.thread.put(job, keep=True)
        return await answered

    def _check_running(self) -> None:
        if self.stopping:
            raise StaleDataError("the memory node is being stopped")

    async def _on_query(
        self, request: MemoryQuerySrv.Request, response: MemoryQuerySrv.Response
    ) -> MemoryQuerySrv.Response:
        asking = Asking(self.get_clock().now().nanoseconds, self.config.query_limit, self.config.utc_offset_h)
        try:
            query = query_from(request, asking)
            return await self._in_worker(lambda: answer_query(self.memory, query, response))
        except Exception as error:
            self.report("memory/query", error)
            response.answer = f"no answer: {error}"
            return response

    async def _on_recall(self, request: MemoryRecall.Request, response: MemoryRecall.Response) -> MemoryRecall.Response:
        stamp_ns = self.get_clock().now().nanoseconds
        try:
            tokens = await self._in_worker(lambda: self.memory.context(request.instruction, stamp_ns))
            first = messages.first_tokens(tokens, request.limit)
            response.context = messages.tokens_to_msg(first, self.config.frame)
        except Exception as error:
            self.report("memory/recall", error)
        return response

    async def _on_get_graph(self, request: GetGraph.Request, response: GetGraph.Response) -> GetGraph.Response:
        at_ns = messages.from_stamp(request.at) or None
        graph = await self._in_worker(lambda: self.memory.graph(at_ns))
        response.graph = messages.graph_to_msg(graph, self.boot_id, self.config.frame)
        return response

    async def _on_merge(self, request: MemoryMerge.Request, response: MemoryMerge.Response) -> MemoryMerge.Response:
        def work() -> MemoryMerge.Response:
            merged = merge(self.memory, request, response)
            self.changed = self.memory.graph().sequence
            self._publish_all()
            self._commit(wait=True)
            return merged

        try:
            return await self._in_worker(work)
        except Exception as error:
            self.report("memory/merge", error)
            response.status = f"not merged: {error}"
            return response

    async def _on_conflicts(
        self, request: MemoryConflicts.Request, response: MemoryConflicts.Response
    ) -> MemoryConflicts.Response:
        try:
            return await self._in_worker(lambda: conflicts(self.memory, response))
        except Exception as error:
            return self._refused("memory/conflicts", error, response)

    async def _on_resolve(
        self, request: MemoryResolve.Request, response: MemoryResolve.Response
    ) -> MemoryResolve.Response:
        def work() -> MemoryResolve.Response:
            self._publish(resolve(self.memory, request, response))  # a sequence without a change is one to follow too
            try:
                self._commit(wait=True)
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
            self.report(name, error)
        response.accepted, response.reason = False, str(error)
        return response

    def add_diagnostics(self) -> None:
        """Show what is known and what is durable."""
        if self.state == "active":
            if isinstance(self.memory, RobotMemory):
                tracker = self.memory.tracker
                self.health.note("nodes", str(len(tracker.columns)))
                self.health.note("facts", str(len(tracker.history)))
                for store, used in self.memory.bytes_used().items():
                    self.health.note(f"RAM of {store} [MB]", f"{used / 2**20:.2f}")
            self.health.note("sequence", str(self.changed))
            self.health.note("durable sequence", str(self.durable))
            pending = self.changed != self.durable or self.episode_changed
            self.health.note("everything durable", "no" if pending else "yes")


def main() -> NoReturn:
    """Run the node."""
    run(MemoryNode)


if __name__ == "__main__":
    main()
