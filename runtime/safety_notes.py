"""What the nodes say about the latched stop, in one place."""

from __future__ import annotations

REFUSED_WHILE_STOPPED = (
    "the robot is stopped (the diagnostics of safety_node say why): release it first with engram release, the page's "
    "Release button, or the service safety/reset (std_srvs/srv/Trigger) in the robot's namespace"
)
"""Why no task and no episode begins."""
