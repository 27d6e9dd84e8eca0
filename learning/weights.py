"""Weights that travel: safetensors bytes, described by a manifest and verified before anything is loaded.

Never pickle. The safetensors header is parsed here, because a file must be refused before its tensors are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from engram.core.errors import WeightsError
from engram.core.types import PolicyManifest

TensorSpec = tuple[tuple[int, ...], str]
"""Shape and safetensors dtype, for example ((128, 15), "F32")."""
_ITEM_SIZE = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4}
_ITEM_SIZE |= {"F64": 8, "I64": 8, "U64": 8}
# dtype: (integer view, bits of the exponent): all exponent bits set = infinite or not a number
_EXPONENT = {"F16": (np.uint16, 0x7C00), "BF16": (np.uint16, 0x7F80), "F32": (np.uint32, 0x7F800000)}
_EXPONENT_F64 = 0x7FF0000000000000
_HEADER_MAX = 100_000_000


def make_manifest(
    data: bytes,
    version: str,
    parent: str = "",
    stage: str = "candidate",
    metrics: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> PolicyManifest:
    """Describe the safetensors bytes ``data``."""
    return PolicyManifest(
        version=version,
        parent=parent,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        stage=stage,  # type: ignore[arg-type]
        metrics=dict(metrics or {}),
        config=dict(config or {}),
    )


def tensor_specs(data: bytes | memoryview, name: str = "weights") -> dict[str, TensorSpec]:
    """Return shape and dtype of every tensor, from the header alone; raises WeightsError if it is malformed."""
    return {key: (shape, dtype) for key, (shape, dtype, _, _) in _header(memoryview(data), name).items()}


def verify(
    source: Path | str | bytes, manifest: PolicyManifest, expected: Mapping[str, TensorSpec] | None = None
) -> bytes:
    """Return the bytes of ``source`` after every check: size, sha256, header, names, shapes, dtypes, finite values.

    Without ``expected`` names, shapes and dtypes are not compared.

    Raises:
        WeightsError: naming the version, the tensor and what would be valid.
    """
    what = f"weights {manifest.version!r}"
    data = source if isinstance(source, bytes) else _read(Path(source), manifest, what)
    if len(data) != manifest.size:
        raise WeightsError(f"{what}: {len(data)} bytes, the manifest says {manifest.size}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != manifest.sha256:
        raise WeightsError(f"{what}: sha256 {digest[:12]}…, the manifest says {manifest.sha256[:12]}…")
    view = memoryview(data)
    header = _header(view, what)
    if expected is not None:
        _compare(header, expected, what)
    body = 8 + int.from_bytes(view[:8], "little")
    for name, (_, dtype, begin, end) in header.items():
        bad = _not_finite(view[body + begin : body + end], dtype)
        if bad:
            raise WeightsError(f"{what}: tensor {name!r} holds {bad} values that are not finite")
    return data


def canonical(manifest: PolicyManifest) -> bytes:
    """Return the bytes that a signature covers: every field, keys sorted."""
    return json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sign(manifest: PolicyManifest, key: Ed25519PrivateKey) -> bytes:
    """Return the Ed25519 signature (64 bytes) of ``manifest``."""
    return key.sign(canonical(manifest))


def check_signature(manifest: PolicyManifest, signature: bytes, key: Ed25519PublicKey) -> None:
    """Raise WeightsError unless ``signature`` is that of ``manifest`` by the owner of ``key``."""
    try:
        key.verify(signature, canonical(manifest))
    except InvalidSignature:
        state = "is not by the trusted key or does not belong to it" if signature else "is missing"
        raise WeightsError(f"manifest {manifest.version!r}: the signature {state}") from None


def _read(path: Path, manifest: PolicyManifest, what: str) -> bytes:
    try:
        size = path.stat().st_size
        if size != manifest.size:  # before a huge file is read
            raise WeightsError(f"{what}: {path} has {size} bytes, the manifest says {manifest.size}")
        return path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{what}: {path} cannot be read: {error.strerror}") from None


def _header(view: memoryview, what: str) -> dict[str, tuple[tuple[int, ...], str, int, int]]:
    """Return name -> (shape, dtype, begin, end); the tensors fill the file without gap or overlap."""
    length = int.from_bytes(view[:8], "little") if len(view) >= 8 else _HEADER_MAX + 1
    if length > min(_HEADER_MAX, len(view) - 8):
        raise WeightsError(f"{what}: not a safetensors file (header of {length} bytes in {len(view)})")
    try:
        entries = json.loads(bytes(view[8 : 8 + length]))
        entries.pop("__metadata__", None)
        header = {
            name: (tuple(int(n) for n in e["shape"]), str(e["dtype"]), *(int(n) for n in e["data_offsets"]))
            for name, e in entries.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{what}: malformed safetensors header: {error!r}") from None
    at = 0
    for name, (shape, dtype, begin, end) in sorted(header.items(), key=lambda item: item[1][2:]):
        if dtype not in _ITEM_SIZE:
            raise WeightsError(f"{what}: tensor {name!r} has dtype {dtype}, valid: {', '.join(sorted(_ITEM_SIZE))}")
        size = int(np.prod(shape, dtype=object)) * _ITEM_SIZE[dtype]
        if begin != at or end - begin != size or min(shape, default=0) < 0:
            raise WeightsError(
                f"{what}: tensor {name!r} of shape {shape} {dtype} lies at bytes {begin}..{end}, "
                f"expected {at}..{at + size}"
            )
        at = end
    if at != len(view) - 8 - length:
        raise WeightsError(f"{what}: {len(view) - 8 - length} bytes of tensors, the header describes {at}")
    return header


def _compare(
    header: Mapping[str, tuple[tuple[int, ...], str, int, int]], expected: Mapping[str, TensorSpec], what: str
) -> None:
    for kind, names in (("lacks", expected.keys() - header.keys()), ("has unknown", header.keys() - expected.keys())):
        if names:
            raise WeightsError(f"{what}: {kind} tensor {min(names)!r} ({len(names)} in all)")
    for name, (shape, dtype) in expected.items():
        if header[name][0] != tuple(shape):
            raise WeightsError(f"{what}: tensor {name!r} has shape {header[name][0]}, expected {tuple(shape)}")
        if header[name][1] != dtype:
            raise WeightsError(f"{what}: tensor {name!r} has dtype {header[name][1]}, expected {dtype}")


def _not_finite(data: memoryview, dtype: str) -> int:
    if dtype == "F64":
        bits, mask = np.frombuffer(data, "<u8"), np.uint64(_EXPONENT_F64)
    elif dtype in _EXPONENT:
        kind, exponent = _EXPONENT[dtype]
        bits, mask = np.frombuffer(data, kind), kind(exponent)
    else:
        return 0
    return int(np.count_nonzero((bits & mask) == mask))
