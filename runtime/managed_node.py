"""One lifecycle node as its manager sees it: its state, the transition under way, and what failed. No ROS."""

from __future__ import annotations

import math
from typing import Protocol

from engram.runtime.parameters.lifecycle import LifecycleManagerConfig
from engram.runtime.process_mark import end_process, has_ended, running_process

STEPS = {
    "active": {"unconfigured": "configure", "inactive": "activate"},
    "inactive": {"unconfigured": "configure", "active": "deactivate"},
    "unconfigured": {"active": "deactivate", "inactive": "cleanup"},
}
"""Goal -> state now -> the transition that leads there."""
AFTER = {"configure": "inactive", "activate": "active", "deactivate": "inactive", "cleanup": "unconfigured"}
"""Transition -> the state that it leads to."""
REST_S = 30.0
"""A transition that failed ``max_attempts`` times in a row is tried again after so long, over and over [s]."""


class Pending[T](Protocol):
    """A request whose answer may not have come yet."""

    def done(self) -> bool:
        """Tell whether the answer has come."""

    def result(self) -> T:
        """Return the answer; it has come."""

    def drop(self) -> None:
        """Wait for the answer no longer."""


class LifecycleRequests(Protocol):
    """How the manager reaches one lifecycle node. No call waits for the node."""

    name: str
    """Relative to the manager's namespace."""
    full_name: str
    domain: int
    """ROS domain."""

    def state_is_told(self) -> bool:
        """Tell whether the node can be asked for its state: it is there, as far as DDS knows."""

    def ask_state(self) -> Pending[str]:
        """Ask for the state: unconfigured, inactive, active, finalized; empty: it is in the middle of a transition."""

    def takes_transitions(self) -> bool:
        """Tell whether the node can be asked for a transition."""

    def ask_transition(self, step: str) -> Pending[bool]:
        """Ask for the transition ``step`` of :data:`AFTER`; the answer, which comes at its end, is its success."""


class Log(Protocol):
    """Where it is told what happens to a node: a ROS logger."""

    def info(self, message: str, /) -> object:
        """Tell that something went well."""

    def warning(self, message: str, /) -> object:
        """Tell of what may need somebody's attention."""

    def error(self, message: str, /) -> object:
        """Tell of what went wrong."""


class ManagedNode:
    """What the manager knows of one node, and the requests on their way to it. Times are monotonic seconds.

    Args:
        requests: reach the node.
        config: how long to wait for it, and how often to try.
        log: is told what happens to it.
        optional: nobody waits for it where it is absent.
    """

    def __init__(
        self, requests: LifecycleRequests, config: LifecycleManagerConfig, log: Log, *, optional: bool = False
    ) -> None:
        self.name, self.optional, self.config = requests.name, optional, config
        self.state = "absent"  # what the node answers, absent, silent
        self.attempts = 0  # failed transitions since the last success
        self.note = ""
        self._requests, self._log = requests, log
        self._process = requests.full_name, requests.domain
        self._asked: tuple[Pending[str], float] | None = None  # for its state, since when
        self._changing: tuple[Pending[bool], float, str] | None = None  # since when, by which transition
        self._ended = False  # its process was killed, or nobody here can
        self._lost_process: int | None = None  # which process ran it when it was lost
        self._unmoved = 0  # answers in a row from before a transition that should have begun
        self._heard = self._polled = 0.0
        self._failed_at = -math.inf  # when a transition failed

    @property
    def changing(self) -> str:
        """The transition under way, or an empty string."""
        return self._changing[2] if self._changing else ""

    @property
    def not_wanted(self) -> bool:
        """Whether it is absent and may be."""
        return self.optional and self.state == "absent"

    @property
    def hangs(self) -> bool:
        """Whether it is there and does not answer. One that died is silent, too, until DDS notices that it is gone."""
        return self.state == "silent" and not has_ended(*self._process)

    @property
    def failed(self) -> bool:
        """Whether nobody waits for this node any more: its transition is tried only now and then."""
        return self.attempts >= self.config.max_attempts

    @property
    def condition(self) -> str:
        """The transition under way, "failed" when nobody waits for it any more, else the state."""
        return self.changing or ("failed" if self.failed else self.state)

    def heard(self, now: float) -> None:
        """Take it that the node, if it ever answered, does so now: its silence begins anew."""
        self._heard, self._ended = now if self._heard else 0.0, False

    def watch(self, now: float) -> None:
        """Ask for the state when it is time, take in the answer."""
        if self._asked is not None:
            pending, since = self._asked
            if pending.done():
                self._asked = None
                self._take_state(pending.result(), since, now)
            elif now - since > 2 * self.config.poll_period_s:  # lost with a process that died, or the node is busy
                pending.drop()
                self._asked = None
        if not self._requests.state_is_told():  # DDS also gives up a process that stands still
            self._lost("silent" if self._stands_still() else "absent")
        elif now - self._heard > self.config.silent_after_s and self._changing is None and self._heard > 0:
            self._lost("silent")
        self._end_if_hung(now)
        due = self._asked is None and now - self._polled >= self.config.poll_period_s
        if due and self._requests.state_is_told():
            self._polled = now
            self._asked = (self._requests.ask_state(), now)

    def _end_if_hung(self, now: float) -> None:
        """Kill the process of a node that is there and does not answer: whatever started it starts it again."""
        limit_s = self.config.stuck_after_s if self._changing is not None else self.config.kill_after_s
        if self._ended or not limit_s or now - self._heard <= limit_s or not (self.hangs or self._changing):
            return
        self._ended = True
        pid = end_process(*self._process)
        what = f"killed its process {pid}" if pid else "no process of this machine is known: end and start it by hand"
        self.note = f"did not answer for {now - self._heard:.0f} s; {what}"
        self._log.error(f"{self.name} {self.note}")

    def _stands_still(self) -> bool:
        process = self._lost_process
        return process is not None and running_process(*self._process) == process

    def _lost(self, state: str) -> None:
        if self.state not in ("absent", "silent"):
            self._lost_process = running_process(*self._process)
            self._log.warning(f"{self.name} is {state}, it was {self.state}")
            self.attempts = 0
        self.state, self._changing = state, None

    def _take_state(self, state: str, asked_at: float, now: float) -> None:
        self._heard, self._ended, self._lost_process = now, False, None
        if not state:
            return
        if self.state in ("active", "inactive") and state == "unconfigured" and not self._changing:
            self._log.warning(f"{self.name} was restarted")
            self.attempts = 0
        before, self.state = self.state, state
        if self._changing is None or state != before or asked_at - self._changing[1] <= 1.0:
            self._unmoved = 0
            return
        self._unmoved += 1
        if self._unmoved > 1:  # a node in a transition does not answer: this one never got the request
            self._changing, self._unmoved = None, 0

    def advance(self, goal: str, may_activate: bool, now: float) -> None:
        """Take the next step towards ``goal``, if one is due."""
        if self._changing is not None:
            self._take_transition(now)
            return
        step = STEPS[goal].get(self.state)
        if step is None or now < self._failed_at + self._rest_s or not self._requests.takes_transitions():
            return
        if step == "activate" and not may_activate:
            return
        self._changing = (self._requests.ask_transition(step), now, step)

    @property
    def _rest_s(self) -> float:
        """Time after a transition that failed before the next is asked for [s]."""
        return max(REST_S, self.config.retry_s) if self.failed else self.config.retry_s

    def _take_transition(self, now: float) -> None:
        assert self._changing is not None
        pending, since, step = self._changing
        if not pending.done():
            if now - since > self.config.slow_after_s and not self.note:
                self.note = f"{step} takes longer than {self.config.slow_after_s:g} s"
                self._log.warning(f"{self.name}: {self.note}")
            return
        success = pending.result()
        self._heard = now
        if not success:
            self._failed(f"{step} failed; the node's own log says why", now)
            return
        self._changing, self.attempts, self.note = None, 0, ""
        self._polled = 0.0  # ask at once
        self.state = AFTER[step]
        self._log.info(f"{self.name}: {step} took {now - since:.1f} s, now {self.state}")

    def _failed(self, note: str, now: float) -> None:
        self._changing = None
        self.attempts += 1
        self._failed_at = now
        counted = self.attempts <= self.config.max_attempts
        if counted or note != self.note:  # else it was said, and goes on so for as long as the cause lasts
            attempt = f" (attempt {self.attempts} of {self.config.max_attempts})" if counted else ""
            again = f"; it is tried again every {self._rest_s:g} s" if self.failed else ""
            self._log.error(f"{self.name}: {note}{attempt}{again}")
        self.note = note
