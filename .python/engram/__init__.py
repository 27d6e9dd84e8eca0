"""Engram: a robot's memory, a policy that reads it and a learner that keeps going.

Every subpackage is a folder at the top of the repository; this folder only gives them their import name.
"""

import os
from importlib.metadata import PackageNotFoundError, version

if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # read once, when mujoco is imported: without a screen, render by EGL

try:
    __version__ = version("engram")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"
