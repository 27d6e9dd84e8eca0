"""PEP 517 backend: scikit-build-core, told where pip put the ROS wheels.

The wheels unpack a ROS prefix (share/, lib/, include/) into the environment that installs them, which for an
isolated build is a temporary one. CMake and ament have to be pointed at it; a sourced ROS installation stays
behind it on the path.
"""

import importlib.metadata
import os
from pathlib import Path

import scikit_build_core.build as _backend
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = ["build_sdist", "build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_wheel"]


def ros_prefix() -> Path:
    """The directory that holds share/std_msgs/package.xml of the installed wheel."""
    for file in importlib.metadata.files("ros-std-msgs") or []:
        if file.name == "package.xml":
            return Path(file.locate()).resolve().parents[2]
    raise RuntimeError("the installed ros-std-msgs holds no package.xml: reinstall the build requirements")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build with the ROS prefix first on AMENT_PREFIX_PATH and CMAKE_PREFIX_PATH."""
    prefix = str(ros_prefix())
    for name in ("AMENT_PREFIX_PATH", "CMAKE_PREFIX_PATH"):
        os.environ[name] = os.pathsep.join(filter(None, [prefix, os.environ.get(name)]))
    include = Path(__file__).resolve().parent / "cmake" / "wheels.cmake"
    defines = [f"CMAKE_PROJECT_INCLUDE={include}", os.environ.get("SKBUILD_CMAKE_DEFINE")]
    os.environ["SKBUILD_CMAKE_DEFINE"] = ";".join(filter(None, defines))
    return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)
