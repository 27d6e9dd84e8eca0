"""Who wrote a message: the name of the node whose publisher it came from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rclpy.node import Node

REFRESH_S = 0.2
"""Time between two looks at the graph for a writer that is not known [s]."""


class Writers:
    """Identities of publishers, as a subscription's second argument tells them, to names of nodes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._names: dict[bytes, str] = {}
        self._looked: dict[str, float] = {}

    def name(self, topic: str, info: Mapping[str, Any]) -> str:
        """Return the name of the node that wrote a message on ``topic``; "" = not known."""
        gid = bytes(info["publisher_gid"]["data"])
        if gid not in self._names and time.monotonic() - self._looked.get(topic, 0.0) > REFRESH_S:
            self._looked[topic] = time.monotonic()
            for end in self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(topic)):
                known = end.node_name and not end.node_name.startswith("_NODE_NAME_UNKNOWN_")
                if known:
                    self._names[bytes(end.endpoint_gid)] = end.node_name
        return self._names.get(gid, "")
