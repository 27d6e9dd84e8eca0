"""The limit: the messages of one control step cross to other processes with plain rclpy, and a command comes back.

Five layouts. ``bare`` sends the two colour images and the joint states to one peer. ``all messages`` sends every
message that the simulation publishes in a step, with its quality of service, to one peer. ``all messages and
processes`` sends them to two, as ours go to the policy and to the safety node: the first answers the step with an
action chunk, the second answers that with the command. Between two rounds these sleep, with warm caches.

``all messages, processes and work`` is the same beside what ours do meanwhile: before a round the origin steps and
renders the simulation, and before its answer the policy's peer runs the policy's network. Neither is in the time that
is told, but both leave the processor's caches as ours find them.

``rest later`` is ``all messages and processes`` in our order: clock, camera_info and depth, which no command waits
for, go out when the command has come. In all layouts messages are made once and only stamped anew; no message's
content is computed or converted.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import rclpy
from builtin_interfaces.msg import Duration
from geometry_msgs.msg import TransformStamped
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from engram.core.robot import PANDA_2F85
from engram.core.types import JointCommand, Observation
from engram.nodes import qos
from engram.runtime.factories import black_observation, make_policy
from engram.sim.world import WorldConfig
from engram.sim.worlds import make_world
from engram_interfaces.msg import ActionChunk, TaskStatus

CAMERAS = PANDA_2F85.camera_names
JOINTS = 8
HORIZON, ACTION_DIM = 16, 7
ROUND_TIMEOUT_S = 60.0
START_ROUNDS = 240
"""Steps of half a second that the peers have to be discovered in."""
CONTROL_DT_NS = 100_000_000
TASK = "pick_place"

SENSOR, STATUS = (qos.every_step(profile, lockstep=True) for profile in (qos.SENSOR, qos.LATCHED))
"""As deep as the simulation writes in lock-step."""
Kind = tuple[type, QoSProfile]
BARE: dict[str, Kind] = {
    **{f"{c}/color": (Image, SENSOR) for c in CAMERAS},
    "joint_states": (JointState, SENSOR),
}
"""Topic -> type and quality of service, in the order of publication."""
WAITED_FOR: dict[str, Kind] = {"status": (TaskStatus, STATUS), "tf": (TFMessage, SENSOR), **BARE}
"""What a command waits for."""
REST: dict[str, Kind] = {
    "clock": (Clock, SENSOR),
    **{f"{c}/info": (CameraInfo, SENSOR) for c in CAMERAS},
    **{f"{c}/depth": (Image, SENSOR) for c in CAMERAS},
}
"""What the simulation publishes after that."""


@dataclass(frozen=True)
class Layout:
    """What is sent, and who reads it."""

    sent: dict[str, Kind]
    peers: dict[str, tuple[str, ...]]
    """Role -> topics that it reads; ``one`` answers a step by the command, ``policy`` by a chunk."""
    work: bool = False
    """Whether the origin renders between two rounds and the policy's peer runs the network."""
    rest_later: bool = False
    """Whether what no command waits for is sent when the command has come, and not in the time that is told."""


READ_BY_POLICY = (*WAITED_FOR, *(f"{c}/info" for c in CAMERAS))
READ_BY_TWO = {"policy": READ_BY_POLICY, "safety": ("status", "joint_states")}
LAYOUTS = {
    "bare": Layout(BARE, {"one": (*BARE,)}),
    "all_messages": Layout(WAITED_FOR | REST, {"one": READ_BY_POLICY}),
    "all_messages_and_processes": Layout(WAITED_FOR | REST, READ_BY_TWO),
    "all_messages_processes_and_work": Layout(WAITED_FOR | REST, READ_BY_TWO, work=True),
    "rest_later": Layout(WAITED_FOR | REST, READ_BY_TWO, rest_later=True),
}


def _image(size: int, encoding: str, pixel_bytes: int) -> Image:
    msg = Image(height=size, width=size, encoding=encoding, step=pixel_bytes * size)
    msg.header.frame_id = "camera_optical_frame"
    msg.data.frombytes(bytes(pixel_bytes * size * size))
    return msg


def _example(topic: str, size: int) -> Any:
    """Return a message of the size that the simulation's has on ``topic``."""
    names = [f"joint{i}" for i in range(JOINTS)]
    if topic.endswith("/color"):
        return _image(size, "rgb8", 3)
    if topic.endswith("/depth"):
        return _image(size, "32FC1", 4)
    if topic.endswith("/info"):
        return CameraInfo(height=size, width=size, distortion_model="plumb_bob", d=[0.0] * 5)
    return {
        "status": TaskStatus(robot_id="robot0", instruction="put the green cube in the bin", task="pick_place"),
        "tf": TFMessage(transforms=[TransformStamped(child_frame_id="wrist_optical_frame")]),
        "clock": Clock(),
        "joint_states": JointState(name=names, position=[0.0] * JOINTS, velocity=[0.0] * JOINTS),
        "chunk": ActionChunk(robot_id="robot0", space="ee_delta", actions=[0.0] * HORIZON * ACTION_DIM),
        "command": JointTrajectory(joint_names=names, points=[JointTrajectoryPoint(positions=[0.0] * JOINTS)]),
    }[topic]


def _time_of(msg: Any) -> Any:
    """Return the message's stamp, to read or to set."""
    if isinstance(msg, Clock):
        return msg.clock
    return (msg.transforms[0] if isinstance(msg, TFMessage) else msg).header.stamp


class Network:
    """The forward pass between the policy peer's last message and its answer."""

    def __init__(self, policy: str) -> None:
        self.policy = make_policy(policy)
        self.policy.reset("put the green cube in the bin")
        self.step = 0

    def seconds(self) -> float:
        """Observe and act once; return how long that took [s]."""
        self.step += 1
        begin = time.perf_counter()
        self.policy.observe(black_observation(self.policy, self.step * CONTROL_DT_NS))
        self.policy.act()
        return time.perf_counter() - begin


class Scene:
    """What the simulation does before each step: physics and two cameras."""

    def __init__(self, size: int) -> None:
        self.world = make_world("tabletop", WorldConfig(image_size=size, depth=True))
        self.observation: Observation | None = None
        self.episode = 0

    def step(self) -> None:
        """Let the arm stand still for one control step and render it; begin anew where an episode is over."""
        if self.observation is None or self.world.oracle_outcome().over:
            self.episode += 1
            self.observation = self.world.reset(TASK, self.episode)
        joints = self.observation.joints
        stay = JointCommand(joints.stamp_ns, joints.names, joints.positions, CONTROL_DT_NS / 1e9)
        self.observation = self.world.step(stay)


def peer(layout: str, role: str, policy: str) -> None:
    """Answer what ``role`` waits for, until a signal."""
    network = Network(policy) if LAYOUTS[layout].work and role == "policy" else None
    rclpy.init()
    node = Node(role, namespace=layout)
    waited = {"one": [t for t in LAYOUTS[layout].sent if t in WAITED_FOR], "policy": [*WAITED_FOR], "safety": ["chunk"]}
    answer = "chunk" if role == "policy" else "command"
    msg = _example(answer, 0)
    back = node.create_publisher(type(msg), answer, qos.CHUNK if answer == "chunk" else qos.COMMAND)
    seen: Counter[int] = Counter()

    def take(topic: str, got: Any) -> None:
        if topic not in waited[role]:
            return
        stamp = _time_of(got).sec
        seen[stamp] += 1
        if seen[stamp] < len(waited[role]):
            return
        msg.header.stamp.sec = stamp
        if network is not None:
            msg.dt = network.seconds()  # nobody executes the chunk: dt tells the origin how long the network took
        if role == "safety":
            msg.points[0].time_from_start = _duration(got.dt)
        back.publish(msg)

    for topic in LAYOUTS[layout].peers[role]:
        kind, profile = LAYOUTS[layout].sent[topic]
        node.create_subscription(kind, topic, lambda got, t=topic: take(t, got), profile)
    if role == "safety":
        node.create_subscription(ActionChunk, "chunk", lambda got: take("chunk", got), qos.CHUNK)
    # A signal wakes rclpy before it ends its context: whoever has nothing else to wake up for sleeps on.
    node.create_timer(1.0, lambda: None)
    gc.freeze()  # as our nodes do
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        return


def _duration(seconds: float) -> Duration:
    whole, part = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(sec=whole, nanosec=part)


class Origin:
    """Sends the messages of one control step with plain rclpy and waits for the command that answers them."""

    def __init__(self, layout: str, size: int) -> None:
        rclpy.init()
        self.node = Node("origin", namespace=layout)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        outputs: dict[str, tuple[Publisher, Any]] = {
            topic: (self.node.create_publisher(kind, topic, profile), _example(topic, size))
            for topic, (kind, profile) in LAYOUTS[layout].sent.items()
        }
        later = REST if LAYOUTS[layout].rest_later else {}
        self.now = [output for topic, output in outputs.items() if topic not in later]
        self.later = [output for topic, output in outputs.items() if topic in later]
        self.back: list[JointTrajectory] = []
        self.node.create_subscription(JointTrajectory, "command", self.back.append, qos.COMMAND)
        self.stamp = 0

    def round_ms(self, timeout_s: float) -> float | None:
        """Return how long the next step took without the network [ms]; None if no command came in ``timeout_s``."""
        self.stamp += 1
        begin = time.perf_counter()
        self._send(self.now)
        while not self.back or self.back[-1].header.stamp.sec != self.stamp:
            self.executor.spin_once(timeout_sec=0.2)
            if time.perf_counter() - begin > timeout_s:
                return None
        took_s = time.perf_counter() - begin
        network = self.back[-1].points[0].time_from_start
        self.back.clear()
        self._send(self.later)
        return 1e3 * (took_s - network.sec - network.nanosec / 1e9)

    def _send(self, outputs: list[tuple[Publisher, Any]]) -> None:
        for publisher, msg in outputs:
            _time_of(msg).sec = self.stamp
            publisher.publish(msg)


def origin(layout: str, size: int, period_s: float) -> None:
    """Say so when all peers answer; then for each number on standard input print as many round trips [ms]."""
    between: Callable[[], object] = lambda: time.sleep(period_s)  # noqa: E731
    if LAYOUTS[layout].work:
        between = Scene(size).step
    source = Origin(layout, size)
    gc.freeze()  # as our nodes do
    if all(source.round_ms(0.5) is None for _ in range(START_ROUNDS)):
        raise TimeoutError(f"raw loop {layout!r}: no peer was discovered")
    print("[]", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            between()
            times.append(source.round_ms(ROUND_TIMEOUT_S))
        print(json.dumps(times), flush=True)


class RawLoop:
    """The processes of one layout: ``rounds`` may be asked for again and again, until ``close``."""

    def __init__(self, layout: str, size: int, period_s: float, policy: str = "base") -> None:
        """Start them; ``policy`` names the network where one runs."""
        self.layout = layout
        self._peers = [self._start("peer", layout, role, policy) for role in LAYOUTS[layout].peers]
        self._origin = self._start("origin", layout, str(size), str(period_s), pipe=subprocess.PIPE)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _start(*words: str, pipe: int | None = None) -> subprocess.Popen:
        command = [sys.executable, "-m", "engram.benchmarks.loop_raw", *words]
        return subprocess.Popen(command, stdin=pipe or subprocess.DEVNULL, stdout=pipe, text=True)

    def _read(self) -> list[float]:
        assert self._origin.stdout is not None
        line = self._origin.stdout.readline()
        if not line:
            raise RuntimeError(f"raw loop {self.layout!r}: its origin ended with {self._origin.wait()}")
        return json.loads(line)

    def rounds_ms(self, count: int) -> np.ndarray:
        """Return ``count`` round trips [ms]."""
        assert self._origin.stdin is not None
        self._origin.stdin.write(f"{count}\n")
        self._origin.stdin.flush()
        times = self._read()
        if None in times:
            raise TimeoutError(f"raw loop {self.layout!r}: a step had no answer within {ROUND_TIMEOUT_S:g} s")
        return np.array(times)

    def close(self) -> None:
        """End the processes."""
        assert self._origin.stdin is not None
        self._origin.stdin.close()  # it reads there, and rclpy would swallow a signal
        for child in self._peers:
            child.terminate()
        for child in (*self._peers, self._origin):
            child.wait()


if __name__ == "__main__":  # peer LAYOUT ROLE POLICY, or origin LAYOUT SIZE PERIOD
    if sys.argv[1] == "peer":
        peer(*sys.argv[2:])
    else:
        origin(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
