"""Parameters of the safety node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, StepNodeConfig, param


@dataclass(frozen=True)
class SafetyNodeConfig(BoundNodeConfig, StepNodeConfig):
    """Parameters of the safety node."""

    robot: str = "panda_2f85"
    """Robot whose limits hold: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    chunk_timeout_s: float = param(30.0, 0.05, 3600.0)
    """Lock-step: hold the robot after waiting this long for a due action chunk [s], wall clock."""
    answer_wait: float = param(0.5, 0.0, 0.9)
    """Free running: a control step waits this share of itself for the policy's answer to its own observation; 0: not
    at all. A policy that answers later than that is not waited for."""
    intervention_timeout_s: float = param(0.5, 0.05, 10.0)
    """A human who was not heard of for this long has handed back control [s], wall clock."""
    joints_timeout_s: float = param(0.5, 0.05, 60.0)
    """Hold the last command when there were no valid joint states for this long [s], wall clock."""
    stop_folder: str = "~/.local/share/engram/{robot_id}/safety"
    """Folder that keeps a latched stop and the last command over restarts; "{robot_id}" is filled in; empty: a restart
    releases the stop, and forgets the motion of the arm."""
    memory_obstacles: bool = False
    """Keep the arm away from objects in memory/graph that its gripper cannot take. Not for bins or drawers to use."""
