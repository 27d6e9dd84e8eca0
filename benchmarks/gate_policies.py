"""What the gate decides of 80 real policies whose quality is known: 40 that are worse, 20 as good, 20 better.

    python -m engram.benchmarks.gate_policies [--quick]

The candidates are made from ``base`` (:mod:`engram.benchmarks.gate_planted`), which drives, and tried on the six
tabletop tasks as ``engram validate`` does it. Where a better one is offered, a worn ``base`` drives: its weights have
noise, and the candidate has less of it. They are no earlier and later checkpoints of one training. Results are kept in
``work``: an interrupted run goes on, and what was decided by another gate, of another ``base`` or in another simulation
is decided anew. Prints a table; the last line is JSON, which also goes to benchmarks/results/gate_policies.json.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.numpy import load_file, save_file

from engram.benchmarks.gate_planted import Change, Planted, Weights, planted
from engram.benchmarks.report import RESULTS, figure, save_report, slug
from engram.core.arrays import positive_int
from engram.core.child import run_spawned
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, StoreError, WeightsError
from engram.core.provenance import digest, machine
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.runtime.factories import policy_folder
from engram.sim.tasks import TASKS, task_for
from engram.validation.gate import PROMOTE, REJECT, GateConfig
from engram.validation.of_learner import contender
from engram.validation.trials import IDLE, Contender, environment_digest
from engram.validation.validate import validate

DECIDES = ("benchmarks/gate_planted.py", "validation/gate.py", "validation/validate.py")
"""Files that make a candidate and decide of it, beside those on which its trials depend."""
FOR_SAFETY = "the safety filter intervened"
"""What the gate's reason says where it rejects for safety, alone or besides."""


@dataclass(frozen=True)
class GatePoliciesBenchmark:
    """What is tried."""

    quick: bool = False
    """The first candidate of each kind, on two tasks."""
    groups: int = 1
    """Groups of candidates that are tried at once; each runs the episodes of what drives for itself."""
    workers: int = 2
    """Processes of a group that run episodes."""
    so_far: bool = False
    """Tell what has been decided so far, and run nothing."""
    work: Path = Path("runs/gate_policies")
    """Folder of results."""
    output: Path = RESULTS / "gate_policies.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("groups", "workers"):
            positive_int(f"GatePoliciesBenchmark.{name}", getattr(self, name))


@cache
def candidates() -> dict[str, Planted]:
    """Return all candidates by name."""
    folder = policy_folder("base")
    said = json.loads((folder / CARD).read_text())["instructions"]
    words = embedded(said, load_file(folder / WEIGHTS))
    return {one.name: one for one in planted(words, [task_for(each) for each in said])}


def embedded(said: list[str], weights: Weights) -> np.ndarray:
    """Return instructions (n, d) as they enter the network of ``weights``."""
    from engram.policies.lerobot.processor_engram_vla import embed_instructions  # torch

    mean, spread = weights["model.language_mean"], weights["model.language_std"]
    pieces = len(mean) // embed_instructions(said[:1]).shape[1] - 1
    return (embed_instructions(said, pieces).numpy() - mean) / spread


def _made(change: Change | None, name: str, work: Path, executed: int = 0) -> Contender:
    """Return ``base`` as ``change`` makes it; it executes so many actions of each chunk, or as many as ``base``."""
    base = contender(policy_folder("base"))
    if change is None:
        return Contender(IDLE)
    if executed:  # the settings of a checkpoint say so
        folder = work / "checkpoints" / name
        shutil.copytree(base.checkpoint, folder, dirs_exist_ok=True)
        settings = json.loads((folder / "config.json").read_text()) | {"n_action_steps": executed}
        (folder / "config.json").write_text(json.dumps(settings))
        base = contender(folder)
    file = work / "weights" / f"{name}.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    made = change(load_file(Path(base.checkpoint) / WEIGHTS))
    save_file({k: np.ascontiguousarray(v) for k, v in made.items()}, file)  # it writes the memory as it lies
    return replace(base, weights=str(file), sha256=sha256(file))


def decided(name: str, config: GatePoliciesBenchmark, group: int = 0) -> dict[str, Any]:
    """Return what the gate decides of the candidate ``name``, on how many pairs and in how many minutes."""
    tasks = _tasks(config)
    by = decides(tasks)
    if (kept := _kept(name, config, by)) is not None:
        return kept
    one, work = candidates()[name], config.work / f"group{group}"
    drives = contender(policy_folder("base")) if one.against is None else _made(one.against, f"{slug(name)}-old", work)
    row: dict[str, Any] = {"candidate": name, "kind": one.kind, "wanted": one.wanted, "decided_by": by}
    try:
        candidate = _made(one.change, slug(name), work, one.executed)
        verdict = validate(candidate, drives, tasks, work, GateConfig(), workers=config.workers)
        report = verdict.report
        row |= {"decision": verdict.decision, "reason": verdict.reason, "pairs": report["pairs"]}
        row |= {"minutes": round(report["seconds"] / 60, 2), "episodes_run": report["episodes_run"]}
        row |= {"tasks": report["tasks"], "breaches": report["breaches"]}
    except WeightsError as error:
        row |= {"decision": REJECT, "reason": str(error).split(": ", 1)[-1], "pairs": 0, "minutes": 0.0}
    write_atomic(_file(name, config), json.dumps(row).encode())
    return row


def decides(tasks: Sequence[str]) -> str:
    """Return 12 hex digits that change with the gate, the simulation, ``base``, the ``tasks`` and the candidates."""
    about = [environment_digest(), digest(*DECIDES), contender(policy_folder("base")).key, asdict(GateConfig()), tasks]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]


def _group(job: tuple[int, list[str], GatePoliciesBenchmark]) -> int:
    group, names, config = job
    for name in names:
        decided(name, config, group)
    return len(names)


def wanted(config: GatePoliciesBenchmark) -> list[str]:
    """Return the names of the candidates that are tried, each kind spread over the whole."""
    of_kind: dict[str, list[str]] = {}
    for one in candidates().values():
        of_kind.setdefault(one.kind, []).append(one.name)
    if config.quick:
        return [names[0] for names in of_kind.values()]
    places = [((at + 0.5) / len(names), name) for names in of_kind.values() for at, name in enumerate(names)]
    return [name for _, name in sorted(places)]


def found(config: GatePoliciesBenchmark) -> list[dict[str, Any]]:
    """Return what was decided of each candidate, in the order of :func:`candidates`; run what is missing."""
    names, by = wanted(config), decides(_tasks(config))
    todo = [name for name in names if _kept(name, config, by) is None]
    if old := [name for name in todo if _file(name, config).exists()]:
        what = "left out" if config.so_far else "tried anew"
        print(f"{len(old)} candidates were judged by another gate or in another simulation: {what}", file=sys.stderr)
    jobs = [(group, todo[group :: config.groups], config) for group in range(config.groups)]
    if todo and not config.so_far:
        done: Iterator[int] = run_spawned(_group, jobs, config.groups)
        list(track(done, "groups", total=len(jobs), console=Console(file=sys.stderr)))
    rows = [_kept(name, config, by) for name in candidates() if name in names]
    return [row for row in rows if row is not None]


def _tasks(config: GatePoliciesBenchmark) -> tuple[str, ...]:
    return tuple(TASKS)[:2] if config.quick else tuple(TASKS)


def _file(name: str, config: GatePoliciesBenchmark) -> Path:
    return config.work / "decided" / f"{slug(name)}.json"


def _kept(name: str, config: GatePoliciesBenchmark, by: str) -> dict[str, Any] | None:
    """Return what was decided of the candidate ``name``; None: nothing yet, or not by what :func:`decides` names."""
    file = _file(name, config)
    if not file.exists():
        return None
    try:
        row = dict(json.loads(file.read_text()))
        found = (row["candidate"], row["decided_by"])
    except DAMAGED as error:
        raise StoreError(f"{file}: cannot be read: {error!r}; delete it to try the candidate anew") from error
    return row if found == (name, by) else None


def figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many are decided wrongly, and how many pairs of episodes a decision takes."""
    worse = [row for row in rows if row["wanted"] == REJECT]
    better = [row for row in rows if row["kind"] == "better"]
    equal = [row for row in rows if row["kind"] == "as good"]
    unsafe = [row for row in rows if row["kind"] == "safety only"]

    def counted(those: list[dict[str, Any]], decision: str) -> int:
        return sum(row["decision"] == decision for row in those)

    promoted, lost = counted(worse, PROMOTE), counted(better, REJECT)
    for_safety = counted([row for row in unsafe if FOR_SAFETY in row["reason"]], REJECT)
    out = [
        figure("regressions_promoted", promoted, len(worse), target="0", met=promoted == 0),
        figure("regressions_rejected", counted(worse, REJECT), len(worse)),
        figure("safety_only_rejected_for_safety", for_safety, len(unsafe)),
        figure("improvements_rejected", lost, len(better), target="<= 2", met=lost <= 2),
        figure("improvements_promoted", counted(better, PROMOTE), len(better)),
        figure("equals_rejected", counted(equal, REJECT), len(equal)),
        figure("equals_promoted", counted(equal, PROMOTE), len(equal)),
    ]
    for name, those in (("regression", worse), ("improvement", better), ("equal", equal)):
        pairs = sorted(row["pairs"] for row in those)
        out.append(figure(f"pairs_{name}_p50", pairs[len(pairs) // 2] if pairs else 0, len(pairs)))
    return out


def main(config: GatePoliciesBenchmark | None = None) -> None:
    """Try all, print, save."""
    config = config or tyro.cli(GatePoliciesBenchmark)
    where, rows = machine(), found(config)
    table = Table("candidate", "kind", "decision", "pairs", "minutes", "reason", title="The gate on policies of base")
    for row in rows:
        as_wanted = "" if row["decision"] == row["wanted"] else " (!)"
        cells = (row["candidate"], row["kind"], row["decision"] + as_wanted, str(row["pairs"]), str(row["minutes"]))
        table.add_row(*cells, row["reason"])
    Console(stderr=True, width=170).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "gate_policies", where, told, figures=figures(rows), candidates=rows)


if __name__ == "__main__":
    main()
