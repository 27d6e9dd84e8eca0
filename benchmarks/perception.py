"""Scores the geometric detector on random tabletop scenes against the simulator's truth.

    python -m engram.benchmarks.perception [--scenes 200] [--first-seed 100000]

Beside it runs the plain Open3D recipe (plane, DBSCAN, axis-aligned boxes) on the same frames. A thing counts as
unoccluded when at least 70 % of the pixels it would fill alone are its own. Prints one table; the last line is JSON,
which also goes to benchmarks/results/perception.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np
import tyro
from scipy.optimize import linear_sum_assignment

from engram.benchmarks.perception_scenes import SCENE, OracleEye, OracleThing, draw_scene
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.core.types import CameraFrame
from engram.perception.cloud import above, lift
from engram.perception.geometric import GeometricDetector
from engram.perception.segmentation import SegmentationConfig, clusters
from engram.perception.support import SupportConfig, find_support
from engram.sim.world import MujocoWorld, WorldConfig

RESULTS = Path(__file__).resolve().parent / "results" / "perception.json"
Finder = Callable[[CameraFrame], list[tuple[str, np.ndarray]]]  # frame -> (label, centre (3,) m)


@dataclass(frozen=True)
class PerceptionBenchmark:
    """What is scored."""

    scenes: int = 200
    """Random scenes."""
    first_seed: int = 100_000
    """Scenes are drawn from this seed upwards; development used seeds below 1000."""
    sizes: tuple[int, ...] = (128, 256)
    """Image sizes [px]."""
    gate_m: float = 0.05
    """Farther pairs of object and detection are never the same thing."""
    unoccluded: float = 0.7
    """Visible share from which a missed thing counts as missed."""

    @property
    def quick(self) -> bool:
        """Return whether these are fewer scenes than the figures that are quoted rest on."""
        return self.scenes < PerceptionBenchmark.scenes


class Figure(TypedDict):
    """A rate with its 95 % interval."""

    value: float
    interval: list[float]
    n: int


class Summary(TypedDict):
    """What a finder is judged by at one image size."""

    recall: Figure
    precision: Figure
    label_accuracy: Figure
    centre_error_mm: dict[str, float]
    time_ms: dict[str, float]


@dataclass
class Score:
    """Counts and errors of one finder at one image size."""

    visible: int = 0
    recalled: int = 0
    detections: int = 0
    right: int = 0
    named: int = 0
    errors_m: list[float] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)

    def add(
        self, things: Sequence[OracleThing], found: list[tuple[str, np.ndarray]], bench: PerceptionBenchmark
    ) -> None:
        """Match one frame's detections with the truth (Hungarian) and count."""
        pairs = match(things, found, bench.gate_m)
        self.detections += len(found)
        self.right += len(pairs)
        for i, thing in enumerate(things):
            if thing.visible < bench.unoccluded:
                continue
            self.visible += 1
            if i in pairs:
                label, centre = found[pairs[i]]
                self.recalled += 1
                self.named += label == thing.label
                self.errors_m.append(float(np.linalg.norm(centre - thing.centre)))

    def summary(self) -> Summary:
        """Return the figures with their 95 % intervals."""

        errors, times = np.array(self.errors_m or [np.nan]) * 1e3, np.array(self.times_ms)
        return {
            "recall": _figure(self.recalled, self.visible),
            "precision": _figure(self.right, self.detections),
            "label_accuracy": _figure(self.named, self.recalled),
            "centre_error_mm": {"p50": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))},
            "time_ms": {"p50": float(np.median(times)), "p99": float(np.quantile(times, 0.99)), "n": len(times)},
        }


def match(things: Sequence[OracleThing], found: list[tuple[str, np.ndarray]], gate: float) -> dict[int, int]:
    """Return thing index -> detection index of the assignment with the least total distance, within ``gate`` m."""
    if not things or not found:
        return {}
    cost = np.linalg.norm(np.array([t.centre for t in things])[:, None] - np.array([c for _, c in found])[None], axis=2)
    rows, columns = linear_sum_assignment(np.minimum(cost, 2 * gate))
    return {int(i): int(j) for i, j in zip(rows, columns, strict=True) if cost[i, j] <= gate}


def ours() -> Finder:
    """Return the geometric detector as a finder."""
    detector = GeometricDetector()
    return lambda frame: [(o.label, o.pose.position) for o in detector.detect(frame).objects]


def plain_open3d(frame: CameraFrame) -> list[tuple[str, np.ndarray]]:
    """Plane, DBSCAN, middle of the axis-aligned box: Open3D's tutorials put together; nothing has a name."""
    points, valid = lift(frame, 0.1, 2.5)
    plane = find_support(points[valid], SupportConfig())
    if plane is None:
        return []
    cloud, _ = above(frame, points, valid, plane, 0.006)
    boxes = [cloud.points[index] for index in clusters(cloud, SegmentationConfig())]
    return [("", 0.5 * (b.min(axis=0) + b.max(axis=0))) for b in boxes]


def score_size(bench: PerceptionBenchmark, size: int) -> dict[str, Score]:
    """Score every finder on the same frames of ``size`` px."""
    finders: dict[str, Finder] = {"engram": ours(), "plain open3d": plain_open3d}
    scores = {name: Score() for name in finders}
    world = MujocoWorld(WorldConfig(profile="fast", depth=True, image_size=size))
    world.load(SCENE)
    eye = OracleEye(world)
    try:
        for seed in range(bench.first_seed, bench.first_seed + bench.scenes):
            world.load(SCENE)
            names = draw_scene(world, np.random.default_rng(seed))
            frame = world.observe(depth=True).cameras["front"]
            things = eye.oracle_things(names)
            for name, finder in finders.items():
                if seed == bench.first_seed:
                    finder(frame)  # the text encoder loads at the first label
                start = time.perf_counter()
                found = finder(frame)
                scores[name].times_ms.append(1e3 * (time.perf_counter() - start))
                scores[name].add(things, found, bench)
    finally:
        eye.close()
        world.close()
    return scores


def main(bench: PerceptionBenchmark) -> None:
    """Run, print the table, save the results."""
    where = machine()  # with the load before the measurement
    rows = {f"{name} {size}px": s.summary() for size in bench.sizes for name, s in score_size(bench, size).items()}
    print(
        f"{'':22s} {'recall':>22s} {'precision':>22s} {'labels':>8s} {'error p50/p90 mm':>17s} {'time p50/p99 ms':>17s}"
    )
    for name, row in rows.items():
        print(
            f"{name:22s} {_share(row['recall'])} {_share(row['precision'])} {row['label_accuracy']['value']:8.3f} "
            f"{row['centre_error_mm']['p50']:8.1f}/{row['centre_error_mm']['p90']:8.1f} "
            f"{row['time_ms']['p50']:8.1f}/{row['time_ms']['p99']:8.1f}"
        )
    save_report(RESULTS, "perception", where, bench, rows=rows)


def _figure(part: int, whole: int) -> Figure:
    rate = wilson(part, whole)
    return {"value": rate.rate, "interval": [rate.low, rate.high], "n": whole}


def _share(figure: Figure) -> str:
    low, high = figure["interval"]
    return f"{figure['value']:.3f} [{low:.3f}, {high:.3f}]".rjust(22)


if __name__ == "__main__":
    main(tyro.cli(PerceptionBenchmark))
