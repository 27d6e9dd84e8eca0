"""The tasks: one file each, found by name.

A task of your own is named ``package.module:attribute``, a subclass of :class:`Task`. A memory task's name may carry
its options: ``shell_touch:delay=20,alternatives=4``. The seeds mean the same table whatever the options, as far as the
table does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace

from engram.core.errors import EngramError, InvalidInputError
from engram.core.registry import is_spec, resolve_class, split_options
from engram.sim.tasks.base import Task
from engram.sim.tasks.check import check_made, check_words
from engram.sim.tasks.memory import MEMORY_TASKS, UNSEEN_TASKS, MemoryConfig, MemoryTask
from engram.sim.tasks.open_drawer import OpenDrawer
from engram.sim.tasks.pick_place import PickPlace
from engram.sim.tasks.press_button import PressButton
from engram.sim.tasks.push_to_mark import PushToMark
from engram.sim.tasks.reach import Reach
from engram.sim.tasks.stack import Stack

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Reach, PushToMark, PickPlace, Stack, OpenDrawer, PressButton)
}
"""The Markovian tasks: name -> task class; :func:`get_task` makes one for a world."""

SUITES: dict[str, tuple[str, ...]] = {
    "tabletop": tuple(TASKS),
    "memory": tuple(MEMORY_TASKS),
    "unseen": tuple(UNSEEN_TASKS),
    "all": (*TASKS, *MEMORY_TASKS, *UNSEEN_TASKS),
}
"""Names of groups of tasks, which stand for them wherever tasks are listed."""


def task_class(name: str) -> type[Task]:
    """Return the class of a task.

    Raises:
        UnknownNameError: there is none of this name; lists the valid ones.
        InvalidInputError: it is no task, or one of your own whose words cannot be.
    """
    kind, _ = split_options(name)
    shipped = {**TASKS, **MEMORY_TASKS, **UNSEEN_TASKS}
    found = resolve_class("task", kind, shipped, Task)  # type: ignore[type-abstract]
    if kind not in shipped:
        _named(kind, check_words, found)
    return found


def get_task(name: str) -> Task:
    """Return a fresh task.

    Raises:
        UnknownNameError: there is none of this name; lists the valid ones.
        InvalidInputError: it takes no such options, or is one of your own that cannot be; names class and field.
    """
    kind, options = split_options(name)
    made = task_class(name)
    if not options:
        task = made()
    elif issubclass(made, MemoryTask):
        task = made(_configured(name, made.defaults, options))
    else:
        raise InvalidInputError(f"task {name!r}: {kind} takes no options")
    if is_spec(kind):  # by this name every other process finds it, too
        task.name = kind  # type: ignore[misc]  # a class variable in shipped tasks
        _named(kind, check_made, task)
    return task


def _named[Checked](name: str, check: Callable[[Checked], None], checked: Checked) -> None:
    """Check, and say in an error which task is meant."""
    try:
        check(checked)
    except InvalidInputError as error:
        raise InvalidInputError(f"task {name!r}: {error}") from None


def is_task(name: str) -> bool:
    """Tell whether ``name`` names a task."""
    try:
        task_class(name)
    except EngramError:
        return False
    return True


def task_for(instruction: str, also: Iterable[str] = ()) -> str:
    """Return the task whose wordings ``instruction`` fits.

    Args:
        instruction: words, as a user says them.
        also: further tasks, ``package.module:attribute``, which are asked first.

    Raises:
        InvalidInputError: no task has such a wording; lists examples.
    """
    for name in dict.fromkeys((*filter(is_spec, also), *SUITES["all"])):
        try:
            task_class(name).parse(instruction)
        except InvalidInputError:
            continue
        return name
    raise InvalidInputError(f"no task fits {instruction!r}; for example: {'; '.join(example_instructions(also))}")


def example_instructions(also: Iterable[str] = ()) -> tuple[str, ...]:
    """Return an instruction for each of TASKS and of ``also``; names of it that are no such task are left out."""
    own = [name for name in also if is_spec(name) and is_task(name)]
    kinds = [task_class(name) for name in dict.fromkeys((*own, *TASKS))]
    return tuple(
        kind.instructions[0].format(**dict(zip(kind.slots(), kind.slot_words, strict=False))) for kind in kinds
    )


def with_options(name: str, **options: int | None) -> str:
    """Return the task name that carries those ``options`` that are not None."""
    given = ",".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return f"{name}:{given}" if given else name


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return ``names`` with each suite replaced by its tasks; every task is known when this returns."""
    tasks = tuple(task for name in names for task in SUITES.get(name, (name,)))
    for task in tasks:
        get_task(task)
    return tasks


def each_once(names: Iterable[str]) -> tuple[str, ...]:
    """Return :func:`expand` of ``names``; InvalidInputError where a task is named twice, itself or by its suite."""
    tasks = expand(names)
    twice = sorted({task for task in tasks if tasks.count(task) > 1})
    if twice:
        raise InvalidInputError(f"tasks: {', '.join(twice)} named more than once, by name or suite; name each once")
    return tasks


def _configured(name: str, config: MemoryConfig, options: str) -> MemoryConfig:
    valid = [field.name for field in fields(config)]
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key not in valid or not value.strip().isdecimal():
            raise InvalidInputError(f"task {name!r}: {option!r} is no option; valid: {', '.join(valid)} = whole number")
        config = replace(config, **{key: int(value)})
    return config


__all__ = [
    "MEMORY_TASKS",
    "SUITES",
    "TASKS",
    "UNSEEN_TASKS",
    "Task",
    "each_once",
    "expand",
    "get_task",
    "is_task",
    "task_class",
    "task_for",
    "with_options",
]
