"""What memory is worth: a policy on the twelve memory tasks and the six Markovian ones, with its memory and without.

    python -m engram.benchmarks.memory_tasks [--quick] [--policy engram] [--others none=outputs/none/policy ...]

The policy is run as it is and with its memory spoiled, beside other policies and the state oracle on the same seeds, 0
and up, that training never saw; and in conditions that training never had: longer delays, more alternatives, things
that mean nothing, new colours, new wordings. Finished blocks of episodes are kept in ``work``: a run that was cut off
goes on from there. Prints two tables; the last line is JSON, which also goes to benchmarks/results/memory_tasks.json.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import track

from engram.benchmarks.memory_tasks_figures import OURS, Found, figures, tables
from engram.benchmarks.report import save_report
from engram.core.arrays import positive_int
from engram.core.child import run_spawned
from engram.core.contracts import Policy
from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.provenance import digest, machine
from engram.core.statistics import wilson
from engram.policies.checkpoint import CARD, WEIGHTS, fingerprint, sha256
from engram.policies.loading import load_policy
from engram.policies.opening import checkpoint_folder
from engram.policies.sequence_memory import NONE
from engram.policies.vla.chunking import follow
from engram.policies.vla.recurrent_state import ABLATIONS
from engram.runtime.record import FIRST_TRAINING_SEED
from engram.sim.oracle import ORACLE_STATE, PrivilegedPolicy
from engram.sim.robots.model import Profile
from engram.sim.tasks import TASKS, each_once, get_task, with_options
from engram.sim.tasks.memory import MEMORY_TASKS, MemoryConfig, MemoryTask
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import evaluate

RESULTS = Path(__file__).resolve().parent / "results" / "memory_tasks.json"
CONFIG = "config.json"
BASE = "base"
"""Arm and shipped policy without a memory, on the tasks that need none."""
FULL = ("none", "gru")
"""Policies beside ours that are measured as often as ours."""


@dataclass(frozen=True)
class Condition:
    """What is made harder than in training."""

    delay: int = 0
    """The delay is so many times as long as the longest of the training; 0 = as ever."""
    most: bool = False
    """As many alternatives as the task has."""
    things: int = 1
    """So many times as many things as there are to tell apart: the others mean nothing."""
    first_color: int = 0
    """Where the palette begins."""
    held_out: bool = False
    """Words that training never used."""

    def task(self, name: str, longest: int) -> str | None:
        """Return task ``name`` under this condition, where ``longest`` is the longest delay of the training [control
        steps]; None where it changes nothing."""
        task = get_task(name)
        assert isinstance(task, MemoryTask)
        usual = task.config
        options = {
            "delay": self.delay * longest if self.delay else None,
            "alternatives": task.most if self.most and task.most > usual.alternatives else None,
            "first_color": self.first_color if self.first_color and name in COLORED else None,
            "distractors": (self.things - 1) * usual.alternatives if self.things > 1 else None,
        }
        changed = self.held_out or any(value is not None for value in options.values())
        return with_options(name, **options) if changed else None


CONDITIONS = {
    "delay x2": Condition(delay=2),
    "delay x4": Condition(delay=4),
    "most alternatives": Condition(most=True),
    "things x3": Condition(things=3),
    "new colours": Condition(first_color=6),
    "held-out words": Condition(held_out=True),
}
UNCOLORED = ("shell_touch", "seq_push_buttons", "count_presses", "stop_cube")
COLORED = tuple(task for task in MEMORY_TASKS if task not in UNCOLORED)
"""Tasks in which things have colours of the palette: training may show the first six, these are the last three (of
intercept_grab's one thing, whose colours are counted from orange on, the third)."""


@dataclass(frozen=True)
class MemoryTasksBenchmark:
    """What is measured."""

    quick: bool = False
    """Five episodes a task, and the emptied memory alone beside it."""
    policy: str = "engram"
    """Checkpoint that is proved: a shipped name or a folder."""
    others: tuple[str, ...] = ()
    """Policies to compare it with, as name=folder; one called none is the policy without memory."""
    ablations: tuple[str, ...] = ("zeroed", "swapped", "noise")
    """How to spoil what the policy's memory reads."""
    tasks: tuple[str, ...] = ("memory",)
    """Tasks or suites with all arms."""
    plain_tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks that need no memory, for the policy, ``base`` and the others."""
    episodes: int = 100
    """Episodes a task, seeds 0 to episodes - 1, of the policy and of the arms none, gru and oracle_state."""
    ablation_episodes: int = 50
    """Episodes a task with a spoiled memory, and of the other policies: the first so many seeds."""
    conditions: tuple[str, ...] = tuple(CONDITIONS)
    """Conditions beyond training for the policy."""
    longest_delay: int = 0
    """Longest delay that the policy was trained with [control steps]; 0 = that of the task names on its card."""
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
    folder: str  # or the state oracle's name
    ablation: str
    task: str
    first_seed: int
    count: int
    row: str = ""
    """The task's name in the table; "" = ``task``."""
    held_out: bool = False
    pushed: bool = False
    """Somebody pushes what the robot is after."""

    @property
    def name(self) -> str:
        """Name of the block's file; with other weights, another configuration or other code it is another block."""
        weights = f"{_weights(self.folder)}-code_{_code()}"
        task = self.task.replace(":", "-").replace(",", "-").replace("=", "")
        return f"{self.arm}-{weights}-{task}-{self.first_seed}-{self.count}.json"


@functools.cache
def _code() -> str:
    return digest(*(f"{room}/**/*.py" for room in ("core", "memory", "perception", "policies", "runtime", "sim")))


@functools.cache
def _weights(folder: str) -> str:
    """Return what the arm is: the fingerprint of its checkpoint, or of the scripts' code."""
    return digest("sim/**/*.py") if folder == ORACLE_STATE else fingerprint(checkpoint_folder(folder))


@functools.cache
def _world(profile: Profile, depth: bool = False) -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile=profile, depth=depth))


@functools.cache
def _policy(folder: str, ablation: str) -> tuple[Policy, MujocoWorld]:
    if folder == ORACLE_STATE:
        return PrivilegedPolicy(_world("none")), _world("none")
    policy = follow(load_policy(folder, ablation=ablation))
    return policy, _world("fast", policy.reads_context)  # the scene graph is built from depth


def run_block(block: Block) -> tuple[Block, dict[str, Any]]:
    """Run the episodes of ``block`` in this process."""
    policy, world = _policy(block.folder, block.ablation)
    if block.ablation == "swapped":  # the first episode needs one before it, whose memory it is given
        before = (block.first_seed or FIRST_TRAINING_SEED) - 1
        evaluate(policy, world, (block.task,), episodes=1, first_seed=before, progress=False)
    report = evaluate(
        policy,
        world,
        (block.task,),
        episodes=block.count,
        first_seed=block.first_seed,
        held_out=block.held_out,
        push=block.pushed,
        progress=False,
    )
    return block, {"successes": report.per_task[block.task].successes, "failures": report.failures[block.task]}


def blocks(config: MemoryTasksBenchmark) -> list[Block]:
    """Return everything there is to run: all arms on the first seeds, then on the next, so that a part is fair too.

    Raises:
        InvalidInputError: one of ``others`` is not name=folder with a name of its own, one of ``tasks`` needs no memory
            or is there twice, the policy has no memory to spoil.
        UnknownNameError: one of ``conditions`` or ``ablations`` is none.
    """
    for condition in config.conditions:
        if condition not in CONDITIONS:
            raise unknown_name("condition", condition, CONDITIONS)
    _check(config)
    episodes = 5 if config.quick else config.episodes
    spoiled = 5 if config.quick else config.ablation_episodes
    ablations = config.ablations[:1] if config.quick else config.ablations
    others = dict(other.split("=", 1) for other in config.others)
    memory, plain = each_once(config.tasks), each_once(config.plain_tasks)
    for task in memory:
        if not isinstance(get_task(task), MemoryTask):
            valid = ", ".join(MEMORY_TASKS)
            raise InvalidInputError(f"tasks: {task!r} needs no memory (plain_tasks takes it), expected of {valid}")
    arms = [(OURS, config.policy, "", memory, episodes)]
    arms += [(f"{OURS}-{ablation}", config.policy, ablation, memory, spoiled) for ablation in ablations[:1]]
    counts = {name: episodes if name in FULL else spoiled for name in others}
    arms += [(name, folder, "", memory, counts[name]) for name, folder in others.items()]
    arms += [(ORACLE_STATE, ORACLE_STATE, "", memory, episodes), (OURS, config.policy, "", plain, episodes)]
    arms += [(f"{OURS}-{ablation}", config.policy, ablation, memory, spoiled) for ablation in ablations[1:]]
    arms += [(BASE, BASE, "", plain, episodes)]
    arms += [(name, folder, "", plain, counts[name]) for name, folder in others.items()]
    found = [
        Block(arm, folder, ablation, task, first, min(config.block, n - first))
        for arm, folder, ablation, tasks, n in arms
        for first in range(0, n, config.block)
        for task in tasks
    ]
    if not config.quick:
        longest = config.longest_delay or trained_delay(config.policy)
        found += beyond_training(
            config.policy, config.conditions, memory, longest, config.condition_episodes, config.block
        )
    return sorted(found, key=lambda block: block.first_seed)


def _check(config: MemoryTasksBenchmark) -> None:
    """Raise for what would only come out after hours, or not at all."""
    for name in ("episodes", "ablation_episodes", "condition_episodes", "block", "workers"):
        positive_int(f"MemoryTasksBenchmark.{name}", getattr(config, name))
    for ablation in config.ablations:
        if ablation not in ABLATIONS[1:]:
            raise unknown_name("ablation", ablation, ABLATIONS[1:])
    if config.ablations and configuration(config.policy).get("memory", NONE) == NONE:
        raise InvalidInputError(f"policy {config.policy!r} has no memory of its episode to spoil: give no ablations")
    taken = [OURS, ORACLE_STATE, BASE, *(f"{OURS}-{ablation}" for ablation in ABLATIONS[1:]), *CONDITIONS]
    for other in config.others:
        name, equals, _ = other.partition("=")
        if not equals or not name or "/" in name:
            raise InvalidInputError(f"others: {other!r}, expected name=folder, the name without '/'")
        if name in taken:
            raise InvalidInputError(f"others: the name {name!r} is taken; taken are {', '.join(taken)}")
        taken.append(name)


def beyond_training(
    policy: str, conditions: tuple[str, ...], tasks: tuple[str, ...], longest: int, episodes: int, block: int
) -> list[Block]:
    """Return the blocks in which ``policy``, whose training knew delays up to ``longest`` [control steps], meets what
    training never had."""
    return [
        Block(name, policy, "", task, first, min(block, episodes - first), row, CONDITIONS[name].held_out)
        for name in conditions
        for first in range(0, episodes, block)
        for row in tasks
        if (task := CONDITIONS[name].task(row, longest)) is not None
    ]


def trained_delay(policy: str) -> int:
    """Return the longest delay [control steps] that the card of ``policy`` names among its tasks."""
    names = _card(policy).get("tasks", ())
    tasks = [get_task(name) for name in names if name.partition(":")[0] in MEMORY_TASKS]
    return max((task.config.delay for task in tasks if isinstance(task, MemoryTask)), default=MemoryConfig.delay)


def configuration(policy: str) -> dict[str, Any]:
    """Return the configuration of ``policy``, a shipped name or a folder."""
    return dict(json.loads((checkpoint_folder(policy) / CONFIG).read_text()))


def _card(policy: str) -> dict[str, Any]:
    path = checkpoint_folder(policy) / CARD
    return dict(json.loads(path.read_text())) if path.exists() else {}


def told_arms(wanted: list[Block]) -> dict[str, dict[str, Any]]:
    """Return what each arm of ``wanted`` is: its weights, how they were trained, how its memory is spoiled."""
    return {block.arm: _told(block) for block in wanted}


def _told(block: Block) -> dict[str, Any]:
    if block.folder == ORACLE_STATE:
        return {"policy": "scripted expert, from simulator truth, 4 steps at a time", "code": _weights(block.folder)}
    folder, card, own = checkpoint_folder(block.folder), _card(block.folder), configuration(block.folder)
    trained: dict[str, Any] = {key: card[key] for key in ("step", "dataset_sha256") if key in card}
    acts = {"adaptive_m": own["adaptive_m"]} if own.get("adaptive_m") else {}
    spoiled = {"ablation": block.ablation} if block.ablation else {}
    return {"memory": own.get("memory", "none"), "sha256": sha256(folder / WEIGHTS), **trained, **acts, **spoiled}


def measure(wanted: list[Block], work: Path, workers: int) -> Found:
    """Run what of ``wanted`` is missing in ``work`` and return the rate of each task in each arm; with 0 ``workers``
    of what is there."""
    work.mkdir(parents=True, exist_ok=True)
    todo = [block for block in wanted if not (work / block.name).exists()]
    if todo and workers:
        ran = run_spawned(run_block, todo, min(workers, len(todo)))
        for block, result in track(ran, "evaluating", total=len(todo), console=Console(stderr=True)):
            fresh = work / f"{block.name}.partial"
            fresh.write_text(json.dumps({**asdict(block), **result}))
            fresh.rename(work / block.name)
    return rates(wanted, work)


def rates(wanted: list[Block], work: Path) -> Found:
    """Return arm -> task -> rate of those blocks that have been run."""
    counts: dict[str, dict[str, list[int]]] = {}
    for block in wanted:
        if (work / block.name).exists():
            successes = json.loads((work / block.name).read_text())["successes"]
            count = counts.setdefault(block.arm, {}).setdefault(block.row or block.task, [0, 0])
            count[0], count[1] = count[0] + successes, count[1] + block.count
    return {arm: {task: wilson(*count) for task, count in tasks.items()} for arm, tasks in counts.items()}


def main(config: MemoryTasksBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(MemoryTasksBenchmark)
    where = machine()  # with the load before the measurement
    wanted = blocks(config)
    found, arms = measure(wanted, config.work, 0 if config.so_far else config.workers), told_arms(wanted)
    if OURS not in found:
        raise EngramError(f"{config.work}: nothing of {config.policy!r} was run with this code ({_code()}) so far")
    for shown in tables(found, config):
        Console(width=200, stderr=True).print(shown)
    for arm, about in arms.items():
        if arm not in config.conditions:  # there it is ours
            print(f"{arm}: {', '.join(f'{key} {value}' for key, value in about.items())}", file=sys.stderr)
    rows = {arm: {task: asdict(rate) for task, rate in tasks.items()} for arm, tasks in found.items()}
    told = anonymous(config)
    save_report(config.output, "memory_tasks", where, told, figures=figures(found, config), rows=rows, arms=arms)


def anonymous(config: MemoryTasksBenchmark) -> MemoryTasksBenchmark:
    """Return ``config`` without folders: where they lay on this machine tells nobody anything."""
    others = tuple(other.partition("=")[0] for other in config.others)
    return replace(config, policy=Path(config.policy).name, others=others, work=Path(config.work.name))


if __name__ == "__main__":
    main()
