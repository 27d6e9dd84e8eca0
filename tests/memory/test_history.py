"""When it was true, and when the memory believed it: worked out by hand on a cup that is moved twice."""

from __future__ import annotations

import numpy as np
import pytest

from engram.memory.graph_memory import GraphMemory
from engram.memory.storage.fact_columns import FOREVER
from engram.memory.storage.history import History
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore

A, B, C = np.array([0.0, 0, 0]), np.array([1.0, 0, 0]), np.array([2.0, 0, 0])


@pytest.fixture
def history():
    """The cup is seen at A from 10 to 20 and at B from 50 on; at 70 the memory looks at B and finds nothing."""
    history = History()
    history.state("cup", "cup", A, 10, relation="on", target="table", camera="front")
    history.sighted("cup", 20, "wrist")
    history.state("cup", "cup", B, 50, relation="in", target="drawer", camera="front")
    history.state("cup", "cup", B, 70, present=False, camera="front")
    return history


def facts(history, valid, believed=None):
    return history.facts(history.select(valid, believed, ["cup"]))


@pytest.mark.parametrize(
    ("valid", "believed", "x", "present"),
    [
        (15, None, 0.0, True),
        (40, None, 0.0, True),  # unseen since 20, and nothing spoke against it before 50
        (60, None, 1.0, True),
        (75, None, 1.0, False),
        (60, 45, 0.0, True),  # at 45 it was thought to stay at A
        (75, 60, 1.0, True),  # at 60 it was thought to stay at B
    ],
)
def test_where_was_it_and_what_was_believed(history, valid, believed, x, present):
    (fact,) = facts(history, (valid, valid), believed)
    assert (fact.place[0], fact.present) == (x, present)


def test_nothing_was_known_before_the_first_sight(history):
    assert facts(history, (5, 5)) == []
    assert facts(history, (15, 15), believed=5) == []


def test_an_interval_finds_all_that_was_true_in_it(history):
    assert [fact.place[0] for fact in facts(history, (15, 55))] == [0.0, 1.0]


def test_a_fact_points_at_its_first_and_last_evidence(history):
    (fact,) = facts(history, (15, 15))
    assert (fact.evidence, fact.sights, fact.relation, fact.target) == (("front@10", "wrist@20"), 2, "on", "table")
    assert (fact.valid_from, fact.last_sight, fact.valid_to, fact.closed_at) == (10, 20, 50, 50)


def test_what_is_taken_back_is_still_what_was_believed(history):
    history.retract("cup", 80)
    assert facts(history, (15, 15)) == []
    assert [fact.place[0] for fact in facts(history, (15, 15), believed=79)] == [0.0]


def test_facts_can_be_given_to_another_object_and_back(history):
    taken = history.retract("cup", 80)
    history.restate(taken, "mug", 80)
    mug = history.facts(history.select((15, 75), None, ["mug"]))
    assert [(fact.place[0], fact.valid_from, fact.valid_to) for fact in mug] == [
        (0.0, 10, 50), (1.0, 50, 70), (1.0, 70, FOREVER),
    ]  # fmt: skip
    assert all(fact.believed_from == 80 for fact in mug)
    assert mug[0].evidence == ("front@10", "wrist@20")


def test_an_object_without_facts_is_given_none(history):
    history.restate([], "object_0009", 40)
    assert history.of("object_0009") == []


def test_what_is_in_the_drawer_is_found_by_its_relation(history):
    rows = history.of_target(history.select((60, 60), None), ["drawer"])
    assert [fact.node_id for fact in history.facts(rows)] == ["cup"]
    assert len(history.of_target(history.select((15, 15), None), ["drawer"])) == 0


def test_thinning_keeps_what_is_true_now_and_merges_near_neighbours_first():
    """Facts at 0, 1 cm, 2 m and 5 m; to keep three, the first two become one that spans both times."""
    history = History()
    for stamp, x in ((10, 0.0), (20, 0.01), (30, 2.0), (40, 5.0)):
        history.state("cup", "cup", np.array([x, 0, 0]), stamp, camera="front")
    assert history.thin(3) == 1
    kept = history.of("cup")
    assert [(fact.valid_from, fact.valid_to) for fact in kept] == [(10, 30), (30, 40), (40, FOREVER)]
    assert kept[0].evidence == ("front@10", "front@20")
    history.thin(0)
    assert [fact.valid_to for fact in history.of("cup")] == [FOREVER]


def test_thinning_does_not_make_an_answer_of_what_was_none_any_more():
    """Believed until 10, or until it was at B at 20 and none; from there on it was seen once more, at C."""
    for doubted, until in ((10, 10), (None, 20)):
        history = History()
        history.state("a", "cup", A, 0)
        if doubted is not None:
            history.believe(0, False, doubted)
        history.state("a", "cup", B, 20, sure=False)
        history.state("a", "cup", C, 30)
        history.thin(2)
        assert [(fact.sure_from, fact.sure_to) for fact in history.of("a")] == [(0, until), (30, FOREVER)]


def test_a_restored_history_is_the_same(history):
    again = History()
    columns = {name: getattr(history, name)[: len(history)] for name in History.COLUMNS}
    again.restore(columns, history.words)
    assert [(f.valid_from, f.valid_to, f.evidence) for f in again.of("cup")] == [
        (f.valid_from, f.valid_to, f.evidence) for f in history.of("cup")
    ]
    again.state("cup", "cup", C, 90)
    assert facts(again, (75, 75))[0].valid_to == 90


@pytest.mark.parametrize("stated", [8, 32, 33, 300])
def test_what_begins_after_a_fact_is_the_same_for_short_and_long_histories(stated):
    """Stated in any order, some at one time, some taken back: in the order of time, then in that of belief."""
    history, draw = History(), np.random.default_rng(stated)
    for believed in range(stated):
        valid = int(draw.integers(stated))
        if believed == stated // 3:
            history.retract("cup", believed, since_ns=stated // 2)
        history.state("cup", "cup", A, valid, believed_ns=believed)
    history.state("mug", "mug", A, stated)
    for belief in (stated // 2, FOREVER - 1):
        known = [fact for fact in history.of("cup") if fact.believed_from <= belief < fact.believed_to]
        known.sort(key=lambda fact: fact.valid_from)
        assert len(known) > 1
        for i, fact in enumerate(known):
            assert history.after(fact.row, belief) == [later.row for later in known[i + 1 :]]


def test_near_finds_what_a_look_at_every_fact_finds():
    history, draw = History(), np.random.default_rng(0)
    spot = np.array([0.5, 0.5, 0.0])

    def check():
        rows = np.flatnonzero(history.used)
        expected = rows[np.linalg.norm(history.place[rows] - spot, axis=1) <= 0.3]
        np.testing.assert_array_equal(history.near(spot, 0.3), expected)
        assert len(expected) > 10

    for stamp in range(300):
        history.state(f"object_{stamp % 40}", "cup", draw.random(3) * (1, 1, 0.2), stamp)
    check()
    for stamp in range(300, 400):  # the tree does not know these
        history.state(f"object_{stamp % 40}", "cup", draw.random(3) * (1, 1, 0.2), stamp)
    check()
    history.thin(250)  # facts are joined, dropped, and their rows used again
    for stamp in range(400, 450):
        history.state(f"object_{stamp % 40}", "cup", draw.random(3) * (1, 1, 0.2), stamp)
    check()


def test_what_pointed_at_a_target_is_found_without_a_look_at_the_rest():
    """Ten facts in the drawer, thinned to what is left; a row that is used again points elsewhere."""
    history = History()
    for second in range(10):
        history.state(f"object_{second}", "cup", np.zeros(3), second, relation="in", target="drawer")
        history.state(f"object_{second}", "cup", np.ones(3), 100 + second, relation="on", target="table")
    assert history.pointing_at(["drawer"]).tolist() == list(range(0, 20, 2))
    history.thin(12)  # of the closed facts, all in the drawer, eight go
    left = [row for row in range(0, 20, 2) if history.used[row]]
    assert history.pointing_at(["drawer"]).tolist() == left and len(left) == 2
    history.state("object_0", "cup", np.ones(3), 300, relation="in", target="box")
    assert len(history.pointing_at(["drawer"])) == 2 and len(history.pointing_at(["box"])) == 1
    assert len(history.pointing_at(["drawer", "table", "box"])) == 13
    assert history.pointing_at(["nobody"]).tolist() == []
    again = History()
    top = int(np.flatnonzero(history.used).max()) + 1
    again.restore({name: getattr(history, name)[:top] for name in History.COLUMNS}, history.words)
    assert again.pointing_at(["drawer"]).tolist() == history.pointing_at(["drawer"]).tolist()


def test_words_that_no_fact_uses_any_more_make_room_for_others(tmp_path):
    """Ten false sights, one a second: their names, ids and the camera that saw only them go when their facts go."""
    store = GraphStore(tmp_path)
    memory = GraphMemory(store, places=())
    history = memory.tracker.history
    history.state("object_0", "cup", A, 0, camera="front")
    for second in range(1, 11):
        history.state(f"object_{second}", f"false {second}", A, second, camera="wrist")
        history.retract(f"object_{second}", second + 1)
    memory.tracker.sequence = 1
    memory.commit()
    before = len(history.words)
    history.thin(1)
    for second in range(11, 19):
        history.state(f"object_{second}", f"other {second}", B, second, camera="side")
    assert len(history.words) == before == 25 and history.number("object_1") == -1
    memory.tracker.sequence = 2
    memory.commit()
    store.close()
    again = GraphMemory(stored=read_snapshot(tmp_path), places=()).tracker.history
    for known in (history, again):
        assert [fact.label for fact in known.of("object_18")] == ["other 18"]
        assert [fact.evidence for fact in known.of("object_0")] == [("front@0",)]
        assert known.of("object_1") == []
        assert [fact.relation for fact in known.of("object_0")] == [""]
    again.state("object_19", "cup", C, 19)
    again.state("object_20", "new", C, 19)
    again.state("object_21", "newer", C, 19)
    assert len(again.words) == 25 + 1 and again.of("object_21")[0].label == "newer"
    assert again.of("object_21")[0].relation == ""
