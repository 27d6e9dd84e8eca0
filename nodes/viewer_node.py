"""Serves the web page: shows what the topics say, and hands on what a visitor asks for.

Nothing in the loop waits for this node: it reads best effort, keeps only the newest of everything and refreshes the
page a few times a second, and only while somebody looks at it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Bool

from engram.core.ports import require_free_port
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.handover import PERIOD_S, Handover
from engram.nodes.image_topics import heard_topic, subscribe_images
from engram.nodes.process import run
from engram.nodes.viewer_requests import VisitorRequests
from engram.runtime.body import described_robot
from engram.runtime.health import TOPIC, own_name
from engram.runtime.parameters.viewer import ViewerNodeConfig
from engram.sim.tasks import example_instructions, task_for
from engram.viewer.camera_topics import MOST_CAMERAS, cameras_among
from engram.viewer.gate_report import read_report
from engram.viewer.graph_feed import RETRY_S, GraphFeed
from engram.viewer.newest import Newest
from engram.viewer.page import ViewerPage
from engram.viewer.reports import Reports
from engram.viewer.running_goal import RunningGoal
from engram.viewer.values import Judged, NodeState, Outcome
from engram_interfaces.msg import ActionChunk, GateVerdict, PolicyManifest, SceneGraphUpdate, TaskStatus, Verdict

FRESH_S = 0.5
"""Joints that were heard longer ago say nothing of where the robot is now [s]."""


class ViewerNode(EngramNode):
    """Connects the page with the topics."""

    config_class = ViewerNodeConfig

    def __init__(self) -> None:
        super().__init__("viewer_node")

    def setup(self) -> None:
        """Open the page."""
        config = self.config
        require_free_port(config.port, "port:=N (launch argument or parameter)")
        self.robot = described_robot(config.robot)
        self.joints: JointState | None = None
        self.heard_s = 0.0  # when they were
        self.images: dict[str, Image | CompressedImage] = {}  # camera -> newest picture
        self.stopped = ""  # why the robot is stopped; empty: it is not
        self.reports = Reports(config.stale_after_s)
        self.own_tasks = tuple(filter(None, config.tasks.split(",")))
        self.newest, self.goal = Newest(), RunningGoal()
        self.requests = VisitorRequests(self, self._task_for, lambda at_ns: self.graph.go_to(at_ns), self._draw)
        self.handover = Handover(self, "page")
        self.page = ViewerPage(config.port, self.requests.actions, config.host, self.robot)
        self.requests.page = self.page
        self.graph = GraphFeed(  # the drawing thread alone calls it
            self.requests.ask_graph, self.page.show_graph, self.page.show_span,
            lambda: self.get_clock().now().nanoseconds,
        )  # fmt: skip
        self.get_logger().info(f"page: {self.page.link}")

    def start(self) -> None:
        """Listen to everything that is shown."""
        self.cameras: dict[str, tuple[Callable[[Any], bool], Any]] = {}  # those that are subscribed to: what ends that
        self.drawing = self.worker("page", lambda job: job(), capacity=qos.GRAPH.depth)  # the robot is driven meanwhile
        if self.robot is not None:
            subscribe_bound(self, JointState, "joint_states", self._on_joints, qos.SENSOR_BEST_EFFORT)
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        subscribe_bound(self, Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        self.subscribe(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)
        self.subscribe(PolicyManifest, "policy/candidate", self._on_manifest, qos.LATCHED)
        self.subscribe(PolicyManifest, "policy/manifest", self._on_manifest, qos.MANIFEST)
        self.subscribe(GateVerdict, "policy/gate", self._on_gate, qos.LATCHED)
        subscribe_bound(self, SceneGraphUpdate, "memory/graph", self._on_graph, qos.GRAPH, every=True)
        subscribe_bound(self, ActionChunk, "safety/executed", self._on_executed, qos.SENSOR_BEST_EFFORT)
        subscribe_bound(self, Verdict, "verdict", self._on_verdict, qos.SENSOR_BEST_EFFORT)
        self.every(PERIOD_S, self._drive, "by hand")
        self.every(RETRY_S, lambda: self.drawing.put_once(self.graph.ask_until_known), "memory/get_graph")
        self.every(self.config.refresh_s, lambda: self.drawing.put_once(self._refresh), "page")
        self.every(0.05, self.requests.carry_out, "request")
        self.every(1.0, self._find_cameras, "cameras")

    def teardown(self) -> None:
        """Close the page."""
        self.page.close()
        self.requests.close()

    def _drive(self) -> None:
        """Pass on what a visitor does who drives the robot."""
        if self.robot is None or self.joints is None or time.monotonic() - self.heard_s > FRESH_S:
            self.handover.pass_on(self.page.by_hand(None), self.get_clock().now().nanoseconds)
            return
        joints = messages.joints_from_msg(self.joints, self.robot.joint_names)
        self.handover.pass_on(self.page.by_hand(self.handover.seen(joints, self.robot)), joints.stamp_ns)

    def _task_for(self, words: str) -> str:
        return task_for(words, self.own_tasks) if self.config.choose_task else ""

    # -- inputs: only the newest is kept ---------------------------------------------------------------------------

    def _on_joints(self, msg: JointState) -> None:
        self.joints, self.heard_s = msg, time.monotonic()

    def _draw(self, work: Callable[[], None]) -> None:
        self.drawing.put(work, keep=True)

    def _find_cameras(self) -> None:
        """Subscribe to every camera of this robot that somebody publishes; one that is gone makes room."""
        names = cameras_among((topic for topic, _ in self.get_topic_names_and_types()), self.get_namespace())
        there = [name for name in names if self.count_publishers(heard_topic(self, name, "color"))]
        for name in self.cameras.keys() - there:
            self._live.remove(entry := self.cameras.pop(name))
            entry[0](entry[1])
            self.health.counts.pop(f"images of {name}", None)
        for name in there:
            if name not in self.cameras and len(self.cameras) < MOST_CAMERAS:
                subscribe_images(self, name, "color", partial(self._on_image, name), qos.SENSOR_BEST_EFFORT)
                self.cameras[name] = self._live[-1]
        if left_out := [name[:100] for name in there if name not in self.cameras]:
            self.health.problem("cameras", f"{left_out[0]} is not shown: there are {MOST_CAMERAS} cameras already")

    def _on_image(self, name: str, msg: Image | CompressedImage) -> None:
        self.images[name] = msg
        self.health.count(f"images of {name}")

    def _on_graph(self, msg: SceneGraphUpdate) -> None:
        take = self.guarded("memory/graph", lambda: self.graph.take(msg.boot_id, messages.graph_from_msg(msg)))
        self.drawing.put(take)

    def _on_status(self, msg: TaskStatus) -> None:
        self.goal.became(messages.status_from_msg(msg))
        self.newest.ended(Outcome(msg.episode, msg.instruction, msg.state, msg.step, self.reports.policy().name))

    def _on_executed(self, msg: ActionChunk) -> None:
        self.handover.on_executed(msg)
        self.goal.executed(msg.episode, msg.policy_version, messages.from_stamp(msg.header.stamp))

    def _on_verdict(self, msg: Verdict) -> None:
        self.goal.judged(messages.verdict_from_msg(msg))

    def _on_stopped(self, msg: Bool) -> None:
        self.stopped = "the Nodes tab says why, at safety_node" if msg.data else ""

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for full_name, said in messages.conditions_from_msg(msg):
            if name := own_name(full_name, self.get_namespace()):  # none: another robot's
                self.reports.take(NodeState(name, said.level, said.message, said.values), time.monotonic())

    def _on_manifest(self, msg: PolicyManifest) -> None:
        self.newest.announced(messages.manifest_from_msg(msg))

    def _on_gate(self, msg: GateVerdict) -> None:
        self.newest.verdict(Judged(msg.candidate, msg.decision, msg.reason, msg.pairs, read_report(msg.report_json)))

    def _refresh(self) -> None:
        """Show the newest of everything, while somebody looks; what cannot be read hides nothing else."""
        if not self.page.visitors:
            return
        images, self.images = self.images, {}
        shows: list[Callable[[], None]] = [partial(self.page.keep_cameras, tuple(self.cameras))]
        shows += [partial(self._show_camera, *one) for one in tuple(images.items()) if one[0] in self.cameras]
        shows += [partial(self.page.show_stopped, self.stopped), self._show_joints, self.graph.refresh]
        for show in (*shows, self._show_reports):
            try:
                show()
            except Exception as error:
                self.report("page", error)

    def _show_joints(self) -> None:
        if self.robot is not None and self.joints is not None:
            self.page.show_joints(messages.joints_from_msg(self.joints, self.robot.joint_names))

    def _show_camera(self, name: str, msg: Image | CompressedImage) -> None:
        self.page.show_camera(name, messages.color_from_msg(msg, f"camera {name!r} color"))

    def _show_reports(self) -> None:
        now_s = time.monotonic()
        states = self.reports.states(now_s)
        self.page.show_nodes(states)
        self.page.show_goal(self.goal.html(self.reports.judged()))
        self.page.show_policy(self.reports.policy(), self.newest.outcomes)
        learner, gate = (self.reports.of(name, now_s) for name in ("learner_node", "gate_node"))
        self.page.show_learning(learner, gate, self.newest.candidates, self.newest.judged)
        if self.config.choose_task:
            self.page.show_examples(example_instructions(self.own_tasks))


def main() -> int:
    """Run the node."""
    return run(ViewerNode)


if __name__ == "__main__":
    sys.exit(main())
