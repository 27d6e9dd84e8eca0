"""The tabletop as another robot would meet it: a twin whose calibration, friction, cameras and delays are not nominal.

A policy that was trained on the nominal tabletop fails here more often, as it does on hardware. Nothing tells it what
differs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.control import EndEffectorController
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.geometry import make_pose, rotation
from engram.core.pipeline import CommandPipeline
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.safety import SafetyConfig
from engram.core.types import CameraFrame, JointCommand, Observation, Pose
from engram.sim.scene import SceneConfig, compiled_scene
from engram.sim.world import MujocoWorld, WorldConfig


@dataclass(frozen=True)
class Gap:
    """What differs from the nominal tabletop; the default differs in nothing."""

    yaw_deg: float = 0.0
    """The axes of the tool's motions are turned about the vertical by this."""
    gain: float = 1.0
    """Executed translation, of the commanded one."""
    deadband: float = 0.0
    """Translations shorter than this do nothing, longer ones lose as much; 1 = the longest of a control step."""
    front_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The front camera is displaced by this, in base_link."""
    wrist_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The wrist camera is displaced by this, in its own axes."""
    front_yaw_deg: float = 0.0
    """The front camera is turned about the vertical by this."""
    friction: float = 1.0
    """Sliding friction of everything, of the nominal one."""
    mass: float = 1.0
    """Mass of what lies on the table, of the nominal one."""
    mounted_deg: float = 0.0
    """The robot stands turned about the vertical by this on its place; its cameras were calibrated there."""
    latency_steps: int = 0
    """A command is executed so many control steps late."""
    dropped: float = 0.0
    """Share of the control steps whose pictures do not come: those of the step before are seen again."""
    limits: float = 1.0
    """Share of the robot's speed, acceleration and jerk limits that its safety filter allows."""


GAPS: dict[str, Gap] = {
    "none": Gap(),
    "turned": Gap(yaw_deg=15.0),
    "turned_scaled": Gap(yaw_deg=-10.0, gain=1.4),
    "wrist_moved": Gap(wrist_m=(0.0, 0.006, 0.0)),
    "front_moved": Gap(front_m=(0.0, 0.03, 0.0), front_yaw_deg=-3.0),
    "mounted": Gap(mounted_deg=5.0),
    "knocked": Gap(mounted_deg=-5.0),
    "worn": Gap(deadband=0.12, friction=0.5, mass=2.0),
    "late": Gap(latency_steps=2, dropped=0.2),
    "careful": Gap(limits=0.3),
}
"""Name -> gap. A robot's parameter file begins with limits as in ``careful``."""
LIMITS = ("velocity_fraction", "acceleration_fraction", "jerk_fraction")
"""Of :class:`engram.core.safety.SafetyConfig`: what ``limits`` of a gap sets."""


def get_gap(name: str) -> Gap:
    """Return the gap called ``name``; raises UnknownNameError with the valid ones."""
    if name not in GAPS:
        raise unknown_name("gap", name, GAPS)
    return GAPS[name]


DEVIATIONS: dict[str, tuple[float, float]] = {
    "turned by [deg]": (-3.0, 3.0),
    "motions times": (0.9, 1.1),
    "deadband": (0.0, 0.03),
    "front camera x [m]": (-0.01, 0.01),
    "front camera y [m]": (-0.01, 0.01),
    "front camera z [m]": (-0.01, 0.01),
    "front camera turned by [deg]": (-1.0, 1.0),
    "wrist camera y [m]": (-0.002, 0.002),
    "friction times": (0.7, 1.4),
    "mass times": (0.7, 1.5),
    "one step late": (-2.0, 1.0),  # from 0 on it is: a quarter of all
    "pictures dropped": (0.0, 0.1),
}
"""What remains of a robot that was set up with care: how far it deviates from its gap, from least to most."""


def deviated(gap: Gap, place: Sequence[float]) -> Gap:
    """Return ``gap`` with the deviations at ``place`` (12,), 0 the least and 1 the most, in the order of
    ``DEVIATIONS``."""
    yaw, gain, deadband, *aside, front, wrist, friction, mass, late, dropped = deviations(place).values()
    front_m = np.add(gap.front_m, aside)
    return replace(
        gap,
        yaw_deg=gap.yaw_deg + yaw,
        gain=gap.gain * gain,
        deadband=gap.deadband + deadband,
        front_m=(float(front_m[0]), float(front_m[1]), float(front_m[2])),
        front_yaw_deg=gap.front_yaw_deg + front,
        wrist_m=(gap.wrist_m[0], gap.wrist_m[1] + wrist, gap.wrist_m[2]),
        friction=gap.friction * friction,
        mass=gap.mass * mass,
        latency_steps=gap.latency_steps + int(late >= 0.0),
        dropped=min(1.0, gap.dropped + dropped),
    )


def deviations(place: Sequence[float]) -> dict[str, float]:
    """Return what ``place`` (12,) means, by the names of ``DEVIATIONS``.

    Raises:
        InvalidInputError: it is no place.
    """
    if len(place) != len(DEVIATIONS) or not all(0.0 <= at <= 1.0 for at in place):
        raise InvalidInputError(f"place: {tuple(place)}, expected {len(DEVIATIONS)} numbers from 0 to 1")
    return {name: low + at * (high - low) for at, (name, (low, high)) in zip(place, DEVIATIONS.items(), strict=True)}


def varied(gap: Gap, seed: int) -> Gap:
    """Return ``gap`` with deviations drawn from ``seed``."""
    return deviated(gap, drawn_place(seed))


def drawn_place(seed: int) -> tuple[float, ...]:
    """Return the place (12,) whose deviations ``seed`` stands for."""
    return tuple(np.random.default_rng([zlib.crc32(b"gap"), seed]).random(len(DEVIATIONS)).tolist())


class GapWorld(MujocoWorld):
    """A tabletop with a gap in cameras, friction, mass and delays; see :func:`gap_pipeline` for its motions."""

    def __init__(self, gap: Gap, config: WorldConfig | None = None, robot: RobotConfig | str = PANDA_2F85) -> None:
        super().__init__(config, robot)
        self.gap = gap
        self._late: list[JointCommand] = []
        self._seen: dict[str, CameraFrame] = {}  # of the last step whose pictures came
        self._seed = 0
        self._drops = np.random.default_rng(0)

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Arrange ``task`` from ``seed``, which also says which pictures do not come."""
        self._seed = seed
        return super().reset(task, seed, instruction)

    def load(self, scene: SceneConfig) -> None:
        """Begin an episode with ``scene`` as it is here."""
        super().load(scene)
        self._late, self._seen = [], {}
        self._drops = np.random.default_rng(self._seed)
        model, gap = self.model, self.gap
        pristine = compiled_scene(scene, self.config.profile, self.config.timestep_s, self.robot)
        model.geom_friction[:] = pristine.geom_friction
        model.geom_friction[:, 0] *= gap.friction
        for body in range(model.nbody):
            joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
            if any(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE for joint in joints):
                model.body_mass[body] = pristine.body_mass[body] * gap.mass
                model.body_inertia[body] = pristine.body_inertia[body] * gap.mass
        base = int(model.body_rootid[model.jnt_bodyid[model.joint(self.robot.arm_joints[0]).id]])
        model.body_quat[base] = (self._mount * rotation(Pose(np.zeros(3), model.body_quat[base]))).as_quat(
            scalar_first=True
        )
        mujoco.mj_setConst(model, mujoco.MjData(model))
        front, wrist = model.camera("front").id, model.camera("wrist").id
        turn = Rotation.from_euler("z", gap.front_yaw_deg, degrees=True)
        old = Rotation.from_quat(model.cam_quat[front], scalar_first=True)
        model.cam_pos[front] += gap.front_m
        model.cam_quat[front] = (turn * old).as_quat(scalar_first=True)
        own = Rotation.from_quat(model.cam_quat[wrist], scalar_first=True)
        model.cam_pos[wrist] += own.apply(gap.wrist_m)

    def advance(self, command: JointCommand) -> None:
        """Execute the command that is due by now; the arm waits for the first one."""
        self._late.append(command)
        due = self._late.pop(0) if len(self._late) > self.gap.latency_steps else None
        super().advance(due or replace(command, positions=self._targets))

    @property
    def _mount(self) -> Rotation:
        return Rotation.from_euler("z", self.gap.mounted_deg, degrees=True)

    def tool_pose(self) -> Pose:
        """Return where the tool is in the world; base_link is turned in it as the robot is mounted."""
        tool = super().tool_pose()
        return make_pose(self._mount.apply(tool.position), self._mount * rotation(tool))

    def observe(self, depth: bool | None = None) -> Observation:
        """Return joints now, and the pictures that came, with the cameras' poses in base_link."""
        observation = super().observe(depth)
        if self.gap.mounted_deg:
            back = self._mount.inv()
            cameras = {
                name: replace(seen, pose=make_pose(back.apply(seen.pose.position), back * rotation(seen.pose)))
                for name, seen in observation.cameras.items()
            }
            observation = replace(observation, cameras=cameras)
        if self._seen and self._drops.random() < self.gap.dropped:
            old = {name: replace(seen, stamp_ns=observation.stamp_ns) for name, seen in self._seen.items()}
            return replace(observation, cameras=old)
        self._seen = dict(observation.cameras)
        return observation


class MiscalibratedController(EndEffectorController):
    """Moves the tool as ``gap`` has it, not as it was told."""

    gap = Gap()

    def understood(self, action: np.ndarray) -> np.ndarray:
        """Return what becomes of ``action`` (7,)."""
        done, gap = np.array(action, np.float64), self.gap
        move = Rotation.from_euler("z", gap.yaw_deg, degrees=True).apply(done[:3]) * gap.gain
        length = float(np.linalg.norm(move))
        done[:3] = np.clip(move * max(0.0, length - gap.deadband) / max(length, 1e-9), -1.0, 1.0)
        return done


def gap_pipeline(world: GapWorld) -> CommandPipeline:
    """Return the pipeline of a robot that moves as the gap of ``world`` has it."""
    limits = SafetyConfig(**dict.fromkeys(LIMITS, world.gap.limits))
    pipeline = CommandPipeline(world.kinematics, world.robot, safety=limits)
    pipeline.controller = MiscalibratedController(world.kinematics, world.robot)
    pipeline.controller.gap = world.gap
    return pipeline
