"""Questions in words, each with the query that it means. It is Saturday 21 November 2026, 15:30 UTC."""

from __future__ import annotations

import datetime as dt

import pytest

from engram.memory.questions import QuestionConfig, parse


def at(day: int, hour: int, minute: int = 0) -> int:
    """Return the stamp of a time in November 2026, UTC."""
    return round(dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC).timestamp() * 10**9)


NOW = at(21, 15, 30)


@pytest.mark.parametrize(
    ("words", "text", "relation", "target"),
    [
        ("where is the red cup?", "red cup", "", ""),
        ("Where are my keys", "keys", "", ""),
        ("what is in the drawer", "", "in", "drawer"),
        ("what is there on the kitchen table?", "", "on", "kitchen table"),
        ("is the cup on the table?", "cup", "on", "table"),
        ("the cup next to the sink", "cup", "near", "sink"),
        ("what is the robot holding?", "", "held_by", "robot"),
        ("what did the robot hold", "", "held_by", "robot"),
        ("where did you last see the scissors", "scissors", "", ""),
        ("blue mug", "blue mug", "", ""),
    ],
)
def test_objects_and_relations_of_today(words, text, relation, target):
    query = parse(words, NOW)
    assert (query.text, query.relation, query.target) == (text, relation, target)
    assert query.valid_ns is None and query.believed_ns is None


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("where was the red cup before lunch", at(21, 0), at(21, 12)),
        ("where was the red cup at 10:00", at(21, 10), at(21, 10)),
        ("where was the red cup yesterday at 9 pm", at(20, 21), at(20, 21)),
        ("where was the red cup yesterday", at(20, 0), at(21, 0)),
        ("where was the red cup yesterday before breakfast", at(20, 0), at(20, 7, 30)),
        ("where was the red cup on tuesday", at(17, 0), at(18, 0)),
        ("where was the red cup this morning", at(21, 5), at(21, 12)),
        ("where was the red cup after lunch", at(21, 13), NOW),
        ("where was the red cup 20 minutes ago", at(21, 15, 10), at(21, 15, 10)),
        ("where was the red cup half an hour ago", at(21, 15), at(21, 15)),
        ("where was the red cup on 2026-11-19 08:05", at(19, 8, 5), at(19, 8, 5)),
        ("where was the red cup at 12.5 s", 12_500_000_000, 12_500_000_000),
    ],
)
def test_times(words, start, end):
    query = parse(words, NOW)
    assert query.text == "red cup"
    assert query.valid_ns[0] == start
    assert abs(query.valid_ns[1] - end) <= 1000  # "before" ends a microsecond earlier
    assert query.believed_ns is None


def test_what_was_believed_is_another_question():
    query = parse("What did you think was in the drawer at 10:00?", NOW)
    assert (query.relation, query.target, query.text) == ("in", "drawer", "")
    assert query.valid_ns == (at(21, 10), at(21, 10)) and query.believed_ns == at(21, 10)


def test_local_time_and_names_of_hours_are_a_setting():
    config = QuestionConfig(utc_offset_h=1.0, named={"tea": (16.0, 16.5)})
    query = parse("where was the cup before tea", NOW, config=config)
    assert query.valid_ns[0] == at(20, 23)
    assert query.text == "cup"
