"""Out to a file and in again, bit for bit; rooms from a file."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import json
import re
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StoreError, UnknownNameError
from engram.core.questions import AtTime, FindObject
from engram.memory.graph.places import read_places
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.durable import replacing
from engram.memory.storage.exchange import from_networkx, read_graphml, read_jsonl, store_all, to_networkx, write_jsonl
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view


@pytest.fixture
def stored(tmp_path):
    """A memory of a cup that was moved, with records of the other stores."""
    memory = RobotMemory(GraphStore(tmp_path / "memory"), encoder=WordEncoder())
    for second, x in enumerate((0.4,) * 3 + (0.6,) * 3):
        memory.update(view([seen("rote Tasse ☕", (x, 0.1 / 3, 0.02))], second * 10**9))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    return read_snapshot(tmp_path / "memory")


def exported(stored):
    out = io.StringIO()
    write_jsonl(stored, out)
    return out.getvalue()


def test_everything_comes_back_bit_for_bit(stored, tmp_path):
    again = read_jsonl(io.StringIO(exported(stored)))
    assert store_all(tmp_path / "copy", again) == stored.sequence
    copy = read_snapshot(tmp_path / "copy")
    for table, columns in stored.tables.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(copy.tables[table][name], values, err_msg=f"{table}/{name}")
    assert (copy.stamp_ns, copy.about) == (stored.stamp_ns, stored.about)
    answer = RobotMemory(stored=copy, encoder=WordEncoder()).query(AtTime(FindObject("rote Tasse ☕"), (10**9, 10**9)))
    assert answer.nodes[0].pose.position[0] == pytest.approx(0.4, abs=1e-6)


def test_a_store_that_holds_something_is_not_written_over(stored, tmp_path):
    with pytest.raises(StoreError, match="holds a memory already"):
        store_all(tmp_path / "memory", stored)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, '{"schema": {"name": "engram.memory", "version": 99}}', "import line 1: schema .*99.*reads"),
        (1, "not json", "import line 2: Expecting value"),
        (1, "[1]", "import line 2: list, expected an object"),
        (1, '{"table": "cups", "row": 0}', "import line 2: table 'cups', valid: nodes"),
        (1, "", "import line 2"),
        (1, '{"table": "nodes"}', "import line 2: field 'row' is missing"),
        (1, '{"table": "nodes", "row": "first"}', "import line 2: field 'row': 'first', expected a whole number"),
        (1, '{"table": "nodes", "row": -1}', "import line 2: field 'row': -1, expected 0 or above"),
        (1, '{"table": "words", "row": 0}', "import line 2: field 'text' is missing"),
        (1, '{"table": "words", "row": 0, "text": 5}', "import line 2: field 'text': 5, expected a list"),
        (1, '{"table": "words", "row": 0, "text": [5]}', r"import line 2: field 'text': \[5\], expected 1 x string"),
        (1, '{"table": "looked", "row": 0, "cell": [1]}', r"import line 2: field 'cell': \[1\], expected 2 x i8"),
        (1, '{"table": "looked", "row": 0, "cell": [1, 0.5]}', "import line 2: field 'cell': .*expected 2 x i8"),
        (1, f'{{"table": "looked", "row": 0, "cell": [1, {2**70}]}}', "import line 2: field 'cell': .*2 x i8"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(stored, line, text, message):
    lines = exported(stored).splitlines()
    lines[line] = text
    with pytest.raises(StoreError, match=message):
        read_jsonl(io.StringIO("\n".join(lines)))


@pytest.mark.parametrize("field", ["sequence", "stamp_ns", "about"])
def test_a_head_without_one_of_its_fields_is_named(stored, field):
    head, *lines = exported(stored).splitlines()
    about = json.loads(head)
    del about[field]
    with pytest.raises(StoreError, match=f"import line 1: field '{field}' is missing"):
        read_jsonl(io.StringIO("\n".join([json.dumps(about), *lines])))


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "all.jsonl").write_bytes(b"\xff\xfe\x00")
    with (tmp_path / "all.jsonl").open(encoding="utf-8") as source, pytest.raises(StoreError, match=r"import: .*utf-8"):
        read_jsonl(source)


def test_a_missing_row_is_no_silent_gap(stored):
    lines = exported(stored).splitlines()
    del lines[1]
    with pytest.raises(StoreError, match="1 of 3 rows of table 'nodes' are missing"):
        read_jsonl(io.StringIO("\n".join(lines)))


@pytest.mark.parametrize("lost", [1, 3, 6, 40])
def test_a_file_that_was_cut_off_is_refused(stored, lost):
    """Without its end line nobody knows what is missing; where it is cut within a line, that line is no JSON."""
    text = exported(stored)
    with pytest.raises(StoreError, match=r"import: ends with line \d+, and that is no end line: the file was cut off"):
        read_jsonl(io.StringIO("\n".join(text.splitlines()[:-lost])))
    with pytest.raises(StoreError, match=r"import line \d+: "):
        read_jsonl(io.StringIO(text[: -100 * lost]))


def test_a_line_that_was_altered_or_added_is_found(stored):
    lines = exported(stored).splitlines()
    for changed, message in (
        ([line.replace('"row": 1, "number": [', '"row": 1, "number": [ ') for line in lines], "before it were altered"),
        ([*lines[:-1], lines[1].replace('"row": 0', '"row": 3'), lines[-1]], "'nodes' has row 3, expected 3 rows"),
        ([*lines, lines[1]], "lines follow the end line"),
        ([*lines[:-1], '{"end": {"rows": {}, "sha256": ""}}'], "field 'nodes' is missing"),
    ):
        assert changed != lines
        with pytest.raises(StoreError, match=message):
            read_jsonl(io.StringIO("\n".join(changed)))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("embeddings", "row 0 of table 'nodes' names row 0 of table 'embeddings', which has 0 rows"),
        ("words", r"row 0 of table 'facts' names row \d+ of table 'words', which has 0 rows"),
        ("vectors", r"row \d+ of table 'records' names row \d+ of table 'vectors', which has 0 rows"),
    ],
)
def test_a_row_that_names_one_that_is_not_there_is_refused(stored, table, message):
    """Somebody else wrote the file, with an end line that fits."""
    empty = {name: values[:0] for name, values in stored.tables[table].items()}
    with pytest.raises(StoreError, match=message):
        read_jsonl(io.StringIO(exported(replace(stored, tables={**stored.tables, table: empty}))))


def test_a_store_of_before_a_column_is_exported_with_that_column_blank(stored):
    facts = {**stored.tables["facts"], "sure": stored.tables["facts"]["sure"][:0]}
    again = read_jsonl(io.StringIO(exported(replace(stored, tables={**stored.tables, "facts": facts}))))
    assert len(again.tables["facts"]["sure"]) == len(facts["code"]) and not again.tables["facts"]["sure"].any()


def test_a_file_is_replaced_once_the_new_one_is_complete(tmp_path):
    path = tmp_path / "backup.jsonl"
    path.write_text("good")
    with pytest.raises(StoreError, match=r"backup\.jsonl: not written: No space"), replacing(path) as file:
        file.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "good" and [one.name for one in tmp_path.iterdir()] == ["backup.jsonl"]
    with replacing(path) as file:
        file.write_text("better")
        assert path.read_text() == "good"
    assert path.read_text() == "better" and [one.name for one in tmp_path.iterdir()] == ["backup.jsonl"]


def test_graphml_is_read_by_networkx(stored, tmp_path):
    memory = RobotMemory(stored=stored, encoder=WordEncoder())
    nx.write_graphml(to_networkx(memory.graph()), tmp_path / "now.graphml")
    graph = nx.read_graphml(tmp_path / "now.graphml")
    assert graph.nodes["object_0001"]["label"] == "rote Tasse ☕"
    assert graph.nodes["object_0001"]["x"] == pytest.approx(0.6)
    assert graph.edges["object_0001", "place_0001"]["relation"] == "on"
    past = to_networkx(memory.graph(10**9))
    assert past.nodes["object_0001"]["x"] == pytest.approx(0.4)


def test_graphml_comes_back_bit_for_bit(stored, tmp_path):
    graph = RobotMemory(stored=stored, encoder=WordEncoder()).graph()
    nx.write_graphml(to_networkx(graph), tmp_path / "now.graphml")
    again = read_graphml(tmp_path / "now.graphml")
    assert (again.stamp_ns, again.edges) == (graph.stamp_ns, graph.edges)
    for one, other in zip(graph.nodes, again.nodes, strict=True):
        assert (one.id, one.label, one.state, one.last_evidence) == (
            other.id, other.label, other.state, other.last_evidence)  # fmt: skip
        for part in ("embedding", "position_covariance", "size", "color"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
        np.testing.assert_array_equal(one.pose.quaternion, other.pose.quaternion)


def test_graphml_of_others_needs_layer_label_and_place(tmp_path):
    graph = nx.DiGraph()
    graph.add_node("sofa", layer="object", label="sofa", x=1.0, y=2.0, z=0.5)
    (sofa,) = from_networkx(graph).nodes
    np.testing.assert_array_equal(sofa.pose.position, (1.0, 2.0, 0.5))
    graph.add_node("lamp", layer="object", x=1.0, y=2.0, z=0.5)
    with pytest.raises(StoreError, match=r"node 'lamp': .*label"):
        from_networkx(graph)
    (tmp_path / "no.graphml").write_text("nonsense")
    with pytest.raises(StoreError, match=r"no\.graphml: not GraphML"):
        read_graphml(tmp_path / "no.graphml")


CUP = {"layer": "object", "label": "cup", "x": 0.1, "y": 0.1, "z": 0.1}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("x", 1e300, r"position \[1e\+300, 0\.1, 0\.1\] m, expected at most 100000 m"),
        ("label", " ", "label: ' ', expected 1..200 characters"),
        ("label", "x" * 201, "expected 1..200 characters"),
        ("layer", "banana", "unknown layer 'banana'; valid: agent, building, object, place, room"),
        ("state", "banana", "unknown state 'banana'; valid: absent, occluded, unseen, visible"),
        ("covariance", "[[-1,0,0],[0,-1,0],[0,0,-1]]", "expected a symmetric matrix without negative"),
        ("first_seen_ns", str(10**30), "first_seen_ns: 10+, expected a whole number of -46"),
        ("last_seen_ns", str(-(2**63)), "last_seen_ns: -9223372036854775808, expected a whole number of"),
        ("last_seen_ns", "inf", "inf"),
        ("observations", "-5", "observations: -5, expected a whole number of 1..2147483647"),
        ("observations", 10**30, "observations: 10+, expected a whole number of 1..2147483647"),
        ("embedding", base64.b64encode(np.full(384, np.nan, "<f4").tobytes()).decode(), "384 of 384 .*not finite"),
        ("embodiment", '{"kind": 5, "sensors": [], "skills": []}', "embodiment: 5, expected a text"),
        ("embodiment", '{"kind": "arm", "joints": 1e999, "sensors": [], "skills": []}', "joints"),
    ],
)
def test_a_node_of_graphml_that_cannot_be_is_named_and_none_is_taken_in(field, value, said):
    graph = nx.DiGraph()
    graph.add_node("good", **CUP)
    graph.add_node("bad", **CUP | {field: value})
    with pytest.raises(StoreError, match=rf"import node 'bad': .*{said}"):
        from_networkx(graph)


@pytest.mark.parametrize(
    ("three", "said"),
    [
        ({"size_x": -1.0, "size_y": 1.0, "size_z": 1.0}, r"size: \[-1\.0, 1\.0, 1\.0\] m, expected 0..100000"),
        ({"color_r": 1e300, "color_g": 1.0, "color_b": 1.0}, r"color: \[1e\+300, 1\.0, 1\.0\], expected rgb of 0..1"),
    ],
)
def test_a_size_or_a_color_that_cannot_be_is_named(three, said):
    graph = nx.DiGraph()
    graph.add_node("bad", **CUP, **three)
    with pytest.raises(StoreError, match=f"node 'bad': .*{said}"):
        from_networkx(graph)


@pytest.mark.parametrize(
    ("field", "value"), [("stamp_ns", "abc"), ("stamp_ns", str(10**30)), ("sequence", "-1"), ("sequence", "inf")]
)
def test_a_stamp_or_a_sequence_of_graphml_that_is_none_is_named(field, value):
    with pytest.raises(StoreError, match=f"import: stamp_ns or sequence of the graph: .*{value[:3]}"):
        from_networkx(nx.DiGraph(**{field: value}))


def test_what_looks_like_an_embedding_is_made_of_unit_length():
    graph = nx.DiGraph()
    graph.add_node("cup", **CUP, embedding=base64.b64encode(np.full(384, 1e30, "<f4").tobytes()).decode())
    (cup,) = from_networkx(graph).nodes
    assert np.linalg.norm(cup.embedding) == pytest.approx(1.0, abs=1e-3)


def test_words_that_xml_cannot_hold_are_exported_and_read_back_without_them(stored, tmp_path):
    """An earlier version took them in: labels, and names of cameras."""
    graph = RobotMemory(stored=stored, encoder=WordEncoder()).graph()
    odd = [replace(node, label=f"red\tcup\x07 {node.id}", last_evidence="front\x1b@5") for node in graph.nodes]
    nx.write_graphml(to_networkx(replace(graph, nodes=tuple(odd))), tmp_path / "now.graphml")
    again = read_graphml(tmp_path / "now.graphml")
    assert {one.label for one in again.nodes} == {f"red cup\N{REPLACEMENT CHARACTER} {one.id}" for one in graph.nodes}
    assert {one.last_evidence for one in again.nodes} == {"front\N{REPLACEMENT CHARACTER}@5"}


def with_node(stored, column, row, value):
    """The rows of ``stored`` with another value in a column of the cup."""
    nodes = {name: values.copy() for name, values in stored.tables["nodes"].items()}
    cup = next(i for i, text in enumerate(nodes["text"][:, 0]) if "Tasse" in str(text))
    nodes[column][cup, row] = value if column != "text" else value(str(nodes["text"][cup, 0]))
    return replace(stored, tables={**stored.tables, "nodes": nodes})


@pytest.mark.parametrize(
    ("column", "row", "value", "said"),
    [
        ("number", 0, 1e300, r"node 'object_0001': DetectedObject\.pose: .*at most 100000 m"),
        ("number", 7, -1.0, r"node 'object_0001': DetectedObject\.position_covariance"),
        ("number", 16, -1.0, r"node 'object_0001': DetectedObject\.size"),
        ("number", 22, 7.0, "table 'nodes': .*belief"),
        ("number", 0, np.inf, r"line \d+: field 'number': .*expected 23 x f8"),
        ("time", 1, 2**63 - 1, "node 'object_0001': last_seen_ns: 9223372036854775807"),
        ("time", 2, -5, "node 'object_0001': observations: -5"),
        ("text", 0, lambda text: text.replace("rote Tasse ☕", " "), "node 'object_0001': .*label: ' '"),
        ("text", 0, lambda text: text.replace("object", "banana", 2), "unknown layer 'banana'"),
    ],
)
def test_a_node_of_json_lines_that_cannot_be_is_named(stored, column, row, value, said):
    with pytest.raises(StoreError, match=f"import:? .*{said}"):
        read_jsonl(io.StringIO(exported(with_node(stored, column, row, value))))


@pytest.mark.parametrize("field", ["sequence", "stamp_ns"])
def test_a_head_of_json_lines_that_cannot_be_is_named(stored, field):
    with pytest.raises(StoreError, match=f"import line 1: {field}: 10+, expected a whole number"):
        read_jsonl(io.StringIO(exported(replace(stored, **{field: 10**30}))))


def test_a_place_that_does_not_fit_into_its_column_is_refused(stored):
    """Of a fact; it has 32 bits."""
    far = re.sub(r'"place": \[0\.4\d*', '"place": [1e300', exported(stored))
    with pytest.raises(StoreError, match=r"line \d+: field 'place': \[1e\+300, .*expected 3 x f4"):
        read_jsonl(io.StringIO(far))


def test_json_lines_of_an_earlier_version_with_a_control_character_in_a_label_stay_as_they_are(stored):
    odd = with_node(stored, "text", 0, lambda text: text.replace("rote Tasse", "rote\\u0007 Tasse"))
    again = read_jsonl(io.StringIO(exported(odd)))
    np.testing.assert_array_equal(again.tables["nodes"]["text"], odd.tables["nodes"]["text"])
    labels = [node.label for node in RobotMemory(stored=again, encoder=WordEncoder()).graph().nodes]
    assert "rote\x07 Tasse ☕" in labels


@pytest.mark.parametrize("half", ["\\ud800", "\ud800"])
def test_halves_of_characters_are_replaced_which_nobody_could_publish(stored, half):
    text = exported(with_node(stored, "text", 0, lambda text: text.replace("rote", "r🙂te")))
    lines = [line.replace("r🙂te", json.dumps(half)[1:-1]) for line in text.splitlines(keepends=True)[:-1]]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    end = json.loads(text.splitlines()[-1])
    end["end"]["sha256"] = digest
    again = read_jsonl(io.StringIO("".join(lines) + json.dumps(end)))
    labels = [node.label for node in RobotMemory(stored=again, encoder=WordEncoder()).graph().nodes]
    assert "? Tasse ☕" in labels


def test_places_come_from_a_file_and_hold_what_is_in_them(tmp_path):
    path = tmp_path / "home.yaml"
    path.write_text(
        "- {layer: room, label: kitchen, centre: [0.5, 0, 1], size: [3, 3, 2.2]}\n"
        "- {layer: place, label: shelf, centre: [0.4, 0.0333, 0.0], size: [0.3, 0.3, 0.2]}\n"
    )
    memory = RobotMemory(encoder=WordEncoder(), places=read_places(path))
    memory.update(view([seen("red cup", (0.4, 0.0333, 0.02))], 1))
    edges = {(edge.source, edge.relation, edge.target) for edge in memory.graph().edges}
    assert {("object_0001", "in", "place_0001"), ("object_0001", "in", "room_0001")} <= edges
    assert "in the shelf" in memory.query(FindObject("red cup")).text


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{a: 1}", InvalidInputError, "dict, expected a list"),
        ("- {layer: room, label: hall}", InvalidInputError, "expected the keys layer, label, centre, size"),
        ("- {layer: rom, label: a, centre: [0, 0, 0], size: [1, 1, 1]}", UnknownNameError, "did you mean 'room'"),
        ("- {layer: room, label: a, centre: [0, 0], size: [1, 1, 1]}", InvalidInputError, "'a' centre .*3 numbers"),
    ],
)
def test_a_bad_file_of_places_is_named(tmp_path, text, error, message):
    (tmp_path / "home.yaml").write_text(text)
    with pytest.raises(error, match=message):
        read_places(tmp_path / "home.yaml")
