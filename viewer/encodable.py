"""Text that a visitor's browser can be told, whoever wrote it.

viser sends one message after the other to every visitor, and again to whoever comes later. A text that cannot be
encoded, such as half a surrogate pair, ends the connection: the whole page is gone, STOP included. JSON and file names
may hold such texts. They are written out here, on the way of every message to the websocket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from viser.infra import Message

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Half surrogate pairs, and control characters other than tabulator and ends of line."""
CHOICES_MAX = 200
"""Choices that a dropdown offers at most."""
_as_it_is = Message.as_serializable_dict


def encodable(text: str) -> str:
    r"""Return ``text`` with what no browser can be told written out.

    >>> print(encodable("half a pair: \ud800, none: \x00"))
    half a pair: \ud800, none: \x00
    """
    return FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def choices(offered: Iterable[str]) -> tuple[str, ...]:
    """Return what a dropdown may offer, each once: the page ends in the browser at a choice that comes twice.

    >>> choices(["keep", "base", "base"])
    ('keep', 'base')
    """
    return tuple(dict.fromkeys(map(encodable, offered)))[:CHOICES_MAX]


def guard_messages() -> None:
    """Let every message of viser be encodable, of every page of this process."""
    Message.as_serializable_dict = _as_serializable_dict  # type: ignore[assignment, method-assign]


def _as_serializable_dict(message: Message, binary_buffers: list[memoryview] | None = None) -> dict[str, Any]:
    """Stand in for viser's method: what a handle was given later is in its message, too, when it is sent again."""
    return {name: _told(value) for name, value in _as_it_is(message, binary_buffers).items()}


def _told(value: Any) -> Any:
    match value:
        case str():
            return encodable(value)
        case dict():
            return {_told(key): _told(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(_told, value))
    return value
