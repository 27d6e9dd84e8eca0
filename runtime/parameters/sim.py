"""Parameters of the simulation node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, StepNodeConfig, param


@dataclass(frozen=True)
class SimNodeConfig(BoundNodeConfig, StepNodeConfig):
    """Parameters of the simulation node."""

    world: str = "tabletop"
    """World to simulate: tabletop; twin, where nothing ends an episode; or package.module:attribute of your own."""
    robot: str = "panda_2f85"
    """Robot in it: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    task: str = ""
    """Task to begin with; empty: wait for sim/reset."""
    tasks: str = ""
    """Tasks of your own that sim/reset may ask for, as package.module:attribute, separated by commas."""
    seed: int = 0
    """Seed of the first episode."""
    control_dt_s: float = param(0.1, 0.01, 1.0)
    """Length of one control step [s]."""
    retry_s: float = param(1.0, 0.05, 60.0)
    """Lock-step: show the same step again after waiting this long for its command [s]."""
    command_timeout_s: float = param(10.0, 0.1, 3600.0)
    """Lock-step: report a missing command after this long [s]."""
    rest_period_s: float = param(0.5, 0.05, 60.0)
    """Between episodes: how often the robot at rest is published, and how far the clock then goes on [s]."""
