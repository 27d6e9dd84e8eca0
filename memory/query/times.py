"""Expressions of time in English: "yesterday before lunch", "at 10:00", "20 minutes ago" -> an interval."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from engram.core.errors import InvalidInputError

_Span = tuple[dt.datetime, dt.datetime]
_SECOND = 1_000_000_000
_DAY = dt.timedelta(days=1)
_YEAR_NS = 365 * 86_400 * _SECOND
"""What is less is no date."""
_DATES_NS = 8000 * _YEAR_NS
"""Nor is what is more: Python's years have four digits."""
MEALS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"breakfast": (7.5, 8.5), "lunch": (12.0, 13.0), "dinner": (18.5, 19.5), "supper": (18.5, 19.5)}
)
"""Hours of the day that are called by a name, begin and end."""
_PARTS = {"morning": (5, 12), "noon": (12, 12), "afternoon": (12, 18), "evening": (18, 23), "night": (20, 24)}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10, "half an": 0.5}
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>am|pm|o'clock)?"


@dataclass(frozen=True)
class QuestionConfig:
    """What times of day mean."""

    utc_offset_h: float = 0.0
    """Local time less UTC [h]; stamps are UTC."""
    named: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MEALS)
    """Begin and end of named times of day [h]."""

    def __post_init__(self) -> None:
        if not -14.0 <= self.utc_offset_h <= 14.0:
            raise InvalidInputError(f"utc_offset_h: {self.utc_offset_h}, expected -14..14 hours")


class Times:
    """Takes the expressions of time out of a sentence."""

    def __init__(self, now_ns: int, config: QuestionConfig) -> None:
        zone = dt.timezone(dt.timedelta(hours=config.utc_offset_h))
        self._now_ns, self._named = now_ns, config.named
        self._now = dt.datetime.fromtimestamp(now_ns / 1e9, zone)
        self._day = self._now.replace(hour=0, minute=0, second=0, microsecond=0)
        self._words = ""

    def take(self, words: str) -> tuple[str, tuple[int, int] | None]:
        """Return the rest of ``words`` and the interval [ns] that was meant; None = now.

        A time of day without a day is the last one there was.

        Raises:
            InvalidInputError: the time is still to come.
        """
        self._words = words
        if self._found(r"\b(?:right )?now\b|\bcurrently\b") is not None:
            return self._words, None
        exact = self._exact()
        if exact is not None:
            return self._words, self._gone_by(*exact)
        day = self._a_day()
        span = self._within(day or self._day)
        if span is None and day is not None:
            span = (day, day + _DAY)
        if span is None:
            return self._words, None
        back = _DAY if day is None and span[0] > self._now else dt.timedelta()
        start, end = (_stamp(one - back) for one in span)
        return self._words, self._gone_by(start, end)

    def _gone_by(self, start: int, end: int) -> tuple[int, int]:
        """Return what has gone by of an interval [ns]."""
        if start > self._now_ns + _SECOND:  # a clock is read rounded
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
        return f"{dt.datetime.fromtimestamp(stamp_ns / 1e9, self._now.tzinfo):%Y-%m-%d %H:%M}"

    def _found(self, pattern: str) -> re.Match | None:
        """Return a match and take it out of the sentence."""
        match = re.search(pattern, self._words)
        if match is not None:
            self._words = " ".join((self._words[: match.start()] + " " + self._words[match.end() :]).split())
        return match

    def _exact(self) -> tuple[int, int] | None:
        match = self._found(r"\bat (?:t ?= ?)?(\d+(?:\.\d+)?) ?s(?:econds)?\b")  # a simulation's own clock
        if match:
            at = round(float(match[1]) * _SECOND)
            return at, at
        match = self._found(r"\b(?:at |on )?(\d{4}-\d{2}-\d{2})[t ](\d{1,2})((?::\d{2}){1,2})\b")
        if match:
            date, hour, rest = match.groups()
            stamp = _stamp(self._date(f"{date} {hour:0>2}{rest}", "a date and a time such as 2026-11-21 10:00"))
            return stamp, stamp
        numbers = "|".join(sorted(_NUMBERS, key=len, reverse=True))
        match = self._found(rf"\b(\d+(?:\.\d+)?|{numbers}) (second|minute|hour|day|week)s? ago\b")
        if match:
            count = _NUMBERS.get(match[1]) or float(match[1])
            at = self._now_ns - round(count * _UNITS[match[2]] * _SECOND)
            return at, at
        return None

    def _date(self, said: str, expected: str) -> dt.datetime:
        try:
            found = dt.datetime.fromisoformat(said).replace(tzinfo=self._now.tzinfo)
        except ValueError as error:
            raise InvalidInputError(f"{said!r}: expected {expected}") from error
        if not dt.MINYEAR < found.year < dt.MAXYEAR:  # the days beside it are dates, too
            raise InvalidInputError(f"{said!r}: expected a year from {dt.MINYEAR + 1} to {dt.MAXYEAR - 1}")
        return found

    def _a_day(self) -> dt.datetime | None:
        match = self._found(r"\b(?:on )?(\d{4}-\d{2}-\d{2})\b")
        if match:
            return self._date(match[1], "a date such as 2026-11-21")
        if self._found(r"\bthe day before yesterday\b"):
            return self._day - 2 * _DAY
        if self._found(r"\byesterday\b"):
            return self._day - _DAY
        if self._found(r"\btomorrow\b"):
            return self._day + _DAY
        if self._words.endswith("last night"):
            self._words = self._words.removesuffix("last night") + "in the night"
            return self._day - _DAY
        if self._words.endswith("tonight"):
            self._words = self._words.removesuffix("tonight") + "in the night"
            return self._day if self._now.hour >= _PARTS["morning"][0] else self._day - _DAY  # it began yesterday
        if self._found(r"\btoday\b"):
            return self._day
        match = self._found(rf"\b(?:on |last )({'|'.join(_WEEKDAYS)})\b")
        if match:
            back = (self._now.weekday() - _WEEKDAYS.index(match[1])) % 7 or 7
            return self._day - back * _DAY
        return None

    def _within(self, day: dt.datetime) -> _Span | None:
        """Return the part of ``day`` that is named; "before" means that day up to then, "after" from then on."""
        names = "|".join(self._named)
        match = self._found(rf"\b(before|after|during|at|until|since) (?:the )?({names})\b")
        if match:
            begin, end = (day + dt.timedelta(hours=hour) for hour in self._named[match[2]])
            return self._side(match[1], day, begin, end)
        match = self._found(rf"\b(?:this|in the|yesterday|at) ({'|'.join(_PARTS)})\b|\b({'|'.join(_PARTS)})$")
        if match:
            first, last = _PARTS[match[1] or match[2]]
            return day + dt.timedelta(hours=first), day + dt.timedelta(hours=last)
        match = self._found(rf"\b(before|after|at|until|since|around) {_CLOCK}(?!\S)")
        if match is None:
            return None
        at = day + _time_of_day(match)
        return self._side(match[1], day, at, at)

    def _side(self, word: str, day: dt.datetime, begin: dt.datetime, end: dt.datetime) -> _Span:
        if word in ("before", "until"):
            return day, begin - dt.timedelta(microseconds=1)
        if word == "since":
            return end, self._day + 2 * _DAY  # to this day; what is not yet is cut off
        return (end, day + _DAY) if word == "after" else (begin, end)


def _time_of_day(clock: re.Match) -> dt.timedelta:
    """Return the time since midnight that a match of ``_CLOCK`` says."""
    hour, minute, twelve = int(clock["hour"]), int(clock["minute"] or 0), clock["half"] in ("am", "pm")
    if minute > 59 or not (1 <= hour <= 12 if twelve else hour <= 23):
        said = clock[0].partition(" ")[2]
        raise InvalidInputError(f"{said!r}: expected a time of day, 0:00 to 23:59 or 12 am to 11:59 pm")
    if twelve:
        hour = hour % 12 + 12 * (clock["half"] == "pm")
    return dt.timedelta(hours=hour, minutes=minute)


def _stamp(time: dt.datetime) -> int:
    """Return a time as a stamp [ns], exactly."""
    return int(time.replace(microsecond=0).timestamp()) * _SECOND + time.microsecond * 1000
