"""What memory is worth: a policy on the twelve memory tasks and the six Markovian ones, with its memory and without.

    python -m engram.benchmarks.memory_tasks [--quick] [--policy memory] [--others none=outputs/none/policy ...]

The policy is run as it is and with its memory spoiled, beside other policies on the same seeds, 0 and up, that training
never saw; and in conditions that training never had: longer delays, more alternatives, new colours, new wordings.
Finished blocks of episodes are kept in ``work``: a run that was cut off goes on from there. Prints one table; the last
line is JSON, which also goes to benchmarks/results/memory_tasks.json.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.report import save_report
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.provenance import machine
from engram.core.statistics import Rate, mean_rate, wilson
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.policies.opening import checkpoint_folder
from engram.policies.vla_policy import VlaPolicy, load_policy
from engram.sim.evaluation import evaluate
from engram.sim.tasks import TASKS, expand, get_task, with_options
from engram.sim.tasks.memory import MemoryTask
from engram.sim.world import MujocoWorld, WorldConfig

RESULTS = Path(__file__).resolve().parent / "results" / "memory_tasks.json"
OURS = "ours"
SOLVED, SOLVED_TASKS, GAIN = 0.90, 9, 0.40
"""Targets: so many tasks with at least this success, and so much more than without memory in the mean."""


@dataclass(frozen=True)
class Condition:
    """What is made harder than in training."""

    delay: int = 1
    """The delay is so many times as long."""
    most: bool = False
    """As many alternatives as the task has."""
    first_color: int = 0
    """Where the palette begins."""
    held_out: bool = False
    """Words that training never used."""

    def task(self, name: str) -> str | None:
        """Return task ``name`` under this condition; None where it changes nothing."""
        task = get_task(name)
        assert isinstance(task, MemoryTask)
        usual = task.config
        options = {
            "delay": usual.delay * self.delay if self.delay > 1 and usual.delay else None,
            "alternatives": task.most if self.most and task.most > usual.alternatives else None,
            "first_color": self.first_color if self.first_color and name in COLORED else None,
        }
        changed = self.held_out or any(value is not None for value in options.values())
        return with_options(name, **options) if changed else None


CONDITIONS = {
    "delay x2": Condition(delay=2),
    "delay x4": Condition(delay=4),
    "most alternatives": Condition(most=True),
    "new colours": Condition(first_color=3),
    "held-out words": Condition(held_out=True),
}
COLORED = (
    *("remember_color", "match_color", "change_food", "take_it_back", "put_block_back"),
    *("rearrange_block", "intercept_grab", "reopen_drawer"),
)
"""Tasks in which things have colours of the palette."""


@dataclass(frozen=True)
class MemoryTasksBenchmark:
    """What is measured."""

    quick: bool = False
    """Five episodes a task, and the emptied memory alone beside it."""
    policy: str = "memory"
    """Checkpoint that is proved: a shipped name or a folder."""
    others: tuple[str, ...] = ()
    """Policies to compare it with, as name=folder; one called none is the policy without memory."""
    lesions: tuple[str, ...] = ("zeroed", "swapped", "noise")
    """How to spoil what the policy's memory reads."""
    tasks: tuple[str, ...] = ("memory",)
    """Tasks or suites with all arms."""
    plain_tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks that need no memory, for the policy, ``base`` and the others."""
    episodes: int = 100
    """Episodes a task: seeds 0 to episodes - 1."""
    lesion_episodes: int = 50
    """Episodes a task with a spoiled memory."""
    conditions: tuple[str, ...] = tuple(CONDITIONS)
    """Conditions beyond training for the policy."""
    condition_episodes: int = 20
    """Episodes a task in each condition."""
    block: int = 10
    """Episodes a process runs in one go, one after the other: swapped reads the memory of the one before."""
    workers: int = 2
    """Processes."""
    so_far: bool = False
    """Tell what has been run so far, and run nothing."""
    work: Path = Path("runs/memory_tasks")
    """Folder of finished blocks."""
    output: Path = RESULTS
    """Where the JSON goes."""


@dataclass(frozen=True)
class Block:
    """Some episodes of one task in one arm."""

    arm: str
    folder: str
    lesion: str
    task: str
    first_seed: int
    count: int
    row: str = ""
    """The task's name in the table; "" = ``task``."""
    held_out: bool = False

    @property
    def name(self) -> str:
        """Name of the block's file; other weights are another block."""
        weights = _weights(self.folder)
        task = self.task.replace(":", "-").replace(",", "-").replace("=", "")
        return f"{self.arm}-{weights}-{task}-{self.first_seed}-{self.count}.json"


@functools.cache
def _weights(folder: str) -> str:
    return sha256(checkpoint_folder(folder) / WEIGHTS)[:12]


@functools.cache
def _world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="fast"))


@functools.cache
def _policy(folder: str, lesion: str) -> VlaPolicy:
    return load_policy(folder, lesion=lesion)


def run_block(block: Block) -> tuple[Block, dict[str, Any]]:
    """Run the episodes of ``block`` in this process."""
    policy = _policy(block.folder, block.lesion)
    how = {"episodes": block.count, "first_seed": block.first_seed, "held_out": block.held_out}
    report = evaluate(policy, _world(), (block.task,), progress=False, **how)
    return block, {"successes": report.per_task[block.task].successes, "failures": report.failures[block.task]}


def blocks(config: MemoryTasksBenchmark) -> list[Block]:
    """Return everything there is to run: all arms on the first seeds, then on the next, so that a part is fair too.

    Raises:
        InvalidInputError: one of ``others`` is not name=folder.
        UnknownNameError: one of ``conditions`` is none.
    """
    for condition in config.conditions:
        if condition not in CONDITIONS:
            raise unknown_name("condition", condition, CONDITIONS)
    for other in config.others:
        if "=" not in other:
            raise InvalidInputError(f"others: {other!r}, expected name=folder")
    episodes = 5 if config.quick else config.episodes
    spoiled = 5 if config.quick else config.lesion_episodes
    lesions = config.lesions[:1] if config.quick else config.lesions
    others = dict(other.split("=", 1) for other in config.others)
    memory, plain = expand(config.tasks), expand(config.plain_tasks)
    arms = [(OURS, config.policy, "", memory, episodes)]
    arms += [(f"{OURS}-{lesion}", config.policy, lesion, memory, spoiled) for lesion in lesions[:1]]
    arms += [(name, folder, "", memory, episodes) for name, folder in others.items()]
    arms += [(OURS, config.policy, "", plain, episodes)]
    arms += [(f"{OURS}-{lesion}", config.policy, lesion, memory, spoiled) for lesion in lesions[1:]]
    arms += [(name, folder, "", plain, episodes) for name, folder in {"base": "base", **others}.items()]
    found = [
        Block(arm, folder, lesion, task, first, min(config.block, n - first))
        for arm, folder, lesion, tasks, n in arms
        for first in range(0, n, config.block)
        for task in tasks
    ]
    found += [] if config.quick else _beyond(config, memory)
    return sorted(found, key=lambda block: block.first_seed)


def _beyond(config: MemoryTasksBenchmark, tasks: tuple[str, ...]) -> list[Block]:
    """Return the blocks in which the policy meets what training never had."""
    n = config.condition_episodes
    return [
        Block(name, config.policy, "", task, first, min(config.block, n - first), row, CONDITIONS[name].held_out)
        for name in config.conditions
        for first in range(0, n, config.block)
        for row in tasks
        if (task := CONDITIONS[name].task(row)) is not None
    ]


def measure(config: MemoryTasksBenchmark) -> dict[str, dict[str, Rate]]:
    """Run what is missing and return the rate of each task in each arm."""
    config.work.mkdir(parents=True, exist_ok=True)
    wanted = blocks(config)
    todo = [block for block in wanted if not (config.work / block.name).exists()]
    if todo and not config.so_far:
        with multiprocessing.get_context("spawn").Pool(min(config.workers, len(todo))) as pool:
            ran = pool.imap_unordered(run_block, todo)
            for block, result in track(ran, "evaluating", total=len(todo), console=Console(stderr=True)):
                fresh = config.work / f"{block.name}.partial"
                fresh.write_text(json.dumps({**asdict(block), **result}))
                fresh.rename(config.work / block.name)
    return rates(wanted, config.work)


def rates(wanted: list[Block], work: Path) -> dict[str, dict[str, Rate]]:
    """Return arm -> task -> rate of those blocks that have been run."""
    counts: dict[str, dict[str, list[int]]] = {}
    for block in wanted:
        if (work / block.name).exists():
            successes = json.loads((work / block.name).read_text())["successes"]
            count = counts.setdefault(block.arm, {}).setdefault(block.row or block.task, [0, 0])
            count[0], count[1] = count[0] + successes, count[1] + block.count
    return {arm: {task: wilson(*count) for task, count in tasks.items()} for arm, tasks in counts.items()}


def chance(task: str) -> float:
    """Return how often a guess is right."""
    return 1.0 / get_task(task).cues


def figures(found: dict[str, dict[str, Rate]], config: MemoryTasksBenchmark) -> list[dict[str, Any]]:
    """Return what is claimed, each with interval, n and target."""
    memory, plain = expand(config.tasks), expand(config.plain_tasks)
    out = []
    for arm, tasks in found.items():
        for suite, names in (("memory_tasks", memory), ("markovian_tasks", plain)):
            if arm not in config.conditions and names and all(name in tasks for name in names):
                out.append(_figure(f"{suite}_mean_{arm}", mean_rate([tasks[name] for name in names])))
    ours = found[OURS]
    there = [name for name in memory if name in ours]
    out += [_figure(f"{name}_ours", ours[name], SOLVED) for name in there]
    solved = sum(ours[name].rate >= SOLVED for name in there)
    out.append(_plain("memory_tasks_solved_ours", solved, None, len(there), SOLVED_TASKS, solved >= SOLVED_TASKS))
    for arm in ("none", f"{OURS}-zeroed"):
        if arm in found and all(name in found[arm] for name in memory):
            gain = difference(*(mean_rate([found[a][name] for name in memory]) for a in (OURS, arm)))
            value, low, high, n = gain
            out.append(_plain(f"memory_tasks_gain_over_{arm}", value, (low, high), n, GAIN, value >= GAIN))
    for arm in [arm for arm in config.conditions if arm in found]:
        under, usual = (mean_rate([found[a][name] for name in found[arm] if name in ours]) for a in (arm, OURS))
        value, low, high, n = difference(under, usual)
        name = arm.replace(" ", "_").replace("-", "_")
        out.append(_figure(f"memory_tasks_mean_{name}", under))
        out.append(_plain(f"memory_tasks_{name}_minus_ours", value, (low, high), n, None, None))
    guess = sum(chance(name) for name in memory) / len(memory)
    return [*out, _plain("memory_tasks_mean_chance", guess, None, len(memory), None, None)]


def difference(a: Rate, b: Rate) -> tuple[float, float, float, int]:
    """Return a - b with its interval (MOVER, as in ``mean_rate``), and the lesser n."""
    value = a.rate - b.rate
    low = value - ((a.rate - a.low) ** 2 + (b.high - b.rate) ** 2) ** 0.5
    high = value + ((a.high - a.rate) ** 2 + (b.rate - b.low) ** 2) ** 0.5
    return value, low, high, min(a.n, b.n)


def _figure(name: str, rate: Rate, target: float | None = None) -> dict[str, Any]:
    met = None if target is None else rate.rate >= target
    return _plain(name, rate.rate, (rate.low, rate.high), rate.n, target, met)


def _plain(
    name: str, value: float, interval: tuple[float, float] | None, n: int, target: float | None, met: bool | None
) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 4),
        "interval": None if interval is None else [round(v, 4) for v in interval],
        "n": n,
        "target": target,
        "met": met,
    }


def table(found: dict[str, dict[str, Rate]], config: MemoryTasksBenchmark) -> Table:
    """Return success per task and arm in percent, with n."""
    shown = Table("task", "chance", *found, title="Success in percent (n)")
    for name in (*expand(config.tasks), *expand(config.plain_tasks)):
        row = [found[arm].get(name) for arm in found]
        guess = f"{100 * chance(name):.0f}" if hasattr(get_task(name), "cues") else ""
        shown.add_row(name, guess, *("" if r is None else f"{100 * r.rate:.0f} ({r.n})" for r in row))
    return shown


def main(config: MemoryTasksBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(MemoryTasksBenchmark)
    where = machine()  # with the load before the measurement
    found = measure(config)
    Console(width=150, stderr=True).print(table(found, config))
    rows = {arm: {task: asdict(rate) for task, rate in tasks.items()} for arm, tasks in found.items()}
    weights = {arm: _weights(folder) for arm, folder in {(b.arm, b.folder) for b in blocks(config)}}
    config = replace(config, work=Path(config.work.name))  # where it lay on this machine tells nobody anything
    save_report(config.output, "memory_tasks", where, config, figures=figures(found, config), rows=rows, sha256=weights)


if __name__ == "__main__":
    main()
