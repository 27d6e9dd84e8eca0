"""`make lint` holds the arrows between the rooms: each kind of import that points up breaks a contract."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINT = Path(sys.executable).parent / "lint-imports"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package's Python files, to be broken."""
    root = tmp_path_factory.mktemp("arrows")
    wanted = shutil.ignore_patterns("checkpoints", "results", "__pycache__", "*.safetensors", "*.json", "*.egg-info")
    shutil.copytree(ROOT / ".python", root, symlinks=False, ignore=wanted, dirs_exist_ok=True)
    shutil.copy(ROOT / ".importlinter", root)
    return root


def lint(root: Path) -> tuple[int, str]:
    """Return the exit code and the words of the linter for the package in ``root``."""
    done = subprocess.run([LINT, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_the_package_keeps_every_contract(copy):
    code, said = lint(copy)
    assert code == 0, said


@pytest.mark.parametrize(
    ("file", "text", "broken"),
    [
        ("core/up.py", "from engram.sim.tasks import get_task", "engram.core is not allowed to import engram.sim"),
        (
            "sim/up.py",
            "def late():\n    from engram.policies import load_policy\n    return load_policy",
            "engram.sim is not allowed to import engram.policies",
        ),
        (
            "memory/up.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from engram.nodes.base import EngramNode",
            "engram.memory is not allowed to import engram.nodes",
        ),
        (
            "learning/up.py",
            "import engram.memory.robot_memory",
            "engram.learning is not allowed to import engram.memory",
        ),
        ("app/up.py", "def late():\n    import rclpy", "engram.app is not allowed to import rclpy"),
        ("sim/heavy.py", "import torch", "engram.sim is not allowed to import torch"),
        ("attic/__init__.py", "", "attic"),  # a room that is on no list
    ],
)
def test_an_import_that_points_up_is_refused(copy, file, text, broken):
    path = copy / "engram" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    try:
        code, said = lint(copy)
    finally:
        path.unlink()
    assert code != 0
    assert broken in said
