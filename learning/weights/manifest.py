"""Weights on the wire: safetensors bytes that a manifest describes, verified before anything is loaded.

Never pickle. The safetensors header is parsed here, because a file must be refused before its tensors are read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from engram.core.errors import DAMAGED, WeightsError
from engram.core.types import Lineage, PolicyManifest
from engram.learning.weights.keys import check_trusted

TensorSpec = tuple[tuple[int, ...], str]
"""Shape and safetensors dtype, for example ((128, 15), "F32")."""
_ITEM_SIZE = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4}
_ITEM_SIZE |= {"F64": 8, "I64": 8, "U64": 8}
# float dtype -> its exponent bits: all of them set means infinite or not a number
_EXPONENT = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F80_0000, "F64": 0x7FF0_0000_0000_0000}
_HEADER_MAX = 100_000_000


@dataclass(frozen=True)
class _Entry:
    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int


def make_manifest(
    data: bytes,
    version: str,
    parent: str = "",
    stage: str = "candidate",
    metrics: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    lineage: Lineage | None = None,
) -> PolicyManifest:
    """Describe the safetensors bytes ``data``."""
    return PolicyManifest(
        version=version,
        parent=parent,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        stage=stage,
        metrics=dict(metrics or {}),
        config=dict(config or {}),
        lineage=lineage,
    )


def manifest_to_json(manifest: PolicyManifest) -> str:
    """Return ``manifest`` as JSON text."""
    return json.dumps(asdict(manifest), indent=1, sort_keys=True)


def manifest_from_json(text: str) -> PolicyManifest:
    """Return what :func:`manifest_to_json` wrote; raises ValueError or TypeError if it is none."""
    values = json.loads(text)
    lineage = values.get("lineage") if isinstance(values, dict) else None
    if lineage is None:
        return PolicyManifest(**values)
    return PolicyManifest(**{**values, "lineage": Lineage(**lineage)})


def tensor_specs(data: bytes | memoryview, name: str = "weights") -> dict[str, TensorSpec]:
    """Return shape and dtype of every tensor, from the header alone; raises WeightsError if it is malformed."""
    return {key: (entry.shape, entry.dtype) for key, entry in _header(memoryview(data), name).items()}


def compare_specs(found: Mapping[str, TensorSpec], expected: Mapping[str, TensorSpec], what: str) -> None:
    """Raise WeightsError that names ``what`` and the first tensor that is missing, left over or of another kind."""
    for kind, names in (("lacks", expected.keys() - found.keys()), ("has unknown", found.keys() - expected.keys())):
        if names:
            raise WeightsError(f"{what}: {kind} tensor {min(names)!r} ({len(names)} in all)")
    for name, (shape, dtype) in expected.items():
        if found[name][0] != tuple(shape):
            raise WeightsError(f"{what}: tensor {name!r} has shape {found[name][0]}, expected {tuple(shape)}")
        if found[name][1] != dtype:
            raise WeightsError(f"{what}: tensor {name!r} has dtype {found[name][1]}, expected {dtype}")


def verify(
    source: Path | str | bytes, manifest: PolicyManifest, expected: Mapping[str, TensorSpec] | None = None
) -> bytes:
    """Return the bytes of ``source`` after every check: size, sha256, header, names, shapes, dtypes, finite values,
    not all 0.

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
        compare_specs({key: (entry.shape, entry.dtype) for key, entry in header.items()}, expected, what)
    body = 8 + int.from_bytes(view[:8], "little")
    for name, entry in header.items():
        bad = _not_finite(view[body + entry.begin : body + entry.end], entry.dtype)
        if bad:
            raise WeightsError(f"{what}: tensor {name!r} holds {bad} values that are not finite")
    _check_not_blank(view[body:], header, what)
    return data


def _check_not_blank(body: memoryview, header: Mapping[str, _Entry], what: str) -> None:
    """Raise WeightsError if all matrices are 0, or, where there is none, all numbers: nothing was ever learnt so."""
    floats = {name: entry for name, entry in header.items() if entry.dtype in _EXPONENT}
    matrices = {name: entry for name, entry in floats.items() if len(entry.shape) > 1} or floats
    if matrices and not any(_any_value(body[entry.begin : entry.end], entry.dtype) for entry in matrices.values()):
        names = ", ".join(sorted(matrices)[:3]) + (", …" if len(matrices) > 3 else "")
        raise WeightsError(f"{what}: every value is 0 in all {len(matrices)} of its weight tensors ({names})")


def _any_value(octets: memoryview, dtype: str) -> bool:
    """Tell whether a number in ``octets`` is neither 0 nor -0."""
    sign = 1 << (8 * _ITEM_SIZE[dtype] - 1)
    bits = np.frombuffer(octets, f"<u{_ITEM_SIZE[dtype]}")
    return bool((bits & (sign - 1)).any())


def canonical(manifest: PolicyManifest) -> bytes:
    """Return the bytes that a signature covers: every field, keys sorted."""
    return json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sign(manifest: PolicyManifest, key: Ed25519PrivateKey) -> bytes:
    """Return the Ed25519 signature (64 bytes) of ``manifest``."""
    return key.sign(canonical(manifest))


def check_signature(manifest: PolicyManifest, signature: bytes, keys: Mapping[str, Ed25519PublicKey]) -> str:
    """Return the fingerprint of the trusted key that signed ``manifest``; raises WeightsError if none of them did."""
    return check_trusted(f"manifest {manifest.version!r}", canonical(manifest), signature, keys)


def _read(path: Path, manifest: PolicyManifest, what: str) -> bytes:
    try:
        size = path.stat().st_size
        if size != manifest.size:  # before a huge file is read
            raise WeightsError(f"{what}: {path} has {size} bytes, the manifest says {manifest.size}")
        return path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{what}: {path} cannot be read: {error.strerror}") from None


def _header(view: memoryview, what: str) -> dict[str, _Entry]:
    """Return the tensors of the file, which they fill without gap or overlap."""
    length = int.from_bytes(view[:8], "little") if len(view) >= 8 else _HEADER_MAX + 1
    if length > min(_HEADER_MAX, len(view) - 8):
        raise WeightsError(f"{what}: not a safetensors file (header of {length} bytes in {len(view)})")
    try:
        entries = json.loads(bytes(view[8 : 8 + length]))
        entries.pop("__metadata__", None)
        header = {str(name): _entry(values) for name, values in entries.items()}
    except DAMAGED as error:
        raise WeightsError(f"{what}: malformed safetensors header: {error!r}") from None
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.dtype not in _ITEM_SIZE:
            valid = ", ".join(sorted(_ITEM_SIZE))
            raise WeightsError(f"{what}: tensor {name!r} has dtype {entry.dtype}, valid: {valid}")
        size = math.prod(entry.shape) * _ITEM_SIZE[entry.dtype]
        if (entry.begin, entry.end) != (at, at + size) or any(n < 0 for n in entry.shape):
            raise WeightsError(
                f"{what}: tensor {name!r} of shape {entry.shape} {entry.dtype} lies at bytes "
                f"{entry.begin}..{entry.end}, expected {at}..{at + size}"
            )
        at = entry.end
    if at != len(view) - 8 - length:
        raise WeightsError(f"{what}: {len(view) - 8 - length} bytes of tensors, the header describes {at}")
    return header


def _entry(values: Mapping[str, Any]) -> _Entry:
    begin, end = (int(n) for n in values["data_offsets"])
    return _Entry(tuple(int(n) for n in values["shape"]), str(values["dtype"]), begin, end)


def _not_finite(data: memoryview, dtype: str) -> int:
    """Return how many values of a little-endian float tensor are infinite or not a number."""
    if dtype not in _EXPONENT:
        return 0
    kind = np.dtype(f"<u{_ITEM_SIZE[dtype]}")
    mask = kind.type(_EXPONENT[dtype])
    return int(np.count_nonzero((np.frombuffer(data, kind) & mask) == mask))
