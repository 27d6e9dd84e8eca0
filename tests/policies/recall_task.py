"""Toy recall: a cue at the first step, nothing on the way, and a question at the end that only memory answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import Tensor, nn

from engram.policies.sequence_memory import Moments, SequenceMemory, State
from engram.policies.vla.flow import flow_matching_loss, integrate
from engram.policies.vla.layers import FlowHead
from engram.policies.vla.recall import Recall

from .tiny import tiny_config

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


class Shown(nn.Module):
    """What the network does with memory, without eyes: pictures (n, T, 4, d) -> flow loss of chunks (n, T, 2, 1).

    Pictures of both cues hardly differ: by a tenth of what they have in common. The cue is shown in the first two of
    six steps, and the last two steps are to be +1 or -1, all others 0.
    """

    STEPS = 6

    def __init__(self, memory: str) -> None:
        super().__init__()
        config = tiny_config(memory=memory, memory_details=1, memory_steps=4, memory_events=3)
        d = config.dim
        self.common, self.difference = torch.randn(d), 0.1 * torch.randn(2, d)
        self.cognition = nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d))
        self.body = nn.Linear(3, d)
        self.recall, self.head = Recall(config, 2 * d, pictures=4), FlowHead(2, 1, 2 * d, 32, 1)

    def draw(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return cues (n,), pictures (n, T, 4, d) and chunks (n, T, 2, 1)."""
        cue = torch.randint(2, (n,))
        pictures = self.common + 0.05 * torch.randn(n, self.STEPS, 4, len(self.common))
        pictures[:, :2] += self.difference[cue][:, None, None]
        chunk = torch.zeros(n, self.STEPS, 2, 1)
        chunk[:, -2:] = (2.0 * cue - 1)[:, None, None, None]
        return cue, pictures, chunk

    def condition(self, pictures: Tensor) -> Tensor:
        """Return the flow head's condition (n * T, c)."""
        n = len(pictures)
        step = torch.arange(self.STEPS).expand(n, -1)
        robot = (step[..., None] / self.STEPS - 0.5).expand(-1, -1, 3) * 3
        cognition = self.cognition(pictures.mean(2))
        feature = self.recall.feature(cognition.flatten(0, 1), pictures.flatten(0, 1)).unflatten(0, (n, self.STEPS))
        reading, _ = self.recall(self.recall.memory.begin(n), feature, cognition, robot, 0.1 * step)
        plain = torch.cat((cognition, self.body(robot)), -1).flatten(0, 1)
        return self.recall.condition(plain, cognition.flatten(0, 1), reading.flatten(0, 1), pictures.flatten(0, 1))

    def loss(self, pictures: Tensor, chunk: Tensor) -> Tensor:
        """Return the flow-matching loss, four draws a step."""
        condition, chunk = self.condition(pictures), chunk.flatten(0, 1)[:, None].expand(-1, 4, -1, -1)
        time = torch.rand(chunk.shape[:2])
        return flow_matching_loss(lambda x, t: self.head(x, t, condition), chunk, torch.randn(chunk.shape), time)

    @torch.no_grad()
    def last_action(self, pictures: Tensor) -> Tensor:
        """Return what is done at the last step (n,)."""
        condition, n = self.condition(pictures), len(pictures)
        chunk = integrate([lambda x, t: self.head(x, t, condition)] * 6, torch.zeros(n * self.STEPS, 1, 2, 1))
        return chunk.view(n, self.STEPS, 2)[:, -1, 0]


def make_recall_dataset(root: Path, episodes: int = 8, length: int = 9, size: int = 48) -> Path:
    """Record episodes that differ in the picture of their first two steps, red or blue, and in their last two actions,
    +0.8 or -0.8 (dimension 0): grey pictures and no motion between."""
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
            action[0] = 0.0 if j < length - 2 else 0.8 if i % 2 else -0.8
            state = np.full(15, j / length, np.float32)
            picture = np.broadcast_to(np.uint8(color if j < 2 else (120, 120, 120)), (size, size, 3)).copy()
            frame = {"observation.images.front": picture, "observation.state": state, "action": action}
            dataset.add_frame({**frame, "task": "do as you were shown"})
        dataset.save_episode()
    dataset.finalize()
    return root
