"""A field of a parameter dataclass: its default, what is valid, and its description in the docstring under it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from typing import Any


def param(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> Any:
    """Declare a dataclass field with a valid range (both ends included) or a set of valid names.

    A ``live`` one may be set while the node runs, which then has to see to it; the others are read only.
    """
    metadata = {"range": (low, high)} if low is not None and high is not None else {}
    return dataclasses.field(default=default, metadata={**metadata, "choices": choices, "live": live})


@functools.cache
def descriptions(cls: type) -> dict[str, str]:
    """Return the docstring under each field of the dataclass ``cls``, inherited fields included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(text.value.value))  # type: ignore[union-attr]
    return found
