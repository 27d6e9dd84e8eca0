"""What a bounded short-term memory should keep: hit rate on later questions, policy by policy.

    python -m engram.benchmarks.eviction [--quick]

Every policy lives through the same held-out traces (seeds from 0; the learned one was trained on seeds from 1000).
``newest`` is what KARMA's released code does: the peer. ``limit`` holds every object: no eviction at all. Rates carry
95 % Wilson intervals over the questions. Prints one table; the last line is JSON, which also goes to
benchmarks/results/eviction.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.eviction_traces import Score, TraceEvent, household, made_up, play, seen
from engram.benchmarks.report import RESULTS, save_report
from engram.core.provenance import machine
from engram.core.statistics import Rate, wilson
from engram.memory.stores.short_term.eviction_policies import EVICTIONS, make_eviction

PEER, LIMIT = "newest", "limit"
SOURCES: dict[str, tuple[Callable[[int], list[list[TraceEvent]]], tuple[int, ...]]] = {
    "household": (lambda homes: [household(seed) for seed in range(homes)], (4, 8, 16)),
    "seen": (seen, (4, 8, 16)),
    "made_up": (lambda homes: [made_up(seed) for seed in range(homes)], (8, 16, 32)),
}
"""Trace source -> homes to traces, and the capacities: 1/9, 1/5 and 2/5, or 1/16, 1/8 and 1/4, of the objects."""


@dataclass(frozen=True)
class EvictionBenchmark:
    """What is compared."""

    quick: bool = False
    """Two homes of each kind instead of all."""
    homes: int = 10
    """Held-out traces of each kind."""
    output: Path = RESULTS / "eviction.json"
    """Where the JSON goes."""


@dataclass(frozen=True)
class Row:
    """One policy at one capacity on the traces of one source."""

    source: str
    capacity: int
    policy: str
    score: Score
    cpu_us: float  # of the policy for each change or question

    @property
    def hit_rate(self) -> Rate:
        """Share of the questions that were answered rightly."""
        return wilson(self.score.hits, self.score.n)

    @property
    def stale_rate(self) -> Rate:
        """Share of the questions that were answered wrongly."""
        return wilson(self.score.stale, self.score.n)

    @property
    def wrong_of_answers(self) -> float:
        """Share of the answers given that were wrong: a policy that keeps little answers little, and so errs little."""
        return self.score.stale / max(1, self.score.stale + self.score.hits)


def measure(source: str, capacity: int, policy: str, traces: list[list[TraceEvent]]) -> Row:
    """Let a fresh ``policy`` live through each trace."""
    began, total = time.process_time(), Score(0, 0, 0)
    for trace in traces:
        held = make_eviction("lru", 10**6) if policy == LIMIT else make_eviction(policy, capacity)
        total = total + play(held, trace)
    steps = sum(len(trace) for trace in traces)
    return Row(source, capacity, policy, total, (time.process_time() - began) / steps * 1e6)


def compare(homes: int) -> list[Row]:
    """Return all rows."""
    rows = []
    for source, (generate, capacities) in SOURCES.items():
        traces = generate(homes)
        rows += [measure(source, size, name, traces) for size in capacities for name in (*EVICTIONS, LIMIT)]
    return rows


def peer_of(row: Row, rows: list[Row]) -> Row:
    """Return the peer at the same capacity on the same traces."""
    return next(r for r in rows if (r.source, r.capacity, r.policy) == (row.source, row.capacity, PEER))


def print_table(rows: list[Row]) -> None:
    """Print hit and stale rates, and each against the peer."""
    columns = ("traces", "capacity", "policy", "hit rate [95 %]", "wrong", "of answers", "hits / newest", "CPU us")
    table = Table(*columns, title="What a bounded short-term memory keeps")
    for row in rows:
        hit, ratio = row.hit_rate, row.score.hits / max(1, peer_of(row, rows).score.hits)
        shown = f"{hit.rate:.3f} [{hit.low:.3f}, {hit.high:.3f}]"
        cells = (row.source, str(row.capacity), row.policy, shown, f"{row.stale_rate.rate:.3f}",
                 f"{row.wrong_of_answers:.2f}", f"{ratio:.2f}")  # fmt: skip
        table.add_row(*cells, f"{row.cpu_us:.0f}", end_section=row.policy == LIMIT)
    Console(width=110).print(table)


def figure(row: Row, rows: list[Row]) -> dict[str, object]:
    """Return one figure: the hit rate; the target is to beat the peer beyond its interval."""
    hit, peer = row.hit_rate, peer_of(row, rows).hit_rate
    judged = row.policy not in (PEER, LIMIT)
    return {
        "name": f"eviction_{row.source}_{row.capacity}_{row.policy}_hit_rate",
        "value": round(hit.rate, 4),
        "interval": [round(hit.low, 4), round(hit.high, 4)],
        "n": hit.n,
        "wrong": round(row.stale_rate.rate, 4),
        "wrong_of_answers": round(row.wrong_of_answers, 4),
        "target": round(peer.high, 4) if judged else None,
        "met": hit.rate > peer.high if judged else None,
    }


def main(config: EvictionBenchmark | None = None) -> None:
    """Compare, print, save."""
    config = config or tyro.cli(EvictionBenchmark)
    where = machine()
    rows = compare(2 if config.quick else config.homes)
    print_table(rows)
    save_report(config.output, "eviction", where, config, figures=[figure(row, rows) for row in rows])


if __name__ == "__main__":
    main()
