"""The tabletop as another robot would meet it: a twin with a gap (:mod:`engram.sim.gaps`)."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import Any

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
from engram.sim.gaps import GAPS, Gap
from engram.sim.scene import SceneConfig, compiled_scene
from engram.sim.world import MujocoWorld, WorldConfig

LIMITS = ("velocity_fraction", "acceleration_fraction", "jerk_fraction")
"""Of :class:`engram.core.safety.SafetyConfig`: what ``limits`` of a gap sets."""
MOTIONS = ("yaw_deg", "gain", "deadband", "limits")
"""What a gap says of motions: it is no part of a world, which gets joint targets, but of :func:`gap_pipeline`."""


class GapWorld(MujocoWorld):
    """A tabletop with a gap in cameras, light, friction, masses, damping and delays.

    See :func:`gap_pipeline` for its motions.
    """

    def __init__(self, gap: Gap, config: WorldConfig | None = None, robot: RobotConfig | str = PANDA_2F85) -> None:
        super().__init__(config, robot)
        self.gap = gap
        self._late: list[JointCommand] = []
        self._seen: dict[str, CameraFrame] = {}  # of the last step whose pictures came
        self._seed = 0
        self._drops, self._noise = _draws(self._seed)

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Arrange ``task`` from ``seed``, which also draws the pictures' noise and says which of them do not come."""
        self._seed = seed
        return super().reset(task, seed, instruction)

    def load(self, scene: SceneConfig) -> None:
        """Begin an episode with ``scene`` as it is here."""
        super().load(scene)
        self._late, self._seen = [], {}
        self._drops, self._noise = _draws(self._seed)
        self.deviate()

    def deviate(self) -> None:
        """Make robot, lamps, cameras and things of the loaded scene those of ``gap``, whatever they were before."""
        assert self.scene is not None
        pristine = compiled_scene(self.scene, self.config.profile, self.config.timestep_s, self.robot)
        self._deviate_bodies(pristine)
        self._deviate_joints(pristine)
        self._deviate_lamps(pristine)
        self._deviate_cameras(pristine)
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))

    def _deviate_bodies(self, pristine: mujoco.MjModel) -> None:
        """Set the friction and the masses of things, and how the robot stands."""
        model, gap, base = self.model, self.gap, self._base
        model.geom_friction[:] = pristine.geom_friction
        model.geom_friction[:, 0] *= gap.friction
        for body in range(model.nbody):
            joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
            if any(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE for joint in joints):
                model.body_mass[body] = pristine.body_mass[body] * gap.mass
                model.body_inertia[body] = pristine.body_inertia[body] * gap.mass
        stands = Pose(np.zeros(3), pristine.body_quat[base])
        model.body_quat[base] = (self._mount * rotation(stands)).as_quat(scalar_first=True)

    def _deviate_joints(self, pristine: mujoco.MjModel) -> None:
        """Set the damping of the arm: of its joints, and that which its servos add."""
        arm = slice(len(self.robot.arm_joints))
        joints, servos = self._dof[arm], self._ctrl[arm]
        self.model.dof_damping[joints] = pristine.dof_damping[joints] * self.gap.damping
        self.model.actuator_biasprm[servos, 2] = pristine.actuator_biasprm[servos, 2] * self.gap.damping

    def _deviate_lamps(self, pristine: mujoco.MjModel) -> None:
        """Set the brightness of every lamp, and of the light from the camera."""
        for kind in ("ambient", "diffuse", "specular"):
            lamps, shone = getattr(self.model, f"light_{kind}"), getattr(pristine, f"light_{kind}")
            lamps[:] = shone * self.gap.brightness
            head, lit = getattr(self.model.vis.headlight, kind), getattr(pristine.vis.headlight, kind)
            head[:] = lit * self.gap.brightness

    def _deviate_cameras(self, pristine: mujoco.MjModel) -> None:
        """Set where the cameras are."""
        model, gap = self.model, self.gap
        front, wrist = model.camera("front").id, model.camera("wrist").id
        turn = Rotation.from_euler("z", gap.front_yaw_deg, degrees=True)
        old = Rotation.from_quat(pristine.cam_quat[front], scalar_first=True)
        model.cam_pos[front] = pristine.cam_pos[front] + gap.front_m
        model.cam_quat[front] = (turn * old).as_quat(scalar_first=True)
        own = Rotation.from_quat(pristine.cam_quat[wrist], scalar_first=True)
        model.cam_pos[wrist] = pristine.cam_pos[wrist] + own.apply(gap.wrist_m)

    @property
    def _base(self) -> int:
        """The body that the robot stands on."""
        return int(self.model.body_rootid[self.model.jnt_bodyid[self.model.joint(self.robot.arm_joints[0]).id]])

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
        if self.gap.camera_noise:
            noisy = {name: replace(seen, color=self._noisy(seen.color)) for name, seen in observation.cameras.items()}
            observation = replace(observation, cameras=noisy)
        self._seen = dict(observation.cameras)
        return observation

    def _noisy(self, color: np.ndarray) -> np.ndarray:
        """Return the picture ``color`` (H, W, 3) uint8 with noise of its own."""
        noise = self._noise.standard_normal(color.shape, np.float32)
        seen = np.rint(color + 255.0 * self.gap.camera_noise * noise).clip(0, 255).astype(np.uint8)
        seen.flags.writeable = False  # as of a picture that was rendered
        return seen


def _draws(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return what says which pictures of the episode ``seed`` do not come, and what draws the noise of the others."""
    return np.random.default_rng(seed), np.random.default_rng([zlib.crc32(b"noise"), seed])


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

    def meant(self, motion: np.ndarray) -> np.ndarray:
        """Return the action's leading components (6,) that make the motion ``motion`` (6,)."""
        asked, gap, length = np.array(motion, np.float64), self.gap, float(np.linalg.norm(motion[:3]))
        move = asked[:3] * (length + gap.deadband) / max(length, 1e-9) / gap.gain
        asked[:3] = Rotation.from_euler("z", -gap.yaw_deg, degrees=True).apply(move)
        return asked


def gap_pipeline(world: GapWorld) -> CommandPipeline:
    """Return the pipeline of a robot that moves as the gap of ``world`` has it."""
    limits = SafetyConfig(**dict.fromkeys(LIMITS, world.gap.limits))
    pipeline = CommandPipeline(world.kinematics, world.robot, safety=limits)
    pipeline.controller = MiscalibratedController(world.kinematics, world.robot)
    pipeline.controller.gap = world.gap
    return pipeline


def gap_of_options(world: str, options: str) -> Gap:
    """Return the gap that the ``options`` of a world's name tell: ``gap=late``, or values as ``brightness=0.7,mass=2``.

    Raises:
        InvalidInputError: a value is no number, or out of its range, or cannot be built into the world.
        UnknownNameError: there is no such option or gap.
    """
    told = [option.partition("=")[::2] for option in options.split(",")]
    names = [name for name, _ in told]
    if names == ["gap"]:
        return world_gap(told[0][1])
    if "gap" in names:
        raise InvalidInputError(f"world {world}:{options}: gap=NAME has all values of a gap, give either it or values")
    nominal = {field.name: getattr(GAPS["none"], field.name) for field in fields(Gap) if field.name not in MOTIONS}
    single = {name: value for name, value in nominal.items() if not isinstance(value, tuple)}
    for name in names:
        if name not in single:
            raise unknown_name(f"option of world {world}", name, ("gap", *single))
    if twice := [name for name in single if names.count(name) > 1]:
        raise InvalidInputError(f"world {world}:{options}: {twice[0]} is given twice")
    values: dict[str, Any] = {}
    for name, text in told:
        try:
            values[name] = type(single[name])(text)
        except (ValueError, OverflowError):
            kind = "a whole number" if isinstance(single[name], int) else "a number"
            raise InvalidInputError(f"world {world}:{options}: {name}: {text!r}, expected {kind}") from None
    return Gap(**values)


def world_gap(name: str) -> Gap:
    """Return the gap of that name, one of ``WORLD_GAPS``.

    Raises:
        InvalidInputError: it is a file of ``engram identify``, or says how motions differ or are limited.
        UnknownNameError: there is no such gap.
    """
    if name.endswith(".json"):
        raise _not_in_world(name, "is a file of engram identify, which always says how motions differ")
    if name not in GAPS:
        raise unknown_name("gap", name, WORLD_GAPS)
    if motions := _of_motions(GAPS[name]):
        raise _not_in_world(name, f"has {', '.join(motions)}")
    return GAPS[name]


def _of_motions(gap: Gap) -> list[str]:
    """Return the names of what ``gap`` says of motions."""
    return [name for name in MOTIONS if getattr(gap, name) != getattr(GAPS["none"], name)]


def _not_in_world(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"gap {name!r} {why}, and that cannot be built into the simulated world, which gets joint targets; valid: "
        f"{', '.join(WORLD_GAPS)}"
    )


WORLD_GAPS = tuple(name for name, gap in GAPS.items() if not _of_motions(gap))
"""Names of the gaps that can be built into the simulated world."""
