"""A picture of every memory task: the cue, the moment of decision, the work and its end, seen by the front camera."""

from __future__ import annotations

import sys

import numpy as np
from PIL import Image, ImageDraw

from engram.core.pipeline import CommandPipeline
from engram.sim.experts import make_expert
from engram.sim.tasks import MEMORY_TASKS
from engram.sim.tasks.memory import MemoryTask
from engram.sim.world import MujocoWorld, WorldConfig

SIZE, LINE, ACROSS = 128, 14, 2


def strip(world: MujocoWorld, name: str, seed: int) -> np.ndarray:
    """Return four frames of the expert's episode side by side (128, 512, 3) uint8.

    They are: the last that shows the cue, the first of the decision, the middle of the work, the end.
    """
    observation = world.reset(name, seed)
    task, expert = world.task, make_expert(name, world)
    assert isinstance(task, MemoryTask)
    pipeline = CommandPipeline(world.kinematics, world.robot)
    frames, decided = [observation.camera(world.robot.perception_camera).color], 0
    while not (task.done or task.lost):
        decided = decided if task.deciding else len(frames)
        observation = world.step(pipeline.step_action(observation.joints, expert.act()).command)
        frames.append(observation.camera(world.robot.perception_camera).color)
    chosen = (max(task.oracle_cue_steps), decided, (decided + len(frames)) // 2, len(frames) - 1)
    return np.concatenate([frames[i] for i in chosen], axis=1)


def sheet(seed: int = 1) -> Image.Image:
    """Return all tasks, two in a row, each under its name."""
    world = MujocoWorld(WorldConfig(image_size=SIZE))
    cells = [(name, strip(world, name, seed)) for name in MEMORY_TASKS]
    world.close()
    width, height = 4 * SIZE + 8, SIZE + LINE
    rows = -(-len(cells) // ACROSS)
    page = Image.new("RGB", (ACROSS * width - 8, rows * height), "white")
    draw = ImageDraw.Draw(page)
    for i, (name, picture) in enumerate(cells):
        x, y = (i % ACROSS) * width, (i // ACROSS) * height
        draw.text((x + 2, y + 1), name, fill="black")
        page.paste(Image.fromarray(picture), (x, y + LINE))
    return page.quantize(128)


if __name__ == "__main__":
    sheet().save(sys.argv[1], optimize=True)
