"""Toy recall: a cue at the first step, nothing on the way, and a question at the end that only memory answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import Tensor, nn

from engram.policies.memories import Moments, SequenceMemory, State

CUES, LENGTH = 4, 12


def episodes(n: int, feature: int, generator: torch.Generator) -> tuple[Moments, Tensor]:
    """Return n episodes of noise whose first feature carries one of four cues, and the cues (n,)."""
    cue = torch.randint(CUES, (n,), generator=generator)
    seen = 0.3 * torch.randn(n, LENGTH, feature, generator=generator)
    seen[:, 0, :CUES] += 3 * nn.functional.one_hot(cue, CUES)
    time_s = torch.arange(LENGTH).expand(n, -1) * 0.1
    return Moments(seen, time_s, torch.zeros(n, LENGTH, 3)), cue


def ask(memory: SequenceMemory, moments: Moments, dim: int) -> tuple[Tensor, State]:
    """Return the reading (n, d) at the last step, and the state there; every query is the same."""
    query = torch.ones(len(moments.feature), LENGTH, dim)
    readings, state = memory.unroll(memory.begin(len(query)), moments, query)
    return readings[:, -1], state


def learn(memory: SequenceMemory, feature: int, dim: int, steps: int = 120) -> nn.Linear:
    """Train ``memory`` and a linear answer; return the answer."""
    generator = torch.Generator().manual_seed(0)
    answer = nn.Linear(dim, CUES)
    optimizer = torch.optim.Adam([*memory.parameters(), *answer.parameters()], 5e-3)
    for _ in range(steps):
        moments, cue = episodes(48, feature, generator)
        loss = nn.functional.cross_entropy(answer(ask(memory, moments, dim)[0]), cue)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return answer


def make_recall_dataset(root: Path, episodes: int = 8, length: int = 9, size: int = 32) -> Path:
    """Record episodes that differ in the picture of their first two steps, red or blue, and in their last three
    actions, +0.8 or -0.8 (dimension 0): grey pictures and no motion between."""
    image = {"dtype": "image", "shape": (size, size, 3), "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(
        "engram/recall",
        10,
        {
            "observation.images.front": image,
            "observation.state": {"dtype": "float32", "shape": (15,), "names": None},
            "action": {"dtype": "float32", "shape": (7,), "names": None},
        },
        root=root,
        use_videos=False,
    )
    for i in range(episodes):
        for j in range(length):
            color = (220, 20, 20) if i % 2 else (20, 20, 220)
            action = np.zeros(7, np.float32)
            action[0] = 0.0 if j < length - 3 else 0.8 if i % 2 else -0.8
            state = np.full(15, j / length, np.float32)
            picture = np.broadcast_to(np.uint8(color if j < 2 else (120, 120, 120)), (size, size, 3)).copy()
            frame = {"observation.images.front": picture, "observation.state": state, "action": action}
            dataset.add_frame({**frame, "task": "do as you were shown"})
        dataset.save_episode()
    dataset.finalize()
    return root
