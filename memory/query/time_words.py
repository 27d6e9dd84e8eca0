"""The words of time in a question: numbers, units, times of day, and those that were left unread."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from engram.core.errors import InvalidInputError

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
PARTS = {"morning": (5, 12), "afternoon": (12, 18), "evening": (18, 23), "night": (20, 29)}
"""Parts of the day [h]: a night ends where the morning of the next day begins. That a meal is one is a setting."""
HOURS = {"midnight": 0, "noon": 12, "midday": 12}
"""Times of day that have a name [h]."""
ACCEPTED = (
    "'now', 'yesterday', 'on tuesday', 'last night', 'last week', 'this morning', 'at 10:00', 'at 9 pm', "
    "'before lunch' (or after, since, until), 'before yesterday', '20 minutes ago', '2 days ago at 10:00', "
    "'in the last 10 minutes', 'between 10:00 and 11:00', '2026-11-21 10:00', and in a simulation 'at 12.5 s'"
)
"""Examples of the forms that are understood, for messages."""

_UNITS = {  # s
    "second": 1.0, "sec": 1.0, "s": 1.0, "minute": 60.0, "min": 60.0, "m": 60.0, "hour": 3600.0, "hr": 3600.0,
    "h": 3600.0, "day": 86_400.0, "d": 86_400.0, "week": 7 * 86_400.0, "wk": 7 * 86_400.0, "w": 7 * 86_400.0,
    "month": 30.44 * 86_400, "mo": 30.44 * 86_400, "year": 365.25 * 86_400, "yr": 365.25 * 86_400, "y": 365.25 * 86_400,
}  # fmt: skip
"""As :func:`engram.memory.query.phrases.age` counts them."""
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = {
    "a": 1.0, "an": 1.0, "half a": 0.5, "half an": 0.5, "half": 0.5, "a couple of": 2.0, "couple of": 2.0,
    **{word: float(i) for i, word in enumerate(_ONES)},
    **{word: 10.0 * i for i, word in enumerate(_TENS, 2)},
    **{f"{ten}{by}{_ONES[i]}": 10.0 * tens + i
       for tens, ten in enumerate(_TENS, 2) for by in " -" for i in range(1, 10)},
}  # fmt: skip


def one_of(words: Iterable[str]) -> str:
    """Return a pattern of ``words``, the longest first."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_DIGITS = r"\d{1,9}(?:\.\d+)?"
_NUMBER = rf"(?:{_DIGITS}|{one_of(_WORDS)})"
_UNIT = rf"(?:{one_of(_UNITS)})s?\.?"
_HALF = r"(?: and a half)?"
_QUANTITY = rf"(?:{_DIGITS}|{_NUMBER}{_HALF} ){_UNIT}{_HALF}"
_ROUGHLY = r"(?:(?:less than|more than|over|nearly|almost|roughly|approximately|some) )?"
AGO = rf"{_ROUGHLY}{_QUANTITY}(?: (?:and )?{_QUANTITY}){{0,6}} ago"
LAST = rf"(?:last|past|this) (?:{_NUMBER} )?(?:second|minute|hour|day|week|month|year)s?"
DATE = r"\d{4}-\d{2}-\d{2}"
DATE_TIME = rf"{DATE}[t ]\d{{1,2}}(?::\d{{2}}){{1,2}}(?:\.\d+)?(?: ?(?:z|utc|[+-]\d{{2}}:?\d{{2}}))?"
RUN_TIME = r"(?:t ?= ?)?\d{1,18}(?:\.\d+)? ?s(?:ecs?|econds?)?"
"""Seconds of a simulation's own clock."""
_TWELVE = r"(?: ?(?:am|pm|o'clock))"
CLOCK = (
    rf"\d{{1,2}}(?:[:.]\d{{2}}(?::\d{{2}}(?:\.\d+)?)?)?{_TWELVE}?|(?:{'|'.join(_ONES[1:13])}){_TWELVE}?|{one_of(HOURS)}"
)
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_UNREAD = (
    rf"(?:{_DIGITS}|{_NUMBER}{_HALF} )(?:second|sec|minute|min|hour|hr|day|week|month|year)s?(?: ago)?",
    r"\d+(?:\.\d+)? ?s",
    rf"(?:last|past|this|next) (?:{_NUMBER} )?(?:second|minute|hour|day|week|month|year|{one_of(PARTS)})s?",
    rf"(?:(?:last|this|next|on) )?(?:{one_of(WEEKDAYS)})s?",
    rf"{DATE}\S*",
    r"\d{1,4}[./]\d{1,2}[./]\d{2,4}",
    rf"\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTHS})",
    rf"(?:{_MONTHS}) \d{{1,4}}(?:st|nd|rd|th)?",
    rf"(?:(?:at|around|about) )?(?:\d{{1,2}}[:.]\d{{2}}(?:[:.]\d{{2}})?{_TWELVE}?|\d{{1,2}}{_TWELVE})",
    r"at \d\S*",
    r"(?:half|quarter) (?:past|to)",
    r"(?<=\S )when",
    "ago|before|after|since|until|till|between|during|throughout|while|earlier|recently|lately|previously|afterwards",
    "yesterday|today|tonight|tomorrow|midnight|noon|midday|weekends?|fortnights?|utc|gmt",
)
_IS_UNREAD = re.compile(rf"(?<!\S)(?:{'|'.join(_UNREAD)})(?!\S)")


def unread(words: str) -> tuple[str, ...]:
    """Return what in ``words``, which are no time that was understood, may be words of time all the same.

    >>> unread("cup two tables ago"), unread("midnight blue cup"), unread("a second cup")
    (('ago',), ('midnight',), ())
    """
    found = (match[0] for match in _IS_UNREAD.finditer(words))
    return tuple(one for one in found if not one.startswith(("a second", "one second")))


def not_understood(said: Iterable[str]) -> InvalidInputError:
    """Return the error that names words of time with the forms that are understood."""
    named = ", ".join(map(repr, said))
    return InvalidInputError(f"{named}: not understood as a time; understood are such as {ACCEPTED}")


def seconds(said: str) -> tuple[float, bool]:
    """Return the duration [s] that "2 hours and 10 minutes ago" names, and whether it is in whole days."""
    total, whole = 0.0, True
    for match in re.finditer(rf"(?<!\S)(?:({_DIGITS})|({_NUMBER})({_HALF}) )({_UNIT})({_HALF})(?!\S)", said):
        size = _UNITS[_unit(match[4])]
        total += (_count(match[1] or match[2]) + 0.5 * bool(match[3] or match[5])) * size
        whole = whole and size >= _UNITS["day"]
    return total, whole


def window(said: str) -> tuple[str, str, float | None]:
    """Return the parts of "last 10 minutes": its first word, the unit and, if there is a number, the duration [s]."""
    first, *rest = said.split()
    unit, number = _unit(rest[-1]), " ".join(rest[:-1])
    return first, unit, _count(number) * _UNITS[unit] if number else None


def unit_seconds(unit: str) -> float:
    """Return how long a unit is [s]."""
    return _UNITS[unit]


def is_cut_off(before: str) -> bool:
    """Whether the words ``before`` a duration belong to its number: "one hundred", "quarter of"."""
    last = before.split()[-1:]
    return bool(last) and (last[0] in {"and", "of", "hundred", "thousand", *_WORDS} or last[0].isdigit())


@lru_cache(maxsize=256)
def since_midnight(said: str) -> int:
    """Return the time since midnight [ns] that "9:30 pm", "ten o'clock" or "noon" says.

    Raises:
        InvalidInputError: there is no such time of day.
    """
    if said in HOURS:
        return HOURS[said] * 3600 * SECOND
    match = re.fullmatch(r"(\w+?)(?:[:.](\d{2})(?::(\d{2}(?:\.\d+)?))?)? ?(am|pm|o'clock)?", said)
    assert match is not None
    hour = _ONES.index(match[1]) if match[1] in _ONES else int(match[1])
    minute, second, twelve = int(match[2] or 0), float(match[3] or 0), match[4] in ("am", "pm")
    if minute > 59 or second >= 60 or not (1 <= hour <= 12 if twelve else hour <= 23):
        raise InvalidInputError(f"{said!r}: expected a time of day, 0:00 to 23:59 or 12 am to 11:59 pm")
    if twelve:
        hour = hour % 12 + 12 * (match[4] == "pm")
    return (hour * 3600 + minute * 60) * SECOND + round(second * SECOND)


def _count(said: str) -> float:
    return _WORDS[said] if said in _WORDS else float(said)


def _unit(said: str) -> str:
    said = said.rstrip(".")
    return said if said in _UNITS else said.removesuffix("s")
