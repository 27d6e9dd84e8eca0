"""One lifecycle node as its manager sees it: its state, the transition under way, and what failed."""

from __future__ import annotations

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future

from engram.runtime.parameters.lifecycle import LifecycleManagerConfig
from engram.runtime.process_mark import end_process, has_ended, running_process

STATES = {
    State.PRIMARY_STATE_UNCONFIGURED: "unconfigured",
    State.PRIMARY_STATE_INACTIVE: "inactive",
    State.PRIMARY_STATE_ACTIVE: "active",
    State.PRIMARY_STATE_FINALIZED: "finalized",
}
STEPS: dict[str, dict[str, int]] = {
    "active": {"unconfigured": Transition.TRANSITION_CONFIGURE, "inactive": Transition.TRANSITION_ACTIVATE},
    "inactive": {"unconfigured": Transition.TRANSITION_CONFIGURE, "active": Transition.TRANSITION_DEACTIVATE},
    "unconfigured": {"active": Transition.TRANSITION_DEACTIVATE, "inactive": Transition.TRANSITION_CLEANUP},
}
"""Goal -> state now -> the transition that leads there."""
VERBS = {
    Transition.TRANSITION_CONFIGURE: "configure",
    Transition.TRANSITION_ACTIVATE: "activate",
    Transition.TRANSITION_DEACTIVATE: "deactivate",
    Transition.TRANSITION_CLEANUP: "cleanup",
}


class ManagedNode:
    """What the manager knows of one node, and the requests on their way to it."""

    def __init__(self, node: Node, name: str, config: LifecycleManagerConfig, *, optional: bool = False) -> None:
        """``optional``: nobody waits for it where it is absent."""
        self.name = name
        self._full_name = f"{node.get_namespace().rstrip('/')}/{name}"
        self._domain = node.context.get_domain_id()
        self.optional = optional
        self.config = config
        self.state = "absent"  # one of STATES, absent, silent
        self.attempts = 0  # failed transitions since the last success
        self.note = ""
        self._log = node.get_logger()
        self._get: Client = node.create_client(GetState, f"{name}/get_state")
        self._change: Client = node.create_client(ChangeState, f"{name}/change_state")
        self._asked: tuple[Future, float] | None = None
        self._changing: tuple[Future, float, int] | None = None
        self._ended = False  # its process was killed, or nobody here can
        self._lost_process: int | None = None  # which process ran it when it was lost
        self._unmoved = 0  # answers in a row from before a transition that should have begun
        self._heard = self._polled = self._retry_at = 0.0

    @property
    def changing(self) -> str:
        """The transition under way, or an empty string."""
        return VERBS[self._changing[2]] if self._changing else ""

    @property
    def not_wanted(self) -> bool:
        """Whether it is absent and may be."""
        return self.optional and self.state == "absent"

    @property
    def hangs(self) -> bool:
        """Whether it is there and does not answer. One that died is silent, too, until DDS notices that it is gone."""
        return self.state == "silent" and not has_ended(self._full_name, self._domain)

    @property
    def failed(self) -> bool:
        """Whether the manager has given up on this node."""
        return self.attempts >= self.config.max_attempts

    @property
    def condition(self) -> str:
        """The transition under way, "failed" when given up, else the state."""
        return self.changing or ("failed" if self.failed else self.state)

    def heard(self, now: float) -> None:
        """Take it that the node, if it ever answered, does so now: its silence begins anew."""
        self._heard, self._ended = now if self._heard else 0.0, False

    def watch(self, now: float) -> None:
        """Ask for the state when it is time, take in the answer."""
        if self._asked is not None:
            future, since = self._asked
            if future.done():
                self._asked = None
                self._take_state(future, since, now)
            elif now - since > self.config.silent_after_s / 2:  # lost, or the node is busy: ask again
                self._get.remove_pending_request(future)
                self._asked = None
        if not self._get.service_is_ready():  # DDS also gives up a process that stands still
            self._lost("silent" if self._stands_still() else "absent")
        elif now - self._heard > self.config.silent_after_s and self._changing is None and self._heard > 0:
            self._lost("silent")
        self._end_if_hung(now)
        if self._asked is None and now - self._polled >= self.config.poll_period_s and self._get.service_is_ready():
            self._polled = now
            self._asked = (self._get.call_async(GetState.Request()), now)

    def _end_if_hung(self, now: float) -> None:
        """Kill the process of a node that is there and does not answer: whatever started it starts it again."""
        limit_s = self.config.stuck_after_s if self._changing is not None else self.config.kill_after_s
        if self._ended or not limit_s or now - self._heard <= limit_s or not (self.hangs or self._changing):
            return
        self._ended = True
        pid = end_process(self._full_name, self._domain)
        what = f"killed its process {pid}" if pid else "no process of this machine is known: end and start it by hand"
        self.note = f"did not answer for {now - self._heard:.0f} s; {what}"
        self._log.error(f"{self.name} {self.note}")

    def _stands_still(self) -> bool:
        process = self._lost_process
        return process is not None and running_process(self._full_name, self._domain) == process

    def _lost(self, state: str) -> None:
        if self.state not in ("absent", "silent"):
            self._lost_process = running_process(self._full_name, self._domain)
            self._log.warning(f"{self.name} is {state}, it was {self.state}")
            self.attempts = 0
        self.state, self._changing = state, None

    def _take_state(self, future: Future, asked_at: float, now: float) -> None:
        response = future.result()
        self._heard, self._ended, self._lost_process = now, False, None
        state = STATES.get(response.current_state.id) if response is not None else None
        if state is None:  # in the middle of a transition
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
        if step is None or self.failed or now < self._retry_at or not self._change.service_is_ready():
            return
        if step == Transition.TRANSITION_ACTIVATE and not may_activate:
            return
        request = ChangeState.Request()
        request.transition.id = step
        self._changing = (self._change.call_async(request), now, step)

    def _take_transition(self, now: float) -> None:
        assert self._changing is not None
        future, since, step = self._changing
        if not future.done():
            if now - since > self.config.slow_after_s and not self.note:
                self.note = f"{VERBS[step]} takes longer than {self.config.slow_after_s:g} s"
                self._log.warning(f"{self.name}: {self.note}")
            return
        response = future.result()
        self._heard = now
        if response is None or not response.success:
            self._failed(f"{VERBS[step]} failed; the node's own log says why", now)
            return
        self._changing, self.attempts, self.note = None, 0, ""
        self._polled = 0.0  # ask at once
        self.state = {"configure": "inactive", "activate": "active", "deactivate": "inactive"}.get(
            VERBS[step], "unconfigured"
        )
        self._log.info(f"{self.name}: {VERBS[step]} took {now - since:.1f} s, now {self.state}")

    def _failed(self, note: str, now: float) -> None:
        self._changing = None
        self.attempts += 1
        self.note = note
        self._retry_at = now + self.config.retry_s
        last = "; giving up until it is restarted" if self.failed else ""
        self._log.error(f"{self.name}: {note} (attempt {self.attempts} of {self.config.max_attempts}){last}")
