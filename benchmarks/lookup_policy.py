"""A scripted policy without images: it looks the target up in ``memory/context`` and moves there by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import EngramError, WeightsError
from engram.core.registry import make_kinematics
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, ActionChunk, MemoryTokens, Observation, Pose
from engram.perception.embedding import default_text_encoder
from engram.sim.experts.base import CLEARANCE_M, Expert, Waypoint, down_on
from engram.sim.experts.carry import HELD_FRACTION, CarryExpert
from engram.sim.experts.memory.base import DEPTH_M
from engram.sim.experts.memory.blocks import STEADY
from engram.sim.props import CUP_HEIGHT_M
from engram.sim.scene import CUBE_HALF_M
from engram.sim.tasks import task_for
from engram.sim.tasks.memory.unseen import PlaceUnseen

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

CARRIED = "white cube"
"""What the detector calls the cube of ``place_unseen``."""


class Believed:
    """What a scripted motion asks of a world, answered from joint encoders and from what was looked up."""

    def __init__(self, robot: RobotConfig) -> None:
        self.robot, self.kinematics, self.scale = robot, make_kinematics(robot), robot.table.scale
        self.goal, self.cube = np.zeros(3), np.zeros(3)  # (3,) m, base_link
        self._grasp: np.ndarray | None = None  # (3,) m from the tool to the cube in the gripper

    def update(self, observation: Observation) -> None:
        """Take in the joint state; what the gripper holds moves along with it."""
        self._joints = observation.joints
        if self.gripper_fraction() <= HELD_FRACTION:
            self._grasp = None
            return
        if self._grasp is None:
            self._grasp = self.cube - self.tool_pose().position
        self.cube = self.tool_pose().position + self._grasp

    def tool_pose(self) -> Pose:
        """Return the tool pose that the joint encoders imply."""
        return self.kinematics.forward(self._joints.positions[: len(self.robot.arm_joints)])

    def gripper_fraction(self) -> float:
        """Return how far the gripper is closed, 0..1."""
        return self.robot.gripper_fraction(float(self._joints.positions[-1]))

    def oracle_pose(self, body: str) -> Pose:
        """Return where the cube is believed to be; a token does not tell how it is turned. It is no truth: the
        experts ask for it by this name."""
        return Pose(self.cube, np.array([1.0, 0.0, 0.0, 0.0]))


class Touch(Expert):
    """Above all that may stand there, then down on the middle of the goal."""

    def waypoint(self) -> Waypoint:
        believed = cast(Believed, self.world)
        top = believed.goal * (1.0, 1.0, 2.0)  # the token's place is the middle of what stands on the table
        clearance = CLEARANCE_M + CUP_HEIGHT_M - top[2]
        return down_on(believed.tool_pose().position, top, -DEPTH_M, clearance)


class Carry(CarryExpert):
    """The cube to the goal."""

    def target(self, slot: str = "color") -> str:
        return CARRIED

    def goal(self) -> np.ndarray:
        return np.append(cast(Believed, self.world).goal[:2], CUBE_HALF_M)

    def placed(self, offset: np.ndarray) -> bool:
        return bool(np.hypot(*offset[:2]) < 0.012 and abs(offset[2]) < 0.005)


class LookupPolicy(Policy):
    """Looks up once, at the first step at which the arm may move, where things lie; from then on it is blind."""

    def __init__(self, robot: RobotConfig) -> None:
        self.robot = robot
        self.found: np.ndarray = np.full(3, np.inf)
        """Where the target is said to be (3,) m; infinite before the first look-up of an episode."""

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode; the words tell what to do."""
        self._words, self._load = default_text_encoder().encode([instruction, CARRIED])
        self._episode = episode
        self._believed = Believed(self.robot)
        world = cast("MujocoWorld", self._believed)  # it has all that these motions ask of one
        carry = task_for(instruction) == PlaceUnseen.name
        self._motion: Expert = Carry(world, STEADY) if carry else Touch(world)
        self.found = np.full(3, np.inf)

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step; of it, only the joints and the memory are looked at."""
        if memory is None:
            raise EngramError("LookupPolicy.observe: no memory/context; run it with perception and memory")
        self._observation = observation
        if not observation.joints.held and not np.isfinite(self.found).all():
            self.found = _place(memory, self._words)
            self._believed.goal, self._believed.cube = self.found, _place(memory, self._load)
        self._believed.update(observation)

    def act(self) -> ActionChunk:
        """Return the next action; none while the cell holds the arm."""
        rest = np.array([0.0] * (EE_ACTION_DIM - 1) + [-1.0])
        action = rest if self._observation.joints.held else self._motion.act()
        return ActionChunk(self._observation.stamp_ns, self._episode, "ee_delta", action[None], 0.1, 1, self.version)

    def load_weights(self, path: Path, version: str) -> None:
        """It has none."""
        raise WeightsError(f"{path}: a look-up has no weights")

    @property
    def version(self) -> str:
        """Its name."""
        return "lookup"

    @property
    def reads_context(self) -> bool:
        """It does."""
        return True


def _place(memory: MemoryTokens, vector: np.ndarray) -> np.ndarray:
    """Return the place (3,) m of the object most like ``vector`` (384,); at the base if there is no object."""
    if not memory.mask.any():
        return np.zeros(3)
    return memory.place[np.where(memory.mask, memory.tokens @ vector, -np.inf).argmax()].astype(float)
