"""Episodic memory: boundaries, contiguity, hierarchy, value and association, each as a law or a number."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import networkx as nx
import numpy as np
import pytest

from engram.core.questions import Selection
from engram.core.types import EMBEDDING_DIM, SceneEdge
from engram.memory.stores.episodic.episodes import unit
from engram.memory.stores.episodic.event_index import EventIndex, RecallConfig
from engram.memory.stores.episodic.multi_hop import SpreadConfig, spread
from engram.memory.stores.episodic.store import EpisodicConfig, EpisodicMemory
from engram.memory.stores.episodic.surprise import Boundaries, ChangeModel, SurpriseConfig
from tests.contracts.memory_store import MemoryStoreContract
from tests.memory.updates import SECOND, embed, event, node, step


class TestEpisodicMemory(MemoryStoreContract):
    def make(self):
        return EpisodicMemory(embed)


class TestSmallEpisodicMemory(MemoryStoreContract):
    """Merges all the time."""

    def make(self):
        return EpisodicMemory(embed, EpisodicConfig(max_events=8, longest_s=5.0))


# -- boundaries --------------------------------------------------------------------------------------------------------


def test_the_surprise_of_one_change_by_hand():
    """Nine kinds, each Gamma(0.1, 1): NB(k; 0.1, 1/2). One new class among none: probability (0 + 1) / 1."""
    quiet = 9 * 0.1 * log(2)
    assert ChangeModel(0.95).surprise(()) == pytest.approx(quiet)
    # P(1) / P(0) = 0.1 x 1/2
    assert ChangeModel(0.95).surprise([event("new", "a", "cup", 0)]) == pytest.approx(quiet - log(0.05))


def test_what_goes_on_stops_being_surprising_and_another_class_is_surprising_again():
    model = ChangeModel(0.95)
    first = model.surprise([event("moved", "a", "cup", 0)])
    for _ in range(30):
        model.learn([event("moved", "a", "cup", 0)])
    usual = model.surprise([event("moved", "a", "cup", 0)])
    assert usual < first - 1.0
    assert model.surprise([event("moved", "b", "bowl", 0)]) > usual + 2.0


def test_boundaries_fall_where_the_activity_changes_and_not_inside_it():
    rng = np.random.default_rng(0)
    boundaries = Boundaries()
    found, change_points = [], {0, 40, 80, 120}
    for i in range(160):
        label, kind = (("cup", "moved"), ("bowl", "new"), ("cup", "moved"), ("ball", "held"))[i // 40]
        happens = rng.random() < 0.9
        if boundaries.step([event(kind, "a", label, i)] if happens else [])[1]:
            found.append(i)
    assert all(any(start <= i < start + 4 for i in found) for start in (40, 80, 120))
    beside = [i for i in found if all(not start <= i < start + 4 for start in change_points)]
    assert len(beside) <= 0.1 * 160


def test_no_boundary_before_the_warm_up_and_the_threshold_is_mean_plus_gamma_std():
    boundaries = Boundaries(SurpriseConfig(gamma=2.0, warm_up=3))
    values = [boundaries.step([event("new", f"{i}", f"kind {i}", i)]) for i in range(3)]
    assert not any(new for _, new in values)
    surprises = np.array([one for one, _ in values])
    assert boundaries.threshold() == pytest.approx(surprises.mean() + 2.0 * surprises.std())


def test_one_activity_is_one_event_and_the_next_task_begins_another():
    store = EpisodicMemory(embed)
    for i in range(20):
        store.update(step(event("moved", "object_1", "red cup", 0.1 * i)), i)
    assert len(store.events) == 1
    store.begin("pick", "pick up the cup", 3 * SECOND)
    store.update(step(event("held", "object_1", "red cup", 3.5)), 0)
    first, second = store.events
    assert (first.episode, second.episode) == ("", "episode_000001")
    assert first.node_ids == ("object_1",) and first.end_ns == pytest.approx(1.9 * SECOND)


# -- recall ------------------------------------------------------------------------------------------------------------


def axis(i: int) -> np.ndarray:
    vector = np.zeros(EMBEDDING_DIM, np.float32)
    vector[i] = 1.0
    return vector


def test_contiguity_by_hand():
    index = EventIndex(RecallConfig(lag=2.0, backward=0.6, seeds=1))
    for i in range(7):
        index.append(axis(i))
    near = index.contiguity(index.similarity(axis(3)))
    expected = [0.6 * exp(-1), 0.6 * exp(-0.5), 0.6, 0.0, 1.0, exp(-0.5), exp(-1)]
    np.testing.assert_allclose(near, expected, atol=1e-6)


def remember(store: EpisodicMemory, labels: list[str]) -> None:
    """One event a label, ten minutes apart."""
    for i, label in enumerate(labels):
        store.update(step(event("moved", f"object_{i}", label, 600.0 * i)), 0)


def test_a_neighbour_of_what_is_recalled_ranks_above_a_far_event_of_equal_similarity():
    labels = ["spoon"] + [f"thing{i}" for i in range(20)] + ["red cup", "spoon"] + [f"other{i}" for i in range(20)]
    store = EpisodicMemory(embed)
    remember(store, labels)
    text = "red cup spoon"
    ids = [one.node_id for one in store.recall(Selection(text=text, vector=embed(text), limit=3))]
    assert ids == ["object_21", "object_22", "object_0"]  # the cup, the spoon moved after it, the spoon of long ago


def test_hierarchical_recall_finds_what_flat_recall_finds_in_the_best_chunks():
    rng = np.random.default_rng(0)
    topics = np.array([unit(rng.normal(size=EMBEDDING_DIM)) for _ in range(40)])
    vectors = [unit(topics[i // 32] + 0.02 * rng.normal(size=EMBEDDING_DIM)) for i in range(40 * 32)]
    hierarchical, flat = EventIndex(RecallConfig(chunk=32, chunks=4)), EventIndex(RecallConfig(chunk=2000, chunks=1))
    for vector in vectors:
        hierarchical.append(vector)
        flat.append(vector)
    for topic in topics[::7]:
        ours, theirs = hierarchical.similarity(topic), flat.similarity(topic)
        assert set(np.argsort(-ours)[:10]) == set(np.argsort(-theirs)[:10])
        assert np.count_nonzero(ours) <= 4 * 32


def test_a_summary_follows_its_events():
    index = EventIndex(RecallConfig(chunk=2, chunks=1))
    for i in (0, 0, 1, 1):
        index.append(axis(i))
    assert np.flatnonzero(index.similarity(axis(1))).tolist() == [2, 3]
    for i in (2, 3):
        index.replace(i, axis(5))
    assert np.flatnonzero(index.similarity(axis(5))).tolist() == [2, 3]


def test_time_place_and_who_took_part_narrow_the_answer():
    store = EpisodicMemory(embed)
    store.update(step(event("moved", "object_1", "cup", 0, (0, 0, 0))), 0)
    store.update(step(event("moved", "object_2", "bowl", 600, (2, 0, 0))), 0)

    def ids(**asked):
        return [one.node_id for one in store.recall(Selection(**asked))]

    assert ids(valid_ns=(500 * SECOND, 700 * SECOND)) == ["object_2"]
    assert ids(believed_ns=100 * SECOND) == ["object_1"]
    assert ids(place=np.array([2.0, 0, 0]), radius_m=0.5) == ["object_2"]
    assert ids(target="cup") == ["object_1"]


@pytest.mark.parametrize(
    "asked",
    [{"valid_ns": (320 * 600 * SECOND, 352 * 600 * SECOND)}, {"place": np.array([9.0, 0, 0]), "radius_m": 1.0},
     {"target": "object_330"}],
    ids=["time", "place", "who took part"],
)  # fmt: skip
def test_what_passes_the_filter_is_found_however_well_the_rest_fits(asked):
    """Ten chunks of red cups fill the best eight; the one cup of yesterday lies among 31 other things."""
    store = EpisodicMemory(embed)
    for i in range(352):
        label, place = ("red cup", (0.0, 0, 0)) if i < 320 else (f"thing{i}", (9.0, 0, 0))
        label = "red cup" if i == 330 else label
        store.update(step(event("moved", f"object_{i}", label, 600.0 * i, place)), 0)
    found = store.recall(Selection(vector=embed("red cup"), limit=5, **asked))
    assert found[0].node_id == "object_330"
    assert all(one.node_id in {f"object_{i}" for i in range(320, 352)} for one in found)


def test_a_neighbour_in_time_that_does_not_pass_the_filter_still_tells_what_hangs_together():
    """Asked what happened at (2, 0, 0) with the cup: the spoon that was moved there right after the cup elsewhere."""
    store = EpisodicMemory(embed)
    for i in range(300):
        place = (2.0, 0, 0) if i in (10, 271) else (0.0, 0, 0)
        label = "spoon" if i in (10, 271) else "red cup" if i == 270 else f"thing{i}"
        store.update(step(event("moved", f"object_{i}", label, 600.0 * i, place)), 0)
    asked = Selection(vector=embed("red cup spoon"), place=np.array([2.0, 0, 0]), radius_m=0.5)
    assert [one.node_id for one in store.recall(asked)] == ["object_271", "object_10"]


# -- worth -------------------------------------------------------------------------------------------------------------


def test_what_happened_in_a_task_that_succeeded_ranks_above_the_same_in_one_that_failed():
    store = EpisodicMemory(embed)
    for i, success in enumerate((True, False)):
        store.begin("fetch", "fetch it", 1000 * i * SECOND)
        store.update(step(event("held", f"object_{i}", "red cup", 1000 * i + 1)), 0)
        store.end("succeeded" if success else "failed", float(success), (1000 * i + 2) * SECOND)
        for k in range(20):  # far apart in the order of events
            store.update(step(event("moved", f"other_{i}_{k}", f"thing{i}{k}", 1000 * i + 70 * (k + 1))), 0)
    found = [one for one in store.recall(Selection(vector=embed("red cup"), limit=9)) if one.node_id]
    assert [one.node_id for one in found[:2]] == ["object_0", "object_1"]


def test_episodes_keep_task_outcome_return_and_what_was_read():
    store = EpisodicMemory(embed)
    store.begin("stack", "stack the cubes", 5 * SECOND)
    store.end("succeeded", 0.8, 25 * SECOND, ("object_1", "", "object_1", "episode_000009"), "base")
    (one,) = store.episodes
    assert (one.task, one.outcome, one.return_, one.policy_version) == ("stack", "succeeded", 0.8, "base")
    assert one.memory_ids == ("object_1", "episode_000009")
    assert one.worth == pytest.approx(0.65)
    assert one.text == "stack 'stack the cubes' succeeded in 20 s"


def test_an_episode_that_is_cut_off_is_abandoned_and_that_says_nothing_of_it():
    store = EpisodicMemory(embed)
    store.begin("stack", "stack", 0)
    store.begin("reach", "reach", 5)
    assert [one.outcome for one in store.episodes] == ["abandoned", "running"]
    store.end("stopped", None, 7, ("object_0001",))  # the operator stopped it: that says nothing
    assert [one.worth for one in store.episodes] == [0.5, 0.5]


# -- association -------------------------------------------------------------------------------------------------------


def test_activation_is_personalised_pagerank_on_a_path():
    path = nx.path_graph(4)
    found = spread({"0": 1.0}, lambda key: {str(one) for one in path[int(key)]}, SpreadConfig(hops=3, damping=0.7))
    # solved by hand: p = 0.3 e + 0.7 P p with P the walk on 0 - 1 - 2 - 3
    walk = nx.to_numpy_array(path) / np.array([1, 2, 2, 1])[:, None]
    exact = np.linalg.solve(np.eye(4) - 0.7 * walk.T, 0.3 * np.eye(4)[0])
    np.testing.assert_allclose([found[str(i)] for i in range(4)], exact, atol=1e-3)


def test_association_stops_after_its_hops_and_vertices():
    def ring(key):
        return {str(int(key) - 1), str(int(key) + 1)}

    assert set(spread({"0": 1.0}, ring, SpreadConfig(hops=2))) == {"-2", "-1", "0", "1", "2"}
    assert len(spread({"0": 1.0}, ring, SpreadConfig(hops=50, vertices=7))) == 7
    assert spread({}, ring) == {}


def test_two_hops_over_the_scene_find_an_event_that_shares_no_word_and_no_time():
    """Question: the key. The key stood on the tray; long after, the tray was moved: nobody mentioned the key."""
    store = EpisodicMemory(embed)
    on_tray = step(event("new", "key_1", "key", 0), seen_too=[node("tray_1", "tray")])
    store.update(replace(on_tray, edges=(SceneEdge("key_1", "tray_1", "on"),)), 0)
    for i in range(30):
        store.update(step(event("moved", f"object_{i}", f"thing{i}", 600.0 * (i + 1))), 0)
    store.update(step(event("moved", "tray_1", "tray", 600.0 * 40)), 0)
    found = [one.node_id for one in store.recall(Selection(vector=embed("key"), limit=6))]
    assert found[0] == "key_1" and "tray_1" in found
    cut_off = EpisodicMemory(embed, EpisodicConfig(spread=SpreadConfig(hops=0)))
    cut_off.restore(store.state().changed)
    assert "tray_1" not in [one.node_id for one in cut_off.recall(Selection(vector=embed("key"), limit=6))]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_over_capacity_the_most_alike_neighbours_become_one_and_no_object_is_lost():
    store = EpisodicMemory(embed, EpisodicConfig(max_events=16))
    labels = ["cup", "cup", "ball", "fork", "knife", "spoon", "plate", "plate", *"abcdefghi"]
    remember(store, labels)
    assert len(store.events) == 15
    merged = [one for one in store.events if len(one.node_ids) == 2]
    assert [one.node_ids for one in merged] == [("object_0", "object_1"), ("object_6", "object_7")]
    assert merged[0].weight == 2 and merged[0].end_ns == 600 * SECOND
    state = store.state()
    assert set(state.removed) == {"event_000002", "event_000008"}
    assert not set(state.removed) & {row.key for row in state.changed}


def test_events_and_episodes_stay_bounded_over_a_long_life():
    store = EpisodicMemory(embed, EpisodicConfig(max_events=64, max_episodes=10))
    for i in range(120):
        store.begin("fetch", "fetch it", 600 * i * SECOND)
        for k in range(5):
            store.update(step(event("moved", f"object_{k}", f"thing{k}", 600.0 * i + 100 * k)), 0)
        store.end("failed" if i % 3 else "succeeded", float(i % 3 == 0), (600 * i + 500) * SECOND)
    assert len(store.events) <= 64 and len(store.episodes) == 10
    kept = [one.outcome for one in store.episodes][:5]
    assert kept == ["succeeded"] * 5  # the failures of long ago went first
