"""The tabletop tasks as Gymnasium environments: the same world, controller and safety filter as everywhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from engram.core.control import ControlConfig, proprioception
from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.pipeline import CommandPipeline
from engram.core.registry import make_robot
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import EE_ACTION_DIM, JointState, Observation, OracleOutcome
from engram.sim.render import SceneRenderer
from engram.sim.robots.model import Profile
from engram.sim.tasks import get_task, with_options
from engram.sim.world import WorldConfig
from engram.sim.worlds import make_mujoco_world

ObservationType = Literal["pixels_agent_pos", "state"]
OBSERVATION_TYPES: tuple[str, ...] = ("pixels_agent_pos", "state")
STATE_BOUND = 4.0
"""No entry of the state vector leaves +-4: metres within reach, unit quaternion, fraction, radians."""


class TabletopEnv(gym.Env[dict[str, Any], np.ndarray]):
    """One task at the simulated table.

    Observation: ``agent_pos`` (15,) float32, 8 and the arm's joints, as in
    :func:`engram.core.control.proprioception`; with ``obs_type`` ``pixels_agent_pos`` also ``pixels``: one picture
    (H, W, 3) uint8 for each of the robot's cameras. Action: (7,) in [-1, 1], relative
    tool motion and gripper (``ee_delta``). The reward is the simulator's verdict; success ends the episode
    (``terminated``), as does a choice that is final and wrong; the task's step limit cuts it (``truncated``).
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # gymnasium leaves out ClassVar
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        task: str = "pick_place",
        obs_type: ObservationType = "pixels_agent_pos",
        render_mode: str | None = None,
        image_size: int = 128,
        profile: Profile = "fast",
        render_size: int = 256,
        world_config: WorldConfig | None = None,
        robot: str | RobotConfig = PANDA_2F85,
        delay: int | None = None,
        alternatives: int | None = None,
        first_color: int | None = None,
        distractors: int | None = None,
        kinds: int | None = None,
        world: str = "tabletop",
    ) -> None:
        """Make the environment; nothing is rendered before the first reset.

        Args:
            task: a shipped task's name, or ``package.module:attribute`` of your own.
            obs_type: whether camera images are observed.
            render_mode: ``rgb_array`` or None.
            image_size: width and height of the observed images [px].
            profile: ``fast`` or ``photo``; state observations need no cameras and ignore it.
            render_size: width and height of what :meth:`render` returns [px].
            world_config: everything else of the world.
            robot: a name that ``engram.core.registry.make_robot`` knows, or the configuration itself.
            delay: of a memory task [control steps]; None = as the task has it.
            alternatives: of a memory task; None = as the task has it.
            first_color: of a memory task's palette; None = 0.
            distractors: of a memory task, things that mean nothing; None = none.
            kinds: of things in ``touch_unseen``; None = all.
            world: ``tabletop``, or ``package.module:attribute`` of a MujocoWorld of your own.
        """
        if obs_type not in OBSERVATION_TYPES:
            raise unknown_name("obs_type", obs_type, OBSERVATION_TYPES)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown_name("render_mode", str(render_mode), self.metadata["render_modes"])
        pixels = obs_type == "pixels_agent_pos"
        if pixels and profile == "none":
            raise InvalidInputError("profile 'none' has no cameras: observe obs_type 'state' instead")
        config = replace(world_config or WorldConfig(), profile=profile if pixels else "none", image_size=image_size)
        options = {"alternatives": alternatives, "first_color": first_color, "distractors": distractors}
        options["kinds"] = kinds
        task = with_options(task, delay=delay, **options)
        self.task, self.obs_type, self.render_mode, self.render_size = task, obs_type, render_mode, render_size
        self._max_episode_steps = get_task(task).max_steps  # lerobot-eval asks for it by this name
        self.world = make_mujoco_world(world, config, make_robot(robot))
        control = ControlConfig(control_dt_s=config.control_dt_s)
        self.pipeline = CommandPipeline(self.world.kinematics, self.world.robot, control=control)
        self._joints: JointState | None = None
        self._viewer: SceneRenderer | None = None
        self.action_space = gym.spaces.Box(-1.0, 1.0, (EE_ACTION_DIM,), np.float32)
        spaces: dict[str, gym.Space[Any]] = {
            "agent_pos": gym.spaces.Box(-STATE_BOUND, STATE_BOUND, (self.world.robot.state_dim,), np.float32)
        }
        if pixels:
            images: dict[str, gym.Space[Any]] = {
                camera.name: gym.spaces.Box(0, 255, (*camera.pixels(image_size), 3), np.uint8)
                for camera in self.world.robot.cameras
            }
            spaces["pixels"] = gym.spaces.Dict(images)
        self.observation_space = gym.spaces.Dict(spaces)

    @property
    def instruction(self) -> str:
        """The words of the running episode; empty before the first reset."""
        return self.world.instruction

    @property
    def task_description(self) -> str:
        """The same under the name that LeRobot's evaluation reads."""
        return self.world.instruction

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrange the table from ``seed``, or from the next draw; ``options["instruction"]`` chooses the words."""
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self.pipeline.reset()
        observation = self.world.reset(self.task, episode_seed, (options or {}).get("instruction", ""))
        self._joints = observation.joints
        return self._observe(observation), self._info(self.world.oracle_outcome())

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Run one control step."""
        if self._joints is None:
            raise EngramError("step before reset: call reset first")
        observation = self.world.step(self.pipeline.step_action(self._joints, action).command)
        self._joints = observation.joints
        outcome = self.world.oracle_outcome()
        done = outcome.success or outcome.failed
        return self._observe(observation), outcome.reward, done, outcome.truncated and not done, self._info(outcome)

    def render(self) -> np.ndarray | None:
        """Return the perception camera's picture (render_size, render_size, 3) uint8, or None without a render mode."""
        if self.render_mode is None:
            return None
        if self._viewer is None:
            self._viewer = SceneRenderer(self.render_size, self.render_size)
        self._viewer.use(self.world.model)
        return self._viewer.frame(self.world.robot.perception_camera, self.world.data, self.world.stamp_ns).color.copy()

    def close(self) -> None:
        """Free the rendering contexts; may be called twice."""
        self.world.close()
        if self._viewer is not None:
            self._viewer.close()

    def _observe(self, observation: Observation) -> dict[str, Any]:
        state = proprioception(observation.joints, self.world.kinematics, self.world.robot)
        seen: dict[str, Any] = {"agent_pos": np.clip(state, -STATE_BOUND, STATE_BOUND)}
        if self.obs_type == "pixels_agent_pos":
            seen["pixels"] = {name: observation.camera(name).color.copy() for name in self.world.robot.camera_names}
        return seen

    def _info(self, outcome: OracleOutcome) -> dict[str, Any]:
        return {
            "oracle_success": outcome.success,
            "is_success": outcome.success,  # the name that LeRobot's evaluation reads
            "instruction": outcome.instruction,
            "task": outcome.task,
        }
