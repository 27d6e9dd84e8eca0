"""What was there, and what was thought then: answers about the past agree with those that were given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.core.questions import AtTime, FindObject
from engram.memory.graph.places import known_place
from engram.memory.graph_memory import GraphMemory
from engram.memory.query.temporal import _stay
from engram.memory.storage.fact_columns import FOREVER
from engram.memory.storage.history import History
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
HERE, THERE = (0.35, 0.0, 0.02), (0.65, 0.1, 0.02)
TOP = 0.98
"""Depth [m] of a cube's middle: something fills its place."""


def make(store=None, stored=None, places=None):
    return GraphMemory(store, None, WordEncoder(), places, stored)


def watch(memory, seconds, *places, depth=1.0):
    for second in seconds:
        memory.update(view([seen("red cube", place) for place in places], second * SECOND, depth))


def ask(memory, second=None, believed=None, text="red cube"):
    valid, then = (None if one is None else one * SECOND for one in (second, believed))
    question = FindObject(text)
    if valid is not None or then is not None:
        return memory.query(AtTime(question, valid and (valid, valid), believed_ns=then)).nodes
    return memory.query(question).nodes


def told(nodes):
    """Return the places that are an answer, in order, to the centimetre."""
    return sorted(
        tuple(np.round(n.pose.position, 2).tolist()) for n in nodes if n.belief >= 0.5 and n.state != "absent"
    )


def again(memory, path):
    """Return the memory after a restart."""
    memory.commit()
    memory.store.close()
    return make(GraphStore(path))


# -- believed then ---------------------------------------------------------------------------------------------------


def test_one_sight_was_no_answer_and_is_none_when_asked_later():
    """Odds of 1 to 9 before it, 8 times that after a sight that is sure of itself: 0.47."""
    memory = make()
    watch(memory, [1], HERE)
    assert told(ask(memory)) == told(ask(memory, 1, 1)) == told(ask(memory, 1)) == []
    assert ask(memory, 1, 1)[0].belief == pytest.approx(8 / 17)
    watch(memory, [2, 3], HERE)
    assert told(ask(memory, 1, 1)) == []
    assert told(ask(memory, 2, 2)) == told(ask(memory, 1)) == told(ask(memory, 1, 2)) == [HERE]


@pytest.mark.parametrize("restart", [False, True])
def test_what_was_looked_for_in_vain_was_no_answer_until_it_was_seen_again(tmp_path, restart):
    """Odds of 30 to 1 after three sights, 0.82 to 1 after three frames in which something else fills its place."""
    memory = make(GraphStore(tmp_path))
    watch(memory, [1, 2, 3], HERE)
    watch(memory, [100, 101, 102], depth=TOP)
    assert told(ask(memory)) == []
    watch(memory, [200, 201], HERE)
    memory = again(memory, tmp_path) if restart else memory
    answers = {second: told(ask(memory, second, second)) for second in (1, 3, 60, 101, 102, 150, 200)}
    assert answers == {1: [], 3: [HERE], 60: [HERE], 101: [HERE], 102: [], 150: [], 200: [HERE]}
    assert told(ask(memory, 150)) == [HERE]  # by what is known since


def test_what_has_not_been_seen_for_weeks_was_believed_all_the_while():
    memory = make()
    watch(memory, [1, 2, 3], HERE)
    weeks = 3 * 7 * 86_400
    watch(memory, [weeks], depth=0.5)  # hidden
    assert told(ask(memory)) == told(ask(memory, weeks, weeks)) == [HERE]
    then = memory.query(AtTime(FindObject("red cube"), (weeks * SECOND,) * 2, believed_ns=weeks * SECOND))
    assert then.confidence < 0.1  # it may have left


@pytest.mark.parametrize("seed", range(8))
def test_what_it_says_it_thought_is_what_it_said(seed):
    """A cube is seen here or there, missed, hidden, and replaced at random, a few frames in a row."""
    rng, memory, said, second = np.random.default_rng(seed), make(), {}, 0
    for _ in range(25):
        second += int(rng.integers(1, 5000))
        places = [(HERE,), (THERE,), (), (), (), (HERE, THERE)][rng.integers(6)]
        depth = 1.0 if places else rng.choice([0.5, TOP, 1.0])
        for _ in range(rng.integers(1, 5)):
            watch(memory, [second], *places, depth=depth)
            said[second] = told(ask(memory))
            second += 1
    assert {at: told(ask(memory, at, at)) for at in said} == said


def test_a_store_of_before_takes_every_fact_for_an_answer(tmp_path):
    memory = make(GraphStore(tmp_path))
    watch(memory, [1, 2, 3], HERE)
    memory.commit()
    memory.store.close()
    stored = read_snapshot(tmp_path)
    facts = {**stored.tables["facts"], "sure": np.empty((0, 2), np.int64)}
    old = make(stored=replace(stored, tables={**stored.tables, "facts": facts}))
    assert told(ask(old, 2, 2)) == told(ask(old, 1, 1)) == [HERE]


# -- seen twice, and gone at the next look ---------------------------------------------------------------------------


def test_what_was_believed_and_is_missed_by_a_later_look_has_been_there():
    memory = make()
    watch(memory, [1, 2], HERE)
    watch(memory, [3600, 3601, 3602])
    assert [node.state for node in ask(memory)] == ["absent"]
    assert told(ask(memory, 2)) == told(ask(memory, 2, 2)) == told(ask(memory, 1000)) == [HERE]
    assert told(ask(memory, 3601)) == []


@pytest.mark.parametrize(("sights", "misses"), [([1], [3600, 3601]), ([1, 2], [3, 4, 5])])
def test_what_never_was_an_answer_or_but_within_one_look_was_a_false_detection(sights, misses):
    memory = make()
    watch(memory, sights, HERE)
    watch(memory, misses)
    assert ask(memory) == ask(memory, 1) == ()
    assert told(ask(memory, sights[-1], sights[-1])) == ([HERE] if len(sights) > 1 else [])


# -- one stay in several facts ---------------------------------------------------------------------------------------


def test_a_stay_goes_on_where_only_what_it_rests_on_or_its_name_changes():
    """On the shelf for a while, then 3 cm higher and so only in the room; at last under another name."""
    shelf = known_place("place", "shelf", (0.5, 0.0, -0.02), (0.6, 0.6, 0.04))
    memory = make(places=(known_place("room", "kitchen", (0.5, 0.0, 0.5), (3, 3, 1.2)), shelf))
    watch(memory, [1, 2, 3], (0.5, 0.0, 0.02))
    watch(memory, [36_000], (0.5, 0.0, 0.045))
    watch(memory, [36_001, 36_002], (0.5, 0.0, 0.05))
    for second in range(72_000, 72_006):
        memory.update(view([seen("red box", (0.5, 0.0, 0.05), color=(1.0, 0.0, 0.0))], second * SECOND))
    (box,) = memory.graph().nodes[-1:]
    facts = memory.tracker.history.of(box.id)
    assert [(f.label, f.relation) for f in facts] == [("red cube", "on"), ("red cube", "in"), ("red box", "in")]
    for second in (2, 18_000, 35_000, 60_000, 71_000):
        (node,) = [n for n in ask(memory, second, text="red box") if n.id == box.id]
        assert node.belief > 0.9, second
    early = memory.query(AtTime(FindObject("red cube"), (35_000 * SECOND,) * 2, believed_ns=35_500 * SECOND))
    assert early.confidence == pytest.approx(15 / 16 * np.exp(-34_997 / (7 * 86_400)), rel=1e-3)


def test_a_stay_ends_where_small_steps_have_led_elsewhere():
    """4 cm at each of five looks, under two names in turn: until the second it is where it was, within 5 cm."""
    history = History()
    for i in range(5):
        history.state("cup", ("mug", "cup")[i % 2], np.array([0.04 * i, 0, 0]), i * SECOND)
    assert [_stay(history, row, FOREVER - 1, 0.05) for row in range(5)] == [1, 2, 3, 4, 4]


def test_a_stay_ends_where_it_is_put_elsewhere():
    memory = make()
    watch(memory, [1, 2, 3], HERE)
    watch(memory, [1000, 1001, 1002, 1003])
    watch(memory, [2000, 2001, 2002], HERE)
    assert ask(memory, 501)[0].belief == pytest.approx(15 / 16 * 0.5, abs=0.01)  # half-way to the empty place
    assert ask(memory, 1500)[0].state == "absent"


# -- merges taken back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_merge_taken_back_knows_again_that_the_place_was_seen_empty(tmp_path, restart, by_hand):
    memory = make(GraphStore(tmp_path))
    watch(memory, [100, 101, 102], HERE)
    watch(memory, [5000, 5001, 5002], THERE)
    (merge,) = memory.tracker.merges
    assert told(ask(memory, 5002)) == [THERE]
    watch(memory, [9000], THERE)
    memory = again(memory, tmp_path) if restart else memory
    if by_hand:
        memory.undo_merge(merge.number, "me")
        assert {node.id: node.state for node in ask(memory)} == {merge.kept.id: "absent", merge.gone.id: "visible"}
    watch(memory, [20_000, 20_001, 20_002], HERE, THERE)
    assert told(ask(memory)) == told(ask(memory, 20_001)) == [HERE, THERE]
    assert {node.id: node.state for node in ask(memory, 9000)} == {merge.kept.id: "absent", merge.gone.id: "visible"}
    assert told(ask(memory, 9000)) == told(ask(memory, 19_999)) == [THERE]
    assert told(ask(memory, 2000)) == [HERE]
    assert [(f.present, f.valid_from // SECOND, f.valid_to // SECOND) for f in memory.tracker.history.of(merge.kept.id)
            if f.believed_to == f.closed_at == np.iinfo(np.int64).max or f.believed_from >= 9000 * SECOND][:2] == [
        (True, 100, 5001), (False, 5001, 20_000),
    ]  # fmt: skip


def test_a_merge_is_taken_back_after_the_clock_began_anew():
    """A simulation is restarted at 1 s: what was at 5002 s is at 0 s, what was at 100 s at -4902 s."""
    memory = make()
    watch(memory, [100, 101, 102], HERE)
    watch(memory, [5000, 5001, 5002], THERE)
    watch(memory, [1, 2, 3, 4], THERE)  # the first two are not remembered: one frame alone begins no clock anew
    (merge,) = memory.tracker.merges
    memory.undo_merge(merge.number, "me")
    assert {node.id: node.state for node in ask(memory)} == {merge.kept.id: "absent", merge.gone.id: "visible"}
    for node_id, stays in ((merge.kept.id, [(True, -4902), (False, -1)]), (merge.gone.id, [(True, -2)])):
        facts = [fact for fact in memory.tracker.history.of(node_id) if fact.believed_to == FOREVER]
        assert [(fact.present, fact.valid_from // SECOND) for fact in facts] == stays
