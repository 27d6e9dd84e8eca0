"""What a file from elsewhere may say of a node: a memory goes on from it, compares it and publishes it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import EMBEDDING_DIM, DetectedObject, Embodiment, SceneNode
from engram.core.types.scene import MAX_LABEL, UNPRINTABLE
from engram.core.words import is_encodable
from engram.memory.storage.columns import LAYERS, STATES
from engram.memory.storage.embodiment_json import embodiment_from

FARTHEST_NS = 2**62
"""Stamps from here on are refused, before and after 1970 [ns]: their differences would not fit into 64 bits."""
MOST_SIGHTS = 2**31 - 1
"""Observations of one node: what a fact can count."""


def imported(node: SceneNode) -> SceneNode:
    """Return ``node``, checked as an observation is; characters that cannot be printed are replaced.

    Raises:
        InvalidInputError: naming the field, what it was and what is valid.
        UnknownNameError: of another layer or state; lists the valid ones.
    """
    if node.layer not in LAYERS:
        raise unknown_name("layer", node.layer, LAYERS)
    if node.state not in STATES:
        raise unknown_name("state", node.state, STATES)
    texts: dict[str, Any] = {
        name: printable(getattr(node, name)) for name in ("id", "label", "first_evidence", "last_evidence")
    }
    if not 1 <= len(texts["id"]) <= MAX_LABEL:
        raise InvalidInputError(f"id: {texts['id'][:40]!r}, expected 1..{MAX_LABEL} characters")
    pose = replace(node.pose, frame=printable(node.pose.frame))
    seen = DetectedObject(texts["label"], pose, 1.0, node.position_covariance, node.size, node.color, node.embedding)
    if np.abs(node.color).max() > np.finfo(np.float32).max:
        raise InvalidInputError(f"color: {node.color.tolist()}, expected rgb of 0..1")
    for name in ("first_seen_ns", "last_seen_ns"):
        whole_number(name, getattr(node, name), -FARTHEST_NS + 1, FARTHEST_NS - 1)
    whole_number("observations", node.observations, 1 if node.layer == "object" else 0, MOST_SIGHTS)
    embedding = np.zeros(EMBEDDING_DIM, np.float32) if seen.embedding is None else seen.embedding
    return replace(node, pose=pose, embedding=embedding, **texts)


def imported_embodiment(data: Any) -> Embodiment | None:
    """Return the profile of a robot from JSON values, with its words readable; None of nothing.

    Raises:
        InvalidInputError: a word is no text, or a count is none.
    """
    if not data:
        return None
    found = embodiment_from(json.loads(readable_json(json.dumps(data))))
    words = (
        found.kind,
        *found.sensors,
        *(word for skill in found.skills for word in (skill.task, skill.policy_version)),
    )
    for word in words:
        if not isinstance(word, str):
            raise InvalidInputError(f"embodiment: {word!r}, expected a text")
    whole_number("embodiment: joints", found.joints, 0, MOST_SIGHTS)
    for skill in found.skills:
        whole_number(f"embodiment: n of {skill.task!r}", skill.n, 0, FARTHEST_NS)
        whole_number(f"embodiment: successes of {skill.task!r}", skill.successes, 0, skill.n)
        whole_number(f"embodiment: last_ns of {skill.task!r}", skill.last_ns, -FARTHEST_NS + 1, FARTHEST_NS - 1)
    return found


def graph_head(stamp_ns: int, sequence: int) -> tuple[int, int]:
    """Return the stamp and the sequence of a graph; raises InvalidInputError naming the one that none may have."""
    return (
        whole_number("stamp_ns", stamp_ns, -FARTHEST_NS + 1, FARTHEST_NS - 1),
        whole_number("sequence", sequence, 0, FARTHEST_NS - 1),
    )


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return ``value`` if it is a whole number from ``least`` to ``most``, else raise InvalidInputError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInputError(f"{name}: {str(value)[:40]}, expected a whole number of {least}..{most}")
    return value


def printable(text: str) -> str:
    """Return ``text`` with a space for each tab and line end, and a replacement character for what XML cannot hold.

    >>> printable("red\\tcup\\x07") == "red cup\\N{REPLACEMENT CHARACTER}"
    True
    """
    return UNPRINTABLE.sub(lambda found: " " if found.group().isspace() else "\N{REPLACEMENT CHARACTER}", text)


def readable_json(text: str) -> str:
    """Return the JSON in ``text``, which may be escaped, without halves of characters: nobody could publish them."""
    if "\\ud" in text.lower() or not is_encodable(text):
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        if not is_encodable(plain):
            return plain.encode(errors="replace").decode()
    return text
