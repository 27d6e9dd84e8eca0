"""Color images as JPEG and depth images as PNG, for links that are too narrow for raw pixels."""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image

from engram.core.errors import InvalidInputError

MAX_PIXELS = 4096 * 4096
"""Most pixels of an image that is decoded: a few bytes can claim any size, and it is allocated."""
DEPTH_UNIT_M = 0.001
"""A depth pixel counts millimetres, as 16UC1 images do."""
MAX_DEPTH = 65535
"""Largest depth pixel; what is farther has no return."""


def encode_color(color: np.ndarray, quality: int) -> bytes:
    """Return ``color`` (H, W, 3) uint8 rgb as JPEG; ``quality`` 1..95."""
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(color)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def decode_color(data: bytes, name: str) -> np.ndarray:
    """Return the pixels (H, W, 3) uint8 rgb of a JPEG or PNG; ``name`` is for error messages.

    Raises:
        InvalidInputError: data that is neither, is cut off, or claims more than MAX_PIXELS.
    """
    return np.asarray(_open(data, name, ("JPEG", "PNG"), "RGB"))


def encode_depth(depth: np.ndarray) -> bytes:
    """Return ``depth`` (H, W) float32 [m] as a PNG of 16-bit millimetres; not finite, negative or too far is 0."""
    millimetres = np.nan_to_num(depth / np.float32(DEPTH_UNIT_M), nan=0.0, posinf=0.0, neginf=0.0)
    rounded = np.rint(millimetres)
    valid = (rounded > 0) & (rounded <= MAX_DEPTH)
    out = io.BytesIO()
    Image.fromarray(np.where(valid, rounded, 0).astype(np.uint16)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def decode_depth(data: bytes, name: str) -> np.ndarray:
    """Return the pixels (H, W) float32 [m] of a PNG of 16-bit millimetres; 0 means no return.

    Raises:
        InvalidInputError: data that is no such PNG, is cut off, or claims more than MAX_PIXELS.
    """
    pixels = np.asarray(_open(data, name, ("PNG",), "I;16"))
    return pixels.astype(np.float32) * np.float32(DEPTH_UNIT_M)


def _open(data: bytes, name: str, formats: tuple[str, ...], mode: str) -> Image.Image:
    valid = " or ".join(formats)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is checked below
            image = Image.open(io.BytesIO(data), formats=formats)
        if image.width * image.height > MAX_PIXELS:
            raise InvalidInputError(f"{name}: {image.width} x {image.height} pixels, expected at most {MAX_PIXELS}")
        if mode == "I;16" and image.mode != mode:
            raise InvalidInputError(f"{name}: pixels of kind {image.mode}, expected 16-bit gray")
        image.load()
        return image if image.mode == mode else image.convert(mode)
    except InvalidInputError:
        raise
    except Exception as error:  # PIL's plug-ins raise whatever their parsers meet
        raise InvalidInputError(f"{name}: {len(data)} bytes that are no {valid}: {error}") from None
