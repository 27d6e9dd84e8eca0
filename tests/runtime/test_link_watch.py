"""When the link counts as lost, and when as restored. Times are seconds of a clock that the test turns."""

import pytest

from engram.core.errors import InvalidInputError
from engram.runtime.link_watch import LinkWatch


def test_a_cut_is_lost_once_and_restored_once_with_its_length():
    watch = LinkWatch(("learner_node", "viewer_node"), 3.0)
    assert watch.look(0.0) == "not heard of yet: learner_node, viewer_node"
    assert watch.state == "waiting"
    for second in range(5):
        watch.heard("learner_node", second)
        watch.heard("viewer_node", second)
        assert watch.look(second) == ""
    assert watch.state == "up"
    assert watch.look(6.9) == watch.news == ""
    for now in (7.0, 9.0, 11.0):
        told = f"nothing from learner_node for {now - 4:.0f} s; nothing from viewer_node for {now - 4:.0f} s"
        assert watch.look(now) == told
        assert watch.news == (f"link lost: {told}" if now == 7.0 else "")
    assert (watch.state, watch.losses, watch.restorations) == ("lost", 1, 0)
    watch.heard("viewer_node", 14.0)
    assert watch.look(14.0) == "nothing from learner_node for 10 s"
    watch.heard("learner_node", 14.5)
    assert watch.look(14.5) == ""
    assert watch.news == "link restored after 10.5 s at most"
    told = {"link": "up", "link lost": "1", "link restored": "1", "longest silence s": "10.5"}
    assert watch.notes() == told


def test_late_reports_are_no_cut_and_strangers_no_peers():
    watch = LinkWatch(("far",), 3.0)
    for now in (0.0, 2.9, 5.8):
        watch.heard("far", now)
        watch.heard("stranger", now)
        assert watch.look(now) == ""
    watch.look(60.0)
    assert (watch.losses, watch.longest_s) == (1, 0.0)


def test_peers_are_named_once_and_the_time_is_positive():
    with pytest.raises(InvalidInputError, match="peers: a, a: expected different names"):
        LinkWatch(("a", "a"), 3.0)
    with pytest.raises(InvalidInputError, match=r"lost_after_s: nan, expected more than 0"):
        LinkWatch(("a",), float("nan"))
