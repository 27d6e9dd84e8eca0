"""What the nodes say about the latched stop, in one place."""

from __future__ import annotations

REFUSED_WHILE_STOPPED = (
    "the robot is stopped (the diagnostics of safety_node say why): release it first with the service safety/reset "
    "(ros2 service call safety/reset std_srvs/srv/Trigger, in the robot's namespace), or with the page's Release button"
)
"""Why no task and no episode begins."""
