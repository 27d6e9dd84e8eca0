"""Every version of the weights that a learner made, on its disk: their ancestry, their stages, which were deployed.

A candidate may be deployed in simulation before anybody has validated it. It does not outlive the learner's run: when
the library is opened again, it goes, and the newest approved version drives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, StoreError, WeightsError, unknown_name
from engram.core.types import PolicyManifest
from engram.learning.experience.database import Database, UnreadableStoreError, read
from engram.learning.weights.announcements import AnnouncementCounter
from engram.learning.weights.manifest import manifest_from_json, manifest_to_json, verify

REFUSED = ("rejected", "rolled_back")
"""Stages of the versions that shall not drive, and that nothing is learnt on from."""
LASTING = ("canary", "approved", "retired", *REFUSED)
"""Stages of the versions that a new run still knows: it is decided what they are."""
UNREADABLE = "unreadable"
"""In place of a stage: the manifest is damaged."""
FILE = "versions.sqlite"
SCHEMA = """CREATE TABLE versions (
    version TEXT PRIMARY KEY, added INTEGER NOT NULL, manifest TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE deployed (one INTEGER PRIMARY KEY CHECK (one = 0), versions TEXT NOT NULL, digest TEXT NOT NULL)"""
INSERT_VERSION = """INSERT INTO versions
    SELECT ?1, 1 + (SELECT coalesce(max(added), 0) FROM versions), ?2, ?3 WHERE true
    ON CONFLICT (version) DO UPDATE SET manifest = ?2, digest = ?3"""


class WeightsLibrary:
    """A folder with a file of weights for each sha256, and a SQLite file of manifests and of what was deployed.

    Each change is one transaction, durable when the method returns: kill -9 leaves it whole or undone. What a manifest
    or the list of deployed versions says is kept with its digest, so that a flipped bit is an error and never another
    stage. One process writes.

    Args:
        folder: the library's own.
        keep: the weights of so many versions that were never deployed are kept at most, and of as many that were
            before what drives. Of others that were deployed the manifest stays, and of the first one the weights, too.
        read_only: beside the learner that writes it; nothing is forgotten, and nothing may be changed.

    Attributes:
        forgotten: candidates of the run before that were deployed without an approval and are gone now.
        announcements: numbers what is announced to robots.
        spared: versions that a robot may have to go back to, whatever was deployed since: their weights stay.

    Raises:
        StoreError: the folder cannot be written or read, another process writes it, or its file is damaged.
        WeightsError: the list of deployed versions is damaged.
    """

    def __init__(self, folder: Path, keep: int = 10, *, read_only: bool = False) -> None:
        self._folder, self._keep = folder, keep
        self._database = None if read_only else Database(folder / FILE, SCHEMA, 1)
        try:
            self._check_file()
            self.forgotten = () if read_only else self._forget_candidates()
        except BaseException:
            self.close()
            raise
        self.spared: Collection[str] = ()
        self.announcements = AnnouncementCounter(folder / "announced.json")

    def close(self) -> None:
        """Let the next writer in; may be called twice."""
        if self._database is not None:
            self._database.close()

    @property
    def deployed(self) -> list[str]:
        """Versions that were deployed and not rolled back since, and whose weights are kept; oldest first."""
        found = self._select("SELECT versions, digest FROM deployed")
        if not found:
            return []
        ((text, digest),) = found
        if digest != checksum(text):
            raise WeightsError(f"{self._folder / FILE}: the list of deployed versions is damaged")
        return [str(version) for version in json.loads(text)]

    @property
    def current(self) -> str:
        """The deployed version that drives now; empty before the first."""
        deployed = self.deployed
        return deployed[-1] if deployed else ""

    @property
    def versions(self) -> list[str]:
        """Every version, oldest first."""
        return [version for (version,) in self._select("SELECT version FROM versions ORDER BY added")]

    @property
    def kept(self) -> list[str]:
        """Versions whose weights are kept, oldest first."""
        deployed, known = set(self.deployed), self.manifests()
        return [v for v in self.versions if v in deployed or v not in known or known[v].stage != "retired"]

    def add(self, data: bytes, manifest: PolicyManifest) -> None:
        """Keep new weights; the oldest that were never deployed go when there are more than ``keep`` of them."""
        if not manifest.version or "/" in manifest.version or manifest.version.startswith("."):
            raise WeightsError(f"weights version {manifest.version!r}: not a file name")
        write_atomic(self._path(manifest), data)
        kept = {*self.deployed, manifest.version}
        idle = [version for version in self.kept if version not in kept]
        self._change({manifest.version: manifest}, gone=idle[: max(0, len(idle) + 1 - self._keep)])

    def newest(self) -> str:
        """Return the candidate that was added last; empty when there is none."""
        return next((v for v, one in reversed(self.manifests().items()) if one.stage == "candidate"), "")

    def get(self, version: str) -> tuple[bytes, PolicyManifest]:
        """Return weights and manifest, verified; raises UnknownNameError, or WeightsError where they are not kept."""
        manifest = self.manifest(version)
        if manifest.stage == "retired" and version not in (kept := self.kept):
            raise WeightsError(f"weights {version!r}: drove long ago and are not kept; valid: {', '.join(kept)}")
        return verify(self._path(manifest), manifest), manifest

    def manifest(self, version: str) -> PolicyManifest:
        """Return what is said of ``version``; raises UnknownNameError, or WeightsError if it is damaged."""
        found = self._select("SELECT manifest, digest FROM versions WHERE version = ?", (version,))
        if not found:
            raise unknown_name("weights version", version, self.versions)
        return _manifest(version, *found[0])

    def manifests(self) -> dict[str, PolicyManifest]:
        """Return what is said of every version, oldest first; those that are damaged are left out."""
        found = {}
        for version, text, digest in self._select("SELECT version, manifest, digest FROM versions ORDER BY added"):
            with suppress(WeightsError):
                found[version] = _manifest(version, text, digest)
        return found

    def stage(self, version: str) -> str:
        """Return what became of ``version``, one of ``engram.core.types.STAGES``, or ``unreadable``."""
        try:
            return self.manifest(version).stage
        except WeightsError:
            return UNREADABLE  # it stays: whoever asks for it is told

    def deploy(self, version: str) -> None:
        """Let ``version`` drive in this run, without an approval: it keeps its stage."""
        self.get(version)
        self._change(deployed=self._with(version))

    def approve(self, version: str, reason: str, *, canary: bool = False) -> tuple[bytes, PolicyManifest]:
        """Let ``version`` drive, in later runs too; return it with its manifest, stage approved, or canary.

        What drove before is retired once ``version`` is approved.
        """
        data, manifest = self.get(version)
        stage = "canary" if canary else "approved"
        metrics = {name: value for name, value in manifest.metrics.items() if name != "because"}
        manifest = replace(manifest, stage=stage, metrics=metrics | {"approved_because": reason})
        changed, deployed = {version: manifest}, self._with(version)
        known = {} if canary else self.manifests()
        for earlier in known.keys() & set(deployed) - {version}:
            if known[earlier].stage in ("approved", "canary"):
                changed[earlier] = replace(known[earlier], stage="retired")
        self._change(changed, deployed)
        return data, manifest

    def mark(self, version: str, stage: str, reason: str) -> PolicyManifest:
        """Keep what became of the candidate ``version``: ``rejected``, or still ``candidate``, and why; return that.

        Raises:
            UnknownNameError, WeightsError: see :meth:`manifest`.
        """
        manifest = self.manifest(version)
        manifest = replace(manifest, stage=stage, metrics={**manifest.metrics, "because": reason})
        self._change({version: manifest})
        return manifest

    def roll_back(self, version: str, reason: str) -> tuple[bytes, PolicyManifest]:
        """Go back to ``version`` ("" = the one before).

        What was deployed since is marked: rolled_back if it was approved, else rejected.
        """
        deployed = self.deployed
        earlier = deployed[:-1]
        target = version or (earlier[-1] if earlier else "")
        if target not in earlier:
            raise unknown_name("earlier weights version", target, earlier)
        keep = len(earlier) - earlier[::-1].index(target)
        data, manifest = self.get(target)
        if manifest.stage == "retired":
            manifest = replace(manifest, stage="approved")
        changed = {target: manifest}
        for later in deployed[keep:]:
            if self.stage(later) == UNREADABLE:
                continue  # it goes all the same
            left = self.manifest(later)
            stage = "rejected" if left.stage in ("candidate", "rejected") else "rolled_back"
            changed[later] = replace(left, stage=stage, metrics={**left.metrics, "because": reason})
        self._change(changed, deployed[:keep])
        return data, manifest

    def _check_file(self) -> None:
        found = self._select("PRAGMA quick_check(1)")
        if found and found[0] != ("ok",):
            raise UnreadableStoreError(f"{self._folder / FILE}: damaged: {found[0][0]}")

    def _forget_candidates(self) -> tuple[str, ...]:
        """Delete what nobody approved; return the versions among it that had been deployed."""
        passing = {version for version, one in self.manifests().items() if one.stage not in LASTING}
        deployed = self.deployed
        self._change(deployed=[version for version in deployed if version not in passing], gone=passing)
        return tuple(version for version in deployed if version in passing)

    def _with(self, version: str) -> list[str]:
        """Return what is deployed once ``version`` drives: of what was long ago only the first, and what may yet be
        gone back to."""
        deployed, known = self.deployed, self.manifests()
        if deployed[-1:] != [version]:
            deployed.append(version)
        stays = {*self.spared, *(v for v, one in known.items() if one.stage in ("approved", "canary")), deployed[0]}
        newest = len(deployed) - 1 - self._keep
        return [one for place, one in enumerate(deployed) if place >= newest or one in stays or one not in known]

    def _change(
        self,
        manifests: Mapping[str, PolicyManifest] | None = None,
        deployed: Sequence[str] | None = None,
        gone: Iterable[str] = (),
    ) -> None:
        """Keep ``manifests``, what is ``deployed``, and that versions are ``gone``, at once; then delete what is not
        referred to any more."""
        if self._database is None:
            raise StoreError(f"{self._folder}: opened to be read only")
        self._database.begin()
        try:
            for version, manifest in (manifests or {}).items():
                text = manifest_to_json(manifest)
                self._database.execute(INSERT_VERSION, (version, text, checksum(version, text)))
            if deployed is not None:
                text = json.dumps(list(deployed))
                self._database.execute("INSERT OR REPLACE INTO deployed VALUES (0, ?, ?)", (text, checksum(text)))
            for version in gone:
                self._database.execute("DELETE FROM versions WHERE version = ?", (version,))
            self._database.commit()
        except StoreError:
            self._database.rollback()
            raise
        with suppress(StoreError, OSError):  # the change is made, whatever becomes of this: the next one does it again
            self._delete_unused()

    def _delete_unused(self) -> None:
        try:
            used = {self._path(self.manifest(version)) for version in self.kept}
        except WeightsError:
            return  # nobody knows which file a damaged manifest means
        for path in {*self._folder.glob("*.safetensors"), *self._folder.glob("*.safetensors.*.partial")} - used:
            path.unlink(missing_ok=True)

    def _select(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Return committed rows, in any thread; none where there is no library yet."""
        path = self._folder / FILE
        return read(path, statement, values) if self._database is not None or path.exists() else []

    def _path(self, manifest: PolicyManifest) -> Path:
        return self._folder / f"{manifest.sha256}.safetensors"


def _manifest(version: str, text: str, digest: str) -> PolicyManifest:
    try:
        if digest != checksum(version, text):
            raise ValueError("its digest does not fit")
        return manifest_from_json(text)
    except DAMAGED as error:
        raise WeightsError(f"manifest of {version!r} cannot be read: {error}") from None


def checksum(*texts: str) -> str:
    """Return what is kept beside ``texts`` in the file, to tell when the disk has changed them."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
