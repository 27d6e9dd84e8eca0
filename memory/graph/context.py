"""Memory entries for the policy's action head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    cases: int = 2
    """Of the entries, at most so many are past tasks like the present one."""


@dataclass(frozen=True)
class Case:
    """A past task worth remembering now."""

    id: str  # episode
    vector: np.ndarray  # (384,) float32 of its instruction
    place: np.ndarray  # (3,) m, where things changed; zeros = nowhere in particular
    end_ns: int


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


def with_cases(tokens: MemoryTokens, cases: Sequence[Case]) -> MemoryTokens:
    """Return ``tokens`` with ``cases`` as its last entries, in the place of padding or of the objects that fit least.

    Actions carry the ids of what was read: so a case that helped gets its credit.
    """
    k = len(tokens.mask)
    cases = cases[:k]
    if not cases:
        return tokens
    kept = min(int(tokens.mask.sum()), k - len(cases))
    rows = slice(kept, kept + len(cases))
    vectors, age, place, mask = (np.array(a) for a in (tokens.tokens, tokens.age_s, tokens.place, tokens.mask))
    vectors[rows] = [case.vector for case in cases]
    age[rows] = [max(0, tokens.stamp_ns - case.end_ns) / 1e9 for case in cases]
    place[rows] = [case.place for case in cases]
    mask[rows] = True
    ids = tokens.source_ids[:kept] + tuple(case.id for case in cases) + ("",) * (k - kept - len(cases))
    return replace(tokens, tokens=vectors, age_s=age, place=place, mask=mask, source_ids=ids)
