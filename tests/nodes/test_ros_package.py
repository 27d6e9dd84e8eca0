"""What a ROS workspace builds and installs of this package, by the very setup.py that colcon runs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from engram.app.process import EXECUTABLES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMAT_3 = ("name", "version", "description", "maintainer", "license")  # what must be there, and first, in this order


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install as ``colcon build`` does, into a folder, and return its prefix."""
    folder = tmp_path_factory.mktemp("colcon")
    words = ["-q", "egg_info", "--egg-base", str(folder), "build", "--build-base", str(folder / "build"), "install"]
    words += ["--root", str(folder), "--prefix", "/prefix", "--single-version-externally-managed"]
    words += ["--record", str(folder / "record")]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "setup.py", *words], cwd=ROOT, env=environment, check=True, timeout=250)
    return folder / "prefix"


def test_ros_finds_the_package_its_executables_and_its_files(installed: Path) -> None:
    share = installed / "share"
    assert (share / "ament_index/resource_index/packages/engram").is_file()
    assert (share / "engram/package.xml").read_bytes() == (ROOT / "package.xml").read_bytes()
    config = {".yaml", ".xml", ".rviz"}
    for folder, suffixes in (("launch", {".py", ".yaml"}), ("config", config), ("config/sros2", {".xml"})):
        wanted = {p.name for p in (ROOT / folder).iterdir() if p.suffix in suffixes} - {"__init__.py", "beside.py"}
        assert {p.name for p in (share / "engram" / folder).iterdir() if p.is_file()} == wanted
    programs = installed / "lib/engram"  # where `ros2 run` and launch files look
    assert {p.name for p in programs.iterdir()} == {"engram", *EXECUTABLES} == {*PROJECT["scripts"]}
    assert all(os.access(p, os.X_OK) for p in programs.iterdir())


def test_the_installed_code_is_whole(installed: Path) -> None:
    (packages,) = installed.glob("lib/python3*/site-packages/engram")
    names = ("core", "perception", "memory", "policies", "learning", "sim", "nodes", "config", "launch")
    source = {p.relative_to(ROOT) for name in names for p in (ROOT / name).rglob("*.py")}
    assert {p.relative_to(packages) for name in names for p in (packages / name).rglob("*.py")} == source
    assert (packages / "policies/checkpoints/base/model.safetensors").stat().st_size > 1_000_000
    assert (packages / "config/fastdds.xml").is_file()


def test_package_xml_is_of_format_3_and_says_what_pyproject_says() -> None:
    for folder in (ROOT, ROOT / "interfaces"):
        package = ElementTree.parse(folder / "package.xml").getroot()
        assert (package.tag, package.get("format")) == ("package", "3")
        assert [child.tag for child in package][: len(FORMAT_3)] == [*FORMAT_3]
        assert (package.find("maintainer").get("email") or "").count("@") == 1  # type: ignore[union-attr]
        assert package.find("export/build_type") is not None
        names = [(child.tag, child.text) for child in package if child.tag.endswith("depend")]
        assert len(names) == len(set(names))
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    assert package.findtext("name") == PROJECT["name"]
    assert package.findtext("version") == PROJECT["version"]


def test_every_ros_package_that_the_nodes_import_is_a_dependency() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    declared = {child.text for child in package if child.tag in ("depend", "exec_depend")}
    imported = set()
    for path in [*(ROOT / "nodes").rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    ros = {name for name in imported if name.endswith(("_msgs", "_interfaces", "_srvs")) or name.startswith("rcl")}
    ros |= imported & {"launch", "launch_ros", "launch_yaml", "ament_index_python"}
    assert {"rclpy", "sensor_msgs", "engram_interfaces"} <= ros
    assert ros <= declared
