"""Every field that a node takes from a message, a request or a goal changes something: some code of ours reads it.

A field counts as read when a function outside ``nodes/messages/`` whose parameter is annotated with the field's type
reads that attribute of the parameter. A converter's reading counts when code outside the converters reads an attribute
of the same name, or of the name in ``CONVERTED``.

What this cannot see: that a value is read and then not used, that an attribute of a core type which happens to have
the same name is another one, and what is read with ``getattr``. Goals of actions reach a node inside a handle, so that
they are looked for by name alone. What a service or an action answers is for whoever asks, and is not looked at.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "app",
    "core",
    "learning",
    "memory",
    "nodes",
    "perception",
    "policies",
    "runtime",
    "sim",
    "validation",
    "viewer",
)
READ = {"msg": ("",), "srv": (".Request", None), "action": (".Goal", None, None)}
"""Kind of definition -> its parts; None: an answer."""
ONLY_IN_ANSWERS = {"MemoryConflict"}
CONVERTED = {
    "ActionChunk.horizon": "actions",
    "Experience.chunk_stamp": "chunk_ns",
    "MemoryQuery.Request.believed_at": "believed_at_ns",
    "MemoryQuery.Request.use_place": "place",
    "MemoryQuery.Request.use_robot_place": "robot_place",
    "PolicyManifest.announcement": "config",
    "PolicyManifest.lineage_architecture": "lineage",
    "PolicyManifest.lineage_name": "lineage",
    "PolicyManifest.lineage_normalization": "lineage",
    "PolicyManifest.lineage_root": "lineage",
    "PolicyManifest.metrics_json": "metrics",
    "SceneNode.first_seen": "first_seen_ns",
    "SceneNode.last_seen": "last_seen_ns",
    "SceneObservation.camera_k": "intrinsics",
    "SceneObservation.depth_grid_height": "depth_grid",
    "SceneObservation.depth_grid_width": "depth_grid",
    "SceneObservation.max_depth": "depth_range_m",
    "SceneObservation.min_depth": "depth_range_m",
}
"""Field -> attribute of the core type that a converter makes of it."""
NOT_READ = {
    "ActionChunk.robot_id": "names the robot in a recording, where topics of several robots may lie side by side",
    "GateVerdict.header": "says in a recording, and to rqt, when the gate found it",
    "PolicyManifest.header": "says in a recording, and to rqt, when it was announced",
    "Verdict.robot_id": "names the robot in a recording, where topics of several robots may lie side by side",
}
"""Field -> why it may be there although no code of ours reads it."""


@cache
def readings() -> tuple[set[str], dict[str, set[str]], dict[str, set[str]]]:
    """Attribute names read outside the converters; those read of each interface type there, and by the converters."""
    outside: set[str] = set()
    nodes: dict[str, set[str]] = defaultdict(set)
    converters: dict[str, set[str]] = defaultdict(set)
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        tree, converts = ast.parse(path.read_text()), path.is_relative_to(ROOT / "nodes" / "messages")
        if not converts:
            outside |= {attribute for _, attribute in loads(tree)}
        for name, attributes in read_of_types(tree):
            (converters if converts else nodes)[name] |= attributes
    return outside, nodes, converters


def loads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (name, attribute) of each ``name.attribute`` that is read; the name is empty where it is no plain one."""
    for found in ast.walk(tree):
        if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Load):
            yield found.value.id if isinstance(found.value, ast.Name) else "", found.attr


def read_of_types(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield, for each parameter that is annotated with an interface type, the type and the attributes read of it."""
    imports = [found for found in tree.body if isinstance(found, ast.ImportFrom)]
    ours = [found for found in imports if (found.module or "").startswith("engram_interfaces")]
    types = {alias.asname or alias.name: alias.name for found in ours for alias in found.names}
    for function in ast.walk(tree) if types else ():
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for parameter in function.args.args:
            name, dot, part = (ast.unparse(parameter.annotation) if parameter.annotation else "").partition(".")
            if name in types:
                yield types[name] + dot + part, {attribute for of, attribute in loads(function) if of == parameter.arg}


def fields() -> Iterator[tuple[str, str]]:
    """Yield (type, field) of every field that a node takes."""
    for kind, parts in READ.items():
        for path in sorted((ROOT / "interfaces" / kind).iterdir()):
            texts = path.read_text().split("\n---\n") if len(parts) > 1 else [path.read_text()]
            for part, text in zip(parts, texts, strict=True):
                if part is None or path.stem in ONLY_IN_ANSWERS:
                    continue
                words = [line.partition("#")[0].split() for line in text.splitlines()]
                yield from ((path.stem + part, line[1]) for line in words if len(line) == 2)


def is_read(name: str, field: str) -> bool:
    """Tell whether the value of ``field`` of the type ``name`` gets to code that reads it."""
    outside, nodes, converters = readings()
    if field in nodes[name] or (name.endswith(".Goal") and field in outside):
        return True
    return field in converters[name] and CONVERTED.get(f"{name}.{field}", field) in outside


def test_every_field_is_read_or_says_why_not() -> None:
    unread = [f"{name}.{field}" for name, field in fields() if not is_read(name, field)]
    assert sorted(unread) == sorted(NOT_READ)


def test_every_name_of_these_lists_is_a_field() -> None:
    known = {f"{name}.{field}" for name, field in fields()}
    assert CONVERTED.keys() | NOT_READ.keys() <= known
    assert all(reason for reason in NOT_READ.values())
