"""The limits of motion under attack: hostile policies, persons and encoders against the decision for a command.

    python -m engram.benchmarks.limits [--quick]

Each episode draws a policy, a fault of the encoders, servos that lag or are blocked, and people who stop and release.
The commands are then checked as a sequence: position, velocity, acceleration and jerk. In half of the episodes the
robot's jerk limits are divided by 100: as they are, they cannot be exceeded at 10 commands a second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.progress import track

from engram.benchmarks.hostile import LIMITS, HostileEpisode, usage
from engram.benchmarks.report import figure, save_report
from engram.core.pipeline import CommandPipeline
from engram.core.provenance import machine
from engram.core.registry import make_kinematics, make_robot
from engram.core.robot import RobotConfig

RESULTS = Path(__file__).resolve().parent / "results" / "limits.json"
JERK_DIVISOR = 100.0
EXACT = 1e-7
"""Rounding, as a share of a limit: a jerk is a difference of third order."""


@dataclass(frozen=True)
class LimitsBenchmark:
    """What is measured."""

    robots: tuple[str, ...] = ("panda_2f85", "so101")
    """Robots, in equal shares of the episodes."""
    episodes: int = 10_000
    """Episodes in all."""
    steps: int = 40
    """Control steps of an episode."""
    seed: int = 0
    """Of everything that is drawn."""
    quick: bool = False
    """200 episodes."""
    output: Path = RESULTS
    """Where the result goes."""


def variants(names: Sequence[str]) -> list[tuple[RobotConfig, CommandPipeline]]:
    """Return each robot as it is, and with a jerk limit that binds."""
    made = []
    for robot in map(make_robot, names):
        kinematics = make_kinematics(robot)
        for variant in (robot, replace(robot, jerk_max=tuple(j / JERK_DIVISOR for j in robot.jerk_max))):
            made.append((variant, CommandPipeline(kinematics, variant, lockstep=False)))
    return made


class Stopwatch:
    """Measures the processor time of each decision: others may use the machine, too."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__[T](self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns."""
        began = time.thread_time()
        answer = call()
        self.seconds.append(time.thread_time() - began)
        return answer


def attack(config: LimitsBenchmark) -> tuple[dict[str, list[float]], Counter[str], list[float]]:
    """Run all episodes; return the share of each limit that each used, why steps were held, and decision times [s]."""
    attacked, watch = variants(config.robots), Stopwatch()
    used: dict[str, list[float]] = {limit: [] for limit in LIMITS}
    episodes = 200 if config.quick else config.episodes
    for episode in track(range(episodes), "episodes", transient=True):
        robot, pipeline = attacked[episode % len(attacked)]
        rng = np.random.default_rng([config.seed, episode])
        commands = HostileEpisode(pipeline, rng, config.steps).run(watch)
        for limit, share in usage(commands, robot, pipeline.control_dt_s).items():
            used[limit].append(share)
    counts = sum((pipeline.filter.counts for _, pipeline in attacked), Counter())
    return used, counts, watch.seconds


def figures(used: dict[str, list[float]], seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Return the rows of the report."""
    rows = []
    for limit, shares in used.items():
        beyond = int((np.array(shares) > 1.0 + EXACT).sum())
        rows.append(figure(f"episodes_beyond_{limit}_limit", beyond, len(shares), target="0", met=beyond == 0))
        rows.append(figure(f"largest_share_of_{limit}_limit", max(shares), len(shares)))
    p50, p99 = (1e3 * np.percentile(seconds, (50, 99))).tolist()
    rows.append(figure("decision_cpu_ms_p50", p50, len(seconds)))
    rows.append(figure("decision_cpu_ms_p99", p99, len(seconds), target="<= 1", met=p99 <= 1.0))
    return rows


def main(config: LimitsBenchmark) -> None:
    """Attack, and write the report."""
    where = machine()
    used, counts, seconds = attack(config)
    save_report(
        config.output, "limits", where, config, figures=figures(used, seconds), counts=dict(sorted(counts.items()))
    )


if __name__ == "__main__":
    main(tyro.cli(LimitsBenchmark))
