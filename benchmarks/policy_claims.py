"""What is claimed of the one policy: every task as trained, pushed, beyond the training, and with each memory spoiled.

    python -m engram.benchmarks.policy_claims [--policy engram] [--quick]

The seeds are 0 and up, which training never saw, the same in every arm. Each ablation is run on every task: the bank,
which remembers the episode, emptied, swapped or replaced by noise, and memory/context, which tells of the scene graph,
withheld. Finished blocks of episodes are kept in ``work``: a run that was cut off goes on from there. Prints two
tables; the last line is JSON, which also goes to benchmarks/results/policy_claims.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.memory_tasks import (
    CONDITIONS,
    Block,
    beyond_training,
    configuration,
    measure,
    told_arms,
    trained_delay,
)
from engram.benchmarks.memory_tasks_figures import Found, cell, difference, figure, plain_figure
from engram.benchmarks.report import save_report
from engram.core.arrays import positive_int
from engram.core.errors import EngramError, InvalidInputError
from engram.core.provenance import machine
from engram.core.statistics import Rate, mean_rate
from engram.policies.loading import load_policy
from engram.policies.sequence_memory import NONE
from engram.policies.vla.recurrent_state import ABLATIONS, NO_CONTEXT
from engram.sim.pushes import pushable
from engram.sim.tasks import MEMORY_TASKS, TASKS, UNSEEN_TASKS

RESULTS = Path(__file__).resolve().parent / "results" / "policy_claims.json"
OURS, REFERENCE, PUSHED, REFERENCE_PUSHED = "as trained", "reference", "pushed", "reference pushed"
SPOILED = (*ABLATIONS[1:], NO_CONTEXT)
SUITES = {"tabletop": tuple(TASKS), "memory": tuple(MEMORY_TASKS), "out_of_view": tuple(UNSEEN_TASKS)}
PUSHABLE = tuple(filter(pushable, TASKS))
MEAN = {"tabletop": 0.98, "memory": 0.95, "out_of_view": 0.95}
"""Least mean success of each suite."""
EACH = {"tabletop": 0.95, "memory": 0.80}
"""Least success of each task of a suite."""
SOLVED, SOLVED_TASKS = 0.90, 10
"""So many memory tasks reach this."""
LOSS = 0.01
"""So much less than the reference on the tabletop tasks, at most."""
ANSWERED = 0.80
"""Least success where somebody pushes what the robot is after."""
BEYOND = {
    "held-out words": 0.92,
    "delay x2": 0.92,
    "delay x4": 0.88,
    "new colours": 0.85,
    "things x3": 0.92,
    "most alternatives": 0.70,
}
"""Least mean success of the memory tasks under conditions that training never had."""


@dataclass(frozen=True)
class PolicyClaims:
    """What is measured."""

    policy: str = "engram"
    """Checkpoint that is measured, a folder or a shipped name: it remembers its episode and reads memory/context."""
    quick: bool = False
    """Five episodes a task, and no conditions beyond the training."""
    reference: str = "base"
    """Policy that the tabletop tasks are compared with."""
    episodes: int = 100
    """Episodes a task as trained, and pushed episodes in all."""
    ablation_episodes: int = 20
    """Episodes a task in each ablation."""
    condition_episodes: int = 20
    """Episodes a task in each condition beyond the training."""
    block: int = 10
    """Episodes a process runs in one go, one after the other: swapped reads the memory of the one before."""
    workers: int = 2
    """Processes."""
    so_far: bool = False
    """Tell what has been run so far, and run nothing."""
    work: Path = Path("runs/policy_claims")
    """Folder of finished blocks."""
    output: Path = RESULTS
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "ablation_episodes", "condition_episodes", "block", "workers"):
            positive_int(f"PolicyClaims.{name}", getattr(self, name))


def blocks(config: PolicyClaims) -> list[Block]:
    """Return everything there is to run: all arms on the first seeds, then on the next, so that a part is fair too.

    Raises:
        InvalidInputError: the policy lacks one of its two memories, so that there is nothing to spoil.
    """
    if configuration(config.policy).get("memory", NONE) == NONE or not load_policy(config.policy).reads_context:
        raise InvalidInputError(f"policy {config.policy!r}: has no memory of its episode, or reads no memory/context")
    n, spoiled = (5, 5) if config.quick else (config.episodes, config.ablation_episodes)
    pushed = -(-n // len(PUSHABLE))
    every = tuple(task for tasks in SUITES.values() for task in tasks)
    arms = [
        (OURS, config.policy, "", every, n, False),
        (PUSHED, config.policy, "", PUSHABLE, pushed, True),
        (REFERENCE, config.reference, "", SUITES["tabletop"], n, False),
        (REFERENCE_PUSHED, config.reference, "", PUSHABLE, pushed, True),
        *((ablation, config.policy, ablation, every, spoiled, False) for ablation in SPOILED),
    ]
    found = [
        Block(arm, folder, ablation, task, first, min(config.block, count - first), pushed=push)
        for arm, folder, ablation, tasks, count, push in arms
        for first in range(0, count, config.block)
        for task in tasks
    ]
    if not config.quick:
        longest = trained_delay(config.policy)
        found += beyond_training(
            config.policy, tuple(CONDITIONS), SUITES["memory"], longest, config.condition_episodes, config.block
        )
    return sorted(found, key=lambda block: block.first_seed)


def complete(found: Found, wanted: Sequence[Block]) -> Found:
    """Return ``found`` without the arms that are told by one mean and lack a task: it would be none over all."""
    tasks: dict[str, set[str]] = {}
    for block in wanted:
        tasks.setdefault(block.arm, set()).add(block.row or block.task)
    told = (PUSHED, REFERENCE_PUSHED, *BEYOND)
    return {arm: rates for arm, rates in found.items() if arm not in told or set(rates) == tasks.get(arm)}


def claims(found: Found) -> list[dict[str, Any]]:
    """Return what is claimed of the arms in ``found``, each with interval, n and target."""
    out = []
    for arm in (OURS, *SPOILED, REFERENCE):
        for suite, mean in _means(found.get(arm, {})).items():
            out.append(figure(f"{suite}_{_key(arm)}", mean, MEAN[suite] if arm == OURS else None))
    ours = found.get(OURS, {})
    for suite, least in EACH.items():
        out += [figure(f"{task}_as_trained", ours[task], least) for task in SUITES[suite] if task in ours]
    out += [figure(f"{task}_as_trained", ours[task]) for task in SUITES["out_of_view"] if task in ours]
    if "memory" in _means(ours):
        solved, n = sum(ours[task].rate >= SOLVED for task in SUITES["memory"]), len(SUITES["memory"])
        out.append(plain_figure("memory_tasks_solved", solved, None, n, SOLVED_TASKS, solved >= SOLVED_TASKS))
    if (mine := _means(ours).get("tabletop")) and (its := _means(found.get(REFERENCE, {})).get("tabletop")):
        value, low, high, n = difference(mine, its)
        out.append(plain_figure("tabletop_minus_reference", value, (low, high), n, -LOSS, value >= -LOSS))
    for arm in (PUSHED, REFERENCE_PUSHED):
        if arm in found:
            mean = mean_rate([*found[arm].values()])
            out.append(figure(f"tabletop_{_key(arm)}", mean, ANSWERED if arm == PUSHED else None))
    for condition, least in BEYOND.items():
        if condition in found:
            out.append(figure(f"memory_{_key(condition)}", mean_rate([*found[condition].values()]), least))
    return out


def _key(arm: str) -> str:
    return arm.replace(" ", "_").replace("-", "_")


def _means(tasks: dict[str, Rate]) -> dict[str, Rate]:
    """Return the mean of each suite that has been run on all of its tasks."""
    return {
        suite: mean_rate([tasks[task] for task in names])
        for suite, names in SUITES.items()
        if all(task in tasks for task in names)
    }


def table(found: Found) -> Table:
    """Return success in percent with its interval and n, a row for each task, a column for each arm."""
    shown = Table("task", *found, title="Success in percent [95 % interval] (n)")
    for names in SUITES.values():
        for task in names:
            shown.add_row(task, *(cell(tasks.get(task)) for tasks in found.values()))
        shown.add_section()
    return shown


def main(config: PolicyClaims | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(PolicyClaims)
    where = machine()  # with the load before the measurement
    wanted = blocks(config)
    found = measure(wanted, config.work, 0 if config.so_far else config.workers)
    if OURS not in found:
        raise EngramError(f"{config.work}: nothing of {config.policy!r} was run with this code so far")
    Console(width=220, stderr=True).print(table(found))
    told = replace(config, policy=Path(config.policy).name, work=Path(config.work.name))
    rows = {arm: {task: asdict(rate) for task, rate in tasks.items()} for arm, tasks in found.items()}
    figures = claims(complete(found, wanted))
    save_report(config.output, "policy_claims", where, told, figures=figures, rows=rows, arms=told_arms(wanted))


if __name__ == "__main__":
    main()
