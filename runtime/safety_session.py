"""What the safety node does with its inputs, without ROS: when a step is due, who drives it, and when the robot holds.

One thread calls it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from engram.core.input_rules import ChunkInbox, is_near
from engram.core.pipeline import RESTED, CommandPipeline, Decision
from engram.core.stamped_buffer import clock_restarted
from engram.core.types import ActionChunk, EpisodeStatus, HumanAction, JointCommand, JointState
from engram.runtime.answer_wait import NEXT, AnswerWait
from engram.runtime.health import ERROR, Health
from engram.runtime.last_command import GivenCommand, LastCommandFile
from engram.runtime.stop_latch import StopLatch

AGAIN_S = 1.0
"""Time between two looks whether the latch is on disk, and attempts to write it where it is not [s]."""
SET_AHEAD_S = 1.0
"""Stamps that went on by so much more than the time that passed tell that somebody set the clock ahead [s]."""
SLEPT_S = 1.0
"""A machine that was suspended for longer in an episode stops the robot: nobody expects its motion to go on [s]."""
FROZEN_S = 3.0
"""So does a safety node that did not run for longer although its machine was awake: it was paused, or starved [s]."""
SILENT_S = 1.0
"""After so long at rest a person may have moved the arm: motion begins anew from where it is measured. A robot that is
driven and got no command for so long holds first: what it was to do meanwhile is out of date [s]."""


def suspended_s() -> float:
    """Return for how long the machine was suspended since it was started [s]."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()  # in this order a wait between makes it no more


@dataclass(frozen=True)
class SessionConfig:
    """When the session waits, and for how long; times are of the wall clock [s]."""

    lockstep: bool = False
    """The robot waits for each command; otherwise joint states and commands keep real time."""
    simulated: bool = False
    """The clock is a simulation's: it may begin anew, and a new episode may find the arm anywhere."""
    chunk_timeout_s: float = 30.0
    intervention_timeout_s: float = 0.5
    joints_timeout_s: float = 0.5
    answer_wait: float = 0.5
    """Of a control step; only where the robot does not wait, see :class:`AnswerWait`."""


class SessionOutputs(Protocol):
    """Where the session's decisions go."""

    def command(self, decision: Decision, episode: int) -> None:
        """Command the robot, and tell what was let through and whose it was."""

    def tell(self, decision: Decision, episode: int) -> None:
        """Tell of a decision that is no command: the robot is left as it is."""

    def repeat(self, command: JointCommand) -> None:
        """Give the last command once more."""

    def latched(self, reason: str) -> None:
        """Tell that a stop is latched because of ``reason``; empty = that none is."""


class SafetySession:
    """Joins joint states, chunks, human actions and the episode's status into control steps.

    Args:
        pipeline: decides each step.
        latch: keeps a stop over restarts.
        last_command: keeps the motion of the arm over restarts that are so fast that it has not come to rest.
        config: when the session waits, and for how long.
        outputs: where decisions go.
        health: where problems are shown.
        now_ns: tells the time of the clock that joint states are stamped with.
        clock: tells the time that waiting is measured in; it stands still while the machine is suspended [s].
        slept: tells for how long the machine was suspended in all [s].
    """

    def __init__(
        self,
        pipeline: CommandPipeline,
        latch: StopLatch,
        last_command: LastCommandFile,
        config: SessionConfig,
        outputs: SessionOutputs,
        health: Health,
        now_ns: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        slept: Callable[[], float] = suspended_s,
    ) -> None:
        self.pipeline, self.latch, self.last_command, self.config = pipeline, latch, last_command, config
        self.outputs, self.health = outputs, health
        self._now_ns, self._clock, self._slept = now_ns, clock, slept
        pipeline.clock = None if config.lockstep or config.simulated else clock
        self.status: EpisodeStatus | None = None
        self.joints: JointState | None = None  # newest measured
        self.human: HumanAction | None = None
        self._chunks = ChunkInbox(pipeline.filter.counts)
        self._human_heard = 0.0
        self._joints_heard: float | None = None  # when a newer measurement came
        self._status_heard = 0.0
        self._waiting_since: float | None = None  # for the chunk of the newest joint state
        self._wait = AnswerWait(config.answer_wait, pipeline.control_dt_s, clock)
        self._begun: int | None = None  # episode
        self._last: tuple[int, int] | None = None  # episode and stamp [ns] of the last command
        self._given: JointCommand | None = None  # the last command
        self._left = last_command.read(latch.now)  # the last one of the process before
        self._commanded_at = 0.0  # when the last command was given, without joint states too
        self._idle = False  # nobody drove for a time since the last command
        self._slept_s, self._seen_at = slept(), clock()  # when it was last seen whether time was lost
        self._drove = False  # whether somebody drove then
        self._looked_at = 0.0  # when it was seen whether the latch is on disk
        self._told: str | None = None  # reason of the latched stop, as told last
        self._told_problem = ""  # why it is not on disk
        pipeline.reset()
        if latch.stopped:
            pipeline.stop(latch.stopped)
        self._tell_stop()
        self._keep_stop()

    # -- inputs --------------------------------------------------------------------------------------------------

    def on_status(self, status: EpisodeStatus, writers: Callable[[], Iterable[str]]) -> None:
        """Take in what the episode does; ``writers`` gives who may have told it."""
        was_running = self.status is not None and self.status.running
        self.status, self._status_heard = status, self._clock()
        if was_running and not status.running and not self.config.lockstep:
            self.pipeline.executor.reset()  # what the policy planned is not executed any more
            if self.joints is not None and self._driven:  # first: the disk may take its time
                self._send(self.pipeline.hold(self.joints, "no_task"))
        held = self.latch.saw(status, writers)
        if self.latch.goes_on and self.joints is not None:
            self._resume(self.joints)
        if held and not self.pipeline.filter.stopped:
            self.stop(held)
        self._keep_stop()
        if self.config.lockstep:
            self._step()

    def on_joints(self, joints: JointState) -> None:
        """Take in a measurement; every one is compared with those before, also at rest."""
        config, newest_ns = self.config, None if self.joints is None else self.joints.stamp_ns
        ahead_s = 1.0 if config.simulated else self.pipeline.filter.config.ahead_s
        if self._age_s(joints) < -ahead_s:  # taken as the newest it would outdate all that come
            self.pipeline.filter.counts["joints_future"] += 1
            return
        anew = newest_ns is not None and self._clock_went_back(newest_ns, joints.stamp_ns)
        passed_s = math.inf if self._joints_heard is None else self._clock() - self._joints_heard
        if newest_ns is None or anew or joints.stamp_ns > newest_ns:
            anew = anew or (newest_ns is not None and (joints.stamp_ns - newest_ns) / 1e9 - passed_s > SET_AHEAD_S)
            self._joints_heard = self._clock()
            self.health.clear("joints_lost")
        elif joints.stamp_ns < newest_ns and not config.lockstep:
            self.pipeline.filter.counts["joints_out_of_order"] += 1
            return
        if self.latch.goes_on:
            self._resume(joints)
        if not config.lockstep:
            if anew and not config.simulated:
                self._retime(joints.stamp_ns, passed_s)
            self.pipeline.inspect(joints)
            self._tell_stop()
            if self._is_early(joints.stamp_ns):  # a robot may report faster than we control
                return
            self._wait.measured(joints.stamp_ns)
        self.joints = joints
        self._step()
        self._keep_stop()

    def _retime(self, stamp_ns: int, passed_s: float) -> None:
        """Go on at ``stamp_ns``: somebody has set the clock of the robot, and the arm may be in motion."""
        self.pipeline.retime(stamp_ns, passed_s)
        self._wait.begin()
        if self._last is not None:
            self._last = self._last[0], stamp_ns - round(self.pipeline.control_dt_s * 1e9)

    def _is_early(self, stamp_ns: int) -> bool:
        """Tell whether the control step at hand lasts; if one waits that is over, decide it without its answer."""
        waiting, joints = self._waiting_since is not None, self.joints
        began = joints.stamp_ns if waiting and joints is not None else self._last[1] if self._last is not None else None
        if began is None:
            return False
        if waiting and self._wait.steps(began, stamp_ns) >= NEXT:
            self._step(wait=False)
        elif waiting and self._last is None:  # motion begins with its answer
            return False
        anew = self._clock_went_back(began, stamp_ns)
        return not anew and self._wait.steps(began, stamp_ns) < NEXT

    def on_chunk(self, chunk: ActionChunk) -> None:
        """Take in a chunk."""
        self._chunks.add(chunk)
        if not self.config.lockstep and not self._wait.answered(chunk.stamp_ns):
            self.health.count("answers late")
        self._go_on()

    def on_bad_chunk(self, stamp_ns: int, episode: int, execute_steps: int, error: Exception) -> None:
        """Take note of a chunk that is none; the steps that it was to drive hold at once."""
        if self.status is None or episode >= self.status.episode:
            self.pipeline.refuse(stamp_ns, execute_steps, error)
        self._go_on()

    def on_human(self, human: HumanAction) -> None:
        """Take in what a person does."""
        if human.active and self._is_of_another_time(human):
            self.pipeline.filter.counts["human_stamp"] += 1
            self.human = None  # whoever sent it does not drive now
            return
        self.human, self._human_heard = human, self._clock()
        self._go_on()

    def stop(self, reason: str) -> None:
        """Latch a stop, hold at once, and keep it on disk; an arm at rest, or that a person moves, gets no command."""
        self.pipeline.stop(reason)
        self._tell_stop()
        if self.joints is not None and (self._waiting_since is not None if self.config.lockstep else self._driven):
            self._send(self.pipeline.hold(self.joints))
        self._keep_stop(again=True)  # last: the disk may take its time

    def release(self) -> str:
        """Release a latched stop, on disk too, and return its reason; empty = there was none."""
        reason = self.pipeline.release()
        self.latch.release()
        if not self.config.lockstep:
            self.joints = None  # motion begins with what is measured after the release
        self._tell_stop()
        self._keep_stop()
        return reason

    def watch_answer(self) -> None:
        """Go on without the answer that a step waits for, once its time is over; call it often in a control period."""
        if not self.config.lockstep:
            self._go_on()

    def watch(self) -> None:
        """Notice what does not come; call it every control period."""
        self._watch_sleep()
        self._watch_chunk()
        self._watch_joints()
        if self._clock() - self._looked_at > AGAIN_S:
            self._looked_at = self._clock()
            self._keep_stop(again=True)

    # -- the control step ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._waiting_since is not None:
            self._step()

    def _step(self, *, wait: bool = True) -> None:
        """Command the newest control step if everything for it is there, or if it is not to ``wait``."""
        joints, status = self.joints, self.status
        if joints is None:
            return
        self._watch_sleep()
        if not self._due(joints):
            self._idle = True
            return
        if self._is_to_brake(joints):
            self._brake(joints)
            return
        episode = self._episode
        if self._last == (episode, joints.stamp_ns):
            if self.config.lockstep:  # shown again: the answer must not change
                assert self._given is not None
                self.outputs.repeat(self._given)
            return
        begins = self._begins(episode, joints.stamp_ns)
        if (begins or self.pipeline.filter.last is None) and self._is_stale(joints):
            self._waiting_since = None
            return
        if begins and (self._last is not None or episode != self._begun):
            self.pipeline.reset()
            self._wait.begin()
            self._wait.measured(joints.stamp_ns)
            self._last, self._begun = None, episode
        if status is not None and status.state == "held":  # sensor_msgs/JointState has no room for it
            joints = replace(joints, held=True)
        for chunk in self._chunks.take(episode, joints.stamp_ns):
            self.pipeline.offer(chunk, joints.stamp_ns)
        if wait and self._awaits_answer(joints):
            self._waiting_since = self._waiting_since or self._clock()
            return
        if self.pipeline.filter.stopped and not self._driven and not self.config.lockstep:
            self._leave(joints)
            return
        if self._last is not None and self._silent and not self.config.lockstep:
            self._send(self.pipeline.hold(joints, "silent"))
            return
        with self.health.timed("controller and filter"):
            decision = self.pipeline.step(joints, None, self._active_human(), self._age_s(joints))
        self._tell_stop()
        if decision is None:
            self._waiting_since = self._waiting_since or self._clock()
        else:
            self._send(decision)
        self._keep_stop()

    def _awaits_answer(self, joints: JointState) -> bool:
        """Tell whether the step of ``joints`` still waits for the answer that is to begin with it."""
        if self.config.lockstep or joints.held or self._active_human() is not None:
            return False
        due = self._wait.is_due(self.pipeline.executor.chunk) and self.pipeline.chunk_due(joints.stamp_ns)
        return due and self._wait.goes_on(first=self._last is None)

    def _due(self, joints: JointState) -> bool:
        status = self.status
        if self.config.lockstep:  # joint states and status of one step arrive in any order
            return status is not None and status.running and status.stamp_ns == joints.stamp_ns
        if status is None and self.latch.unfinished:
            if self._active_human() is not None:
                self.health.problem(
                    "hold", "what ran before the restart is not known: give a goal, or call safety/reset"
                )
            return False
        return self._is_wanted or self._is_braking

    @property
    def _is_wanted(self) -> bool:
        """Tell whether somebody is to drive now."""
        return (self.status is not None and self.status.running) or self._active_human() is not None

    @property
    def _is_braking(self) -> bool:
        """Tell whether the last command was one of motion, on a robot that nobody moves by other means."""
        return self._driven and not self.config.lockstep and not self.config.simulated and self.pipeline.filter.moves

    def _is_to_brake(self, joints: JointState) -> bool:
        """Tell whether the arm comes to rest first: nobody drives any more, or another episode begins in its motion."""
        if not self._is_braking or self._last is None or self._last[1] >= joints.stamp_ns:
            return False
        return not self._is_wanted or self._episode != self._last[0]

    def _brake(self, joints: JointState) -> None:
        assert self._last is not None
        self._waiting_since, self._last = None, (self._last[0], joints.stamp_ns)
        self._give(self.pipeline.hold(joints, "no_task"))

    def _begins(self, episode: int, stamp_ns: int) -> bool:
        """Tell whether motion begins anew: with an episode, a clock, or after a time without commands."""
        if self._last is None or episode != self._last[0]:
            return True
        if self.config.lockstep:  # status and joint states agree on the stamp
            return stamp_ns < self._last[1]
        anew = self._clock_went_back(self._last[1], stamp_ns)
        return anew or (self._idle and self._silent)

    def _clock_went_back(self, before_ns: int, stamp_ns: int) -> bool:
        """Tell whether time began anew: a simulation did, or somebody set the clock of the robot."""
        if not clock_restarted(before_ns, stamp_ns):
            return False
        return self.config.simulated or clock_restarted(before_ns, self._now_ns())

    @property
    def _silent(self) -> bool:
        return self._clock() - self._commanded_at > SILENT_S

    @property
    def _driven(self) -> bool:
        """Tell whether a command was given just now: the arm may be moving."""
        return self.pipeline.filter.last is not None and not self._silent

    def _is_stale(self, joints: JointState) -> bool:
        """Tell, also to people, whether ``joints`` are too old to say where the arm is, so that no motion begins."""
        age_s, limit_s = self._age_s(joints), self.pipeline.filter.config.stale_after_s
        if age_s <= limit_s:
            return False
        self.pipeline.filter.counts["stale"] += 1
        self.health.problem("hold", f"stale: joint_states are {age_s:.2f} s old, motion begins with newer ones")
        return True

    def _age_s(self, joints: JointState) -> float:
        """Return how long ago ``joints`` were measured [s]; in lock-step the simulation waits, nothing gets old."""
        return 0.0 if self.config.lockstep else (self._now_ns() - joints.stamp_ns) / 1e9

    def _active_human(self) -> HumanAction | None:
        if self.human is None or not self.human.active:
            return None
        if self._clock() - self._human_heard > self.config.intervention_timeout_s:
            self.health.problem("intervention", f"{self.human.who!r} was active and fell silent; control goes back")
            self.human = None
        return None if self.human is None or self._is_of_another_time(self.human) else self.human

    def _is_of_another_time(self, human: HumanAction) -> bool:
        if not self.config.lockstep:
            return not is_near(human.stamp_ns, self._now_ns())
        return self.joints is not None and not is_near(human.stamp_ns, self.joints.stamp_ns)

    def _send(self, decision: Decision) -> None:
        self._waiting_since = None
        self._last = (self._episode, decision.command.stamp_ns)
        self._give(decision)

    def _leave(self, joints: JointState) -> None:
        """Let a stopped arm alone that nobody drives yet: where it is said to be may be why it is stopped."""
        decision = self.pipeline.hold(joints)
        self.pipeline.reset()
        self.pipeline.inspect(joints)
        self._waiting_since, self._last = None, (self._episode, joints.stamp_ns)
        self.outputs.tell(decision, self._episode)

    def _give(self, decision: Decision) -> None:
        self._commanded_at, self._idle, self._given = self._clock(), False, decision.command
        self._keep()
        self.outputs.command(decision, self._episode)

    def _keep(self) -> None:
        """Keep the last command for the process after this one, before anybody hears of it."""
        state, last, told = self.pipeline.filter.state, self._last, self.last_command.problem
        assert state is not None and last is not None
        self.last_command.write(GivenCommand(*last, self._commanded_at, state), self.latch.now)
        problem = self.last_command.problem
        if problem and problem != told:
            self.health.problem("last_command", problem, lasting=True)
        elif told and not problem:
            self.health.clear("last_command")

    # -- after a restart -----------------------------------------------------------------------------------------

    def _resume(self, joints: JointState) -> None:
        """Go on from what the process before commanded last, if ``joints`` were measured before the arm came to rest.

        In lock-step they are, as the simulation waits; a robot has come to rest long before a process is back.
        """
        left, self._left = self._left, None
        if left is None or self._given is not None or not self._follows(left, joints):
            return
        self._given = self.pipeline.resume(left.state, left.stamp_ns, joints)
        self._last, self._commanded_at = (left.episode, left.stamp_ns), self._clock()

    def _follows(self, left: GivenCommand, joints: JointState) -> bool:
        """Tell whether ``joints`` are of the control step of ``left`` or of the next one."""
        limit_s = RESTED * self.pipeline.control_dt_s
        passed_s = self._clock() - left.at_s  # stamps alone may be of a clock that was set
        in_time = self.config.lockstep or self.config.simulated or 0.0 <= passed_s <= limit_s
        return in_time and 0.0 <= (joints.stamp_ns - left.stamp_ns) / 1e9 <= limit_s

    @property
    def _episode(self) -> int:
        return self.status.episode if self.status is not None else 0

    # -- what does not come --------------------------------------------------------------------------------------

    def _watch_sleep(self) -> None:
        """Stop a robot that goes on after its machine was suspended, or the node was kept from running for long.

        Nobody watched the arm meanwhile. A simulation on this machine stood still, too.
        """
        before, self._slept_s = self._slept_s, max(self._slept_s, self._slept())
        seen_at, self._seen_at = self._seen_at, self._clock()
        slept_s, stood_s = self._slept_s - before, self._seen_at - seen_at
        here = self.config.lockstep or self.config.simulated
        by_hand = self.human is not None and self.human.active  # what is too old by now counted before the sleep
        drove, self._drove = self._drove, by_hand or (self.status is not None and self.status.running)
        if not drove or here or self.pipeline.filter.stopped:
            return
        if slept_s > SLEPT_S:
            self.stop(f"suspended: the machine slept for {slept_s:.0f} s while the robot was driven")
        elif stood_s > FROZEN_S:
            self.stop(f"suspended: the safety node did not run for {stood_s:.0f} s while the robot was driven")

    def _watch_chunk(self) -> None:
        if self._waiting_since is None or self.joints is None:
            return
        waited = self._clock() - self._waiting_since
        if self.config.lockstep and waited >= self.config.chunk_timeout_s:
            text = f"none for step {self.joints.stamp_ns} ns after {waited:.1f} s"
            self.health.problem("policy/action_chunk", text)
            self._send(self.pipeline.hold(self.joints))

    def _watch_joints(self) -> None:
        """Name joint states that do not come, and hold the last command meanwhile."""
        driven = self._is_wanted
        since = self._joints_heard if self._joints_heard is not None else self._status_heard
        silent_s, limit_s = self._clock() - since, self.config.joints_timeout_s
        self._idle |= not driven
        if not driven or silent_s <= limit_s:
            return
        if self.config.lockstep:  # the simulation waits for a command: it shows joints at no rate
            shown = self.joints is not None and self.joints.stamp_ns == self._status_stamp_ns
            if not shown and self._clock() - self._status_heard > limit_s:
                self.health.problem("joints_lost", "none of the step that task/status tells of", ERROR)
            return
        self.health.problem("joints_lost", f"no valid joint_states for {silent_s:.1f} s: holds", ERROR)
        now_ns, left = self._now_ns(), self.pipeline.filter.stopped and not self._driven
        if left or self._begins(self._episode, now_ns) or self.pipeline.filter.last is None:
            return  # a person may have moved the arm
        decision = self.pipeline.hold_blind(now_ns, "joints_lost")
        if decision is not None:
            self._send(decision)

    @property
    def _status_stamp_ns(self) -> int:
        return self.status.stamp_ns if self.status is not None else -1

    def _tell_stop(self) -> None:
        """Tell of the latched stop where it changed."""
        now = self.pipeline.filter.stopped
        if now == self._told:
            return
        self._told = now
        if now:
            self.health.problem("stopped", f"{now}; call safety/reset to go on", ERROR, lasting=True)
        else:
            self.health.clear("stopped")
        self.outputs.latched(now)

    def _keep_stop(self, *, again: bool = False) -> None:
        """Keep the latched stop on disk where it changed; ``again``: also where that failed, or where it is gone."""
        now = self.pipeline.filter.stopped
        if now != self.latch.stopped:
            self.latch.stop(now)
        elif again and (lost := self.latch.again()):
            self.health.problem("stop_folder", lost, ERROR)
        problem, told = self.latch.problem, self._told_problem
        self._told_problem = problem
        if problem and problem != told:
            self.health.problem("stop_folder", problem, ERROR, lasting=True)
        elif told and not problem:
            self.health.clear("stop_folder")
