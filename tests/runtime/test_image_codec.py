"""Images as JPEG and PNG: what comes back, and what is refused."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from engram.core.errors import InvalidInputError
from engram.runtime.image_codec import MAX_PIXELS, decode_color, decode_depth, encode_color, encode_depth


def test_color_comes_back_as_rgb_and_nearly_the_same():
    color = np.zeros((32, 48, 3), np.uint8)
    color[..., 0] = np.linspace(0, 200, 48, dtype=np.uint8)  # red grows to the right
    color[..., 2] = 40
    data = encode_color(color, 80)
    back = decode_color(data, "x")
    assert (back.shape, back.dtype) == (color.shape, np.uint8)
    assert np.abs(back.astype(int) - color).max() <= 12
    assert len(data) < color.nbytes / 3


def test_depth_comes_back_to_the_millimetre_and_what_has_no_return_as_zero():
    depth = np.array([[0.0, 0.0004, 0.4306], [np.nan, np.inf, 65.535], [-1.0, 70.0, 2.0]], np.float32)
    back = decode_depth(encode_depth(depth), "x")
    expected = np.array([[0.0, 0.0, 0.431], [0.0, 0.0, 65.535], [0.0, 0.0, 2.0]], np.float32)
    np.testing.assert_allclose(back, expected, atol=1e-5)
    assert back.dtype == np.float32


def test_a_few_bytes_that_claim_a_huge_image_allocate_nothing():
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    size = int(MAX_PIXELS**0.5)
    claim = chunk(b"IHDR", struct.pack(">IIBBBBB", size + 1, size, 16, 0, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + claim + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    for decode in (decode_color, decode_depth):
        with pytest.raises(InvalidInputError, match=f"camera: {size + 1} x {size} pixels, expected at most"):
            decode(bomb, "camera")


@pytest.mark.parametrize("data", [b"", b"not an image", encode_color(np.zeros((16, 16, 3), np.uint8), 80)[:200]])
def test_what_is_no_image_is_refused_by_name(data):
    with pytest.raises(InvalidInputError, match=f"camera: {len(data)} bytes that are no JPEG or PNG"):
        decode_color(data, "camera")


def test_depth_of_8_bits_is_refused():

    out = BytesIO()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(out, "PNG")
    with pytest.raises(InvalidInputError, match="pixels of kind L, expected 16-bit gray"):
        decode_depth(out.getvalue(), "camera")
    with pytest.raises(InvalidInputError, match="are no PNG"):
        decode_depth(encode_color(np.zeros((16, 16, 3), np.uint8), 80), "camera")
