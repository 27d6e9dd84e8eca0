"""Answers of the memory in the words and fields of the ``memory/query`` service. No ROS node in here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engram.core.contracts import Memory, MemoryQuery
from engram.core.errors import unknown_name
from engram.nodes import messages

NEAR_RADIUS_M = 0.5
"""What "near" means when a question gives no radius [m]."""


def answer_query(memory: Memory, query: MemoryQuery, near: str, response: Any) -> Any:
    """Fill ``response`` (MemoryQuery.Response) with what the memory answers.

    Raises:
        UnknownNameError: ``near`` names neither a node nor a label; lists what is known.
    """
    if near:
        query = _around(memory, query, near)
    found = memory.query(query)
    response.nodes = [messages.node_to_msg(node) for node in found.nodes]
    response.scores = [float(score) for score in found.scores]
    response.confidence = float(found.confidence)
    response.evidence_ids = list(dict.fromkeys(name for one in found.evidence for name in one.ids))
    response.answer = found.text
    return response


def _around(memory: Memory, query: MemoryQuery, near: str) -> MemoryQuery:
    nodes = memory.graph().nodes
    anchor = next((node for node in nodes if near in (node.id, node.label)), None)
    if anchor is None:
        raise unknown_name("node or label", near, {name for node in nodes for name in (node.id, node.label)})
    radius = query.radius_m if query.radius_m != float("inf") else NEAR_RADIUS_M
    return replace(query, place=anchor.pose.position, radius_m=radius)
