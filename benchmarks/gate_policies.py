"""What the gate decides of real policies whose quality is known: broken, worse, as good.

    python -m engram.benchmarks.gate_policies [--quick]

The candidates are made from ``base``, which drives, and tried on the six tabletop tasks as ``engram validate`` does it.
Results are kept in ``work``: an interrupted run goes on. Prints a table; the last line is JSON, which also goes to
benchmarks/results/gate_policies.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.errors import WeightsError
from engram.core.provenance import machine
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.runtime.factories import policy_folder
from engram.sim.tasks import TASKS
from engram.validation.gate import PROMOTE, REJECT, GateConfig
from engram.validation.of_learner import contender
from engram.validation.trials import IDLE, Contender
from engram.validation.validate import validate

Weights = dict[str, np.ndarray]
OUTPUT = "model.head.leave"
"""The last layer of the policy: what leaves it are the actions of a chunk."""


def _noise(share: float, seed: int) -> Callable[[Weights], Weights]:
    """Return a change that adds noise to every matrix, as a share of its own size."""

    def change(weights: Weights) -> Weights:
        rng = np.random.default_rng(seed)
        return {
            k: v + (share * v.std() * rng.standard_normal(v.shape)).astype(v.dtype) if v.ndim > 1 else v
            for k, v in weights.items()
        }

    return change


def _sideways(weights: Weights) -> Weights:
    """Swap forward and sideways in every action of a chunk."""
    rows = np.arange(weights[f"{OUTPUT}.bias"].shape[0]).reshape(-1, 7)  # of a step of the chunk, by dimension
    order = rows[:, [1, 0, 2, 3, 4, 5, 6]].reshape(-1)
    return weights | {f"{OUTPUT}.{name}": weights[f"{OUTPUT}.{name}"][order] for name in ("weight", "bias")}


def _nan(weights: Weights) -> Weights:
    """Put one value into the last layer that is no number."""
    broken = weights[f"{OUTPUT}.bias"].copy()
    broken[0] = np.nan
    return weights | {f"{OUTPUT}.bias": broken}


CANDIDATES: dict[str, tuple[Callable[[Weights], Weights] | None, str]] = {
    "stands still": (None, REJECT),
    "a value that is no number": (_nan, REJECT),
    "forward and sideways swapped": (_sideways, REJECT),
    "noise of 50 % in every matrix": (_noise(0.5, 0), REJECT),
    "noise of 20 % in every matrix": (_noise(0.2, 0), REJECT),
    "noise of 0.1 % in every matrix": (_noise(1e-3, 0), PROMOTE),
    "noise of 0.01 % in every matrix": (_noise(1e-4, 0), PROMOTE),
}
"""Candidate -> how it is made from ``base`` (None: a robot that stands still), and what should be decided."""


@dataclass(frozen=True)
class GatePoliciesBenchmark:
    """What is tried."""

    quick: bool = False
    """The first three candidates on two tasks."""
    workers: int = 2
    """Processes that run episodes."""
    work: Path = Path("runs/gate_policies")
    """Folder of results."""
    output: Path = RESULTS / "gate_policies.json"
    """Where the JSON goes."""


def decided(name: str, config: GatePoliciesBenchmark) -> dict[str, Any]:
    """Return what the gate decides of the candidate ``name``, on how many pairs and in how many minutes."""
    drives, (change, _) = contender(policy_folder("base")), CANDIDATES[name]
    candidate = Contender(IDLE)
    if change is not None:
        file = config.work / f"{list(CANDIDATES).index(name)}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(change(load_file(Path(drives.checkpoint) / WEIGHTS)), file)
        candidate = replace(drives, weights=str(file), sha256=sha256(file))
    tasks = tuple(TASKS)[:2] if config.quick else tuple(TASKS)
    try:
        verdict = validate(candidate, drives, tasks, config.work, GateConfig(), workers=config.workers)
    except WeightsError as error:
        return {
            "candidate": name,
            "decision": REJECT,
            "reason": str(error).split(": ", 1)[-1],
            "pairs": 0,
            "minutes": 0.0,
        }
    report = verdict.report
    minutes = round(report["seconds"] / 60, 2)
    return {"candidate": name, "decision": verdict.decision, "reason": verdict.reason, "pairs": report["pairs"]} | {
        "minutes": minutes,
        "episodes_run": report["episodes_run"],
        "tasks": report["tasks"],
    }


def main(config: GatePoliciesBenchmark | None = None) -> None:
    """Try all, print, save."""
    config = config or tyro.cli(GatePoliciesBenchmark)
    where = machine()
    found = [decided(name, config) for name in list(CANDIDATES)[: 3 if config.quick else None]]
    wanted = {name: what for name, (_, what) in CANDIDATES.items()}
    bad = [row for row in found if wanted[row["candidate"]] == REJECT]
    good = [row for row in found if wanted[row["candidate"]] == PROMOTE]
    promoted, refused = (sum(row["decision"] == d for row in rows) for rows, d in ((bad, PROMOTE), (good, REJECT)))
    rows = [
        figure("regressions_promoted", promoted, len(bad), target="0", met=promoted == 0),
        figure("equals_rejected", refused, len(good), target="0", met=refused == 0),
        figure("equals_promoted", sum(row["decision"] == PROMOTE for row in good), len(good)),
    ]
    table = Table("candidate", "decision", "pairs", "minutes", "reason", title="The gate on policies made from base")
    for row in found:
        table.add_row(row["candidate"], row["decision"], str(row["pairs"]), str(row["minutes"]), row["reason"])
    Console(stderr=True, width=150).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "gate_policies", where, told, figures=rows, candidates=found)


if __name__ == "__main__":
    main()
