"""Out to spark_dsg and in again."""

from __future__ import annotations

import numpy as np
import pytest
import spark_dsg

from engram.app import memory_command
from engram.core.errors import StoreError
from engram.core.questions import AtTime, FindObject
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.spark_dsg_file import load, save
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view


@pytest.mark.parametrize("name", ["graph.json", "graph.sparkdsg"])
def test_a_graph_comes_back_as_it_was(tmp_path, name):
    memory = RobotMemory(encoder=WordEncoder())
    for second in range(3):
        memory.update(view([seen("red cup", (0.4, 0.1, 0.02)), seen("blue bowl", (0.44, 0.16, 0.02))], second))
    graph = memory.graph()
    save(graph, tmp_path / name)
    again = load(tmp_path / name)
    assert (again.stamp_ns, again.sequence) == (graph.stamp_ns, graph.sequence)
    assert set(again.edges) == set(graph.edges) and len(graph.edges) == 3  # two on the table, near each other
    mine, theirs = ({node.id: node for node in one.nodes} for one in (graph, again))
    assert mine.keys() == theirs.keys()
    for key, node in mine.items():
        other = theirs[key]
        for field in ("layer", "label", "belief", "state", "observations", "last_seen_ns", "last_evidence"):
            assert getattr(other, field) == getattr(node, field)
        np.testing.assert_array_equal(other.pose.position, node.pose.position)
        np.testing.assert_array_equal(other.embedding, node.embedding)


def test_other_tools_see_names_places_boxes_and_layers(tmp_path):
    memory = RobotMemory(encoder=WordEncoder())
    memory.update(view([seen("red cup", (0.4, 0.1, 0.02))]))
    save(memory.graph(), tmp_path / "graph.json")
    graph = spark_dsg.DynamicSceneGraph.load(str(tmp_path / "graph.json"))
    (cup,) = graph.get_layer(spark_dsg.DsgLayers.OBJECTS).nodes
    assert cup.attributes.name == "red cup"
    np.testing.assert_allclose(np.array(cup.attributes.position).ravel(), (0.4, 0.1, 0.02))
    assert cup.attributes.bounding_box.contains(np.array([0.4, 0.1, 0.02]))
    assert [node.attributes.name for node in graph.get_layer(spark_dsg.DsgLayers.PLACES).nodes] == ["table"]


def test_a_file_becomes_a_memory_that_answers_and_goes_on(tmp_path):
    first = RobotMemory(encoder=WordEncoder())
    first.update(view([seen("red cup", (0.4, 0.1, 0.02))], 10**9))
    save(first.graph(), tmp_path / "graph.sparkdsg")
    memory_command.memory(memory_command.Import(tmp_path / "memory", tmp_path / "graph.sparkdsg"))
    again = RobotMemory(GraphStore(tmp_path / "memory"), encoder=WordEncoder())
    assert again.query(AtTime(FindObject("red cup"), (10**9, 10**9))).nodes[0].id == "object_0001"
    update = again.update(view([seen("red cup", (0.4, 0.1, 0.02)), seen("blue bowl", (0.6, 0.1, 0.02))], 2 * 10**9))
    assert [node.id for node in update.nodes] == ["object_0001", "object_0002"]


def test_a_graph_of_hydra_is_read(tmp_path):
    graph, chair = spark_dsg.DynamicSceneGraph(), spark_dsg.ObjectNodeAttributes()
    chair.name, chair.position, chair.last_update_time_ns = "chair", np.array([1.0, 2.0, 0.5]), 7
    graph.add_node(spark_dsg.DsgLayers.OBJECTS, spark_dsg.NodeSymbol("O", 3), chair)
    graph.save(str(tmp_path / "hydra.json"))
    (node,) = load(tmp_path / "hydra.json").nodes
    assert (node.label, node.layer, node.last_seen_ns, node.pose.frame) == ("chair", "object", 7, "map")
    np.testing.assert_allclose(node.pose.position, (1.0, 2.0, 0.5))


def test_what_is_no_graph_is_named(tmp_path):
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(StoreError, match=r"no\.json: not a graph of spark_dsg"):
        load(tmp_path / "no.json")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("label", "", "label: '', expected 1..200 characters"),
        ("size", [-1.0, 1.0, 1.0], "size"),
        ("covariance", (-np.eye(3)).tolist(), "position_covariance"),
        ("observations", -5, "observations: -5"),
        ("last_seen_ns", 2**62, "last_seen_ns"),
        ("state", "banana", "unknown state 'banana'"),
        ("frame", 5, "TypeError"),
    ],
)
def test_a_node_that_cannot_be_is_named(tmp_path, field, value, said):
    memory = RobotMemory(encoder=WordEncoder())
    memory.update(view([seen("red cup", (0.4, 0.1, 0.02))], 10**9))
    save(memory.graph(), tmp_path / "graph.json")
    graph = spark_dsg.DynamicSceneGraph.load(str(tmp_path / "graph.json"))
    (cup,) = graph.get_layer(spark_dsg.DsgLayers.OBJECTS).nodes
    about = cup.attributes.metadata.get()
    cup.attributes.metadata.set({"engram": about["engram"] | {field: value}})
    graph.save(str(tmp_path / "graph.json"))
    with pytest.raises(StoreError, match=rf"graph\.json node O\d+: .*{said}"):
        load(tmp_path / "graph.json")


def test_a_stamp_of_the_graph_that_is_none_is_named(tmp_path):
    graph = spark_dsg.DynamicSceneGraph()
    graph.metadata.set({"engram": {"stamp_ns": "abc", "sequence": 1}})
    graph.save(str(tmp_path / "graph.json"))
    with pytest.raises(StoreError, match=r"graph\.json: .*stamp_ns: abc"):
        load(tmp_path / "graph.json")
