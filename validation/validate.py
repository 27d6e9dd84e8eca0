"""Validation of a candidate against the policy that drives now: trials in simulation until the gate decides."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engram.core.child import spawned_pool
from engram.core.errors import InvalidInputError, WeightsError
from engram.core.provenance import commit, machine
from engram.core.registry import split_options
from engram.learning.weights.gate_verdict import GateVerdict, read_verdict, write_verdict
from engram.runtime.factories import policy_folder
from engram.sim.tasks import each_once
from engram.validation.gate import OPEN, Gate, GateConfig
from engram.validation.report import write_page
from engram.validation.trials import (
    FIRST_SEED,
    IDLE,
    NOMINAL,
    Contender,
    Trial,
    TrialStore,
    Wanted,
    environment_digest,
    run_all,
)

ROUND = 4
"""Scenes of a task between two looks at what is still open."""
IDLE_SCENES = 10
"""Scenes of a task in which a robot that stands still is tried, too: it is the same for every candidate."""


@dataclass(frozen=True)
class Progress:
    """How far a validation is."""

    gate: Gate
    episodes: int
    """Episodes that were run now; others were known."""


def validate(
    candidate: Contender,
    approved: Contender,
    tasks: Sequence[str],
    folder: Path,
    config: GateConfig | None = None,
    *,
    on: str = NOMINAL,
    workers: int = 1,
    niceness: int = 0,
    told: Callable[[Progress], None] = lambda progress: None,
    check: Callable[[], None] = lambda: None,
) -> GateVerdict:
    """Run pairs of episodes until the gate decides; return the verdict, which is also kept in ``folder``/verdicts.

    Results are kept in ``folder``: what was run for another candidate, or before a crash, is not run again. The verdict
    does not depend on the number of workers.

    Args:
        candidate: wants to drive.
        approved: drives now.
        tasks: names; the candidate has to hold its ground on each.
        folder: for results and verdicts.
        config: how strict.
        on: the gap that the robot has to the nominal tabletop, a name of ``engram.sim.gaps``.
        workers: processes that run episodes.
        niceness: how far these yield to other processes (Unix nice).
        told: called after every round of scenes.
        check: called after every episode; what it raises ends the validation, and what was run is kept.

    Raises:
        UnknownNameError: a task or a gap does not exist.
        InvalidInputError: both are the same weights.
        WeightsError: weights do not fit their network, or hold values that are not finite.
        StoreError: another process writes ``folder``, or the disk refuses it.
        EngramError: a worker died.
    """
    if candidate.key == approved.key:
        raise InvalidInputError(f"validate: candidate and approved are the same policy ({candidate.sha256[:12]})")
    tasks = each_once(tasks)
    gate, began, ran = Gate(tasks, config), time.monotonic(), [0]
    store = TrialStore(folder, on)
    try:
        with spawned_pool(workers, niceness=niceness) as pool:
            at = dict.fromkeys(tasks, 0)

            def count() -> None:
                ran[0] += 1
                check()

            def trials(jobs: Sequence[Wanted]) -> list[Trial]:
                return list(run_all(jobs, store, pool, count))

            while gate.decision == OPEN:
                scenes = [
                    (task, FIRST_SEED + at[task] + i)
                    for i in range(ROUND)
                    for task in gate.wanted
                    if at[task] + i < gate.config.budget
                ]
                with_idle = [s for s in scenes if s[1] < FIRST_SEED + IDLE_SCENES]
                found = trials([(who, *scene) for scene in scenes for who in (candidate, approved)])
                still = dict(zip(with_idle, trials([(Contender(IDLE), *s) for s in with_idle]), strict=True))
                for scene, new, old in zip(scenes, found[::2], found[1::2], strict=True):
                    if scene in still:
                        gate.add_idle(new.success, still[scene].success)
                    gate.add(scene[0], new.success, old.success, (new.breach, old.breach))
                    at[scene[0]] += 1
                told(Progress(gate, ran[0]))
        report = gate.report() | {"on": on, "first_seed": FIRST_SEED, "episodes_run": ran[0]}
        report |= {"seconds": round(time.monotonic() - began, 1), "commit": commit(), "machine": machine()}
        verdict = GateVerdict(candidate.sha256, approved.sha256, store.environment, gate.decision, gate.reason, report)
        path = write_verdict(folder / "verdicts", verdict)
        write_page(path.with_suffix(".html"), verdict)
        return verdict
    finally:
        store.close()


def trained_tasks(folder: Path) -> tuple[str, ...]:
    """Return the tasks on the card of the policy in ``folder``; empty where there is none.

    Raises:
        InvalidInputError: the card cannot be read.
    """
    card = folder / "card.json"
    try:
        tasks = dict(json.loads(card.read_text())).get("tasks", ()) if card.is_file() else ()
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"{card}: cannot be read: {error}; name the tasks with --tasks") from error
    return tuple(dict.fromkeys(split_options(task)[0] for task in tasks))


def proof_in(folder: Path, policy: str) -> Callable[[str, str], str]:
    """Return what looks up in ``folder`` whether the gate let one sha256 drive in place of another, and why.

    It raises WeightsError where there is no verdict, where it is void or was another one, or where the test was weaker
    than :class:`GateConfig` has it or left out a task that ``policy``, which the learner began with, was trained on.
    """

    def proof(candidate: str, approved: str) -> str:
        verdict = read_verdict(folder / "verdicts", candidate, approved)
        verdict.check(candidate, approved, environment_digest(str(verdict.report.get("on", NOMINAL))))
        if weak := _weakness(verdict.report, trained_tasks(policy_folder(policy)) if ":" not in policy else ()):
            raise WeightsError(
                f"the gate's test of {candidate[:12]} was too weak: {weak}; run engram validate without it"
            )
        return f"the gate: {verdict.reason}"

    return proof


def _weakness(report: Mapping[str, Any], tasks: Sequence[str]) -> str:
    """Return in what a test was weaker than it has to be; empty: in nothing."""
    try:
        config, tried = dict(report["config"]), {str(seen["task"]) for seen in report["tasks"]}
        limits = asdict(GateConfig())
        names = ("margin", "false_promotion", "breach_margin")
        looser = [
            f"{name} {config[name]}, at most {limits[name]}" for name in names if not config[name] <= limits[name]
        ]
    except (KeyError, TypeError, ValueError) as error:
        return f"the report is damaged ({error!r})"
    return "; ".join([*looser, *(f"{task} was not tried" for task in tasks if task not in tried)])
