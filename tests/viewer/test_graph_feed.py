"""Which graph the page shows, against a memory of this test that answers when it is told to."""

import pytest

from engram.core.types import GraphUpdate
from engram.viewer.graph_feed import LOST_S, RETRY_S, GraphFeed
from tests.viewer.scenes import scene_node

SECOND = 10**9


class Memory:
    """Keeps what it is asked."""

    def __init__(self) -> None:
        self.there = True
        self.asked: list[tuple] = []

    def __call__(self, at_ns, then) -> bool:
        if self.there:
            self.asked.append((at_ns, then))
        return self.there

    def answer(self, update: GraphUpdate) -> None:
        self.asked.pop(0)[1]("boot", update)


def update(sequence, *names, full=False):
    return GraphUpdate(sequence * SECOND, sequence, full, tuple(scene_node(name, name, 0.4) for name in names))


@pytest.fixture
def page(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("engram.viewer.graph_feed.time.monotonic", lambda: clock[0])
    memory, shown = Memory(), []
    return GraphFeed(memory, shown.append, lambda oldest, now: None, lambda: 0), memory, shown, clock


def labels(graph):
    return sorted(graph.nodes)


def test_changes_are_followed_and_a_gap_asks_for_everything(page):
    feed, memory, shown, _ = page
    feed.take("boot", update(1, "cup", full=True))
    feed.refresh()
    feed.take("boot", update(3, "box"))  # 2 was missed
    assert [at for at, _ in memory.asked] == [None]
    memory.answer(update(3, "cup", "box", full=True))
    feed.refresh()
    feed.refresh()  # nothing new: nothing is shown again
    assert [labels(graph) for graph in shown] == [["cup"], ["box", "cup"]]


def test_while_the_slider_moves_one_request_is_under_way(page):
    feed, memory, shown, _ = page
    for second in (1, 2, 3):
        feed.go_to(second * SECOND)
    assert [at for at, _ in memory.asked] == [SECOND]
    memory.answer(update(1, "cup", full=True))
    assert [at for at, _ in memory.asked] == [3 * SECOND]
    memory.answer(update(3, "box", full=True))
    feed.refresh()
    feed.refresh()
    assert len(shown) == 1
    assert (labels(shown[-1]), shown[-1].stamp_ns, shown[-1].past) == (["box"], 3 * SECOND, True)


def test_a_request_that_nobody_answers_does_not_block_the_next(page):
    """The memory that was asked is gone; another one answers in its place."""
    feed, memory, shown, clock = page
    feed.go_to(SECOND)
    memory.asked.clear()
    clock[0] += LOST_S + 0.1
    feed.go_to(2 * SECOND)
    memory.answer(update(2, "box", full=True))
    feed.refresh()
    assert labels(shown[-1]) == ["box"]


def test_what_nobody_answers_is_asked_again(page):
    """A memory that is busy refuses to answer; meanwhile somebody moves the slider on."""
    feed, memory, shown, clock = page
    feed.go_to(SECOND)
    feed.go_to(2 * SECOND)
    memory.asked.clear()
    feed.refresh()
    assert not memory.asked
    clock[0] += LOST_S + 0.1
    feed.refresh()
    feed.refresh()
    assert [at for at, _ in memory.asked] == [2 * SECOND]
    memory.answer(update(2, "box", full=True))
    feed.refresh()
    assert labels(shown[-1]) == ["box"]


def test_what_could_not_be_shown_is_shown_at_the_next_refresh(page):
    """The library of the page fails now and then: its event is no matter of several threads."""
    feed, memory, shown, _ = page

    def failing_refresh():
        feed._show, works = (lambda graph: 1 / 0), feed._show
        with pytest.raises(ZeroDivisionError):
            feed.refresh()
        feed._show = works

    feed.take("boot", update(1, "cup", full=True))
    failing_refresh()
    feed.refresh()
    feed.go_to(SECOND)
    memory.answer(update(1, "box", full=True))
    failing_refresh()
    feed.refresh()
    feed.refresh()
    assert [(labels(graph), graph.past) for graph in shown] == [(["cup"], False), (["box"], True)]


def test_a_past_that_comes_after_the_way_back_is_not_shown(page):
    feed, memory, shown, _ = page
    feed.take("boot", update(1, "cup", full=True))
    feed.go_to(SECOND)
    memory.answer(update(1, "box", full=True))
    feed.go_to(None)
    feed.refresh()
    assert [(labels(graph), graph.past) for graph in shown] == [(["cup"], False)]


def test_a_past_that_is_wanted_before_the_memory_is_there_is_asked_for_when_it_comes(page):
    feed, memory, shown, clock = page
    memory.there = False
    feed.go_to(SECOND)
    memory.there = True
    feed.refresh()
    assert not memory.asked  # not at every refresh
    clock[0] += RETRY_S + 0.1
    feed.refresh()
    memory.answer(update(1, "cup", full=True))
    feed.refresh()
    assert labels(shown[-1]) == ["cup"]


def test_after_a_gap_the_live_graph_is_asked_for_until_it_comes_also_if_nothing_changes_any_more(page):
    feed, memory, shown, _ = page
    feed.take("boot", update(1, "cup", full=True))
    feed.ask_until_known()
    assert not memory.asked
    memory.there = False
    feed.take("boot", update(3, "box"))  # 2 was missed
    memory.there = True
    feed.ask_until_known()
    memory.answer(update(3, "cup", "box", full=True))
    feed.ask_until_known()
    feed.refresh()
    assert labels(shown[-1]) == ["box", "cup"] and not memory.asked


def test_one_request_for_the_live_graph_is_under_way_and_a_lost_one_is_repeated(page):
    feed, memory, shown, clock = page
    for _ in range(30):  # a large graph takes long, and more requests would make it later still
        feed.ask_until_known()
        clock[0] += 0.9 * LOST_S / 30
    assert len(memory.asked) == 1
    clock[0] += LOST_S
    feed.ask_until_known()
    assert len(memory.asked) == 2
    memory.answer(update(1, "cup", full=True))
    feed.refresh()
    assert labels(shown[-1]) == ["cup"]
