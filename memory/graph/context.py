"""Memory entries for the policy's action head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.types import EMBEDDING_DIM, MemoryTokens
from engram.memory.storage.columns import ABSENT, NodeColumns


@dataclass(frozen=True)
class ContextConfig:
    """Size and threshold of the context."""

    tokens: int = 16
    """k: the context is cut or padded to this many entries."""
    belief_min: float = 0.1
    """Entries believed less than this are left out, and absent ones."""


def context_tokens(
    columns: NodeColumns, rows: np.ndarray, cosine: np.ndarray, stamp_ns: int, version: int,
    config: ContextConfig | None = None,
) -> MemoryTokens:  # fmt: skip
    """Return the k of ``rows`` that fit an instruction best, then padding.

    They come in the order of ``cosine`` (n,) to the thousandth, then of belief, then of their ids. Weighed by belief, a
    thing seen often would come before the one that is named: cosines of names differ by less than beliefs do.

    A token is the node's embedding (384,); its age is the time since the object was last seen, never negative.
    Padding is zero, with an empty source id and mask False.
    """
    config = config or ContextConfig()
    kept = (columns.state[rows] != ABSENT) & (columns.belief[rows] >= config.belief_min)
    kept &= np.array([columns.about(int(row)).layer == "object" for row in rows], bool)
    rows, fit = rows[kept], np.round(cosine[kept], 3)
    belief = columns.belief[rows]
    order = sorted(range(len(rows)), key=lambda i: (-fit[i], -belief[i], columns.about(int(rows[i])).id))
    order = order[: config.tokens]
    best, count = rows[order], len(order)
    tokens = np.zeros((config.tokens, EMBEDDING_DIM), np.float32)
    age, place = np.zeros(config.tokens, np.float32), np.zeros((config.tokens, 3), np.float32)
    tokens[:count] = columns.embedding[best]
    age[:count] = np.maximum(0, stamp_ns - columns.last_ns[best]) / 1e9
    place[:count] = columns.position[best]
    ids = tuple(columns.about(int(row)).id for row in best) + ("",) * (config.tokens - count)
    return MemoryTokens(stamp_ns, version, tokens, age, place, np.arange(config.tokens) < count, ids)
