"""Runs a node of your own in the launch files: ``engram up sim extra_node:=package.module:attribute``.

The attribute is a subclass of :class:`EngramNode`, which the lifecycle manager then brings up after ours, or a function
without arguments that runs any rclpy node, such as ``main``. Either way the node gets the namespace, the parameter file
and the clock of the others; its name is ``extra_node``.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from engram.core.errors import EXIT_MISCONFIGURED, EngramError, InvalidInputError
from engram.core.registry import load_object
from engram.nodes.base import EngramNode
from engram.nodes.process import run


def load_node(spec: str) -> Any:
    """Return the EngramNode subclass or function that ``spec`` names; raises InvalidInputError for anything else."""
    found = load_object(spec)
    is_node = isinstance(found, type) and issubclass(found, EngramNode)
    if is_node or isinstance(found, FunctionType):
        return found
    raise InvalidInputError(f"extra_node {spec!r}: expected a subclass of EngramNode, or a function that runs a node")


def main() -> int:
    """Run the node that the first word of the command line names."""
    try:
        if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
            raise InvalidInputError("extra_node: name a node as package.module:attribute")
        found = load_node(sys.argv.pop(1))
    except EngramError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    if isinstance(found, type):
        run(found)
    return int(found() or 0)


if __name__ == "__main__":
    sys.exit(main())
