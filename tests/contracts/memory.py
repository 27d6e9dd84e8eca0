"""The laws that every Memory keeps."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytest

from engram.core.contracts import Memory
from engram.core.questions import FindObject
from engram.core.robot import PANDA_2F85
from engram.core.types import EMBEDDING_DIM
from tests.memory.scenes import WordEncoder, seen, view

PLACE = (0.5, 0.1, 0.02)


class MemoryContract:
    """Subclass as ``TestX`` and say how to make an empty one that embeds words with ``WordEncoder``."""

    @abstractmethod
    def make(self) -> Memory:
        """Return a fresh, empty memory."""

    @pytest.fixture
    def memory(self):
        return self.make()

    def test_an_update_tells_what_changed_and_the_graph_holds_it(self, memory):
        update = memory.update(view([seen("red cube", PLACE)], stamp_ns=10))
        (node,) = [n for n in update.nodes if n.layer == "object"]
        assert (node.label, node.state, node.first_seen_ns, node.last_seen_ns) == ("red cube", "visible", 10, 10)
        full = memory.graph()
        assert full.full and full.sequence == update.sequence
        assert node.id in {n.id for n in full.nodes}

    def test_the_deltas_in_order_add_up_to_the_graph(self, memory):
        start = memory.graph()
        nodes = {n.id: n for n in start.nodes}
        edges = set(start.edges)
        rng = np.random.default_rng(0)
        sequence = start.sequence
        for step in range(30):
            places = [(0.4 + 0.1 * i, 0.05 * (step // 10) * i, 0.02) for i in range(4)]
            scene = [seen(f"thing {i}", place) for i, place in enumerate(places) if rng.random() < 0.7]
            update = memory.update(view(scene, stamp_ns=step))
            assert update.sequence - sequence in (0, 1)
            sequence = update.sequence
            edges -= set(update.deleted_edges)
            for node_id in update.deleted_nodes:
                del nodes[node_id]
            nodes.update({n.id: n for n in update.nodes})
            edges |= set(update.edges)
        full = memory.graph()
        assert set(nodes) == {n.id for n in full.nodes}
        assert all(nodes[n.id] is n or nodes[n.id].belief == n.belief for n in full.nodes)
        assert edges == set(full.edges)

    def test_the_same_object_seen_again_keeps_its_id(self, memory):
        first = memory.update(view([seen("red cube", PLACE)], stamp_ns=1))
        again = memory.update(view([seen("red cube", (0.501, 0.1, 0.02))], stamp_ns=2))
        assert [n.id for n in again.nodes] == [n.id for n in first.nodes]
        assert again.nodes[0].observations == 2

    def test_words_find_the_object_and_scores_are_sorted_between_0_and_1(self, memory):
        memory.update(view([seen("red cube", PLACE), seen("blue cup", (0.6, -0.1, 0.02))], stamp_ns=1))
        answer = memory.query(FindObject("blue cup"))
        assert answer.nodes[0].label == "blue cup"
        assert list(answer.scores) == sorted(answer.scores, reverse=True)
        assert all(0.0 <= score <= 1.0 for score in answer.scores)

    def test_a_radius_leaves_out_what_is_farther(self, memory):
        memory.update(view([seen("red cube", PLACE), seen("blue cup", (0.6, -0.1, 0.02))], stamp_ns=1))
        answer = memory.query(FindObject(place=np.array(PLACE), radius_m=0.05))
        assert [n.label for n in answer.nodes] == ["red cube"]

    def test_limit_is_the_most_that_comes_back(self, memory):
        memory.update(view([seen(f"thing {i}", (0.3 + 0.1 * i, 0, 0.02)) for i in range(4)], stamp_ns=1))
        assert len(memory.query(FindObject(limit=3)).nodes) == 3

    def test_an_empty_memory_answers_nothing_and_its_context_is_all_padding(self, memory):
        assert memory.query(FindObject("red cube")).nodes == ()
        tokens = memory.context("pick up the red cube", 5)
        assert not tokens.mask.any() and not tokens.tokens.any()

    def test_context_holds_the_object_with_its_place_and_age(self, memory):
        memory.update(view([seen("red cube", PLACE)], stamp_ns=1_000_000_000))
        tokens = memory.context("red cube", 3_500_000_000)
        assert tokens.tokens.shape[1] == EMBEDDING_DIM
        assert tokens.mask.tolist() == [True] + [False] * (len(tokens.mask) - 1)
        np.testing.assert_allclose(tokens.place[0], PLACE, atol=1e-6)
        assert tokens.age_s[0] == pytest.approx(2.5)
        np.testing.assert_array_equal(tokens.tokens[0], WordEncoder().encode(["red cube"])[0])
        assert tokens.version == memory.graph().sequence

    def test_the_same_observations_give_the_same_memory_bit_for_bit(self, memory):
        other = self.make()
        rng = np.random.default_rng(3)
        for step in range(10):
            scene = view([seen("red cube", PLACE + rng.normal(0, 0.002, 3))], stamp_ns=step)
            memory.update(scene)
            other.update(scene)
        a, b = memory.graph(), other.graph()
        assert [n.id for n in a.nodes] == [n.id for n in b.nodes]
        for mine, theirs in zip(a.nodes, b.nodes, strict=True):
            np.testing.assert_array_equal(mine.pose.position, theirs.pose.position)
            assert mine.belief == theirs.belief

    def test_commit_never_goes_back(self, memory):
        first = memory.commit()
        memory.update(view([seen("red cube", PLACE)], stamp_ns=1))
        assert memory.commit() >= first

    def test_tasks_may_be_told_to_any_memory_and_leave_its_objects_alone(self, memory):
        before = memory.update(view([seen("red cube", PLACE)], stamp_ns=1))
        robot = memory.introduce("robot0", PANDA_2F85.embodiment(), 2)
        assert robot.sequence == memory.graph().sequence >= before.sequence
        memory.begin_episode("reach", "go right", 2)
        memory.end_episode("reach", "failed", 3, (before.nodes[0].id,), "v0")
        memory.consolidate(0.01)
        assert memory.busy is False
        objects = {node.id: node.label for node in memory.graph().nodes if node.layer == "object"}
        assert list(objects.values()) == ["red cube"]
