"""Is the cue hidden? A classifier must not find it in what the policy sees when it has to decide.

The same classifier does find it in the frames that show the cue, so the audit can fail. Proprioception is rounded to
0.1 mm and 0.1 mrad, the repeatability of the arm: no encoder knows more.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from engram.core.control import proprioception
from engram.core.pipeline import CommandPipeline
from engram.sim.experts import make_expert
from engram.sim.tasks import MEMORY_TASKS, UNSEEN_TASKS, get_task, with_options
from engram.sim.tasks.memory.base import MemoryTask
from engram.sim.tasks.memory.blocks import CLEAR_STEPS, SERVE_STEPS, ChangeFood
from engram.sim.tasks.memory.buttons import FLASH_STEPS, PAUSE_STEPS, SeqPushButtons
from engram.sim.world import MujocoWorld, WorldConfig

SHORT, LONG = 60, 40
"""Episodes of a task whose cue is shown first, and of one where the arm has to work before it decides."""
RESOLUTION = 1e-4  # m, rad
PERIODS = {ChangeFood: SERVE_STEPS + CLEAR_STEPS, SeqPushButtons: FLASH_STEPS + PAUSE_STEPS}
"""Tasks that show their cue in parts -> control steps from one part to the next; the first one shows in step 1."""
SEES, BLIND = 1e-6, 1e-3
"""Chances, if there were nothing to find, below which a classifier sees the cue, and above which it does not."""

pytestmark = [pytest.mark.render, pytest.mark.slow]


@dataclass
class Glimpses:
    """What was there to see in many episodes; images as (episodes, values) 0..1."""

    cues: np.ndarray
    shown: np.ndarray  # frames that show the cue
    frames: np.ndarray  # both cameras when the arm may act on it
    poses: np.ndarray  # proprioception at the same time


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    world = MujocoWorld(WorldConfig(image_size=64))
    yield world
    world.close()


@pytest.mark.parametrize("task", MEMORY_TASKS | UNSEEN_TASKS)
def test_the_cue_is_in_what_was_shown_and_not_in_what_is_seen_when_deciding(world: MujocoWorld, task: str) -> None:
    seen = look(world, with_options(task, delay=2))
    assert found(seen.shown, seen.cues) < SEES
    assert found(seen.frames, seen.cues) > BLIND
    assert found(seen.poses / RESOLUTION, seen.cues) > BLIND
    leaning = seen.poses + 1e-3 * seen.cues[:, None]  # a hand that is a millimetre farther for each cue is found out
    assert found(leaning / RESOLUTION, seen.cues) < SEES


def look(world: MujocoWorld, task: str) -> Glimpses:
    """Run the episodes of a task; where the words name the target, all name the same, as the images cannot tell it."""
    kind = get_task(task)
    words = kind.instructions[0].format(thing=f"red {next(iter(kind.kinds))}") if kind.slots() else ""
    rows = [episode(world, task, words, seed) for seed in range(SHORT if kind.show_steps else LONG)]
    return Glimpses(*(np.array(column) for column in zip(*rows, strict=True)))


def episode(world: MujocoWorld, task: str, words: str, seed: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Run the expert up to its decision."""
    world.reset(task, seed, words)
    expert, pipeline = make_expert(task, world), CommandPipeline(world.kinematics, world.robot)
    times = cue_steps(world.task)
    shown, step = [], 0
    while not world.task.deciding:
        if step in times:
            shown.append(picture(world))
        world.advance(pipeline.step_action(world.joint_state(), expert.act()).command)
        step += 1
    state = proprioception(world.joint_state(), world.kinematics, world.robot)
    return world.task.oracle_cue, np.concatenate(shown), picture(world), np.round(state / RESOLUTION) * RESOLUTION


def cue_steps(task: MemoryTask) -> set[int]:
    """Control steps whose frames, together, show the cue."""
    period = PERIODS.get(type(task))
    return set(range(1, task.show_steps, period)) if period else {0}


def picture(world: MujocoWorld) -> np.ndarray:
    """Return every pixel, at the resolution to which a policy scales its images."""
    cameras = world.observe(depth=False).cameras.values()
    return np.concatenate([camera.color.ravel() / 255.0 for camera in cameras])


def found(features: np.ndarray, cues: np.ndarray) -> float:
    """Return the chance that the better of two classifiers does as well by always naming the commonest cue."""
    likeliest = np.bincount(cues).max() / len(cues)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    directions, sizes, _ = np.linalg.svd(features - features.mean(0), full_matrices=False)
    centred = directions * sizes  # turned, so that all that the episodes differ by is in a few numbers
    chances = []
    for classifier in (LogisticRegression(max_iter=300), KNeighborsClassifier(3)):
        right = int((cross_val_predict(classifier, centred, cues, cv=folds) == cues).sum())
        chances.append(binomtest(right, len(cues), likeliest, alternative="greater").pvalue)
    return min(chances)
