"""What the gate found of one candidate against one policy that drove, and whether it still says something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, WeightsError

PROMOTE, REJECT = "promote", "reject"


@dataclass(frozen=True)
class GateVerdict:
    """A finished validation."""

    candidate: str
    """sha256 of the candidate's weights."""
    approved: str
    """sha256 of the weights that drove."""
    environment: str
    """Digest of simulator, tasks and code: see ``engram.validation.trials.environment_digest``."""
    decision: str
    """promote, reject or not_shown."""
    reason: str
    report: Mapping[str, Any] = field(default_factory=dict)
    """Pairs, successes and error rates, task by task."""

    def __post_init__(self) -> None:
        for name in ("candidate", "approved", "environment", "decision", "reason"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"GateVerdict.{name}: a {type(getattr(self, name)).__name__}, expected a str")
        if not isinstance(self.report, Mapping):
            raise TypeError(f"GateVerdict.report: a {type(self.report).__name__}, expected a mapping")

    def check(self, candidate: str, approved: str, environment: str) -> None:
        """Raise WeightsError unless this verdict lets ``candidate`` drive in place of ``approved`` here."""
        for name, found, wanted in (
            ("candidate", self.candidate, candidate),
            ("the weights that drive", self.approved, approved),
            ("environment", self.environment, environment),
        ):
            if found != wanted:
                raise WeightsError(f"the gate's verdict is void: {name} {found[:12]}, expected {wanted[:12]}")
        if self.decision != PROMOTE:
            raise WeightsError(f"the gate did not promote {candidate[:12]} ({self.decision}): {self.reason}")


def verdict_path(folder: Path, candidate: str, approved: str, environment: str) -> Path:
    """Return where the verdict on these two sha256 in ``environment`` lies in ``folder``: each robot has its own."""
    return folder / f"{candidate[:16]}_{approved[:16]}_{environment}.json"


def write_verdict(folder: Path, verdict: GateVerdict) -> Path:
    """Keep ``verdict`` in ``folder``; return the file. It is durable when this returns."""
    path = verdict_path(folder, verdict.candidate, verdict.approved, verdict.environment)
    write_atomic(path, (json.dumps(asdict(verdict), indent=1) + "\n").encode())
    return path


def read_verdict(folder: Path, candidate: str, approved: str, environment: str = "") -> GateVerdict:
    """Return the verdict on these two sha256 in ``environment``; without one, the newest in any.

    Raises:
        WeightsError: there is none, or the file is damaged.
    """
    kept = sorted(folder.glob(verdict_path(folder, candidate, approved, "*").name), key=lambda one: one.stat().st_mtime)
    path = verdict_path(folder, candidate, approved, environment) if environment or not kept else kept[-1]
    if not path.exists():
        where = "; what it judged was another robot, or the code of before" if kept else ""
        raise WeightsError(
            f"the gate has not judged {candidate[:12]} against {approved[:12]}, which drives{where}; "
            "run engram validate"
        )
    try:
        values = json.loads(path.read_text())
        return GateVerdict(**values)
    except DAMAGED as error:
        raise WeightsError(f"{path}: cannot be read: {error}") from error
