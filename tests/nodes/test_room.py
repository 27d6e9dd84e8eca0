"""The room of the nodes: what is in it needs ROS, and neither a file nor the room grows into a program of its own."""

import ast
from pathlib import Path

import pytest

import engram.nodes

ROOM = Path(engram.nodes.__file__).resolve().parent
FILES = [path for path in sorted(ROOM.rglob("*.py")) if path.read_text().strip()]
MOST_LINES = 250
MOST_LINES_TOGETHER = 5900


def imported(path: Path) -> set[str]:
    """Return the first words of all that ``path`` imports, and what it imports of the room itself."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(name.name for name in node.names)
    return {name if name.startswith("engram.nodes") else name.partition(".")[0] for name in names}


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOM)))
def test_a_file_needs_ros_and_is_short(path):
    ros = [n for n in imported(path) if n == "rclpy" or n.endswith(("_msgs", "_interfaces", "_srvs")) or "nodes" in n]
    assert ros, "without ROS it belongs into runtime/"
    assert lines(path) <= MOST_LINES


def test_the_room_stays_small():
    count = sum(lines(path) for path in FILES)
    assert count <= MOST_LINES_TOGETHER, f"{count} lines: what needs no ROS belongs into runtime/ or viewer/"
