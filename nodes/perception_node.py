"""RGB-D frames of one camera in, the objects they show out. The detector runs in a worker thread.

Newest wins: while the detector works, later frames replace each other and are counted as drops. With ``keep_all`` none
is lost, so that memory is the same on a slow machine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NoReturn

from engram.core.registry import make_robot
from engram.core.types import CameraFrame
from engram.nodes import messages, qos
from engram.nodes.assembly import make_camera, subscribe_camera, subscribe_transforms
from engram.nodes.base import EngramNode
from engram.nodes.image_topics import heard_topic
from engram.nodes.process import run
from engram.perception.zero_shot import ZeroShotDetectorConfig
from engram.runtime.camera_watch import CameraWatch
from engram.runtime.factories import make_detector
from engram.runtime.parameters.perception import PerceptionNodeConfig
from engram.runtime.transforms import TransformBuffer
from engram_interfaces.msg import SceneObservation, TaskStatus


class PerceptionNode(EngramNode):
    """Feeds the detector and publishes what it found."""

    config_class = PerceptionNodeConfig
    sections = {"zero_shot": ZeroShotDetectorConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("perception_node")

    def setup(self) -> None:
        """Build the detector."""
        self.camera = self.config.camera or make_robot(self.config.robot).perception_camera
        self.detector = make_detector(self.config.detector, self.section["zero_shot"])
        self.depth_range_m = self.config.min_depth_m, self.config.max_depth_m
        self.scenes = self.create_publisher(SceneObservation, "scene/observation", qos.EVENTS)

    def start(self) -> None:
        """Subscribe to the camera."""
        self.thread = self.worker("detector", self._detect, capacity=256 if self.config.keep_all else 1)
        transforms = TransformBuffer(self.health)
        self.inbox = make_camera(self.camera, transforms, depth=True)
        self.topic = heard_topic(self, self.camera, "color")
        self.watch = CameraWatch(self.inbox, self.topic)
        self.running = False  # something is carried out
        self.since = max(self.config.every, self.config.rest_every)  # frames since one was looked at
        subscribe_camera(self, self.inbox, self._advance)
        subscribe_transforms(self, transforms, self._advance)
        self.skipped: CameraFrame | None = None  # the newest frame that was not looked at, because of ``every``
        self.episode, self.told_ns = -1, -1  # of the newest step of an episode
        self.wanted: deque[int] = deque(maxlen=4)  # stamps at which an episode began or ended: always looked at
        topic, profile = qos.every_status(lockstep=True)  # an episode's first step may not be missed
        self.subscribe(TaskStatus, topic, self._on_step, profile)
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        self.every(1.0, self._watch, "camera")

    def _advance(self) -> None:
        for frame in self.inbox.take():
            if frame.stamp_ns == self.watch.complete_ns:  # shown again
                continue
            self.watch.completed(frame.stamp_ns)
            self.since += 1
            self.health.count("frames")
            every = self.config.every if self.running else max(self.config.every, self.config.rest_every)
            if self.since >= every or frame.stamp_ns in self.wanted:
                self._look_at(frame)
            else:
                self.skipped = frame

    def _look_at(self, frame: CameraFrame) -> None:
        self.since, self.skipped = 0, None
        self.thread.put(frame)

    def _on_status(self, msg: TaskStatus) -> None:
        self.running = messages.status_from_msg(msg).running

    def _on_step(self, msg: TaskStatus) -> None:
        status = messages.status_from_msg(msg)
        self.watch.resting_ns = status.stamp_ns if status.state == "idle" else -1
        if status.state == "idle":
            return
        restarted = status.stamp_ns < self.told_ns  # the simulation, which counts episodes anew
        if status.episode != self.episode or restarted or not status.running:
            self.wanted.append(status.stamp_ns)
        self.episode, self.told_ns = status.episode, status.stamp_ns
        if self.skipped is not None and self.skipped.stamp_ns in self.wanted:
            self._look_at(self.skipped)

    def _detect(self, frame: CameraFrame) -> None:
        """Run the detector; in the worker's thread."""
        with self.health.timed("detect"):
            scene = replace(self.detector.detect(frame), depth_range_m=self.depth_range_m)
        self.scenes.publish(messages.scene_to_msg(scene))
        self.health.trace("scene sent", scene.stamp_ns)
        self.health.count("objects", len(scene.objects))
        if scene.left_out:
            self.health.count("objects left out", scene.left_out)
            self.health.problem(
                "objects", f"{scene.left_out} too many in a frame are left out: suppress overlapping boxes"
            )

    def _watch(self) -> None:
        """Name what keeps frames from being complete; called once a second."""
        wrong = self.watch.look()
        if not self.count_publishers(self.topic):
            there = [name for name, _ in self.get_topic_names_and_types() if name.endswith("/color/image_raw")]
            found = ", ".join(name.split("/")[-3] for name in there if self.count_publishers(name))
            wrong = f"nobody publishes {self.topic}; cameras there: {found or 'none'}"
            self.get_logger().warning(wrong, throttle_duration_sec=60.0)  # without a page, nobody would see why
        if wrong:
            self.health.problem("camera", wrong)
        elif wrong is not None:
            self.health.clear("camera")


def main() -> NoReturn:
    """Run the node."""
    run(PerceptionNode)


if __name__ == "__main__":
    main()
