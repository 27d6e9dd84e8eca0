"""Record the scripted experts as a LeRobotDataset v3.

The recorded action is what the expert wants in the observed state. The executed action may have noise added, so that
the data show how to recover from states that the expert would not reach by itself (DART: Laskey et al. 2017,
arXiv:1703.09327). The work is divided into parts, which are datasets of their own and are merged at the end. An
interrupted run continues after its last complete part.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from engram.core.arrays import positive_int
from engram.core.child import run_spawned
from engram.core.control import proprioception
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, unknown_name
from engram.core.lock import WriterLock
from engram.core.notices import hush_datasets
from engram.core.paths import at_home
from engram.core.pipeline import CommandPipeline
from engram.core.provenance import digest, source_digest, source_files
from engram.core.registry import is_spec, load_object, make_robot, split_options
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM
from engram.runtime.datasets import (
    MergeReport,
    check_absent,
    check_ours,
    episode_log,
    joined,
    merging_folder,
    remove,
    write_log,
)
from engram.runtime.factories import DETECTORS, make_detector
from engram.runtime.reconstruction import SceneRecorder
from engram.runtime.reconstruction import features as reconstruction_features
from engram.sim.experts import make_expert
from engram.sim.experts.noise import NoiseBursts, NoiseConfig
from engram.sim.pushes import Push, PushConfig, pushable
from engram.sim.robots.model import Profile
from engram.sim.tasks import TASKS, each_once, expand, task_class
from engram.sim.world import MujocoWorld, WorldConfig
from engram.sim.worlds import make_mujoco_world

FIRST_TRAINING_SEED = 100_000
"""Seeds below are for evaluation and are never recorded."""
SEEDS_PER_PART = 1_000
RECORDED: tuple[Profile, ...] = ("fast", "photo")
FPS = 10
RECORDED_PUSHES = PushConfig(steps=(1, 10), speed_m_s=(0.4, 1.3))
"""Pushes begin before most objects are grasped; they displace the object by up to 9 cm."""
CLAIM = "config.json"
"""What lies beside the parts and says what they are recordings of."""
UNFINISHED = ".unfinished"
"""Ends the name of a part while it is recorded."""


@dataclass(frozen=True)
class RecordConfig:
    """What to record, and where."""

    root: str
    """Folder of the dataset; its parts are kept beside it until they are merged."""
    repo_id: str = "engram/tabletop6"
    """LeRobot's name of the dataset; nothing is uploaded."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which tasks or suites, or package.module:attribute of your own; default: the tabletop ones,
    which need no memory."""
    robot: str = "panda_2f85"
    """Robot that acts: a name, or package.module:attribute of a RobotConfig of your own."""
    episodes: int = 220
    """Successful episodes per task."""
    first_seed: int = FIRST_TRAINING_SEED
    """Seed of the first episode of each task; at least 100000."""
    noise: float = 0.5
    """Share of the episodes with noise bursts on the executed action."""
    pushed: float = 0.0
    """Share of the episodes in which the cube that the instruction names is pushed while the arm approaches it, if
    it lies free. The data then show how to follow an object that moves."""
    image_size: int = 128
    """Height and width of the cameras' pictures [pixel]."""
    profile: Profile = "fast"
    """Render profile: fast or photo."""
    workers: int = 2
    """Processes."""
    part_episodes: int = 20
    """Episodes per part: what a killed run may lose."""
    tail_steps: int = 3
    """Steps recorded after success, so that chunks learn to end."""
    reconstruction: bool = False
    """Record what the scene graph knows at each step too: perception and memory run along, anew in each episode."""
    detector: str = "geometric"
    """With ``reconstruction``: what finds the objects, a name or package.module:attribute of your own."""
    randomise_looks: bool = False
    """Draw lights, table colour and a small displacement of the perception camera anew for each episode."""
    world: str = "tabletop"
    """World in which is recorded: tabletop, or package.module:attribute of a MujocoWorld of your own."""

    def __post_init__(self) -> None:
        make_robot(self.robot)  # so is an unknown robot
        each_once(self.tasks)  # an unknown name is named with the valid ones
        if self.first_seed < FIRST_TRAINING_SEED:
            raise InvalidInputError(
                f"RecordConfig.first_seed: {self.first_seed}, expected at least {FIRST_TRAINING_SEED}: "
                "lower seeds are for evaluation"
            )
        for name in ("noise", "pushed"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"RecordConfig.{name}: {getattr(self, name)}, expected 0..1")
        if self.pushed and not any(pushable(task) for task in expand(self.tasks)):
            raise InvalidInputError(
                f"RecordConfig.pushed: {self.pushed}, but none of these tasks names a cube that lies free: "
                f"{', '.join(self.tasks)}"
            )
        for name in ("episodes", "workers", "part_episodes", "image_size", "tail_steps"):
            positive_int(f"RecordConfig.{name}", getattr(self, name))
        if self.part_episodes > SEEDS_PER_PART:
            raise InvalidInputError(f"RecordConfig.part_episodes: {self.part_episodes}, expected 1..{SEEDS_PER_PART}")
        if self.profile not in RECORDED:
            raise unknown_name("profile to record with", self.profile, RECORDED)
        if self.detector != "geometric" and not self.reconstruction:
            raise InvalidInputError(
                f"RecordConfig.detector: {self.detector}: would change nothing without reconstruction"
            )

    @property
    def folder(self) -> Path:
        """Folder of the dataset."""
        return at_home(self.root)

    @property
    def parts(self) -> Path:
        """Folder of the finished parts, beside that of the dataset."""
        return self.folder.with_name(f"{self.folder.name}.parts")


@dataclass(frozen=True)
class RecordReport(MergeReport):
    """What was recorded; ``dropped`` counts the expert's failures per task."""

    dropped: dict[str, int]


@dataclass(frozen=True)
class Part:
    """Episodes [0, count) of one task, from ``seed`` on; a dataset of its own in ``root``."""

    config: RecordConfig
    task: str
    index: int
    count: int
    before: int = 0
    """How many variants of the same task (other options) come before this one. Their seeds come first, so that every
    variant has scenes of its own."""

    @property
    def root(self) -> Path:
        """Folder of the finished part."""
        return self.config.parts / f"{self.task}-{self.index:03d}"

    @property
    def unfinished(self) -> Path:
        """Where it lies until it is finished."""
        return self.root.with_name(self.root.name + UNFINISHED)

    @property
    def seed(self) -> int:
        """First seed of the part. When the expert fails, the next seed is used."""
        return self.config.first_seed + (self.before + self.index) * SEEDS_PER_PART


def record(config: RecordConfig) -> RecordReport:
    """Record what is missing, merge the parts into ``config.root``, and report.

    Raises:
        UnknownNameError: there is no such world or detector.
        InvalidInputError: ``config.root`` exists already, its parts were recorded with another config, or a folder
            beside it that would be written is somebody else's.
        StoreLockedError: another process records into ``config.root``.
    """
    check_absent("RecordConfig.root", config.folder)
    claim = _claim(config)  # first: what is misspelt leaves nothing behind
    if not _is_claim(config.parts / CLAIM):
        check_ours(config.parts)
    check_ours(merging_folder(config.folder))
    lock = WriterLock(config.parts)
    try:
        check_absent("RecordConfig.root", config.folder)  # another process may have ended just now
        return _recorded(config, claim)
    finally:
        lock.release()


def _recorded(config: RecordConfig, claim: str) -> RecordReport:
    _claim_parts(config, claim)
    parts = _parts(config)
    todo = [part for part in parts if not part.root.exists()]
    workers, shown = min(config.workers, len(todo)), Console(stderr=True)
    if workers > 1:
        for _ in track(run_spawned(_record_part, todo, workers), "recording", total=len(todo), console=shown):
            pass
    else:
        for part in track(todo, "recording", console=shown):
            _record_part(part)
    dropped = dict.fromkeys(expand(config.tasks), 0)
    for part in parts:
        dropped[part.task] += episode_log(part.root)[-1].get("dropped", 0)
    merged = joined([part.root for part in parts], config.folder, config.repo_id)
    remove(config.parts, CLAIM, *(part.root.name for part in parts))
    return RecordReport(**asdict(merged), dropped=dropped)


def features(robot: RobotConfig, image_size: int, reconstruction: bool = False) -> dict[str, dict[str, Any]]:
    """Return the dataset's features in LeRobot's format, with a scene graph's tokens or without.

    Images are stored as PNG in parquet: on two cores that writes 1.8 times and reads 4 times as fast as video.
    """
    axes = ["height", "width", "channels"]
    images = {
        f"observation.images.{camera.name}": {"dtype": "image", "shape": (*camera.pixels(image_size), 3), "names": axes}
        for camera in robot.cameras
    }
    state = ["x", "y", "z", "qw", "qx", "qy", "qz", "gripper", *robot.arm_joints]
    action = ["dx", "dy", "dz", "drx", "dry", "drz", "gripper"]
    return {
        **images,
        "observation.state": {"dtype": "float32", "shape": (robot.state_dim,), "names": state},
        "action": {"dtype": "float32", "shape": (EE_ACTION_DIM,), "names": action},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.success": {"dtype": "bool", "shape": (1,), "names": None},
        **(reconstruction_features() if reconstruction else {}),
    }


def record_episode(
    world: MujocoWorld,
    task: str,
    seed: int,
    noise: NoiseConfig | None,
    tail_steps: int,
    scene: SceneRecorder | None = None,
    push: Push | None = None,
) -> list[dict[str, Any]] | None:
    """Run the expert once and return the frames for ``LeRobotDataset.add_frame``; None when it failed.

    ``action`` is what the expert wants in the frame's state, without the noise that is executed. ``scene`` runs
    perception and memory along; ``push`` moves the object that the expert approaches.
    """
    observation = world.reset(task, seed)
    expert = make_expert(task, world)
    expert.reset()
    bursts = NoiseBursts(noise, np.random.default_rng((seed, 1)), world.scale) if noise else None
    pipeline = CommandPipeline(world.kinematics, world.robot)
    pipeline.reset()
    if scene is not None:
        scene.begin()
    frames: list[dict[str, Any]] = []
    outcome, left = world.oracle_outcome(), tail_steps
    while left > 0 and (outcome.success or not outcome.over):
        action = expert.act()
        executed = action if bursts is None or outcome.success else bursts.disturb(action)
        seen, observation = observation, world.step(pipeline.step_action(observation.joints, executed).command)
        outcome = world.oracle_outcome()
        if push is not None:
            push.after_step()
        frames.append(
            {f"observation.images.{name}": seen.camera(name).color for name in world.robot.camera_names}
            | (scene.see(seen, outcome.instruction) if scene is not None else {})
            | {
                "observation.state": proprioception(seen.joints, world.kinematics, world.robot),
                "action": action.astype(np.float32),
                "next.reward": np.array([outcome.reward], np.float32),
                "next.success": np.array([outcome.success]),
                "task": outcome.instruction,
            }
        )
        left -= outcome.success
    return frames if outcome.success else None


def recorder(reconstruction: bool = False) -> str:
    """Return 12 hex digits of a hash of the code that determines a recording: experts, tasks, world and control, and
    perception and memory if they run along."""
    seen = ("perception/**/*.py", "memory/**/*.py", "runtime/reconstruction.py", "runtime/loop.py")
    return digest("core/**/*.py", "sim/**/*.py", "runtime/record.py", *(seen if reconstruction else ()))


def _claim(config: RecordConfig) -> str:
    """Return what the parts are recordings of, by config and code, as JSON.

    Raises:
        UnknownNameError: there is no such world or detector.
        InvalidInputError: one of these cannot be made.
    """
    wanted = {k: v for k, v in asdict(config).items() if k not in ("workers", "root")} | {
        "code": recorder(config.reconstruction)
    }
    robot = make_robot(config.robot)
    world = make_mujoco_world(config.world, WorldConfig(profile="none"), robot)
    tasks = [task_class(task) for task in expand(config.tasks)]
    own: list[object] = [world, *tasks, *(task.expert for task in tasks)]
    own += map(load_object, filter(is_spec, (config.world, robot.kinematics, robot.model, robot.barrier)))
    if config.reconstruction and config.detector not in DETECTORS:
        own += [make_detector(config.detector), load_object(config.detector)]
    if is_spec(config.robot):
        wanted["own_robot"] = repr(robot)
    if source_files(own):
        wanted["own_code"] = source_digest(own)
    return json.dumps(wanted, indent=1)


def _is_claim(path: Path) -> bool:
    """Tell whether the file at ``path`` is a claim that a recording left."""
    try:
        return {"code", "repo_id", "tasks"} <= json.loads(path.read_text()).keys()
    except DAMAGED:
        return False


def _claim_parts(config: RecordConfig, claim: str) -> None:
    """Keep config and code beside the parts, so that a resumed run cannot mix two kinds of data.

    While no part is finished, there is nothing to mix with: then the claim of another recording gives way.
    """
    kept = config.parts / CLAIM
    if kept.is_file() and kept.read_bytes() == claim.encode():
        return
    if any(path.is_dir() and path.suffix != UNFINISHED for path in config.parts.iterdir()):
        raise InvalidInputError(
            f"{kept}: parts of another recording; use its config and code, another root, or remove them"
        )
    for left in config.parts.glob(f"*{UNFINISHED}"):
        shutil.rmtree(left, ignore_errors=True)
    write_atomic(kept, claim.encode())


def _parts(config: RecordConfig) -> list[Part]:
    """Return all parts, the tasks in turn, so that an early stop leaves every task with some."""
    starts = range(0, config.episodes, config.part_episodes)
    tasks = expand(config.tasks)
    kinds = [split_options(task)[0] for task in tasks]
    before = [kinds[:place].count(kind) * len(starts) for place, kind in enumerate(kinds)]
    return [
        Part(config, task, index, min(config.part_episodes, config.episodes - start), earlier)
        for index, start in enumerate(starts)
        for task, earlier in zip(tasks, before, strict=True)
    ]


def _record_part(part: Part) -> None:
    hush_datasets()
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # slow to import: only where it is needed

    config = part.config
    robot = make_robot(config.robot)
    unfinished = part.unfinished
    shutil.rmtree(unfinished, ignore_errors=True)
    dataset = LeRobotDataset.create(
        config.repo_id,
        FPS,
        features(robot, config.image_size, config.reconstruction),
        root=unfinished,
        robot_type=robot.name,
        use_videos=False,
    )
    depth = config.reconstruction
    settings = WorldConfig(profile=config.profile, image_size=config.image_size, depth=depth)
    if config.randomise_looks:
        settings = settings.with_random_looks()
    world = make_mujoco_world(config.world, settings, robot)
    scene = SceneRecorder(world.kinematics, world.robot, detector=config.detector) if config.reconstruction else None
    can_push = pushable(part.task)
    log: list[dict[str, Any]] = []
    dropped = 0
    for seed in range(part.seed, part.seed + SEEDS_PER_PART):
        noisy = bool(np.random.default_rng((seed, 0)).random() < config.noise)
        pushed = can_push and bool(np.random.default_rng((seed, 2)).random() < config.pushed)
        noise, push = NoiseConfig() if noisy else None, Push(world, seed, RECORDED_PUSHES) if pushed else None
        frames = record_episode(world, part.task, seed, noise, config.tail_steps, scene, push)
        if frames is None:
            dropped += 1
            continue
        for frame in frames:
            dataset.add_frame(frame)
        dataset.save_episode()
        kind = {"task": part.task, "seed": seed, "noise": noisy, "pushed": pushed}
        log.append({**kind, "length": len(frames), "dropped": dropped})
        if len(log) == part.count:
            break
    world.close()
    dataset.finalize()
    if len(log) < part.count:
        raise InvalidInputError(f"{part.task}: {len(log)} successes in {SEEDS_PER_PART} seeds, wanted {part.count}")
    write_log(unfinished, log)
    unfinished.rename(part.root)  # whole or not there


def main() -> None:
    """Record from the command line; the last line is the report as JSON."""
    print(json.dumps(asdict(record(tyro.cli(RecordConfig)))))


if __name__ == "__main__":
    main()
