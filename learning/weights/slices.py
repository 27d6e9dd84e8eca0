"""A weight file in pieces that fit a message, put together in any order."""

from __future__ import annotations

from collections.abc import Iterator

from engram.core.arrays import positive_int
from engram.core.errors import WeightsError
from engram.core.types import PolicyManifest

FILE_SLICES = 256
"""Most slices of a file that a learner sends. ``policy/weights`` keeps twice as many for those who come late: what
drives, and a canary."""
SLICE_MAX = 4 << 20
"""Largest slice [bytes]."""


def slice_size(manifest: PolicyManifest, wished: int) -> int:
    """Return in slices of how many bytes a file travels: ``wished``, or more where these would be too many.

    Raises:
        WeightsError: the slices would be too large.
    """
    size = max(wished, chunk_count(manifest.size, FILE_SLICES))
    if size > SLICE_MAX:
        most = FILE_SLICES * SLICE_MAX
        raise WeightsError(f"weights {manifest.version!r}: {manifest.size} bytes, at most {most} can be sent")
    return size


def chunk_count(size: int, chunk_size: int) -> int:
    """Return how many chunks of ``chunk_size`` bytes hold ``size`` bytes."""
    return -(-positive_int("size", size) // positive_int("chunk_size", chunk_size))


def split(data: bytes, chunk_size: int) -> Iterator[bytes]:
    """Yield ``data`` in chunks of ``chunk_size`` bytes, the last one shorter; nothing of no data."""
    for index in range(chunk_count(len(data), chunk_size) if data else 0):
        yield data[index * chunk_size : (index + 1) * chunk_size]


class Assembler:
    """Collects the chunks of one manifest; a chunk that comes twice counts once.

    The result is only complete, not yet trusted: pass it to :func:`engram.learning.weights.manifest.verify`.
    """

    def __init__(self, manifest: PolicyManifest, chunk_size: int) -> None:
        self.manifest = manifest
        self.chunk_size = chunk_size
        self.count = chunk_count(manifest.size, chunk_size)
        self._chunks: dict[int, bytes] = {}

    def add(self, index: int, data: bytes) -> bool:
        """Take chunk ``index``; return whether all have come.

        Raises:
            WeightsError: no such index, a wrong length, or other bytes than came before under this index.
        """
        what = f"weights {self.manifest.version!r} chunk {index}"
        if not 0 <= index < self.count:
            raise WeightsError(f"{what}: expected 0..{self.count - 1}")
        last = self.manifest.size - (self.count - 1) * self.chunk_size
        wanted = last if index == self.count - 1 else self.chunk_size
        if len(data) != wanted:
            raise WeightsError(f"{what}: {len(data)} bytes, expected {wanted}")
        if self._chunks.setdefault(index, bytes(data)) != data:
            raise WeightsError(f"{what}: came twice with different bytes")
        return len(self._chunks) == self.count

    @property
    def missing(self) -> tuple[int, ...]:
        """Indices that have not come yet."""
        return tuple(i for i in range(self.count) if i not in self._chunks)

    def data(self) -> bytes:
        """Return the whole file; raises WeightsError naming the missing chunks."""
        if self.missing:
            some = ", ".join(str(i) for i in self.missing[:10]) + (", …" if len(self.missing) > 10 else "")
            version = self.manifest.version
            raise WeightsError(f"weights {version!r}: {len(self.missing)} of {self.count} chunks missing: {some}")
        return b"".join(self._chunks[i] for i in range(self.count))
