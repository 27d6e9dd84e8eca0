"""Validation of a candidate against the policy that drives now: trials in simulation until the gate decides."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engram.core.child import spawned_pool
from engram.core.errors import DAMAGED, InvalidInputError, StoreError, WeightsError
from engram.core.provenance import commit, machine, source_files
from engram.core.registry import is_spec, split_options
from engram.learning.weights.gate_verdict import REJECT, GateVerdict, read_verdict, write_verdict
from engram.runtime.factories import policy_folder
from engram.sim.tasks import each_once, task_class
from engram.validation.following import judged_on
from engram.validation.gate import OPEN, Gate, GateConfig
from engram.validation.ray_pool import ray_pool
from engram.validation.report import write_page
from engram.validation.taught import TAUGHT, check_there, kept_taught
from engram.validation.trials import (
    FIRST_SEED,
    IDLE,
    NOMINAL,
    Contender,
    Trial,
    TrialStore,
    Wanted,
    at_place,
    environment_digest,
    run_all,
)
from engram.validation.worst_case import SUFFIX, Run, WorstCase, WorstCases, find_worst

ROUND = 4
"""Scenes of a task between two looks at what is still open."""
IDLE_SCENES = 10
"""Scenes of a task in which a robot that stands still is tried, too: it is the same for every candidate. It is tried in
more of them until the candidate is shown to do more."""


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
    ray: str = "",
    worst_case: int = 0,
    told: Callable[[Progress], None] = lambda progress: None,
    found: Callable[[WorstCase], None] = lambda case: None,
    check: Callable[[], None] = lambda: None,
) -> GateVerdict:
    """Run pairs of episodes until the gate decides; return the verdict, which is also kept in ``folder``/verdicts.

    At the places that were found for other candidates, or before (:mod:`engram.validation.worst_case`), the candidate
    has to hold its ground as well: for the gate, ``<task>@worst`` is a task of its own.

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
        ray: address of a Ray cluster whose processes run the episodes in place of ours (:mod:`.ray_pool`); empty: none.
        worst_case: so many episodes a task search for the candidate's weakest places first; 0: none does.
        told: called after every round of scenes.
        found: called with every place that the search has found.
        check: called after every episode; what it raises ends the validation, and what was run is kept.

    Raises:
        UnknownNameError: a task or a gap does not exist.
        InvalidInputError: both are the same weights, the search has too few episodes, or Ray is not installed.
        WeightsError: weights do not fit their network, or hold values that are not finite.
        StoreError: another process writes ``folder``, or the disk refuses it.
        EngramError: a worker died, or no Ray cluster answers.
    """
    if candidate.key == approved.key:
        raise InvalidInputError(f"validate: candidate and approved are the same policy ({candidate.sha256[:12]})")
    tasks = each_once(tasks)
    began, ran, own = time.monotonic(), [0], own_code(tasks)
    store = TrialStore(folder, on)
    try:
        cases = WorstCases(folder)
        processes = ray_pool(ray, workers) if ray else spawned_pool(workers, niceness=niceness)
        with processes as pool:

            def count() -> None:
                ran[0] += 1
                check()

            def trials(jobs: Sequence[Wanted]) -> list[Trial]:
                return list(run_all(jobs, store, pool, count))

            for task in tasks if worst_case else ():
                case = find_worst(candidate, task, on, trials, worst_case)
                if case is not None:
                    cases.add(case)
                    found(case)
            places = {task + SUFFIX: kept for task in tasks if (kept := cases.of(task, on))}
            gate = Gate((*tasks, *places), config)
            _decide(gate, candidate, approved, places, trials, lambda: told(Progress(gate, ran[0])))
        report = gate.report() | {"on": on, "first_seed": FIRST_SEED, "episodes_run": ran[0], "own_code": own}
        report["worst_cases"] = {name: [asdict(case) for case in kept] for name, kept in places.items()}
        report |= {"seconds": round(time.monotonic() - began, 1), "commit": commit(), "machine": machine()}
        new, old = _names(candidate, approved)
        verdict = GateVerdict(new, old, store.environment, gate.decision, gate.reason, report)
        path = write_verdict(folder / "verdicts", verdict)
        write_page(path.with_suffix(".html"), verdict)
        return verdict
    finally:
        store.close()


def _names(*policies: Contender) -> list[str]:
    """Return the sha256 by which a verdict names policies: of their weights, or of all that tells them apart.

    Policies may share their weights, such as one with a motion edit and its base.
    """
    weights = [one.sha256 for one in policies]
    return weights if len(set(weights)) > 1 else [hashlib.sha256(one.key.encode()).hexdigest() for one in policies]


def _decide(
    gate: Gate,
    candidate: Contender,
    approved: Contender,
    places: Mapping[str, Sequence[WorstCase]],
    trials: Run,
    told: Callable[[], None],
) -> None:
    """Give the gate pairs of episodes until it decides."""

    def name(task: str, number: int) -> str:
        """Return what the trials call scene ``number`` of a task of the gate."""
        kept = places.get(task)
        return at_place(task.removesuffix(SUFFIX), kept[number % len(kept)].place) if kept else task

    at = dict.fromkeys(gate.tasks, 0)
    while gate.decision == OPEN:
        scenes = [
            (task, at[task] + i) for i in range(ROUND) for task in gate.wanted if at[task] + i < gate.config.budget
        ]
        jobs = {scene: (name(*scene), FIRST_SEED + scene[1]) for scene in scenes}
        with_idle = [scene for scene in scenes if scene[1] < IDLE_SCENES or not gate.acts]
        tried = trials([(who, *jobs[scene]) for scene in scenes for who in (candidate, approved)])
        stood = trials([(Contender(IDLE), *jobs[scene]) for scene in with_idle])
        still = dict(zip(with_idle, stood, strict=True))
        for scene, new, old in zip(scenes, tried[::2], tried[1::2], strict=True):
            if scene in still:
                gate.add_idle(new.success, still[scene].success)
            gate.add(scene[0], new.success, old.success, (new.breach, old.breach), (new.progress, old.progress))
            at[scene[0]] += 1
        told()


def trained_tasks(folder: Path) -> tuple[str, ...]:
    """Return the tasks on the card of the policy in ``folder``; empty where there is none.

    Raises:
        InvalidInputError: the card cannot be read, or names a shipped task that does not exist.
    """
    card = folder / "card.json"
    try:
        named = dict(json.loads(card.read_text())).get("tasks", ()) if card.is_file() else ()
        tasks = tuple(dict.fromkeys(split_options(task)[0] for task in named))
    except DAMAGED as error:
        raise InvalidInputError(f"{card}: cannot be read: {error}; name the tasks with --tasks") from error
    check_there(card, tasks)
    return tasks


def own_code(tasks: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the files in which those of ``tasks`` are written that are a user's own, and the sha256 of each."""
    return {
        task: {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in source_files([task_class(task)])}
        for task in tasks
        if is_spec(split_options(task)[0])
    }


def check_own_code(report: Mapping[str, Any]) -> None:
    """Raise WeightsError where a task of a user's own is not what it was when the gate tried it.

    Its files are compared where they were: whoever asks need not be able to import them.
    """
    try:
        tried = dict.fromkeys(str(seen["task"]).removesuffix(SUFFIX) for seen in report["tasks"])
        for task in filter(lambda name: is_spec(split_options(name)[0]), tried):
            for file, found in report["own_code"][task].items():
                path = Path(file)
                if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != found:
                    raise WeightsError(f"the gate's verdict is void: {file}, of task {task}, has changed since")
    except DAMAGED as error:
        raise WeightsError(f"the gate's verdict is void: the report is damaged ({error!r})") from error


def proof_in(folder: Path, policy: str) -> Callable[[str, str], str]:
    """Return what looks up in ``folder`` whether the gate let one sha256 drive in place of another, and why.

    Where a gate judges for this robot, what was judged on another one is none of its verdicts.

    It raises WeightsError where there is no verdict, where it is void or was another one, or where the test was weaker
    than :class:`GateConfig` has it or left out a task that ``policy``, which the learner began with, was trained on or
    that the learner was taught since, or a worst case of a task.
    """

    def proof(candidate: str, approved: str) -> str:
        on = judged_on(folder)
        verdict = read_verdict(folder / "verdicts", candidate, approved, environment_digest(on) if on else "")
        verdict.check(candidate, approved, environment_digest(on or str(verdict.report.get("on", NOMINAL))))
        check_own_code(verdict.report)
        try:
            trained = trained_tasks(policy_folder(policy)) if ":" not in policy else ()
            taught = kept_taught(folder)
        except (InvalidInputError, StoreError) as error:
            raise WeightsError(f"the gate's test of {candidate[:12]} proves nothing: {error}") from error
        if weak := _weakness(verdict.report, trained, taught, WorstCases(folder)):
            raise WeightsError(
                f"the gate's test of {candidate[:12]} was too weak: {weak}; validate it again on every task and by the "
                f"limits of the default: engram validate --learner {folder.parent}"
            )
        return f"the gate: {verdict.reason}"

    return proof


class KeptVerdicts:
    """The verdicts that a gate left in ``folder``, beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def stamp(self) -> object:
        """Differs once there is another verdict."""
        kept = self._folder / "verdicts"
        return (kept.stat().st_mtime_ns, len(list(kept.iterdir()))) if kept.is_dir() else None

    def of(self, candidate: str, approved: str) -> GateVerdict | None:
        """Return the verdict on these two sha256, on the robot that the gate judges for.

        None: there is none that can be read, simulator, tasks or code have changed since, or it rejects by a test that
        rejects more easily than :class:`GateConfig` has it.

        Raises:
            StoreError: nobody can tell which robot that is.
        """
        on = judged_on(self._folder)
        try:
            verdict = read_verdict(self._folder / "verdicts", candidate, approved, environment_digest(on) if on else "")
            if verdict.environment != environment_digest(on or str(verdict.report.get("on", NOMINAL))):
                return None
            check_own_code(verdict.report)
            easier = float(verdict.report["config"]["false_rejection"]) > GateConfig().false_rejection
        except (*DAMAGED, WeightsError):
            return None
        return None if easier and verdict.decision == REJECT else verdict


def _weakness(report: Mapping[str, Any], trained: Sequence[str], taught: Sequence[str], worst: WorstCases) -> str:
    """Return in what a test was weaker than it has to be; empty: in nothing.

    Args:
        report: of the test.
        trained: tasks on the card.
        taught: tasks that the learner was taught since it began, perhaps since the test.
        worst: places that were found.
    """
    try:
        config, tried = dict(report["config"]), {str(seen["task"]) for seen in report["tasks"]}
        limits = asdict(GateConfig())
        names = ("margin", "progress_margin", "false_promotion", "breach_margin")
        weak = [f"{name} {config[name]}, at most {limits[name]}" for name in names if not config[name] <= limits[name]]
        weak += [f"{task} was not tried" for task in trained if task not in tried]
        since = [task for task in taught if task not in (*tried, *trained)]
        weak += [f"{task} was taught since and not tried (it is in {TAUGHT})" for task in since]
        for task in sorted(tried):
            kept, seen = worst.of(task, str(report["on"])), report["worst_cases"].get(task + SUFFIX, ())
            if len(seen) < len(kept):
                weak.append(f"{task} was tried at {len(seen)} of its {len(kept)} worst places")
    except DAMAGED as error:
        return f"the report is damaged ({error!r})"
    return "; ".join(weak)
