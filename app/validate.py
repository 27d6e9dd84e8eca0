"""``engram validate``: may a candidate drive in place of the policy that drives now? Simulation decides.

Candidate and policy run the same scenes, on a robot that is set up a little differently in each, until a sequential
test has shown enough on every task (:mod:`engram.validation.gate`). The last line is the verdict as JSON; the exit code
is 0 only if the candidate is promoted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.learning.weights.gate_verdict import GateVerdict, verdict_path
from engram.validation.following import judged_on
from engram.validation.gate import PROMOTE, GateConfig
from engram.validation.of_learner import GATE, contender, learner_contenders, tasks_of, with_taught
from engram.validation.trials import NOMINAL
from engram.validation.validate import Progress
from engram.validation.validate import validate as run_gate
from engram.validation.worst_case import FEWEST


@dataclass(frozen=True)
class ValidateConfig:
    """Try a candidate out in simulation against the policy that drives now."""

    candidate: tyro.conf.Positional[str] = ""
    """What wants to drive: a checkpoint folder or shipped name. With --learner: a version of the learner's; empty: its
    newest candidate."""
    against: str = "base"
    """What drives now: a checkpoint folder or shipped name. With --learner: the policy that the learner began with."""
    learner: Path | None = None
    """Folder of a learner (its parameter folder): what drives now is its own, and its policy/promote finds the
    verdict there."""
    tasks: tuple[str, ...] = ()
    """Tasks or suites on which the candidate has to hold its ground; default: all that either was trained on, and with
    --learner all that the learner was taught since."""
    on: str = ""
    """The gap that the robot has to the tabletop, where one is known, as of engram improve: none, turned,
    turned_scaled, wrist_moved, front_moved, mounted, knocked, worn, late, sluggish, dim, careful, or a .json file of
    engram identify. Every scene deviates a little from it. Empty: with --learner what its gate takes the robot for,
    else none."""
    margin: float = 0.1
    """A success rate that is lower by so much is worse."""
    false_promotion: float = 0.01
    """Largest probability of promoting a candidate that is worse by the margin on some task."""
    false_rejection: float = 0.05
    """Largest probability of rejecting a candidate that is as good on every task."""
    budget: int = 200
    """Most pairs of episodes a task."""
    worst_case: int = 0
    """Episodes a task that first search for the robot's deviations at which the candidate is weakest, 80 or more; 0:
    none. It has to hold its ground there, too, and so has every later candidate."""
    workers: int = 1
    """Processes that run episodes."""
    niceness: int = 10
    """How far they yield to other processes (Unix nice)."""
    ray: str = ""
    """Address of a Ray cluster that runs the episodes in place of the workers, as in 10.0.0.1:6379; local: a Ray is
    started here. Needs Ray (pip install ray). The verdict is the same."""
    work: Path = Path("runs/validate")
    """Folder for results and verdicts; with --learner they lie in the learner's."""


def validate(config: ValidateConfig) -> int:
    """Run the gate; the last line is the verdict as JSON."""
    from engram.runtime.factories import policy_files

    for name in ("budget", "workers"):
        positive_int(f"ValidateConfig.{name}", getattr(config, name))
    if config.worst_case and config.worst_case < FEWEST:
        raise InvalidInputError(f"ValidateConfig.worst_case: {config.worst_case}, expected 0 or at least {FEWEST}")
    if not 0 <= config.niceness <= 19:
        raise InvalidInputError(f"ValidateConfig.niceness: {config.niceness}, expected 0..19")
    limits = {n: getattr(config, n) for n in ("margin", "false_promotion", "false_rejection", "budget")}
    try:
        strictness = GateConfig(**limits)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("GateConfig.", "ValidateConfig.")) from None
    drives = contender(policy_files(config.against))
    if config.learner is None:
        if not config.candidate:
            raise InvalidInputError("ValidateConfig.candidate: empty, expected a checkpoint folder or a shipped name")
        candidate, work = contender(policy_files(config.candidate)), config.work.expanduser()
    else:
        learner = config.learner.expanduser()
        work = learner / GATE
        version, candidate, drives = learner_contenders(learner, drives, config.candidate)
        print(f"{version} against what drives", file=sys.stderr)
    on = config.on or (judged_on(work) if config.learner is not None else "") or NOMINAL
    print(f"on a robot that differs by: {on}", file=sys.stderr)
    tasks = config.tasks or tasks_of(candidate, drives)
    if config.learner is not None and not config.tasks:
        tasks = with_taught(tasks, learner)
    console = Console(stderr=True)

    def told(progress: Progress) -> None:
        gate = progress.gate
        console.print(
            f"{gate.pairs} pairs of episodes, {progress.episodes} episodes run: {gate.decision}, {gate.reason}"
        )

    verdict = run_gate(
        candidate,
        drives,
        tasks,
        work,
        strictness,
        on=on,
        workers=config.workers,
        niceness=config.niceness,
        ray=config.ray,
        worst_case=config.worst_case,
        told=told,
        found=lambda case: console.print(f"weakest place of {case}"),
    )
    console.print(_table(verdict))
    console.print(f"{verdict.decision}: {verdict.reason}")
    where = verdict_path(work / "verdicts", verdict.candidate, verdict.approved, verdict.environment)
    console.print(f"report: {where.with_suffix('.html')}")
    print(json.dumps(asdict(verdict) | {"kept": str(where)}))
    return int(verdict.decision != PROMOTE)


def _table(verdict: GateVerdict) -> Table:
    table = Table("task", "pairs", "candidate", "drives now", "not worse", title="Successes in the same scenes")
    for seen in verdict.report["tasks"]:
        shown = "shown" if seen["not_worse"] else "worse" if seen["worse"] else "not shown"
        table.add_row(seen["task"], str(seen["pairs"]), str(seen["candidate"]), str(seen["approved"]), shown)
    return table
