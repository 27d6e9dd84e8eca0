"""Do all that write or read a topic mean the same by its type: peers of two releases match silently to nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DIGITS = 12
"""How many of a digest's last characters are shown."""


@dataclass(frozen=True)
class End:
    """One publisher or subscription of a topic."""

    type: str
    digest: str
    """Of the definition that its process has of the type."""
    node: str


def conflict(topic: str, ends: Iterable[End]) -> str:
    """Return a line that says who of the ``ends`` of ``topic`` uses which definition; empty: all the same one."""
    kinds: dict[tuple[str, str], set[str]] = {}
    for end in ends:
        kinds.setdefault((end.type, end.digest), set()).add(end.node)
    if len(kinds) < 2:
        return ""
    sides = (f"{name} {digest[-DIGITS:]}: {', '.join(sorted(who))}" for (name, digest), who in kinds.items())
    return f"{topic}: {'; '.join(sides)}"
