"""Experience as a LeRobotDataset v3: what a robot or a practice did becomes demonstrations.

The recorded action is the one that was executed, whoever proposed it: a person who took over, or the policy with the
noise that it tried out. To imitate one's own successes is filtered behavior cloning. Merged with the first
demonstrations, and repeated, it is self-training (Gulcehre et al. 2023, arXiv:2308.08998).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from engram.core.errors import InvalidInputError, StoreError, unknown_name
from engram.core.notices import hush_datasets
from engram.core.paths import at_home
from engram.core.provenance import dataset_hash
from engram.core.registry import make_robot
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, Transition
from engram.learning.experience.reader import EpisodeInfo, ExperienceReader
from engram.learning.replay.earlier import open_earlier
from engram.runtime.datasets import MergeReport, check_absent, put_together, write_log
from engram.runtime.record import FPS, features

SHORTEST = 2
"""Steps of an episode: LeRobot cannot merge the statistics of a single one."""
Which = Literal["succeeded", "helped", "all"]


@dataclass(frozen=True)
class DatasetConfig:
    """Make a LeRobotDataset of what a robot or a practice did."""

    experience: tyro.conf.Positional[tuple[str, ...]]
    """Folders with experience: of learners (~/.local/share/engram/robot0/learner), of engram improve, or of experience
    stores. They are only read, also while a node writes there."""
    root: str
    """Folder of the new dataset."""
    repo_id: str = "engram/experience"
    """LeRobot's name of the dataset; nothing is uploaded."""
    episodes: Which = "succeeded"
    """Which episodes. succeeded: those that ended well; helped: those of them in which a person drove. Where a person
    took over, they begin there: what led to it is no demonstration. all: whole episodes, also those that failed or that
    nobody judged. Policies should not imitate them; reward models need them."""
    instructions: tuple[str, ...] = ()
    """Goals in these words alone; default: in any."""
    robot: str = "panda_2f85"
    """Robot that acted: a name, or package.module:attribute of a RobotConfig of your own."""

    def __post_init__(self) -> None:
        make_robot(self.robot)  # so is an unknown robot
        if self.episodes not in get_args(Which):
            raise unknown_name("DatasetConfig.episodes", self.episodes, get_args(Which))


@dataclass(frozen=True)
class DatasetReport(MergeReport):
    """What is in the dataset, and what was left out."""

    left_out: int
    """Episodes that were not asked for."""
    unreadable: int
    """Episodes that are damaged."""


def make_dataset(config: DatasetConfig) -> DatasetReport:
    """Write what ``config`` asks for; the dataset appears in ``config.root`` only when it is complete.

    Raises:
        InvalidInputError: there is no such experience or no such episode in it, it is of another robot or of several,
            or ``config.root`` exists already.
        StoreLockedError: another process writes ``config.root``.
    """
    root, robot = at_home(config.root), make_robot(config.robot)
    check_absent("DatasetConfig.root", root)
    if not config.experience:
        raise InvalidInputError("DatasetConfig.experience: none, expected folders with experience")
    readers = open_earlier("DatasetConfig.experience", [str(at_home(folder)) for folder in config.experience])
    known = [(reader, info) for reader in readers for info in reader.catalogue()]
    asked = [(reader, info) for reader, info in known if _asked(info, config)]
    chosen = _Chosen(asked, config, sum(len(reader.unreadable) for reader in readers))
    first = next(episodes := iter(chosen), None)
    if first is None:
        words = sorted({info.instruction for _, info in known})
        raise InvalidInputError(
            f"DatasetConfig.experience: none of {len(known)} episodes is asked for (episodes: {config.episodes}, "
            f"instructions: {list(config.instructions) or 'any'}; {chosen.unreadable} are damaged); their words are "
            f"{', '.join(map(repr, words[:20])) or 'none'}"
        )
    hush_datasets()
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # slow to import

    pictures, log = _pictures(first, robot), list[dict[str, Any]]()
    layout = features(robot, 1) | {
        f"observation.images.{name}": {"dtype": "image", "shape": shape, "names": ["height", "width", "channels"]}
        for name, shape in pictures.items()
    }
    with put_together(root) as folder:
        dataset = LeRobotDataset.create(
            config.repo_id, FPS, layout, root=folder, robot_type=robot.name, use_videos=False
        )
        for one in chain([first], episodes):
            if (found := _pictures(one, robot)) != pictures:
                raise InvalidInputError(f"{one.name}: pictures of {found}, those before have {pictures}")
            for step in one.steps:
                dataset.add_frame(_frame(step, one.info))
            dataset.save_episode()
            log.append(one.entry())
        dataset.finalize()
        write_log(folder, log)
    frames = sum(entry["length"] for entry in log)
    left_out = len(known) - len(log) - chosen.unreadable_read
    return DatasetReport(str(root), len(log), frames, dataset_hash(root), left_out, chosen.unreadable)


@dataclass(frozen=True)
class _Read:
    """An episode with its steps."""

    store: str  # its id
    info: EpisodeInfo
    steps: Sequence[Transition]

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"episode {self.info.number} of robot {self.info.robot_id!r} ({self.info.instruction!r})"

    def entry(self) -> dict[str, Any]:
        """Return what is known of it, beside what LeRobot keeps."""
        return {
            "task": self.info.task or self.info.instruction,
            "experience": self.store,
            "episode": self.info.number,
            "robot_id": self.info.robot_id,
            "success": self.info.success,
            "helped": _helped(self.steps),
            "length": len(self.steps),
        }


class _Chosen:
    """Reads the episodes that are asked for, one at a time."""

    def __init__(
        self, asked: Sequence[tuple[ExperienceReader, EpisodeInfo]], config: DatasetConfig, unreadable: int
    ) -> None:
        self._asked, self._config = asked, config
        self.unreadable, self.unreadable_read = unreadable, 0

    def __iter__(self) -> Iterator[_Read]:
        for reader, info in track(self._asked, "writing", console=Console(stderr=True)):
            try:
                steps = reader.episode(info.number)
            except StoreError as error:
                Console(stderr=True).print(f"left out: {error}", markup=False, highlight=False)
                self.unreadable, self.unreadable_read = self.unreadable + 1, self.unreadable_read + 1
                continue
            wanted = self._config.episodes != "helped" or _helped(steps)
            kept = steps if self._config.episodes == "all" else _imitable(steps)
            if wanted and len(kept) >= SHORTEST:  # it may have been dropped meanwhile, to keep to the store's size
                yield _Read(reader.id, info, kept)


def _asked(info: EpisodeInfo, config: DatasetConfig) -> bool:
    """Tell whether an episode may be asked for; who drove in it is seen in its steps."""
    said = not config.instructions or info.instruction in config.instructions
    return said and (info.success or config.episodes == "all")


def _helped(steps: Sequence[Transition]) -> bool:
    return any(step.intervention for step in steps)


def _imitable(steps: Sequence[Transition]) -> Sequence[Transition]:
    """Return the episode from where a person took over last: what led there is not to be imitated, see Sirius
    (arXiv:2211.08416). A piece between two takeovers is no demonstration either: who learns it learns to end there.
    """
    steps = [step for step in steps if not step.held]  # the arm stood still, and not by the policy's own word
    person = [step.intervention for step in steps]
    taken = [at for at in range(1, len(steps)) if person[at] and not person[at - 1]]
    return steps[taken[-1] :] if taken else steps


def _pictures(one: _Read, robot: RobotConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each camera's pictures; raises InvalidInputError unless ``robot`` can have acted."""
    step = one.steps[0]
    shapes = {name: step.images[name].shape for name in sorted(step.images)}
    for at, each in enumerate(one.steps):
        if (found := {name: each.images[name].shape for name in sorted(each.images)}) != shapes:
            raise InvalidInputError(f"{one.name}: pictures of {found} in step {at}, before of {shapes}")
    of = f"expected that of robot {robot.name!r}; name the one that acted (--robot)"
    if sorted(robot.camera_names) != list(shapes):
        raise InvalidInputError(f"{one.name}: cameras {', '.join(shapes)}, {of}: {', '.join(robot.camera_names)}")
    if len(step.state) != robot.state_dim:
        raise InvalidInputError(f"{one.name}: a state of {len(step.state)} numbers, {of}: {robot.state_dim}")
    for at, each in enumerate(one.steps):
        if len(each.executed_action) != EE_ACTION_DIM or not (np.abs(each.executed_action) <= 1.0 + 1e-6).all():
            raise InvalidInputError(
                f"{one.name}: action {each.executed_action.tolist()} in step {at}, expected tool motions of "
                f"{EE_ACTION_DIM} numbers in -1..1: those of a policy that answers with joint positions are none"
            )
    apart = np.diff([each.stamp_ns for each in one.steps]) / 1e9
    if len(apart) and abs(np.median(apart) * FPS - 1) > 0.2:
        raise InvalidInputError(f"{one.name}: {np.median(apart):.3f} s from step to step, expected {1 / FPS:g} s")
    return shapes


def _frame(step: Transition, info: EpisodeInfo) -> dict[str, Any]:
    return {f"observation.images.{name}": image for name, image in step.images.items()} | {
        "observation.state": step.state,
        "action": step.executed_action,
        "next.reward": np.array([step.reward], np.float32),
        "next.success": np.array([step.success]),
        "task": info.instruction,
    }
