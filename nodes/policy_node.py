"""Observations and an instruction in, action chunks out. The network runs in a worker thread, never in a callback.

An episode begins when ``task/status`` names a new one (simulation) or when an ``execute_task`` goal is accepted
(robot). Every control step is observed; a chunk is published when one is due.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from sensor_msgs.msg import JointState

from engram.core.registry import make_kinematics, make_robot
from engram.core.types import HOLD, HUMAN, EpisodeStatus
from engram.core.types import ActionChunk as PolicyChunk
from engram.nodes import messages, qos
from engram.nodes.assembly import make_camera, subscribe_camera, subscribe_transforms
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.experience_topics import open_outbox
from engram.nodes.policy_choice import PolicyChoice
from engram.nodes.process import run
from engram.nodes.task_goals import TaskGoals
from engram.nodes.weights_inbox import WeightsInbox
from engram.runtime.assembly import ObservationInbox
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.experience_outbox import ExperienceOutbox
from engram.runtime.goal_book import Goal
from engram.runtime.health import ERROR
from engram.runtime.losses import JOINTS, SAFETY, LossWatch, limits_of
from engram.runtime.parameters.policy import PolicyNodeConfig
from engram.runtime.policy_judge import PolicyJudge
from engram.runtime.policy_notes import CORRECTED_BY, POLICIES, POLICY_DRIVES, REMEMBERED
from engram.runtime.policy_runner import Overruled, PolicyStep
from engram.runtime.step_inputs import StepInput, StepInputs, StepInputsConfig
from engram.runtime.transforms import TransformBuffer
from engram_interfaces.msg import ActionChunk, MemoryContext, TaskStatus


class PolicyNode(EngramNode):
    """Assembles observations by stamp and hands them to the policy's worker."""

    config_class = PolicyNodeConfig

    def __init__(self) -> None:
        super().__init__("policy_node")

    def setup(self) -> None:
        """Load the policy."""
        self.robot = make_robot(self.config.robot)
        keeper = EpisodeKeeper(self._folder(self.config.memory_folder), partial(self.health.problem, "episode memory"))
        self.choice = PolicyChoice(self, self.robot, keeper, self._folder(self.config.correction_folder))
        self.runner = self.choice.runner
        self.judge = PolicyJudge.open(self.config.success_classifiers, lambda: self.runner.policy)
        self.chunks = self.create_publisher(ActionChunk, "policy/action_chunk", qos.CHUNK)
        self.status_out = self.create_publisher(TaskStatus, "task/status", qos.LATCHED)

    def start(self) -> None:
        """Subscribe to what an observation consists of, and offer execute_task."""
        config = self.config
        transforms = TransformBuffer(self.health)
        cameras = [make_camera(each, transforms, depth=False) for each in self.robot.chosen_cameras(config.cameras)]
        self.inbox = ObservationInbox(cameras, config.camera_tolerance_s)
        waits = StepInputsConfig(config.lockstep, config.memory, config.context_age_s, config.missing_after_s)
        self.inputs = StepInputs(waits, lambda: self.runner.reads_context, self.health.problem, self.health.count)
        self.last_stamp = -1
        self.progress_at = time.monotonic()
        self.phase = "waiting"  # as the safety node last told: acting, holding, intervention
        # In lock-step nothing may be lost; free running keeps up with the present.
        self.thread = self.worker("policy", self._think, capacity=4096 if config.lockstep else 8)
        self.choice.start()
        self.losses = LossWatch(limits_of(config))
        self.watched: Goal | None = None  # the goal that losses count for
        self.goals = TaskGoals(self, self.runner, self.publish_status)
        self.weights = WeightsInbox(self, self._folder(config.weights_folder), self.runner)
        self.experience: ExperienceOutbox | None = None
        if config.experience:
            folder = self._folder(config.spool)
            self.experience = open_outbox(self, folder, make_kinematics(self.robot), self.robot)
        for camera in cameras:
            subscribe_camera(self, camera, self._advance)
        subscribe_transforms(self, transforms, self._advance)
        every_step = partial(qos.every_step, lockstep=config.lockstep)
        subscribe_bound(self, JointState, "joint_states", self._on_joints, every_step(qos.SENSOR))
        if config.episodes == "status":
            topic, profile = qos.every_status(lockstep=config.lockstep)
            subscribe_bound(self, TaskStatus, topic, self._on_status, profile)
        subscribe_bound(self, ActionChunk, "safety/executed", self._on_executed, every_step(qos.SENSOR), every=True)
        if config.memory != "off":
            subscribe_bound(self, MemoryContext, "memory/context", self._on_memory, every_step(qos.COMMAND), every=True)
        self.every(0.5, self._watch, "observation")
        self.goals.book.rest()

    def stop(self) -> None:
        """End the goal that runs; write what is recorded."""
        self.goals.close()
        if self.experience is not None:
            self.experience.close()

    def teardown(self) -> None:
        """Take no more parameters."""
        self.choice.close()

    def _folder(self, template: str) -> Path:
        return Path(template.replace("{robot_id}", self.config.robot_id)).expanduser()

    # -- inputs --------------------------------------------------------------------------------------------------

    def _on_joints(self, msg: JointState) -> None:
        joints = messages.joints_from_msg(msg, self.robot.joint_names)
        self.losses.heard(JOINTS)
        self.health.trace("joints received", joints.stamp_ns)
        early = 0 < joints.stamp_ns - self.last_stamp < 0.95e9 * self.config.control_dt_s
        if joints.stamp_ns == self.last_stamp or (early and not self.config.lockstep):
            return  # shown again, or a robot that reports faster than we control
        self.inbox.add_joints(joints)
        self._advance()

    def _on_status(self, msg: TaskStatus) -> None:
        self.take_status(messages.status_from_msg(msg))

    def take_status(self, status: EpisodeStatus) -> None:
        """Take in what the episode is doing, from the simulation or from a goal of our own."""
        self.inputs.became(status)
        if self.experience is not None:
            self.experience.became(status)
        self.goals.book.on_status(status)
        self._advance()

    def publish_status(self, status: EpisodeStatus) -> None:
        """Tell what an episode of our own is doing."""
        self.status_out.publish(messages.status_to_msg(status))
        self.take_status(status)

    def _on_executed(self, msg: ActionChunk) -> None:
        self.losses.heard(SAFETY)
        if self.experience is not None:
            self.experience.executed(messages.chunk_from_msg(msg))
        if (author := msg.policy_version).startswith(HUMAN):
            self.thread.put(Overruled(messages.from_stamp(msg.header.stamp), msg.episode))
        self.inputs.overruled = author.startswith(HUMAN)
        self.phase = "holding" if author.startswith(HOLD) else "intervention" if author.startswith(HUMAN) else "acting"

    def _on_memory(self, msg: MemoryContext) -> None:
        self.inputs.remembered(messages.tokens_from_msg(msg))
        self._advance()

    # -- one control step ----------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Hand over every control step for which everything is there, oldest first."""
        for observation in self.inbox.take():
            self.last_stamp = observation.stamp_ns
            self.inputs.observed(observation)
        for step in self.inputs.take():
            stamp_ns = step.observation.stamp_ns
            self.health.trace("observation complete", stamp_ns)
            self.progress_at = time.monotonic()
            if step.status.running:
                self._hand_over(step)

    def _hand_over(self, step: StepInput) -> None:
        self.health.count("observations")
        observation, status = step.observation, step.status
        instruction = self.goals.book.instruction_for(status)
        halted = self.goals.book.halted(status.episode)
        if self.experience is not None:
            now = replace(status, stamp_ns=observation.stamp_ns)
            read = step.memory if self.runner.reads_context else None
            self.experience.observed(observation, now, instruction, read)
        goal = self.goals.book.on_step(status)
        self.losses.asked()
        self.thread.put((PolicyStep(observation, status.episode, instruction, step.memory, halted), goal))

    def _think(self, work: tuple[PolicyStep, Goal | None] | Overruled) -> None:
        """Run the policy, then tell how the goal goes: no command waits for that. In the worker's thread."""
        if isinstance(work, Overruled):
            self._send(self.runner.overruled(work))
            return
        step, goal = work
        try:
            self._answer(step)
            self.losses.answered()
            if goal is not None and self.judge is not None:
                self.goals.judged(self.judge.judge(step))
        finally:
            if goal is not None:
                self.goals.tell(goal, self.phase)

    def _answer(self, step: PolicyStep) -> None:
        began = time.perf_counter()
        stamp_ns = step.observation.stamp_ns
        self.health.trace("policy begins", stamp_ns)
        chunk = self.runner.step(step)
        self.health.trace("policy ends", stamp_ns)
        self._send(chunk)
        self.health.seconds("observe" if chunk is None else "observe and act", time.perf_counter() - began)

    def _send(self, chunk: PolicyChunk | None) -> None:
        if chunk is None:
            return
        if self.experience is not None:
            self.experience.chunk(chunk, self.runner.source)
        self.health.trace("chunk sent", chunk.stamp_ns)
        self.chunks.publish(messages.chunk_to_msg(chunk, self.config.robot_id))
        self.health.count("chunks")

    def _watch(self) -> None:
        """Name what keeps an observation from being complete; go on where waiting for memory took too long."""
        if self.inputs.waiting():
            self._advance()
        waited = time.monotonic() - self.progress_at
        missing = self.inbox.missing()
        self._watch_losses(missing)
        if missing and waited > self.config.missing_after_s:
            self.health.problem("observation", f"incomplete for {waited:.0f} s: lacks {', '.join(missing)}")
        elif not missing:
            self.health.clear("observation")

    def _watch_losses(self, missing: list[str]) -> None:
        """End the goal at hand when what it needs is lost."""
        goal = self.goals.book.goal
        if goal is None or goal.episode is None or goal is not self.watched:
            self.watched = goal if goal is not None and goal.episode is not None else None
            self.losses.begin()
        elif loss := self.losses.found(missing, self.inputs.awaits_memory()):
            self.health.problem("loss", loss, ERROR)
            self.goals.book.lose(loss)

    def add_diagnostics(self) -> None:
        """Say which weights are in use, and what the policy remembers of its episode."""
        if self.state == "active":
            self.health.note(POLICY_DRIVES, self.runner.drives)
            self.health.note("policy version", self.runner.policy.version)
            self.health.note(REMEMBERED, self.runner.remembered)
            self.health.note(CORRECTED_BY, self.runner.corrected_by)
            self.health.note(POLICIES, ", ".join(self.choice.switch.offered()))


def main() -> NoReturn:
    """Run the node."""
    run(PolicyNode, ahead=("engram.policies",))


if __name__ == "__main__":
    main()
