"""Several robots: another robot's memory becomes a partition of ours, in our frame, and can be taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import GraphUpdate, SceneNode
from engram.memory.graph.conflicts import Conflict
from engram.memory.graph.merges import FEW_VOTES, Merge, joined
from engram.memory.graph.tracker import Tracker
from engram.memory.merging.alignment import FleetConfig, align, identities
from engram.memory.merging.transfer import carried, carried_fact, counterparts, take_agents, take_grips
from engram.memory.storage.fact_columns import FOREVER
from engram.memory.storage.history import History
from engram.memory.storage.records import nodes_from, restore_history
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import Stored


@dataclass(frozen=True)
class FleetReport:
    """What a merge did."""

    transform: PlaneTransform
    matched: tuple[tuple[str, str], ...]  # ours, theirs: now one object
    added: tuple[str, ...]  # ids of objects that only they knew
    agents: tuple[str, ...]  # ids of the robots that came along
    conflicts: tuple[Conflict, ...]  # kept apart until someone decides


def merge_from(
    tracker: Tracker, stored: Stored, robot: str, guess: PlaneTransform | None = None,
    config: FleetConfig | None = None,
) -> FleetReport:  # fmt: skip
    """Make the memory ``stored`` of ``robot`` a partition of ours.

    What both know becomes one object with both histories; what only they know gets the id ``robot/their id``; the
    rest is kept apart as conflicts, which :func:`join` and :func:`keep_apart` decide. Their robots come along, with
    their profiles and what they hold; of those that we know ourselves, ours stands. Their places do not: what rests on
    one of them rests on ours of the same label that overlaps it, or, without such a one, just where it is.

    Raises:
        InvalidInputError: a partition of ``robot`` is there already, or the memories do not overlap.
    """
    config = config or FleetConfig()
    if partition(tracker, robot) or _merges_with(tracker, robot):
        raise InvalidInputError(f"the memory of {robot!r} is merged already: undo that first")
    theirs = [(node, votes) for _, node, votes in nodes_from(stored.tables) if node.layer == "object"]
    seen = [node for node, _ in theirs if node.state != "absent"]
    mine = [node for node in tracker.scene.nodes("object") if node.state != "absent"]
    transform = align(mine, seen, guess, config)
    history = History()
    restore_history(history, stored.tables)
    moved = [carried(node, robot, transform, tracker.config.frame) for node, _ in theirs]
    matched, conflicts = identities(mine, [node for node in moved if node.state != "absent"], config)
    here = counterparts(tracker, stored, robot, transform, matched)
    for node, (before, votes) in zip(moved, theirs, strict=True):
        tracker.scene.put(node, votes)
        facts = [fact for fact in history.of(before.id) if fact.believed_to == FOREVER]
        tracker.history.restate([carried_fact(f, robot, transform, here) for f in facts], node.id, stored.stamp_ns)
    agents = take_agents(tracker, stored, history, robot, transform, here)
    for ours_id, theirs_id in matched:
        tracker.merge_nodes(ours_id, theirs_id, max(tracker.stamp_ns, stored.stamp_ns), _tag(robot))
    take_grips(tracker, stored, here, agents)
    tracker.conflicts.keep(robot, conflicts)
    tracker.relation_updates.relate_all()
    tracker.sequence += 1
    gone = {theirs_id for _, theirs_id in matched}
    added = tuple(n.id for n in moved if n.id not in gone)
    return FleetReport(transform, matched, added, tuple(agents.values()), conflicts)


def unmerge(tracker: Tracker, robot: str) -> int:
    """Take the partition of ``robot`` out again, with all its facts; return how many objects it touched.

    What we saw ourselves since the merge stays.

    Raises:
        InvalidInputError: there is no such partition.
    """
    stamp = tracker.stamp_ns
    merges, own = _merges_with(tracker, robot), partition(tracker, robot)
    if not merges and not own:
        raise InvalidInputError(f"no memory of {robot!r} was merged")
    withdrawn = set()
    for merge in merges:
        if merge.kept.id in own and not _of(robot, merge.gone.id):  # ours became part of theirs, which goes
            tracker.undo_merge(merge.number, stamp, f"unmerge of {robot}")
            continue
        if not _of(robot, merge.kept.id):
            withdrawn.add(_withdraw(tracker, merge, robot, stamp))
        tracker.merges.close(merge.number, f"undone at {stamp}")
    for node_id in own:
        tracker.history.retract(node_id, stamp)
        about = tracker.columns.about(tracker.columns.row_of[node_id])
        if about.layer == "agent":
            tracker.grasps.open(about.label)
            tracker.embodiments.retract(node_id, stamp)
        tracker.grasps.forget(node_id)
        tracker.scene.remove(node_id)
        tracker.removed.add(node_id)
    tracker.conflicts.keep(robot, ())
    tracker.relation_updates.relate_all()
    tracker.sequence += 1
    return len(withdrawn & tracker.columns.row_of.keys()) + len(own)


def partition(tracker: Tracker, robot: str) -> list[str]:
    """Return the ids of the objects and robots that only ``robot`` knew."""
    return [node_id for node_id in tracker.columns.row_of if _of(robot, node_id)]


def join(tracker: Tracker, kept_id: str, gone_id: str, who: str) -> tuple[int, GraphUpdate]:
    """Make the object ``gone_id`` part of ``kept_id``; return the number of the merge, by which it is undone, and what
    changed.

    Conflicts between the two are decided, as long as the merge stands.

    Raises:
        UnknownNameError: there is no such object; lists what there is.
        InvalidInputError: the two are one already, or no objects.
    """
    _check_pair(tracker, kept_id, gone_id)
    last_seen = (tracker.scene.node(node_id).last_seen_ns for node_id in (kept_id, gone_id))
    stamp = max(tracker.stamp_ns, *last_seen) + 1  # of its own: an undo tells by it what this merge took back
    change = tracker.merge_nodes(kept_id, gone_id, stamp, who)
    return tracker.merges.standing()[-1].number, change


def keep_apart(tracker: Tracker, a: str, b: str) -> GraphUpdate:
    """Decide the conflict between the objects ``a`` and ``b``, in either order: they are two. Return the change, which
    is that of the sequence alone.

    Raises:
        UnknownNameError, InvalidInputError: as :func:`join`; or nothing is undecided between them; lists what is.
    """
    _check_pair(tracker, a, b)
    if not tracker.conflicts.settle(a, b):
        open_ = tracker.conflicts.undecided(tracker.columns.row_of)
        valid = ", ".join(f"{one.ours} and {one.theirs}" for one in open_ if {a, b} & {one.ours, one.theirs})
        raise InvalidInputError(f"no conflict between {a} and {b}; of either of them: {valid or '(none)'}")
    tracker.sequence += 1
    return GraphUpdate(tracker.stamp_ns, tracker.sequence, False, ())


def _tag(robot: str) -> str:
    return f"merge of {robot}"


def _of(robot: str, node_id: str) -> bool:
    return node_id.startswith(f"{robot}/")


def _merges_with(tracker: Tracker, robot: str) -> list[Merge]:
    """Return the standing merges of what ``robot`` knew, newest first: whoever decided them."""
    return [one for one in reversed(tracker.merges.standing()) if _of(robot, one.kept.id) or _of(robot, one.gone.id)]


def _check_pair(tracker: Tracker, *node_ids: str) -> None:
    """Raise UnknownNameError or InvalidInputError unless these are two different objects."""
    columns = tracker.columns
    for node_id in node_ids:
        if node_id not in columns:
            raise unknown_name("object", node_id, (node.id for node in tracker.scene.nodes("object")))
        layer = columns.about(columns.row_of[node_id]).layer
        if layer != "object":
            raise InvalidInputError(f"node {node_id!r}: layer {layer!r}, valid: object")
    if len(set(node_ids)) < 2:
        raise InvalidInputError(f"object {node_ids[0]!r} is given twice, expected two objects")


def _withdraw(tracker: Tracker, merge: Merge, robot: str, stamp_ns: int) -> str:
    """Take what ``robot`` contributed by ``merge`` out of the node that has it today; return that one's id.

    It is ``merge.kept``, or what took that in later. Its own later sights stay. What later merges noted of it is put
    right too: they may be taken back one day.
    """
    ours, votes = merge.kept, merge.kept_votes
    for later in [one for one in tracker.merges.standing() if one.number > merge.number]:
        if later.kept.id == ours.id:
            kept, kept_votes = _without(later.kept, later.kept_votes, merge, robot, ours, votes)
            later = replace(later, kept=kept, kept_votes=kept_votes)
        elif later.gone.id == ours.id:
            gone, gone_votes = _without(later.gone, later.gone_votes, merge, robot, ours, votes)
            later = replace(later, gone=gone, gone_votes=gone_votes)
        else:
            continue
        tracker.merges.put(later)
        ours, votes = joined(later.kept, later.kept_votes, later.gone, later.gone_votes)
    history = tracker.history
    own = [f for f in history.retract(ours.id, stamp_ns) if not _told_by(robot, f.evidence[0] if f.evidence else "")]
    if own:
        last = max(own, key=lambda fact: fact.valid_from)
        own = [replace(f, valid_to=FOREVER) if f is last else f for f in own]
    history.restate(own, ours.id, stamp_ns)
    if ours.id in tracker.columns:
        about = tracker.columns.about(tracker.columns.row_of[ours.id])
        tracker.scene.put(*_without(tracker.scene.node(ours.id), about.votes, merge, robot, ours, votes))
    return ours.id


def _without(
    node: SceneNode, votes: Mapping[str, float], merge: Merge, robot: str,
    ours: SceneNode, our_votes: Mapping[str, float],
) -> tuple[SceneNode, Mapping[str, float]]:  # fmt: skip
    """Return ``node``, which has taken in what ``robot`` knew by ``merge``, and its votes, as they were without that.

    ``ours``, with its votes: what it would have been then, had it not been seen since.
    """
    if _told_by(robot, node.last_evidence) or node.last_seen_ns <= ours.last_seen_ns:
        return ours, our_votes
    left = {label: vote - merge.gone_votes.get(label, 0.0) for label, vote in votes.items()}
    left = {label: vote for label, vote in left.items() if vote > FEW_VOTES} or dict(our_votes)
    node = replace(
        node, label=max(sorted(left), key=left.__getitem__) if left else ours.label,
        first_seen_ns=ours.first_seen_ns, first_evidence=ours.first_evidence,
        observations=max(1, node.observations - merge.gone.observations),
    )  # fmt: skip
    return node, left


def _told_by(robot: str, evidence: str) -> bool:
    """Whether an observation is one of ``robot``."""
    return evidence.startswith(f"{robot}/")
