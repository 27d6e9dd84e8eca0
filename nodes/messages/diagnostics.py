"""The condition of nodes, as ROS's own tools show it."""

from __future__ import annotations

from collections.abc import Iterator

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from engram.nodes.messages.basics import header
from engram.runtime.health import LEVELS, Condition

STALE = "stale"
"""Level of a node that another one reports as silent."""


def condition_to_msg(name: str, condition: Condition, stamp_ns: int, hardware_id: str = "") -> DiagnosticArray:
    """Return the condition of the node ``name``, whose full name tells robots apart."""
    status = DiagnosticStatus(level=bytes([LEVELS.index(condition.level)]), name=name, hardware_id=hardware_id)
    status.message = condition.message
    status.values = [KeyValue(key=key, value=value) for key, value in condition.values.items()]
    return DiagnosticArray(header=header(stamp_ns), status=[status])


def conditions_from_msg(msg: DiagnosticArray) -> Iterator[tuple[str, Condition]]:
    """Yield full name and condition of each node in ``msg``; of two equal keys the last one counts."""
    levels = dict(enumerate((*LEVELS, STALE)))
    for status in msg.status:
        level = levels.get(ord(status.level), STALE)
        yield status.name, Condition(level, status.message, {item.key: item.value for item in status.values})
