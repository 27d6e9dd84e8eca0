"""Parameters of the viewer node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, CameraNodeConfig, param


@dataclass(frozen=True)
class ViewerNodeConfig(BoundNodeConfig, CameraNodeConfig):
    """Parameters of the viewer."""

    niceness: int = param(10, 0, 19)
    """No command waits for it, so on a busy machine it stands back."""
    port: int = param(8080, 1, 65535)
    """TCP port of the page."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: every one. Whoever opens the page can move and stop the robot. Beyond loopback it
    asks for the token that the node prints at its start."""
    robot: str = "panda_2f85"
    """Robot to draw, which the page stops and drives; none: the page shows cameras, memory and nodes alone."""
    refresh_s: float = param(0.2, 0.02, 10.0)
    """Time between two refreshes of the page [s]."""
    stale_after_s: float = param(5.0, 1.0, 600.0)
    """A node whose diagnostics are older than this is shown as stale [s]."""
    choose_task: bool = True
    """Find the simulated task that the words fit and begin it; false: words go to the robot as they are."""
    tasks: str = ""
    """Tasks of your own whose words are understood too, as package.module:attribute, separated by commas."""
