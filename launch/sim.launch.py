"""The whole loop in simulation: reads sim.launch.yaml, where nodes and arguments stand (``--show-args`` lists them)."""

from pathlib import Path

from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource

from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """Return what ``sim.launch.yaml`` describes."""
    path = str(Path(__file__).resolve().parent / "sim.launch.yaml")
    return LaunchDescription([IncludeLaunchDescription(AnyLaunchDescriptionSource(path))])
