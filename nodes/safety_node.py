"""The last node before the actuators: action chunks and human actions in, safe joint commands out.

It runs the same `CommandPipeline` as the in-process loop, so that in lock-step both give the same commands, bit for
bit. ``safety/stop`` latches until ``safety/reset``; a human's ``intervention`` goes before any policy.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from sensor_msgs.msg import JointState as JointStateMsg
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from engram.core.control import ControlConfig
from engram.core.errors import EngramError, StoreError, StoreLockedError
from engram.core.lock import WriterLock
from engram.core.pipeline import CommandPipeline, Decision
from engram.core.registry import make_kinematics, make_robot
from engram.core.safety import SafetyConfig
from engram.core.types import JointCommand
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.known_obstacles import ObstacleFeed
from engram.nodes.process import run
from engram.runtime.last_command import LastCommandFile
from engram.runtime.parameters.safety import SafetyNodeConfig
from engram.runtime.safety_session import SafetySession, SessionConfig
from engram.runtime.stop_latch import StopLatch
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import Intervention, TaskStatus

JUMP_GRACE_S = 1.0
"""A simulation that does not wait for commands: a new episode may be told of so long after the arm was moved [s]."""


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
        self.simulated = bool(self.get_parameter("use_sim_time").value)
        self.pipeline = CommandPipeline(
            make_kinematics(self.robot),
            self.robot,
            lockstep=config.lockstep,
            control=self.section["control"],
            safety=self.section["safety"],
            jump_grace_s=JUMP_GRACE_S if self.simulated and not config.lockstep else 0.0,
        )
        folder = config.stop_folder.replace("{robot_id}", config.robot_id)
        self.folder = Path(folder).expanduser() if folder else None
        self.last_command = LastCommandFile(self.folder, self.robot.joint_names, self.pipeline.control_dt_s)
        self.commands = self.create_publisher(JointTrajectory, "command", qos.COMMAND)
        executed = qos.every_step(qos.SENSOR, lockstep=self.config.lockstep)
        self.executed = self.create_publisher(ActionChunkMsg, "safety/executed", executed)
        self.stopped = self.create_publisher(Bool, "safety/stopped", qos.LATCHED)
        self.lock = self._locked()  # last: an attempt that fails after it would keep it

    def start(self) -> None:
        """Listen to the robot, the policy and the human."""
        config = self.config
        patience = config.chunk_timeout_s, config.intervention_timeout_s, config.joints_timeout_s, config.answer_wait
        waits = SessionConfig(config.lockstep, self.simulated or config.lockstep, *patience)
        kept = StopLatch(self.folder), self.last_command
        self.session = SafetySession(self.pipeline, *kept, waits, self, self.health, self._now_ns)
        subscribe_bound(self, TaskStatus, "task/status", self._on_status, qos.LATCHED)
        subscribe_bound(self, JointStateMsg, "joint_states", self._on_joints, qos.SENSOR)
        subscribe_bound(self, ActionChunkMsg, "policy/action_chunk", self._on_chunk, qos.CHUNK)
        subscribe_bound(self, Intervention, "intervention", self._on_intervention, qos.EVENTS)
        self.obstacles = ObstacleFeed(self, self.pipeline) if config.memory_obstacles else None
        self.serve(Trigger, "safety/stop", self._on_stop)
        self.serve(Trigger, "safety/reset", self._on_release)
        self.every(min(0.1, config.chunk_timeout_s / 2), self.session.watch, "waiting")
        if config.answer_wait and not config.lockstep:
            self.every(0.1 * self.pipeline.control_dt_s, self.session.watch_answer, "answer")

    def teardown(self) -> None:
        """Close the file of the last command, and leave the folder to another safety node."""
        self.last_command.close()
        if self.lock is not None:
            self.lock.release()

    def _locked(self) -> WriterLock | None:
        """Take the folder of the stop: another node set's safety node would release our stop with its own.

        Raises:
            StoreLockedError: another process holds it.
        """
        try:
            return None if self.folder is None else WriterLock(self.folder, "safety_node.lock")
        except StoreLockedError:
            raise
        except StoreError as error:  # a stop works all the same, and says that it would not survive a restart
            self.health.problem("stop_folder", str(error))
            return None

    def _now_ns(self) -> int:
        return self.get_clock().now().nanoseconds

    # -- inputs --------------------------------------------------------------------------------------------------

    def _on_status(self, msg: TaskStatus) -> None:
        self.session.on_status(messages.status_from_msg(msg), self._status_writers)

    def _status_writers(self) -> list[str]:
        """Return the global id of everybody who publishes task/status."""
        found = self.get_publishers_info_by_topic(self.resolve_topic_name("task/status"))
        return [bytes(writer.endpoint_gid).hex() for writer in found]

    def _on_joints(self, msg: JointStateMsg) -> None:
        joints = messages.joints_from_msg(msg, self.robot.joint_names)
        self.health.trace("joints received", joints.stamp_ns)
        self.session.on_joints(joints)

    def _on_chunk(self, msg: ActionChunkMsg) -> None:
        stamp_ns = messages.from_stamp(msg.header.stamp)
        self.health.trace("chunk received", stamp_ns)
        self.health.count("chunks")
        try:
            chunk = messages.chunk_from_msg(msg)
        except EngramError as error:
            self.report("policy/action_chunk", error)
            self.session.on_bad_chunk(stamp_ns, msg.episode, msg.execute_steps, error)
        else:
            self.session.on_chunk(chunk)

    def _on_intervention(self, msg: Intervention) -> None:
        human = messages.intervention_from_msg(msg)
        self.health.count("interventions")
        self.session.on_human(human)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.session.stop("by safety/stop")
        response.success, response.message = True, "stopped; call safety/reset to go on"
        if self.session.latch.problem:
            response.message += f". {self.session.latch.problem}"
        return response

    def _on_release(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reason = self.session.release()
        response.success, response.message = True, f"released from: {reason}" if reason else "was not stopped"
        return response

    # -- outputs -------------------------------------------------------------------------------------------------

    def command(self, decision: Decision, episode: int) -> None:
        """Command the robot, and tell what was let through and whose it was."""
        self.health.trace("command sent", decision.command.stamp_ns)
        self.repeat(decision.command)
        self.health.count("commands")
        self.tell(decision, episode)

    def tell(self, decision: Decision, episode: int) -> None:
        """Tell what was let through and whose it was."""
        if decision.command.held:
            self.health.problem("hold", decision.command.held)
        self.executed.publish(messages.chunk_to_msg(decision.as_chunk(episode), self.config.robot_id))

    def repeat(self, command: JointCommand) -> None:
        """Give the last command once more."""
        self.commands.publish(messages.command_to_msg(command))

    def latched(self, reason: str) -> None:
        """Tell whether a stop is latched."""
        if reason:
            self.get_logger().error(f"stopped: {reason}")
        self.stopped.publish(Bool(data=bool(reason)))

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
