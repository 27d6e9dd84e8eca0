"""Success classifiers: how right they are on goals that they never saw, and what practice by their word alone is worth.

    python -m engram.benchmarks.classifier [--quick]

A classifier for each of some tasks of which the memory cannot tell whether they are done. It learns from 60 goals of
``engram`` on two simulated robots, which the simulator judged in place of a person (oracle). It is cross-validated on
them, each in a scene of its own. Then it judges goals in other scenes on one of these robots, and on one that differs
in another way; the simulator scores. Its progress is compared with the share of the way that successful goals had
come; goals are shown backwards, standing still, and under the words of another goal. At the end ``engram`` practises
one of the tasks on a robot with a gap, by the word of the classifier alone, as in ``memory_practice`` by the
simulator's. Everything lies in ``work`` and is gone on with. Prints a table; the last line is JSON, which also goes to
benchmarks/results/classifier.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from engram.learning.replay.buffer import ReplayBuffer
from engram.learning.rewards.clips import ClipsConfig, other_words, reordered, under_words
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
WAYS = ("forwards", "backwards", "still")
"""How a goal is shown."""
STILL = 20
"""Steps for which a goal that stands still is shown."""
CLIPS = ClipsConfig()
"""In which each reached goal is learnt from once more."""
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
    "clips": asdict(CLIPS),
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
    encoder, goals = labelled_episodes(folder / "labelled", policy, clips=CLIPS, seed=SEED)
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
    """Return what the progress makes of each reached goal.

    ``rank``: its rank correlation with the way that the goal had come. ``forwards``, ``backwards``, ``still``: what it
    gains over a whole goal that is shown so, standing still in the middle of it. ``wrong_words``: where it ends under
    the words of another of ``goals``. ``missed``: where it ends in goals that were missed.
    """
    cloning = clone_policy(policy)
    replay = ReplayBuffer(shrink=cloning.shrink)
    for number, steps in enumerate(ExperienceReader(folder).episodes(), 1):
        if steps[-1].success:
            replay.add(number, steps)
    out: dict[str, list[float]] = {name: [] for name in (*WAYS, "rank", "wrong_words", "missed")}
    for one in goals:
        way = learnt.judge(one.features)[:, 1]
        if one.success:
            out["rank"].append(float(spearmanr(way, one.progress(), nan_policy="omit").statistic))
        else:
            out["missed"].append(_last(way))
    said = {one.words for one in goals}
    for episode in replay.episodes:
        n = len(episode)
        for name, order in zip(WAYS, (np.arange(n), np.arange(n)[::-1], np.full(STILL, n // 2)), strict=True):
            out[name].append(_gain(learnt.judge(cloning.conditions(reordered(episode, order)).numpy())[:, 1]))
        for words in other_words(episode.instruction, said)[:1]:
            under = cloning.conditions(under_words(episode, words)).numpy()
            out["wrong_words"].append(_last(learnt.judge(under)[:, 1]))
    return out


def _gain(way: np.ndarray) -> float:
    """Return the last number of ``way`` (n,) that is told minus the first; nan where fewer than two are."""
    told = way[~np.isnan(way)]
    return float(told[-1] - told[0]) if len(told) > 1 else math.nan


def _last(way: np.ndarray) -> float:
    """Return the last number of ``way`` (n,) that is told; nan where none is."""
    told = way[~np.isnan(way)]
    return float(told[-1]) if len(told) else math.nan


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
