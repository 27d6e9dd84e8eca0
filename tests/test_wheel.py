"""The distributions hold what `pip install` needs, and neither benchmarks nor tests."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = (
    "engram/__init__.py",
    "engram/py.typed",
    "engram/lerobot/__init__.py",
    "engram/nodes/sim_node.py",
    "engram/config/sim.yaml",
    "engram/launch/sim.launch.yaml",
    "engram/memory/stores/short_term/learned_eviction.json",
    "engram/policies/checkpoints/base/model.safetensors",
    "engram/policies/checkpoints/engram/card.json",
    "share/ament_index/resource_index/packages/engram",
    "share/engram/launch/sim.launch.py",
    "share/engram/config/fastdds.xml",
    "share/engram/package.xml",
)


def build(function: str, source: Path, target: Path) -> Path:
    """Call a hook of setuptools' build backend, as pip and uv do, and return the file that it made."""
    program = f"from setuptools import build_meta; print(build_meta.{function}({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that is built from a source distribution, and that from a copy of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    heavy = (".git", ".venv", ".tools", "build", "dist", "__pycache__", ".*_cache", "outputs", "data", "*.egg-info")
    shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=shutil.ignore_patterns(*heavy))
    source = build("build_sdist", folder / "checkout", folder)
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    with zipfile.ZipFile(build("build_wheel", unpacked, folder)) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_the_wheel_has_what_an_installation_needs(wheel):
    missing = [name for name in NEEDED if not any(file.endswith(name) for file in wheel)]
    assert not missing
    here = {path.name for path in (ROOT / ".python" / "engram").iterdir() if (path / "__init__.py").is_file()}
    there = {file.split("/")[1] for file in wheel if file.startswith("engram/") and file.count("/") > 1}
    assert here - there == {"benchmarks"}  # every other room is in it, with launch/, which is no package


@pytest.mark.slow
def test_the_wheel_has_neither_benchmarks_nor_tests_nor_examples(wheel):
    assert not [file for file in wheel if {"benchmarks", "tests", "examples", "interfaces"} & set(file.split("/"))]
