"""What perception saw in, the robot's memory out: graph changes, context for the policy, answers.

One worker thread owns the memory and its store, because the memory takes one caller at a time. While it is busy, only
scenes and chunks may be dropped: joint states are matched to their scene on arrival, tf and commits wait once, and what
a service was asked is answered. Commits are grouped; a restart goes on from the last one. The robot itself is an agent
in the graph: with its configuration as its profile, where it stands by tf, and its skills. Changes carry a sequence
number under a boot id. A reader that misses one, or sees a new boot id, needs the whole graph: the safety node, which
believes the topic alone, calls ``memory/publish_graph``; the page, which shows the past, too, ``memory/get_graph``.
Joint states tell where the hand is, and so what it holds; ``task/status`` tells where episodes begin and how they end.
"""

from __future__ import annotations

import gc
import time
import uuid
from pathlib import Path
from typing import NoReturn

from sensor_msgs.msg import JointState as JointStateMsg
from vision_msgs.msg import Detection3DArray

from engram.core.contracts import Memory
from engram.core.types import GraphUpdate, JointState, MemoryTokens, SceneObservation, Verdict
from engram.memory.graph.fusion import FusionConfig
from engram.memory.robot_memory import RobotMemory
from engram.nodes import messages, qos
from engram.nodes.assembly import subscribe_transforms
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.memory_services import MemoryServices
from engram.nodes.process import run
from engram.runtime.body import Body
from engram.runtime.factories import Budget, make_memory
from engram.runtime.memory_feed import MemoryFeed, MemoryFeedConfig
from engram.runtime.parameters.memory import MemoryNodeConfig
from engram.runtime.scene_matcher import SceneMatcher, unreported
from engram.runtime.transforms import TransformBuffer
from engram_interfaces.msg import ActionChunk, MemoryContext, SceneGraphUpdate, TaskStatus
from engram_interfaces.msg import SceneObservation as SceneObservationMsg
from engram_interfaces.msg import Verdict as VerdictMsg


class MemoryNode(EngramNode):
    """Converts messages for the memory's thread and publishes what comes of them."""

    config_class = MemoryNodeConfig

    def __init__(self) -> None:
        super().__init__("memory_node")

    def setup(self) -> None:
        """Open the memory; its last durable state is there again."""
        config = self.config
        folder, places = config.store.replace("{robot_id}", config.robot_id), config.places
        self.body = Body(config.robot, track_hand=config.track_hand, drives=config.frame != "base_link")
        self.memory: Memory
        self.memory, self.close_store = make_memory(
            config.memory,
            Path(folder).expanduser() if folder else None,
            Path(places).expanduser() if places else None,
            Budget(config.budget_mb, config.disk_mb, config.fsync),
            config.frame,
            config.map,
            FusionConfig(prior=config.new_belief, free_ratio=config.free_ratio),
        )
        gc.collect()
        gc.freeze()  # what was restored stays: a full collection over it would hold up an update (0.1 s at 1e4 objects)
        self.transforms = TransformBuffer(self.health)
        self.boot_id = uuid.uuid4().hex
        self.deltas = self.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
        contexts = qos.every_step(qos.COMMAND, lockstep=config.lockstep)
        self.contexts = self.create_publisher(MemoryContext, "memory/context", contexts)
        share_s = config.background_share * config.commit_period_s
        whose = MemoryFeedConfig(config.robot_id, config.lockstep, config.frame, config.base_sigma_m, share_s)
        self.verdicts = self.create_publisher(VerdictMsg, "verdict", qos.COMMAND)
        self.feed = MemoryFeed(
            self.memory, self.body.profile, whose, self.transforms.lookup, self._publish_change, self._publish_context,
            self.health, lambda: self.get_clock().now().nanoseconds, self._publish_verdict,
        )  # fmt: skip

    def start(self) -> None:
        """Listen to perception and offer the services."""
        config = self.config
        self.thread = self.worker("memory", lambda job: job(), capacity=256)
        self.matcher = SceneMatcher(self._on_matched, lockstep=config.lockstep, wants_joints=self.body.has_hand)
        self.answering = MemoryServices(self, self.memory, self.feed, self.thread, self.boot_id)
        # of any writer: each camera may have a perception of its own
        self.subscribe(SceneObservationMsg, "scene/observation", self._on_scene, qos.EVENTS)
        self.subscribe(Detection3DArray, "detections", self._on_detections, qos.DETECTIONS)
        topic, profile = qos.every_status(lockstep=config.lockstep)
        subscribe_bound(self, TaskStatus, topic, self._on_status, profile, every=True)
        if self.body.has_hand:
            joints = qos.sensor_subscription(lockstep=config.lockstep)
            subscribe_bound(self, JointStateMsg, "joint_states", self._on_joints, joints, every=True)
        chunks = qos.every_step(qos.CHUNK, lockstep=config.lockstep)
        subscribe_bound(self, ActionChunk, "policy/action_chunk", self._on_chunk, chunks, every=True)
        self.hears_tf = False
        if config.frame != "base_link":
            self._hear_tf()
        self.every(config.commit_period_s, lambda: self.thread.put_once(self.feed.commit), "commit")
        self.thread.put_once(self._publish_all)

    def stop(self) -> None:
        """Make what is known durable, and answer those who wait: with an error, unless it is their turn."""
        self.answering.stopping = True
        if self.thread.stop(30.0):  # else it still commits
            self.feed.commit(wait=True)
        if self.executor is not None:  # its next round sends the answers: until then their services must be there
            services = [entry for entry in self._live if entry[0] == self.destroy_service]
            for entry in services:
                self._live.remove(entry)
                self.executor.create_task(*entry)

    def teardown(self) -> None:
        """Close the store."""
        self.close_store()

    # -- topics --------------------------------------------------------------------------------------------------

    def _on_scene(self, msg: SceneObservationMsg) -> None:
        self._take(messages.scene_from_msg(msg))

    def _on_detections(self, msg: Detection3DArray) -> None:
        scene, refused = messages.detections_from_msg(msg)
        if refused:
            self.health.count("detections left out", len(refused))
            self.health.problem("detections", refused[0])
        self._take(scene)

    def _take(self, scene: SceneObservation) -> None:
        self.health.count("scenes")
        for name in unreported(scene):
            self.health.count(f"scenes without {name}")
        if scene.camera_pose.frame != self.config.frame:
            self._hear_tf()
        self.matcher.scene(scene, time.monotonic())

    def _hear_tf(self) -> None:
        """Subscribe to tf, once: an arm whose scenes all come in base_link does not need it."""
        if not self.hears_tf:
            self.hears_tf = True
            subscribe_transforms(self, self.transforms, lambda: self.thread.put_once(self.feed.place_waiting))

    def _on_joints(self, msg: JointStateMsg) -> None:
        self.matcher.joints(messages.joints_from_msg(msg, self.body.joint_names))

    def _on_matched(self, scene: SceneObservation, joints: JointState | None, received_s: float) -> None:
        held = self.body.hand(joints, self.config.robot_id)
        self.thread.put(lambda: self.feed.scene(scene, held, received_s))

    def _on_status(self, msg: TaskStatus) -> None:
        status = messages.status_from_msg(msg)
        self.thread.put(lambda: self.feed.status(status), keep=True)

    def _on_chunk(self, msg: ActionChunk) -> None:
        chunk = messages.chunk_from_msg(msg)
        self.health.count("chunks")
        self.thread.put(lambda: self.feed.chunk(chunk))

    # -- in the worker's thread ----------------------------------------------------------------------------------

    def _publish_all(self) -> None:
        self.feed.share(self.memory.graph())

    def _publish_change(self, update: GraphUpdate) -> None:
        self.deltas.publish(messages.graph_to_msg(update, self.boot_id, self.config.frame))

    def _publish_context(self, tokens: MemoryTokens) -> None:
        self.contexts.publish(messages.tokens_to_msg(tokens))
        self.health.trace("context sent", tokens.stamp_ns)

    def _publish_verdict(self, verdict: Verdict) -> None:
        self.verdicts.publish(messages.verdict_to_msg(verdict, self.config.robot_id))

    def add_diagnostics(self) -> None:
        """Show what is known and what is durable."""
        if self.state != "active":
            return
        if isinstance(self.memory, RobotMemory):
            tracker = self.memory.tracker
            self.health.note("nodes", str(len(tracker.columns)))
            self.health.note("facts", str(len(tracker.history)))
            for store, used in self.memory.bytes_used().items():
                self.health.note(f"RAM of {store} [MB]", f"{used / 2**20:.2f}")
        self.health.note("sequence", str(self.feed.sequence))
        self.health.note("durable sequence", str(self.feed.durable))
        self.health.note("everything durable", "yes" if self.feed.everything_durable else "no")


def main() -> NoReturn:
    """Run the node."""
    run(MemoryNode)


if __name__ == "__main__":
    main()
