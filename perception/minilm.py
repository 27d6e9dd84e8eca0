"""The default sentence encoder, all-MiniLM-L6-v2, in NumPy. Importing torch and transformers would take seconds of
CPU and half a gigabyte in every process, and perception and memory need nothing else of them. The
network is BERT (Devlin et al. 2019, post-norm, exact GELU) with mean pooling (Reimers and Gurevych 2019); a test holds
it to sentence-transformers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer


class MiniLM:
    """Sentence vectors from a folder as sentence-transformers writes it for a BERT with mean pooling."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self._heads, self._layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._epsilon = np.float32(config["layer_norm_eps"])
        longest = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(longest)
        self._weights = load_file(folder / "model.safetensors")

    def encode(self, text: str) -> np.ndarray:
        """Return the unit vector (384,) float32 of ``text``."""
        hidden = self._embed(self._tokenizer.encode(text).ids)
        for layer in range(self._layers):
            hidden = self._layer(hidden, f"encoder.layer.{layer}")
        mean = hidden.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _embed(self, ids: list[int]) -> np.ndarray:
        """Return the sums (n, 384) of word, position and segment vectors."""
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        positions = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        segment = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normalise(words + positions + segment, "embeddings")

    def _layer(self, hidden: np.ndarray, name: str) -> np.ndarray:
        attended = self._dense(self._attend(hidden, f"{name}.attention.self"), f"{name}.attention.output.dense")
        hidden = self._normalise(hidden + attended, f"{name}.attention.output")
        wide = self._dense(hidden, f"{name}.intermediate.dense")
        wide = wide * (0.5 * (1.0 + erf(wide / np.sqrt(np.float32(2.0)))))
        return self._normalise(hidden + self._dense(wide, f"{name}.output.dense"), f"{name}.output")

    def _attend(self, hidden: np.ndarray, name: str) -> np.ndarray:
        """Return multi-head self-attention (n, 384) before its output projection."""
        length, width = hidden.shape
        queries, keys, values = (
            self._dense(hidden, f"{name}.{part}").reshape(length, self._heads, -1).transpose(1, 0, 2)  # (heads, n, d)
            for part in ("query", "key", "value")
        )
        scores = queries @ keys.transpose(0, 2, 1) / np.sqrt(np.float32(width // self._heads))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ values).transpose(1, 0, 2).reshape(length, width)

    def _dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalise(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + self._epsilon)
        return centred / spread * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]
