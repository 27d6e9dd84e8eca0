"""What clients ask of the robot's memory: questions, another robot's memory, what that left undecided. No ROS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engram.core.contracts import Memory
from engram.core.errors import EngramError, InvalidInputError, StoreError, unknown_name
from engram.core.questions import AtTime, DuringTask, Question, Relation, Selection
from engram.core.types import GraphUpdate
from engram.core.words import check_words
from engram.memory.graph.conflicts import Conflict
from engram.memory.graph_memory import GraphMemory
from engram.memory.merging import memories
from engram.memory.query.language import parse
from engram.memory.query.times import QuestionConfig
from engram.memory.query.unread import Unread
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import read_snapshot

CLOCKS_APART_S = 1.0
"""How far ahead of ours the clock of a client may be [s]."""
ACTIONS = JOIN, KEEP_APART, UNDO = ("join", "keep_apart", "undo")
"""What :func:`resolve` does."""


@dataclass(frozen=True)
class Asking:
    """What a client does not say."""

    now_ns: int
    limit: int
    utc_offset_h: float | None = 0.0  # of local time; None = as this machine's time zone has it at each date


@dataclass(frozen=True)
class Asked:
    """What a client says: words of at most ``WORDS_MAX`` characters, overruled by the other fields."""

    text: str
    near: str = ""  # label or node id; "" = anywhere
    place: np.ndarray | None = None  # (3,) m, in the memory's frame
    radius_m: float = float("inf")  # around place
    robot_place: np.ndarray | None = None  # (3,) m, in the memory's frame: where a search would begin
    at_ns: int = 0  # true in the world then; 0 = as the words say, else now
    believed_at_ns: int = 0  # as the memory believed it then; 0 = as it knows now
    limit: int = 0  # most nodes to return; 0 = the default

    def __post_init__(self) -> None:
        check_words("text", self.text)
        check_words("near", self.near)


@dataclass(frozen=True)
class Resolved:
    """What :func:`resolve` did."""

    reason: str
    change: GraphUpdate
    merge: int = 0  # number by which it is undone; 0 = there is none


def question_of(asked: Asked, asking: Asking) -> Question:
    """Return the question of a client.

    Raises:
        InvalidInputError: words or fields name a time that is still to come.
    """
    for name, stamp_ns in (("at", asked.at_ns), ("believed_at", asked.believed_at_ns)):
        ahead_s = (stamp_ns - asking.now_ns) / 1e9
        if ahead_s > CLOCKS_APART_S:
            raise InvalidInputError(f"{name}: {ahead_s:.1f} s from now is still to come, expected a time up to now")
    question = parse(asked.text, asking.now_ns, asked.limit or asking.limit, QuestionConfig(asking.utc_offset_h))
    then = question if isinstance(question, AtTime) else None
    valid_ns, believed_ns = (None, None) if then is None else (then.valid_ns, then.believed_ns)
    question = question if then is None else then.question
    if asked.near:
        question = _near(question, asked.near)
    if asked.place is not None:
        question = question.refined(place=asked.place, radius_m=asked.radius_m)
    if asked.robot_place is not None:
        question = question.refined(robot_place=asked.robot_place)
    if at := asked.at_ns:
        valid_ns = (at, at)
    if believed := asked.believed_at_ns:
        valid_ns, believed_ns = valid_ns or (believed, believed), believed
    return question if valid_ns is None else AtTime(question, valid_ns, believed_ns)


def _near(question: Question, target: str) -> Question:
    """Return what ``question`` is about as a question for what is near ``target``, at the time of its task if any."""
    if isinstance(question, DuringTask | Unread):
        return replace(question, question=_near(question.question, target))
    chosen = question.selection() or Selection()
    return Relation("near", target, chosen.text, limit=question.limit, now_ns=question.now_ns)


def merge(memory: Memory, store: str, guess: PlaneTransform | None, *, undo: bool) -> tuple[str, tuple[str, ...]]:
    """Merge the memory of another robot, or take it out again; return what came of it, and the conflicts in words.

    The other robot's name is that of its folder, or of the folder around one that is called ``memory``.

    Args:
        memory: takes the other one in.
        store: folder of the other one.
        guess: the other one's frame in ours; None = found from objects that both know.
        undo: take it out again.
    """
    memory = _mergeable(memory)
    path = Path(store).expanduser()
    robot = path.parent.name if path.name == "memory" else path.name
    try:
        if undo:
            memories.unmerge(memory, robot)
            return "undone", ()
        stored = read_snapshot(path)
        if stored is None:
            raise StoreError(f"{path}: the store is empty")
        report = memories.merge_from(memory, stored, robot, guess)
        return "merged", tuple(one.words for one in report.conflicts)
    except EngramError as error:
        return str(error), ()


def undecided(memory: Memory) -> list[Conflict]:
    """Return the pairs that may be one object or two; raises InvalidInputError if the memory cannot merge."""
    tracker = _mergeable(memory).tracker
    return tracker.conflicts.undecided(tracker.columns.row_of)


def resolve(memory: Memory, action: str, a: str, b: str, number: int) -> Resolved:
    """Decide whether the objects ``a`` and ``b`` are one, or undo the merge ``number``: see ``ACTIONS``.

    Raises:
        UnknownNameError, InvalidInputError: there is no such action, object, conflict or merge, with those there are;
            or the memory is of a kind that cannot merge. Nothing was changed then.
    """
    memory = _mergeable(memory)
    if action == JOIN:
        made, change = memories.join(memory, a, b, "memory/resolve")
        return Resolved(f"joined: {b} is part of {a}; undo of merge {made} takes that back", change, made)
    if action == KEEP_APART:
        return Resolved(f"kept apart: {a} and {b}", memories.keep_apart(memory, a, b))
    if action == UNDO:
        return Resolved(f"undone: merge {number}", memory.undo_merge(number, "memory/resolve"))
    raise unknown_name("action", action, ACTIONS)


def _mergeable(memory: Memory) -> RobotMemory | GraphMemory:
    """Return ``memory`` if it can merge; raises InvalidInputError if not."""
    if not isinstance(memory, RobotMemory | GraphMemory):
        raise InvalidInputError(f"a {type(memory).__name__} cannot merge; valid: robot, graph")
    return memory
