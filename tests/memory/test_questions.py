"""Questions in words, each with the query that it means. It is Saturday 21 November 2026, 15:30 UTC."""

from __future__ import annotations

import datetime as dt
import re
import time
from zoneinfo import ZoneInfo

import pytest

from engram.core.errors import InvalidInputError
from engram.core.questions import AtTime, FindObject
from engram.memory.query import grammar
from engram.memory.query.grammar import split_relation
from engram.memory.query.language import parse as parsed
from engram.memory.query.phrases import age
from engram.memory.query.time_words import ACCEPTED
from engram.memory.query.times import QuestionConfig
from engram.memory.query.unread import Unread


def at(day: int, hour: int, minute: int = 0) -> int:
    """Return the stamp of a time in November 2026, UTC."""
    return round(dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC).timestamp() * 10**9)


NOW = at(21, 15, 30)


def parse(words: str, now_ns: int, config: QuestionConfig | None = None):
    """Return what the question in ``words`` filters a memory by."""
    return parsed(words, now_ns, config=config).selection()


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
        ("where was the red cup at 12 am", at(21, 0), at(21, 0)),
        ("where was the red cup on 2026-11-19 at 12:30 pm", at(19, 12, 30), at(19, 12, 30)),
    ],
)
def test_times(words, start, end):
    query = parse(words, NOW)
    assert query.text == "red cup"
    assert query.valid_ns[0] == start
    assert abs(query.valid_ns[1] - end) <= 1000  # "before" ends a microsecond earlier
    assert query.believed_ns is None


ALWAYS = 0
"""Where an interval begins that has no begin."""


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("20 min ago", at(21, 15, 10), at(21, 15, 10)),
        ("5 mins ago", at(21, 15, 25), at(21, 15, 25)),
        ("30 secs ago", NOW - 30 * 10**9, NOW - 30 * 10**9),
        ("2 hrs ago", at(21, 13, 30), at(21, 13, 30)),
        ("thirty minutes ago", at(21, 15), at(21, 15)),
        ("twenty-five minutes ago", at(21, 15, 5), at(21, 15, 5)),
        ("six hours ago", at(21, 9, 30), at(21, 9, 30)),
        ("an hour and a half ago", at(21, 14), at(21, 14)),
        ("2 hours and 10 minutes ago", at(21, 13, 20), at(21, 13, 20)),
        ("1 hr 30 min ago", at(21, 14), at(21, 14)),
        ("about 20 minutes ago", at(21, 15, 10), at(21, 15, 10)),
        ("since 20 minutes ago", at(21, 15, 10), NOW),
        ("in the last 10 minutes", at(21, 15, 20), NOW),
        ("in the past week", at(14, 15, 30), NOW),
        ("last week", at(9, 0), at(16, 0)),
        ("this week", at(16, 0), NOW),
        ("last month", at(1, 0) - 31 * 86_400 * 10**9, at(1, 0)),
        ("this month", at(1, 0), NOW),
    ],
)
def test_stretches_of_time_are_understood_in_units_and_numbers_as_people_say_them(words, start, end):
    query = parse(f"where was the red cup {words}", NOW)
    assert (query.text, query.valid_ns) == ("red cup", (start, end))


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("at 10:00:30", at(21, 10) + 30 * 10**9, at(21, 10) + 30 * 10**9),
        ("at 9.30", at(21, 9, 30), at(21, 9, 30)),
        ("at ten o'clock", at(21, 10), at(21, 10)),
        ("at 9 p.m.", at(20, 21), at(20, 21)),
        ("yesterday 9pm", at(20, 21), at(20, 21)),
        ("yesterday at 9 in the evening", at(20, 21), at(20, 21)),
        ("at midnight", at(21, 0), at(21, 0)),
        ("before midnight", at(20, 0), at(21, 0)),
        ("yesterday before midnight", at(20, 0), at(21, 0)),
        ("before noon", at(21, 0), at(21, 12)),
        ("since this morning", at(21, 5), NOW),
        ("2026-11-20T10:00Z", at(20, 10), at(20, 10)),
        ("at 2026-11-20T10:00:30+01:00", at(20, 9) + 30 * 10**9, at(20, 9) + 30 * 10**9),
        ("2026-11-20 10:00:00 UTC", at(20, 10), at(20, 10)),
        ("2 days ago at 10:00", at(19, 10), at(19, 10)),
        ("two days ago in the morning", at(19, 5), at(19, 12)),
        ("tuesday morning", at(17, 5), at(17, 12)),
        ("last night at 22:00", at(20, 22), at(20, 22)),
        ("last night at 2 am", at(21, 2), at(21, 2)),
    ],
)
def test_times_of_a_day_are_understood_with_the_day_that_was_said(words, start, end):
    query = parse(f"where was the red cup {words}", NOW)
    assert query.text == "red cup"
    assert query.valid_ns[0] == start and abs(query.valid_ns[1] - end) <= 1000


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("before yesterday", ALWAYS, at(20, 0)),
        ("since yesterday", at(20, 0), NOW),
        ("until yesterday", ALWAYS, at(21, 0)),
        ("after yesterday", at(21, 0), NOW),
        ("before tuesday", ALWAYS, at(17, 0)),
        ("since monday", at(16, 0), NOW),
        ("before 2026-11-20", ALWAYS, at(20, 0)),
        ("after 2026-11-20 10:00", at(20, 10), NOW),
        ("since yesterday at 10:00", at(20, 10), NOW),
        ("before last week", ALWAYS, at(9, 0)),
        ("before 10:00 yesterday", at(20, 0), at(20, 10)),
        ("before 12.5 s", ALWAYS, 12_500_000_000),
    ],
)
def test_before_and_since_hold_for_days_as_for_times_of_day(words, start, end):
    query = parse(f"where was the red cup {words}", NOW)
    assert query.text == "red cup"
    assert query.valid_ns[0] == start and abs(query.valid_ns[1] - end) <= 1000


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("between 10:00 and 11:00", at(21, 10), at(21, 11)),
        ("from 9:00 to 10:00", at(21, 9), at(21, 10)),
        ("yesterday between 10:00 and 11:00", at(20, 10), at(20, 11)),
        ("between 10:00 and 11:00 on tuesday", at(17, 10), at(17, 11)),
        ("between 9 and 10 pm", at(20, 21), at(20, 22)),
        ("from 22:00 to 6:00", at(20, 22), at(21, 6)),
        ("between yesterday 10:00 and today 9:00", at(20, 10), at(21, 9)),
        ("between 2026-11-19 10:00 and 11:00", at(19, 10), at(19, 11)),
        ("between monday and wednesday", at(16, 0), at(19, 0)),
        ("from yesterday until now", at(20, 0), NOW),
        ("between breakfast and lunch", at(21, 8, 30), at(21, 12)),
        ("between 20 minutes ago and 10 minutes ago", at(21, 15, 10), at(21, 15, 20)),
        ("between 20 and 10 minutes ago", at(21, 15, 10), at(21, 15, 20)),
        ("between 3 and 5 s", 3 * 10**9, 5 * 10**9),
        ("between 3 s and 5 s", 3 * 10**9, 5 * 10**9),
        ("between 850 and 960 s", 850 * 10**9, 960 * 10**9),
        ("from 850.5 to 960 seconds", 850_500_000_000, 960 * 10**9),
    ],
)
def test_a_time_may_have_two_ends(words, start, end):
    query = parse(f"where was the red cup {words}", NOW)
    assert (query.text, query.valid_ns) == ("red cup", (start, end))


@pytest.mark.parametrize("seconds", [0.3, 1, 119, 121, 7199, 7200, 3 * 86400, 30 * 86400, 91 * 86400, 3 * 366 * 86400])
def test_an_age_that_the_memory_tells_is_understood_when_it_is_asked_for(seconds):
    """To half of the unit that it is told in, at most half of what it says."""
    start, end = parse(f"where was the red cup {age(round(seconds * 10**9))} ago", NOW).valid_ns
    assert start == end and abs((NOW - start) / 1e9 - seconds) <= max(0.7, 0.1 * seconds)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("at 10:00 at 11:00", "'at 10:00', 'at 11:00'"),
        ("20 minutes ago at 10:00", "'20 minutes ago', 'at 10:00'"),
        ("between 20 and 10min ago", "'between 20', 'and 10min ago'"),
        ("yesterday and today", "'yesterday', 'today'"),
        ("before yesterday after lunch", "'before yesterday', 'after lunch'"),
        ("yesterday morning at 22:00", "'morning', 'at 22:00'"),
    ],
)
def test_times_that_do_not_go_together_are_named_with_the_forms_that_are_understood(words, named):
    with pytest.raises(InvalidInputError, match=rf"^{named}: not understood as a time; .* '20 minutes ago'"):
        parse(f"where was the red cup {words}", NOW)


def test_every_form_that_the_error_lists_is_understood():
    forms = re.findall("'([^']+)'", ACCEPTED)
    assert len(forms) > 12
    for form in forms:
        question = parsed(f"where was the red cup {form}", NOW)
        assert isinstance(question, FindObject if form == "now" else AtTime) and question.selection().text == "red cup"
        assert not isinstance(question, AtTime) or isinstance(question.question, FindObject)


def test_a_range_that_ends_before_it_begins_is_named():
    with pytest.raises(InvalidInputError, match="'from wednesday to monday': ends before it begins"):
        parse("where was the cup from wednesday to monday", NOW)


def test_a_part_of_this_day_that_is_still_to_come_is_not_that_of_yesterday():
    with pytest.raises(InvalidInputError, match="2026-11-21 18:00 is still to come"):
        parse("where was the red cup this evening", NOW)


def test_a_long_sentence_is_read_in_no_time():
    """Many durations of which none is "ago": each may be the begin of a time, or "an d" the day in "and"."""
    words = "where was the cup " + "20 minutes and 3 hours and " * 36
    assert isinstance(parsed(words, NOW), Unread)


def test_a_relation_is_found_in_a_time_that_grows_with_the_sentence_alone(monkeypatch):
    """Whoever reads it holds Python's lock: of 65,000 characters, a minute is a node that nobody hears any more."""
    monkeypatch.setattr(grammar, "WORDS_MAX", 10**6)
    begin = time.process_time()
    assert split_relation("in a " * 13000 + "!") == ("in a " * 13000 + "!", "", "")
    assert split_relation("cup " + "in a " * 13000 + "box")[:2] == ("cup", "in")
    assert time.process_time() - begin < 1.0


def test_longer_words_than_people_say_are_no_question():
    with pytest.raises(InvalidInputError, match="question: 1001 characters, expected at most 1000"):
        parsed("x" * 1001, NOW)
    assert split_relation("cup in the " + "x" * 1000)[1:] == ("", "")


def test_what_was_believed_is_another_question():
    query = parse("What did you think was in the drawer at 10:00?", NOW)
    assert (query.relation, query.target, query.text) == ("in", "drawer", "")
    assert query.valid_ns == (at(21, 10), at(21, 10)) and query.believed_ns == at(21, 10)


def test_local_time_and_names_of_hours_are_a_setting():
    config = QuestionConfig(utc_offset_h=1.0, named={"tea": (16.0, 16.5)})
    query = parse("where was the cup before tea", NOW, config=config)
    assert query.valid_ns[0] == at(20, 23)
    assert query.text == "cup"


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("where was the red cup at 18:00", at(20, 18), at(20, 18)),
        ("where was the red cup at 15:30", NOW, NOW),
        ("where was the red cup during dinner", at(20, 18, 30), at(20, 19, 30)),
        ("where was the red cup in the evening", at(20, 18), at(20, 23)),
        ("where was the red cup after 18:00", at(20, 18), at(21, 0)),
        ("where was the red cup since 18:00", at(20, 18), NOW),
        ("where was the red cup before 18:00", at(21, 0), NOW),
    ],
)
def test_a_time_without_a_day_is_the_last_one_there_was(words, start, end):
    assert parse(words, NOW).valid_ns == (start, end)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("where was the cup at 25:00", "'25:00': expected a time of day, 0:00 to 23:59 or 12 am to 11:59 pm"),
        ("where was the cup at 10:99", "'10:99': expected a time of day"),
        ("where was the cup yesterday before 13 pm", "'13 pm': expected a time of day"),
        ("where was the cup at 0 am", "'0 am': expected a time of day"),
        ("where was the cup at 2026-11-21 25:00", "'2026-11-21 25:00': expected a date and a time"),
        ("where was the cup at 2026-11-21 10:00:61", "'2026-11-21 10:00:61': expected a date and a time"),
        ("where was the cup at 2026-13-45 10:00", "'2026-13-45 10:00': expected a date and a time"),
        ("where was the cup on 2026-02-30", "'2026-02-30': expected a date such as 2026-11-21"),
    ],
)
def test_a_time_that_cannot_be_is_named_with_the_form_expected(words, named):
    with pytest.raises(InvalidInputError, match=named):
        parse(words, NOW)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (
            "where was the red cup today at 18:00",
            "2026-11-21 18:00 is still to come, it is 2026-11-21 15:30: ask",
        ),
        ("what is in the drawer today after 18:00", "2026-11-21 18:00 is still to come"),
        ("what did you think was in the drawer today at 18:00", "2026-11-21 18:00 is still to come"),
        ("which robots could reach the cup today in the evening", "2026-11-21 18:00 is still to come"),
        ("where is the red cup tonight", "2026-11-21 20:00 is still to come"),
        ("where will the red cup be tomorrow", "2026-11-22 00:00 is still to come"),
        ("where was the red cup on 2026-12-24 10:00", "2026-12-24 10:00 is still to come, .* or without a time"),
    ],
)
def test_what_is_still_to_come_is_not_answered_as_if_it_had_been(words, named):
    with pytest.raises(InvalidInputError, match=named):
        parse(words, NOW)


def test_what_is_still_to_come_is_told_by_the_clock_that_is_asked_by():
    with pytest.raises(InvalidInputError, match=r"^2026-11-21 18:00 is still to come, it is 2026-11-21 16:30"):
        parse("where was the cup today at 18:00", NOW, config=QuestionConfig(utc_offset_h=1.0))
    with pytest.raises(InvalidInputError, match=r"^20\.0 s is still to come, it is 12\.4 s"):
        parse("where was the cup at 20 s", 12_360_000_000)
    assert parse("where was the cup at 12.4 s", 12_360_000_000).valid_ns == (12_360_000_000, 12_360_000_000)
    assert parse("where was the cup today before 18:00", NOW).valid_ns == (at(21, 0), NOW)
    for seconds in (10**13, 10**17):  # no date has so many
        with pytest.raises(InvalidInputError, match=rf"^{seconds}\.0 s is still to come, it is 2026-11-21 15:30"):
            parse(f"where was the cup at {seconds} s", NOW)


def test_an_offset_that_no_place_on_earth_has_is_refused():
    for hours in (float("nan"), 15.0, -14.5):
        with pytest.raises(InvalidInputError, match=f"utc_offset_h: {hours}, expected -14..14 hours"):
            QuestionConfig(utc_offset_h=hours)


def test_after_midnight_tonight_is_the_night_that_began_the_day_before():
    assert parse("where was the cup tonight", at(21, 2)).valid_ns == (at(20, 20), at(21, 2))
    assert parse("where was the cup this night", at(21, 2)).valid_ns == (at(20, 20), at(21, 2))
    assert parse("where was the cup tonight", at(21, 22)).valid_ns == (at(21, 20), at(21, 22))


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("last night", at(20, 20), at(21, 5)),
        ("at night", at(20, 20), at(21, 5)),
        ("in the night", at(20, 20), at(21, 5)),
        ("yesterday night", at(20, 20), at(21, 5)),
        ("on tuesday night", at(17, 20), at(18, 5)),
        ("since last night", at(20, 20), NOW),
        ("after last night", at(21, 5), NOW),
        ("until last night", ALWAYS, at(21, 5)),
        ("before last night", ALWAYS, at(20, 20)),
        ("after tuesday night", at(18, 5), NOW),
        ("after the night", at(21, 5), NOW),
        ("at 9 at night", at(20, 21), at(20, 21)),
        ("at 2 at night", at(21, 2), at(21, 2)),
        ("at 12 at night", at(21, 0), at(21, 0)),
        ("last night at 9", at(20, 21), at(20, 21)),
        ("last night at 11:30", at(20, 23, 30), at(20, 23, 30)),
        ("last night at 7", at(20, 19), at(20, 19)),
        ("last night at 3", at(21, 3), at(21, 3)),
        ("last night at midnight", at(21, 0), at(21, 0)),
        ("on tuesday night at 2 am", at(18, 2), at(18, 2)),
    ],
)
def test_a_night_ends_where_the_next_morning_begins(words, start, end):
    query = parse(f"where was the red cup {words}", NOW)
    assert query.text == "red cup"
    assert query.valid_ns[0] == start and abs(query.valid_ns[1] - end) <= 1000


def test_at_an_hour_of_the_night_that_is_still_to_come_is_the_last_one_there_was():
    assert parse("where was the cup at 2 at night", at(21, 1)).valid_ns == (at(20, 2), at(20, 2))


# -- the time zone of the machine ------------------------------------------------------------------------------------


@pytest.fixture
def berlin(monkeypatch):
    """The machine stands in Berlin, where summer time ended on 25 October 2026 at 3:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def local(month: int, day: int, hour: int, minute: int = 0) -> int:
    """Return the stamp of a time of 2026 in Berlin."""
    return round(dt.datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 10**9)


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("on saturday at 10:00", local(10, 24, 10), local(10, 24, 10)),
        ("2026-10-24 10:00", local(10, 24, 10), local(10, 24, 10)),
        ("3 days ago at 10:00", local(10, 24, 10), local(10, 24, 10)),
        ("on saturday", local(10, 24, 0), local(10, 25, 0)),
        ("on sunday", local(10, 25, 0), local(10, 26, 0)),
        ("on saturday night", local(10, 24, 20), local(10, 25, 5)),
        ("on sunday after lunch", local(10, 25, 13), local(10, 26, 0)),
        ("since sunday", local(10, 25, 0), local(10, 27, 9)),
        ("between saturday and monday", local(10, 24, 0), local(10, 27, 0)),
        ("last week", local(10, 19, 0), local(10, 26, 0)),
        ("this month", local(10, 1, 0), local(10, 27, 9)),
        ("last month", local(9, 1, 0), local(10, 1, 0)),
        ("at 8:00", local(10, 27, 8), local(10, 27, 8)),
        ("at 10:00", local(10, 26, 10), local(10, 26, 10)),
        ("from saturday 22:00 to 6:00", local(10, 24, 22), local(10, 25, 6)),
        ("2026-10-24T08:00Z", local(10, 24, 10), local(10, 24, 10)),
    ],
)
def test_times_of_day_are_those_of_the_machine_at_their_date(berlin, words, start, end):
    query = parse(f"where was the red cup {words}", local(10, 27, 9), QuestionConfig(utc_offset_h=None))
    assert (query.text, query.valid_ns) == ("red cup", (start, end))


def test_a_machine_that_lost_an_hour_had_a_shorter_day(berlin):
    config = QuestionConfig(utc_offset_h=None)
    day = parse("where was the cup yesterday", local(3, 30, 9), config).valid_ns
    assert day == (local(3, 29, 0), local(3, 30, 0)) and day[1] - day[0] == 23 * 3600 * 10**9
    morning = parse("where was the cup yesterday at 10:00", local(3, 30, 9), config).valid_ns
    assert morning == (local(3, 29, 10), local(3, 29, 10))


def test_more_days_than_there_were_are_named():
    with pytest.raises(InvalidInputError, match=r"'999999999 days ago': expected at most 73[0-9]{4} days"):
        parse("where was the cup 999999999 days ago at 10:00", NOW)


@pytest.mark.parametrize("date", ["9999-12-31", "0001-01-01"])
def test_a_date_beside_which_there_is_none_is_named(date):
    with pytest.raises(InvalidInputError, match=f"'{date}': expected a year from 2 to 9998"):
        parse(f"where was the cup on {date}", NOW)
