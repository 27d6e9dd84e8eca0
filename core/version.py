"""The version of the installed package; a module of its own, because finding it out takes longer than all else."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("engram")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0+unknown"
