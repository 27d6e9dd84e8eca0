"""Sizes of what comes over the network: a message that is too large is refused before anything of it is copied or kept.

DDS has received the message by then. What is bounded here is what nodes make of it: text that is stored, arrays that
are converted, lists that are walked through.
"""

from __future__ import annotations

from typing import Any

from engram.core.errors import InvalidInputError

TEXT_MAX = 1 << 16
"""Longest text [characters]."""
ITEMS_MAX = 1 << 16
"""Most texts or messages in one list."""
NUMBERS_MAX = 1 << 25
"""Most numbers in one array, as in a depth image of 32 megapixels."""
OVERHEAD = 1024
"""What a message takes beyond its texts and arrays [bytes], so that a million empty ones are bounded, too."""
SIDE_MAX = 1 << 14
"""Largest width or height of an image [pixels]."""


_FIELDS: dict[type, tuple[tuple[str, str, int], ...]] = {}


def _fields(msg: Any) -> tuple[tuple[str, str, int], ...]:
    """Return the fields of the class of ``msg`` whose size is its sender's choice: name, kind, largest size."""
    kind = type(msg)
    if kind not in _FIELDS:
        found = []
        for name, described in kind.get_fields_and_field_types().items():
            inner = described.removeprefix("sequence<").partition(",")[0].rstrip(">")
            text, message = inner.startswith(("string", "wstring")), "/" in inner
            if described.startswith("sequence<"):
                size = ITEMS_MAX if message or text else NUMBERS_MAX
                found.append((name, "messages" if message else "texts" if text else "numbers", size))
            elif text:
                found.append((name, "text", TEXT_MAX))
            elif message and "[" not in described and _fields(getattr(msg, name)):
                found.append((name, "message", 0))
        _FIELDS[kind] = tuple(found)
    return _FIELDS[kind]


def check_sizes(msg: Any, where: str = "") -> None:
    """Raise InvalidInputError that names the first field of the ROS message ``msg`` that is larger than it may be."""
    for name, kind, limit in _fields(msg):
        value = getattr(msg, name)
        if kind == "message":
            check_sizes(value, _within(msg, where, name))
            continue
        if len(value) > limit:
            raise InvalidInputError(f"{_within(msg, where, name)}: {len(value)} long, at most {limit}")
        if kind == "messages":
            for item in value:
                check_sizes(item, _within(msg, where, name))
        elif kind == "texts" and (longest := max(map(len, value), default=0)) > TEXT_MAX:
            raise InvalidInputError(f"{_within(msg, where, name)}: a text of {longest} characters, at most {TEXT_MAX}")


def size_of(msg: Any) -> int:
    """Return about how much RAM the ROS message ``msg`` takes by what is its sender's choice [bytes]."""
    size = 0
    for name, kind, _ in _fields(msg):
        value = getattr(msg, name)
        if kind == "message":
            size += size_of(value)
        elif kind == "messages":
            size += sum(size_of(item) for item in value)
        else:
            size += sum(map(len, value)) if kind == "texts" else len(value) * getattr(value, "itemsize", 1)
    return size + OVERHEAD


def _within(msg: Any, where: str, name: str) -> str:
    return f"{where or type(msg).__name__}.{name}"
