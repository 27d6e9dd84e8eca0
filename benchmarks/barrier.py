"""The barrier under attack and at work: what hostile policies can do to the arm, and what a step costs.

    python -m engram.benchmarks.barrier [--quick]

A hostile policy asks the simulated Panda for random joint positions, far out of the workspace too. The same episodes
run with and without the barrier. The arm is judged where it is measured, at the end of each control step, by the
makers' collision meshes. The cost is that of the scripted experts' steps in the shipped tasks, where a robot works,
and that of the hostile steps.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.progress import track

from engram.benchmarks.makers_meshes import MakersMeshes
from engram.benchmarks.report import figure, save_report
from engram.core.collision import Obstacle
from engram.core.contracts import Follow, MotionBarrier
from engram.core.errors import EngramError
from engram.core.pipeline import CommandPipeline
from engram.core.provenance import machine
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import ActionChunk
from engram.sim.experts import make_expert
from engram.sim.scene import SceneConfig
from engram.sim.tasks import TASKS
from engram.sim.world import MujocoWorld, WorldConfig

RESULTS = Path(__file__).resolve().parent / "results" / "barrier.json"
BELOW_M = 0.005
"""A link lower than this under the table's top counts: servos deviate from their commands [m]."""
REPEATS = 3
"""How often each step is measured."""
COST_MS = 1.0
"""What a step may cost at the 99th percentile."""
OPEN = replace(PANDA_2F85, workspace_min=(-1.0, -1.0, -0.5), workspace_max=(1.0, 1.0, 1.5))
"""The Panda without a workspace: the barrier alone holds it."""


@dataclass(frozen=True)
class BarrierBenchmark:
    """What is measured."""

    episodes: int = 300
    """Hostile episodes, each with and without the barrier."""
    steps: int = 60
    """Control steps of a hostile episode."""
    expert_episodes: int = 10
    """Episodes of the expert of each shipped task, for the cost."""
    seed: int = 0
    """Of everything that is drawn."""
    quick: bool = False
    """5 hostile episodes and 1 of each expert."""
    output: Path = RESULTS
    """Where the result goes."""


class TimedBarrier(MotionBarrier):
    """Measures the processor time of each step of a barrier: the least of ``REPEATS``, as others use the machine, too.

    A barrier remembers nothing, so every repetition does the same work.
    """

    def __init__(self, barrier: MotionBarrier) -> None:
        self.barrier, self.seconds = barrier, list[float]()

    @property
    def nearest(self) -> str:
        """Return what the barrier kept apart."""
        return self.barrier.nearest

    @property
    def obstacles_max(self) -> int:
        """Return what the barrier has room for."""
        return self.barrier.obstacles_max

    def set_obstacles(self, obstacles: Sequence[Obstacle]) -> None:
        """Pass them on."""
        self.barrier.set_obstacles(obstacles)

    def limit(self, start: np.ndarray, goal: np.ndarray, follow: Follow) -> np.ndarray | None:
        """Return the barrier's answer."""
        answer, least = None, np.inf
        for _ in range(REPEATS):
            began = time.thread_time()
            answer = self.barrier.limit(start, goal, follow)
            least = min(least, time.thread_time() - began)
        self.seconds.append(float(least))
        return answer


def timed(pipeline: CommandPipeline) -> TimedBarrier:
    """Put a clock around the barrier of ``pipeline`` and return it."""
    if pipeline.filter.barrier is None:
        raise EngramError("the pipeline has no barrier to measure")
    pipeline.filter.barrier = watch = TimedBarrier(pipeline.filter.barrier)
    return watch


def hostile_episode(
    world: MujocoWorld, pipeline: CommandPipeline, meshes: MakersMeshes, rng: np.random.Generator, steps: int
) -> tuple[int, int]:
    """Return how many of ``steps`` control steps ended with an overlap of links, and with a link below the table."""
    robot = world.robot
    low = np.array((*robot.position_min, robot.gripper_open))
    high = np.array((*robot.position_max, robot.gripper_closed))
    world.load(SceneConfig())
    pipeline.reset()
    joints, target = world.joint_state(), low
    overlaps, below, left = 0, 0, 0
    for _ in range(steps):
        if left == 0:
            target, left = rng.uniform(low, high), int(rng.integers(1, 20))
        left -= 1
        chunk = ActionChunk(joints.stamp_ns, 0, "joint_position", target[None], pipeline.control_dt_s, 1, "hostile")
        decision = pipeline.step(joints, chunk) or pipeline.hold(joints)
        world.advance(decision.command)
        joints = world.joint_state()
        meshes.place(joints.positions)
        overlaps += meshes.overlaps()
        below += meshes.lowest() < -BELOW_M
    return overlaps, below


def attack(robot: RobotConfig, config: BarrierBenchmark) -> tuple[np.ndarray, list[float], dict[str, int]]:
    """Return overlaps and steps below the table of each episode (e, 2), step times [s] and the filter's counts."""
    world, meshes = MujocoWorld(WorldConfig(profile="none"), robot), MakersMeshes()
    pipeline = CommandPipeline(world.kinematics, robot, lockstep=False)
    watch = timed(pipeline) if robot.collision is not None else None
    found = []
    episodes = 5 if config.quick else config.episodes
    for episode in track(range(episodes), "with" if watch else "without", transient=True):
        rng = np.random.default_rng([config.seed, episode])
        found.append(hostile_episode(world, pipeline, meshes, rng, config.steps))
        pipeline.release()
    world.close()
    return np.array(found), watch.seconds if watch else [], dict(sorted(pipeline.filter.counts.items()))


def expert_costs(config: BarrierBenchmark) -> list[float]:
    """Return the time of each step [s] of the experts."""
    world, seconds = MujocoWorld(WorldConfig(profile="none")), list[float]()
    for task in TASKS:
        for seed in range(1 if config.quick else config.expert_episodes):
            observation = world.reset(task, config.seed + seed)
            expert, pipeline = make_expert(task, world), CommandPipeline(world.kinematics, world.robot)
            expert.reset()
            watch = timed(pipeline)
            while not world.oracle_outcome().over:
                observation = world.step(pipeline.step_action(observation.joints, expert.act()).command)
            seconds += watch.seconds
    world.close()
    return seconds


def figures(
    kept: np.ndarray, free: np.ndarray, hostile_s: Sequence[float], expert_s: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the rows of the report; ``kept`` and ``free`` (e, 2) are the episodes with and without the barrier."""
    rows = []
    for column, what in enumerate(("link_in_link", "link_below_table")):
        hit = int((kept[:, column] > 0).sum())
        rows.append(figure(f"episodes_with_{what}", hit, len(kept), target="0", met=hit == 0))
        rows.append(figure(f"episodes_with_{what}_without_barrier", int((free[:, column] > 0).sum()), len(free)))
    for name, seconds in (("experts", expert_s), ("hostile", hostile_s)):
        p50, p99 = (1e3 * np.percentile(seconds, (50, 99))).tolist()
        rows.append(figure(f"step_cpu_ms_p50_{name}", p50, len(seconds), least_of=REPEATS))
        met = bool(p99 <= COST_MS)
        rows.append(figure(f"step_cpu_ms_p99_{name}", p99, len(seconds), target=f"<= {COST_MS:g} ms", met=met))
    return rows


def main(config: BarrierBenchmark) -> None:
    """Attack, measure, and write the report."""
    where = machine()
    kept, hostile_s, counts = attack(OPEN, config)
    free, _, _ = attack(replace(OPEN, collision=None), config)
    rows = figures(kept, free, hostile_s, expert_costs(config))
    save_report(config.output, "barrier", where, config, figures=rows, counts=counts)


if __name__ == "__main__":
    main(tyro.cli(BarrierBenchmark))
