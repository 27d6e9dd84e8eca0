"""How failed episodes failed: words for what came of made-up episodes, and a contact sheet of a real one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engram.core.types import EpisodeResult, JointCommand, Observation, OracleOutcome
from engram.sim.tasks import Task
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import evaluate
from engram.validation.failures import (
    FAR,
    FELL_BACK,
    HEIGHT,
    HELD,
    KINDS,
    MARGIN,
    NEARLY,
    PICTURES,
    TIME,
    WRONG,
    FailureWatch,
)
from engram.validation.trials import IdlePolicy

ARM = ("joint",)


class Measured:
    """A task that has come as far as the test says."""

    def __init__(self, progress: tuple[float, ...]) -> None:
        self._progress = iter(progress)

    def oracle_progress(self, world: Any) -> float:
        return next(self._progress)


class Unmeasured:
    """A task that knows success alone."""

    oracle_progress = Task.oracle_progress

    def oracle_success(self, world: Any) -> bool:
        return False


def seen(side: int = 8) -> Observation:
    cameras = {name: SimpleNamespace(color=np.zeros((side, side, 3), np.uint8)) for name in ("front", "wrist")}
    return SimpleNamespace(cameras=cameras)  # type: ignore[return-value]


def run(watch: FailureWatch, steps: int, *, failed: bool = False, held: str = "", success: bool = False) -> str:
    watch.begin()
    for step in range(1, steps + 1):
        last = step == steps
        outcome = OracleOutcome("t", "go", 1, step, success and last, 0.0, last, failed and last)
        command = JointCommand(step, ARM, np.zeros(1), 0.1, held)
        watch(seen(), command, outcome)
    return watch.told(EpisodeResult("t:delay=4", 7, "go", success, steps, np.zeros((steps, 1))))


@pytest.mark.parametrize(
    ("progress", "how", "kind"),
    [
        ((0.2, 0.5, 0.6), {}, FAR),
        ((0.2, 0.6, 0.7), {}, NEARLY),
        ((0.2, 0.8, 0.3), {}, FELL_BACK),
        ((0.2, 0.8, 0.3), {"held": "joints_silent"}, HELD),
        ((0.2, 0.8, 0.8), {"held": "no_command"}, NEARLY),  # nobody asked for a motion: nothing was held back
        ((0.2, 0.8, 0.3), {"failed": True, "held": "joints_silent"}, WRONG),
        ((0.2, 0.8, 1.0), {"success": True}, ""),
    ],
)
def test_a_failure_is_told_in_a_word(progress: tuple[float, ...], how: dict[str, Any], kind: str) -> None:
    world: Any = SimpleNamespace(task=Measured(progress))
    assert run(FailureWatch(world), len(progress), **how) == kind
    assert kind in {"", *KINDS}


def test_of_a_task_that_measures_no_progress_it_is_known_that_its_time_was_over() -> None:
    watch = FailureWatch(SimpleNamespace(task=Unmeasured()))  # type: ignore[arg-type]
    assert [run(watch, 3), run(watch, 3, failed=True), run(watch, 3)] == [TIME, WRONG, TIME]


@pytest.mark.parametrize("steps", [1, 30, 500])
def test_a_sheet_shows_the_whole_episode_whatever_its_length(tmp_path: Path, steps: int) -> None:
    watch = FailureWatch(SimpleNamespace(task=Unmeasured()), tmp_path)  # type: ignore[arg-type]
    assert run(watch, steps) == TIME
    assert len(watch._moments) <= 2 * PICTURES  # a long episode does not fill the memory
    (sheet,) = tmp_path.glob("*.png")
    assert sheet.name == "t_delay=4-7.png"
    with Image.open(sheet) as image:
        assert image.size == (PICTURES * HEIGHT, 2 * HEIGHT + 2 * MARGIN)


def test_an_evaluation_counts_the_ways_and_draws_what_failed(tmp_path: Path) -> None:
    world = MujocoWorld(WorldConfig(profile="fast"))
    report = evaluate(IdlePolicy(), world, ("reach",), episodes=2, progress=False, sheets=tmp_path)
    world.close()
    assert report.failures == {"reach": (0, 1)}
    assert sum(report.failed_how["reach"].values()) == 2 and set(report.failed_how["reach"]) <= set(KINDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reach-0.png", "reach-1.png"]
    with Image.open(tmp_path / "reach-0.png") as image:
        assert np.asarray(image)[2 * MARGIN :].std() > 10  # pictures, not an empty sheet
