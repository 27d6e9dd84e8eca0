"""Parameters of a node that takes what moves the robot, and what it keeps, from known nodes alone."""

from __future__ import annotations

from dataclasses import dataclass

from engram.core.errors import InvalidInputError
from engram.runtime.parameters.node import NodeConfig


@dataclass(frozen=True)
class BoundNodeConfig(NodeConfig):
    """Parameters of every node that listens to what moves the robot, or keeps what it hears."""

    writers: tuple[str, ...] = ("",)
    """Who must write a topic, as topic=node, such as command=safety_node; a node of another namespace by its full name,
    such as /pad. Of several, as in intervention=teleoperation,viewer_node, one writes at a time. A topic that is not
    named here belongs to the first process that writes it, until that ends. Others are refused and named."""

    def writers_of(self, topic: str) -> tuple[str, ...]:
        """Return the names of the nodes that may write ``topic``; none: whoever is first."""
        named = {}
        for entry in filter(None, self.writers):
            where, given, nodes = entry.partition("=")
            names = tuple(name.strip() for name in nodes.split(","))
            if where.strip() and given and not nodes.strip():
                raise InvalidInputError(
                    f"writers: {entry!r} names no node, so nobody could write {where.strip()}; name one, as in "
                    f"{where.strip()}=my_node (launch argument takeover for intervention: leave it out, and the page "
                    "and engram teleop may take over)"
                )
            if not (where.strip() and all(names)):
                raise InvalidInputError(f"writers: {entry!r}, expected topic=node or topic=node,node")
            named[where.strip()] = names
        return named.get(topic, ())
