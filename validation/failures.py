"""How the failed episodes of an evaluation failed: a word for each, and a contact sheet to look at."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from engram.core.types import EpisodeResult, JointCommand, Observation, OracleOutcome
from engram.sim.tasks import Task
from engram.sim.world import MujocoWorld
from engram.validation.trials import WAITING

WRONG, HELD, FELL_BACK = "wrong choice", "held by safety", "fell back"
NEARLY, FAR, TIME = "nearly there", "far from it", "out of time"
KINDS = {
    WRONG: "the task ended because something wrong was chosen",
    HELD: "the safety filter held the arm at the end",
    TIME: "the time was over; the task has no measure of progress",
    FELL_BACK: "progress was lost before the end, as when something was dropped",
    NEARLY: "the best progress was at least two thirds",
    FAR: "the best progress was less",
}
"""What the words mean; a failure is counted under the first that applies."""
FELL, NEAR = 0.25, 2 / 3
"""Shares of the way (``oracle_progress``): so much is lost; so much is nearly there."""
ONLY_SUCCESS = Task.oracle_progress
"""What a task inherits that measures no progress."""
PICTURES, HEIGHT, MARGIN = 12, 160, 18
"""Of a contact sheet: columns, pixels of a row, and pixels of the words above it."""


class FailureWatch:
    """A step hook that follows one episode after the other, and says of a failed one how it failed.

    Args:
        world: where the episodes are run.
        folder: where the contact sheets go, as ``<task>-<seed>.png``: a row for each camera, time to the right.
            None: none are drawn.
    """

    def __init__(self, world: MujocoWorld, folder: Path | None = None) -> None:
        self._world, self._folder = world, folder
        self.begin()

    def begin(self) -> None:
        """Forget the episode before."""
        self._best = self._last = 0.0
        self._failed = self._held = self._measured = False
        self._moments: list[tuple[int, dict[str, np.ndarray]]] = []  # step, pictures by camera
        self._every = 1

    def __call__(self, seen: Observation, command: JointCommand, outcome: OracleOutcome) -> None:
        """Take in one control step."""
        task = self._world.task
        assert task is not None
        self._last, self._measured = task.oracle_progress(self._world), type(task).oracle_progress is not ONLY_SUCCESS
        self._best = max(self._best, self._last)
        self._failed, self._held = outcome.failed, command.held not in ("", WAITING)
        if self._folder is not None and outcome.step % self._every == 0:
            self._moments.append((outcome.step, {name: np.array(c.color) for name, c in seen.cameras.items()}))
            if len(self._moments) > 2 * PICTURES:  # a longer episode is shown at longer intervals
                self._every *= 2
                self._moments = [moment for moment in self._moments if moment[0] % self._every == 0]

    def told(self, result: EpisodeResult) -> str:
        """Return how the episode with this result failed, and draw its contact sheet; empty: it succeeded."""
        if result.oracle_success:
            return ""
        kind = self._kind()
        if self._folder is not None and self._moments:
            name = re.sub(r"[^\w.,=-]+", "_", f"{result.task}-{result.seed}")
            self._sheet(f"{result.task}, seed {result.seed}: {result.instruction}: {kind}").save(
                self._folder / f"{name}.png"
            )
        return kind

    def _kind(self) -> str:
        if self._failed:
            return WRONG
        if self._held:
            return HELD
        if not self._measured:
            return TIME
        if self._best - self._last > FELL:
            return FELL_BACK
        return NEARLY if self._best >= NEAR else FAR

    def _sheet(self, title: str) -> Image.Image:
        shown = [self._moments[round(at)] for at in np.linspace(0, len(self._moments) - 1, PICTURES)]
        rows = []
        for camera in shown[0][1]:
            row = [Image.fromarray(pictures[camera]) for _, pictures in shown]
            rows.append([one.resize((HEIGHT * one.width // one.height, HEIGHT)) for one in row])
        sheet = Image.new("RGB", (sum(one.width for one in rows[0]), 2 * MARGIN + len(rows) * HEIGHT), "white")
        draw = ImageDraw.Draw(sheet)
        draw.text((2, 2), title, fill="black")
        for y, row in enumerate(rows):
            x = 0
            for one, (step, _) in zip(row, shown, strict=True):
                draw.text((x + 2, MARGIN), f"step {step}", fill="black")
                sheet.paste(one, (x, 2 * MARGIN + y * HEIGHT))
                x += one.width
        return sheet
