"""Memory entries for the policy's action head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.types import EMBEDDING_DIM, MemoryTokens, SceneNode
from engram.memory.retrieval import similarity


@dataclass(frozen=True)
class ContextConfig:
    """Size and threshold of the context."""

    tokens: int = 16
    """k: the context is cut or padded to this many entries."""
    belief_min: float = 0.1
    """Entries believed less than this are left out, and absent ones."""


def context_tokens(
    nodes: Sequence[SceneNode],
    instruction: str,
    stamp_ns: int,
    version: int,
    embed: Callable[[str], np.ndarray],
    config: ContextConfig | None = None,
) -> MemoryTokens:
    """Return the k entries that fit ``instruction`` best (cosine x belief, ties by id), best first, then padding.

    A token is the node's embedding (384,); its age is the time since the object was last seen, never negative.
    Padding is zero, with an empty source id and mask False.
    """
    config = config or ContextConfig()
    nodes = [node for node in nodes if node.state != "absent" and node.belief >= config.belief_min]
    scores = similarity(nodes, instruction, embed) * [node.belief for node in nodes]
    best = [nodes[i] for i in sorted(range(len(nodes)), key=lambda i: (-scores[i], nodes[i].id))][: config.tokens]
    tokens = np.zeros((config.tokens, EMBEDDING_DIM), np.float32)
    age, place = np.zeros(config.tokens, np.float32), np.zeros((config.tokens, 3), np.float32)
    for row, node in enumerate(best):
        tokens[row] = node.embedding
        age[row] = max(0, stamp_ns - node.last_seen_ns) / 1e9
        place[row] = node.pose.position
    ids = tuple(node.id for node in best) + ("",) * (config.tokens - len(best))
    return MemoryTokens(stamp_ns, version, tokens, age, place, np.arange(config.tokens) < len(best), ids)
