"""Hostile ROS messages, made from what a type says of its fields: extremes, and good ones with a few fields wrong."""

from __future__ import annotations

import copy
import importlib
import re
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import TransformStamped
from rosgraph_msgs.msg import Clock
from tf2_msgs.msg import TFMessage

INTEGERS = {f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits - (not sign)) - 1)
            for bits in (8, 16, 32, 64) for sign in ("", "u")}  # fmt: skip
FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 6.0, 1e6, -1e9, 1e-30, 3.4e38)
WORDS = (
    *("", "x", "base_link", "running", "held", "ee_delta", "joint_position", "os:abort", "builtins:exit"),
    *("../../etc", "ü☃" * 20, "{" * 50, "%s%n", "a" * 300, "b" * 20_000),
)
FRAMES = ("base_link", "link0", "link7", "front_optical_frame", "wrist_optical_frame", "map", "nowhere", "")
LENGTHS = (0, 1, 2, 7, 8, 64, 500)
LONG = 20_000
"""Longest array: what DDS carries without trouble, and more than any node expects."""
_ARRAY = re.compile(r"^(.+)\[(\d+)\]$")
_SEQUENCE = re.compile(r"^sequence<([^,]+)(?:, (\d+))?>$")


def type_of(name: str) -> Any:
    """Return the class of an interface called ``package/msg/Name``, ``srv`` or ``action`` alike."""
    package, kind, short = name.split("/")
    module = importlib.import_module(f"{package}.{kind}")
    for ending, part in (("_SendGoal", "SendGoalService"), ("_GetResult", "GetResultService")):
        if kind == "action" and short.endswith(ending):
            return getattr(getattr(module, short.removesuffix(ending)).Impl, part)
    return getattr(module, short)


def random_message(cls: Any, rng: np.random.Generator) -> Any:
    """Return a message of class ``cls`` whose every field is drawn from what should never come."""
    msg = cls()
    for name, kind in cls.get_fields_and_field_types().items():
        within = getattr(msg, name)
        nested = hasattr(within, "get_fields_and_field_types")
        setattr(msg, name, random_message(type(within), rng) if nested else _value(kind, rng))
    return msg


def mutated(msg: Any, rng: np.random.Generator) -> Any:
    """Return a copy of a good message in which one to three fields are wrong."""
    changed = copy.deepcopy(msg)
    for _ in range(int(rng.integers(1, 4))):
        change(changed, rng)
    return changed


def change(msg: Any, rng: np.random.Generator) -> None:
    """Make one field of ``msg`` wrong."""
    places = list(_leaves(msg))
    if places:
        owner, name, kind = places[int(rng.integers(len(places)))]
        setattr(owner, name, _wrong(getattr(owner, name), kind, rng))


def _leaves(msg: Any) -> Any:
    """Yield (message, field, type) for all fields that hold values, in messages within messages too."""
    for name, kind in msg.get_fields_and_field_types().items():
        value = getattr(msg, name)
        if hasattr(value, "get_fields_and_field_types"):
            yield from _leaves(value)
            continue
        yield msg, name, kind
        if isinstance(value, list):
            for one in value[:4]:
                if hasattr(one, "get_fields_and_field_types"):
                    yield from _leaves(one)


def _wrong(value: Any, kind: str, rng: np.random.Generator) -> Any:
    """Return something near ``value`` that is wrong, or something far from it."""
    if isinstance(value, float) and rng.random() < 0.5:
        return _fits(kind, float(rng.choice([-value, value + 0.5, value - 1.5, value * 20.0, value * 1e6])))
    if isinstance(value, int) and not isinstance(value, bool) and kind in INTEGERS and rng.random() < 0.5:
        low, high = INTEGERS[kind]
        return min(max(value + int(rng.choice([-1000, -1, 1, 3, 1000])), low), high)
    if isinstance(value, np.ndarray | array) and len(value) and rng.random() < 0.7:
        changed = copy.copy(value)
        inner = _inner(kind)[0]
        changed[int(rng.integers(len(changed)))] = _value(inner, rng)
        return changed
    if isinstance(value, list | array) and len(value) < LONG and rng.random() < 0.7:
        return value[: len(value) // 2] if rng.random() < 0.5 else [*value, *value]
    return _value(kind, rng)


def _inner(kind: str) -> tuple[str, int | None, bool]:
    """Return the type of an array's elements, its length or bound, and whether the length is fixed."""
    if fixed := _ARRAY.match(kind):
        return fixed[1], int(fixed[2]), True
    if sequence := _SEQUENCE.match(kind):
        return sequence[1], int(sequence[2]) if sequence[2] else None, False
    return "", None, False


def _value(kind: str, rng: np.random.Generator) -> Any:
    inner, length, fixed = _inner(kind)
    if inner:
        if not fixed:
            simple = inner in INTEGERS or inner in ("float", "double", "octet")
            drawn = LONG if simple and rng.random() < 0.02 else int(rng.choice(LENGTHS[: 7 if simple else 4]))
            length = min(drawn, length) if length is not None else drawn
        return _values(inner, length or 0, rng)
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return (
            int(rng.choice([low, high, 0, 1, 7, high // 2]))
            if high < 2**63
            else [0, 1, 7, 2**63, high][rng.integers(5)]
        )
    if kind in ("float", "double"):
        return _fits(kind, float(rng.choice(FLOATS)))
    if kind == "boolean":
        return bool(rng.random() < 0.5)
    if kind == "octet":
        return bytes([int(rng.integers(256))])
    if kind.startswith(("string", "wstring")):
        return WORDS[int(rng.integers(len(WORDS)))]
    package, short = kind.split("/")
    return random_message(type_of(f"{package}/msg/{short}"), rng)


def _values(inner: str, length: int, rng: np.random.Generator) -> list[Any]:
    """Return the elements of an array; long ones repeat a few drawn values."""
    few = [_value(inner, rng) for _ in range(min(length, 8))]
    return few if length <= 8 else [few[i] for i in rng.integers(0, len(few), length)]


def _fits(kind: str, value: float) -> float:
    if kind == "float" and np.isfinite(value):
        return float(np.clip(value, -3.4e38, 3.4e38))
    return value


def _time(rng: np.random.Generator) -> Time:
    seconds = (-(2**31), -1, 0, 1, 2**31 - 1)[int(rng.integers(5))]
    return Time(sec=seconds, nanosec=(0, 999_999_999, 2**32 - 1)[int(rng.integers(3))])


def clock(rng: np.random.Generator) -> Clock:
    """Return a time that is negative, far away, or no time at all."""
    return Clock(clock=_time(rng))


def transforms(rng: np.random.Generator) -> TFMessage:
    """Return transforms that form a cycle, hang in the air, are not finite, or move the robot's own frames."""
    names = [str(name) for name in rng.permutation(FRAMES)[: int(rng.integers(1, 4))]]
    msg = TFMessage()
    for parent, child in zip(names, [*names[1:], names[0]], strict=True):  # the last one closes a cycle
        one = TransformStamped(child_frame_id=child)
        one.header.frame_id = parent
        if rng.random() < 0.5:
            one.header.stamp = _time(rng)
        for part, axes in ((one.transform.translation, "xyz"), (one.transform.rotation, "xyzw")):
            for axis in axes:
                setattr(part, axis, float(rng.choice(FLOATS)))
        msg.transforms.append(one)
    return msg


SPECIAL: dict[str, Callable[[np.random.Generator], Any]] = {"clock": clock, "tf": transforms, "tf_static": transforms}
"""Last part of a topic's name -> what is worse there than random fields."""


def hostile(topic: str, cls: Any, good: Any | None, rng: np.random.Generator) -> Any:
    """Return the next hostile message for ``topic``; ``good`` is a message that was heard there, if any was."""
    special = SPECIAL.get(topic.rsplit("/", 1)[-1])
    if special is not None and rng.random() < 0.7:
        return special(rng)
    return mutated(good, rng) if good is not None and rng.random() < 0.6 else random_message(cls, rng)
