"""Every version of the weights that a learner made, on its disk, and which of them were deployed.

A candidate may be deployed in simulation before anybody has validated it. It does not outlive the learner's run: when
the library is opened again, it goes, and the newest approved version drives.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from engram.core.errors import WeightsError, unknown_name
from engram.core.types import PolicyManifest
from engram.learning.experience.database import write_atomic
from engram.learning.weights.announcements import AnnouncementCounter
from engram.learning.weights.manifest import manifest_from_json, manifest_to_json, verify

LASTING = ("canary", "approved", "retired", "rolled_back")
"""Stages of the versions that a new run still knows: somebody had approved them."""


class WeightsLibrary:
    """A folder with ``<version>.safetensors``, a manifest beside each, and the list of deployed versions.

    Attributes:
        deployed: versions that were deployed and not rolled back since, oldest first.
        forgotten: candidates of the run before that were deployed without an approval and are gone now.
        announcements: numbers what is announced to robots.
    """

    def __init__(self, folder: Path, keep: int = 10, *, read_only: bool = False) -> None:
        """``read_only``: beside the learner that writes it; nothing is forgotten, and nothing may be changed."""
        self._folder = folder
        self._keep = keep
        if not read_only:
            folder.mkdir(parents=True, exist_ok=True)
        log = folder / "deployed.json"
        self.deployed: list[str] = json.loads(log.read_text()) if log.exists() else []
        self.forgotten = () if read_only else self._forget_candidates()
        self.announcements = AnnouncementCounter(folder / "announced.json")

    @property
    def current(self) -> str:
        """The deployed version that drives now; empty before the first."""
        return self.deployed[-1] if self.deployed else ""

    @property
    def versions(self) -> list[str]:
        """Every version on disk."""
        return sorted(path.stem for path in self._folder.glob("*.safetensors"))

    def add(self, data: bytes, manifest: PolicyManifest) -> None:
        """Keep new weights; the oldest that were never deployed go when there are more than ``keep`` of them."""
        write_atomic(self._path(manifest.version), data)
        self._describe(manifest)
        idle = [v for v in self.versions if v not in self.deployed and v != manifest.version]
        idle.sort(key=lambda version: self._path(version).stat().st_mtime)
        for version in idle[: max(0, len(idle) + 1 - self._keep)]:
            self._delete(version)

    def newest(self) -> str:
        """Return the candidate that was added last; empty when there is none."""
        candidates = [version for version in self.versions if self.stage(version) == "candidate"]
        return max(candidates, key=lambda version: self._path(version).stat().st_mtime, default="")

    def get(self, version: str) -> tuple[bytes, PolicyManifest]:
        """Return weights and manifest, verified; raises UnknownNameError or WeightsError."""
        if version not in self.versions:
            raise unknown_name("weights version", version, self.versions)
        manifest = self._manifest(version)
        return verify(self._path(version), manifest), manifest

    def deploy(self, version: str) -> None:
        """Let ``version`` drive in this run, without an approval: it keeps its stage."""
        self.get(version)
        self._deploy(version)

    def approve(self, version: str, reason: str, *, canary: bool = False) -> tuple[bytes, PolicyManifest]:
        """Let ``version`` drive, in later runs too; return it with its manifest, stage approved, or canary.

        What drove before is retired once ``version`` is approved.
        """
        data, manifest = self.get(version)
        stage = "canary" if canary else "approved"
        manifest = replace(manifest, stage=stage, metrics={**manifest.metrics, "approved_because": reason})
        self._describe(manifest)
        self._deploy(version)
        for earlier in () if canary else self.deployed[:-1]:
            if self.stage(earlier) in ("approved", "canary") and earlier != version:
                self._describe(replace(self._manifest(earlier), stage="retired"))
        return data, manifest

    def roll_back(self, version: str, reason: str) -> tuple[bytes, PolicyManifest]:
        """Go back to ``version`` ("" = the one before).

        What was deployed since is marked: rolled_back if it was approved, else rejected.
        """
        earlier = self.deployed[:-1]
        target = version or (earlier[-1] if earlier else "")
        if target not in earlier:
            raise unknown_name("earlier weights version", target, earlier)
        keep = len(earlier) - earlier[::-1].index(target)
        for later in self.deployed[keep:]:
            _, manifest = self.get(later)
            stage = "rolled_back" if manifest.stage in LASTING else "rejected"
            metrics = {**manifest.metrics, "because": reason}
            self._describe(replace(manifest, stage=stage, metrics=metrics))
        self._set_deployed(self.deployed[:keep])
        data, manifest = self.get(target)
        if manifest.stage == "retired":
            manifest = replace(manifest, stage="approved")
            self._describe(manifest)
        return data, manifest

    def _forget_candidates(self) -> tuple[str, ...]:
        """Delete what nobody approved; return the versions among it that had been deployed."""
        passing = {version for version in self.versions if self.stage(version) not in (*LASTING, "unreadable")}
        forgotten = tuple(version for version in self.deployed if version in passing)
        if forgotten:
            self._set_deployed([version for version in self.deployed if version not in passing])
        for version in passing:
            self._delete(version)
        return forgotten

    def stage(self, version: str) -> str:
        """Return what became of ``version``, one of ``engram.core.types.STAGES``, or ``unreadable``."""
        try:
            return self._manifest(version).stage
        except WeightsError:
            return "unreadable"  # it stays: whoever asks for it is told

    def _manifest(self, version: str) -> PolicyManifest:
        try:
            return manifest_from_json(self._path(version).with_suffix(".json").read_text())
        except (OSError, ValueError, TypeError) as error:
            raise WeightsError(f"manifest of {version!r} cannot be read: {error}") from None

    def _deploy(self, version: str) -> None:
        if version != self.current:
            self._set_deployed([*self.deployed, version])

    def _set_deployed(self, deployed: list[str]) -> None:
        self.deployed = deployed
        write_atomic(self._folder / "deployed.json", json.dumps(deployed).encode())

    def _describe(self, manifest: PolicyManifest) -> None:
        write_atomic(self._path(manifest.version).with_suffix(".json"), manifest_to_json(manifest).encode())

    def _delete(self, version: str) -> None:
        self._path(version).unlink()
        self._path(version).with_suffix(".json").unlink(missing_ok=True)

    def _path(self, version: str) -> Path:
        if not version or "/" in version or version.startswith("."):
            raise WeightsError(f"weights version {version!r}: not a file name")
        return self._folder / f"{version}.safetensors"
