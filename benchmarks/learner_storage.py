"""Bytes of a stored control step: ours beside LeRobot's replay buffer and its datasets, of the same episodes.

The episodes are a policy's in the simulator: pictures of noise would not compress. LeRobot's buffer holds each step
twice, as float32, in RAM; on disk it becomes a dataset with videos, which loses detail, or with PNG files. Ours are
the store of the experience on disk, which keeps every bit, and the replay in RAM. That is full and takes in episodes
in place of others, and its peak counts besides.
"""

from __future__ import annotations

import itertools
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rl.buffer import ReplayBuffer as LeRobotBuffer

from engram.core.types import Transition
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.experience.store import ExperienceStore
from engram.learning.replay.buffer import ReplayBuffer, ReplayConfig
from engram.policies import load_policy
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.sim.tasks import SUITES
from engram.sim.world import MujocoWorld
from engram.validation.evaluation import make_runtime

FPS = 10
TIMES = 4
"""A replay takes in so many times the steps that fit in."""


def recorded(policy: str, tasks: int, each: int, seed: int) -> list[list[Transition]]:
    """Return episodes of the first so many tabletop tasks, ``each`` of them, as a robot records them."""
    world = MujocoWorld()
    runtime = make_runtime(load_policy(policy), world)
    kept: list[Transition] = []
    controller = runtime.pipeline.controller
    runtime.recorder = ExperienceRecorder(controller.kinematics, controller.robot, kept.append, lambda: len(kept) + 1)
    episodes = []
    for task, number in itertools.product(SUITES["tabletop"][:tasks], range(each)):
        kept.clear()
        runtime.run_episode(task, seed + number)
        episodes.append(list(kept))
    world.close()
    return episodes


def bytes_per_step(policy: str, episodes: Sequence[Sequence[Transition]]) -> dict[str, float]:
    """Return the bytes of a control step by where it is stored."""
    steps = sum(map(len, episodes))
    shrink = clone_policy(load_policy(policy)).shrink
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peer = lerobot_buffer(episodes)
        found = {
            "engram experience store": _stored(folder / "store", episodes),
            **_held("engram replay as recorded", episodes, None),
            **_held("engram replay as the policy sees them", episodes, shrink),
            "lerobot replay buffer": _tensors(peer),
            "lerobot dataset of its buffer with videos": _dataset(folder / "videos", peer),
            "lerobot dataset with png files": _pictures(folder / "pictures", episodes),
        }
    return {where: size / steps for where, size in found.items()}


def lerobot_buffer(episodes: Sequence[Sequence[Transition]]) -> LeRobotBuffer:
    """Return LeRobot's replay buffer with the same steps; without augmentation, which ours does not do either."""
    images = [f"observation.images.{name}" for name in episodes[0][0].images]
    keys, steps = [*images, "observation.state"], sum(map(len, episodes))
    buffer = LeRobotBuffer(steps, "cpu", keys, image_augmentation_function=lambda x: x, use_drq=False)

    def state(t: Transition) -> dict[str, torch.Tensor]:
        shown = {f"observation.images.{n}": torch.tensor(im).permute(2, 0, 1)[None] / 255 for n, im in t.images.items()}
        return {**shown, "observation.state": torch.tensor(t.state)[None]}

    for episode in episodes:
        for here, there in zip(episode, [*episode[1:], episode[-1]], strict=True):
            action = torch.tensor(here.action)[None]
            buffer.add(state(here), action, here.reward, state(there), here.terminated, here.truncated)
    return buffer


def _stored(folder: Path, episodes: Sequence[Sequence[Transition]]) -> int:
    """Return the size of our store of ``episodes`` on disk."""
    store, number = ExperienceStore(folder), 0
    for episode in episodes:
        numbered = enumerate(episode, number + 1)
        store.append([replace(step, robot_id="bench", boot_id="0", sequence=at) for at, step in numbered])
        number += len(episode)
    store.commit()
    store.close()
    return _size(folder)


def _held(
    name: str, episodes: Sequence[Sequence[Transition]], shrink: Callable[[str, np.ndarray], np.ndarray] | None
) -> dict[str, int]:
    """Return how much RAM our replay of the steps of ``episodes`` takes at last and at most, while others come."""
    tracemalloc.start()  # NumPy tells it of its arrays
    try:
        buffer = ReplayBuffer(ReplayConfig(capacity=sum(map(len, episodes))), shrink)
        for number in range(TIMES * len(episodes)):
            buffer.add(number, episodes[number % len(episodes)])
            buffer.sample(1, (number,))
        steady, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {name: steady, f"{name}, at its peak": peak}


def _tensors(buffer: LeRobotBuffer) -> int:
    parts = [*buffer.states.values(), *buffer.next_states.values(), buffer.actions, buffer.rewards, buffer.dones]
    return sum(part.nbytes for part in (*parts, buffer.truncateds))


def _dataset(folder: Path, buffer: LeRobotBuffer) -> int:
    buffer.to_lerobot_dataset("bench/videos", fps=FPS, root=folder)
    return _size(folder)


def _pictures(folder: Path, episodes: Sequence[Sequence[Transition]]) -> int:
    first = episodes[0][0]
    features = {
        f"observation.images.{name}": {"dtype": "image", "shape": im.shape, "names": ["height", "width", "channels"]}
        for name, im in first.images.items()
    }
    features |= {
        "observation.state": {"dtype": "float32", "shape": first.state.shape, "names": None},
        "action": {"dtype": "float32", "shape": first.action.shape, "names": None},
    }
    dataset = LeRobotDataset.create("bench/pictures", fps=FPS, root=folder, features=features, use_videos=False)
    for episode in episodes:
        for step in episode:
            frame = {f"observation.images.{name}": image for name, image in step.images.items()}
            dataset.add_frame(
                frame | {"observation.state": step.state, "action": step.action, "task": step.instruction}
            )
        dataset.save_episode()
    dataset.finalize()
    return _size(folder)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
