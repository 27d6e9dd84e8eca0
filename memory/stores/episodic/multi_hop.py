"""Associative recall: spreading activation from direct matches over several hops of a graph.

Personalised PageRank from the entries that a question found directly, as HippoRAG (Gutierrez et al. 2024) does over
a knowledge graph and AriGraph (Anokhin et al. 2024) over a graph of facts and episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

_TOLERANCE = 1e-4
"""Tolerance of the activation; only the order matters."""


@dataclass(frozen=True)
class SpreadConfig:
    """How far and how strongly activation spreads."""

    hops: int = 3
    """Edges from a seed to the farthest entry that is looked at."""
    vertices: int = 200
    """Entries looked at, nearest first: bounds the time of a question."""
    damping: float = 0.7
    """Chance to go on instead of returning to a seed."""


def spread(
    seeds: Mapping[str, float],
    neighbours: Callable[[str], Iterable[str]],
    config: SpreadConfig | None = None,
) -> dict[str, float]:
    """Return the activation (sums to 1) of the seeds and of their neighbourhood.

    ``seeds``: entry -> weight above 0. ``neighbours`` names the entries next to one.
    """
    config = config or SpreadConfig()
    seeds = {key: weight for key, weight in seeds.items() if weight > 0}
    if not seeds:
        return {}
    graph = nx.Graph()
    graph.add_nodes_from(seeds)
    frontier = sorted(seeds, key=lambda key: (-seeds[key], key))
    for _ in range(config.hops):
        reached: list[str] = []
        for key in frontier:
            for other in sorted(neighbours(key)):
                if other not in graph:
                    if len(graph) >= config.vertices:
                        continue
                    reached.append(other)
                graph.add_edge(key, other)
        frontier = reached
    return dict(nx.pagerank(graph, alpha=config.damping, personalization=seeds, dangling=seeds, tol=_TOLERANCE))
