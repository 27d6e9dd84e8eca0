"""What the launch files in Python share: each starts what the YAML file beside it describes.

A node that its parameters keep from working (exit code 2) would fail again after each respawn: it ends the launch.
"""

from pathlib import Path

from launch.actions import EmitEvent, IncludeLaunchDescription, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch.launch_description import LaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource

from engram.core.errors import EXIT_MISCONFIGURED


def end_when_misconfigured(event: ProcessExited, _: LaunchContext) -> EmitEvent | None:
    """Return what ends everything, if a node cannot work as it is configured."""
    if event.returncode != EXIT_MISCONFIGURED:
        return None
    reason = f"{event.process_name} cannot work as it is configured; its error is above"
    return EmitEvent(event=Shutdown(reason=reason))


def yaml_beside(file: str) -> LaunchDescription:
    """Return what ``<name>.launch.yaml`` describes, for ``file``, a ``<name>.launch.py`` in the same folder."""
    path = str(Path(file).resolve().with_suffix(".yaml"))
    return LaunchDescription(
        [
            RegisterEventHandler(OnProcessExit(on_exit=end_when_misconfigured)),
            IncludeLaunchDescription(AnyLaunchDescriptionSource(path)),
        ]
    )
