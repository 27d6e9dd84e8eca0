"""Whether the ROS packages of this environment are what its nodes would import."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

FAST_DDS = "rmw_fastrtps_cpp"
ADVICE = (
    "use a terminal in which no ROS is sourced, or say "
    "`unset PYTHONPATH LD_LIBRARY_PATH AMENT_PREFIX_PATH RMW_IMPLEMENTATION`"
)


def foreign_ros(
    path: Sequence[str] | None = None, environ: Mapping[str, str] | None = None, packages: Path | None = None
) -> str:
    """Return what of another ROS installation gets in the way of the ROS wheels here; empty: nothing, or no wheels.

    Args:
        path: where modules are looked for; default: ``sys.path``.
        environ: default: that of this process.
        packages: folder of the wheels; default: that of this environment.
    """
    path, environ = sys.path if path is None else path, os.environ if environ is None else environ
    own = (Path(sysconfig.get_path("platlib")) if packages is None else packages) / "rclpy"
    if not own.is_dir():
        return ""
    found = PathFinder.find_spec("rclpy", path)
    if found is None or found.origin is None or Path(found.origin).parent.resolve() != own.resolve():
        return f"rclpy would be imported from {found.origin if found else 'nowhere'}, not from {own}"
    prefix = Path(sys.prefix).resolve()
    for folder in filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        library = Path(folder).resolve() / "librcl.so"
        if library.exists() and not library.is_relative_to(prefix):
            return f"LD_LIBRARY_PATH has another ROS: {folder}"
    if (wanted := environ.get("RMW_IMPLEMENTATION") or FAST_DDS) != FAST_DDS:
        return f"RMW_IMPLEMENTATION is {wanted!r}, and the ROS wheels have {FAST_DDS} alone"
    return ""
