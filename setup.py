"""What colcon needs to know; everything is read from pyproject.toml, which pip and uv use directly.

With --symlink-install colcon runs a link to this file from its build folder, where there is no pyproject.toml:
the link is followed.
"""

import tomllib
from pathlib import Path

from setuptools import Distribution, find_packages, setup

HERE = Path(__file__).resolve().parent
PYPROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
LEFT_OUT = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["exclude"]


class PlainDistribution(Distribution):
    """Keeps `requires-python` a string: colcon reads this object's attributes back as Python literals."""

    def parse_config_files(self, *args, **kwargs) -> None:
        super().parse_config_files(*args, **kwargs)
        for holder in (self, self.metadata):
            if getattr(holder, "python_requires", None) is not None:
                holder.python_requires = str(holder.python_requires)


def shared(folder: str, *patterns: str) -> tuple[str, list[str]]:
    """A data_files entry: the files of `folder` that match, for share/engram/<folder>."""
    files = (file for pattern in patterns for file in (HERE / folder).glob(pattern))
    return f"share/engram/{folder}", sorted(str(file.relative_to(HERE)) for file in files)


setup(
    distclass=PlainDistribution,
    name=PROJECT["name"],
    version=PROJECT["version"],
    package_dir={"": ".python"},
    packages=find_packages(str(HERE / ".python"), exclude=LEFT_OUT),
    entry_points={"console_scripts": [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/engram"]),
        ("share/engram", ["package.xml"]),
        shared("launch", "*.launch.*"),
        shared("config", "*.yaml", "*.xml", "*.rviz"),
        shared("config/sros2", "*.xml"),
    ],
)
