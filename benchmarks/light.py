"""Other light: success of the shipped policies where lamps, pictures or tables are not those of their training.

    python -m engram.benchmarks.light [--before runs/before/base runs/before/engram]

The six tabletop tasks, the same scenes under every condition. ``before`` are folders of the same policies as they were
before ``engram relight`` taught them: ``git archive c57aaa03 policies/checkpoints`` has them. Each condition is kept
in ``progress`` as it ends: a run that was broken off goes on there. The last line is JSON, which also goes to
benchmarks/results/light.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.provenance import digest, machine
from engram.policies.checkpoint import fingerprint
from engram.policies.opening import checkpoint_folder
from engram.sim.tasks import TASKS
from engram.validation.evaluation import Report, evaluate_checkpoint

CONDITIONS: dict[str, dict[str, Any]] = {
    "as_trained": {},
    "darker_15": {"world": "tabletop:brightness=0.85"},
    "darker_30": {"world": "tabletop:brightness=0.7"},
    "brighter_30": {"world": "tabletop:brightness=1.3"},
    "noisy": {"world": "tabletop:camera_noise=0.05"},
    "other_looks": {"randomise_looks": True},
}
"""Name -> what :func:`evaluate_checkpoint` is told. Other looks: lamps, their direction, the colour of the table and a
small displacement of the perception camera, drawn for each scene."""
TARGET, BEFORE = 0.9, "_before"
"""Success that a policy should reach in any light; end of the name of one that was not taught."""


@dataclass(frozen=True)
class LightBenchmark:
    """What is measured."""

    quick: bool = False
    """One episode a task."""
    episodes: int = 20
    """Of each task and condition."""
    first_seed: int = 1000
    """Seeds are first_seed and up. The alterations of ``engram relight`` were chosen on looks of the seeds 0 to 19."""
    policies: tuple[str, ...] = ("base", "engram")
    """Shipped names or folders."""
    before: tuple[str, ...] = ()
    """Folders of the same policies before they were taught, in the same order; or none."""
    progress: Path = Path("runs/light.jsonl")
    """One line a condition; delete it to begin anew."""
    output: Path = RESULTS / "light.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        positive_int("LightBenchmark.episodes", self.episodes)
        if self.before and len(self.before) != len(self.policies):
            raise InvalidInputError(
                f"LightBenchmark.before: {len(self.before)} folders, expected one for each of "
                f"{', '.join(self.policies)}"
            )


def measure(config: LightBenchmark) -> dict[str, dict[str, Any]]:
    """Return for each policy, also before it was taught, what each condition comes to."""
    names = [Path(policy).name for policy in config.policies]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"LightBenchmark.policies: {', '.join(names)}, expected folders of different names")
    arms = dict(zip(names, config.policies, strict=True))
    arms |= dict(zip((name + BEFORE for name in names), config.before, strict=False))
    return {arm: {name: _condition(config, policy, name) for name in CONDITIONS} for arm, policy in arms.items()}


def _condition(config: LightBenchmark, policy: str, name: str) -> dict[str, Any]:
    episodes = 1 if config.quick else config.episodes
    acts = fingerprint(checkpoint_folder(policy))
    rooms = ("core", "perception", "memory", "policies", "sim", "runtime", "validation")
    code = digest(*(f"{room}/**/*.py" for room in rooms))
    told = {"episodes": episodes, "first_seed": config.first_seed, **CONDITIONS[name]}
    key = {"policy": acts, "code": code, "condition": name, "told": told}
    lines = config.progress.read_text().splitlines() if config.progress.exists() else []
    for line in lines:
        with suppress(json.JSONDecodeError):  # of a run that was killed while it wrote
            known: dict[str, Any] = json.loads(line)
            if key.items() <= known.items():
                return known
    report = evaluate_checkpoint(policy, tuple(TASKS), **told)
    assert isinstance(report, Report)
    found = key | json.loads(report.to_json())
    config.progress.parent.mkdir(parents=True, exist_ok=True)
    with config.progress.open("a") as out:
        out.write("\n" * bool(lines) + json.dumps(found))  # whatever was written before ends here
    return found


def figures(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean success of each policy under each condition, what is taught beside its target."""
    rows = []
    for arm, conditions in found.items():
        for name, told in conditions.items():
            mean, judged = told["mean"], not arm.endswith(BEFORE)
            target, met = (f">= {TARGET:g}", mean["rate"] >= TARGET) if judged else (None, None)
            interval = (mean["low"], mean["high"])
            rows.append(figure(f"light_{arm}_{name}", mean["rate"], mean["n"], interval, target, met))
    return rows


def main(config: LightBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LightBenchmark)
    where = machine()
    found = measure(config)
    table = Table("policy", *CONDITIONS)
    for arm, conditions in found.items():
        table.add_row(arm, *(f"{conditions[name]['mean']['rate']:.3f}" for name in CONDITIONS))
    Console(stderr=True).print(table)
    save_report(config.output, "light", where, config, figures=figures(found), arms=found)


if __name__ == "__main__":
    main()
