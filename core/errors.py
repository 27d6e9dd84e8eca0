"""Errors that name the offender and list what would have been valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_MISCONFIGURED = 2
"""Exit status of a process that cannot work with its configuration. Restarting it would not help."""


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
    choices = sorted(valid)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"unknown {kind} {str(name)!r}; {hint}valid: {', '.join(choices) or '(none)'}")


DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file may raise that is damaged, or that somebody else wrote: JSON may be nested too deep, a number may
be infinite or have hundreds of digits, an entry may be missing or of another kind."""
