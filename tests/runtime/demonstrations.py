"""Datasets with a demonstration, made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def dataset(root: Path, words: str, gripper: np.ndarray, names: list[str], path: np.ndarray) -> Path:
    """Return the folder of a dataset with one demonstration."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    layout = {
        "observation.state": {"dtype": "float32", "shape": (len(names),), "names": names},
        "action": {"dtype": "float32", "shape": (7,), "names": None},
    }
    made = LeRobotDataset.create("any", 10, layout, root=root)
    for tool, closes in zip(path, gripper, strict=True):
        state = np.r_[tool, np.zeros(len(names) - 3)].astype(np.float32)
        action = np.r_[np.zeros(6), closes].astype(np.float32)
        made.add_frame({"observation.state": state, "action": action, "task": words})
    made.save_episode()
    made.finalize()
    return root
