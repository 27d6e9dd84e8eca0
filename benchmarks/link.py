"""Two machines and a bad link between them: do episodes succeed, is experience complete, does the page see the cameras.

The node set runs as docs/how-to/several_machines.md says: over a clean link, over one that loses 10 % of all packets
and delays the others by 100 ms each way, and over the same with a cut of 10 s in every episode. Once, the policy runs
on the other machine, which is not recommended. Needs root, for network namespaces.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.link_images import STREAMS, Stream, measure
from engram.benchmarks.link_rig import LinkRig, why_not
from engram.benchmarks.link_trial import Condition, Trial, run_trial, trial_from
from engram.benchmarks.report import figure, save_report
from engram.core.provenance import machine
from engram.core.statistics import wilson

RESULTS = Path(__file__).resolve().parent / "results" / "link.json"
TITLE = "Two machines and a bad link"
"""Heading on the results page."""
LOSS, DELAY_S = 0.1, 0.1
CONDITIONS = (
    Condition("clean"),
    Condition("lossy", LOSS, DELAY_S),
    Condition("lossy_and_cut", LOSS, DELAY_S, cut_s=10.0),
)
POLICY_FAR = Condition("policy_far_lossy", LOSS, DELAY_S, policy_far=True)
TASKS = ("reach", "push_to_mark", "press_button", "pick_place", "open_drawer", "stack")


@dataclass(frozen=True)
class LinkBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint's name or folder, or package.module:attribute."""
    episodes: int = 6
    """Episodes of each condition: the six tasks in turn, seeds 0, 1, 2, ..."""
    images: int = 80
    """Images of each stream that is compared."""
    domain: int = 70
    """ROS_DOMAIN_ID of the run."""
    quick: bool = False
    """Two episodes, the recommended layout and the chosen streams alone."""
    work: Path | None = None
    """Folder that keeps each part that was measured, so that a run that was cut off goes on from there."""
    more: int = -1
    """Measure at most so many parts that ``work`` lacks, and report what there is; below 0: all."""
    output: Path = RESULTS
    """Where the result goes."""


class Parts:
    """What has been measured, by name, as JSON files in a folder if there is one."""

    def __init__(self, folder: Path | None, more: int) -> None:
        self._folder, self._left = folder, more

    def get(self, name: str, measured: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Return the part ``name``, measured now unless it was before; None when no more is to be measured."""
        path = None if self._folder is None else self._folder / f"{name}.json"
        if path is not None and path.is_file():
            kept: dict[str, Any] = json.loads(path.read_text())
            return kept
        if not self._left:
            print(f"not measured yet: {name}", file=sys.stderr)
            return None
        self._left -= 1
        part = measured()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(part))
        return part


def trial_figures(trial: Trial, clean: Trial) -> list[dict[str, Any]]:
    """Return what one condition gave; targets compare it with the clean link."""
    name = trial.condition.name
    won, n = trial.succeeded, len(trial.episodes)
    rate = wilson(won, n)
    target = "as over the clean link" if trial is not clean else None
    as_clean = won >= clean.succeeded if trial is not clean else None
    rows = [figure(f"link_{name}_success", won / n, n, (rate.low, rate.high), target, as_clean)]
    if trial.condition.policy_far:
        return [{**row, "target": None, "met": None} for row in rows]
    lost = trial.recorded - trial.stored
    exact = trial.recorded > 0 and lost == 0 and trial.unacknowledged == 0
    rows.append(figure(f"link_{name}_steps_recorded_not_stored", lost, trial.recorded, None, "0", exact))
    unrecorded = max(0, trial.steps - trial.recorded)
    rows.append(figure(f"link_{name}_steps_not_recorded", unrecorded, trial.steps, None, "0", unrecorded == 0))
    rows.append(figure(f"link_{name}_stored_after_last_episode_s", trial.caught_up_s, 1))
    if not trial.condition.cut_s:
        for camera, sent in sorted(trial.images_sent.items()):
            rows.append(figure(f"link_{name}_images_of_{camera}_arrived", trial.arrived(camera), sent))
    else:
        for node, count in trial.lost.items():
            told = count == trial.restored[node] == trial.cuts
            rows.append(figure(f"link_{name}_cuts_told_by_{node}", count, trial.cuts, None, "each", told))
    return rows


def image_figures(config: LinkBenchmark, streams: tuple[Stream, ...], parts: Parts) -> list[dict[str, Any]]:
    """Return the share of each stream's images that crosses the lossy link, with their ages."""

    def measured(stream: Stream) -> dict[str, float]:
        with LinkRig() as rig:
            return measure(stream, rig, config.domain, config.images, LOSS, DELAY_S)

    rows = []
    for stream in streams:
        got = parts.get(stream.name, partial(measured, stream))
        if got is None:
            continue
        arrived = wilson(round(got["share"] * config.images), config.images)
        ages = {key: round(value, 3) for key, value in got.items() if key != "share" and value == value}
        row = figure(f"link_images_{stream.name}", got["share"], config.images, (arrived.low, arrived.high))
        rows.append(row | ages)
    return rows


def measure_trial(config: LinkBenchmark, condition: Condition) -> dict[str, Any]:
    """Run the episodes of one condition."""
    goals = [(TASKS[number % len(TASKS)], number) for number in range(config.episodes)]
    with tempfile.TemporaryDirectory(prefix="engram-link-") as folder:
        trial = run_trial(condition, goals, Path(folder), domain=config.domain, policy=config.policy)
    print_table([trial])
    return asdict(trial)


def print_table(trials: list[Trial]) -> None:
    """Print what each condition gave."""
    table = Table("condition", "succeeded", "steps", "recorded", "stored", "images arrived", "link lost / restored")
    for trial in trials:
        images = ", ".join(f"{camera} {trial.arrived(camera):.0%}" for camera in sorted(trial.images_sent))
        told = f"{trial.lost} / {trial.restored}"
        won = f"{trial.succeeded} of {len(trial.episodes)}"
        steps = map(str, (trial.steps, trial.recorded, trial.stored))
        table.add_row(trial.condition.name, won, *steps, images, told)
    Console(stderr=True).print(table)


def main(config: LinkBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LinkBenchmark)
    if reason := why_not():
        sys.exit(f"error: {reason}")
    conditions: tuple[Condition, ...] = (*CONDITIONS, POLICY_FAR)
    streams = STREAMS
    if config.quick:
        config = replace(config, episodes=2)
        conditions, streams = CONDITIONS, tuple(s for s in STREAMS if s.reliable and s.depth == 8)
    where = machine()
    parts = Parts(config.work, config.more)
    measured = [parts.get(c.name, partial(measure_trial, config, c)) for c in conditions]
    trials = [trial_from(values) for values in measured if values is not None]
    print_table(trials)
    rows = [row for trial in trials for row in trial_figures(trial, trials[0])]
    rows += image_figures(config, streams, parts)
    content = {"title": TITLE, "figures": rows, "trials": [asdict(trial) for trial in trials], "seed": 0}
    save_report(config.output, "link", where, config, **content)


if __name__ == "__main__":
    main()
