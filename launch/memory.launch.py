"""The memory alone: reads memory.launch.yaml, where nodes and arguments stand (``--show-args`` lists them).

A node that its parameters keep from working (exit code 2) would fail again after each respawn: it ends the launch.
"""

from pathlib import Path

from launch.actions import EmitEvent, IncludeLaunchDescription, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch.launch_description_sources import AnyLaunchDescriptionSource

from engram.core.errors import EXIT_MISCONFIGURED
from launch import LaunchDescription


def end_when_misconfigured(event: ProcessExited, _: LaunchContext) -> EmitEvent | None:
    """Return what ends everything, if a node cannot work as it is configured."""
    if event.returncode != EXIT_MISCONFIGURED:
        return None
    reason = f"{event.process_name} cannot work as it is configured; its error is above"
    return EmitEvent(event=Shutdown(reason=reason))


def generate_launch_description() -> LaunchDescription:
    """Return what ``memory.launch.yaml`` describes."""
    path = str(Path(__file__).resolve().parent / "memory.launch.yaml")
    return LaunchDescription(
        [
            RegisterEventHandler(OnProcessExit(on_exit=end_when_misconfigured)),
            IncludeLaunchDescription(AnyLaunchDescriptionSource(path)),
        ]
    )
