"""Parameters of the perception node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import CameraNodeConfig, StepNodeConfig, param


@dataclass(frozen=True)
class PerceptionNodeConfig(StepNodeConfig, CameraNodeConfig):
    """Parameters of the perception node."""

    niceness: int = param(5, 0, 19)
    """Stands back for the control path, which takes the newest memory there is; 0 where a policy waits for it."""
    detector: str = "geometric"
    """Detector: geometric, zero_shot, or package.module:attribute of your own."""
    robot: str = "panda_2f85"
    """Robot whose camera is looked through: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    camera: str = ""
    """Camera whose colour and depth images are looked at; empty: the robot's perception_camera."""
    every: int = param(1, 1, 1000)
    """Look at every n-th frame only, and at the first and the last one of an episode in simulation."""
    rest_every: int = param(1, 1, 1000)
    """While nothing is carried out, look at every n-th frame only: learner and gate have the processor then."""
    keep_all: bool = False
    """Look at every frame, however late, instead of the newest: what `memory: wait` of the policy needs."""
    min_depth_m: float = param(0.05, 0.0, 10.0)
    """Nearest depth that the camera measures [m]. That something is missing nearer than that is no evidence."""
    max_depth_m: float = param(2.5, 0.1, 100.0)
    """Farthest depth that it measures well [m]. That something is missing beyond is no evidence; the memory believes no
    camera farther than 2.5 m."""
