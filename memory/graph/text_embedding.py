"""Texts to unit vectors, with a cache: labels of detections and words of questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM

Embed = Callable[[str], np.ndarray]
"""Text -> (384,) float32 of unit length."""


class Encoder(Protocol):
    """Texts -> unit vectors."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one embedding (n, 384) float32 of unit length for each text."""


def text_embedder(encoder: Encoder | None) -> Embed:
    """Return a cached text -> (384,) function; without ``encoder`` MiniLM loads at the first call."""

    @lru_cache(maxsize=256)
    def embed(text: str) -> np.ndarray:
        nonlocal encoder
        if encoder is None:
            from engram.perception.embedding import default_text_encoder  # loads torch: only when a text is embedded

            encoder = default_text_encoder()
        vector = np.asarray(encoder.encode([text]), np.float32)[0]
        if vector.shape != (EMBEDDING_DIM,):
            raise InvalidInputError(f"encoder {type(encoder).__name__}: {vector.shape}, expected ({EMBEDDING_DIM},)")
        vector.flags.writeable = False
        return vector

    return embed
