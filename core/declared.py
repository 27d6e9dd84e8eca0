"""What a ``package.module:attribute`` may be called for: a class of the contract, or a function declared to return one.

Nothing else is ever called. A name such as ``os:abort`` would otherwise do its work before anybody sees that what it
returns is no policy. Importing a module runs it, too: names that come from the network therefore choose among those
that the launch named, see :func:`check_named`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from types import FunctionType, SimpleNamespace
from typing import Any

from engram.core.errors import UnknownNameError, unknown_name

SEPARATOR = ":"


def makes(thing: Any, contract: type) -> bool:
    """Tell whether ``thing`` is a ``contract``, a class of it, or a function whose annotation says it returns one."""
    if isinstance(thing, contract):
        return True
    if isinstance(thing, type):
        return issubclass(thing, contract)
    return isinstance(thing, FunctionType) and _returns(thing, contract)


def _returns(function: Callable[..., Any], contract: type) -> bool:
    declared = inspect.unwrap(function).__annotations__.get("return")
    if isinstance(declared, str):
        declared = _evaluated(declared, getattr(inspect.unwrap(function), "__globals__", {}))
    if isinstance(declared, str):  # imported under TYPE_CHECKING alone
        return declared.rpartition(".")[2] == contract.__name__
    declared = typing.get_origin(declared) or declared
    return isinstance(declared, type) and issubclass(declared, contract)


def _evaluated(annotation: str, names: dict[str, Any]) -> Any:
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__={"return": annotation}), names)["return"]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return annotation


def check_named(kind: str, name: str, named: Iterable[str]) -> None:
    """Raise UnknownNameError for a ``package.module:attribute`` from the network that the launch did not name.

    Args:
        kind: what the name is for, for the message: "task".
        name: as it came. Without a colon it is a shipped name, which is checked where it is looked up. What follows a
            second colon is options of the part.
        named: what parameters and launch arguments name; only these modules may be imported.
    """
    module, separator, rest = name.partition(SEPARATOR)
    attribute, _, _ = rest.partition(SEPARATOR)
    if not separator or "=" in attribute:  # a shipped name, or one with options
        return
    known = [one for one in named if one]
    if f"{module}{SEPARATOR}{attribute}" not in known:
        raise _not_named(kind, name, known)


def _not_named(kind: str, name: str, known: list[str]) -> UnknownNameError:
    error = unknown_name(kind, name, [*known, "a shipped name"])
    return UnknownNameError(f"{error}; a module is imported only if a launch argument or parameter named it")
