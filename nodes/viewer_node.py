"""Serves the web page: shows what the topics say, and hands on what a visitor asks for.

Nothing in the loop waits for this node: it reads best effort, keeps only the newest of everything and refreshes the
page a few times a second, and only while somebody looks at it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from functools import partial

from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Bool

from engram.core.ports import require_free_port
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.handover import PERIOD_S, Handover
from engram.nodes.image_topics import subscribe_images
from engram.nodes.process import run
from engram.nodes.viewer_requests import VisitorRequests
from engram.runtime.body import described_robot
from engram.runtime.health import TOPIC, own_name
from engram.runtime.parameters.viewer import ViewerNodeConfig
from engram.sim.tasks import example_instructions, task_for
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
MOST_CAMERAS = 16
"""Cameras that the page knows at most."""
CAMERA_TOPIC = re.compile(r"camera/([^/]+)/color/image_raw")


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
        self.cameras: set[str] = set()  # those that are subscribed to
        self.stopped = ""  # why the robot is stopped; empty: it is not
        self.reports = Reports(config.stale_after_s)
        self.own_tasks = tuple(filter(None, config.tasks.split(",")))
        self.newest, self.goal = Newest(), RunningGoal()
        self.requests = VisitorRequests(self, self._task_for, lambda at_ns: self.graph.go_to(at_ns))
        self.handover = Handover(self, "page")
        self.page = ViewerPage(config.port, self.requests.actions, config.host, self.robot)
        self.requests.page = self.page
        self.graph = GraphFeed(
            self.requests.ask_graph,
            self.page.show_graph,
            self.page.show_span,
            lambda: self.get_clock().now().nanoseconds,
        )
        self.get_logger().info(f"page: {self.page.link}")

    def start(self) -> None:
        """Listen to everything that is shown."""
        self.cameras.clear()
        if self.robot is not None:
            subscribe_bound(self, JointState, "joint_states", self._on_joints, qos.SENSOR_BEST_EFFORT)
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        subscribe_bound(self, Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        self.subscribe(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)
        self.subscribe(PolicyManifest, "policy/candidate", self._on_manifest, qos.LATCHED)
        self.subscribe(PolicyManifest, "policy/manifest", self._on_manifest, qos.MANIFEST)
        self.subscribe(GateVerdict, "policy/gate", self._on_gate, qos.LATCHED)
        self.subscribe(SceneGraphUpdate, "memory/graph", self._on_graph, qos.GRAPH)
        subscribe_bound(self, ActionChunk, "safety/executed", self._on_executed, qos.SENSOR_BEST_EFFORT)
        subscribe_bound(self, Verdict, "verdict", self._on_verdict, qos.SENSOR_BEST_EFFORT)
        self.every(PERIOD_S, self._drive, "by hand")
        self.every(RETRY_S, self.graph.ask_until_known, "memory/get_graph")
        self.every(self.config.refresh_s, self._refresh, "page")
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

    def _find_cameras(self) -> None:
        """Subscribe to every camera of this robot that somebody publishes."""
        base = self.get_namespace().rstrip("/") + "/"
        for topic, _ in self.get_topic_names_and_types():
            found = CAMERA_TOPIC.fullmatch(topic.removeprefix(base)) if topic.startswith(base) else None
            if found is not None and found[1] not in self.cameras and len(self.cameras) < MOST_CAMERAS:
                self.cameras.add(found[1])
                subscribe_images(self, found[1], "color", self._image_taker(found[1]), qos.SENSOR_BEST_EFFORT)

    def _image_taker(self, name: str) -> Callable[[Image | CompressedImage], None]:
        def take(msg: Image | CompressedImage) -> None:
            self.images[name] = msg
            self.health.count(f"images of {name}")

        return take

    def _on_graph(self, msg: SceneGraphUpdate) -> None:
        self.graph.take(msg.boot_id, messages.graph_from_msg(msg))

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

    # -- the page --------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Show the newest of everything, while somebody looks; what cannot be read hides nothing else."""
        if not self.page.visitors:
            return
        images, self.images = self.images, {}
        shows: list[Callable[[], None]] = [partial(self._show_camera, *one) for one in images.items()]
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
