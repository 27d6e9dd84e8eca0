"""The simulated workcell: one table, one robot, one task at a time, executed by MuJoCo.

``oracle_`` methods tell the simulator's truth: for tasks, experts and scores, never for perception, memory or policy.
"""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from engram.core.contracts import ViewableWorld
from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.geometry import make_pose, rotation
from engram.core.registry import make_kinematics, make_robot
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import CameraFrame, JointCommand, JointState, Observation, OracleOutcome, Pose
from engram.sim.render import SceneRenderer, randomise_look
from engram.sim.robot_description import RobotDescription
from engram.sim.robots.model import Profile
from engram.sim.scene import TIMESTEP_S, SceneConfig, compiled_scene
from engram.sim.tasks import get_task

if TYPE_CHECKING:
    from engram.sim.tasks import Task

SETTLE_S = 0.25
"""Simulated time after the arrangement of a scene, for things to come to rest [s]."""
RAMP_CHUNKS = 10
"""Set points per control step: the targets move to their goal in this many equal parts."""

_RAMP = np.arange(1, RAMP_CHUNKS + 1)[:, None] / RAMP_CHUNKS
PARKING_RAD = 0.12
"""How far the fastest joint moves in one control step while a task brings the arm home [rad]."""


@dataclass(frozen=True)
class WorldConfig:
    """How the workcell is simulated and seen."""

    profile: Profile = "fast"
    """``fast``: primitives without shadows; ``photo``: meshes, shadows, antialiasing; ``none``: no cameras."""
    image_size: int = 128
    """Width and height of the camera images, but of cameras that have a size of their own [px]."""
    depth: bool = False
    """Render depth with every observation."""
    control_dt_s: float = 0.1
    """Length of one control step [s]."""
    timestep_s: float = TIMESTEP_S
    """Length of one physics step; a whole number of them must make a control step [s]."""
    randomise_lights: bool = False
    """Draw the lights' brightness and direction from the episode's seed."""
    randomise_colors: bool = False
    """Draw the table's colour from the episode's seed."""
    randomise_cameras: bool = False
    """Move and turn the camera that perception uses a little, drawn from the episode's seed."""

    def with_random_looks(self) -> WorldConfig:
        """Return this with lights, table colour and camera drawn from each episode's seed."""
        return replace(self, randomise_lights=True, randomise_colors=True, randomise_cameras=True)


class MujocoWorld(ViewableWorld):
    """Executes joint commands on a robot at a table and returns what its cameras and encoders sense."""

    def __init__(self, config: WorldConfig | None = None, robot: RobotConfig | str = PANDA_2F85) -> None:
        self.config = config or WorldConfig()
        self.robot = make_robot(robot)
        self.kinematics = make_kinematics(self.robot)
        self.task: Task | None = None
        self.instruction = ""
        self.scene: SceneConfig | None = None
        substeps = self.config.control_dt_s / self.config.timestep_s
        if abs(substeps - round(substeps)) > 1e-6 or round(substeps) < RAMP_CHUNKS:
            raise InvalidInputError(
                f"WorldConfig.timestep_s: {self.config.timestep_s} does not divide control_dt_s "
                f"{self.config.control_dt_s} into a whole number of at least {RAMP_CHUNKS} steps"
            )
        self._chunks = np.diff(np.linspace(0, round(substeps), RAMP_CHUNKS + 1).round().astype(int)).tolist()
        self._dt_ns = round(self.config.control_dt_s * 1e9)
        self._ticks, self._episode, self._step = 0, -1, 0
        self._models: dict[SceneConfig, tuple[mujoco.MjModel, mujoco.MjData]] = {}
        self._renderers: dict[tuple[int, int], SceneRenderer] = {}  # by height and width of the pictures
        self._model: mujoco.MjModel | None = None
        self._data: mujoco.MjData | None = None
        self._targets: np.ndarray = np.zeros(len(self.robot.joint_names))  # where the servos were last told to go
        self._closed = False
        self._links: RobotDescription | None = None

    # -- the contract -------------------------------------------------------------------------------------------

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Arrange ``task`` from ``seed``, let things settle and return the first observation."""
        chosen = get_task(task)
        rng = np.random.default_rng([zlib.crc32(chosen.name.encode()), seed])
        self.load(chosen.scene_for(self.robot))
        self.task = chosen
        self.instruction = chosen.setup(self, rng, instruction)
        look = np.random.default_rng([zlib.crc32(b"look"), seed])
        randomise_look(self.model, self.config, self.robot.perception_camera, look)
        self.settle()
        return self.observe()

    def step(self, command: JointCommand) -> Observation:
        """Move the servo targets linearly to those of ``command`` over one control period."""
        self.advance(command)
        return self.observe()

    def oracle_outcome(self) -> OracleOutcome:
        """Return success, reward and truncation of the running task."""
        if self.task is None:
            raise EngramError("no task is running: call reset first")
        return OracleOutcome(
            task=self.task.name,
            instruction=self.instruction,
            episode=self._episode,
            step=self._step,
            success=self.task.oracle_success(self),
            reward=float(self.task.oracle_reward(self)),
            truncated=self._step >= self.task.max_steps,
            failed=self.task.lost,
        )

    def close(self) -> None:
        """Free the rendering contexts."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
        self._closed = True

    @property
    def scale(self) -> float:
        """Size of this robot's table and of the things on it, relative to how the tasks are laid out."""
        return self.robot.table.scale

    # -- for those who watch ------------------------------------------------------------------------------------

    def rest(self, duration_s: float) -> Observation:
        """Let time pass in which nothing moves and return what is seen, without depth; at first an empty table."""
        if self.scene is None:
            self.load(SceneConfig())
            self._episode -= 1  # no episode: the first reset begins number 0
        self._ticks += max(1, round(duration_s / self.config.control_dt_s))
        return self.observe(depth=False)

    def robot_description(self) -> str:
        """Return the robot as URDF, in the shapes of the ``fast`` profile."""
        model = compiled_scene(SceneConfig(), "fast", self.config.timestep_s, self.robot)
        return RobotDescription(model, self.robot.arm_joints[0]).urdf(self.robot.name)

    def link_poses(self, *, moving: bool) -> dict[str, Pose]:
        """Return the pose of each link of the robot in its parent link: of those that move, or of the fixed ones."""
        if self._links is None or self._links.model is not self.model:
            self._links = RobotDescription(self.model, self.robot.arm_joints[0])
        mujoco.mj_kinematics(self.model, self.data)  # a physics step leaves poses one step behind the joints
        return self._links.poses(self.data, moving=moving)

    # -- scenes -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """This world's own copy of the scene's model."""
        if self._model is None:
            raise EngramError("no scene is loaded: call reset or load first")
        return self._model

    @property
    def data(self) -> mujoco.MjData:
        """The simulation's state."""
        if self._data is None:
            raise EngramError("no scene is loaded: call reset or load first")
        return self._data

    def load(self, scene: SceneConfig) -> None:
        """Begin an episode with ``scene``, no task, everything at its default place and the arm at home."""
        pristine = compiled_scene(scene, self.config.profile, self.config.timestep_s, self.robot)
        if scene not in self._models:
            model = copy.copy(pristine)
            self._models[scene] = (model, mujoco.MjData(model))
        self.scene = scene
        self._model, self._data = self._models[scene]
        for name in ("geom_rgba", "body_pos", "body_quat", "cam_pos", "cam_quat", "light_dir", "light_diffuse"):
            getattr(self._model, name)[:] = getattr(pristine, name)
        for name in ("ambient", "diffuse"):
            getattr(self._model.vis.headlight, name)[:] = getattr(pristine.vis.headlight, name)
        self.task, self.instruction = None, ""
        self._episode, self._step, self._ticks = self._episode + 1, 0, self._ticks + 1
        self._bind()
        mujoco.mj_resetData(self._model, self._data)
        home = np.append(self.robot.home, self.robot.gripper_open)
        self._data.qpos[self._qpos] = home
        self._data.ctrl[self._ctrl] = home
        self._targets = home
        mujoco.mj_forward(self._model, self._data)

    def settle(self, duration_s: float = SETTLE_S) -> None:
        """Let things come to rest with the arm held at its targets; does not count as control steps."""
        mujoco.mj_forward(self.model, self.data)
        mujoco.mj_step(self.model, self.data, nstep=round(duration_s / self.config.timestep_s))

    def _bind(self) -> None:
        model, names = self.model, self.robot.joint_names
        self._qpos = np.array([model.joint(n).qposadr[0] for n in names])
        self._dof = np.array([model.joint(n).dofadr[0] for n in names])
        self._ctrl = np.array([model.actuator(n).id for n in names])

    # -- motion and sensing -------------------------------------------------------------------------------------

    def advance(self, command: JointCommand) -> None:
        """Execute ``command`` for one control period without sensing: :meth:`step` without the cameras."""
        if command.names != self.robot.joint_names:
            raise InvalidInputError(f"command for joints {command.names}, expected {self.robot.joint_names}")
        model, data = self.model, self.data
        wanted = self._parking() if self._held else command.positions
        way = wanted - self._targets
        lead = way * (self.robot.servo_lead_s / self.config.control_dt_s)
        lead[-1] = 0.0  # the gripper's servo pushes, it does not track
        ramp = (self._targets + lead) + _RAMP * way  # (chunks, joints)
        controls, index = data.ctrl, self._ctrl
        for set_points, substeps in zip(ramp, self._chunks, strict=True):
            controls[index] = set_points
            mujoco.mj_step(model, data, substeps)
        self._targets = wanted
        self._step += 1
        self._ticks += 1
        if self.task is not None:
            self.task.tick(self)

    @property
    def _held(self) -> bool:
        return self.task is not None and self.task.parked

    def _parking(self) -> np.ndarray:
        """Return the next servo targets (n,) on the straight way home in joint space."""
        way = np.append(self.robot.home, self.robot.gripper_open) - self._targets
        return self._targets + way * min(1.0, PARKING_RAD / max(float(np.abs(way[:-1]).max()), 1e-9))

    @property
    def stamp_ns(self) -> int:
        """Simulated time, which goes on over resets [ns]."""
        return self._ticks * self._dt_ns

    def joint_state(self) -> JointState:
        """Return what the joint encoders read."""
        data = self.data
        positions, velocities = data.qpos[self._qpos], data.qvel[self._dof]
        return JointState(self.stamp_ns, self.robot.joint_names, positions, velocities, self._held)

    def observe(self, depth: bool | None = None) -> Observation:
        """Return joints and camera frames now; ``depth`` None = as configured."""
        cameras: dict[str, CameraFrame] = {}
        if self.config.profile != "none":
            with_depth = self.config.depth if depth is None else depth
            mujoco.mj_kinematics(self.model, self.data)  # a physics step leaves poses one step behind the joints
            mujoco.mj_camlight(self.model, self.data)
            for camera in self.robot.cameras:
                renderer = self._renderer(camera.pixels(self.config.image_size))
                cameras[camera.name] = renderer.frame(camera.name, self.data, self.stamp_ns, with_depth)
        return Observation(self.stamp_ns, cameras, self.joint_state())

    def _renderer(self, size: tuple[int, int]) -> SceneRenderer:
        if self._closed:
            raise EngramError("the world is closed")
        if size not in self._renderers:
            height, width = size
            self._renderers[size] = SceneRenderer(width, height)
        self._renderers[size].use(self.model)
        return self._renderers[size]

    def tool_pose(self) -> Pose:
        """Return the tool pose that the joint encoders imply."""
        return self.kinematics.forward(self.data.qpos[self._qpos[:-1]])

    def gripper_fraction(self) -> float:
        """Return how far the gripper is closed, 0..1, from its encoder."""
        return self.robot.gripper_fraction(float(self.data.qpos[self._qpos[-1]]))

    # -- the simulator's truth ----------------------------------------------------------------------------------

    def oracle_pose(self, body: str) -> Pose:
        """Return the pose of ``body``."""
        i = self._body(body)
        mujoco.mj_kinematics(self.model, self.data)
        quaternion = self.data.xquat[i] * (1.0 if self.data.xquat[i, 0] >= 0 else -1.0)
        return Pose(self.data.xpos[i].copy(), quaternion)

    def set_pose(self, body: str, pose: Pose) -> None:
        """Put ``body`` at ``pose``, at rest; a fixed thing moves as a whole until the next reset."""
        i = self._body(body)
        root = int(self.model.body_rootid[i])
        here, whole = self.oracle_pose(body), self.oracle_pose(self.model.body(root).name)
        turn = rotation(pose) * rotation(here).inv()
        pose = make_pose(pose.position + turn.apply(whole.position - here.position), turn * rotation(whole))
        joint = int(self.model.body_jntadr[root])
        if joint >= 0 and self.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            address, dof = int(self.model.jnt_qposadr[joint]), int(self.model.jnt_dofadr[joint])
            self.data.qpos[address : address + 7] = np.concatenate((pose.position, pose.quaternion))
            self.data.qvel[dof : dof + 6] = 0.0
        elif (mocap := int(self.model.body_mocapid[root])) >= 0:
            self.data.mocap_pos[mocap], self.data.mocap_quat[mocap] = pose.position, pose.quaternion
        else:
            self.model.body_pos[root], self.model.body_quat[root] = pose.position, pose.quaternion
        mujoco.mj_forward(self.model, self.data)

    def set_color(self, body: str, rgb: tuple[float, float, float] | np.ndarray) -> None:
        """Paint ``body`` and what hangs on it until the next reset; ``rgb`` (3,) 0..1."""
        bodies = self._subtree(self._body(body))
        for geom in range(self.model.ngeom):
            if self.model.geom_bodyid[geom] in bodies and not self.model.geom(geom).name.endswith("_fixed"):
                self.model.geom_rgba[geom, :3] = rgb

    def oracle_joint(self, name: str) -> float:
        """Return the position of joint ``name`` [m or rad]."""
        return float(self.data.joint(self._joint(name)).qpos[0])

    def set_joint(self, name: str, position: float) -> None:
        """Put joint ``name`` at ``position`` [m or rad], at rest."""
        joint = self.data.joint(self._joint(name))
        joint.qpos[0], joint.qvel[0] = position, 0.0
        mujoco.mj_forward(self.model, self.data)

    def oracle_contact(self, body_a: str, body_b: str) -> bool:
        """Tell whether ``body_a`` and ``body_b``, with what hangs on them, touch."""
        first, second = self._subtree(self._body(body_a)), self._subtree(self._body(body_b))
        owner = self.model.geom_bodyid
        for contact in self.data.contact[: self.data.ncon]:
            a, b = owner[contact.geom1], owner[contact.geom2]
            if (a in first and b in second) or (b in first and a in second):
                return True
        return False

    def _joint(self, name: str) -> str:
        if name not in (names := {self.model.joint(i).name for i in range(self.model.njnt)}):
            raise unknown_name("joint", name, names)
        return name

    def _body(self, name: str) -> int:
        i = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_BODY, name)
        if i < 0:
            raise unknown_name("body", name, (self.model.body(b).name for b in range(1, self.model.nbody)))
        return i

    def _subtree(self, root: int) -> set[int]:
        found = {root}
        for i in range(root + 1, self.model.nbody):
            if int(self.model.body_parentid[i]) in found:
                found.add(i)
        return found
