"""Episodes for hours: does the memory of any process grow, does the loop become slower?"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engram.benchmarks.faults_kills import watched_figures
from engram.benchmarks.faults_loop import Loop
from engram.benchmarks.faults_pilot import Pilot
from engram.benchmarks.report import figure

SAMPLE_S = 5.0
WARM_SHARE = 1.0 / 3.0
"""Share of the samples at the beginning in which caches and pools fill."""
GROWTH_MB_H, SLOWDOWN_SHARE_H = 20.0, 0.05
"""What still counts as flat: memory of one process, and the median latency as a share of itself."""
LATENCY = "camera to command ms p50/p99"


@dataclass
class Samples:
    """What was read over time."""

    at_s: list[float] = field(default_factory=list)
    rss_mb: dict[str, list[float]] = field(default_factory=dict)
    latency_ms: list[float] = field(default_factory=list)  # p50 of the newest 4,096 steps


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process [MB]; raises OSError when it is gone."""
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")
    return float(fields[1].split()[0]) / 1024.0 if len(fields) > 1 else 0.0


def slope(at_s: list[float], values: list[float]) -> tuple[float, float, float]:
    """Return the slope of a straight line through ``values`` per hour, and its 95 % interval.

    Samples follow each other closely, so the interval comes from the means of ten blocks.
    """
    first = int(len(at_s) * WARM_SHARE)
    hours, kept = np.array(at_s[first:]) / 3600.0, np.array(values[first:])
    if len(kept) < 20:
        return 0.0, float("-inf"), float("inf")
    blocks = [(h.mean(), v.mean()) for h, v in zip(np.array_split(hours, 10), np.array_split(kept, 10), strict=True)]
    x, y = np.array(blocks).T
    line, covariance = np.polyfit(x, y, 1, cov=True)
    error = 2.31 * float(np.sqrt(covariance[0, 0]))  # Student's t, 8 degrees of freedom
    return float(line[0]), float(line[0]) - error, float(line[0]) + error


def trial(loop: Loop, pilot: Pilot, watched: Path, duration_s: float) -> list[dict[str, Any]]:
    """Run episodes for ``duration_s`` and return slopes."""
    began, begun, restarts, samples = time.monotonic(), pilot.begun, loop.supervisor.restarts, Samples()
    loop.every_turn = pilot.turn
    while (passed := time.monotonic() - began) < duration_s:
        loop.client.spin(min(SAMPLE_S, duration_s - passed + 0.01))
        take(loop, samples, time.monotonic() - began)
        if len(samples.at_s) % 60 == 0:
            print(f"{passed:.0f} s, {pilot.begun - begun} episodes", file=sys.stderr, flush=True)
    loop.every_turn = lambda: None
    found = figures(samples, pilot.begun - begun, loop.supervisor.restarts - restarts, long=duration_s >= 3600.0)
    return [*found, *watched_figures("soak", watched, began)]


def take(loop: Loop, samples: Samples, at_s: float) -> None:
    """Read the memory of every process and the loop's latency."""
    try:
        memory = {n: rss_mb(c.process.pid) for n, c in loop.supervisor.children.items() if c.process is not None}
    except OSError:  # a process ended just now
        return
    text = loop.value("sim_node", LATENCY).partition("/")[0]
    if not text:
        return
    samples.at_s.append(at_s)
    samples.latency_ms.append(float(text))
    for name, value in memory.items():
        samples.rss_mb.setdefault(name, []).append(value)


def figures(samples: Samples, episodes: int, restarts: int, *, long: bool) -> list[dict[str, Any]]:
    """Return the slopes; they are judged after a ``long`` run only: in minutes, caches still fill."""
    n, rows = len(samples.at_s), []
    for name, values in sorted(samples.rss_mb.items()):
        if len(values) != n:  # it was started again
            continue
        value, low, high = slope(samples.at_s, values)
        met = value <= GROWTH_MB_H if long else None
        interval = (low, high) if np.isfinite(low) else None
        target = f"<= {GROWTH_MB_H:g}" if long else None
        rows.append(figure(f"soak_{name}_growth_mb_per_h", value, n, interval, target, met, last_mb=round(values[-1])))
    value, low, high = slope(samples.at_s, samples.latency_ms)
    share = float(np.median(samples.latency_ms)) if n else 1.0
    interval = (low / share, high / share) if np.isfinite(low) else None
    met = value / share <= SLOWDOWN_SHARE_H if long else None
    rows.append(figure("soak_latency_growth_share_per_h", value / share, n, interval,
                       f"<= {SLOWDOWN_SHARE_H:g}" if long else None, met, median_ms=share))  # fmt: skip
    rows.append(figure("soak_episodes", episodes, episodes))
    rows.append(figure("soak_restarts", restarts, episodes, None, "== 0", restarts == 0))
    return rows
