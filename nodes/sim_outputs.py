"""What the simulation publishes of a world: cameras, joint states, tf, clock and the robot's description."""

from __future__ import annotations

from collections.abc import Mapping

from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from engram.core.camera import CameraConfig
from engram.core.types import CameraFrame, Observation, Pose
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode


class SimOutputs:
    """The publishers of one simulated robot. One thread publishes: the simulation's.

    Args:
        node: whose publishers they are.
        cameras: the robot's, whose topics are there from the start; those of another world appear with their first
            picture. The transform of one that never moves goes to tf_static.
    """

    def __init__(self, node: EngramNode, cameras: tuple[CameraConfig, ...]) -> None:
        self._node = node
        self._static_frames = {messages.optical_frame(camera.name) for camera in cameras if camera.fixed}
        self._sensor_qos = qos.every_step(qos.SENSOR, lockstep=node.config.lockstep)
        self._clock = node.create_publisher(Clock, "/clock", self._sensor_qos)
        self._joints = node.create_publisher(JointState, "joint_states", self._sensor_qos)
        self._tf = node.create_publisher(TFMessage, "tf", self._sensor_qos)
        self._tf_static = node.create_publisher(TFMessage, "tf_static", qos.LATCHED)
        self._fixed: dict[str, Pose] = {}  # frame -> its pose, of all that tf_static has
        self._cameras: dict[str, dict[str, Publisher]] = {}
        for camera in cameras:
            self._camera(camera.name)
        self._infos: object = None  # what camera_info last said
        self._infos_at_ns = -1  # stamp that camera_info was last published with
        self._stamp_ns = 0  # of the newest observation

    def describe(self, urdf: str) -> None:
        """Publish the robot's URDF; latched."""
        self._node.create_publisher(String, "robot_description", qos.LATCHED).publish(String(data=urdf))

    def fix(self, poses: Mapping[str, Pose]) -> None:
        """Publish frames that do not move; all of them at once, as a latched topic keeps the last message alone."""
        known = {name: _bits(self._fixed[name]) for name in poses if name in self._fixed}
        if known != {name: _bits(pose) for name, pose in poses.items()}:
            self._fixed.update(poses)
            self._tf_static.publish(_transforms(self._fixed, self._stamp_ns))

    def step(self, observation: Observation, *, again: bool) -> None:
        """Publish what the command of a control step waits for; ``again``: for readers that came after the first."""
        infos = {name: (f.color.shape, f.intrinsics.tobytes()) for name, f in observation.cameras.items()}
        if infos != self._infos or again:  # those that a reader knows hold until others come
            self._infos = infos
            self._publish_infos(observation)
        self._publish_pictures(observation)
        # Last what wakes most: every process that listens to it may take the processor from the rest of the step.
        self._joints.publish(messages.joints_to_msg(observation.joints))

    def rest_of_step(self, observation: Observation, links: Mapping[str, Pose]) -> None:
        """Publish the parts of a control step that no command waits for."""
        self._clock.publish(Clock(clock=messages.to_stamp(observation.stamp_ns)))
        if self._infos_at_ns != observation.stamp_ns:
            self._publish_infos(observation)
        for frame in observation.cameras.values():
            if frame.depth is not None:
                depth = messages.depth_to_msg(frame.depth, frame.stamp_ns, messages.optical_frame(frame.name))
                self._camera(frame.name)["depth"].publish(depth)
        self._publish_links(links, observation.stamp_ns)

    def idle(self, observation: Observation, links: Mapping[str, Pose]) -> None:
        """Publish a world at rest, for those who watch.

        Without depth images: perception then sees no new frame, and the memory stays as the episode left it.
        """
        self._clock.publish(Clock(clock=messages.to_stamp(observation.stamp_ns)))
        self._publish_infos(observation)
        self._publish_pictures(observation)
        self._publish_links(links, observation.stamp_ns)
        self._joints.publish(messages.joints_to_msg(observation.joints))

    def _publish_pictures(self, observation: Observation) -> None:
        for frame in observation.cameras.values():
            self._publish_color(frame)
        poses = {messages.optical_frame(name): frame.pose for name, frame in observation.cameras.items()}
        static = {frame: pose for frame, pose in poses.items() if frame in self._static_frames}
        if moving := {frame: pose for frame, pose in poses.items() if frame not in static}:
            self._tf.publish(_transforms(moving, observation.stamp_ns))
        self._stamp_ns = observation.stamp_ns
        self.fix(static)

    def _publish_color(self, frame: CameraFrame) -> None:
        color = messages.color_to_msg(frame.color, frame.stamp_ns, messages.optical_frame(frame.name))
        self._camera(frame.name)["color"].publish(color)

    def _publish_infos(self, observation: Observation) -> None:
        self._infos_at_ns = observation.stamp_ns
        for name, frame in observation.cameras.items():
            height, width, _ = frame.color.shape
            optical = messages.optical_frame(name)
            info = messages.camera_info_to_msg(frame.intrinsics, width, height, frame.stamp_ns, optical)
            self._camera(name)["info"].publish(info)

    def _publish_links(self, links: Mapping[str, Pose], stamp_ns: int) -> None:
        if links:
            self._tf.publish(_transforms(links, stamp_ns))

    def _camera(self, name: str) -> dict[str, Publisher]:
        if name not in self._cameras:
            base, make = f"camera/{name}", self._node.create_publisher
            self._cameras[name] = {
                "color": make(Image, f"{base}/color/image_raw", self._sensor_qos),
                "depth": make(Image, f"{base}/depth/image_raw", self._sensor_qos),
                "info": make(CameraInfo, f"{base}/camera_info", self._sensor_qos),
            }
        return self._cameras[name]


def _transforms(poses: Mapping[str, Pose], stamp_ns: int) -> TFMessage:
    return TFMessage(transforms=[messages.pose_to_transform(pose, name, stamp_ns) for name, pose in poses.items()])


def _bits(pose: Pose) -> tuple[bytes, bytes, str]:
    return pose.position.tobytes(), pose.quaternion.tobytes(), pose.frame
