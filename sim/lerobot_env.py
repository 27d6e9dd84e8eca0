"""Engram's tabletop tasks as an environment of LeRobot's commands: ``--env.type=engram --env.task=PickPlace-v0``.

LeRobot finds it with ``--env.discover_packages_path=engram.lerobot``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE

from engram.core.errors import unknown_name
from engram.core.registry import is_spec, make_robot
from engram.core.types import EE_ACTION_DIM
from engram.sim import ENVIRONMENTS, TASK_ENVIRONMENT
from engram.sim.tasks import task_class


def _features(robot_name: str, image_size: int) -> dict[str, PolicyFeature]:
    robot = make_robot(robot_name)
    return {
        ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(EE_ACTION_DIM,)),
        "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(robot.state_dim,)),
        **{
            f"pixels/{camera.name}": PolicyFeature(type=FeatureType.VISUAL, shape=(*camera.pixels(image_size), 3))
            for camera in robot.cameras
        },
    }


def _features_map(robot_name: str) -> dict[str, str]:
    cameras = make_robot(robot_name).camera_names
    return {
        ACTION: ACTION,
        "agent_pos": OBS_STATE,
        **{f"pixels/{camera}": f"{OBS_IMAGES}.{camera}" for camera in cameras},
    }


@EnvConfig.register_subclass("engram")
@dataclass
class EngramEnvConfig(EnvConfig):
    """One Gymnasium task of ``engram.sim``."""

    task: str | None = "PickPlace-v0"
    """Gymnasium id without its namespace, or a task of your own as ``package.module:attribute``."""
    fps: int = 10
    """Control steps per second."""
    image_size: int = 128
    """Height and width of the cameras' pictures [px]."""
    robot: str = "panda_2f85"
    """Robot: a name, or package.module:attribute of a RobotConfig of your own."""
    features: dict[str, PolicyFeature] = field(default_factory=dict)
    features_map: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_spec(str(self.task)):
            task_class(str(self.task))  # one that cannot be loaded is named here
        elif self.gym_id not in ENVIRONMENTS:
            raise unknown_name("env.task", str(self.task), [name.removeprefix("engram/") for name in ENVIRONMENTS])
        self.features = _features(self.robot, self.image_size)
        self.features_map = _features_map(self.robot)

    @property
    def package_name(self) -> str:
        """What LeRobot imports to have the ids registered."""
        return "engram.sim"

    @property
    def gym_id(self) -> str:
        """Return the Gymnasium id."""
        return TASK_ENVIRONMENT if is_spec(str(self.task)) else f"engram/{self.task}"

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the environment's constructor."""
        own = {"task": self.task} if is_spec(str(self.task)) else {}
        return {
            "obs_type": "pixels_agent_pos",
            "render_mode": "rgb_array",
            "image_size": self.image_size,
            "robot": self.robot,
            **own,
        }
