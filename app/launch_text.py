"""The ``$(...)`` expressions of ROS's YAML launch files, the part of them that Engram's files use.

Grammar as in ROS's ``launch`` (``frontend/grammar.lark``): ``$(name arg arg)``, arguments separated by blanks, quoted
with ``'`` or ``"`` where they contain blanks, and nested freely. There is no ``$(eval ...)``: a launch file cannot run
code here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engram.core.errors import InvalidInputError, unknown_name

TRUE, FALSE = ("true", "1"), ("false", "0")


def as_bool(text: str, where: str) -> bool:
    """Read ``true``/``1`` or ``false``/``0`` in any case; raises InvalidInputError naming ``where``."""
    lowered = text.strip().lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    raise InvalidInputError(f"{where}: {text!r} is no truth value, valid: true, false, 1, 0")


@dataclass
class LaunchContext:
    """What an expression can refer to while a file is read."""

    values: dict[str, str]
    """Launch arguments declared so far, by name."""
    environ: Mapping[str, str]
    """Environment variables."""
    directory: Path
    """Folder of the launch file."""
    find_package: Callable[[str], Path]
    """Share folder of a package; raises UnknownNameError."""
    where: str = ""
    """What is being read, for error messages."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables set by the file for the processes it starts."""

    def bool_of(self, text: object) -> bool:
        """Expand ``text`` and read it as a truth value."""
        return as_bool(self.expand(text), self.where)

    def expand(self, text: object) -> str:
        """Return ``text`` with every ``$(...)`` replaced; numbers and truth values become their YAML text."""
        if isinstance(text, bool):
            return "true" if text else "false"
        if not isinstance(text, str):
            return str(text)
        result, rest = _read(text, self, stop="")
        assert not rest
        return result


def _read(text: str, context: LaunchContext, stop: str) -> tuple[str, str]:
    """Expand up to the first character of ``stop``; return what was read and the rest, which begins with it."""
    out: list[str] = []
    while text and text[0] not in stop:
        if text.startswith("$("):
            value, text = _expression(text[2:], context)
            out.append(value)
        elif text.startswith("\\") and len(text) > 1:
            out.append(text[1])
            text = text[2:]
        else:
            out.append(text[0])
            text = text[1:]
    return "".join(out), text


def _expression(text: str, context: LaunchContext) -> tuple[str, str]:
    """Evaluate ``name arg arg)...`` and return its value and what follows the closing bracket."""
    whole = text
    name, text = _read(text, context, stop=" )")
    arguments: list[str] = []
    while text and text[0] == " ":
        text = text.lstrip(" ")
        if text and text[0] in "'\"":
            quote = text[0]
            value, text = _read(text[1:], context, stop=quote)
            text = text[1:]  # the closing quote
        else:
            value, text = _read(text, context, stop=" )")
        arguments.append(value)
    if not text:
        raise InvalidInputError(f"{context.where}: no closing bracket in '$({whole}'")
    return _evaluate(name, arguments, context), text[1:]


def _evaluate(name: str, arguments: list[str], context: LaunchContext) -> str:
    if name not in EXPRESSIONS:
        raise unknown_name(f"{context.where}: expression", name, EXPRESSIONS)
    function, counts = EXPRESSIONS[name]
    if len(arguments) not in counts:
        expected = " or ".join(str(n) for n in counts)
        raise InvalidInputError(f"{context.where}: $({name}) takes {expected} arguments, got {arguments}")
    return function(context, arguments)


def _var(context: LaunchContext, arguments: list[str]) -> str:
    if arguments[0] not in context.values:
        raise unknown_name(f"{context.where}: launch argument", arguments[0], context.values)
    return context.values[arguments[0]]


def _env(context: LaunchContext, arguments: list[str]) -> str:
    value = context.environ.get(arguments[0], arguments[1] if len(arguments) == 2 else None)
    if value is None:
        raise InvalidInputError(f"{context.where}: environment variable {arguments[0]} is not set and has no default")
    return value


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _both(context: LaunchContext, arguments: list[str]) -> tuple[bool, bool]:
    return as_bool(arguments[0], context.where), as_bool(arguments[1], context.where)


EXPRESSIONS: dict[str, tuple[Callable[[LaunchContext, list[str]], str], tuple[int, ...]]] = {
    "var": (_var, (1,)),
    "env": (_env, (1, 2)),
    "dirname": (lambda context, _: str(context.directory), (0,)),
    "find-pkg-share": (lambda context, a: str(context.find_package(a[0])), (1,)),
    "equals": (lambda _, a: _truth(a[0] == a[1]), (2,)),
    "not-equals": (lambda _, a: _truth(a[0] != a[1]), (2,)),
    "not": (lambda context, a: _truth(not as_bool(a[0], context.where)), (1,)),
    "and": (lambda context, a: _truth(all(_both(context, a))), (2,)),
    "or": (lambda context, a: _truth(any(_both(context, a))), (2,)),
}
"""Expression -> function and how many arguments it takes."""
