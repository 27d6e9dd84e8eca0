"""What a memory must tell apart when it lives with people: held, moved, replaced, doubled, never looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zarr

from engram.core.errors import InvalidInputError, StoreError
from engram.core.questions import FindObject
from engram.core.types import Hand, Pose
from engram.memory.graph.places import known_place, table
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.query.language import parse
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import IDENTITY, WordEncoder, seen, view

HERE, THERE = (0.5, 0.1, 0.02), (0.65, -0.15, 0.02)
SECOND = 10**9


def make(store=None, **config):
    places = (table(), known_place("place", "drawer", (0.35, -0.25, 0.05), (0.2, 0.2, 0.12)))
    return GraphMemory(store, GraphMemoryConfig(**config), WordEncoder(), places)


def watch(memory, objects, seconds, hand=None, **how):
    for second in seconds:
        update = memory.update(replace(view(objects, second * SECOND, **how), hand=hand))
    return update


def ask(memory, words, now_s=1000):
    return memory.query(parse(words, now_s * SECOND))


def closed(place, fraction=0.5):
    return Hand(Pose(np.array(place, float), IDENTITY), fraction)


def edges(memory):
    return {(e.source, e.relation, e.target) for e in memory.graph().edges}


# -- held ------------------------------------------------------------------------------------------------------------


def test_what_the_fingers_close_on_is_held_and_goes_where_the_hand_goes():
    memory = make()
    watch(memory, [seen("red cube", HERE)], range(4), closed(HERE, 0.0))
    update = watch(memory, [seen("red cube", HERE)], [4], closed(HERE))
    assert [e.kind for e in update.events] == ["held"]
    assert ("object_0001", "held_by", "agent_0001") in edges(memory)
    watch(memory, [], [5], closed((0.5, 0.1, 0.3)), depth=0.5)  # lifted by 28 cm, hidden by the hand
    (cube,) = memory.query(FindObject("red cube")).nodes
    np.testing.assert_allclose(cube.pose.position, (0.5, 0.1, 0.3), atol=1e-9)
    assert cube.belief > 0.9
    assert [n.label for n in ask(memory, "what is the robot holding?").nodes] == ["red cube"]
    update = watch(memory, [], [6], closed((0.65, -0.15, 0.02), 0.0), depth=0.5)
    assert "released" in [e.kind for e in update.events]
    assert "held_by" not in {relation for _, relation, _ in edges(memory)}
    assert "held by robot0" in ask(memory, "where was the red cube at 5.5 s").text


def test_a_hand_that_opens_lets_go_before_it_is_wide_open():
    """A cube of 4 cm holds the fingers at one half; at 0.3 they are 2 cm wider than it."""
    memory = make()
    watch(memory, [seen("red cube", HERE)], range(3), closed(HERE, 0.0))
    for second, fraction in enumerate((0.2, 0.5, 0.52, 0.45), start=3):
        update = watch(memory, [seen("red cube", HERE)], [second], closed(HERE, fraction))
        assert "released" not in [e.kind for e in update.events]
    update = watch(memory, [seen("red cube", HERE)], [8], closed(HERE, 0.3))
    assert [e.kind for e in update.events] == ["released"]
    update = watch(memory, [seen("red cube", HERE)], range(9, 14), closed(HERE, 0.3))  # it stays about the cube
    assert "held_by" not in {relation for _, relation, _ in edges(memory)}
    watch(memory, [seen("red cube", HERE)], range(14, 18), closed(HERE, 0.5))
    assert "held_by" in {relation for _, relation, _ in edges(memory)}


@pytest.mark.parametrize(("fraction", "place"), [(0.0, HERE), (1.0, HERE), (0.5, THERE)])
def test_an_open_hand_an_empty_fist_and_a_hand_elsewhere_hold_nothing(fraction, place):
    memory = make()
    watch(memory, [seen("red cube", HERE)], range(3), closed(place, fraction))
    assert "held_by" not in {relation for _, relation, _ in edges(memory)}


def test_a_turned_hand_turns_what_it_holds():
    """The cube is held 2 cm ahead along the tool's x; a quarter turn about z puts it 2 cm along base y."""
    memory = make()
    watch(memory, [seen("red cube", HERE)], range(3), closed((0.48, 0.1, 0.02)))
    quarter = Pose(np.array([0.48, 0.1, 0.02]), np.array([0.5**0.5, 0, 0, 0.5**0.5]))
    watch(memory, [], [3], Hand(quarter, 0.5), depth=0.5)
    (cube,) = memory.query(FindObject("red cube")).nodes
    np.testing.assert_allclose(cube.pose.position, (0.48, 0.12, 0.02), atol=1e-9)


# -- one, two or another ---------------------------------------------------------------------------------------------


def test_another_thing_in_its_place_is_no_sight_of_it():
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [seen("green bowl", HERE)], range(10, 15))
    nodes = {n.label: n for n in memory.graph().nodes if n.layer == "object"}
    assert nodes["green bowl"].state == "visible" and nodes["red cup"].state == "absent"


def test_one_wrong_name_takes_over_no_identity():
    """The cup is gone; for one frame, a green bowl is called by its name: it stays a bowl, and the cup stays gone."""
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [], range(10, 14))
    bowl = seen("green bowl", THERE)
    watch(memory, [replace(bowl, label="red cup", embedding=seen("red cup", THERE).embedding)], [20])
    watch(memory, [bowl], range(21, 30))
    nodes = {n.label: n for n in memory.graph().nodes if n.layer == "object"}
    assert (nodes["red cup"].id, nodes["red cup"].state) == ("object_0001", "absent")
    assert nodes["green bowl"].state == "visible"
    assert len([n for n in memory.graph().nodes if n.layer == "object"]) == 2


def test_a_takeover_under_a_wrong_name_is_taken_back_when_the_name_changes():
    """A whole look calls the bowl a cup, so it is taken for the cup that is gone; later looks see what it is."""
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [], range(10, 14))
    mug = replace(seen("red mug", THERE), color=seen("red cup", THERE).color)
    update = watch(memory, [replace(mug, label="red cup", embedding=seen("red cup", THERE).embedding)], range(20, 23))
    assert [event.kind for event in update.events] == ["merged", "returned"]
    watch(memory, [mug], range(30, 40))
    nodes = {n.id: n for n in memory.graph().nodes if n.layer == "object"}
    assert (nodes["object_0001"].label, nodes["object_0001"].state) == ("red cup", "absent")
    assert (nodes["object_0002"].label, nodes["object_0002"].state) == ("red mug", "visible")
    np.testing.assert_allclose(nodes["object_0001"].pose.position, HERE, atol=1e-6)


def test_moves_do_not_write_the_past_anew():
    """Twelve moves: a fact for each place, one for each gap, and those that a merge gave to the older object."""
    memory = make()
    for move in range(12):
        watch(memory, [seen("red cup", HERE if move % 2 else THERE)], range(10 * move, 10 * move + 4))
    assert len([n for n in memory.graph().nodes if n.layer == "object"]) == 1
    assert len(memory.tracker.history) <= 5 * 12


def test_a_wrong_merge_comes_apart_when_both_are_seen():
    """Carried while its old place was hidden, so it seemed; then one stands at each place."""
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [seen("red cup", THERE)], range(10, 14), depth=0.5)
    update = watch(memory, [seen("red cup", THERE)], [20])
    assert [e.kind for e in update.events] == ["merged", "moved"]
    assert len(memory.query(FindObject("red cup")).nodes) == 1
    update = watch(memory, [seen("red cup", HERE), seen("red cup", THERE)], [30])
    assert [(e.kind, e.node_id, e.other_id) for e in update.events if e.kind == "split"] == [
        ("split", "object_0001", "object_0002")
    ]
    cups = {n.id: n.pose.position for n in memory.query(FindObject("red cup")).nodes}
    np.testing.assert_allclose(cups["object_0001"], HERE, atol=0.01)
    np.testing.assert_allclose(cups["object_0002"], THERE, atol=0.01)


def test_a_merge_can_be_undone_by_hand_and_the_journal_survives_a_restart(tmp_path):
    store = GraphStore(tmp_path)
    memory = make(store)
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [seen("red cup", THERE)], range(10, 14), depth=0.5)
    watch(memory, [seen("red cup", THERE)], range(20, 22))
    memory.commit()
    store.close()
    memory = make(GraphStore(tmp_path))
    with pytest.raises(InvalidInputError, match=r"merge 7: .* valid: 1 \(object_0002 into object_0001\)"):
        memory.tracker.undo_merge(7, 30 * SECOND, "me")
    memory.tracker.undo_merge(1, 30 * SECOND, "me")
    cups = {n.id: n.pose.position for n in memory.query(FindObject("red cup")).nodes}
    np.testing.assert_allclose(cups["object_0002"], THERE, atol=0.01)
    assert memory.tracker.history.of("object_0002")[-1].believed_from == 30 * SECOND


def test_a_double_lowers_the_belief_in_the_one_out_of_sight_until_it_is_seen_again():
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [seen("red cup", THERE)], range(10, 13), depth=0.5)
    answer = memory.query(FindObject("red cup"))
    assert [n.id for n in answer.nodes] == ["object_0002", "object_0001"]
    assert answer.nodes[1].belief == 0.5


def test_a_double_inside_the_one_that_is_seen_becomes_part_of_it():
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    double = replace(memory.graph().nodes[-1], id=memory.tracker.scene.new_id("object"), first_seen_ns=2 * SECOND)
    memory.tracker.scene.put(double, {"red cup": 1.0})
    update = watch(memory, [seen("red cup", (0.505, 0.1, 0.02))], [5], depth=0.97)
    assert [e.kind for e in update.events] == ["merged"]
    assert update.deleted_nodes == ("object_0002",)
    assert [n.id for n in memory.query(FindObject("red cup")).nodes] == ["object_0001"]
    watch(memory, [], range(6, 12))
    assert memory.query(FindObject("red cup")).nodes[0].state == "absent"


# -- looked, not looked ----------------------------------------------------------------------------------------------


def test_empty_and_never_looked_into_are_two_answers():
    memory = make()
    assert ask(memory, "what is in the drawer").text == "I do not know: I have never looked into the drawer."
    watch(memory, [seen("red cup", HERE)], range(3))  # the camera sees down to the table, through the drawer's box
    answer = ask(memory, "what is in the drawer")
    assert answer.text == "Nothing is in the drawer."
    assert answer.confidence == 0.5


def test_who_asks_for_what_is_gone_is_not_told_of_a_lookalike():
    memory = make()
    watch(memory, [seen("red cup", HERE), seen("red mug", THERE)], range(4))
    watch(memory, [seen("red mug", THERE)], range(100, 106))
    answer = ask(memory, "where is the red cup")
    assert [node.label for node in answer.nodes] == ["red cup"]
    assert answer.text.startswith("The red cup is gone; I saw it 17 minutes ago at x ")
    assert answer.confidence < 0.5
    then = ask(memory, "where was the red cup at 2 s")
    assert [node.label for node in then.nodes] == ["red cup"]


def test_several_things_are_told_in_one_sentence():
    memory = make()
    watch(memory, [seen("red cup", (0.30, -0.25, 0.02)), seen("blue spoon", (0.40, -0.25, 0.02))], range(4))
    assert ask(memory, "what is in the drawer").text == "The red cup and the blue spoon are in the drawer."


# -- the past --------------------------------------------------------------------------------------------------------


def test_where_it_was_and_what_was_thought():
    memory = make()
    watch(memory, [seen("blue spoon", (0.35, -0.25, 0.02))], range(4))
    watch(memory, [], range(100, 106))
    assert ask(memory, "where is the blue spoon").nodes[0].state == "absent"
    was = ask(memory, "what was in the drawer at 2 s")
    assert was.text == "The blue spoon was in the drawer."
    thought = ask(memory, "what did you think was in the drawer at 90 s")
    assert thought.text == "I thought that the blue spoon was in the drawer."
    assert thought.confidence > 0.8 > ask(memory, "what was in the drawer at 90 s").confidence
    assert ask(memory, "what was in the drawer at 200 s").text == "Nothing was in the drawer."


def test_the_graph_of_a_past_instant():
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(4))
    watch(memory, [seen("red cup", THERE)], range(10, 14))
    past = memory.graph(2 * SECOND)
    (cup,) = [n for n in past.nodes if n.layer == "object"]
    np.testing.assert_allclose(cup.pose.position, HERE, atol=0.01)
    assert {(e.source, e.relation) for e in past.edges} == {("object_0001", "on")}


def test_false_detections_are_taken_back_but_were_believed():
    memory = make()
    watch(memory, [seen("green cup", THERE, score=0.3)], [1])
    watch(memory, [], range(2, 8))
    assert not ask(memory, "where was the green cup at 1 s").nodes
    assert ask(memory, "where did you think the green cup was at 1 s").nodes


def test_a_simulation_that_begins_anew_at_zero_finds_its_past_before_its_beginning():
    """Seen at 100 .. 103 s; the clock starts again at 0, and the cup has been carried while nobody looked.

    Three frames show that the clock began anew at 0; the third is the first that is remembered.
    """
    memory = make()
    watch(memory, [seen("red cup", HERE)], range(100, 104))
    watch(memory, [seen("red cup", THERE)], range(5), depth=0.5)
    first, second = memory.query(FindObject("red cup")).nodes
    assert (first.id, first.first_seen_ns) == ("object_0002", 2 * SECOND)
    assert second.last_seen_ns == -SECOND  # one second before the new beginning
    watch(memory, [seen("red cup", THERE)], range(5, 8))
    (cup,) = memory.query(FindObject("red cup")).nodes
    assert (cup.id, cup.last_seen_ns) == ("object_0001", 7 * SECOND)
    assert ask(memory, "where was the red cup at 2.5 s").nodes[0].pose.position[1] == pytest.approx(-0.15, abs=0.01)


# -- the store -------------------------------------------------------------------------------------------------------


def test_history_labels_and_coverage_survive_a_restart(tmp_path):
    store = GraphStore(tmp_path)
    memory = make(store)
    watch(memory, [seen("red cup", HERE)], range(3))
    watch(memory, [seen("red mug", HERE)], range(3, 5))
    watch(memory, [seen("red cup", THERE)], range(10, 13))
    memory.commit()
    watch(memory, [seen("red cup", THERE)], [13])  # a sight alone: no new fact
    memory.commit()
    store.close()
    again = make(GraphStore(tmp_path))
    assert ask(again, "where was the red cup at 1 s").nodes[0].pose.position[1] == pytest.approx(0.1, abs=0.01)
    assert again.tracker.history.of("object_0001")[-1].last_sight == 13 * SECOND
    votes = again.tracker.columns.about(again.tracker.columns.row_of["object_0001"]).votes
    fade = 0.9 * 0.9 ** np.arange(3)  # score 0.9; of each sight a tenth is forgotten at the next, merged votes add up
    cups, mugs = fade.sum(), fade[:2].sum()
    assert votes == pytest.approx({"red cup": (cups * 0.9**2 + cups) * 0.9 + 0.9, "red mug": mugs * 0.9})
    assert len(again.tracker.coverage) == len(memory.tracker.coverage) > 0


def store_of_the_first_version(path, *labels):
    """Write a store as version 1 did, with one object for each label, at sequence 3."""
    import icechunk

    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path / "graph")))
    session = repository.writable_session("main")
    root = zarr.open_group(session.store, mode="a")
    number = np.zeros((len(labels), 23))
    number[:, 0], number[:, [3, 22]] = 0.4 + 0.2 * np.arange(len(labels)), (1.0, 0.9)
    columns = {"number": number, "time": np.array([[5, 9, 4, 1]] * len(labels))}
    columns["embedding"] = WordEncoder().encode(labels)
    texts = [[f"object_{k:04d}", "object", label, "visible", "base_link"] for k, label in enumerate(labels, 1)]
    columns["text"] = np.array(texts, dtype=object)
    for name, values in columns.items():
        dtype = "string" if name == "text" else values.dtype
        root.create_array(name, shape=values.shape, dtype=dtype)[:] = values
    root.attrs.update({"schema": {"name": "engram.memory.graph", "version": 1}, "sequence": 3, "stamp_ns": 9})
    root.attrs.update({"issued": {"object": len(labels)}})
    session.commit("sequence 3", metadata={"sequence": 3})


def test_a_store_of_the_first_version_is_read_and_becomes_one_of_this(tmp_path):
    store_of_the_first_version(tmp_path, "red cube")
    store = GraphStore(tmp_path)
    memory = make(store)
    assert memory.graph().sequence == 3
    assert [f.valid_from for f in memory.tracker.history.of("object_0001")] == [5]
    memory.tracker.sequence = 4
    assert memory.commit() == 4
    store.close()
    assert make(GraphStore(tmp_path)).query(FindObject("red cube")).nodes[0].id == "object_0001"
    assert read_snapshot(tmp_path).sequence == 4


def test_a_store_of_the_first_version_loses_nothing_when_its_first_commit_fails(tmp_path, monkeypatch):
    import icechunk

    store_of_the_first_version(tmp_path, "red cube", "green bowl")
    store = GraphStore(tmp_path)
    memory = make(store)
    memory.tracker.sequence = 4

    def full(*_, **__):
        raise OSError("No space left")

    with monkeypatch.context() as disk, pytest.raises(StoreError, match="not committed: OSError: No space left"):
        disk.setattr(icechunk.Session, "commit", full)
        memory.commit()
    assert memory.commit() == 4
    store.close()
    again = make(GraphStore(tmp_path))
    assert {node.label for node in again.graph().nodes if node.layer == "object"} == {"red cube", "green bowl"}
    assert len(read_snapshot(tmp_path).tables["nodes"]["number"]) == 4  # with table and drawer


def test_the_budget_holds_and_what_is_true_now_stays():
    """A thousand moves make a thousand facts of 230 bytes, 0.23 MB; a tenth of a MB holds some 400."""
    memory = make(budget_mb=0.1)
    places = [(0.5, 0.1 * (k % 2), 0.02) for k in range(1000)]
    for second, place in enumerate(places):
        memory.update(view([seen("red cup", place)], second * SECOND))
    assert memory.bytes_used() <= 0.1 * 2**20
    (cup,) = memory.query(FindObject("red cup")).nodes
    np.testing.assert_allclose(cup.pose.position, places[-1], atol=0.01)
    assert 300 < len(memory.tracker.history) < 600


def test_when_nodes_alone_are_too_much_those_gone_for_longest_leave_and_the_delta_says_so():
    """30 things are seen, then gone; each node takes some 4 kB, and 0.05 MB has room for some 12."""
    memory = make(budget_mb=0.05)
    for k in range(30):
        place = (0.3 + 0.05 * (k % 8), -0.1 + 0.08 * (k // 8), 0.02)
        watch(memory, [seen(f"thing {k}", place, color=(k / 30, 0, 1 - k / 30))], range(10 * k, 10 * k + 3))
        watch(memory, [], range(10 * k + 3, 10 * k + 9))
    deleted = watch(memory, [seen("red cup", HERE)], range(400, 404)).deleted_nodes
    left = [n.label for n in memory.graph().nodes if n.layer == "object"]
    assert memory.bytes_used() <= 0.05 * 2**20
    assert "red cup" in left and "thing 29" in left and "thing 0" not in left
    assert not set(deleted) & {n.id for n in memory.graph().nodes}
