"""Fill any ROS message with values of its own, so that a swapped, lost or truncated field shows."""

import re
from importlib import import_module
from itertools import count
from typing import Any

_FIXED = re.compile(r"(?P<element>.+)\[(?P<size>\d+)\]$")
_SEQUENCE = re.compile(r"sequence<(?P<element>[^,]+)(, (?P<bound>\d+))?>$")
_INTEGER = re.compile(r"u?int(?P<bits>\d+)$")


def message_class(name: str) -> type:
    """`std_msgs/Header` or `std_msgs/msg/Header` -> its class."""
    parts = name.split("/")
    return getattr(import_module(f"{parts[0]}.msg"), parts[-1])


def fill(cls: type, seed: int = 0) -> Any:
    """An instance whose every field differs from its default and from its neighbours."""
    return _message(cls, count(1 + 1000 * seed))


def _message(cls: type, numbers: count) -> Any:
    values = {name: _value(kind, numbers) for name, kind in cls.get_fields_and_field_types().items()}
    return cls(**values, check_fields=True)


def _value(kind: str, numbers: count) -> Any:
    if match := _FIXED.match(kind):
        return [_value(match["element"], numbers) for _ in range(int(match["size"]))]
    if match := _SEQUENCE.match(kind):
        return [_value(match["element"], numbers) for _ in range(min(3, int(match["bound"] or 3)))]
    number = next(numbers)
    if kind == "string":
        return f"text {number} äß"
    if kind == "boolean":
        return True
    if kind == "octet":
        return bytes([number % 256])
    if match := _INTEGER.match(kind):
        return number % 2 ** (int(match["bits"]) - 1)
    if kind in ("float", "double"):
        return number + 0.25  # exact in float32 too
    return _message(message_class(kind), numbers)
