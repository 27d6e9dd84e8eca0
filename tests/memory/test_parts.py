"""Each part of the memory against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.geometry import make_pose
from engram.core.questions import Selection
from engram.memory.graph.association import AppearanceFeatures, assign
from engram.memory.graph.fusion import FusionConfig, fuse_positions, spawn
from engram.memory.graph.relations import boxes, relations
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.graph.text_embedding import text_embedder
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.graph.visibility import FILLED, FREE, OCCLUDED, UNSEEN, look
from engram.memory.graph_memory import GraphMemory
from engram.memory.query.hits import RetrievalConfig
from engram.memory.query.search import search
from engram.memory.storage.columns import half_extents
from tests.memory.scenes import WordEncoder, seen, view


def box(node_id, centre, size, label="cube"):
    """Return an object node with the extents ``size`` m around ``centre`` m."""
    node = spawn(node_id, seen(label, centre), 0, FusionConfig())
    return replace(node, size=np.asarray(size, float))


def test_on_in_and_near_of_a_small_scene():
    nodes = [
        replace(box("place_0001", (0.5, 0, -0.02), (1.2, 1.6, 0.04)), layer="place"),
        box("bottom", (0.5, 0.0, 0.02), (0.04, 0.04, 0.04)),
        box("top", (0.505, 0.0, 0.06), (0.04, 0.04, 0.04)),
        box("bin", (0.5, 0.3, 0.05), (0.2, 0.2, 0.1)),
        box("ball", (0.52, 0.32, 0.03), (0.04, 0.04, 0.04)),
        box("beside", (0.5, 0.12, 0.02), (0.04, 0.04, 0.04)),  # 8 cm free to bottom, 6 cm to bin
    ]
    assert set(relations(boxes(nodes))) == {
        ("bottom", "place_0001", "on"),
        ("top", "bottom", "on"),
        ("bin", "place_0001", "on"),
        ("ball", "bin", "in"),
        ("beside", "place_0001", "on"),
        ("ball", "place_0001", "on"),  # its bottom is 1 cm above the table, within the tolerance
        ("beside", "bottom", "near"),
        ("beside", "bin", "near"),
        ("beside", "top", "near"),
    }


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_relations_of_some_nodes_are_those_of_all_that_touch_them(seed):
    rng = np.random.default_rng(seed)
    nodes = [
        box(f"object_{i}", rng.uniform((0.3, -0.2, 0), (0.7, 0.2, 0.2)), rng.uniform(0.02, 0.2, 3)) for i in range(12)
    ]
    some = {f"object_{i}" for i in rng.choice(12, 3, replace=False)}
    touching = {edge for edge in relations(boxes(nodes)) if some & set(edge[:2])}
    assert set(relations(boxes(nodes), touched=some)) == touching


def test_half_extents_of_a_turned_box():
    """0.2 x 0.1 m turned by 90 degrees about z lies 0.1 x 0.2; by 45 degrees (0.2 + 0.1) / sqrt(2) both ways."""
    for degrees, want in ((90, (0.05, 0.1, 0.02)), (45, (0.3 / 2**0.5 / 2, 0.3 / 2**0.5 / 2, 0.02))):
        pose = make_pose(np.zeros(3), Rotation.from_euler("z", degrees, degrees=True))
        node = replace(box("a", (0, 0, 0), (0.2, 0.1, 0.04)), pose=pose)
        np.testing.assert_allclose(half_extents(node.pose.quaternion[None], node.size[None])[0], want, atol=1e-12)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (1.00, FREE),  # the table behind it
        (0.96, FILLED),  # a surface where its front face would be
        (0.90, OCCLUDED),  # 8 cm in front of the centre of a 4 cm cube: half its diagonal is 3.5 cm
        (0.00, UNSEEN),  # no return
    ],
)
def test_what_the_depth_at_a_place_means(measured, verdict):
    assert look(view([], depth=measured), np.array([[0.5, 0.0, 0.02]]), np.full((1, 3), 0.04))[0] == verdict


def test_a_large_object_is_hidden_from_a_tenth_of_a_metre():
    places, sizes = np.array([[0.5, 0.0, 0.5]]), np.full((1, 3), 0.5)  # depth 0.5 m
    assert look(view([], depth=0.41), places, sizes)[0] == FILLED
    assert look(view([], depth=0.39), places, sizes)[0] == OCCLUDED


def test_out_of_frame_behind_and_too_far_are_not_looked_at():
    places = np.array([[1.5, 0.0, 0.0], [0.5, 0.0, 1.2], [0.5, 0.0, -1.6]])  # beside, behind, 2.6 m away
    assert look(view([], depth=3.0), places, np.full((3, 3), 0.04)).tolist() == [UNSEEN] * 3


@pytest.mark.parametrize(("range_m", "verdict"), [((0.1, 2.0), FREE), ((0.1, 0.9), UNSEEN), ((1.1, 2.0), UNSEEN)])
def test_what_the_camera_cannot_measure_is_not_looked_at(range_m, verdict):
    """The place lies 0.98 m in front of the camera, and the table behind it."""
    scene = replace(view([], depth=1.0), depth_range_m=range_m)
    assert look(scene, np.array([[0.5, 0.0, 0.02]]), np.full((1, 3), 0.04))[0] == verdict


def test_a_detector_that_knows_of_planes_alone_stops_nothing():
    """A covariance without any extent in one direction is allowed; two things of different names are compared."""
    memory = GraphMemory(encoder=WordEncoder())
    flat = np.diag([1e-4, 1e-4, 0.0])
    things = [replace(seen(label, (0.4 + dx, 0.0, 0.02)), position_covariance=flat)
              for label, dx in (("red cup", 0.0), ("blue bowl", 0.15))]  # fmt: skip
    for step in range(1, 4):
        memory.update(view(things, step * 10**8))
    assert sorted(node.label for node in memory.graph().nodes if node.layer == "object") == ["blue bowl", "red cup"]


@pytest.mark.parametrize("length", [20.0, 1.0, 0.05])
def test_embeddings_of_any_length_are_compared_by_direction(length):
    usual = seen("red cup", (0.4, 0.0, 0.02))
    found = replace(usual, embedding=usual.embedding * np.float32(length))
    np.testing.assert_allclose(found.embedding, usual.embedding, atol=1e-6)
    assert not found.embedding.flags.writeable
    huge = replace(usual, embedding=usual.embedding * np.float32(1e20)).embedding
    np.testing.assert_allclose(huge, usual.embedding, atol=1e-6)
    assert replace(usual, embedding=np.zeros(384, np.float32)).embedding is None  # it says nothing


def test_the_depth_under_the_object_itself_is_read():
    """Image x grows with base x, y against it: (0.7, 0.2, 0.02) is at pixel (90.1, 37.9), cell row 9, column 22."""
    grid = np.full((32, 32), 0.3, np.float32)
    grid[9, 22] = 1.0
    verdict = look(view([], depth=grid), np.array([[0.7, 0.2, 0.02], [0.7, -0.2, 0.02]]), np.full((2, 3), 0.04))
    assert verdict.tolist() == [FREE, OCCLUDED]


def fuse_position(*arguments):
    """Fuse one place."""
    *arrays, config = arguments
    places, covariances = fuse_positions(*(np.asarray(array)[None] for array in arrays), config)
    return places[0], covariances[0]


def test_two_equal_sights_halve_the_variance():
    config = FusionConfig(drift_m=0.0)
    place, covariance = fuse_position(np.zeros(3), np.eye(3) * 1e-4, np.full(3, 0.01), np.eye(3) * 1e-4, config)
    np.testing.assert_allclose(place, 0.005, atol=1e-12)
    np.testing.assert_allclose(covariance, np.eye(3) * 0.5e-4, atol=1e-15)


def test_the_surer_sight_weighs_more_axis_by_axis():
    """Variances 4 and 1: the gain is 0.8 along x, and 0.2 along y where it is the other way round."""
    place, covariance = fuse_position(
        np.zeros(3), np.diag([4e-4, 1e-4, 1e-4]), np.array([0.01, 0.01, 0]), np.diag([1e-4, 4e-4, 1e-4]),
        FusionConfig(drift_m=0.0),
    )  # fmt: skip
    np.testing.assert_allclose(place, (0.008, 0.002, 0), atol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), (0.8e-4, 0.8e-4, 0.5e-4), atol=1e-15)


def test_a_sight_that_cannot_be_noise_replaces_the_place():
    noise = np.eye(3) * 1e-6
    place, covariance = fuse_position(np.zeros(3), noise, np.array([0.05, 0, 0]), noise, FusionConfig())
    np.testing.assert_array_equal(place, (0.05, 0, 0))
    np.testing.assert_array_equal(covariance, noise)


def test_crossed_pairs_are_matched_together_not_greedily():
    """Two like cubes 3 cm apart both seen 2 cm to the right: nearest-first would match the wrong one."""
    nodes = [box("a", (0.50, 0, 0), (0.04,) * 3, "red cube"), box("b", (0.53, 0, 0), (0.04,) * 3, "red cube")]
    sights = [seen("red cube", (0.55, 0, 0)), seen("red cube", (0.52, 0, 0))]
    assert set(assign(AppearanceFeatures.of(nodes), AppearanceFeatures.of(sights)).known) == {(0, 1), (1, 0)}


def test_colour_decides_when_two_objects_swap_places():
    nodes = [box("r", (0.50, 0, 0), (0.04,) * 3, "red cube"), box("b", (0.55, 0, 0), (0.04,) * 3, "blue cube")]
    sights = [seen("blue cube", (0.50, 0, 0)), seen("red cube", (0.55, 0, 0))]
    nodes = [replace(n, color=s.color, embedding=s.embedding) for n, s in zip(nodes, sights[::-1], strict=True)]
    assert set(assign(AppearanceFeatures.of(nodes), AppearanceFeatures.of(sights)).known) == {(0, 1), (1, 0)}


def ask(nodes, query, embed):
    """Search a memory of ``nodes``."""
    tracker = Tracker()
    for node in nodes:
        tracker.scene.put(node)
    query = replace(query, vector=embed(query.text))
    return search(tracker, VectorIndex(tracker.columns), query, RetrievalConfig())


def test_score_is_cosine_times_belief_times_nearness():
    """'red' against 'red cube' has cosine 1/sqrt(2) up to the chance overlap of random vectors; 1 m away halves it."""
    node = replace(box("a", (1.0, 0, 0), (0.04,) * 3, "red cube"), belief=0.5)
    cosine = float(WordEncoder().encode(["red"])[0] @ node.embedding)
    assert cosine == pytest.approx(2**-0.5, abs=0.1)
    found = ask([node], Selection(text="red", place=np.zeros(3)), text_embedder(WordEncoder()))
    assert found.scores[0] == pytest.approx(cosine * 0.5 * 0.5, rel=1e-6)


def test_an_encoder_of_another_width_is_refused():
    class Narrow:
        def encode(self, texts):
            return np.ones((len(texts), 5), np.float32)

    with pytest.raises(InvalidInputError, match=r"Narrow: \(5,\), expected \(384,\)"):
        text_embedder(Narrow())("red")


def test_unknown_layers_states_and_relations_are_refused():
    graph = SceneGraph()
    with pytest.raises(UnknownNameError, match="unknown layer 'objects'; did you mean 'object'"):
        graph.new_id("objects")
    with pytest.raises(UnknownNameError, match="valid: absent, occluded, unseen, visible"):
        graph.put(replace(box("a", (0, 0, 0), (1,) * 3), state="gone"))
    with pytest.raises(UnknownNameError, match="unknown relation 'under'"):
        graph.set_edges([("a", "b", "under")])


def test_the_embedded_sentence_model_finds_by_meaning():
    embed = text_embedder(None)
    labels = ("red cube", "blue mug", "drawer")
    nodes = [
        replace(box(label, (0.5, 0.1 * i, 0), (0.04,) * 3), embedding=embed(label)) for i, label in enumerate(labels)
    ]
    for words, want in (("the red block", "red cube"), ("a coffee cup", "blue mug")):
        assert ask(nodes, Selection(text=words), embed).nodes[0].id == want
