"""The one place where arrays are checked: dtype, shape, finiteness; the result is read-only."""

from __future__ import annotations

from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError, NonFiniteError

Shape = tuple[int | None, ...]


def checked(name: str, value: Any, shape: Shape, dtype: Any = np.float64, *, finite: bool = True) -> np.ndarray:
    """Return ``value`` as a read-only array of ``dtype`` and ``shape`` (``None`` = any length).

    An array that already fits and cannot be written through is returned as it is; anything else is copied, so
    a caller that reuses its buffer cannot change what was handed over.

    Raises:
        InvalidInputError: naming ``name``, what it was and what is valid; NonFiniteError for NaN and infinity.
    """
    array = np.asarray(value)
    if array.shape == shape and array.dtype == dtype and not (finite and not np.isfinite(array).all()):
        return _frozen(array)  # by far the most frequent case
    if array.dtype != np.dtype(dtype):
        if array.dtype == object or not np.can_cast(array.dtype, dtype, casting="same_kind"):
            raise InvalidInputError(f"{name}: dtype {array.dtype} cannot become {np.dtype(dtype)}")
        array = array.astype(dtype)
    fits = array.ndim == len(shape) and all(w in (None, h) for h, w in zip(array.shape, shape, strict=True))
    if not fits:
        want = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ")"
        raise InvalidInputError(f"{name}: shape {array.shape}, expected {want}")
    if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise NonFiniteError(f"{name}: {bad} of {array.size} values are not finite")
    return _frozen(array)


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return ``array`` if nobody can write through it, else a copy that nobody can."""
    if array.flags.writeable or (isinstance(array.base, np.ndarray) and array.base.flags.writeable):
        array = array.copy()
        array.flags.writeable = False
    return array


def positive_int(name: str, value: int) -> int:
    """Return ``value`` if it is an integer above zero, else raise :class:`InvalidInputError`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value <= 0:
        raise InvalidInputError(f"{name}: {value!r}, expected an integer above 0")
    return int(value)
