"""``engram plot``: the learning curve of a robot, or of a practice, as a picture and for TensorBoard.

The last line is JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro
from tqdm import tqdm

from engram.app.options import writable
from engram.core.arrays import positive_int
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.paths import at_home
from engram.core.statistics import Rate, wilson
from engram.learning.experience.reader import ExperienceReader, experience_file
from engram.learning.rewards.goal import kind_of
from engram.learning.weights.keys import keys_folder
from engram.learning.workspace import EXPERIENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURED = "curve.jsonl"
"""File of the measured successes in a folder of ``engram improve``."""
NAMELESS = "a person"
"""Who drove where the experience does not say: names are known since Engram keeps them."""
NAMED = 5
"""Most people whom the picture tells apart."""
SUFFIXES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class PlotConfig:
    """Draw how goals went one after the other, which weights drove, and how much a person helped. Success is what was
    reached without help."""

    folder: tyro.conf.Positional[Path | None] = None
    """Folder of a learner (its parameter ``folder``) or of a practice of ``engram improve``; default: the learner's in
    the robot's data folder. It may be in use; nothing is changed in it."""
    robot: str = "robot0"
    """robot_id of the robot whose data folder is meant: its namespace with _ for /, robot0 without one; sim-robot0: of
    its simulation."""
    output: Path = Path("learning.svg")
    """The picture; .svg, .png or .pdf."""
    window: int = 20
    """Goals that a point of the curve is the mean of."""
    kind: str = ""
    """Goals to draw, by the relation that their words name (in, on, pressed, ...); empty: all."""
    tensorboard: Path | None = None
    """Folder that gets the same figures for TensorBoard; none: they are not written."""


@dataclass(frozen=True)
class Goal:
    """A stored goal."""

    number: int
    """Of its episode, from 1: the first ones may be gone."""
    kind: str
    version: str
    success: bool
    """It was reached by the weights alone."""
    helped: float
    """Share of its control steps in which a person drove."""
    people: Mapping[str, float] = field(default_factory=dict)
    """The share that each person drove, by the name that they took over with."""


def goals_of(experience: Path) -> list[Goal]:
    """Return the stored goals of an experience store whose end was judged, the oldest first.

    Raises:
        StoreError: nothing is stored there, or it is damaged.
    """
    reader, found = ExperienceReader(experience), []
    for info in tqdm([one for one in reader.catalogue() if one.judged], unit="goal", disable=None):
        steps = reader.episode(info.number)
        if not steps:  # the store let go of it meanwhile: nobody can tell who drove
            continue
        drove = Counter(step.person or NAMELESS for step in steps if step.intervention)
        helped = drove.total() / len(steps)
        people = {person: count / len(steps) for person, count in drove.items()}
        success, kind = info.success and not helped, kind_of(info.instruction)
        found.append(Goal(info.number, kind, info.policy_version, success, helped, people))
    return found


def rates(outcomes: Sequence[bool], window: int) -> list[Rate]:
    """Return the share of the last ``window`` outcomes at each of them, with its Wilson interval."""
    lasts = [outcomes[max(0, index - window) : index] for index in range(1, len(outcomes) + 1)]
    return [wilson(sum(last), len(last)) for last in lasts]


def measured(folder: Path) -> list[tuple[int, Rate]]:
    """Return what ``engram improve`` has measured in ``folder``: after how many episodes, and the success; else none.

    Raises:
        StoreError: its file cannot be read.
    """
    path = folder / MEASURED
    if not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [(int(row["episodes"]), Rate(**row["success"])) for row in rows]
    except DAMAGED as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error


def plot(config: PlotConfig) -> int:
    """Draw; the last line is what was drawn as JSON."""
    positive_int("PlotConfig.window", config.window)
    if config.output.suffix not in SUFFIXES:
        raise InvalidInputError(
            f"PlotConfig.output: {config.output}, expected a file that ends with {_either(SUFFIXES)}"
        )
    folder = (config.folder or keys_folder(config.robot).with_name("learner")).expanduser()
    if not experience_file(folder / EXPERIENCE).is_file():
        raise InvalidInputError(f"PlotConfig.folder: {folder} holds no experience of a learner or of a practice")
    output = writable("PlotConfig.output", config.output) or config.output
    _check_new(config.tensorboard)
    every = goals_of(folder / EXPERIENCE)
    kinds = sorted({goal.kind for goal in every})
    if config.kind and config.kind not in kinds:
        raise InvalidInputError(f"PlotConfig.kind: {config.kind!r}, the goals there are of {_either(kinds) or 'none'}")
    goals = [goal for goal in every if config.kind in ("", goal.kind)]
    if not goals:
        raise InvalidInputError(f"PlotConfig.folder: {folder} holds no goal that has ended")
    points = [] if config.kind else measured(folder)  # of all goals
    draw(output, goals, points, config.window)
    if config.tensorboard is not None:
        write_scalars(config.tensorboard.expanduser(), goals, config.window)
    told = {
        "picture": str(config.output),
        "goals": len(goals),
        "successes": sum(goal.success for goal in goals),
        "helped": sum(goal.helped > 0.0 for goal in goals),
        "helped_by": dict(Counter(person for goal in goals for person in goal.people)),
        "versions": list(dict.fromkeys(goal.version for goal in goals)),
    }
    print(json.dumps(told))
    return 0


def draw(path: Path, goals: Sequence[Goal], points: Iterable[tuple[int, Rate]], window: int) -> None:
    """Draw the success of the last goals, what was measured, and below it the help."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    helped = any(goal.helped for goal in goals)
    drawn = Figure(figsize=(9, 5.5 if helped else 4), layout="constrained")
    panels: Any = drawn.subplots(2 if helped else 1, sharex=True, squeeze=False, height_ratios=(3, 1)[: 1 + helped])
    success: Axes = panels[0, 0]
    numbers, curve = [goal.number for goal in goals], rates([goal.success for goal in goals], window)
    success.fill_between(numbers, [r.low for r in curve], [r.high for r in curve], alpha=0.2, label="95 % interval")
    success.plot(numbers, [r.rate for r in curve], label=f"of the last {window} goals")
    points = list(points)
    if points:
        at, found = zip(*points, strict=True)
        errors = [[r.rate - r.low for r in found], [r.high - r.rate for r in found]]
        middle = [r.rate for r in found]
        success.errorbar(at, middle, errors, fmt="o", color="black", capsize=3, label="measured, not practised on")
    for before, after in pairwise(goals):
        if before.version != after.version:
            success.axvline(after.number - 0.5, color="gray", linestyle="--", linewidth=1)
            label = f" {after.version}"
            success.text(after.number - 0.5, 0.02, label, color="gray", fontsize=7, rotation=90, va="bottom")
    success.set(ylabel="success without help", ylim=(-0.02, 1.02))
    success.legend(loc="lower right")
    if helped:
        _draw_help(panels[1, 0], numbers, goals)
    panels[-1, 0].set(xlabel="goals")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path)


def _draw_help(axes: Axes, numbers: Sequence[int], goals: Sequence[Goal]) -> None:
    """Draw who drove how much of each goal; beyond ``NAMED`` people, all others as one."""
    total = Counter[str]()
    for goal in goals:
        total.update(goal.people)
    named = [person for person, _ in total.most_common(NAMED)]
    shares = {person: np.array([goal.people.get(person, 0.0) for goal in goals]) for person in named}
    rest = np.array([goal.helped for goal in goals]) - sum(shares.values())
    below = np.zeros(len(goals))
    for person, share in (shares | ({"others": rest} if len(total) > NAMED else {})).items():
        axes.bar(numbers, share, bottom=below, width=1.0, label=person)
        below = below + share
    axes.legend(loc="upper right", fontsize=7)
    axes.set(ylabel="helped steps", ylim=(0, 1))


def write_scalars(folder: Path, goals: Sequence[Goal], window: int) -> None:
    """Write the curve for TensorBoard; a step is a goal."""
    from torch.utils.tensorboard import SummaryWriter  # slow to import

    with SummaryWriter(str(folder)) as out:
        curve = rates([goal.success for goal in goals], window)
        for goal, rate in zip(goals, curve, strict=True):
            out.add_scalar(f"success of the last {window}", rate.rate, goal.number)
            out.add_scalar("helped steps", goal.helped, goal.number)
            for person, share in goal.people.items():
                out.add_scalar(f"helped steps/{person}", share, goal.number)


def _check_new(folder: Path | None) -> None:
    """Make the ``folder`` for TensorBoard; raises InvalidInputError if that holds files."""
    if folder is None:
        return
    folder = at_home(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInputError(f"PlotConfig.tensorboard: {folder} holds other files; name a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"PlotConfig.tensorboard: {folder} cannot be written: {error.strerror}") from None


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
