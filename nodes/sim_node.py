"""The simulated workcell as a robot: cameras, joint states, tf and clock out, joint commands in.

In lock-step every control step waits for the command with its own stamp; in free running the newest command counts.
``sim/reset`` begins an episode; ``task/status`` says what it is doing, with the simulator's own verdict.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory

from engram.core.types import CameraFrame, EpisodeStatus, Observation, OracleOutcome, Pose
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode, NodeConfig, run
from engram.nodes.health import ERROR
from engram.nodes.params import param
from engram.runtime.sim_loop import SimLoop, SimLoopConfig
from engram.sim.world import WorldConfig
from engram.sim.worlds import make_world
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim


@dataclass(frozen=True)
class SimNodeConfig(NodeConfig):
    """Parameters of the simulation node."""

    world: str = "tabletop"
    """World to simulate: tabletop, or package.module:attribute of your own."""
    task: str = ""
    """Task to begin with; empty: wait for sim/reset."""
    seed: int = 0
    """Seed of the first episode."""
    cameras: tuple[str, ...] = ("front", "wrist")
    """Cameras whose topics are there from the start; others appear with their first picture."""
    static_cameras: tuple[str, ...] = ("front",)
    """Cameras that never move: their transform goes to tf_static."""
    control_dt_s: float = param(0.1, 0.01, 1.0)
    """Length of one control step [s]."""
    retry_s: float = param(1.0, 0.05, 60.0)
    """Lock-step: show the same step again after waiting this long for its command [s]."""
    command_timeout_s: float = param(10.0, 0.1, 3600.0)
    """Lock-step: report a missing command after this long [s]."""


class SimNode(EngramNode):
    """Publishes what the world senses and steps it by commands."""

    config_class = SimNodeConfig
    sections = {"world_config": WorldConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("sim_node")

    def setup(self) -> None:
        """Open the world and the topics that do not depend on it."""
        every_step = partial(qos.every_step, lockstep=self.config.lockstep)
        self.sensor_qos = every_step(qos.SENSOR)
        self.clock = self.create_publisher(Clock, "/clock", self.sensor_qos)
        self.joints = self.create_publisher(JointState, "joint_states", self.sensor_qos)
        self.tf = self.create_publisher(TFMessage, "tf", self.sensor_qos)
        self.tf_static = self.create_publisher(TFMessage, "tf_static", qos.LATCHED)
        self.status = self.create_publisher(TaskStatus, "task/status", every_step(qos.LATCHED))
        self.images: dict[str, dict[str, Publisher]] = {}
        for camera in self.config.cameras:
            self._outputs(camera)
        self.shown: dict[int, float] = {}  # stamp of the step under way -> when it was published [monotonic s]
        self.last_published: dict[str, Mapping[str, object]] = {}  # kind (camera_infos, mounts) -> by camera
        self.lenses_at_ns = -1  # stamp that they were last published with
        config = self.config
        self.loop = SimLoop(
            lambda: make_world(config.world, self.section["world_config"]),
            self._show,
            self._show_rest,
            self._report,
            self.health.count,
            SimLoopConfig(config.lockstep, config.control_dt_s, config.retry_s, config.command_timeout_s),
        )
        self.loop.wait_ready()

    def start(self) -> None:
        """Take commands; begin the first episode if there is one."""
        self.subscribe(JointTrajectory, "command", self._on_command, qos.COMMAND)
        self.serve(ResetSim, "sim/reset", self._on_reset)
        self._publish_status(EpisodeStatus(0, self.config.robot_id, 0, "", "", 0, "idle"))
        if self.config.task:
            first = self.loop.reset(self.config.task, self.config.seed, "")
            first.add_done_callback(self._report_refusal)

    def teardown(self) -> None:
        """Close the world."""
        self.loop.stop()

    async def _on_reset(self, request: ResetSim.Request, response: ResetSim.Response) -> ResetSim.Response:
        answered = self.promise()
        self.loop.reset(request.task, request.seed, request.instruction).add_done_callback(answered.set_result)
        done = await answered
        assert done is not None
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            response.message = str(error) if error else "replaced by a later reset"
            return response
        outcome: OracleOutcome = done.result()
        response.accepted, response.task = True, outcome.task
        response.instruction, response.episode = outcome.instruction, outcome.episode + 1
        return response

    def _on_command(self, msg: JointTrajectory) -> None:
        stamp_ns = messages.from_stamp(msg.header.stamp)
        self.health.trace("command received", stamp_ns)
        shown = self.shown.pop(stamp_ns, None)
        if shown is not None:
            self.health.seconds("camera to command", time.monotonic() - shown)
        self.loop.command(messages.command_from_msg(msg, msg.joint_names))

    def _report_refusal(self, done: Future) -> None:
        if not done.cancelled() and done.exception() is not None:
            self.health.problem("task", str(done.exception()), ERROR, lasting=True)
            self.get_logger().error(f"task: {done.exception()}")

    def _report(self, key: str, text: str) -> None:
        if not self.context.ok():  # a signal ended the context under the simulation's feet: no problem of ours
            return
        if not text:
            self.health.clear(key)
            return
        self.health.problem(key, text)
        self.get_logger().warning(f"{key}: {text}", throttle_duration_sec=5.0)

    def _show(self, observation: Observation, outcome: OracleOutcome, again: bool) -> None:
        """Publish what the command of this control step waits for; called in the simulation's thread."""
        if self.state != "active":
            return
        stamp_ns = observation.stamp_ns
        if again:
            self.health.count("steps shown again")
        else:
            self.shown = {stamp_ns: time.monotonic()}
            self.health.count("steps")
        self.health.trace("show", stamp_ns)
        camera_infos = {name: (f.color.shape, f.intrinsics.tobytes()) for name, f in observation.cameras.items()}
        if self._changed("camera_infos", camera_infos):  # those that are known hold until others come
            self._publish_lenses(observation)
        for frame in observation.cameras.values():
            self._publish_color(frame)
        self._publish_transforms(observation)
        # Last what wakes most: every process that listens to it may take the processor from the rest of the step.
        self.joints.publish(messages.joints_to_msg(observation.joints))
        self._publish_status(self._status_of(observation, outcome))
        self.health.trace("shown", stamp_ns)

    def _show_rest(self, observation: Observation) -> None:
        """Publish the parts of the step that no command waits for; called in the simulation's thread."""
        if self.state != "active":
            return
        self.clock.publish(Clock(clock=messages.to_stamp(observation.stamp_ns)))
        if self.lenses_at_ns != observation.stamp_ns:
            self._publish_lenses(observation)
        for frame in observation.cameras.values():
            if frame.depth is not None:
                depth = messages.depth_to_msg(frame.depth, frame.stamp_ns, messages.optical_frame(frame.name))
                self._outputs(frame.name)["depth"].publish(depth)

    def _status_of(self, observation: Observation, outcome: OracleOutcome) -> EpisodeStatus:
        state = "succeeded" if outcome.success else "failed" if outcome.over else "running"
        if state == "running" and observation.joints.held:
            state = "held"
        return EpisodeStatus(
            observation.stamp_ns,
            self.config.robot_id,
            outcome.episode + 1,  # worlds may count from 0, which a goal reads as "the current one"
            outcome.task,
            outcome.instruction,
            outcome.step,
            state,
            outcome.success,
            outcome.reward,
            outcome.truncated,
        )

    def _publish_status(self, status: EpisodeStatus) -> None:
        self.status.publish(messages.status_to_msg(status))

    def _changed(self, kind: str, values: Mapping[str, object]) -> bool:
        """Whether ``values`` differ from what was last published of this ``kind``, which they now are."""
        news = self.last_published.get(kind) != values
        self.last_published[kind] = values
        return news

    def _publish_transforms(self, observation: Observation) -> None:
        poses = {name: frame.pose for name, frame in observation.cameras.items()}
        static = {name: pose for name, pose in poses.items() if name in self.config.static_cameras}
        if moving := {name: pose for name, pose in poses.items() if name not in static}:
            self.tf.publish(_transforms(moving, observation.stamp_ns))
        where = {name: (p.position.tobytes(), p.quaternion.tobytes(), p.frame) for name, p in static.items()}
        if static and self._changed("mounts", where):  # latched
            self.tf_static.publish(_transforms(static, observation.stamp_ns))

    def _outputs(self, camera: str) -> dict[str, Publisher]:
        if camera not in self.images:
            base = f"camera/{camera}"
            self.images[camera] = {
                "color": self.create_publisher(Image, f"{base}/color/image_raw", self.sensor_qos),
                "depth": self.create_publisher(Image, f"{base}/depth/image_raw", self.sensor_qos),
                "info": self.create_publisher(CameraInfo, f"{base}/camera_info", self.sensor_qos),
            }
        return self.images[camera]

    def _publish_lenses(self, observation: Observation) -> None:
        self.lenses_at_ns = observation.stamp_ns
        for name, frame in observation.cameras.items():
            height, width, _ = frame.color.shape
            optical = messages.optical_frame(name)
            info = messages.camera_info_to_msg(frame.intrinsics, width, height, frame.stamp_ns, optical)
            self._outputs(name)["info"].publish(info)

    def _publish_color(self, frame: CameraFrame) -> None:
        color = messages.color_to_msg(frame.color, frame.stamp_ns, messages.optical_frame(frame.name))
        self._outputs(frame.name)["color"].publish(color)


def _transforms(poses: Mapping[str, Pose], stamp_ns: int) -> TFMessage:
    """Return the poses of cameras as transforms of their optical frames."""
    frames = messages.optical_frame
    return TFMessage(transforms=[messages.pose_to_transform(p, frames(name), stamp_ns) for name, p in poses.items()])


def main() -> NoReturn:
    """Run the node."""
    run(SimNode)


if __name__ == "__main__":
    main()
