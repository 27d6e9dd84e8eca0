"""The memory alone: memory.launch.yaml has nodes and arguments (``--show-args`` lists them)."""

from engram.launch.beside import yaml_beside
from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """Return what ``memory.launch.yaml`` describes."""
    return yaml_beside(__file__)
