"""Parts by name: a name that Engram ships, or ``package.module:attribute`` of your own.

Wherever a configuration, a parameter or the command line names a part (task, detector, world, memory ...), both forms
are accepted and both are checked by the same functions. A module is looked for on ``sys.path`` (so on ``PYTHONPATH``
too), then in the folder in which the process was started.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from engram.core.contracts import Kinematics, MotionBarrier
from engram.core.declared import makes
from engram.core.errors import EngramError, InvalidInputError, UnknownNameError, unknown_name
from engram.core.robot import RobotConfig

SPEC = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
FORM = "package.module:attribute"
ROBOTS = {"panda_2f85": "engram.core.robot:PANDA_2F85", "so101": "engram.sim.robots.so101:SO101"}
"""Robots that come with Engram: name -> where its RobotConfig is."""
MODEL_KINEMATICS = "engram.sim.robots.kinematics:ModelKinematics"
MODEL_BARRIER = "engram.sim.robots.barrier:ModelBarrier"


def is_spec(name: str) -> bool:
    """Tell whether ``name`` has the form ``package.module:attribute``."""
    return SPEC.fullmatch(name) is not None


def split_options(name: str) -> tuple[str, str]:
    """Return a part's name, shipped or ``package.module:attribute``, and the options that it carries.

    >>> split_options("shell_touch:delay=20"), split_options("my_task:Lift")
    (('shell_touch', 'delay=20'), ('my_task:Lift', ''))
    """
    head, _, tail = name.rpartition(":")
    return (head, tail) if head and "=" in tail else (name, "")


def load_object(spec: str) -> Any:
    """Return what ``package.module:attribute`` names; raises InvalidInputError when there is no such thing."""
    return _load(spec, lambda _: True)


def resolve[T](
    kind: str, spec: str, known: Mapping[str, T | Callable[..., T]], contract: type[T], *args: Any, **offered: Any
) -> T:
    """Return the part that ``spec`` names, checked against its contract.

    Args:
        kind: what is looked for, for messages: "detector".
        spec: a key of ``known``, or ``package.module:attribute``.
        known: the parts that Engram ships. A part, or a function that makes it.
        contract: the type of the part. What ``spec`` names is an instance or a subclass of it, or a function annotated
            to return it. Nothing else is called.
        args: what the call gets.
        offered: what the call gets of these, by name: those that its signature names.

    Raises:
        UnknownNameError: there is no such name; lists the valid ones.
        InvalidInputError: there is something of this name, but it is no ``contract``.
    """
    found = known[spec] if spec in known else _factory(kind, spec, known, contract)
    part: Any = found
    if callable(found) and not isinstance(found, contract):
        wanted = _wanted(found, offered)
        part = found(*args, **wanted) if spec in known else _made(kind, spec, found, args, wanted)
    if not isinstance(part, contract):
        given = f"gives a {type(part).__name__}" if callable(found) else f"is of type {type(part).__name__}"
        raise InvalidInputError(f"{kind} {spec!r} {given}, expected a {contract.__name__}")
    return part


def _factory(kind: str, spec: str, known: Iterable[str], contract: type) -> Any:
    found = _outside(kind, spec, known, lambda thing: makes(thing, contract))
    if not makes(found, contract):
        name = contract.__name__
        raise InvalidInputError(
            f"{kind} {spec!r} is {_described(found)}, expected a {name}, a subclass of it, or a function annotated "
            f"to return one (-> {name})"
        )
    return found


def resolve_class[T](kind: str, spec: str, known: Mapping[str, type[T]], contract: type[T]) -> type[T]:
    """Return the class that ``spec`` names, a subclass of ``contract``; arguments and errors as in :func:`resolve`."""
    if spec in known:
        return known[spec]

    def fits(thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, contract) and thing is not contract

    found = _outside(kind, spec, known, fits)
    if not fits(found):
        raise InvalidInputError(f"{kind} {spec!r} is {_described(found)}, expected a subclass of {contract.__name__}")
    if lacking := sorted(getattr(found, "__abstractmethods__", ())):
        raise InvalidInputError(f"{kind} {spec!r} lacks {', '.join(lacking)} of {contract.__name__}")
    return found


def _made(kind: str, spec: str, make: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        return make(*args, **named)
    except EngramError:
        raise
    except Exception as error:  # whatever the user's code does
        raise InvalidInputError(f"{kind} {spec!r} cannot be made: {type(error).__name__}: {error}") from error


def make_robot(spec: str | RobotConfig) -> RobotConfig:
    """Return the robot called ``spec``: one of ``ROBOTS`` or ``package.module:attribute`` of your own.

    Raises:
        UnknownNameError: there is no such robot; it lists those there are.
        InvalidInputError: ``spec`` names something that is no RobotConfig.
    """
    if isinstance(spec, RobotConfig):
        return spec
    known: dict[str, Any] = {spec: load_object(ROBOTS[spec])} if spec in ROBOTS else dict.fromkeys(ROBOTS)
    return resolve("robot", spec, known, RobotConfig)


def make_kinematics(robot: RobotConfig) -> Kinematics:
    """Return the kinematics of ``robot``: what it names, or those of its simulated model.

    Raises:
        InvalidInputError: it names neither kinematics nor a model.
    """
    if not robot.has_kinematics:
        raise InvalidInputError(f"robot {robot.name!r} names neither kinematics nor a model")
    spec = robot.kinematics or MODEL_KINEMATICS
    return resolve("kinematics", spec, {}, Kinematics, robot)  # type: ignore[type-abstract]


def make_barrier(robot: RobotConfig) -> MotionBarrier | None:
    """Return what keeps ``robot`` from collisions.

    None where its configuration wants nothing (``collision``), or where its shape is not known.
    """
    if robot.collision is None or not (robot.barrier or robot.model):
        return None
    spec = robot.barrier or MODEL_BARRIER
    return resolve("barrier", spec, {}, MotionBarrier, robot)  # type: ignore[type-abstract]


def _wanted(call: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``offered`` that ``call`` takes."""
    try:
        parameters = inspect.signature(call).parameters
    except ValueError:  # a builtin without a signature
        return {}
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}


def _outside(kind: str, spec: str, known: Iterable[str], fits: Callable[[Any], bool]) -> Any:
    if ":" not in spec:
        raise unknown_name(kind, spec, [*known, FORM])
    try:
        return _load(spec, fits)
    except UnknownNameError as error:
        raise UnknownNameError(f"{kind} {error}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{kind} {error}") from error


def _load(spec: str, fits: Callable[[Any], bool]) -> Any:
    if not is_spec(spec):
        raise InvalidInputError(f"{spec!r}: expected {FORM!r}")
    name, _, attribute = spec.partition(":")
    module = _module(spec, name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        own = [key for key, value in vars(module).items() if not key.startswith("_") and _is_own(value, name)]
        unknown = unknown_name(f"attribute of {name}", attribute, filter(_fitting(module, fits), own))
        raise UnknownNameError(f"{spec!r}: {unknown}") from None


def _module(spec: str, name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last: a folder called like an installed package must not hide that
    importlib.invalidate_caches()  # the file may be younger than the listing of its folder
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InvalidInputError(f"{spec!r}: {name} imports what is not there: {error}") from error
        raise InvalidInputError(
            f"{spec!r}: no module {error.name!r} on PYTHONPATH or in {here}; expected {FORM!r}"
        ) from error
    except ImportError as error:
        raise InvalidInputError(f"{spec!r}: {error}") from error
    except Exception as error:  # whatever a file of the user's does when it is imported
        raise InvalidInputError(f"{spec!r}: importing {name} failed: {type(error).__name__}: {error}") from error


def _is_own(value: Any, module: str) -> bool:
    """Tell whether ``value`` was defined in ``module``: what that imported is not among the choices."""
    return getattr(value, "__module__", module) == module and not isinstance(value, ModuleType)


def _fitting(module: ModuleType, fits: Callable[[Any], bool]) -> Callable[[str], bool]:
    return lambda name: fits(getattr(module, name))


def _described(thing: Any) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    return f"the function {thing.__name__}" if isinstance(thing, FunctionType) else f"of type {type(thing).__name__}"
