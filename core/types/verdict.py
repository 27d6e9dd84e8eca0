"""What a reward source says of the running episode. None of them knows a simulator's truth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types.basics import set_fields

CONFIRMED, DENIED, CANNOT_TELL = "confirmed", "denied", "cannot_tell"
VERDICTS = (CONFIRMED, DENIED, CANNOT_TELL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the instruction of ``episode`` is carried out at ``stamp_ns``, as ``source`` sees it."""

    stamp_ns: int
    episode: int
    source: str
    """Who says so: "memory", "human", or the name of your own source."""
    outcome: str
    """confirmed: it is done; denied: not yet, or no more; cannot_tell: the source does not see it."""
    probability: float = math.nan
    """That it is done, 0..1; nan where the source cannot tell."""
    progress: float = math.nan
    """0 = as far from done as it has been, 1 = done; nan where it is not known."""
    reason: str = ""
    evidence_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in VERDICTS:
            raise unknown_name("verdict", self.outcome, VERDICTS)
        for name in ("probability", "progress"):
            value = getattr(self, name)
            if not (math.isnan(value) or 0.0 <= value <= 1.0):
                raise InvalidInputError(f"Verdict.{name}: {value}, expected 0..1 or nan")
        if self.outcome != CANNOT_TELL and math.isnan(self.probability):
            raise InvalidInputError(f"Verdict.probability: nan, expected 0..1 where the verdict is {self.outcome!r}")
        if not self.source:
            raise InvalidInputError("Verdict.source: empty, expected who judged")


@dataclass(frozen=True, slots=True)
class Features:
    """What a policy makes of its newest observation, in numbers: the input of a success classifier."""

    encoder: str
    """Digest of the weights that made them. Features of other weights mean something else."""
    values: np.ndarray
    """(c,) float32."""

    def __post_init__(self) -> None:
        set_fields(self, values=checked("Features.values", self.values, (None,), np.float32, finite=False))
