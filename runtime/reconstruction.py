"""Objects in space as input of a policy: the scene graph of one episode as the tokens of ``memory/context``.

Follows mindmap (Steiner et al., 2025), which gives a policy a semantic 3D reconstruction so that it can act on what no
camera sees any more. mindmap reconstructs features on surfaces; here it is objects: embedding, position in
``base_link``, age.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from engram.core.context_rows import MEMORY_KEYS
from engram.core.contracts import Detector, Kinematics, Memory
from engram.core.control import hand
from engram.core.robot import FULL_SIZE_TABLE, RobotConfig, TableConfig
from engram.core.types import EMBEDDING_DIM, MemoryTokens, Observation
from engram.memory.graph.context import Case, ContextConfig, with_cases
from engram.perception.embedding import default_text_encoder
from engram.runtime.factories import make_detector
from engram.runtime.loop import remember
from engram.sim.tasks import get_task

TOKENS = 16
"""Entries of a context, padding included."""
PAST_LOW_M, PAST_HIGH_M = (0.3, -0.35, 0.0), (0.7, 0.35, 0.15)
"""Where past episodes are placed: on the table."""
PAST_AGE_S = (3.0, 3000.0)


class SceneRecorder:
    """Perceives and remembers the frames of one episode after another, as :class:`Runtime` does.

    The memory node also offers past tasks as tokens, and their wording resembles the present instruction more than any
    object's name does. Each episode therefore gets up to two past episodes of the same task, at random places, so that
    the policy learns not to act on them.
    """

    def __init__(
        self, kinematics: Kinematics, robot: RobotConfig, camera: str = "", detector: str = "geometric"
    ) -> None:
        """Look through ``camera``, by default the robot's perception camera, with the detector called ``detector``."""
        self.kinematics, self.robot, self.camera = kinematics, robot, camera or robot.perception_camera
        self.detector, self.fresh_memory = make_perception(detector)

    def begin(self, task: str, seed: int, stamp_ns: int) -> None:
        """Begin an episode at ``stamp_ns`` with an empty scene graph and past episodes drawn from ``seed``."""
        self.memory = self.fresh_memory()
        self.past = past_tasks(task, np.random.default_rng((seed, 3)), stamp_ns, self.robot.table)

    def see(self, observation: Observation, instruction: str) -> dict[str, np.ndarray]:
        """Take in one control step and return its features for the dataset."""
        held = hand(observation.joints, self.kinematics, self.robot)
        tokens, _ = remember(self.detector, self.memory, observation.camera(self.camera), held, instruction)
        return columns(with_cases(tokens, self.past))


def past_tasks(
    task: str, rng: np.random.Generator, now_ns: int = 0, table: TableConfig = FULL_SIZE_TABLE
) -> list[Case]:
    """Return up to two made-up past episodes of ``task`` as tokens, with random place and age."""
    kind = get_task(task)
    fills = itertools.permutations(sorted(kind.slot_words), len(kind.slots()))
    said = [t.format(**dict(zip(kind.slots(), named, strict=True))) for named in fills for t in kind.instructions]
    words = [str(said[i]) for i in rng.integers(len(said), size=int(rng.integers(ContextConfig.cases + 1)))]
    ages = np.exp(rng.uniform(np.log(PAST_AGE_S[0]), np.log(PAST_AGE_S[1]), len(words)))
    places = table.place(rng.uniform(PAST_LOW_M, PAST_HIGH_M, (len(words), 3)))
    vectors = default_text_encoder().encode(words) if words else ()
    return [
        Case(f"episode_{i}", vector, place, now_ns - round(age * 1e9))
        for i, (vector, place, age) in enumerate(zip(vectors, places, ages, strict=True))
    ]


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
