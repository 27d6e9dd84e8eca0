"""A policy that learns from the scene graph's tokens acts by what stands where, not by what it sees."""

import numpy as np
import pytest
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from engram.core.types import MemoryTokens
from engram.perception.embedding import default_text_encoder
from engram.policies.opening import open_policy
from engram.policies.training.train import main
from engram.policies.training.train_config import TrainConfig
from engram.runtime.reconstruction import TOKENS, columns, features

SIDE, CAMERA, EPISODES, LENGTH = 32, 48, 4, 60
MODEL = (
    ("keypoints", 4), ("image_tokens_side", 2), ("dim", 32), ("layers", 1), ("heads", 2), ("head_width", 64),
    ("head_blocks", 1), ("chunk_size", 1), ("flow_draws", 4), ("state_dropout", 0.0), ("brightness_jitter", 0.0),
)  # fmt: skip


def scene(red_y: float, blue_y: float) -> MemoryTokens:
    """Return a context of two cubes, in either order."""
    order = [0, 1] if red_y < blue_y else [1, 0]
    tokens, place = np.zeros((TOKENS, 384), np.float32), np.zeros((TOKENS, 3), np.float32)
    tokens[:2] = default_text_encoder().encode(["red cube", "blue cube"])[order]
    place[:2] = np.array([[0.5, red_y, 0.02], [0.5, blue_y, 0.02]], np.float32)[order]
    ids = ("a", "b") + ("",) * (TOKENS - 2)
    return MemoryTokens(0, 1, tokens, np.zeros(TOKENS, np.float32), place, np.arange(TOKENS) < 2, ids)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """Trained on grey pictures and two cubes anywhere, of which the red one says how far to go."""
    root = tmp_path_factory.mktemp("toy")
    image = {"dtype": "image", "shape": (CAMERA, CAMERA, 3), "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(
        "engram/toy", 10,
        {
            "observation.images.front": image,
            "observation.state": {"dtype": "float32", "shape": (15,), "names": None},
            "action": {"dtype": "float32", "shape": (7,), "names": None},
            **features(),
        },
        root=root / "data", use_videos=False,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(EPISODES):
        for _ in range(LENGTH):
            red, blue = rng.uniform(-0.3, 0.3, 2)
            frame = {
                "observation.images.front": np.full((CAMERA, CAMERA, 3), 120, np.uint8),
                "observation.state": rng.normal(size=15).astype(np.float32),
                "action": np.full(7, 3 * red, np.float32),
                **columns(scene(red, blue)),
            }
            dataset.add_frame({**frame, "task": "go to the red cube"})
        dataset.save_episode()
    dataset.finalize()
    config = TrainConfig(
        dataset=str(root / "data"), out=str(root / "out"), steps=300, batch_size=32, warmup_steps=10,
        learning_rate=3e-3, image_size=SIDE, n_action_steps=1, ema_decay=0.98, model=MODEL,
    )  # fmt: skip
    return open_policy(main(config))


def goes(opened, tokens: MemoryTokens | None) -> float:
    """Return how far it goes, by grey pictures, with ``tokens`` in its memory."""
    batch = {
        "observation.images.front": torch.full((3, CAMERA, CAMERA), 120, dtype=torch.uint8),
        "observation.state": torch.zeros(15),
        "task": "go to the red cube",
    }
    if tokens is not None:
        batch |= {name: torch.tensor(array)[None] for name, array in columns(tokens).items()}
    noise = torch.zeros(1, *opened.policy.model.noise_shape)
    chunk = opened.policy.predict_action_chunk(opened.preprocess(batch), noise)
    return float(opened.postprocess(chunk)[0, 0].mean()) / 3


def test_it_goes_where_the_red_cube_stands_and_elsewhere_when_the_cubes_change_places(policy):
    assert goes(policy, scene(0.2, -0.2)) > 0.08
    assert goes(policy, scene(-0.2, 0.2)) < -0.08
    assert abs(goes(policy, None)) < 0.08  # it has nothing to go by


def test_the_tokens_are_neither_normalised_nor_asked_for(policy):
    assert set(policy.policy.config.input_features) == {"observation.images.front", "observation.state"}
    tokens = torch.tensor(scene(0.1, 0.2).place)[None]
    batch = {"observation.state": torch.zeros(15), "observation.memory.place": tokens, "task": "go",
             "observation.images.front": torch.zeros(3, CAMERA, CAMERA, dtype=torch.uint8)}  # fmt: skip
    assert torch.equal(policy.preprocess(batch)["observation.memory.place"], tokens)
