"""Which things may be called to make a part, and which names the network may choose."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from engram.core.contracts import Detector, Policy
from engram.core.declared import check_named, makes
from engram.core.errors import UnknownNameError

if TYPE_CHECKING:
    pass


class Blind(Detector):
    def detect(self, frame):
        raise AssertionError("not called")


def annotated() -> Detector:
    raise AssertionError("a factory is called by resolve alone")


def narrower() -> Blind:
    raise AssertionError("a factory is called by resolve alone")


def for_types_only() -> Detector:
    raise AssertionError("a factory is called by resolve alone")


for_types_only.__annotations__["return"] = "OnlyForTypes.Detector"


def plain():
    raise AssertionError("called without being declared")


def other() -> Policy:
    raise AssertionError("called for another contract")


def listed() -> list[Detector]:
    raise AssertionError("a list of them is none")


@functools.wraps(annotated)
def wrapped(*args):
    return annotated(*args)


@pytest.mark.parametrize("thing", [Blind, Blind(), annotated, narrower, for_types_only, wrapped])
def test_a_part_its_class_and_a_declared_function_are_factories(thing):
    assert makes(thing, Detector)


@pytest.mark.parametrize(
    "thing", [plain, other, listed, print, exit, object, str, 3, functools.partial(annotated), Policy]
)
def test_nothing_else_is(thing):
    assert not makes(thing, Detector)


@pytest.mark.parametrize("name", ["stack", "", "shell_touch:delay=20", "mine.tasks:Lift", "mine.tasks:Lift:delay=3"])
def test_the_network_may_name_what_is_shipped_and_what_the_launch_named(name):
    check_named("task", name, ("", "mine.tasks:Lift"))


@pytest.mark.parametrize("name", ["os:abort", "mine.tasks:Other", "mine.tasks:", "antigravity:x:delay=3", ":"])
def test_the_network_imports_no_other_module(name):
    with pytest.raises(UnknownNameError, match=r"unknown task .*valid: a shipped name, mine.tasks:Lift; a module is"):
        check_named("task", name, ("mine.tasks:Lift",))
