"""Live outcomes last, and show that a version is worse only when it is."""

import numpy as np
import pytest

from engram.core.errors import StoreError
from engram.learning.live import ENOUGH, MOST, RECENT, LiveRecord, worse_than_before

BEFORE = {"reach": "1" * 20, "stack": "10" * 10, "never": "0" * 5}


def test_outcomes_last_and_versions_are_forgotten(tmp_path):
    record = LiveRecord(tmp_path / "outcomes.json")
    for number, (version, success) in enumerate([("a", True), ("b", False), ("a", False)], 1):
        record.add(number, version, "reach", success)
    record.keep(["a"])
    record.save()
    again = LiveRecord(tmp_path / "outcomes.json")
    assert (again.cursor, again.of("a"), again.of("b"), again.episodes("a")) == (3, {"reach": "10"}, {}, 2)


def test_the_order_lasts_and_a_helped_success_is_none_of_the_version(tmp_path):
    record = LiveRecord(tmp_path / "outcomes.json")
    for number, (version, success, helped) in enumerate([("a", True, False), ("a", True, True), ("b", False, False)]):
        record.add(number, version, "reach", success, helped=helped)
    record.save()
    again = LiveRecord(tmp_path / "outcomes.json")
    assert list(again.recent) == [("a", "1"), ("a", "h"), ("b", "0")] and again.of("a") == {"reach": "10"}
    for number in range(RECENT + 5):
        again.add(number, "c", "reach", True)
    assert len(again.recent) == RECENT


def test_the_record_is_bounded(tmp_path):
    record = LiveRecord(tmp_path / "outcomes.json")
    for number in range(MOST + 5):
        record.add(number, "a", "reach", True)
    assert record.episodes("a") == MOST
    assert record.cursor == MOST + 4


def test_of_another_store_it_is_counted_from_the_first_episode(tmp_path):
    record = LiveRecord(tmp_path / "outcomes.json")
    record.follow("one")
    record.add(7, "a", "reach", True)
    for store, cursor in (("one", 7), ("", 7), ("other", 0), ("other", 0)):
        record.follow(store)
        record.save()
        record = LiveRecord(tmp_path / "outcomes.json")
        assert (record.cursor, record.of("a")) == (cursor, {"reach": "1"})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cursor": 1}',
        '{"cursor": 1, "outcomes": {"a": {"reach": "1x"}}}',
        '{"cursor": 1, "outcomes": {}, "recent": [["a", "2"]]}',
    ],
)
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "outcomes.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"outcomes.json: the record of live episodes cannot be read"):
        LiveRecord(path)


@pytest.mark.parametrize(
    ("now", "worse"),
    [
        ({"reach": "0" * 10}, ("reach", "reach 0 of 10, before 20 of 20")),
        ({"reach": "1" * 20, "stack": "0" * 40}, ("stack", "stack 0 of 40, before 10 of 20")),
        ({"reach": "00"}, None),
        ({"never": "0" * 50, "new": "0" * 50}, None),
        ({}, None),
    ],
)
def test_what_is_shown_to_be_worse_is_named(now, worse):
    assert worse_than_before(now, BEFORE, 0.05) == worse


def test_the_newest_version_that_was_tried_enough_tells_how_it_went(tmp_path):
    live = LiveRecord(tmp_path / "outcomes.json")
    tried = {"a": {"reach": 50}, "b": {"reach": ENOUGH, "stack": 3}, "c": {"reach": ENOUGH - 1, "stack": 3}, "d": {}}
    for version, of in tried.items():
        for task, count in of.items():
            for number in range(count):
                live.add(number, version, task, True)
    assert live.shown(["a", "b", "c", "d"]) == {"reach": "b", "stack": "c"}
    assert live.shown(["b", "a"]) == {"reach": "a", "stack": "b"}
    assert live.shown(["d"]) == live.shown([]) == {}


def test_an_equal_version_is_seldom_rolled_back():
    rng = np.random.default_rng(0)

    def outcomes(rate, n):
        return "".join("01"[int(x)] for x in rng.random(n) < rate)

    wrong = sum(
        bool(worse_than_before({"a": outcomes(0.7, 40), "b": outcomes(0.9, 40)}, before, 0.05))
        for before in ({"a": outcomes(0.7, 15), "b": outcomes(0.9, 15)} for _ in range(300))
    )
    assert wrong <= 15  # 0.05 of 300; the bounds alone keep it far below
