"""Read ``launch/*.launch.yaml``: the one node list that ``ros2 launch`` and ``engram up`` both start.

The files are written in ROS's own YAML launch format, so ``ros2 launch`` reads them itself. This reader knows the part
of the format that Engram uses (``arg``, ``let``, ``node``, ``include``, ``set_env``) and refuses everything else by
name: a key that is silently ignored in one of the two ways would make them behave differently.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import yaml

from engram.app.launch_text import LaunchContext
from engram.core.config import load_yaml
from engram.core.errors import InvalidInputError, unknown_name

ACTION_KEYS: dict[str, tuple[str, ...]] = {
    "arg": ("name", "default", "description", "choice"),
    "node": (
        *("pkg", "exec", "name", "namespace", "param", "remap", "args", "ros_args", "env", "if", "unless"),
        *("respawn", "respawn_delay", "respawn_max_retries", "on_exit"),
    ),
    "include": ("file", "arg", "if", "unless"),
    "let": ("name", "value", "if", "unless"),
    "set_env": ("name", "value", "if", "unless"),
}


@dataclass(frozen=True)
class LaunchArgument:
    """One argument that the user may set with ``name:=value``."""

    name: str
    default: str | None  # None = must be given
    description: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeSpec:
    """One process to start."""

    package: str
    executable: str
    name: str
    namespace: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()  # (name, value) or ("", path of a parameter file), in order
    remaps: tuple[tuple[str, str], ...] = ()  # (from, to)
    arguments: tuple[str, ...] = ()
    ros_args: tuple[str, ...] = ()  # further words after --ros-args
    environment: Mapping[str, str] = field(default_factory=dict)
    respawn: bool = False
    respawn_delay_s: float = 0.0
    respawn_max_retries: int = -1  # -1 = the launcher's own limit
    required: bool = False  # its end ends everything (on_exit: shutdown)

    @property
    def full_name(self) -> str:
        """Namespace and name, absolute."""
        return "/" + "/".join(part for part in (self.namespace.strip("/"), self.name) if part)

    def ros_arguments(self, folder: Path) -> list[str]:
        """Return the command line after the executable, as ``ros2 launch`` would build it.

        Single parameters go into a file in ``folder`` under the node's full name, for ``-p`` would lose against a
        section ``/**/<node>`` of a parameter file.
        """
        out = [*self.arguments, "--ros-args", "-r", f"__node:={self.name}"]
        if self.namespace:
            out += ["-r", f"__ns:={self.full_name.rsplit('/', 1)[0]}"]
        for is_file, group in itertools.groupby(self.parameters, key=lambda parameter: not parameter[0]):
            named = list(group)
            paths = [str(value) for _, value in named] if is_file else [self._parameter_file(folder, dict(named))]
            out += [word for path in paths for word in ("--params-file", path)]
        for source, target in self.remaps:
            out += ["-r", f"{source}:={target}"]
        return [*out, *self.ros_args]

    def _parameter_file(self, folder: Path, values: Mapping[str, Any]) -> str:
        text = json.dumps({self.full_name: {"ros__parameters": values}}, indent=1)  # JSON is YAML that keeps types
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        path = folder / f"{self.name}-{digest}.yaml"
        path.write_text(text)
        return str(path)


@dataclass(frozen=True)
class LaunchGraph:
    """Everything one launch file says, with all arguments filled in."""

    path: Path
    arguments: tuple[LaunchArgument, ...]
    values: Mapping[str, str]
    nodes: tuple[NodeSpec, ...]
    environment: Mapping[str, str]


def package_share(package: str) -> Path:
    """Return the folder that holds ``launch/`` and ``config/`` of an installed package (ROS: share/<package>)."""
    if package == "engram":
        return Path(str(resources("engram")))
    for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        if (Path(prefix) / "share" / package / "package.xml").is_file():
            return Path(prefix) / "share" / package
    wheel = f"ros-{package.replace('_', '-')}"
    try:
        for file in files(wheel) or ():
            if file.name == "package.xml":
                return Path(str(file.locate())).parent
    except PackageNotFoundError:
        pass
    raise unknown_name("package", package, ["engram", "(any package of a sourced ROS workspace)"])


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """Read ``name:=value`` words; raises InvalidInputError for anything else."""
    values: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition(":=")
        if not separator or not name:
            raise InvalidInputError(f"launch argument {word!r}: expected name:=value")
        values[name] = value
    return values


def find_launch_file(name: str) -> Path:
    """Return the file for ``name``: a path, or the short name (``sim``) of a file that Engram ships."""
    folder = package_share("engram") / "launch"
    for candidate in (Path(name), folder / name, folder / f"{name}.launch.yaml"):
        if candidate.is_file() and candidate.suffix == ".yaml":
            return candidate.resolve()
    shipped = [p.name.removesuffix(".launch.yaml") for p in folder.glob("*.launch.yaml")]
    raise unknown_name("launch file", name, [*shipped, "(any path of a *.launch.yaml)"])


def load_graph(
    path: Path,
    values: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    find_package: Callable[[str], Path] = package_share,
) -> LaunchGraph:
    """Read ``path`` with the user's argument ``values``.

    Raises:
        UnknownNameError: an unknown action, key, argument, expression or choice; lists the valid ones.
        InvalidInputError: a value that cannot be used, or an argument without default that was not given.
    """
    given = dict(values or {})
    context = LaunchContext({}, os.environ if environ is None else environ, path.resolve().parent, find_package)
    reader = _Reader(given)
    reader.read(path, context)
    declared = {a.name: a for a in reader.arguments}
    for name in given:
        if name not in declared:
            raise unknown_name(f"launch argument of {path.name}:", name, declared)
    _refuse_twins(path, reader.nodes)
    return LaunchGraph(
        path, tuple(declared.values()), dict(reader.values), tuple(reader.nodes), dict(context.environment)
    )


def _refuse_twins(path: Path, nodes: Iterable[NodeSpec]) -> None:
    seen: set[tuple[str, str]] = set()
    for node in nodes:
        if (node.namespace, node.name) in seen:
            raise InvalidInputError(f"{path.name}: two nodes are named {node.namespace}/{node.name}")
        seen.add((node.namespace, node.name))


class _Reader:
    """Collects arguments and nodes over a file and the files it includes."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.arguments: list[LaunchArgument] = []
        self.values: dict[str, str] = {}
        self.nodes: list[NodeSpec] = []
        self.open: list[Path] = []
        self.fixed: frozenset[str] = frozenset()  # arguments that an include has set: not the user's to choose

    def read(self, path: Path, context: LaunchContext) -> None:
        if path in self.open:
            raise InvalidInputError(f"{path.name}: includes itself through {' -> '.join(p.name for p in self.open)}")
        self.open.append(path)
        document = load_yaml(path)
        _check_keys(f"{path.name}: top level", document, ("launch",))
        for index, entry in enumerate(_entries(path, document)):
            if not isinstance(entry, dict) or len(entry) != 1:
                raise InvalidInputError(
                    f"{path.name}: entry {index}: expected one of {', '.join(ACTION_KEYS)}: {entry}"
                )
            kind, body = next(iter(entry.items()))
            if kind not in ACTION_KEYS:
                raise unknown_name(f"{path.name}: entry {index}: action", kind, ACTION_KEYS)
            if not isinstance(body, dict):
                raise InvalidInputError(f"{path.name}: entry {index} ({kind}): expected keys and values, got {body!r}")
            context.where = f"{path.name}: {kind} {body.get('name', body.get('file', index))}"
            _check_keys(context.where, body, ACTION_KEYS[kind])
            # names inside a part that is switched off are checked too, its values are not
            if _wanted(body, context):
                getattr(self, f"_{kind}")(body, context)
        self.open.pop()

    def _arg(self, body: dict[str, Any], context: LaunchContext) -> None:
        name = _required(body, "name", context)
        choices = tuple(str(c["value"]) for c in body.get("choice", ()))
        default = context.expand(body["default"]) if "default" in body else None
        argument = LaunchArgument(name, default, str(body.get("description", "")), choices)
        value = self.given.get(name, context.values.get(name, default))
        if value is None:
            raise InvalidInputError(f"{context.where}: needs a value, give {name}:=... ({argument.description})")
        if choices and value not in choices:
            raise unknown_name(f"value of launch argument {name}:", value, choices)
        context.values[name] = value
        if name not in self.fixed:
            self.values[name] = value
            self.arguments.append(argument)

    def _let(self, body: dict[str, Any], context: LaunchContext) -> None:
        context.values[_required(body, "name", context)] = context.expand(_required(body, "value", context))

    def _set_env(self, body: dict[str, Any], context: LaunchContext) -> None:
        value = context.expand(_required(body, "value", context))
        if self.nodes:  # ROS gives it only to what comes later; here it would reach all: they must not differ
            raise InvalidInputError(f"{context.where}: must stand before the first node")
        context.environment[context.expand(_required(body, "name", context))] = value

    def _include(self, body: dict[str, Any], context: LaunchContext) -> None:
        target = Path(context.expand(_required(body, "file", context)))
        if target.suffix != ".yaml":
            raise InvalidInputError(f"{context.where}: {target} is no .launch.yaml; only those can be included here")
        inner = LaunchContext(
            dict(context.values), context.environ, target.parent, context.find_package, environment=context.environment
        )
        where = context.where
        for item in body.get("arg", ()):
            _check_keys(f"{where}: arg", item, ("name", "value"))
            inner.values[context.expand(item["name"])] = context.expand(item["value"])
        outer = self.given, self.fixed
        self.fixed = self.fixed | {str(item["name"]) for item in body.get("arg", ())}
        self.given = {name: value for name, value in self.given.items() if name not in self.fixed}
        self.read(target, inner)
        self.given, self.fixed = outer

    def _node(self, body: dict[str, Any], context: LaunchContext) -> None:
        where = context.where
        on_exit = context.expand(body.get("on_exit", ""))
        if on_exit not in ("", "shutdown"):
            raise unknown_name(f"{where}: on_exit", on_exit, ["shutdown"])
        executable = context.expand(_required(body, "exec", context))
        self.nodes.append(
            NodeSpec(
                package=context.expand(_required(body, "pkg", context)),
                executable=executable,
                name=context.expand(body.get("name", executable)),
                namespace=context.expand(body.get("namespace", "")).rstrip("/"),
                parameters=tuple(_parameter(item, context) for item in body.get("param", ())),
                remaps=tuple(_pair(item, ("from", "to"), context) for item in body.get("remap", ())),
                arguments=tuple(context.expand(body.get("args", "")).split()),
                ros_args=tuple(context.expand(body.get("ros_args", "")).split()),
                environment=dict(_pair(item, ("name", "value"), context) for item in body.get("env", ())),
                respawn=context.bool_of(body.get("respawn", False)),
                respawn_delay_s=_number(body.get("respawn_delay", 0.0), context, "respawn_delay"),
                respawn_max_retries=int(_number(body.get("respawn_max_retries", -1), context, "respawn_max_retries")),
                required=on_exit == "shutdown",
            )
        )


def _entries(path: Path, document: Mapping[str, Any]) -> list[Any]:
    entries = document.get("launch")
    if not isinstance(entries, list):
        raise InvalidInputError(f"{path.name}: expected 'launch:' with a list of {', '.join(ACTION_KEYS)}")
    return entries


def _check_keys(where: str, mapping: Mapping[str, Any], valid: Iterable[str]) -> None:
    for key in mapping:
        if key not in valid:
            raise unknown_name(f"{where}: key", key, valid)


def _required(body: Mapping[str, Any], key: str, context: LaunchContext) -> str:
    if key not in body:
        raise InvalidInputError(f"{context.where}: key {key!r} is missing")
    return str(body[key])


def _wanted(body: Mapping[str, Any], context: LaunchContext) -> bool:
    wanted = context.bool_of(body["if"]) if "if" in body else True
    return wanted and not (context.bool_of(body["unless"]) if "unless" in body else False)


def _parameter(item: Mapping[str, Any], context: LaunchContext) -> tuple[str, Any]:
    _check_keys(f"{context.where}: param", item, ("name", "value", "from"))
    if "from" in item:
        path = Path(context.expand(item["from"]))
        if not path.is_file():
            there = ", ".join(sorted(p.name for p in path.parent.glob("*.yaml"))) if path.parent.is_dir() else ""
            raise InvalidInputError(
                f"{context.where}: parameter file {path} does not exist; there: {there or '(none)'}"
            )
        return "", str(path)
    if "name" not in item or "value" not in item:
        raise InvalidInputError(f"{context.where}: param {dict(item)}: expected name and value, or from")
    value = item["value"]
    if isinstance(value, list):
        return str(item["name"]), [_scalar(v, context) for v in value]
    return str(item["name"]), _scalar(value, context)


def _scalar(value: Any, context: LaunchContext) -> Any:
    """Expand a parameter value; text that came out of an expression takes the type that YAML reads in it."""
    if not isinstance(value, str) or "$(" not in value:
        return value
    text = context.expand(value)
    read = yaml.safe_load(text) if text else ""
    return read if isinstance(read, bool | int | float | list) else text


def _pair(item: Mapping[str, Any], keys: tuple[str, str], context: LaunchContext) -> tuple[str, str]:
    _check_keys(context.where, item, keys)
    missing = [k for k in keys if k not in item]
    if missing:
        raise InvalidInputError(f"{context.where}: {dict(item)} lacks {missing[0]!r}")
    return context.expand(item[keys[0]]), context.expand(item[keys[1]])


def _number(value: Any, context: LaunchContext, key: str) -> float:
    text = context.expand(value)
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"{context.where}: {key}: {text!r} is no number") from None
