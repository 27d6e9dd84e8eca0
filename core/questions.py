"""What can be asked of a memory: one frozen value for each kind of question.

A question is answered by the handler of its kind (``engram.memory.query``). :meth:`Question.selection` says what of it
the stores of a memory can filter by.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types.basics import set_fields
from engram.core.words import check_words

RELATIONS: tuple[str, ...] = ("on", "in", "near", "held_by")
"""In which one node can stand to another."""
ABILITIES: tuple[str, ...] = ("reach", "grasp", "hold", "have", "do", "be")
"""What robots can be asked for."""
TASK_ASPECTS: tuple[str, ...] = ("list", "happened", "unusual", "last", "whether", "count")
"""What can be asked of the tasks that the robot did."""
CHANGE_KINDS: tuple[str, ...] = ("changed", "moved", "new", "gone")
"""What can be asked of changes; "changed" is any of them."""
TASK_SIDES: tuple[str, ...] = ("during", "before", "after")
"""How a question can stand to a task."""

Interval = tuple[int, int]
"""First and last stamp [ns]."""


@dataclass(frozen=True)
class Selection:
    """A filter over what a memory holds: words, a place, a relation and a time, in any combination.

    An empty selection matches everything.
    """

    text: str = ""  # describes an object
    place: np.ndarray | None = None  # (3,) m, in the memory's frame
    radius_m: float = float("inf")  # around place
    limit: int = 5
    relation: str = ""  # one of RELATIONS; empty = any
    target: str = ""  # label or node id that the relation points at
    valid_ns: Interval | None = None  # true in the world during [start, end]; None = now
    believed_ns: int | None = None  # as the memory believed it at this time; None = as it knows today
    now_ns: int | None = None  # when it is asked; None = at the newest observation
    vector: np.ndarray | None = None  # (384,) embedding of text; filled in by the memory

    def __post_init__(self) -> None:
        _check(self, "Selection")
        if self.place is not None:
            set_fields(self, place=checked("Selection.place", self.place, (3,)))
        if self.relation and self.relation not in RELATIONS:
            raise unknown_name("relation", self.relation, RELATIONS)
        if self.valid_ns is not None and self.valid_ns[0] > self.valid_ns[1]:
            raise InvalidInputError(f"Selection.valid_ns: {self.valid_ns}, expected (start, end)")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What every question has: who asks, when, where, and for how much.

    Words in any of its fields are at most ``WORDS_MAX`` characters.
    """

    place: np.ndarray | None = None  # (3,) m: only what is within radius_m of it
    radius_m: float = float("inf")
    limit: int = 5  # most objects in the answer
    now_ns: int | None = None  # when it is asked; None = at the newest observation
    robot_place: np.ndarray | None = None  # (3,) m: where a look begins; None = where the memory's own robot stands

    def __post_init__(self) -> None:
        kind = type(self).__name__
        _check(self, kind)
        for name in ("place", "robot_place"):
            value = getattr(self, name)
            if value is not None:
                set_fields(self, **{name: checked(f"{kind}.{name}", np.asarray(value, np.float64), (3,))})

    def selection(self) -> Selection | None:
        """Return what every store can filter its evidence by; None = its handler alone knows what belongs to it."""
        return Selection(place=self.place, radius_m=self.radius_m, limit=self.limit, now_ns=self.now_ns)

    def refined(self, **changes: Any) -> Self:
        """Return the question with other values of the fields that every question has."""
        return replace(self, **changes)


@dataclass(frozen=True)
class FindObject(Question):
    """Where is the object that ``text`` describes? Without a text: what is there?"""

    text: str = ""

    def selection(self) -> Selection:
        """Return what the stores can filter by."""
        return Selection(self.text, self.place, self.radius_m, self.limit, now_ns=self.now_ns)


@dataclass(frozen=True)
class Relation(Question):
    """What stands in ``relation`` to ``target``, and is an object that ``text`` describes one of them?"""

    relation: str
    target: str  # label or node id
    text: str = ""  # empty = everything that stands in the relation

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation not in RELATIONS:
            raise unknown_name("relation", self.relation, RELATIONS)

    def selection(self) -> Selection:
        """Return what the stores can filter by."""
        return Selection(
            self.text, self.place, self.radius_m, self.limit, self.relation, self.target, now_ns=self.now_ns
        )


@dataclass(frozen=True)
class Capability(Question):
    """Which robots can? reach, grasp, hold: ``target``; have: a part named ``text``; do: a task like ``text``;
    be: called ``text``."""

    ability: str
    text: str = ""
    target: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ability not in ABILITIES:
            raise unknown_name("ability", self.ability, ABILITIES)

    def selection(self) -> Selection | None:
        """Return what the stores can filter by: of robots they know only the tasks."""
        if self.ability != "do":
            return None
        return Selection(self.text, self.place, self.radius_m, self.limit, now_ns=self.now_ns)


@dataclass(frozen=True)
class Count(Question):
    """How many objects are there that ``text`` describes, in ``relation`` to ``target`` if these are given?"""

    text: str = ""  # in the singular; empty = objects of any kind
    relation: str = ""
    target: str = ""

    def selection(self) -> Selection:
        """Return what the stores can filter by."""
        return Selection(
            self.text, self.place, self.radius_m, self.limit, self.relation, self.target, now_ns=self.now_ns
        )


@dataclass(frozen=True)
class Attribute(Question):
    """Is the object that ``text`` describes ``value``, such as red or open? Without a value: what colour is it?"""

    text: str
    value: str = ""

    def selection(self) -> Selection:
        """Return what the stores can filter by."""
        return Selection(self.text, self.place, self.radius_m, self.limit, now_ns=self.now_ns)


@dataclass(frozen=True)
class Tasks(Question):
    """What did the robot do, in tasks like ``text``, or in all of them?

    list: the tasks in order. happened: those, and what changed outside of any task. unusual: what surprised most.
    last: the newest one, when it was and how it ended. whether: did it succeed? count: how often was it tried?
    """

    aspect: str = "list"
    text: str = ""  # "put the cube into the bin"; empty = any task

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aspect not in TASK_ASPECTS:
            raise unknown_name("aspect of tasks", self.aspect, TASK_ASPECTS)

    def selection(self) -> None:
        """Return None: the evidence is the tasks of the answer."""


@dataclass(frozen=True)
class Changes(Question):
    """What changed, moved, is new or is gone, of all objects or of those that ``text`` describes?"""

    kind: str = "changed"
    text: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in CHANGE_KINDS:
            raise unknown_name("kind of change", self.kind, CHANGE_KINDS)

    def selection(self) -> None:
        """Return None: the evidence is the changes of the answer."""


@dataclass(frozen=True)
class DuringTask(Question):
    """``question``, asked about the time of the last task like ``text``: during it, before it or after it."""

    question: Question
    side: str = "during"
    text: str = ""  # empty = any task

    def __post_init__(self) -> None:
        if self.side not in TASK_SIDES:
            raise unknown_name("side of a task", self.side, TASK_SIDES)
        check_words("DuringTask.text", self.text)
        set_fields(self, **_shared(self.question))

    def selection(self) -> None:
        """Return None: when the task was, only the memory knows."""

    def refined(self, **changes: Any) -> Self:
        """Return the question with other values of the fields that every question has."""
        return replace(self, question=self.question.refined(**changes))


@dataclass(frozen=True)
class AtTime(Question):
    """``question``, asked about the past.

    What was true during ``valid_ns``, by what is known today; with ``believed_ns``, what the memory believed then.
    """

    question: Question
    valid_ns: Interval | None = None
    believed_ns: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.question, AtTime):
            raise InvalidInputError("AtTime.question: an AtTime, expected a question without a time")
        if self.valid_ns is None and self.believed_ns is None:
            raise InvalidInputError("AtTime: expected valid_ns or believed_ns")
        set_fields(self, **_shared(self.question))
        if self.valid_ns is not None and self.valid_ns[0] > self.valid_ns[1]:
            raise InvalidInputError(f"AtTime.valid_ns: {self.valid_ns}, expected (start, end)")

    def selection(self) -> Selection | None:
        """Return what the stores can filter by."""
        chosen = self.question.selection()
        return None if chosen is None else replace(chosen, valid_ns=self.valid_ns, believed_ns=self.believed_ns)

    def refined(self, **changes: Any) -> Self:
        """Return the question with other values of the fields that every question has."""
        return replace(self, question=self.question.refined(**changes))


def _shared(inner: Question) -> dict[str, Any]:
    """Return the fields that every question has, for one that asks ``inner``."""
    return {field.name: getattr(inner, field.name) for field in fields(Question)}


def _check(asked: Selection | Question, kind: str) -> None:
    if asked.limit <= 0:
        raise InvalidInputError(f"{kind}.limit: {asked.limit}, expected 1 or more")
    if not asked.radius_m > 0:
        raise InvalidInputError(f"{kind}.radius_m: {asked.radius_m}, expected metres above 0")
    for field in fields(asked):
        if isinstance(words := getattr(asked, field.name), str):
            check_words(f"{kind}.{field.name}", words)
