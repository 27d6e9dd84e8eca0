"""The simulated workcell as a robot: cameras, joint states, tf and clock out, joint commands in.

In lock-step every control step waits for the command with its own stamp; in free running the newest command counts.
``sim/reset`` begins an episode; ``task/status`` says what it is doing, with the simulator's own verdict. Between
episodes nothing moves: the world at rest is shown twice a second, and the clock goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NoReturn

from std_msgs.msg import Bool
from trajectory_msgs.msg import JointTrajectory

from engram.core.command_guard import CommandGuard
from engram.core.contracts import ViewableWorld, World
from engram.core.declared import check_named
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.registry import make_robot
from engram.core.types import EpisodeStatus, Observation, OracleOutcome, Pose
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.process import run
from engram.nodes.sim_outputs import SimOutputs
from engram.runtime.episode_status import episode_status
from engram.runtime.health import ERROR
from engram.runtime.parameters.sim import SimNodeConfig
from engram.runtime.safety_notes import REFUSED_WHILE_STOPPED
from engram.runtime.sim_loop import SimLoop, SimLoopConfig
from engram.sim.world import WorldConfig
from engram.sim.worlds import make_world
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim

HEARING_S = 4.0
"""How long after its creation a node has heard of those that were there before [s], also on a busy machine."""
UNKNOWN = "_NODE_NAME_UNKNOWN_"
"""What rclpy calls a node of which it knows a topic but not yet the name."""


class SimNode(EngramNode):
    """Publishes what the world senses and steps it by commands."""

    config_class = SimNodeConfig
    sections = {"world_config": WorldConfig}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("sim_node")
        self.created = time.monotonic()

    def setup(self) -> None:
        """Open the world and the topics that do not depend on it."""
        config = self.config
        self.robot = make_robot(config.robot)
        if (simulated_s := self.section["world_config"].control_dt_s) != config.control_dt_s:
            raise InvalidInputError(
                f"control_dt_s: {config.control_dt_s}, but world_config.control_dt_s: {simulated_s}; expected the same"
            )
        self.shown: dict[int, float] = {}  # stamp of the step under way -> when it was published [monotonic s]
        self.guard = CommandGuard(self.robot, config.control_dt_s)
        timing = config.lockstep, config.control_dt_s, config.retry_s, config.command_timeout_s, config.rest_period_s
        self.loop = SimLoop(
            self._make_world,
            self._show,
            self._show_rest,
            self._report,
            self.health.count,
            SimLoopConfig(*timing),
            self._show_idle,
            self.guard,
        )
        self.links_fixed = False  # the robot's fixed links are on tf_static
        self.loop.wait_ready()
        self._refuse_second_clock()
        self.outputs = SimOutputs(self, self.robot.cameras)
        if self.viewable is not None:
            self.outputs.describe(self.viewable.robot_description())
        steps = qos.every_step(qos.SENSOR, lockstep=config.lockstep)
        self.step_status = self.create_publisher(TaskStatus, "task/step", steps)
        self.status = self.create_publisher(TaskStatus, "task/status", qos.LATCHED)

    def _make_world(self) -> World:
        """Make the world; in the simulation's thread."""
        world = make_world(self.config.world, self.section["world_config"], self.robot, judged=False)
        self.viewable = world if isinstance(world, ViewableWorld) else None
        return world

    def _named_publishers(self, topic: str) -> list[str]:
        return [f"{e.node_namespace.rstrip('/')}/{e.node_name}" for e in self.get_publishers_info_by_topic(topic)]

    def _refuse_second_clock(self) -> None:
        topic = self.resolve_topic_name("/clock")
        others = self._named_publishers(topic)
        while time.monotonic() < self.created + HEARING_S and (not others or any(UNKNOWN in who for who in others)):
            time.sleep(0.05)  # usually over by now: loading the world took longer; a name may come after its topic
            others = self._named_publishers(topic)
        if others:
            self.loop.stop()
            raise InvalidInputError(
                f"{topic} is already published by {', '.join(others)}: two simulations "
                "cannot share a clock. Give this one a clock of its own, such as clock:=/r2/clock (launch argument), "
                "or another ROS_DOMAIN_ID"
            )

    def start(self) -> None:
        """Take commands; begin the first episode if there is one."""
        self.stopped = False  # as safety/stopped says
        self.task = self.config.task  # the current one
        subscribe_bound(self, Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        subscribe_bound(self, JointTrajectory, "command", self._on_command, qos.COMMAND)
        self.serve(ResetSim, "sim/reset", self._on_reset)
        self._publish_status(EpisodeStatus(0, self.config.robot_id, 0, "", "", 0, "idle"))
        if self.config.task:
            first = self.loop.reset(self.config.task, self.config.seed, "")
            first.add_done_callback(self._check_first_task)

    def teardown(self) -> None:
        """Close the world."""
        self.loop.stop()

    async def _on_reset(self, request: ResetSim.Request, response: ResetSim.Response) -> ResetSim.Response:
        if self.stopped:
            response.message = REFUSED_WHILE_STOPPED
            return response
        try:
            check_named("task", request.task, (self.config.task, *self.config.tasks.split(",")))
        except UnknownNameError as error:
            response.message = str(error)
            return response
        answered = self.promise()
        self.loop.reset(request.task or self.task, request.seed, request.instruction).add_done_callback(
            answered.set_result
        )
        done = await answered
        assert done is not None
        problem = None if done.cancelled() else done.exception()
        if done.cancelled() or problem is not None:
            response.message = str(problem) if problem else "replaced by a later reset"
            return response
        outcome: OracleOutcome = done.result()
        self.task = outcome.task
        response.accepted, response.task = True, outcome.task
        response.instruction, response.episode = outcome.instruction, outcome.episode + 1
        return response

    def _on_command(self, msg: JointTrajectory) -> None:
        stamp_ns = messages.from_stamp(msg.header.stamp)
        self.health.trace("command received", stamp_ns)
        shown = self.shown.pop(stamp_ns, None)
        if shown is not None:
            self.health.seconds("camera to command", time.monotonic() - shown)
        self.loop.command(messages.command_from_msg(msg, self.robot.joint_names))

    def _on_stopped(self, msg: Bool) -> None:
        self.stopped = msg.data
        self.guard.stop(msg.data)

    def _check_first_task(self, done: Future) -> None:
        """End the node for a task that does not exist: the parameter that names it is read once, at the start."""
        error = None if done.cancelled() else done.exception()
        if error is None:
            return
        self.health.problem("task", str(error), ERROR, lasting=True)
        if isinstance(error, InvalidInputError | UnknownNameError):
            self.unfit = error
        else:
            self.get_logger().error(f"task: {error}")

    def _report(self, key: str, text: str) -> None:
        if not self.context.ok():  # a signal ended the context under the simulation's feet: no problem of ours
            return
        if not text:
            self.health.clear(key)
            return
        if key == "command":
            text = f"{text}; {self._why_no_command()}"
        self.health.problem(key, text)
        self.get_logger().warning(f"{key}: {text}", throttle_duration_sec=5.0)

    def _why_no_command(self) -> str:
        if not self.count_publishers("command"):
            return "nobody publishes 'command': safety_node is not active"
        if not self.count_publishers("policy/action_chunk"):
            return "nobody publishes 'policy/action_chunk': policy_node is not active"
        return "the diagnostics of policy_node and safety_node say what they wait for"

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
        self.outputs.step(observation, again=again)
        self._publish_status(episode_status(observation, outcome, self.config.robot_id))
        self.health.trace("shown", stamp_ns)

    def _show_rest(self, observation: Observation) -> None:
        """Publish the parts of the step that no command waits for; called in the simulation's thread."""
        if self.state == "active":
            self.outputs.rest_of_step(observation, self._links())

    def _show_idle(self, observation: Observation) -> None:
        """Publish the world between two episodes; called in the simulation's thread."""
        if self.state == "active" and self.viewable is not None:
            # Not on task/status: there the verdict on the last episode stays for those who come late.
            status = EpisodeStatus(observation.stamp_ns, self.config.robot_id, 0, "", "", 0, "idle")
            self.step_status.publish(messages.status_to_msg(status))
            self.outputs.idle(observation, self._links())

    def _links(self) -> Mapping[str, Pose]:
        """Return where the robot's moving links are, those that never move having been published."""
        if self.viewable is None:
            return {}
        if not self.links_fixed:  # not sooner: until it is first shown, the world has no scene
            self.links_fixed = True
            self.outputs.fix(self.viewable.link_poses(moving=False))
        return self.viewable.link_poses(moving=True)

    def _publish_status(self, status: EpisodeStatus) -> None:
        msg = messages.status_to_msg(status)
        self.step_status.publish(msg)
        self.status.publish(msg)


def main() -> NoReturn:
    """Run the node."""
    run(SimNode)


if __name__ == "__main__":
    main()
