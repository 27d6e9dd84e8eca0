"""The simulation's thread: one world, stepped by commands that arrive on other threads. No ROS in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from engram.core.command_guard import CommandGuard
from engram.core.contracts import ViewableWorld, World
from engram.core.errors import EngramError
from engram.core.types import JointCommand, Observation, OracleOutcome

REST_AFTER_S = 0.005
"""Lock-step: delay before publishing the parts of a step that no command depends on [s]. The other parts go first."""


@dataclass(frozen=True)
class ResetRequest:
    """Begin an episode; ``done`` receives its outcome at step 0, or the error."""

    task: str
    seed: int
    instruction: str
    done: Future


@dataclass(frozen=True)
class SimLoopConfig:
    """When the simulation waits, and for how long."""

    lockstep: bool = True
    """Wait for the command of each step; otherwise keep real time."""
    control_dt_s: float = 0.1
    """Length of one control step [s]."""
    retry_s: float = 1.0
    """Lock-step: after waiting this long the same step is published again, for nodes that started late [s]."""
    command_timeout_s: float = 10.0
    """Lock-step: after waiting this long for a command the wait is reported (and goes on) [s]."""
    rest_period_s: float = 0.5
    """Between episodes: how often the world at rest is shown, and how much simulated time then passes [s]."""


class SimLoop:
    """Owns the world (and its rendering context) in one thread.

    Args:
        make_world: called in the thread, because a rendering context belongs to the thread that made it.
        show: publishes what a command waits for, an observation with the outcome so far; ``again`` marks a repeated
            step.
        show_rest: publishes the parts of the observation that no command waits for.
        report: takes a problem's key and text ("" = over).
        count: takes the name of a counter to add one to.
        show_idle: publishes an observation between two episodes; only a ViewableWorld gives one.
        guard: refuses commands that the safety node cannot have meant; None: every command is executed.
    """

    def __init__(
        self,
        make_world: Callable[[], World],
        show: Callable[[Observation, OracleOutcome, bool], None],
        show_rest: Callable[[Observation], None],
        report: Callable[[str, str], None],
        count: Callable[[str], None],
        config: SimLoopConfig,
        show_idle: Callable[[Observation], None] = lambda _: None,
        guard: CommandGuard | None = None,
    ) -> None:
        self._guard = guard
        self.config = config
        self._make_world, self._report, self._count = make_world, report, count
        self._show, self._show_rest, self._show_idle = show, show_rest, show_idle
        self._changed = threading.Condition()
        self._command: JointCommand | None = None
        self._told: np.ndarray | None = None  # real time: where the servos were sent last in this episode
        self._reset: ResetRequest | None = None
        self._stopped = False
        self._ready: Future = Future()
        self._thread = threading.Thread(target=self._run, name="sim", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """Return when the world stands; raises what went wrong while it was made."""
        self._ready.result()

    def command(self, command: JointCommand) -> None:
        """Hand over the newest command; wakes the thread if it waits for it."""
        with self._changed:
            if self._command is not None and not self.config.lockstep:
                self._count("commands overwritten")
            self._command = command
            self._changed.notify()

    def reset(self, task: str, seed: int, instruction: str) -> Future:
        """Ask for a new episode; an episode that runs ends here. The future gives the OracleOutcome at step 0."""
        request = ResetRequest(task, seed, instruction, Future())
        with self._changed:
            replaced, self._reset = self._reset, request
            self._changed.notify()
        if replaced is not None:
            replaced.done.cancel()
        return request.done

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the thread and close the world."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            world = self._make_world()
        except Exception as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            while (request := self._next_reset(world)) is not None:
                try:
                    self._episode(world, request)
                except Exception as error:  # a failing step must not end the simulation: the next reset may work
                    self._report("world", f"{type(error).__name__}: {error}")
        finally:
            world.close()

    def _next_reset(self, world: World) -> ResetRequest | None:
        """Show the world at rest until an episode is asked for; None = the loop was stopped."""
        period_s = self.config.rest_period_s if isinstance(world, ViewableWorld) else None
        while True:
            with self._changed:
                if self._changed.wait_for(self._interrupted, period_s):
                    request, self._reset, self._command = self._reset, None, None
                    return None if self._stopped else request
            self._rest(world)

    def _rest(self, world: World) -> None:
        assert isinstance(world, ViewableWorld)
        try:
            self._show_idle(world.rest(self.config.rest_period_s))
        except Exception as error:  # the next reset may work, and says so if it does not
            self._report("world", f"at rest: {type(error).__name__}: {error}")

    def _episode(self, world: World, request: ResetRequest) -> None:
        try:
            observation = world.reset(request.task, request.seed, request.instruction)
            outcome = world.oracle_outcome()
            self._show(observation, outcome, False)
        except Exception as error:
            if not isinstance(error, EngramError):  # such as no EGL: not only the caller should learn of it
                self._report("world", f"reset failed: {type(error).__name__}: {error}")
            request.done.set_exception(error)
            return
        self._report("world", "")
        if self._guard is not None:
            self._guard.forget()
        request.done.set_result(outcome)  # not sooner: what the answer triggers would delay the first step
        next_tick, self._told = time.monotonic(), None
        while not outcome.over:
            next_tick += self.config.control_dt_s
            wait = self._lockstep_command if self.config.lockstep else self._realtime_command
            command = wait(observation, outcome, next_tick)
            if command is None:
                return
            observation = world.step(command)
            outcome = world.oracle_outcome()
            if not self.config.lockstep and time.monotonic() > next_tick + self.config.control_dt_s:
                self._count("overruns")
                next_tick = time.monotonic()
            self._show(observation, outcome, False)
        self._show_rest(observation)

    def _lockstep_command(
        self, observation: Observation, outcome: OracleOutcome, next_tick: float
    ) -> JointCommand | None:
        """Return the command for this very step; None when a reset or a stop came instead."""
        began = time.monotonic()
        wait_s = min(REST_AFTER_S, self.config.retry_s)  # on two cores, publishing more now would delay the policy
        with self._changed:
            self._changed.wait_for(lambda: self._interrupted() or self._has(observation.stamp_ns), wait_s)
        self._show_rest(observation)
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._interrupted() or self._has(observation.stamp_ns), self.config.retry_s
                )
                if self._interrupted():
                    return None
                if self._has(observation.stamp_ns):
                    command, self._command = self._command, None
                    if command is not None and self._allowed(command, observation):
                        break
                    continue
            waited = time.monotonic() - began
            if waited >= self.config.command_timeout_s:
                self._report(
                    "command",
                    f"none for step {outcome.step} of episode {outcome.episode + 1} after {waited:.0f} s; the step is "
                    f"shown again every {self.config.retry_s:g} s",
                )
            self._show(observation, outcome, True)
            self._show_rest(observation)
        self._report("command", "")
        return command

    def _realtime_command(
        self, observation: Observation, outcome: OracleOutcome, next_tick: float
    ) -> JointCommand | None:
        """Return the newest command when the step's time is over; None when a reset or a stop came.

        Where none came, the servos keep what they were last told, as a robot's do.
        """
        self._show_rest(observation)
        with self._changed:
            self._changed.wait_for(self._interrupted, max(0.0, next_tick - time.monotonic()))
            if self._interrupted():
                return None
            command, self._command = self._command, None
        if command is not None and self._allowed(command, observation):
            self._told = command.positions
            return command
        self._count("steps without command")
        joints, told = observation.joints, self._told
        positions = joints.positions if told is None else told
        return JointCommand(joints.stamp_ns, joints.names, positions, self.config.control_dt_s, "no_command")

    def _allowed(self, command: JointCommand, observation: Observation) -> bool:
        if self._guard is None:
            return True
        refusal = self._guard.refusal(command, observation.joints, observation.stamp_ns / 1e9)
        if refusal:
            self._count(f"commands refused: {refusal.partition(':')[0]}")
            self._report("refused command", refusal)
        return not refusal

    def _interrupted(self) -> bool:
        return self._stopped or self._reset is not None

    def _has(self, stamp_ns: int) -> bool:
        return self._command is not None and self._command.stamp_ns == stamp_ns
