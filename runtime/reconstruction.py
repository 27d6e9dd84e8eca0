"""Objects in space as a policy's input: the scene graph of one episode, in the tokens of ``memory/context``.

After mindmap (Steiner et al., 2025), which gives a policy a semantic 3D reconstruction so that it may act on what no
camera sees any more. Theirs is of features on surfaces, ours of objects: embedding, place in ``base_link``, age.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from engram.core.contracts import Detector, Kinematics, Memory
from engram.core.control import hand
from engram.core.robot import FULL_SIZE_TABLE, RobotConfig, TableConfig
from engram.core.types import EMBEDDING_DIM, MemoryTokens, Observation
from engram.memory.graph.context import Case, ContextConfig, with_cases
from engram.perception.embedding import default_text_encoder
from engram.runtime.loop import remember
from engram.sim.tasks import get_task
from engram.sim.tasks.placement import COLORS

TOKENS = 16
"""Entries of a context, padding included."""
PREFIX = "observation.memory."
"""Of the dataset's features: the policy reads them by these names."""
PAST_LOW_M, PAST_HIGH_M = (0.3, -0.35, 0.0), (0.7, 0.35, 0.15)
"""Where things of them changed: on the table."""
PAST_AGE_S = (3.0, 3000.0)


class SceneRecorder:
    """Perceives and remembers the frames of one episode after another, as :class:`Runtime` does.

    A robot remembers its past tasks, too, and their words are closer to the present ones than any object's name. So
    an episode has up to two of them among its tokens, of the same task, somewhere else: nothing to act on.
    """

    def __init__(self, kinematics: Kinematics, robot: RobotConfig, camera: str = "") -> None:
        self.kinematics, self.robot, self.camera = kinematics, robot, camera or robot.perception_camera
        self.detector, self.fresh_memory = make_perception()

    def begin(self, task: str, seed: int, stamp_ns: int) -> None:
        """Begin an episode at ``stamp_ns``: nothing is known of the scene, and of the past what ``seed`` draws."""
        self.memory = self.fresh_memory()
        self.past = past_tasks(task, np.random.default_rng((seed, 3)), stamp_ns, self.robot.table)

    def see(self, observation: Observation, instruction: str) -> dict[str, np.ndarray]:
        """Take in one control step and return its features for the dataset."""
        held = hand(observation.joints, self.kinematics, self.robot)
        tokens = remember(self.detector, self.memory, observation.camera(self.camera), held, instruction)
        return columns(with_cases(tokens, self.past))


def past_tasks(
    task: str, rng: np.random.Generator, now_ns: int = 0, table: TableConfig = FULL_SIZE_TABLE
) -> list[Case]:
    """Return up to two past episodes of ``task`` as ``memory/context`` holds them, their place and age drawn."""
    kind = get_task(task)
    colours = itertools.permutations(sorted(COLORS), len(kind.slots()))
    said = [t.format(**dict(zip(kind.slots(), named, strict=True))) for named in colours for t in kind.instructions]
    words = [str(said[i]) for i in rng.integers(len(said), size=int(rng.integers(ContextConfig.cases + 1)))]
    ages = np.exp(rng.uniform(np.log(PAST_AGE_S[0]), np.log(PAST_AGE_S[1]), len(words)))
    places = table.place(rng.uniform(PAST_LOW_M, PAST_HIGH_M, (len(words), 3)))
    vectors = default_text_encoder().encode(words) if words else ()
    return [
        Case(f"episode_{i}", vector, place, now_ns - round(age * 1e9))
        for i, (vector, place, age) in enumerate(zip(vectors, places, ages, strict=True))
    ]


def make_perception() -> tuple[Detector, Callable[[], Memory]]:
    """Return the detector by geometry, and what makes an empty scene graph in RAM."""
    from engram.memory.graph_memory import GraphMemory  # slow to import: only where it is wanted
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
