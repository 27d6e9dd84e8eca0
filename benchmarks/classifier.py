"""Success classifiers: how right they are on goals that they never saw, and what practice by their word alone is worth.

    python -m engram.benchmarks.classifier [--quick]

A classifier for each of some tasks of which the memory cannot tell whether they are done. It learns from 60 goals of
``engram`` on two simulated robots, which the simulator judged in place of a person (oracle). It is cross-validated on
them, each in a scene of its own. Then it judges goals in other scenes on one of these robots, and on one that differs
in another way; the simulator scores. Its progress is compared with the share of the way that successful goals had
come; goals are shown backwards and standing still. At the end ``engram`` practises one of the tasks on a robot with a
gap, by the word of the classifier alone, as in ``memory_practice`` by the simulator's. Everything lies in ``work`` and
is gone on with. Prints a table; the last line is JSON, which also goes to benchmarks/results/classifier.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import tyro
from rich.console import Console
from scipy.stats import bootstrap, spearmanr

from engram.app.classifier import FIRST_SEED as FIRST_LABELLED
from engram.app.classifier import oracle_goals
from engram.app.improve import ImproveConfig, practise
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.durable import write_atomic
from engram.core.errors import unknown_name
from engram.core.provenance import digest, machine
from engram.core.statistics import Rate
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.experience.reader import ExperienceReader
from engram.learning.replay.buffer import Episode, ReplayBuffer
from engram.learning.rewards.labelled_episodes import labelled_episodes
from engram.learning.rewards.success_classifier import LabelledEpisode, SuccessClassifier, figures_of, verdict_on
from engram.policies.loading import load_policy
from engram.policies.vla.vla_policy import VlaPolicy

TASKS = ("intercept_grab", "put_block_back", "touch_unseen")
"""No relation of the scene graph says them."""
LABELLED, TAUGHT_ON = 60, ("none", "turned")
HELD_OUT, JUDGED_ON = 40, ("none", "turned_scaled")
FIRST_SEED = 66_000
"""Scenes that are judged; those of the labelled goals begin with 60,000, those of practice with 20,000. The classifier
was designed while looking at intercept_grab in the scenes from 65,000 on."""
PRACTISED = ("intercept_grab", "turned")
SEARCH, MEASURED, SEED = 50, 100, 2
TARGETS = {"right": 0.97, "false_success": 0.01}
STILL = 20
"""Steps for which a goal that stands still is shown."""
SEEDS = f"from {FIRST_LABELLED} (labelled), from {FIRST_SEED} (judged), {SEED} (practice)"
_ROOMS = ("app", "core", "learning", "memory", "perception", "policies", "runtime", "sim", "validation")
CODE = (*(f"{room}/**/*.py" for room in _ROOMS), "policies/checkpoints/**/*")
"""What the goals and the classifiers depend on."""
SETTINGS = {
    "labelled": LABELLED,
    "taught_on": TAUGHT_ON,
    "held_out": HELD_OUT,
    "judged_on": JUDGED_ON,
    "practised": PRACTISED,
    "search": SEARCH,
}


@dataclass(frozen=True)
class ClassifierBenchmark:
    """What is measured."""

    quick: bool = False
    """One task, few goals, no practice."""
    tasks: tuple[str, ...] = TASKS
    """Which tasks."""
    practice: bool = True
    """Whether the policy practises by the classifier's word, too."""
    work: Path = Path("runs/classifier")
    """Folder of goals and practices."""
    output: Path = RESULTS / "classifier.json"
    """Where the JSON goes."""

    @property
    def kept(self) -> Path:
        """The folder in ``work`` of what this code found with these settings."""
        return self.work / f"{'quick' if self.quick else 'full'}_code_{digest(*CODE)}"

    def __post_init__(self) -> None:
        for name in self.tasks:
            if name not in TASKS:
                raise unknown_name("ClassifierBenchmark.tasks", name, TASKS)


def judged(policy: VlaPolicy, task: str, config: ClassifierBenchmark) -> dict[str, Any]:
    """Return what a classifier of ``task`` said of goals that it never saw, one finished before first."""
    folder = config.kept / task
    kept = folder / "judged.json"
    if kept.exists():
        return json.loads(kept.read_text())
    labelled, held_out = (16, 8) if config.quick else (LABELLED, HELD_OUT)
    oracle_goals(policy, (task,), TAUGHT_ON, labelled, folder / "labelled")
    oracle_goals(policy, (task,), JUDGED_ON, held_out, folder / "held_out", FIRST_SEED)
    encoder, goals = labelled_episodes(folder / "labelled", policy)
    learnt = SuccessClassifier.fit(encoder, goals, seed=SEED)
    learnt.save(folder / "classifier")
    _, others = labelled_episodes(folder / "held_out", policy)
    told = [verdict_on(learnt.judge(one.features)[:, 0]) for one in others]
    out = {
        "goals": {"labelled": len(goals), "reached": sum(one.success for one in goals)},
        "told": told,
        "success": [one.success for one in others],
        "cross_validated": learnt.figures,
        "progress": progress(policy, learnt, folder / "held_out", others),
    }
    write_atomic(kept, json.dumps(out).encode())
    return out


def progress(
    policy: VlaPolicy, learnt: SuccessClassifier, folder: Path, goals: Sequence[LabelledEpisode]
) -> dict[str, list[float]]:
    """Return, for each reached goal, its rank correlation with the way that it had come, and what the progress gains
    over a whole goal: forwards, backwards, and standing still in the middle of it."""
    cloning = clone_policy(policy)
    replay = ReplayBuffer(shrink=cloning.shrink)
    for number, steps in enumerate(ExperienceReader(folder).episodes(), 1):
        if steps[-1].success:
            replay.add(number, steps)
    out: dict[str, list[float]] = {name: [] for name in ("rank", "forwards", "backwards", "still")}
    for one in goals:
        if one.success:
            way = learnt.judge(one.features)[:, 1]
            out["rank"].append(float(spearmanr(way, one.progress(), nan_policy="omit").statistic))
    for episode in replay.episodes:
        n = len(episode)
        shown = {"forwards": np.arange(n), "backwards": np.arange(n)[::-1], "still": np.full(STILL, n // 2)}
        for name, order in shown.items():
            rows = cloning.conditions(_reordered(episode, order)).numpy()
            way = learnt.judge(rows)[:, 1]
            way = way[~np.isnan(way)]
            out[name].append(float(way[-1] - way[0]) if len(way) > 1 else math.nan)
    return out


def _reordered(episode: Episode, order: np.ndarray) -> Episode:
    """Return ``episode`` as if its steps had come in ``order``."""
    context = episode.context
    if context is not None:
        context = replace(
            context, **{name: getattr(context, name)[order] for name in ("which", "age_s", "place", "mask")}
        )
    images = {name: np.ascontiguousarray(stack[order]) for name, stack in episode.images.items()}
    return replace(
        episode,
        images=images,
        state=episode.state[order],
        action=episode.action[order],
        person=episode.person[order],
        context=context,
    )


def practised(config: ClassifierBenchmark) -> dict[str, Any]:
    """Let ``engram`` practise by the classifier's word; return the report of ``engram improve``."""
    task, gap = PRACTISED
    return practise(
        ImproveConfig(
            task=task,
            on=gap,
            policy="engram",
            episodes=SEARCH,
            measure_at=(0, SEARCH),
            measured=MEASURED,
            verdict=str(config.kept / task / "classifier"),
            seed=SEED,
            work=config.kept,
        )
    )


def rows_of(task: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of one task: on the robots that it learnt on, other scenes, and on each that is judged."""
    robots = [gap for number, gap in enumerate(JUDGED_ON) for _ in found["told"][number :: len(JUDGED_ON)]]
    parts = {"taught": found["cross_validated"]}
    for gap in JUDGED_ON:
        those = [i for i, robot in enumerate(robots) if robot == gap]
        parts[gap] = figures_of([found["told"][i] for i in those], [found["success"][i] for i in those])
    out = []
    for robot, figures in parts.items():
        for name, rate in figures.items():
            if rate is None:  # of no goals
                continue
            low_is_good, target = name != "right", TARGETS.get(name)
            met = None
            if target is not None:
                met = bool(rate["rate"] <= target if low_is_good else rate["rate"] >= target)
            said = None if target is None else f"{'<=' if low_is_good else '>='} {target}"
            ends = rate["low"], rate["high"]
            out.append(
                figure(f"{name}_{task}_{robot}", rate["rate"], rate["n"], ends, said, met, task=task, robot=robot)
            )
    for name, values in found["progress"].items():
        kept = np.array([one for one in values if not math.isnan(one)])
        if not len(kept):
            continue
        mean, ends = float(kept.mean()), (float(kept.min()), float(kept.max()))
        if ends[0] < ends[1]:
            low, high = bootstrap((kept,), np.mean, rng=SEED).confidence_interval
            ends = float(low), float(high)
        goal = (">= 0.9", mean >= 0.9) if name == "rank" else (None, None)
        out.append(figure(f"progress_{name}_{task}", mean, len(kept), ends, *goal, task=task))
    return out


def main(config: ClassifierBenchmark | None = None) -> None:
    """Measure what ``config``, by default the command line, says."""
    config, where = config or tyro.cli(ClassifierBenchmark), machine()
    torch.set_num_threads(1)
    policy = cast(VlaPolicy, load_policy("engram"))
    figures: list[dict[str, Any]] = []
    for task in config.tasks[:1] if config.quick else config.tasks:
        figures += rows_of(task, judged(policy, task, config))
    if config.practice and not config.quick:
        report = practised(config)
        for row in report["curve"]:
            rate = Rate(**row["success"])
            figures.append(figure(f"practised_after_{row['episodes']}", rate.rate, rate.n, (rate.low, rate.high)))
        learnt_from = [one for one in report["episodes"] if one["success"]]
        wrong = sum(not one["oracle_success"] for one in learnt_from)
        figures.append(figure("practised_wrongly_confirmed", wrong / max(1, len(learnt_from)), len(learnt_from)))
    console = Console(stderr=True)
    for one in figures:
        console.print(f"{one['name']}: {one['value']:.3f} (n {one['n']}) {one['target'] or ''}", markup=False)
    save_report(config.output, "classifier", where, config, figures=figures, settings=SETTINGS, seeds=SEEDS)


if __name__ == "__main__":
    main()
