"""`import engram`: what it offers, that it is quick, and that the names are what the rooms call them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import engram
import engram.learning
import engram.memory
import engram.sim
import engram.validation

HEAVY = ("torch", "numpy", "mujoco", "lerobot", "gymnasium", "rclpy", "importlib.metadata")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_engram_imports_nothing_that_takes_time():
    path = [p for p in sys.path if p]
    loaded = f"import sys; sys.path[:0] = {path!r}; import engram; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(loaded).strip() == "[]"


@pytest.mark.parametrize("package", [engram, engram.learning, engram.memory, engram.sim, engram.validation])
def test_every_name_is_there_and_type_checkers_see_the_same(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package)) | set(vars(package))
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(package._MODULES)


def test_a_wrong_name_is_answered_with_the_right_ones():
    with pytest.raises(AttributeError, match=r"'engram' has no attribute 'RobotMemry'; it offers .*RobotMemory"):
        _ = engram.RobotMemry


def test_what_a_room_offers_is_what_it_is_called_there():
    from engram.core.contracts import Detector
    from engram.sim.world import MujocoWorld

    assert engram.Detector is Detector
    world = engram.make_world("tabletop", engram.sim.WorldConfig(profile="none"))
    assert isinstance(world, MujocoWorld)
    world.close()
    assert engram.validation.evaluate is engram.evaluate


@pytest.mark.render
@pytest.mark.slow
def test_the_readmes_snippet_evaluates_a_shipped_policy():
    from engram.policies import load_policy
    from engram.sim import make_world
    from engram.validation import evaluate

    report = evaluate(load_policy("base"), make_world("tabletop"), tasks=["reach"], episodes=2, progress=False)
    assert report.per_task["reach"].n == 2
    assert report.subject.startswith("policy engram_vla-")
