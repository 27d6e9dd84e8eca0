"""Objects in space as a policy's input: the scene graph of one episode, in the tokens of ``memory/context``.

After mindmap (Steiner et al., 2025), which gives a policy a semantic 3D reconstruction so that it may act on what no
camera sees any more. Theirs is of features on surfaces, ours of objects: embedding, place in ``base_link``, age.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engram.core.contracts import Detector, Kinematics, Memory
from engram.core.control import hand
from engram.core.robot import RobotConfig
from engram.core.types import EMBEDDING_DIM, MemoryTokens, Observation
from engram.sim.runtime import remember

TOKENS = 16
"""Entries of a context, padding included."""
PREFIX = "observation.memory."
"""Of the dataset's features: the policy reads them by these names."""


class SceneRecorder:
    """Perceives and remembers the frames of one episode after another, as :class:`Runtime` does."""

    def __init__(self, kinematics: Kinematics, robot: RobotConfig, camera: str = "front") -> None:
        self.kinematics, self.robot, self.camera = kinematics, robot, camera
        self.detector, self.fresh_memory = make_perception()

    def begin(self) -> None:
        """Begin an episode: nothing is known."""
        self.memory = self.fresh_memory()

    def see(self, observation: Observation, instruction: str) -> dict[str, np.ndarray]:
        """Take in one control step and return its features for the dataset."""
        held = hand(observation.joints, self.kinematics, self.robot)
        return columns(remember(self.detector, self.memory, observation.camera(self.camera), held, instruction))


def make_perception() -> tuple[Detector, Callable[[], Memory]]:
    """Return the detector by geometry, and what makes an empty scene graph in RAM."""
    from engram.memory.graph_memory import GraphMemory  # slow to import: only where it is wanted
    from engram.perception.embedding import default_text_encoder
    from engram.perception.geometric import GeometricDetector

    encoder = default_text_encoder()
    return GeometricDetector(encoder=encoder), lambda: GraphMemory(encoder=encoder)


def columns(tokens: MemoryTokens) -> dict[str, np.ndarray]:
    """Return ``tokens`` as features of one frame."""
    return {
        f"{PREFIX}tokens": tokens.tokens,
        f"{PREFIX}age_s": tokens.age_s,
        f"{PREFIX}place": tokens.place,
        f"{PREFIX}mask": tokens.mask,
    }


def features() -> dict[str, dict[str, Any]]:
    """Return these features in LeRobot's format."""
    return {
        f"{PREFIX}tokens": {"dtype": "float32", "shape": (TOKENS, EMBEDDING_DIM), "names": None},
        f"{PREFIX}age_s": {"dtype": "float32", "shape": (TOKENS,), "names": None},
        f"{PREFIX}place": {"dtype": "float32", "shape": (TOKENS, 3), "names": None},
        f"{PREFIX}mask": {"dtype": "bool", "shape": (TOKENS,), "names": None},
    }
