"""Several robots: another robot's memory becomes a partition of ours, in our frame, and can be taken out again.

The frames of two robots differ by an unknown turn about the vertical and a shift. Objects that both know are the
landmarks: pairs that look alike vote by RANSAC (Fischler and Bolles, 1981), the least-squares transform of the
inliers follows in closed form (Umeyama, 1991, in the plane).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.geometry import make_pose, rotation
from engram.core.types import GraphUpdate, SceneNode
from engram.memory.graph.association import AppearanceFeatures, AssociationConfig, resembling
from engram.memory.graph.conflicts import Conflict
from engram.memory.graph.embodiments import Embodiments
from engram.memory.graph.grasp import Grasps, Grip
from engram.memory.graph.merges import Merge
from engram.memory.graph.tracker import Tracker
from engram.memory.storage.columns import half_extents
from engram.memory.storage.history import FOREVER, Fact, History
from engram.memory.storage.records import RecordTable, nodes_from, restore_history
from engram.memory.storage.se2 import PlaneTransform, fit
from engram.memory.storage.store import Stored


@dataclass(frozen=True)
class FleetConfig:
    """How two memories are laid over each other."""

    inlier_m: float = 0.20
    """A landmark this far from its counterpart after the transform still supports it."""
    same_m: float = 0.15
    """Two objects that look alike are one when they are this near."""
    landmarks_min: int = 3
    """Fewer supporting landmarks than this are chance."""
    guess_m: float = 2.0
    """How far a given first guess may be off at a landmark."""
    draws: int = 500
    """Pairs of landmarks that are tried."""


@dataclass(frozen=True)
class FleetReport:
    """What a merge did."""

    transform: PlaneTransform
    matched: tuple[tuple[str, str], ...]  # ours, theirs: now one object
    added: tuple[str, ...]  # ids of objects that only they knew
    agents: tuple[str, ...]  # ids of the robots that came along
    conflicts: tuple[Conflict, ...]  # kept apart until someone decides


def align(
    ours: Sequence[SceneNode], theirs: Sequence[SceneNode], guess: PlaneTransform | None, config: FleetConfig
) -> PlaneTransform:
    """Return the transform that most landmarks support.

    Raises:
        InvalidInputError: too few objects look alike in both, and there is no guess to fall back on.
    """
    pairs = _alike(ours, theirs)
    a = np.array([n.pose.position for n in ours]).reshape(-1, 3)
    b = np.array([n.pose.position for n in theirs]).reshape(-1, 3)
    if guess is not None and len(pairs):
        apart = np.linalg.norm(a[pairs[:, 0]] - guess.apply(b[pairs[:, 1]]), axis=1)
        pairs = pairs[apart <= config.guess_m]
    best = np.zeros(0, np.int64)
    draw = np.random.default_rng(0)
    for _ in range(config.draws if len(pairs) >= 2 else 0):
        i, j = pairs[draw.choice(len(pairs), 2, replace=False)]
        if i[0] == j[0] or i[1] == j[1]:
            continue
        inliers = _support(fit(a[[i[0], j[0]]], b[[i[1], j[1]]]), a, b, pairs, config)
        if len(inliers) > len(best):
            best = inliers
    if len(best) < config.landmarks_min:
        if guess is None:
            raise InvalidInputError(
                f"{len(best)} objects agree on where the other memory lies, expected {config.landmarks_min} or more; "
                "give a transform"
            )
        return guess
    fitted = fit(a[pairs[best, 0]], b[pairs[best, 1]])
    apart = np.linalg.norm(a[pairs[best, 0]] - fitted.apply(b[pairs[best, 1]]), axis=1)
    return replace(fitted, inliers=len(best), spread_m=float(np.sqrt((apart**2).mean())))


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
    moved = [_carried(node, robot, transform, tracker.config.frame) for node, _ in theirs]
    matched, conflicts = _identities(mine, [node for node in moved if node.state != "absent"], config)
    here = _counterparts(tracker, stored, robot, transform, matched)
    for node, (before, votes) in zip(moved, theirs, strict=True):
        tracker.scene.put(node, votes)
        facts = [fact for fact in history.of(before.id) if fact.believed_to == FOREVER]
        tracker.history.restate([_carried_fact(f, robot, transform, here) for f in facts], node.id, stored.stamp_ns)
    agents = _take_agents(tracker, stored, history, robot, transform, here)
    for ours_id, theirs_id in matched:
        tracker.merge_nodes(ours_id, theirs_id, max(tracker.stamp_ns, stored.stamp_ns), _tag(robot))
    _take_grips(tracker, stored, here, agents)
    tracker.conflicts.keep(robot, conflicts)
    tracker.relating.relate_all()
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
        if merge.kept.id in tracker.columns and merge.kept.id not in own:
            _withdraw(tracker, merge.kept, merge.kept_votes, robot, stamp)
            withdrawn.add(merge.kept.id)
        tracker.merges.close(merge.number, f"undone at {stamp}")
    for node_id in own:
        tracker.history.retract(node_id, stamp)
        about = tracker.columns.about(tracker.columns.row_of[node_id])
        if about.layer == "agent":
            tracker.grasps.open(about.label)
            tracker.agents.retract(node_id, stamp)
        tracker.grasps.forget(node_id)
        tracker.scene.remove(node_id)
        tracker.gone.add(node_id)
    tracker.conflicts.keep(robot, ())
    tracker.relating.relate_all()
    tracker.sequence += 1
    return len(withdrawn) + len(own)


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


# -- inside ----------------------------------------------------------------------------------------------------------


def _counterparts(
    tracker: Tracker, stored: Stored, robot: str, transform: PlaneTransform, matched: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """Return their id -> the id here of every node of theirs that is here after the merge."""
    ours = {theirs_id: ours_id for ours_id, theirs_id in matched}
    agents = {about.label: about.id for about in map(tracker.columns.about, tracker.columns.agents)}
    here = {}
    for _, node, _ in nodes_from(stored.tables):
        moved = _carried(node, robot, transform, tracker.config.frame)
        if node.layer == "object":
            here[node.id] = ours.get(moved.id, moved.id)
        elif node.layer == "agent":
            second_hand = "/" in node.id
            here[node.id] = agents.get(node.label, moved.id) if second_hand else moved.id
        else:
            known = _overlapping(tracker, moved)
            here |= {node.id: known} if known else {}
    return here


def _overlapping(tracker: Tracker, place: SceneNode) -> str:
    """Return the id of our place of that layer and label whose box overlaps that of ``place``, of several the nearest;
    empty = none."""
    columns, kind = tracker.columns, (place.layer, place.label)
    alike = [row for row in sorted(columns.fixed) if (columns.about(row).layer, columns.about(row).label) == kind]
    rows = np.array(alike, np.int64)
    offset = columns.position[rows] - place.pose.position
    reach = columns.half[rows] + half_extents(place.pose.quaternion[None], place.size[None])
    near = np.flatnonzero((np.abs(offset) < reach).all(axis=1))
    if not len(near):
        return ""
    return columns.about(int(rows[near[np.argmin(np.linalg.norm(offset[near], axis=1))]])).id


def _take_agents(
    tracker: Tracker, stored: Stored, history: History, robot: str, transform: PlaneTransform, here: Mapping[str, str]
) -> dict[str, str]:
    """Take their robots in that are no robots of ours; return their name -> the id here.

    The robot whose memory it is comes by its own name, or as ``robot`` when that is taken here: two robots that nobody
    named are still two.
    """
    ours = {tracker.columns.about(row).label for row in tracker.columns.agents}
    profiles = Embodiments()
    profiles.restore(RecordTable().restore(stored.tables).get("agents", ()))
    taken = {}
    for _, node, votes in nodes_from(stored.tables):
        if node.layer != "agent" or here[node.id] != f"{robot}/{node.id}":
            continue
        name = robot if node.label in ours else node.label
        body = profiles.at(node.id)
        moved = replace(_carried(node, robot, transform, tracker.config.frame), label=name, embodiment=body)
        tracker.scene.put(moved, votes)
        facts = [replace(_carried_fact(fact, robot, transform, here), label=name) for fact in history.of(node.id)
                 if fact.believed_to == FOREVER]  # fmt: skip
        tracker.history.restate(facts, moved.id, stored.stamp_ns)
        if body is not None:
            tracker.agents.state(moved.id, body, node.first_seen_ns, believed_ns=stored.stamp_ns)
        taken[node.label] = moved.id
    return taken


def _take_grips(tracker: Tracker, stored: Stored, here: Mapping[str, str], agents: Mapping[str, str]) -> None:
    """Believe that their robots hold what they held; ``here``: see :func:`_counterparts`."""
    held = Grasps(tracker.config.grasp)
    held.restore(stored.about.get("grips", {}))
    for name, node_id in held.pairs():
        if name in agents and node_id in here:
            label = tracker.columns.about(tracker.columns.row_of[agents[name]]).label
            tracker.grasps.take_over(label, Grip(here[node_id], np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])))


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


def _alike(ours: Sequence[SceneNode], theirs: Sequence[SceneNode]) -> np.ndarray:
    """Return index pairs (n, 2) of nodes that could be one object."""
    if not ours or not theirs:
        return np.empty((0, 2), np.int64)
    known, config = AppearanceFeatures.of(ours), AssociationConfig()
    found = [
        (i, j)
        for j, node in enumerate(theirs)
        for i in np.flatnonzero(resembling(AppearanceFeatures.of([node]), known, config))
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def _support(
    transform: PlaneTransform, a: np.ndarray, b: np.ndarray, pairs: np.ndarray, config: FleetConfig
) -> np.ndarray:
    """Return the pairs that ``transform`` brings together, one for each object."""
    apart = np.linalg.norm(a[pairs[:, 0]] - transform.apply(b[pairs[:, 1]]), axis=1)
    near = np.flatnonzero(apart <= config.inlier_m)
    taken: tuple[set[int], set[int]] = (set(), set())
    kept = []
    for index in near[np.argsort(apart[near], kind="stable")].tolist():
        i, j = pairs[index].tolist()
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            kept.append(index)
    return np.array(kept, np.int64)


def _carried(node: SceneNode, robot: str, transform: PlaneTransform, frame: str) -> SceneNode:
    """Return their node in our frame: less certain by the spread of the landmarks."""
    turn = Rotation.from_euler("z", transform.yaw)
    matrix = turn.as_matrix()
    covariance = matrix @ node.position_covariance @ matrix.T + np.eye(3) * max(transform.spread_m, 0.01) ** 2
    return replace(
        node,
        id=f"{robot}/{node.id}",
        pose=make_pose(transform.apply(node.pose.position), turn * rotation(node.pose), frame),
        position_covariance=covariance,
        state="absent" if node.state == "absent" else "unseen",
        first_evidence=_theirs(node.first_evidence, robot),
        last_evidence=_theirs(node.last_evidence, robot),
    )


def _theirs(evidence: str, robot: str) -> str:
    return f"{robot}/{evidence}" if evidence else ""


def _carried_fact(fact: Fact, robot: str, transform: PlaneTransform, here: Mapping[str, str]) -> Fact:
    """Return their fact in our frame; a relation to what is not ``here`` is left out."""
    evidence = tuple(_theirs(name, robot) for name in fact.evidence)
    target = here.get(fact.target, "")
    relation = fact.relation if target else ""
    return replace(fact, place=transform.apply(fact.place), evidence=evidence, relation=relation, target=target)


def _identities(
    ours: Sequence[SceneNode], theirs: Sequence[SceneNode], config: FleetConfig
) -> tuple[tuple[tuple[str, str], ...], tuple[Conflict, ...]]:
    """Return which nodes are one, and where the memories contradict each other."""
    if not ours or not theirs:
        return (), ()
    pairs = _alike(ours, theirs)
    alike = set(map(tuple, pairs.tolist()))
    a, b = (np.array([node.pose.position for node in nodes]) for nodes in (ours, theirs))
    cost = np.full((len(ours), len(theirs)), 1e6)
    apart = np.linalg.norm(a[pairs[:, 0]] - b[pairs[:, 1]], axis=1)
    near = apart <= config.same_m
    cost[pairs[near, 0], pairs[near, 1]] = apart[near]
    rows, columns = linear_sum_assignment(cost)
    found = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if cost[i, j] < 1e6]
    matched = tuple((ours[i].id, theirs[j].id) for i, j in found)
    left = sorted(set(range(len(theirs))) - {j for _, j in found})
    free = set(range(len(ours))) - {i for i, _ in found}
    conflicts = []
    for j in left:
        node = theirs[j]
        distance, i = cKDTree(a).query(b[j])
        if distance <= config.same_m / 3 and ours[i].label != node.label:
            words = f"{ours[i].id} is a {ours[i].label} to us, {node.id} at its place a {node.label} to them"
            conflicts.append(Conflict("named", ours[i].id, node.id, words))
        for k in sorted(k for k in free if (k, j) in alike):
            words = f"{ours[k].id} and {node.id}: one {node.label} that was moved, or two of them"
            conflicts.append(Conflict("moved", ours[k].id, node.id, words))
    return matched, tuple(conflicts)


def _withdraw(tracker: Tracker, before: SceneNode, votes: Mapping[str, float], robot: str, stamp_ns: int) -> None:
    """Take what ``robot`` contributed out of the node ``before.id``; its own later sights stay."""
    history = tracker.history
    facts = history.retract(before.id, stamp_ns)
    own = [f for f in facts if not (f.evidence and f.evidence[0].startswith(f"{robot}/"))]
    if own:
        last = max(own, key=lambda fact: fact.valid_from)
        own = [replace(f, valid_to=FOREVER) if f is last else f for f in own]
    history.restate(own, before.id, stamp_ns)
    today = tracker.scene.node(before.id)
    if today.last_evidence.startswith(f"{robot}/") or today.last_seen_ns <= before.last_seen_ns:
        tracker.scene.put(before, votes)  # we have not seen it since
        return
    tracker.scene.put(replace(today, first_seen_ns=before.first_seen_ns, first_evidence=before.first_evidence), votes)
