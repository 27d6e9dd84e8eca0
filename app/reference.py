"""Write the pages in docs/reference/: subcommands with their flags, launch arguments, nodes; and the permissions in
config/sros2/. From the code.

python -m engram.app.reference
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from engram.app.cli import COMMANDS, config_type
from engram.app.launch_graph import find_launch_file, load_graph
from engram.app.node_reference import nodes_page
from engram.app.permissions import policy_xml
from engram.runtime.parameters import descriptions

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
POLICY = FOLDER.parents[1] / "config" / "sros2" / "engram.policy.xml"
LAUNCH_FILES = ("sim", "robot", "memory", "far")
HEAD = """# Command line

Written by `python -m engram.app.reference`; a test compares it with the code. `engram <command> --help` shows the same.
Exit codes: 0 done; 1 it was tried and failed, or nobody answered; 2 it cannot be done as it was asked for; 130 Ctrl-C.
Ctrl-C is the usual end of `engram up` and of `engram demo` with its page: both then give 0 unless a node failed. An
unknown command, option, task, launch argument or parameter is an error that names the valid ones.
"""


LAUNCH_HEAD = """# Launch arguments

Written by `python -m engram.app.reference` from `launch/*.launch.yaml`. `engram up sim --show-args` shows the same.
`ros2 launch engram sim.launch.py name:=value` and `engram up sim name:=value` take the same arguments.
"""


def pages() -> dict[Path, str]:
    """Return every page by the file that it is written to."""
    texts = {"command_line": command_line, "launch_arguments": launch_arguments, "nodes": nodes_page}
    return {FOLDER / f"{name}.md": text() for name, text in texts.items()} | {POLICY: policy_xml()}


def launch_arguments() -> str:
    """Return the page of the launch files' arguments."""
    lines = [LAUNCH_HEAD]
    for name in LAUNCH_FILES:
        graph = load_graph(find_launch_file(name), environ={})
        lines += [f"## {name}.launch.py", "", "| argument | default | valid | meaning |", "|---|---|---|---|"]
        for argument in graph.arguments:
            default = str(argument.default or "")
            if Path(default).is_file():  # a file of the package, whose folder is of this machine
                default = "/".join(Path(default).parts[-2:])
            shown = f"`{default}`" if default else ""
            text = " ".join(argument.description.split()).replace("|", "\\|")
            lines.append(f"| `{argument.name}` | {shown} | {', '.join(argument.choices)} | {text} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def command_line() -> str:
    """Return the page of the subcommands and their flags."""
    lines = [HEAD]
    for name, command in COMMANDS.items():
        lines += [f"## engram {name}", "", f"{command.summary[0].upper()}{command.summary[1:]}.", ""]
        config = config_type(command)
        if dataclasses.is_dataclass(config):
            lines += _flags(config)
        for sub, variant in _subcommands(config):
            lines += [f"### engram {name} {sub}", "", " ".join((inspect.getdoc(variant) or "").split()), ""]
            lines += _flags(variant)
    return "\n".join(lines).rstrip() + "\n"


def _subcommands(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and dataclass of each subcommand, where ``config`` is a union of annotated dataclasses."""
    for member in get_args(config):
        if get_origin(member) is Annotated:
            variant, mark = get_args(member)
            yield mark.name, variant


def _flags(config: Any) -> list[str]:
    rows = [f"| `{flag}` | {default} | {text} |" for flag, default, text in _rows(config)]
    return ["| flag | default | meaning |", "|---|---|---|", *rows, ""]


def _rows(config: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield flag, default and description of each field, also of a dataclass within the dataclass."""
    texts, hints = descriptions(config), get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        name = prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(field.default_factory):
            yield from _rows(field.default_factory, f"{name}.")
            continue
        flag = f"--no-{name}" if field.default is True else f"--{name}"
        shown = field.name.upper() if "Positional" in str(hints[field.name]) else flag
        yield shown, _default(field), " ".join(texts.get(field.name, "").split()).replace("|", "\\|")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else "required"
    if field.default in ("", None, ()) or isinstance(field.default, bool):
        return ""
    value = field.default
    if isinstance(value, Path) and value.is_absolute():  # of this machine: a file of the package
        root = Path(__file__).resolve().parents[1]
        value = value.relative_to(root) if value.is_relative_to(root) else value
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`"


if __name__ == "__main__":
    for target, text in pages().items():
        target.write_text(text)
        print(target)
