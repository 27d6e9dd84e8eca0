"""Weights are refused before anything is loaded, by name; chunks come in any order."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from engram.core.errors import WeightsError
from engram.core.types import Lineage, PolicyManifest
from engram.learning.weights.manifest import check_signature, make_manifest, sign, tensor_specs, verify
from engram.learning.weights.slices import Assembler, chunk_count, split

TENSORS = {
    "head.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "head.bias": np.zeros(2, np.float32),
    "steps": np.array(7, np.int64),
}
EXPECTED = {"head.weight": ((2, 3), "F32"), "head.bias": ((2,), "F32"), "steps": ((), "I64")}


def weights(**changes) -> bytes:
    """Return the file of TENSORS with some of them changed (None = left out)."""
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    return save({k: v for k, v in {**TENSORS, **changes}.items() if v is not None})


def refused(data: bytes, match: str, expected=EXPECTED):
    with pytest.raises(WeightsError, match=match):
        verify(data, make_manifest(data, "v1"), expected)


def test_good_weights_pass_from_bytes_and_from_a_file(tmp_path):
    data = weights()
    manifest = make_manifest(data, "v2", parent="v1", metrics={"loss": 0.1})
    assert (manifest.size, manifest.parent, manifest.stage) == (len(data), "v1", "candidate")
    (tmp_path / "w").write_bytes(data)
    assert verify(data, manifest, EXPECTED) == verify(tmp_path / "w", manifest, EXPECTED) == data
    assert tensor_specs(data) == EXPECTED


def test_the_digest_is_that_of_the_standard():
    """SHA-256 of b'abc' from FIPS 180-2."""
    assert make_manifest(b"abc", "v").sha256.startswith("ba7816bf8f01cfea414140de5dae2223")


def test_a_wrong_shape_names_the_tensor_and_what_is_valid():
    data = weights(head__weight=np.zeros((3, 2), np.float32))
    refused(data, r"'v1': tensor 'head.weight' has shape \(3, 2\), expected \(2, 3\)")


def test_a_wrong_dtype_names_the_tensor_and_what_is_valid():
    refused(weights(head__bias=np.zeros(2, np.float64)), "tensor 'head.bias' has dtype F64, expected F32")


def test_missing_and_unknown_tensors_are_named():
    refused(weights(head__bias=None), "lacks tensor 'head.bias'")
    refused(weights(extra=np.zeros(1)), "has unknown tensor 'extra'")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_found_in_every_float(dtype, value):
    tensor = np.full((2, 3), np.finfo(dtype).max, dtype)
    refused(weights(head__weight=np.where([[0, 0, 0], [0, 1, 0]], dtype(value), tensor).astype(dtype)),
            "tensor 'head.weight' holds 1 values that are not finite", None)  # fmt: skip
    verify(data := weights(head__weight=tensor), make_manifest(data, "v1"))


def test_bfloat16_is_checked_too():
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    for second, good in ((0x3F80, True), (0x7F80, False), (0x7FC0, False)):  # 1, infinity, not a number
        body = np.array([0x3F80, second], np.uint16).tobytes()
        data = len(header).to_bytes(8, "little") + header + body
        if good:
            verify(data, make_manifest(data, "v1"))
        else:
            refused(data, "'a' holds 1 values", None)


def test_size_and_digest_are_checked_first(tmp_path):
    data = weights()
    manifest = make_manifest(data, "v1")
    with pytest.raises(WeightsError, match=f"{len(data) - 1} bytes, the manifest says {len(data)}"):
        verify(data[:-1], manifest, EXPECTED)
    (tmp_path / "w").write_bytes(data + b"x")
    with pytest.raises(WeightsError, match=r"w has \d+ bytes, the manifest says"):
        verify(tmp_path / "w", manifest, EXPECTED)
    with pytest.raises(WeightsError, match="sha256"):
        verify(data[:-1] + bytes([data[-1] ^ 1]), manifest, EXPECTED)
    with pytest.raises(WeightsError, match="none cannot be read: No such file"):
        verify(tmp_path / "none", manifest)


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (b"[1]", "malformed safetensors header"),
        (b"{", "malformed safetensors header"),
        (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', "'a' of shape"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}', "'a' of shape"),
        (b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}', "'a' of shape"),
        (b'{"a": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 4]}}', "'a' has dtype PICKLE, valid: BF16"),
        (b"{}", "4 bytes of tensors, the header describes 0"),
    ],
)
def test_a_malformed_header_is_refused(header, match):
    refused(len(header).to_bytes(8, "little") + header + bytes(4), match, None)


def test_a_pickle_is_refused():
    import pickle

    refused(pickle.dumps({"head.weight": [1.0] * 100}), "not a safetensors file")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_no_altered_file_passes_or_fails_in_another_way(seed):
    """Whatever is done to the bytes, the answer is WeightsError, even with a manifest that matches them."""
    draw = random.Random(seed)
    data = bytearray(weights())
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data) - 64)] = draw.randrange(256)
    try:
        verify(bytes(data), make_manifest(bytes(data), "v1"), EXPECTED)
    except WeightsError:
        return
    assert tensor_specs(bytes(data)) == EXPECTED


def test_a_signature_covers_every_field_of_the_manifest():
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    manifest = make_manifest(weights(), "v1", metrics={"loss": 0.5})
    signature, trusted = sign(manifest, key), {"mine": key.public_key()}
    assert check_signature(manifest, signature, trusted) == "mine"
    fields: dict = {"version": "v2", "parent": "p", "sha256": "0" * 64, "size": 1, "stage": "approved", "metrics": {}}
    fields["lineage"] = Lineage("r", "a", "n")
    for name, value in fields.items():
        own = {field.name: getattr(manifest, field.name) for field in dataclasses.fields(manifest)}
        with pytest.raises(WeightsError, match="signature is not by a trusted key"):
            check_signature(PolicyManifest(**own | {name: value}), signature, trusted)
    with pytest.raises(WeightsError, match="trusted: other"):
        check_signature(manifest, signature, {"other": Ed25519PrivateKey.generate().public_key()})
    with pytest.raises(WeightsError, match="signature is missing"):
        check_signature(manifest, b"", trusted)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 50), st.integers(0, 1000))
def test_chunks_in_any_order_and_more_than_once_give_the_file(data, chunk_size, seed):
    chunks = list(enumerate(split(data, chunk_size)))
    assembler = Assembler(make_manifest(data, "v1"), chunk_size)
    order = chunks * 2
    random.Random(seed).shuffle(order)
    for index, chunk in order:
        complete = assembler.add(index, chunk)
    assert complete and not assembler.missing
    assert assembler.data() == data


def test_chunk_counts():
    assert [chunk_count(size, 10) for size in (1, 10, 11, 20)] == [1, 1, 2, 2]


def test_missing_chunks_are_named_and_wrong_ones_refused():
    assembler = Assembler(make_manifest(b"0123456789", "v1"), 4)
    assert not assembler.add(1, b"4567")
    assert assembler.missing == (0, 2)
    with pytest.raises(WeightsError, match="2 of 3 chunks missing: 0, 2"):
        assembler.data()
    with pytest.raises(WeightsError, match=r"chunk 3: expected 0\.\.2"):
        assembler.add(3, b"")
    with pytest.raises(WeightsError, match="chunk 2: 4 bytes, expected 2"):
        assembler.add(2, b"89ab")
    with pytest.raises(WeightsError, match="chunk 1: came twice with different bytes"):
        assembler.add(1, b"xxxx")


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_weights_that_are_all_zero_are_refused_by_the_names_of_their_matrices(zero):
    blank = {"head__weight": np.full((2, 3), zero, np.float32)}
    refused(weights(**blank), r"'v1': every value is 0 in all 1 of its weight tensors \(head.weight\)")
    refused(weights(**blank, head__bias=np.ones(2, np.float32)), "every value is 0")  # a bias alone is no network
    refused(save({"a": np.full(4, zero, np.float16)}), r"in all 1 of its weight tensors \(a\)", None)
    verify(data := weights(head__bias=np.zeros(2, np.float32)), make_manifest(data, "v1"))  # one zero tensor may be
