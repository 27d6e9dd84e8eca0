"""Episodes, transitions, and the weights learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from engram.core.arrays import checked, positive_int
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types.action import HOLD, HUMAN
from engram.core.types.basics import set_fields
from engram.core.types.lineage import ActionSource, Lineage
from engram.core.types.scene import MemoryTokens
from engram.core.types.verdict import Verdict

STAGES = ("candidate", "canary", "approved", "retired", "rejected", "rolled_back")
"""What becomes of weights: made; let drive, on one robot first; let drive for good; replaced by later ones; never
let drive; taken back."""
UNJUDGED = "none"
"""In ``Transition.reward_source``: nobody says how the episode ended, as it was called off, or was not seen."""
EPISODE_STATES = ("idle", "running", "held", "succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class EpisodeStatus:
    """What the robot's current episode is doing at ``stamp_ns``; oracle fields come from a simulator only."""

    stamp_ns: int
    robot_id: str
    episode: int
    task: str
    instruction: str
    step: int
    state: str
    oracle_success: bool = False
    oracle_reward: float = 0.0
    truncated: bool = False

    def __post_init__(self) -> None:
        if self.state not in EPISODE_STATES:
            raise unknown_name("episode state", self.state, EPISODE_STATES)

    @property
    def running(self) -> bool:
        """Whether this step wants a command."""
        return self.state in ("running", "held")


@dataclass(frozen=True, slots=True)
class Transition:
    """One control step of experience; (robot_id, boot_id, sequence) identifies it exactly once."""

    robot_id: str
    boot_id: str
    sequence: int
    episode: int
    step: int
    stamp_ns: int
    task: str
    instruction: str
    images: Mapping[str, np.ndarray]  # name -> (H, W, 3) uint8
    state: np.ndarray  # (8 + joints,) float32
    action: np.ndarray  # (7,) float32, proposed by the policy
    executed_action: np.ndarray  # (7,) float32, what was let through
    reward: float
    reward_source: str  # who judged: "oracle", "verdict", or UNJUDGED at the end of an episode
    terminated: bool
    truncated: bool
    success: bool
    author: str  # whose action was executed: a policy's version, human:<who>, hold:<why>; "": not known
    policy_version: str
    memory_ids: tuple[str, ...] = ()
    source: ActionSource = field(default_factory=ActionSource)
    context: MemoryTokens | None = None  # what the policy read of memory/context at this step; None: it reads none
    chunk_ns: int = 0  # stamp of the chunk that proposed the action, which answers that step; 0: none did

    def __post_init__(self) -> None:
        images = {
            n: checked(f"Transition.images[{n!r}]", im, (None, None, 3), np.uint8) for n, im in self.images.items()
        }
        set_fields(
            self,
            images=MappingProxyType(images),
            state=checked("Transition.state", self.state, (None,), np.float32),
            action=checked("Transition.action", self.action, (None,), np.float32),
            executed_action=checked("Transition.executed_action", self.executed_action, (None,), np.float32),
        )

    @property
    def intervention(self) -> bool:
        """Whether a person's action was executed."""
        return self.author.startswith(HUMAN)

    @property
    def person(self) -> str:
        """Name of the person who drove; empty: nobody did, or the name is not known."""
        return self.author.removeprefix(HUMAN) if self.intervention else ""

    @property
    def held(self) -> str:
        """Why the robot held still; empty: it did not, or that is not known."""
        return self.author.removeprefix(HOLD) if self.author.startswith(HOLD) else ""


@dataclass(frozen=True, slots=True)
class PolicyManifest:
    """What a weight file is: its digest, ancestry, stage and measured results.

    A policy takes weights of its own ``lineage`` alone; weights without one are refused everywhere.
    """

    version: str
    parent: str
    sha256: str
    size: int  # bytes
    stage: str  # one of STAGES
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    lineage: Lineage | None = None

    def __post_init__(self) -> None:
        positive_int("PolicyManifest.size", self.size)
        if self.stage not in STAGES:
            raise unknown_name("stage of weights", self.stage, STAGES)
        if len(self.sha256) != 64:
            raise InvalidInputError(f"PolicyManifest.sha256: {len(self.sha256)} characters, expected 64")


@dataclass(frozen=True, slots=True)
class OracleOutcome:
    """What the simulator knows of the running task; never an input of perception, memory or policy."""

    task: str
    instruction: str
    episode: int
    step: int
    success: bool
    reward: float
    truncated: bool
    failed: bool = False
    """A final choice was wrong: success is no longer possible."""

    @property
    def over(self) -> bool:
        """Whether the episode ends here."""
        return self.success or self.truncated or self.failed


@dataclass(frozen=True)
class EpisodeResult:
    """One finished episode; ``oracle_success`` is the simulator's verdict."""

    task: str
    seed: int
    instruction: str
    oracle_success: bool
    steps: int
    commands: np.ndarray  # (steps, n) joint targets that were executed
    verdict: Verdict | None = None  # the judge's last one, where one judged
    judged_success: bool = False  # the judge was certain of success, and ended the episode
