"""Objects in space as input of a policy: the scene graph of one episode as the tokens of ``memory/context``.

Follows mindmap (Steiner et al., 2025), which gives a policy a semantic 3D reconstruction so that it can act on what no
camera sees any more. mindmap reconstructs features on surfaces; here it is objects: embedding, position in
``base_link``, age.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engram.core.context_rows import MEMORY_KEYS
from engram.core.contracts import Detector, Kinematics, Memory
from engram.core.control import hand
from engram.core.robot import RobotConfig
from engram.core.types import EMBEDDING_DIM, MemoryTokens, Observation
from engram.perception.embedding import default_text_encoder
from engram.runtime.factories import make_detector
from engram.runtime.loop import remember

TOKENS = 16
"""Entries of a context, padding included."""


class SceneRecorder:
    """Perceives and remembers the frames of one episode after another, as :class:`Runtime` does."""

    def __init__(
        self, kinematics: Kinematics, robot: RobotConfig, camera: str = "", detector: str = "geometric"
    ) -> None:
        """Look through ``camera``, by default the robot's perception camera, with the detector called ``detector``."""
        self.kinematics, self.robot, self.camera = kinematics, robot, camera or robot.perception_camera
        self.detector, self.fresh_memory = make_perception(detector)

    def begin(self) -> None:
        """Begin an episode with an empty scene graph."""
        self.memory = self.fresh_memory()

    def see(self, observation: Observation, instruction: str) -> dict[str, np.ndarray]:
        """Take in one control step and return its features for the dataset."""
        held = hand(observation.joints, self.kinematics, self.robot)
        tokens, _ = remember(self.detector, self.memory, observation.camera(self.camera), held, instruction)
        return columns(tokens)


def make_perception(detector: str = "geometric") -> tuple[Detector, Callable[[], Memory]]:
    """Return the detector called ``detector``, and what makes an empty scene graph in RAM."""
    from engram.memory.graph_memory import GraphMemory  # slow to import: only where it is wanted

    encoder = default_text_encoder()
    return make_detector(detector), lambda: GraphMemory(encoder=encoder)


def columns(tokens: MemoryTokens) -> dict[str, np.ndarray]:
    """Return ``tokens`` as features of one frame."""
    arrays = (tokens.tokens, tokens.age_s, tokens.place, tokens.mask.astype(np.float32))
    return dict(zip(MEMORY_KEYS, arrays, strict=True))


def features() -> dict[str, dict[str, Any]]:
    """Return these features in LeRobot's format; the mask as numbers, because LeRobot normalizes every feature."""
    shapes = ((TOKENS, EMBEDDING_DIM), (TOKENS,), (TOKENS, 3), (TOKENS,))
    return {
        key: {"dtype": "float32", "shape": shape, "names": None} for key, shape in zip(MEMORY_KEYS, shapes, strict=True)
    }
