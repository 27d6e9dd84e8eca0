"""Takes weights from the network: what is announced is checked first, then its slices are put together and verified.

Everything that arrives is bounded in bytes before it is kept, and every refusal is counted with its reason.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from engram.core.errors import WeightsError, unknown_name
from engram.core.types import Lineage, PolicyManifest
from engram.learning.weights.announcements import KEY, AnnouncementLog, check_robot, sequence
from engram.learning.weights.keys import ACCEPT
from engram.learning.weights.manifest import check_signature, verify
from engram.learning.weights.slices import SLICE_MAX, Assembler, chunk_count

SLICES_MAX = 1 << 16
"""Most slices of one file."""
EARLY_MAX = 32 << 20
"""Slices kept that came before their manifest [bytes]: the topics have no order between them."""
VERSION_MAX = 200
"""Longest name of a version [characters]."""
STALLED_S = 10.0
"""Weights are incomplete once nothing of them has come for so long [s]."""


class WeightsReceiver:
    """Assembles and verifies one weight file at a time; not thread-safe.

    An announcement comes once. What the disk refuses of it, full for example, therefore stays in RAM, and is done by
    :meth:`go_on`, which is to be called now and then while :attr:`waits`.

    Args:
        folder: where the newest verified file is kept.
        accept: "approved" (a robot), "any" (simulation: candidates too) or "none".
        check_lineage: raises WeightsError unless the policy takes weights of this lineage and version.
        offer: gets path, version and lineage of a verified file.
        count: gets the name of a counter to add one to.
        keys: when not empty, one of them must have signed the manifest, newer than those before.
        robot_id: weights that are announced to robots are taken if this is one of them.
        size_max: largest weight file [bytes].
        clock: tells the time that waiting for slices is measured in [s].
    """

    def __init__(
        self,
        folder: Path,
        accept: str,
        check_lineage: Callable[[Lineage | None, str], None],
        offer: Callable[[Path, str, Lineage | None], None],
        count: Callable[[str], None],
        *,
        keys: Mapping[str, Ed25519PublicKey] | None = None,
        robot_id: str = "",
        size_max: int = 1 << 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if accept not in ACCEPT:
            raise unknown_name("value of accept", accept, ACCEPT)
        self._folder, self._accept, self._check_lineage, self._offer = folder, accept, check_lineage, offer
        self._count, self._keys, self._robot_id, self._size_max = count, dict(keys or {}), robot_id, size_max
        self._log = AnnouncementLog(folder / "announced.json")
        self._assembler: Assembler | None = None
        self._clock, self._announced_at, self._came_at = clock, 0.0, 0.0  # of what is assembled, and its newest slice
        self._early: deque[tuple[str, int, bytes]] = deque()
        self.early_bytes = 0
        self._newest: PolicyManifest | None = None  # taken last, whether its bytes have come or not
        self._unchecked: tuple[PolicyManifest, bytes, int] | None = None  # what the disk kept from being checked
        self._whole: tuple[PolicyManifest, bytes] | None = None  # to be offered; no bytes: they lie in the folder
        self._done: PolicyManifest | None = None  # whose bytes lie in the folder
        self._refused = ""  # version whose slices are not kept

    def begin(self, manifest: PolicyManifest, signature: bytes, chunk_size: int) -> None:
        """Let ``manifest`` take the place of what was announced before, if this robot takes it at all.

        What was being assembled is given up. The new version is assembled, or offered at once where its bytes are here:
        the learner has gone back to it.

        Raises:
            WeightsError: it does not, and why.
            OSError: the disk refuses it now; see :meth:`go_on`.
        """
        if manifest == self._newest:  # latched: it comes more than once
            return
        try:
            key = self._check(manifest, signature, chunk_size)
        except WeightsError:
            if self._assembler is None or self._assembler.manifest.version != manifest.version:
                self._refused = manifest.version  # what is being assembled goes on: others send manifests, too
            raise
        except OSError:
            if self._unchecked is None or sequence(self._unchecked[0]) < sequence(manifest):
                self._unchecked = manifest, signature, chunk_size
            raise
        if key:
            self._log.take(manifest, key)
        self._newest, self._assembler, self._refused = manifest, None, manifest.version
        self._whole = None
        early = list(self._early)
        self._forget_early()
        try:
            if manifest.stage in ("retired", "rejected", "rolled_back"):
                return
            self._refused = ""
            if self._is_here(manifest):
                self._whole = manifest, b""
                return
            self._assembler = Assembler(manifest, chunk_size)
            self._announced_at = self._came_at = self._clock()
            for version, index, data in early:
                if version == manifest.version:
                    self.take(version, index, data)
        finally:
            self._settle()

    @property
    def waits(self) -> bool:
        """Whether something is left that the disk has refused, or that does not come."""
        return self._unchecked is not None or self._whole is not None or self._log.waits or bool(self._lacking())

    def _lacking(self) -> str:
        """Return which announced weights lack slices of which none comes any more, in words; empty: none do."""
        assembler, now = self._assembler, self._clock()
        if assembler is None or now - self._came_at < STALLED_S:
            return ""
        since = f"announced {now - self._announced_at:.0f} s ago, none has come for {now - self._came_at:.0f} s"
        missing = f"{len(assembler.missing)} of {assembler.count} slices are missing"
        return f"weights {assembler.manifest.version!r}: {missing}; {since}"

    def go_on(self) -> None:
        """Try again what the disk has refused.

        Raises:
            WeightsError: what could not be checked before is refused, and why; or slices do not come, and of what.
            OSError: the disk refuses it still.
        """
        self._settle()
        if self._unchecked is not None:
            again, self._unchecked = self._unchecked, None
            self.begin(*again)
        if lacking := self._lacking():
            raise WeightsError(lacking)

    def _settle(self) -> None:
        """Make durable which announcement is the newest, then keep the whole file and offer it; raises OSError."""
        self._log.write()  # first: what drives is to be known as the newest after a restart, too
        if self._whole is None:
            return
        manifest, data = self._whole
        if data:
            self._keep(manifest, data)
        self._whole = None
        self._hand_over(manifest, "weights received" if data else "weights offered again")

    def _check(self, manifest: PolicyManifest, signature: bytes, chunk_size: int) -> str:
        """Return the key that has signed it, empty where none has to; raises WeightsError or OSError."""
        what = f"weights {manifest.version!r}"
        with self._counted("size"):
            if len(manifest.version) > VERSION_MAX or manifest.size > self._size_max:
                raise WeightsError(f"{what[:VERSION_MAX]}: {manifest.size} bytes, at most {self._size_max} are taken")
            if chunk_count(manifest.size, chunk_size) > SLICES_MAX or chunk_size > SLICE_MAX:
                raise WeightsError(
                    f"{what}: slices of {chunk_size} bytes, expected at most {SLICES_MAX} of at most {SLICE_MAX} bytes"
                )
        key = ""
        if self._keys:
            with self._counted("signature"):
                key = check_signature(manifest, signature, self._keys)
            with self._counted("replay or other robot"):
                self._log.check(manifest, self._robot_id, key)
        elif KEY in manifest.config:  # where nothing is signed, nobody needs to announce
            with self._counted("other robot"):
                check_robot(manifest, self._robot_id)
        with self._counted("lineage"):
            self._check_lineage(manifest.lineage, manifest.version)
        with self._counted("stage"):
            if self._accept == "none":
                raise WeightsError(f"{what}: accept is 'none'")
            if self._accept == "approved" and manifest.stage == "candidate":
                raise WeightsError(f"{manifest.version!r} is a candidate: refused, only approved ones are taken")
        with self._counted("ancestry"):
            if manifest.parent == manifest.version:
                raise WeightsError(f"{what}: it names itself as its parent")
        return key

    def take(self, version: str, index: int, data: bytes) -> None:
        """Take one slice.

        Raises:
            WeightsError: it does not belong there, or what it completes is damaged.
            OSError: the disk refuses the whole file; see :meth:`go_on`.
        """
        if len(data) > SLICE_MAX or len(version) > VERSION_MAX:
            with self._counted("size"):
                raise WeightsError(f"weights slice of {len(data)} bytes, expected at most {SLICE_MAX}")
        assembler = self._assembler
        if assembler is None or assembler.manifest.version != version:
            if version != self._refused and (self._done is None or version != self._done.version):
                self._keep_early(version, index, data)
            return
        with self._counted("slice"):
            complete = assembler.add(index, data)
        self._came_at = self._clock()
        if complete:
            self._finish(assembler)

    def _keep_early(self, version: str, index: int, data: bytes) -> None:
        self._early.append((version, index, data))
        self.early_bytes += len(data)
        while self.early_bytes > EARLY_MAX or len(self._early) > SLICES_MAX:
            self.early_bytes -= len(self._early.popleft()[2])
            self._count("weights slices without a manifest dropped")

    def _forget_early(self) -> None:
        self._early.clear()
        self.early_bytes = 0

    def _finish(self, assembler: Assembler) -> None:
        manifest, self._newest = assembler.manifest, None  # until it is here: what is damaged may come again
        self._assembler = Assembler(manifest, assembler.chunk_size)  # and so may its slices
        with self._counted("content"):
            data = verify(assembler.data(), manifest)
        self._assembler = None
        self._newest, self._whole = manifest, (manifest, data)
        self._settle()

    def _keep(self, manifest: PolicyManifest, data: bytes) -> None:
        """Write ``data`` to the folder, in place of what is there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(manifest)
        partial = path.with_suffix(f".{os.getpid()}.part")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)  # a full disk has no room for half of it
            raise
        for old in self._folder.glob("*.safetensors"):
            if old != path:
                with suppress(OSError):  # the next weights try again
                    old.unlink()

    def _is_here(self, manifest: PolicyManifest) -> bool:
        """Tell whether its bytes lie whole in the folder."""
        if self._done is None or self._done.sha256 != manifest.sha256:
            return False
        try:
            verify(self._path(manifest), manifest)
        except WeightsError:
            return False
        return True

    def _hand_over(self, manifest: PolicyManifest, counter: str) -> None:
        self._done = manifest
        self._offer(self._path(manifest), manifest.version, manifest.lineage)
        self._count(counter)  # who sees this count may rely on the offer

    def _path(self, manifest: PolicyManifest) -> Path:
        return self._folder / f"{manifest.sha256}.safetensors"

    @contextmanager
    def _counted(self, reason: str) -> Iterator[None]:
        try:
            yield
        except WeightsError:
            self._count(f"weights refused: {reason}")
            raise
