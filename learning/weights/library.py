"""Every version of the weights that a learner made, on its disk, and which of them were let drive. No ROS in here."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from engram.core.errors import WeightsError, unknown_name
from engram.core.types import PolicyManifest
from engram.learning.experience.database import write_atomic
from engram.learning.weights.manifest import verify


class WeightsLibrary:
    """A folder with ``<version>.safetensors`` and ``.json`` beside it, and the list of versions that drove."""

    def __init__(self, folder: Path, keep: int = 10) -> None:
        self._folder = folder
        self._keep = keep
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "deployed.json"
        self.deployed: list[str] = json.loads(log.read_text()) if log.exists() else []

    @property
    def current(self) -> str:
        """The version that drives now; empty before the first."""
        return self.deployed[-1] if self.deployed else ""

    @property
    def versions(self) -> list[str]:
        """Every version on disk."""
        return sorted(path.stem for path in self._folder.glob("*.safetensors"))

    def add(self, data: bytes, manifest: PolicyManifest) -> None:
        """Keep new weights; the oldest that never drove go when there are too many."""
        write_atomic(self._path(manifest.version), data)
        self._describe(manifest)
        idle = [v for v in self.versions if v not in self.deployed and v != manifest.version]
        idle.sort(key=lambda version: self._path(version).stat().st_mtime)
        for version in idle[: max(0, len(idle) + 1 - self._keep)]:
            self._path(version).unlink()
            self._path(version).with_suffix(".json").unlink(missing_ok=True)

    def get(self, version: str) -> tuple[bytes, PolicyManifest]:
        """Return weights and manifest, verified; raises UnknownNameError or WeightsError."""
        if version not in self.versions:
            raise unknown_name("weights version", version, self.versions)
        try:
            manifest = PolicyManifest(**json.loads(self._path(version).with_suffix(".json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise WeightsError(f"manifest of {version!r} cannot be read: {error}") from None
        return verify(self._path(version), manifest), manifest

    def approve(self, version: str, reason: str) -> tuple[bytes, PolicyManifest]:
        """Let ``version`` drive; return it with its manifest, stage approved."""
        data, manifest = self.get(version)
        manifest = replace(manifest, stage="approved", metrics={**manifest.metrics, "approved_because": reason})
        self._describe(manifest)
        self._set_deployed([*self.deployed, version] if version != self.current else self.deployed)
        return data, manifest

    def roll_back(self, version: str, reason: str) -> tuple[bytes, PolicyManifest]:
        """Go back to ``version`` ("" = the one before); what drove since is marked rolled_back."""
        earlier = self.deployed[:-1]
        target = version or (earlier[-1] if earlier else "")
        if target not in earlier:
            raise unknown_name("earlier weights version", target, earlier)
        keep = len(earlier) - earlier[::-1].index(target)
        for later in self.deployed[keep:]:
            _, manifest = self.get(later)
            self._describe(replace(manifest, stage="rolled_back", metrics={**manifest.metrics, "because": reason}))
        self._set_deployed(self.deployed[:keep])
        data, manifest = self.get(target)
        return data, replace(manifest, stage="approved")

    def _set_deployed(self, deployed: list[str]) -> None:
        self.deployed = deployed
        write_atomic(self._folder / "deployed.json", json.dumps(deployed).encode())

    def _describe(self, manifest: PolicyManifest) -> None:
        text = json.dumps(asdict(manifest), indent=1, sort_keys=True)
        write_atomic(self._path(manifest.version).with_suffix(".json"), text.encode())

    def _path(self, version: str) -> Path:
        if not version or "/" in version or version.startswith("."):
            raise WeightsError(f"weights version {version!r}: not a file name")
        return self._folder / f"{version}.safetensors"
