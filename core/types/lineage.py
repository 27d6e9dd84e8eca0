"""Lineage: which checkpoint weights descend from, and which policy proposed the actions of an episode."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from engram.core.errors import InvalidInputError, WeightsError

DIGESTS = ("root", "architecture", "normalization")
NOBODY = "nobody"
"""``ActionSource.policy`` of a control step for which no policy had proposed an action yet."""
CORRECTION = "correction"
"""``ActionSource.ablation`` of a control step whose motion was corrected: see engram.learning.motion_correction."""
EXPLORED = "explored"
"""``ActionSource.ablation`` of a control step whose motion got noise: see engram.learning.exploration."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The checkpoint that a set of weights descends from.

    Fine-tuning keeps the lineage. Two checkpoints can have the same tensor names and shapes and still be two lineages:
    the weights of one make no sense in the other.
    """

    root: str
    """sha256 of the weight file with which fine-tuning began: a shipped or trained checkpoint."""
    architecture: str
    """Digest of the network's class, configuration, and the names, shapes and types of its tensors."""
    normalization: str
    """Digest of the statistics by which inputs and actions are normalised."""
    name: str = field(default="", compare=False)
    """What users call the root checkpoint, for example "base". It is shown, never compared."""

    def __post_init__(self) -> None:
        for digest in DIGESTS:
            if not getattr(self, digest):
                raise InvalidInputError(f"Lineage.{digest}: empty, expected a digest")

    @property
    def id(self) -> str:
        """The three digests as one of 16 hex digits."""
        return hashlib.sha256("\n".join(getattr(self, digest) for digest in DIGESTS).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.name or 'unnamed'} ({self.root[:12]})"

    def check(self, other: Lineage | None, what: str) -> None:
        """Raise WeightsError, naming both lineages, unless ``other``, the lineage of ``what``, is this one."""
        if other is None:
            raise WeightsError(f"{what}: no lineage is given, expected {self}")
        if other != self:
            differ = ", ".join(digest for digest in DIGESTS if getattr(self, digest) != getattr(other, digest))
            raise WeightsError(f"{what}: of lineage {other}, expected {self}; they differ in {differ}")


@dataclass(frozen=True, slots=True)
class ActionSource:
    """Which policy proposed the action of one control step, and under which conditions.

    The default stands for experience of which nothing is known. A learner does not learn from that.
    """

    policy: str = ""
    """Name of the policy, or ``NOBODY``."""
    lineage: str = ""
    """``Lineage.id`` of the weights that proposed the action; empty: unknown."""
    ablation: str = ""
    """The ablation that the policy ran under, or ``CORRECTION`` or ``EXPLORED`` by what was done to its motions; empty:
    they are its own."""
    covered_cameras: tuple[str, ...] = ()
    """Cameras whose image showed nothing at this step: covered, dark or without a signal."""
