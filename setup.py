"""What colcon needs to know; everything is read from pyproject.toml, which pip and uv use directly.

With --symlink-install colcon runs a link to this file from its build folder, where there is no pyproject.toml:
the link is followed.
"""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def shared(folder: str, pattern: str) -> tuple[str, list[str]]:
    """A data_files entry: the matching files of `folder`, for share/engram/<folder>."""
    return f"share/engram/{folder}", sorted(str(file.relative_to(HERE)) for file in (HERE / folder).glob(pattern))


setup(
    name=PROJECT["name"],
    version=PROJECT["version"],
    package_dir={"": ".python"},
    packages=find_packages(str(HERE / ".python")),
    entry_points={"console_scripts": [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/engram"]),
        ("share/engram", ["package.xml"]),
        shared("launch", "*.launch.*"),
        shared("config", "*.yaml"),
        shared("config", "*.rviz"),
    ],
)
