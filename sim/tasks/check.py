"""Checks of a task of your own: what it says of itself, before a world is built for it."""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any, NoReturn

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.sim.scene import SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import COLORS


def check_words(task: type[Task]) -> None:
    """Check the wordings of ``task``, their slots and what may stand in them.

    Raises:
        InvalidInputError: names the class, the field and what is expected.
    """
    for field in ("instructions", "held_out_instructions", "colored", "slot_words"):
        _check_strings(task, field)
    if not getattr(task, "instructions", ()):
        _wrong(task, "instructions", "a tuple of sentences, at least one")
    known = sorted({slot for said in task.instructions for slot in _slots(task, "instructions", said)})
    for said in task.held_out_instructions:
        if unknown := sorted(set(_slots(task, "held_out_instructions", said)) - set(known)):
            told = f"the slots of instructions, {_listed(known)}, and not {{{unknown[0]}}}"
            _wrong(task, "held_out_instructions", told, said)
    for synonym, word in task.synonyms.items():
        if word not in task.slot_words:
            _wrong(task, "synonyms", f"one of slot_words, {_listed(task.slot_words)}, for {synonym!r}", word)
    if known and task.draw_words is Task.draw_words:
        _check_colors(task, known)


def check_made(task: Task) -> None:
    """Check length and scene of ``task``; InvalidInputError as of :func:`check_words`."""
    kind = type(task)
    if not hasattr(task, "max_steps"):
        _wrong(kind, "max_steps", "the control steps after which an episode ends, at least 1")
    positive_int(f"{kind.__name__}.max_steps", task.max_steps)
    if kind.scene_for is Task.scene_for and not isinstance(getattr(task, "scene", None), SceneConfig):
        _wrong(kind, "scene", "a SceneConfig")


def _check_strings(task: type[Task], field: str) -> None:
    value = getattr(task, field, ())
    if not isinstance(value, tuple | list) or not all(isinstance(one, str) and one.strip() for one in value):
        hint = f"; one alone is written ({value!r},)" if isinstance(value, str) else ""
        _wrong(task, field, f"a tuple of texts{hint}", value)


def _slots(task: type[Task], field: str, said: str) -> list[str]:
    """Return the slots of the wording ``said``, each once."""
    try:
        parts = [part[1:] for part in string.Formatter().parse(said) if part[1] is not None]
    except ValueError:
        parts = [("", "", None)]
    if any(not (name or "").isidentifier() or form or conversion for name, form, conversion in parts):
        _wrong(task, field, "slots that are written as {color}", said)
    names = [str(name) for name, *_ in parts]
    if twice := [name for name in names if names.count(name) > 1]:
        _wrong(task, field, f"each slot once, and not {{{twice[0]}}} twice", said)
    return names


def _check_colors(task: type[Task], slots: list[str]) -> None:
    """Check that :meth:`Task.draw_words` finds a body for each slot, and a colour that is understood for each body."""
    if len(task.colored) < len(slots):
        _wrong(task, "colored", f"a body at least for each of the slots {_listed(slots)}", task.colored)
    if len(task.colored) > len(COLORS):
        _wrong(task, "colored", f"at most {len(COLORS)} bodies, as there are colours", task.colored)
    if missing := [color for color in COLORS if color not in task.slot_words]:
        _wrong(task, "slot_words", f"every colour that may be drawn, {_listed(missing)} too", task.slot_words)


def _wrong(task: type[Task], field: str, expected: str, *value: Any) -> NoReturn:
    found = repr(value[0]) if value else repr(getattr(task, field)) if hasattr(task, field) else "missing"
    raise InvalidInputError(f"{task.__name__}.{field}: {found}, expected {expected}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "(none)"
