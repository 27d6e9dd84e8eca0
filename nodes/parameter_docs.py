"""Writes ``docs/parameters.md`` from the nodes' own config classes: ``python -m engram.nodes.parameter_docs``."""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from pathlib import Path

from engram.nodes.base import EngramNode, NodeConfig
from engram.nodes.lifecycle_manager import LifecycleManagerConfig
from engram.nodes.params import descriptions

NODES = {
    "sim_node": "SimNode",
    "robot_node": "RobotNode",
    "perception_node": "PerceptionNode",
    "memory_node": "MemoryNode",
    "policy_node": "PolicyNode",
    "safety_node": "SafetyNode",
    "learner_node": "LearnerNode",
    "viewer_node": "ViewerNode",
}
TARGET = Path(__file__).resolve().parents[1] / "docs" / "parameters.md"
HEAD = """# Parameters of the nodes

Written by `python -m engram.nodes.parameter_docs`; a test keeps it in step with the code. All parameters are read once,
at start. `ros2 param describe` shows the same text. An unknown parameter or a value out of range is an error that
names the valid ones.
"""


def table(cls: type, prefix: str = "", without: frozenset[str] = frozenset()) -> list[str]:
    """Return the rows of one config class."""
    rows = []
    for field in dataclasses.fields(cls):
        if field.name in without:
            continue
        if isinstance(field.default_factory, type) and dataclasses.is_dataclass(field.default_factory):
            rows += table(field.default_factory, f"{prefix}{field.name}.")
            continue
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        low, high = field.metadata.get("range", (None, None))
        valid = f"{low} .. {high}" if low is not None else ", ".join(field.metadata.get("choices") or ())
        text = " ".join(descriptions(cls).get(field.name, "").split()).replace("|", "\\|")
        rows.append(f"| `{prefix}{field.name}` | `{json.dumps(default)}` | {valid} | {text} |")
    return rows


def section(title: str, rows: list[str]) -> str:
    """Return one table with its heading."""
    head = ["| parameter | default | valid | what it does |", "|---|---|---|---|"]
    return "\n".join([f"\n## {title}\n", *head, *rows, ""])


def document() -> str:
    """Return the whole page."""
    common = frozenset(field.name for field in dataclasses.fields(NodeConfig))
    parts = [HEAD, section("Every node but the lifecycle manager", table(NodeConfig))]
    for module, name in NODES.items():
        node: type[EngramNode] = getattr(import_module(f"engram.nodes.{module}"), name)
        rows = table(node.config_class, without=common)
        for prefix, cls in node.sections.items():
            rows += table(cls, f"{prefix}.")
        parts.append(section(module, rows))
    return "".join([*parts, section("lifecycle_manager", table(LifecycleManagerConfig))])


if __name__ == "__main__":
    TARGET.write_text(document())
    print(TARGET)
