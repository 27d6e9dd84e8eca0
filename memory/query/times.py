"""Expressions of time in English: "yesterday before lunch", "at 10:00", "20 minutes ago" -> an interval.

A sentence is searched for the times in it (a day, a time of day, a moment or a stretch of time), each with the word
before it, such as "before". These are then put together.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from engram.core.errors import InvalidInputError
from engram.memory.query import time_words as tw
from engram.memory.query.time_words import DAY, SECOND, not_understood, one_of

_Span = tuple[int, int]
_YEAR_NS = 365 * DAY
"""What is less is no date."""
_DATES_NS = 8000 * _YEAR_NS
"""Nor is what is more: Python's years have four digits."""
_JUST_BEFORE_NS = 1000
_HOUR = 3600 * SECOND
_ONE_DAY = dt.timedelta(days=1)
MEALS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"breakfast": (7.5, 8.5), "lunch": (12.0, 13.0), "dinner": (18.5, 19.5), "supper": (18.5, 19.5)}
)
"""Hours of the day that are called by a name, begin and end."""
_SIDES = {"till": "until", "up to": "until", "by": "until"}
"""Other words for "until"."""
_BOUNDS = ("before", "after", "since", "until", "from")
_RANGES = {"between": ("and",), "from": ("to", "until"), "since": ("until", "before"), "after": ("until", "before")}
"""The word before the first time of a range -> those before its last."""
_BARE_SECONDS = re.compile(
    rf"(?<!\S)((?:between|from|since|after) \d{{1,18}}(?:\.\d+)?) (?=(?:and|to|until|before) {tw.RUN_TIME}(?!\S| ago))"
)
"""The first of two times on a simulation's clock of which only the last has its unit: "between 850 and 960 s"."""
_GOING_ON = ("in", "on", "near", "next", "beside", "by", "close", "inside", "held", "at", "and", "to", "until", "till")
"""Words that may follow a time."""
_PREPOSITIONS = (*_BOUNDS, *_SIDES, "between", "and", "to", "during", "throughout", "over", "within", "for", "at", "on",
                 "in", "of")  # fmt: skip


@dataclass(frozen=True)
class QuestionConfig:
    """What times of day mean."""

    utc_offset_h: float | None = 0.0
    """Local time less UTC [h]; stamps are UTC. None = the time zone of this machine, as it is at each date."""
    named: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MEALS)
    """Begin and end of named times of day [h]."""

    def __post_init__(self) -> None:
        if self.utc_offset_h is not None and not -14.0 <= self.utc_offset_h <= 14.0:
            raise InvalidInputError(f"utc_offset_h: {self.utc_offset_h}, expected -14..14 hours")


_KINDS = ("now", "ago", "iso", "run", "window", "night", "day", "weekday", "part", "meal", "clock")
"""What times there are; "iso" is a date with a time of day, "run" the seconds of a simulation's own clock."""


@dataclass(frozen=True)
class _Time:
    """A time in a sentence, as it was said."""

    kind: str  # one of _KINDS
    said: str
    side: str  # the word before it: one of _PREPOSITIONS; "" = none
    this: bool
    article: bool
    about: bool  # "around 10:00"

    @property
    def of_day(self) -> bool:
        """Whether it is a time of any day."""
        return self.kind in ("part", "meal", "clock")

    @property
    def is_day(self) -> bool:
        """Whether it is a day."""
        return self.kind in ("day", "weekday")

    @property
    def text(self) -> str:
        """How it was said, with the word before it."""
        return f"{self.side} {self.said}".strip()


@dataclass(frozen=True)
class _Stretch:
    """What one or two times mean: an interval [ns], and what lies around it."""

    begin: int
    end: int
    whole: bool = True  # since, until: with what lies between begin and end, as a day, not a meal
    day: bool = False  # which day is meant was said
    around: dt.date | None = None  # the day that "before" and "after" stay within; None = they do not


class Times:
    """Takes the expressions of time out of a sentence."""

    def __init__(self, now_ns: int, config: QuestionConfig) -> None:
        offset_h = config.utc_offset_h  # a datetime without a zone is one of this machine's
        self._zone = None if offset_h is None else dt.timezone(dt.timedelta(hours=offset_h))
        self._now_ns, self._named = now_ns, config.named
        self._now = dt.datetime.fromtimestamp(now_ns / 1e9, self._zone)
        self._today = self._now.date()

    def take(self, words: str) -> tuple[str, _Span | None]:
        """Return the rest of ``words`` and the interval [ns] that was meant; None = now.

        A time of day without a day is the last one there was. Words of time that are not understood stay in the rest:
        see :func:`engram.memory.query.time_words.unread`.

        Raises:
            InvalidInputError: the time is still to come, does not exist, or several do not go together.
        """
        words = _BARE_SECONDS.sub(r"\1 s ", re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", words))
        matches = list(_pattern(tuple(self._named)).finditer(words))
        times, rest, end = list[_Time](), "", 0
        for i, match in enumerate(matches):
            time = _time(match)
            if time.side in ("and", "to") and not any(one.side in ("between", "from") for one in times):
                time = replace(time, side="")  # the cup and 2 bowls
            if _is_said(time, match, words, matches[i - 1 : i] if i else [], matches[i + 1 : i + 2]):
                rest, end = f"{rest} {words[end : match.start()]}", match.end()
                times.append(time)
        rest = " ".join(f"{rest} {words[end:]}".split())
        if not times or ([time.kind for time in times] == ["now"] and times[0].side not in _BOUNDS):
            return rest, None
        begin, end_ns = self._joined(times)
        return rest, self._gone_by(begin, end_ns)

    def _gone_by(self, start: int, end: int) -> _Span:
        """Return what has gone by of an interval [ns]."""
        if start > self._now_ns + SECOND:  # a clock is read rounded
            raise InvalidInputError(
                f"{self._clock(start)} is still to come, it is {self._clock(self._now_ns)}: ask about a time up to "
                "now, such as 'yesterday' or 'an hour ago', or without a time for where things are"
            )
        start = min(start, self._now_ns)
        return start, max(start, min(end, self._now_ns))

    def _clock(self, stamp_ns: int) -> str:
        """Return a stamp in words, of the clock that counts here: a simulation's begins at 0."""
        if self._now_ns < _YEAR_NS or stamp_ns > _DATES_NS:
            return f"{stamp_ns / 1e9:.1f} s"
        return f"{dt.datetime.fromtimestamp(stamp_ns / 1e9, self._zone):%Y-%m-%d %H:%M}"

    # -- several times -------------------------------------------------------------------------------------------

    def _joined(self, times: Sequence[_Time]) -> _Span:
        """Return the interval [ns] that all ``times`` of a sentence mean together."""
        for i, first in enumerate(times):
            for j in range(i + 1, len(times)):
                if times[j].side in _RANGES.get(first.side, ()):
                    return self._range(times[:i], times[i:j], times[j:])
        bounds = [time for time in times if time.side in _BOUNDS]
        if len(bounds) > 1 or any(time.side in ("between", "and", "to") for time in times):
            raise not_understood(time.text for time in times)
        bound = bounds[0] if bounds else times[0]
        stretch = self._stretch(times, None)
        span = self._bounded(bound, stretch)
        for back in (1, 2):  # the last one there was; "at 2 at night" is of the day after
            if span[0] > self._now_ns and not stretch.day:
                span = self._bounded(bound, self._stretch(times, self._today - back * _ONE_DAY))
        return span

    def _bounded(self, bound: _Time, stretch: _Stretch) -> _Span:
        """Return the interval [ns] before, after, since or until ``stretch``, as ``bound`` says; else its own."""
        begin, end = stretch.begin, stretch.end
        lower, upper = (min(0, begin), self._now_ns)
        if bound.of_day and stretch.around is not None:
            day = stretch.around
            lower, upper = self._at(day), self._at(day, DAY if end <= self._at(day, DAY) else 2 * DAY)
            if begin == lower and bound.side in ("before", "until"):  # midnight: the one at the end of a day
                begin, lower = (upper, lower) if stretch.day else (begin, self._at(day, -DAY))
        if bound.side == "before" or (bound.side == "until" and bound.of_day):
            return lower, begin - _JUST_BEFORE_NS
        if bound.side == "until":
            return lower, end
        if bound.side in ("since", "from"):
            return (begin if stretch.whole else end), max(self._now_ns, end)
        return (end, max(end, upper)) if bound.side == "after" else (begin, end)

    def _range(self, others: Sequence[_Time], first: Sequence[_Time], last: Sequence[_Time]) -> _Span:
        """Return the interval [ns] from ``first`` to ``last``; a day among ``others`` or in one counts for both."""
        first = _same_unit(first, last)
        if len(others) > any(time.is_day for time in others) or _is_number(first, last):
            raise not_understood(time.text for time in (*others, *first, *last))
        day = self._date_of(others[0]) if others else None
        days = [next((self._date_of(time) for time in group if self._has_date(time)), None) for group in (first, last)]
        timed = [any(time.of_day for time in group) for group in (first, last)]
        days_of = [(days[1] if day is None else day) or self._today, (days[0] if day is None else day) or self._today]
        begin, end = self._ends(first, last, days_of)
        if end < begin and timed[1] and days[1] is None:
            days_of[1] += _ONE_DAY
        elif end < begin and timed[0] and days[0] is None:
            days_of[0] -= _ONE_DAY
        begin, end = self._ends(first, last, days_of)
        if all(timed) and day is None and days == [None, None] and begin > self._now_ns:
            begin, end = self._ends(first, last, [one - _ONE_DAY for one in days_of])
        if end < begin:
            raise InvalidInputError(f"{' '.join(time.text for time in (*first, *last))!r}: ends before it begins")
        return begin, end

    def _ends(self, first: Sequence[_Time], last: Sequence[_Time], days: Sequence[dt.date]) -> _Span:
        """Return the interval [ns] from ``first`` to ``last``, of which times of day without a day are of ``days``."""
        a, b = self._stretch(first, days[0]), self._stretch(last, days[1])
        begin = a.begin if a.whole and first[0].side != "after" else a.end
        return begin, b.end if b.whole and last[0].side != "before" else b.begin

    def _stretch(self, times: Sequence[_Time], default: dt.date | None) -> _Stretch:
        """Return what a day, a time of day, both, or one other time mean.

        Args:
            times: as they were said.
            default: the day that a time of day without one is of; None = today.
        """
        days = [time for time in times if self._has_date(time) and time.kind != "iso"]
        hours = [time for time in times if time.of_day]
        if len(times) == 1 and not hours:
            return self._alone(times[0])
        if not hours or len(times) != len(hours) + len(days) or len(days) > 1:
            raise not_understood(time.text for time in times)
        begin, end = self._of_day(hours[0]) if len(hours) == 1 else self._clock_of(hours)
        this = any(hour.this for hour in hours)
        day = self._date_of(days[0]) if days else self._today if default is None else default
        if days and days[0].kind == "night":
            begin, end = _of_night(hours[0], begin, end)
        elif this and not days and any(hour.said == "night" for hour in hours):
            day = self._tonight()
        said = bool(days) or default is not None or this
        return _Stretch(self._at(day, begin), self._at(day, end), hours[0].kind != "meal", said, day)

    def _clock_of(self, hours: Sequence[_Time]) -> _Span:
        """Return the time since midnight [ns] that "at 9 in the evening" or "at 2 at night" means, as a span."""
        clocks, parts = ([time for time in hours if time.kind == kind] for kind in ("clock", "part"))
        if len(clocks) == len(parts) == 1 and len(hours) == 2:
            begin, end = self._of_day(parts[0])
            at = _within(clocks[0].said, begin, end)
            if at is not None:
                return at, at
        raise not_understood(time.text for time in hours)

    def _of_day(self, time: _Time) -> _Span:
        """Return begin and end of a time of day, since midnight [ns]."""
        if time.kind == "clock":
            at = tw.since_midnight(time.said)
            return at, at
        first, last = self._named[time.said] if time.kind == "meal" else tw.PARTS[time.said]
        return round(first * 3600) * SECOND, round(last * 3600) * SECOND

    # -- one time ------------------------------------------------------------------------------------------------

    def _alone(self, time: _Time) -> _Stretch:
        """Return what a time that is none of any day means."""
        if time.is_day or time.kind == "night":
            begin, end = (0, 24) if time.is_day else tw.PARTS["night"]
            day = self._date_of(time)
            return _Stretch(self._at(day, begin * _HOUR), self._at(day, end * _HOUR), day=True)
        if time.kind == "window":
            return self._window(time)
        at = self._moment(time)
        return _Stretch(at, at, day=True)

    def _moment(self, time: _Time) -> int:
        if time.kind == "now":
            return self._now_ns
        if time.kind == "ago":
            return self._now_ns - round(tw.seconds(time.said)[0] * SECOND)
        if time.kind == "run":
            return round(float(time.said.strip("t= second")) * SECOND)
        date, clock = re.split("[t ]", time.said, maxsplit=1)
        hour, colon, rest = clock.replace("utc", "z").replace(" ", "").partition(":")
        said = f"{date} {hour:0>2}{colon}{rest}"
        return _stamp(self._date(said.upper(), "a date and a time such as 2026-11-21 10:00"))

    def _window(self, time: _Time) -> _Stretch:
        """Return what "last week" or "the last 10 minutes" means: a week of the calendar, or up to now."""
        first, unit, seconds = tw.window(time.said)
        back = time.article or first == "past" or time.side in ("in", "within", "over", "for")
        if seconds is not None or back or unit not in ("week", "month", "year"):
            length = round((tw.unit_seconds(unit) if seconds is None else seconds) * SECOND)
            return _Stretch(self._now_ns - length, self._now_ns, day=True)
        if unit == "week":
            start = self._today - dt.timedelta(days=self._today.weekday())
            earlier = start - dt.timedelta(days=7)
        else:
            start = self._today.replace(day=1) if unit == "month" else self._today.replace(day=1, month=1)
            earlier = (start - _ONE_DAY).replace(day=1)
            earlier = earlier if unit == "month" else earlier.replace(month=1)
        before, begin = self._at(earlier), self._at(start)
        return _Stretch(before, begin, day=True) if first == "last" else _Stretch(begin, self._now_ns, day=True)

    @staticmethod
    def _has_date(time: _Time) -> bool:
        """Whether a time says which day it is of."""
        return time.is_day or time.kind in ("night", "iso") or (time.kind == "ago" and tw.seconds(time.said)[1])

    def _date_of(self, time: _Time) -> dt.date:
        """Return the day that ``time`` names."""
        said = time.said.removesuffix("'s")
        back = {"day before yesterday": 2, "yesterday": 1, "last night": 1, "today": 0, "tomorrow": -1}
        if time.kind == "ago":
            days = round(tw.seconds(said)[0] * SECOND) // DAY
            if days >= self._today.toordinal() - 366:
                raise InvalidInputError(f"{said!r}: expected at most {self._today.toordinal() - 367} days")
            return self._today - dt.timedelta(days=days)
        if time.kind == "iso":
            return dt.datetime.fromtimestamp(self._moment(time) // SECOND, self._zone).date()
        if said == "tonight":
            return self._tonight()
        if time.kind == "weekday":
            day = tw.WEEKDAYS.index(said.removeprefix("last "))
            return self._today - dt.timedelta(days=(self._today.weekday() - day) % 7 or 7)
        if said in back:
            return self._today - dt.timedelta(days=back[said])
        return self._date(said, "a date such as 2026-11-21").date()

    def _tonight(self) -> dt.date:
        """Return the day on which this night begins; before the morning it began yesterday."""
        return self._today if self._now.hour >= tw.PARTS["morning"][0] else self._today - _ONE_DAY

    def _at(self, day: dt.date, since_ns: int = 0) -> int:
        """Return the stamp [ns] at which the clock shows ``since_ns`` after the begin of ``day``."""
        clock = dt.datetime.combine(day, dt.time(), self._zone) + dt.timedelta(seconds=since_ns // SECOND)
        return _stamp(clock) + since_ns % SECOND

    def _date(self, said: str, expected: str) -> dt.datetime:
        try:
            found = dt.datetime.fromisoformat(said)
        except ValueError as error:
            raise InvalidInputError(f"{said!r}: expected {expected}") from error
        if not dt.MINYEAR < found.year < dt.MAXYEAR:  # the days beside it are dates, too
            raise InvalidInputError(f"{said!r}: expected a year from {dt.MINYEAR + 1} to {dt.MAXYEAR - 1}")
        return found if found.tzinfo is not None else found.replace(tzinfo=self._zone)


# -- times in a sentence ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _pattern(meals: Sequence[str]) -> re.Pattern:
    """Return what finds a time, in a group with the name of its kind, and the words before it."""
    kinds = {
        "now": "now|currently|at the moment|at present", "ago": tw.AGO, "iso": tw.DATE_TIME, "run": tw.RUN_TIME,
        "window": tw.LAST, "night": "last night|tonight",
        "day": rf"(?:day before yesterday|yesterday|today|tomorrow)(?:'s)?|{tw.DATE}",
        "weekday": rf"(?:last )?(?:{one_of(tw.WEEKDAYS)})", "part": one_of(tw.PARTS),
        "meal": one_of(meals) or "(?!)", "clock": tw.CLOCK,
    }  # fmt: skip
    any_kind = "|".join(f"(?P<{kind}>{kinds[kind]})" for kind in _KINDS)
    before = rf"(?:and (?=before|until|till))?(?:(?:just|shortly|right) )?(?:(?P<side>{one_of(_PREPOSITIONS)}) )?"
    about = r"(?P<this>this )?(?P<about>(?:around|about) )?(?P<article>the )?"
    return re.compile(rf"(?<!\S){before}{about}(?:{any_kind})(?: ?time)?(?: onwards?)?(?!\S)")


def _time(match: re.Match) -> _Time:
    kind = next(kind for kind in _KINDS if match[kind] is not None)
    side = match["side"] or ""
    marks = (match[mark] is not None for mark in ("this", "article", "about"))
    return _Time(kind, match[kind], _SIDES.get(side, side), *marks)


def _is_said(time: _Time, match: re.Match, words: str, before: Sequence[re.Match], after: Sequence[re.Match]) -> bool:
    """Whether ``match`` is a time and not part of a name, such as a monday mug or a 16:10 monitor.

    Args:
        time: what was found.
        match: where.
        words: the sentence.
        before: the match before it, if there is one.
        after: the match behind it, if there is one.
    """
    beside = [_time(one) for one in before if not words[one.end() : match.start()].strip()]
    beside += [_time(one) for one in after if not words[match.end() : one.start()].strip()]
    follows = words[match.end() :].split()[:1]
    by_day = any(one.is_day or one.kind == "night" for one in beside)
    bound = time.side in (*_BOUNDS, "between", "and", "to")
    if time.article and bound and time.kind in ("weekday", "part", "meal") and follows and not beside:
        return follows[0] in _GOING_ON  # before the night shift
    if time.kind == "ago":
        return time.side in ("and", "to") or not tw.is_cut_off(words[: match.start()])
    if time.kind == "window":
        return not time.said.startswith("this") or time.said in ("this week", "this month", "this year")
    if time.kind == "weekday":
        on = (bound or time.side in ("on", "during") or time.said.startswith("last ")) and not time.article
        return not time.this and (on or any(one.of_day for one in beside))
    if time.kind == "part":
        sided = (
            bound or time.this or time.side in ("at", "during", "throughout") or (time.side == "in" and time.article)
        )
        return sided or not follows or by_day
    if time.kind == "meal":
        return bound or by_day or time.side in ("at", "during", "over")
    if time.kind == "run":
        return bound or time.side == "at" or time.about
    if time.said.isdigit() and time.side in ("between", "from"):
        return any(_time(one).side in _RANGES[time.side] for one in after)  # from 2 boxes
    if time.said.isdigit() and match["side"] == "by":
        return by_day or not follows
    return time.kind != "clock" or _is_clock(time, bound, by_day or not follows)


def _is_clock(time: _Time, bound: bool, beside: bool) -> bool:
    """Whether a number is a time of day: by the word before it, else if it is written as one and ``beside`` a day."""
    sided = bound or time.side == "at" or time.about
    if re.fullmatch("[a-z]+", time.said) and time.said not in tw.HOURS:  # "at two tables"
        return sided and beside
    return sided or (beside and (":" in time.said or time.said in tw.HOURS or time.said.endswith(("am", "pm"))))


def _within(clock: str, begin: int, end: int) -> int | None:
    """Return the time since midnight [ns] that ``clock`` says of a part of the day; None = it has none such.

    "at 9 at night" is 21:00, "at 2 at night" 2:00 of the next day.
    """
    at, plain = tw.since_midnight(clock), clock.removesuffix("o'clock").strip()
    twelve = plain.endswith(("am", "pm")) or plain in tw.HOURS
    return next((at + on for on in ((0, DAY) if twelve else (0, DAY // 2, DAY)) if begin <= at + on <= end), None)


def _of_night(hour: _Time, begin: int, end: int) -> _Span:
    """Return the times since midnight [ns] that ``hour``, ``begin`` to ``end`` of any day, means of a night."""
    night = tw.PARTS["evening"][0] * _HOUR, tw.PARTS["night"][1] * _HOUR
    at = _within(hour.said, *night) if hour.kind == "clock" else None
    if at is not None:
        return at, at
    return (begin + DAY, end + DAY) if end <= DAY // 2 else (begin, end)  # "last night before breakfast"


def _is_number(first: Sequence[_Time], last: Sequence[_Time]) -> bool:
    """Whether one of two ends is a bare number that is no hour, as in "between 20 and 10 minutes ago"."""
    ends = (first, last), (last, first)
    return any(
        time.kind == "clock" and time.said.isdigit() and any(one.kind in ("ago", "run", "window") for one in others)
        for group, others in ends for time in group
    )  # fmt: skip


def _same_unit(first: Sequence[_Time], last: Sequence[_Time]) -> Sequence[_Time]:
    """Return ``first`` with the unit of ``last``, where "between 9 and 10 pm" means both."""
    ago = re.fullmatch(r"\S+( [a-z]+ ago)", last[0].said)
    if ago is not None:  # "between 20 and 10 minutes ago"
        return [replace(time, kind="ago", said=time.said + ago[1]) if time.said.isdigit() else time for time in first]
    half = next((time.said[-2:] for time in last if time.kind == "clock" and time.said.endswith(("am", "pm"))), "")
    if not half:
        return first

    def halved(time: _Time) -> _Time:
        if time.kind != "clock" or not re.fullmatch(r"\d{1,2}(?:[:.]\d{2})?", time.said):
            return time
        hour = int(re.split("[:.]", time.said)[0])
        both = replace(time, said=f"{time.said} {half}")
        later = [tw.since_midnight(one.said) for one in last if one.kind == "clock"]
        return both if 1 <= hour <= 12 and tw.since_midnight(both.said) <= max(later) else time

    return [halved(time) for time in first]


def _stamp(time: dt.datetime) -> int:
    """Return a time as a stamp [ns], exactly."""
    return int(time.replace(microsecond=0).timestamp()) * SECOND + time.microsecond * 1000
