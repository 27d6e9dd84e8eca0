"""All nodes that a lifecycle manager manages: in which order they are driven where, and how they are. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable

from engram.core.errors import InvalidInputError
from engram.runtime.health import ERROR, OK, WARN, Condition
from engram.runtime.managed_node import LifecycleRequests, Log, ManagedNode
from engram.runtime.parameters.lifecycle import LifecycleManagerConfig


class NodeSet:
    """Drives every managed node towards one goal: active, inactive or unconfigured; empty: none yet.

    Args:
        config: names the nodes, and says how they are managed.
        requests: gives what reaches the node of a name.
        log: is told what happens to the nodes.
        clock: tells the time that waiting is measured in [s].

    Raises:
        InvalidInputError: no node is named, or one twice.
    """

    def __init__(
        self,
        config: LifecycleManagerConfig,
        requests: Callable[[str], LifecycleRequests],
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        names = [name for name in config.node_names if name]
        optional = [name for name in config.optional_names if name]
        if not names or len({*names, *optional}) != len(names) + len(optional):
            known = [*names, *optional]
            raise InvalidInputError(f"parameter 'node_names': {known}, expected at least one name, none twice")
        self.config, self._log, self._clock = config, log, clock
        self.goal = "active" if config.autostart else ""
        self.nodes = [ManagedNode(requests(name), config, log) for name in names]
        self.nodes += [ManagedNode(requests(name), config, log, optional=True) for name in optional]
        self._was_active = False
        self._ticked = clock()  # when it last looked at every node

    @property
    def active(self) -> bool:
        """Whether every node is active."""
        return all(node.state == "active" for node in self.nodes if not node.not_wanted)

    def drive(self, goal: str) -> None:
        """Drive all nodes towards ``goal`` from now on, also those that were given up."""
        self.goal = goal
        for node in self.nodes:
            node.attempts = 0

    def tick(self) -> None:
        """One look at every node."""
        now = self._clock()
        if now - self._ticked > self.config.silent_after_s / 2:  # it was the manager that stood still
            for node in self.nodes:
                node.heard(now)
        self._ticked = now
        before_active = True
        # what is activated last is deactivated first
        order = self.nodes if self.goal in ("active", "") else self.nodes[::-1]
        for node in order:
            node.watch(now)
            if self.goal:
                node.advance(self._goal_of(node), before_active, now)
            before_active = before_active and (node.state == "active" or node.failed or node.not_wanted)
        if self.active != self._was_active:
            self._was_active = self.active
            self._log.info("all nodes are active" if self.active else f"not active any more: {self.summary()}")

    def _goal_of(self, node: ManagedNode) -> str:
        """Return where to drive a node: the one that moves the robot holds while another one hangs."""
        if node.name != self.config.motion_node or self.goal != "active":
            return self.goal
        return "inactive" if any(n.hangs for n in self.nodes if n is not node and not n.optional) else "active"

    def summary(self) -> str:
        """Say in one line who is not active, and why."""
        wanted = [n for n in self.nodes if not n.not_wanted]
        waiting = [f"{n.name} {n.condition}{': ' + n.note if n.note else ''}" for n in wanted if n.state != "active"]
        count = len(wanted) - len(waiting)
        return f"{count} of {len(wanted)} active" + (f"; {'; '.join(waiting)}" if waiting else "")

    def condition(self) -> Condition:
        """Return how all nodes are, and each."""
        wanted = [node for node in self.nodes if not node.not_wanted]
        gone = any(node.failed or node.state in ("absent", "silent") for node in wanted)
        level = ERROR if gone and self.goal else OK if self.active else WARN
        return Condition(level, self.summary(), {node.name: node.condition for node in wanted})
