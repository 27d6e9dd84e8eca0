"""The memory's services without their topics: questions, another robot's memory, what that left undecided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.spatial.transform import Rotation

from engram.core.contracts import Memory
from engram.core.errors import EngramError, InvalidInputError, StoreError, unknown_name
from engram.core.questions import AtTime, Question, Relation, Selection
from engram.core.types import GraphUpdate
from engram.memory.graph_memory import GraphMemory
from engram.memory.merging import memories
from engram.memory.query.language import parse
from engram.memory.query.times import QuestionConfig
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import read_snapshot
from engram.nodes import messages
from engram_interfaces.msg import MemoryConflict
from engram_interfaces.srv import MemoryResolve

CLOCKS_APART_S = 1.0
"""So far ahead of ours may the clock be of who asks [s]."""


@dataclass(frozen=True)
class Asking:
    """What a question does not say."""

    now_ns: int
    limit: int
    utc_offset_h: float = 0.0


def question_from(request: Any, asking: Asking) -> Question:
    """Return what ``request`` (MemoryQuery.Request) asks: its words, overruled by what its fields say.

    Raises:
        InvalidInputError: words or fields name a time that is still to come.
    """
    for name in ("at", "believed_at"):
        ahead_s = (messages.from_stamp(getattr(request, name)) - asking.now_ns) / 1e9
        if ahead_s > CLOCKS_APART_S:
            raise InvalidInputError(f"{name}: {ahead_s:.1f} s from now is still to come, expected a time up to now")
    question = parse(request.text, asking.now_ns, request.limit or asking.limit, QuestionConfig(asking.utc_offset_h))
    then = question if isinstance(question, AtTime) else None
    valid_ns, believed_ns = (None, None) if then is None else (then.valid_ns, then.believed_ns)
    question = question if then is None else then.question
    if request.near:
        chosen = question.selection() or Selection()
        question = Relation("near", request.near, chosen.text, limit=question.limit, now_ns=question.now_ns)
    if request.use_place:
        radius = request.radius if request.radius > 0 else float("inf")
        question = question.refined(place=messages.xyz(request.place), radius_m=radius)
    if request.use_robot_place:
        question = question.refined(robot_place=messages.xyz(request.robot_place))
    if at := messages.from_stamp(request.at):
        valid_ns = (at, at)
    if believed := messages.from_stamp(request.believed_at):
        valid_ns, believed_ns = valid_ns or (believed, believed), believed
    return question if valid_ns is None else AtTime(question, valid_ns, believed_ns)


def answer_query(memory: Memory, question: Question, response: Any) -> Any:
    """Fill ``response`` (MemoryQuery.Response) with what the memory answers.

    Raises:
        UnknownNameError: the question is about a relation to something that is not known; lists what is.
    """
    found = memory.query(question)
    response.nodes = [messages.node_to_msg(node) for node in found.nodes]
    response.scores = [float(score) for score in found.scores]
    response.confidence = float(found.confidence)
    response.evidence_ids = list(dict.fromkeys(name for one in found.evidence for name in one.ids))
    response.evidence = [f"{one.source}: {one.text}" for one in found.evidence]
    response.answer = found.text
    response.age = float(found.age_s) if found.nodes else -1.0
    if found.advice is not None:
        response.advice, response.look = found.advice.text, bool(found.advice.look)
        if found.advice.place is not None:
            response.look_at = messages.point(found.advice.place)
        response.route = [messages.point(place) for place in found.advice.route]
        response.route_chances = list(found.advice.chances)
        response.route_labels = list(found.advice.labels)
    return response


def merge(memory: Memory, request: Any, response: Any) -> Any:
    """Do what ``request`` (MemoryMerge.Request) asks; ``response.status`` says what came of it.

    The other robot's name is that of its folder, or of the folder around one that is called ``memory``. A transform
    whose rotation is all zeros is none: objects that both know must do.
    """
    memory = _mergeable(memory)
    path = Path(request.store_path).expanduser()
    robot = path.parent.name if path.name == "memory" else path.name
    try:
        if request.undo:
            memories.unmerge(memory, robot)
            response.status = "undone"
            return response
        stored = read_snapshot(path)
        if stored is None:
            raise StoreError(f"{path}: the store is empty")
        report = memories.merge_from(memory, stored, robot, _guess(request.transform))
        response.status, response.conflicts = "merged", [one.words for one in report.conflicts]
    except EngramError as error:
        response.status = str(error)
    return response


def conflicts(memory: Memory, response: Any) -> Any:
    """Fill ``response`` (MemoryConflicts.Response) with what is undecided.

    Raises:
        InvalidInputError: the memory is of a kind that cannot merge.
    """
    tracker = _mergeable(memory).tracker
    undecided = tracker.conflicts.undecided(tracker.columns.row_of)
    response.conflicts = [
        MemoryConflict(kind=one.kind, ours=one.ours, theirs=one.theirs, words=one.words) for one in undecided
    ]
    response.accepted = True
    return response


ACTIONS = (MemoryResolve.Request.JOIN, MemoryResolve.Request.KEEP_APART, MemoryResolve.Request.UNDO)
"""What ``memory/resolve`` does."""


def resolve(memory: Memory, request: Any, response: Any) -> GraphUpdate:
    """Do what ``request`` (MemoryResolve.Request) asks and return what changed; ``response.reason`` says what it was.

    Raises:
        UnknownNameError, InvalidInputError: there is no such action, object, conflict or merge, with those there are;
            or the memory is of a kind that cannot merge. Nothing was changed then.
    """
    memory = _mergeable(memory)
    if request.action == request.JOIN:
        response.merge, change = memories.join(memory, request.a, request.b, "memory/resolve")
        response.reason = f"joined: {request.b} is part of {request.a}; undo of merge {response.merge} takes that back"
    elif request.action == request.KEEP_APART:
        change = memories.keep_apart(memory, request.a, request.b)
        response.reason = f"kept apart: {request.a} and {request.b}"
    elif request.action == request.UNDO:
        change = memory.undo_merge(request.merge, "memory/resolve")
        response.reason = f"undone: merge {request.merge}"
    else:
        raise unknown_name("action", request.action, ACTIONS)
    return change


def _mergeable(memory: Memory) -> RobotMemory | GraphMemory:
    """Return ``memory`` if it can merge; raises InvalidInputError if not."""
    if not isinstance(memory, RobotMemory | GraphMemory):
        raise InvalidInputError(f"a {type(memory).__name__} cannot merge; valid: robot, graph")
    return memory


def _guess(transform: Any) -> PlaneTransform | None:
    turn = transform.rotation
    quaternion = [turn.w, turn.x, turn.y, turn.z]
    if not any(quaternion):
        return None
    yaw = float(Rotation.from_quat(quaternion, scalar_first=True).as_euler("zyx")[0])
    return PlaneTransform(yaw, messages.xyz(transform.translation))
