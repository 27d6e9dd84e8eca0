"""Errors that name the offender and list what would have been valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache
from heapq import nsmallest

EXIT_MISCONFIGURED = 2
"""Exit status of a process that cannot work with its configuration. Restarting it would not help."""
REPEATED = 100
"""Most characters of a name that an error repeats."""
LISTED = 100
"""Most choices that an error lists."""
CANDIDATES = 100
"""Most choices that are compared with the name, to find the nearest."""
COMPARED = 50
"""Longest name that is compared with others [characters]: the time that takes grows with its square, and a stranger may
have sent any."""


class EngramError(Exception):
    """Base of every error that Engram raises on purpose."""


class InvalidInputError(EngramError, ValueError):
    """A value crossed a boundary with the wrong shape, dtype, range or unit."""


class NonFiniteError(InvalidInputError):
    """A value is NaN or infinite."""


class UnknownNameError(EngramError, KeyError):
    """A name that is not among the valid choices."""

    def __str__(self) -> str:  # KeyError would print the repr, quotes and all
        return str(self.args[0])


class StaleDataError(EngramError):
    """Data arrived too late to act on."""


class WeightsError(EngramError):
    """A weight file was refused: wrong name, shape, dtype, size, digest or a non-finite value."""


class CannotTrainError(InvalidInputError):
    """A policy that this learner cannot train."""


class StoreError(EngramError):
    """A store on disk cannot be opened, read or written: locked, damaged, or of another schema."""


class StoreLockedError(StoreError):
    """A store has another writer."""


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> UnknownNameError:
    """Build the error for ``name`` not being a valid ``kind``, with the nearest match first.

    >>> str(unknown_name("task", "rech", ["reach", "stack"]))
    "unknown task 'rech'; did you mean 'reach'? valid: reach, stack"
    """
    choices, text = sorted(valid), str(name)
    near = _nearest(text, _alike(text, choices)) if len(text) <= COMPARED else ""
    hint = f"did you mean {near!r}? " if near else ""
    listed = ", ".join(map(_cut, choices[:LISTED])) or "(none)"
    more = f" and {len(choices) - LISTED} more" if len(choices) > LISTED else ""
    return UnknownNameError(f"unknown {kind} {_cut(text)!r}; {hint}valid: {listed}{more}")


def _alike(name: str, choices: list[str]) -> tuple[str, ...]:
    """Return the short ones of ``choices``; of many, those that have most letters in common with ``name``."""
    letters, short = set(name), [choice for choice in choices if len(choice) <= COMPARED]
    if len(short) <= CANDIDATES:
        return tuple(short)
    return tuple(nsmallest(CANDIDATES, short, key=lambda one: len(letters ^ set(one))))


@lru_cache(maxsize=256)  # what waits for a tf frame asks for it again and again
def _nearest(name: str, choices: tuple[str, ...]) -> str:
    """Return the one of ``choices`` that is most like ``name``; empty: none is."""
    return next(iter(difflib.get_close_matches(name, choices, n=1)), "")


def _cut(text: str) -> str:
    return text if len(text) <= REPEATED else f"{text[:REPEATED]}..."


DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file may raise that is damaged, or that somebody else wrote: JSON may be nested too deep, a number may
be infinite or have hundreds of digits, an entry may be missing or of another kind."""
