"""How the lifecycle manager reaches a node: by the node's own services get_state and change_state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future

STATES = {
    State.PRIMARY_STATE_UNCONFIGURED: "unconfigured",
    State.PRIMARY_STATE_INACTIVE: "inactive",
    State.PRIMARY_STATE_ACTIVE: "active",
    State.PRIMARY_STATE_FINALIZED: "finalized",
}
"""Those in which a node stays; the others are in the middle of a transition."""
TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


@dataclass(frozen=True)
class ServiceCall[T]:
    """A request to a service, as :class:`engram.runtime.managed_node.Pending`; ``read`` says what a response means."""

    client: Client
    future: Future
    read: Callable[[Any], T]

    def done(self) -> bool:
        """Tell whether the answer has come."""
        return self.future.done()

    def result(self) -> T:
        """Return the answer; it has come."""
        return self.read(self.future.result())

    def drop(self) -> None:
        """Wait for the answer no longer."""
        self.client.remove_pending_request(self.future)


class ServiceRequests:
    """The clients of ``node`` for ``name``, as :class:`engram.runtime.managed_node.LifecycleRequests`."""

    def __init__(self, node: Node, name: str) -> None:
        self.name, self.full_name = name, f"{node.get_namespace().rstrip('/')}/{name}"
        self.domain = node.context.get_domain_id()
        self._get: Client = node.create_client(GetState, f"{name}/get_state")
        self._change: Client = node.create_client(ChangeState, f"{name}/change_state")

    def state_is_told(self) -> bool:
        """Tell whether the node can be asked for its state."""
        return self._get.service_is_ready()

    def ask_state(self) -> ServiceCall[str]:
        """Ask for the state."""
        return ServiceCall(self._get, self._get.call_async(GetState.Request()), _state)

    def takes_transitions(self) -> bool:
        """Tell whether the node can be asked for a transition."""
        return self._change.service_is_ready()

    def ask_transition(self, step: str) -> ServiceCall[bool]:
        """Ask for the transition ``step``."""
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[step]
        return ServiceCall(self._change, self._change.call_async(request), _success)


def _state(response: GetState.Response | None) -> str:
    return STATES.get(response.current_state.id, "") if response is not None else ""


def _success(response: ChangeState.Response | None) -> bool:
    return response is not None and response.success
