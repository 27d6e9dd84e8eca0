"""Does a robot's record tell its gap, and does a simulation with that gap rank policies as the robot does?

    python -m engram.benchmarks.identification [--quick]

Robots whose gaps are known work with ``base``, and ``engram identify`` looks at what they recorded: twelve that have
names, six drawn from a seed, and the twin. On the twin, twenty policies of mixed quality are tried: on itself,
in the gate's simulation as it is, and in the gate's simulation with the gap that was found. Success there should rank
the policies as success on the twin does. All of it is simulation to simulation. What is finished is kept in ``work``.
Prints tables; the last line is JSON, which also goes to benchmarks/results/identification.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file
from scipy.spatial.transform import Rotation
from scipy.stats import spearmanr

from engram.benchmarks.gate_planted import Change, Weights, acts, noise, times
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.child import run_spawned
from engram.core.durable import write_atomic
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.core.types import Transition
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.factories import policy_folder
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import GAPS, Gap
from engram.sim.tasks import TASKS
from engram.validation.following import MATTERS
from engram.validation.identify import identify
from engram.validation.of_learner import contender
from engram.validation.trials import FIRST_SEED, Contender, run_trial

TWIN = "twin"
DRAWN = 6
RECORD_SEED, TWIN_SEED = 96_000, 97_000
"""First scenes of the records, and of the trials on the twin; the gate's are others."""
RECORDED = ("pick_place", "stack", "open_drawer")
FRONT_M = np.array([1.02, 0.0, 0.78])
"""Where the front camera is nominally, in base_link [m]."""
TARGET = 0.9
"""Rank correlation that is wanted with the gap that was found."""


@dataclass(frozen=True)
class IdentificationBenchmark:
    """What is measured."""

    quick: bool = False
    """Two robots, four policies, two scenes a task."""
    episodes: int = 6
    """Recorded episodes of each of three tasks."""
    scenes: int = 8
    """Scenes of each of six tasks, for each policy and place."""
    workers: int = 2
    """Processes."""
    work: Path = Path("runs/identification")
    """Folder of what is finished."""
    output: Path = RESULTS / "identification.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "scenes", "workers"):
            positive_int(f"IdentificationBenchmark.{name}", getattr(self, name))


# -- the robots --------------------------------------------------------------------------------------------------------


def robots() -> dict[str, Gap]:
    """Return robots by name: with the gaps that have one, drawn ones, and the twin."""
    found = dict(GAPS)
    for number in range(DRAWN):
        rng = np.random.default_rng([number, 34])
        turned = number % 3 == 2  # where the robot stands turned, its front camera has not moved besides
        front = (0.0, 0.0, 0.0) if turned else tuple(rng.uniform(-0.03, 0.03, 3).tolist())
        found[f"drawn {number}"] = Gap(
            yaw_deg=float(rng.uniform(-15, 15)),
            gain=float(rng.uniform(0.75, 1.4)),
            deadband=float(rng.uniform(0.0, 0.1)),
            front_m=front,
            front_yaw_deg=0.0 if turned else float(rng.uniform(-3, 3)),
            wrist_m=tuple(rng.uniform(-0.006, 0.006, 3).tolist()),
            friction=float(rng.uniform(0.7, 1.4)),
            mass=float(rng.uniform(0.7, 1.5)),
            mounted_deg=float(rng.uniform(2, 6)) if turned else 0.0,
            latency_steps=int(rng.integers(3)),
            dropped=float(rng.uniform(0.0, 0.2)),
            damping=float(rng.uniform(0.6, 3.0)),
            brightness=float(rng.uniform(0.6, 1.2)),
            camera_noise=float(rng.uniform(0.0, 0.04)),
        )
    found[TWIN] = Gap(
        yaw_deg=-10.0,
        gain=1.3,
        front_m=(0.0, 0.02, 0.0),
        front_yaw_deg=-2.0,
        friction=0.8,
        mass=1.3,
        latency_steps=1,
        dropped=0.1,
        damping=1.5,
        brightness=0.9,
        camera_noise=0.01,
    )
    return found


def recorded(gap: Gap, episodes: int) -> list[tuple[Transition, ...]]:
    """Return what a robot with ``gap`` records while ``base`` drives it, with the noise of practice."""
    from engram.policies.loading import load_policy  # torch: only in the processes that run networks
    from engram.policies.vla.chunking import follow
    from engram.runtime.loop import Runtime

    world = GapWorld(gap)
    pipeline, steps, kept = gap_pipeline(world), list[Transition](), list[tuple[Transition, ...]]()
    recorder = ExperienceRecorder(world.kinematics, world.robot, steps.append, lambda: len(kept) + 1)
    explore = Exploration(ExplorationConfig(size=0.1), 0)
    runtime = Runtime(world, follow(load_policy("base")), pipeline, recorder=recorder, explore=explore)
    for number in range(episodes):
        for task in RECORDED:
            steps.clear()
            runtime.run_episode(task, RECORD_SEED + number)
            kept.append(tuple(steps))
    world.close()
    return kept


def identified(name: str, config: IdentificationBenchmark) -> dict[str, Any]:
    """Return what the record of the robot ``name`` tells."""
    true = robots()[name]
    found = identify(recorded(true, config.episodes), Gap(limits=true.limits))
    told = {what: asdict(one) for what, one in found.estimates.items()}
    return {"true": asdict(true), "found": asdict(found.gap), "estimates": told, "errors": found.errors}


def off(true: Gap, found: Gap) -> dict[str, float]:
    """Return the errors of a gap that was found; where the front camera is, is told as the robot sees it."""
    sees = [
        Rotation.from_euler("z", -gap.mounted_deg, degrees=True).apply(FRONT_M + gap.front_m) for gap in (true, found)
    ]
    turned = [gap.front_yaw_deg - gap.mounted_deg for gap in (true, found)]
    return {
        "yaw_deg": abs(true.yaw_deg - found.yaw_deg),
        "gain": abs(true.gain - found.gain),
        "deadband": abs(true.deadband - found.deadband),
        "front_m": float(np.linalg.norm(sees[0] - sees[1])),
        "front_yaw_deg": abs(turned[0] - turned[1]),
        "wrist_m": float(np.linalg.norm(np.subtract(true.wrist_m, found.wrist_m))),
        "mounted_deg": abs(true.mounted_deg - found.mounted_deg),
        "latency_steps": float(abs(true.latency_steps - found.latency_steps)),
        "dropped": abs(true.dropped - found.dropped),
        "damping": abs(true.damping - found.damping),
        "brightness": abs(true.brightness - found.brightness),
        "camera_noise": abs(true.camera_noise - found.camera_noise),
    }


# -- the policies ------------------------------------------------------------------------------------------------------


def policies() -> dict[str, Change]:
    """Return how each of twenty policies is made from ``base``."""
    made: dict[str, Change] = {"base": _same}
    for turn, gain in ((10, 1.0), (20, 1.0), (-10, 1.0), (-20, 1.0), (10, 0.75), (20, 0.6), (-10, 1.3), (10, 1.3)):
        made[f"turned by {turn}, times {gain}"] = acts(_moves(turn, gain))
    for gain in (0.5, 0.6, 0.75, 0.9, 1.3):
        made[f"times {gain}"] = acts(times(dict.fromkeys((0, 1, 2), gain)))
    for share in (0.1, 0.15, 0.2, 0.25):
        made[f"noise of {share:.0%}"] = noise(share, 7)
    for drift in (0.15, -0.15):
        made[f"drifts sideways by {drift:+}"] = acts(np.eye(7), (0.0, drift, 0.0, 0.0, 0.0, 0.0, 0.0))
    return made


def _same(weights: Weights) -> Weights:
    return weights


def _moves(turn_deg: float, gain: float) -> np.ndarray:
    """Return the matrix (7, 7) that turns motions about the vertical and scales them."""
    matrix = np.eye(7)
    matrix[:3, :3] = gain * Rotation.from_euler("z", turn_deg, degrees=True).as_matrix()
    return matrix


def tried(name: str, place: str, gap: Gap, config: IdentificationBenchmark) -> dict[str, Any]:
    """Return the successes of a policy at ``place``: the twin as it is, or the gate's simulation with ``gap``."""
    base, file = contender(policy_folder("base")), config.work / "weights" / f"{_file(name)}.safetensors"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = policies()[name](load_file(Path(base.checkpoint) / WEIGHTS))
        save_file({key: np.ascontiguousarray(value) for key, value in made.items()}, file)
    who = replace(base, weights=str(file), sha256=sha256(file))
    jobs = [(task, seed) for task in TASKS for seed in range(config.scenes)]
    run = _on_twin(who) if place == TWIN else partial(_in_gate, who, gap)
    return {"successes": sum(run(task, seed) for task, seed in jobs), "n": len(jobs)}


def _in_gate(who: Contender, gap: Gap, task: str, scene: int) -> bool:
    return run_trial(who, task, FIRST_SEED + scene, gap).success


def _on_twin(who: Contender) -> Callable[[str, int], bool]:
    from engram.policies.loading import load_policy  # torch
    from engram.validation.evaluation import make_runtime

    policy = load_policy(who.checkpoint)
    policy.load_weights(Path(who.weights), who.sha256)
    world = GapWorld(robots()[TWIN])
    runtime = make_runtime(policy, world, pipeline=gap_pipeline(world))
    return lambda task, scene: runtime.run_episode(task, TWIN_SEED + scene).oracle_success


# -- all of it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One piece of work; its answer is kept."""

    config: IdentificationBenchmark
    robot: str = ""
    """Identify this one."""
    policy: str = ""
    """Or try this one at ``place``."""
    place: str = ""
    gap: Gap = GAPS["none"]

    @property
    def kept(self) -> Path:
        """Where the answer is kept."""
        return self.config.work / f"{_file(self.robot or f'{self.policy} at {self.place}')}.json"


def answer(job: Job) -> tuple[Job, dict[str, Any]]:
    """Do a job, unless it was done before."""
    if not job.kept.exists():
        done = identified(job.robot, job.config) if job.robot else tried(job.policy, job.place, job.gap, job.config)
        write_atomic(job.kept, json.dumps(done).encode())
    return job, dict(json.loads(job.kept.read_text()))


def _file(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-+." else "_" for c in name)


def _all(jobs: Sequence[Job], workers: int) -> dict[Job, dict[str, Any]]:
    console = Console(stderr=True)
    answers = {}
    for job, told in run_spawned(answer, jobs, workers):
        answers[job] = told
        console.print(f"{len(answers)} of {len(jobs)}: {job.robot or f'{job.policy} at {job.place}'}")
    return answers


def main(config: IdentificationBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(IdentificationBenchmark)
    where, console = machine(), Console(stderr=True, width=140)
    if config.quick:
        config = replace(config, scenes=2)
    names = ["turned", TWIN] if config.quick else list(robots())
    told = {job.robot: one for job, one in _all([Job(config, robot=name) for name in names], config.workers).items()}
    errors = {name: off(_gap(told[name]["true"]), _gap(told[name]["found"])) for name in names}
    table = Table("value", "median error", "largest error", "robots", title="How far off the gap that was found is")
    figures = []
    for what, matters in MATTERS.items():
        each = [errors[name][what] for name in names]
        worst = max(each)
        table.add_row(what, f"{np.median(each):.4g}", f"{worst:.4g}", str(len(each)))
        median, most = f"identification_{what}_median_error", f"identification_{what}_largest_error"
        figures.append(figure(median, float(np.median(each)), len(each), digits=5))
        figures.append(figure(most, worst, len(each), None, f"<= {matters:g}", worst <= matters, digits=5))
    console.print(table)
    ranked, rows = _ranks(config, _gap(told[TWIN]["found"]), console)
    robot_rows = [{"robot": name, **told[name], "off": errors[name]} for name in names]
    told_config = replace(config, work=Path(config.work.name))
    save_report(
        config.output, "identification", where, told_config, figures=figures + ranked, robots=robot_rows, policies=rows
    )


def _ranks(
    config: IdentificationBenchmark, found: Gap, console: Console
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rank correlations with the twin, before and after identification, and the successes."""
    names = list(policies())[: 4 if config.quick else None]
    places = {TWIN: Gap(), "as it is": Gap(), "with its gap": found}
    jobs = [Job(config, policy=name, place=place, gap=gap) for name in names for place, gap in places.items()]
    done = {(job.policy, job.place): one for job, one in _all(jobs, config.workers).items()}
    table = Table("policy", *places, title="Successes on the twin and in the gate's simulation")
    for name in names:
        rates = [done[name, place] for place in places]
        table.add_row(name, *(str(wilson(one["successes"], one["n"])) for one in rates))
    console.print(table)
    counts = {place: np.array([done[name, place]["successes"] for name in names], float) for place in places}
    figures = []
    for place, what, target in (("as it is", "before", None), ("with its gap", "after", TARGET)):
        value, low, high = _correlation(counts[TWIN], counts[place])
        wanted = ("", None) if target is None else (f">= {target}", value >= target)
        figures.append(figure(f"rank_correlation_{what}", value, len(names), (low, high), *wanted))
    rows = [{"policy": name, **{place: done[name, place] for place in places}} for name in names]
    return figures, rows


def _correlation(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Return Spearman's rank correlation, and the interval in which 95 % of resampled sets of policies have it."""
    rng, drawn = np.random.default_rng(0), list[float]()
    while len(drawn) < 2000:
        at = rng.integers(len(one), size=len(one))
        if len(set(one[at])) > 1 and len(set(other[at])) > 1:
            drawn.append(float(spearmanr(one[at], other[at]).statistic))
    low, high = np.percentile(drawn, (2.5, 97.5))
    return float(spearmanr(one, other).statistic), float(low), float(high)


def _gap(told: dict[str, Any]) -> Gap:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Gap(**values)


if __name__ == "__main__":
    main()
