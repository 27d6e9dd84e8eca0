"""The last node before the actuators: action chunks and human actions in, safe joint commands out.

It runs the same `CommandPipeline` as the in-process loop, so that in lock-step both give the same commands, bit for
bit. ``safety/stop`` latches until ``safety/reset``; a human's ``intervention`` goes before any policy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NoReturn

from sensor_msgs.msg import JointState as JointStateMsg
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from engram.core.control import ControlConfig
from engram.core.errors import EngramError
from engram.core.pipeline import CommandPipeline, Decision
from engram.core.registry import make_kinematics, make_robot
from engram.core.safety import SafetyConfig
from engram.core.types import ActionChunk, EpisodeStatus, HumanAction, JointState
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.process import run
from engram.runtime.health import ERROR
from engram.runtime.parameters.safety import SafetyNodeConfig
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import Intervention, TaskStatus


class SafetyNode(EngramNode):
    """Turns chunks into commands, one for each control step, and holds whenever it is not sure."""

    config_class = SafetyNodeConfig
    sections = {"control": ControlConfig, "safety": SafetyConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("safety_node")

    def setup(self) -> None:
        """Build the pipeline from chunk to command."""
        config = self.config
        self.robot = make_robot(config.robot)
        self.pipeline = CommandPipeline(
            make_kinematics(self.robot),
            self.robot,
            lockstep=config.lockstep,
            control=self.section["control"],
            safety=self.section["safety"],
        )
        self.commands = self.create_publisher(JointTrajectory, "command", qos.COMMAND)
        executed = qos.every_step(qos.SENSOR, lockstep=self.config.lockstep)
        self.executed = self.create_publisher(ActionChunkMsg, "safety/executed", executed)
        self.stopped = self.create_publisher(Bool, "safety/stopped", qos.LATCHED)
        self._forget()

    def _forget(self) -> None:
        self.status: EpisodeStatus | None = None
        self.joints: JointState | None = None  # newest measured
        self.chunk: ActionChunk | None = None  # newest received
        self.human: HumanAction | None = None
        self.human_heard = 0.0  # monotonic s
        self.waiting_since: float | None = None  # monotonic s, for the chunk of the newest joint state
        self.last: tuple[int, int, JointTrajectory] | None = None  # episode, stamp [ns], command

    def start(self) -> None:
        """Listen to the robot, the policy and the human."""
        self._forget()
        self.pipeline.reset()
        self.subscribe(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        self.subscribe(JointStateMsg, "joint_states", self._on_joints, qos.SENSOR)
        self.subscribe(ActionChunkMsg, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        self.subscribe(Intervention, "intervention", self._on_intervention, qos.EVENTS)
        self._publish_stopped()
        self.serve(Trigger, "safety/stop", self._on_stop)
        self.serve(Trigger, "safety/reset", self._on_release)
        self.every(min(0.1, self.config.chunk_timeout_s / 2), self._give_up_waiting, "waiting")

    # -- inputs --------------------------------------------------------------------------------------------------

    def _on_status(self, msg: TaskStatus) -> None:
        was_running = self.status is not None and self.status.running
        self.status = messages.status_from_msg(msg)
        if self.config.lockstep:
            self._step()
        elif was_running and not self.status.running and self.joints is not None:
            self._send(self.pipeline.hold(self.joints, "no_task"))

    def _on_joints(self, msg: JointStateMsg) -> None:
        joints = messages.joints_from_msg(msg, self.robot.joint_names)
        self.health.trace("joints received", joints.stamp_ns)
        dt_ns = self.pipeline.control_dt_s * 1e9
        early = self.last is not None and 0 < joints.stamp_ns - self.last[1] < 0.95 * dt_ns
        if early and not self.config.lockstep:  # a robot may report faster than we control
            return
        self.joints = joints
        self._step()

    def _on_chunk(self, msg: ActionChunkMsg) -> None:
        stamp_ns = messages.from_stamp(msg.header.stamp)
        self.health.trace("chunk received", stamp_ns)
        self.health.count("chunks")
        try:
            self.chunk = messages.chunk_from_msg(msg)
        except EngramError as error:
            self.pipeline.refuse(stamp_ns, msg.execute_steps, error)
            self.report("policy/action_chunk", error)
        if self.waiting_since is not None:
            self._step()

    def _on_intervention(self, msg: Intervention) -> None:
        self.human, self.human_heard = messages.intervention_from_msg(msg), time.monotonic()
        self.health.count("interventions")
        if self.waiting_since is not None:
            self._step()

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.pipeline.stop("safety/stop")
        self.health.problem("stopped", "by safety/stop; call safety/reset to go on", ERROR, lasting=True)
        self.get_logger().error("stopped by safety/stop")
        self._publish_stopped()
        if self.joints is not None and (self.waiting_since is not None or not self.config.lockstep):
            self._send(self.pipeline.hold(self.joints))
        response.success, response.message = True, "stopped; call safety/reset to go on"
        return response

    def _on_release(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reason = self.pipeline.release()
        self.health.clear("stopped")
        self._publish_stopped()
        response.success, response.message = True, f"released from: {reason}" if reason else "was not stopped"
        return response

    def _publish_stopped(self) -> None:
        self.stopped.publish(Bool(data=bool(self.pipeline.filter.stopped)))

    # -- the control step ----------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Command the newest control step if everything for it is there."""
        joints, status = self.joints, self.status
        if joints is None or not self._due(joints, status):
            return
        episode = status.episode if status is not None else 0
        if self.last is not None and self.last[:2] == (episode, joints.stamp_ns):
            if self.config.lockstep:  # shown again: the answer must not change
                self.commands.publish(self.last[2])
            return
        if self.last is not None and (episode != self.last[0] or joints.stamp_ns < self.last[1]):
            self.pipeline.reset()
            self.last = None
        if status is not None and status.state == "held":  # sensor_msgs/JointState has no room for it
            joints = replace(joints, held=True)
        chunk = self.chunk if self.chunk is not None and self.chunk.episode == episode else None
        with self.health.timed("controller and filter"):
            decision = self.pipeline.step(joints, chunk, self._active_human(), self._age_s(joints))
        if decision is None:
            self.waiting_since = self.waiting_since or time.monotonic()
        else:
            self._send(decision)

    def _due(self, joints: JointState, status: EpisodeStatus | None) -> bool:
        if self.config.lockstep:  # joint states and status of one step arrive in any order
            return status is not None and status.running and status.stamp_ns == joints.stamp_ns
        return (status is not None and status.running) or self._active_human() is not None

    def _age_s(self, joints: JointState) -> float:
        """Return how long ago ``joints`` were measured [s]; in lock-step the simulation waits, nothing gets old."""
        return 0.0 if self.config.lockstep else self.get_clock().now().nanoseconds / 1e9 - joints.stamp_ns / 1e9

    def _active_human(self) -> HumanAction | None:
        if self.human is None or not self.human.active:
            return None
        if time.monotonic() - self.human_heard > self.config.intervention_timeout_s:
            self.health.problem("intervention", f"{self.human.who!r} was active and fell silent; control goes back")
            self.human = None
        return self.human

    def _give_up_waiting(self) -> None:
        if self.waiting_since is None or self.joints is None:
            return
        waited = time.monotonic() - self.waiting_since
        if waited >= self.config.chunk_timeout_s:
            self.health.problem("policy/action_chunk", f"none for step {self.joints.stamp_ns} ns after {waited:.1f} s")
            self._send(self.pipeline.hold(self.joints))

    # -- outputs -------------------------------------------------------------------------------------------------

    def _send(self, decision: Decision) -> None:
        """Command the robot, and tell what was let through and whose it was."""
        command = decision.command
        msg = messages.command_to_msg(command)
        self.health.trace("command sent", command.stamp_ns)
        self.commands.publish(msg)
        self.waiting_since = None
        episode = self.status.episode if self.status is not None else 0
        self.last = (episode, command.stamp_ns, msg)
        self.health.count("commands")
        if command.held:
            self.health.problem("hold", command.held)
        self.executed.publish(messages.chunk_to_msg(decision.as_chunk(episode), self.config.robot_id))

    def add_diagnostics(self) -> None:
        """Show the filter's own counters."""
        if self.state == "active":
            for name, count in self.pipeline.filter.counts.items():
                self.health.counts[f"filter {name}"] = count


def main() -> NoReturn:
    """Run the node."""
    run(SafetyNode)


if __name__ == "__main__":
    main()
