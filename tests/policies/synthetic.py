"""A tiny LeRobotDataset with the recorder's features, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

INSTRUCTIONS = ("go to the red cube", "go to the blue cube")


def make_dataset(root: Path, episodes: int = 4, length: int = 12, size: int = 48) -> Path:
    """Record ``episodes`` of noise and return ``root``; frame j of episode i carries action i * 0.1 + j * 0.01."""
    rng = np.random.default_rng(0)
    image = {"dtype": "image", "shape": (size, size, 3), "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(
        "engram/synthetic",
        10,
        {
            "observation.images.front": image,
            "observation.images.wrist": image,
            "observation.state": {"dtype": "float32", "shape": (15,), "names": None},
            "action": {"dtype": "float32", "shape": (7,), "names": None},
        },
        root=root,
        use_videos=False,
    )
    for i in range(episodes):
        for j in range(length):
            dataset.add_frame(
                {
                    "observation.images.front": rng.integers(0, 256, (size, size, 3), dtype=np.uint8),
                    "observation.images.wrist": rng.integers(0, 256, (size, size, 3), dtype=np.uint8),
                    "observation.state": rng.normal(size=15).astype(np.float32),
                    "action": np.full(7, i * 0.1 + j * 0.01, np.float32),
                    "task": INSTRUCTIONS[i % 2],
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return root
