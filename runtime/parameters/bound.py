"""Parameters of a node that takes what moves the robot, and what it keeps, from known nodes alone."""

from __future__ import annotations

from dataclasses import dataclass

from engram.core.errors import InvalidInputError
from engram.runtime.parameters.node import NodeConfig


@dataclass(frozen=True)
class BoundNodeConfig(NodeConfig):
    """Parameters of every node that listens to what moves the robot, or keeps what it hears."""

    writers: tuple[str, ...] = ("",)
    """Who must write a topic, as topic=node, such as command=safety_node; nodes lie in the same namespace. A topic that
    is not named here belongs to the first process that writes it, until that ends. Others are refused and named."""

    def writer(self, topic: str) -> str:
        """Return the name of the node that must write ``topic``; empty: whoever is first."""
        named = {}
        for entry in filter(None, self.writers):
            where, separator, node = entry.partition("=")
            if not (separator and where.strip() and node.strip()):
                raise InvalidInputError(f"writers: {entry!r}, expected topic=node")
            named[where.strip()] = node.strip()
        return named.get(topic, "")
