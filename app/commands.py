"""Subcommands that hand over to the libraries: ``engram train``, ``relight``, ``eval``, ``record``, ``bench``, ..."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

from engram.app.options import chosen, new_folder, writable
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.paths import is_on_hub
from engram.core.provenance import commit, machine
from engram.core.registry import is_spec, make_robot

if TYPE_CHECKING:  # torch and LeRobot: only for those who ask for them
    from engram.policies.training.relight_config import RelightConfig
    from engram.policies.training.train_config import TrainConfig
    from engram.runtime.datasets import MergeConfig
    from engram.runtime.experience_dataset import DatasetConfig
    from engram.runtime.record import RecordConfig

BENCHMARKS = (
    *("sim", "loop", "perception", "memory", "memory_ram", "memory_weeks", "stores", "eviction", "policy", "chunking"),
    *("learner", "fsync", "link"),
)
"""Benchmarks by name; one is there when its module engram.benchmarks.<name> is."""


SCRIPTED: dict[str, tuple[str, ...]] = {
    "experts": ("world",),
    "guess": ("world",),
    "oracle_state": ("execute_steps",),
}
"""What ``engram eval`` runs other than a policy, and the options that each of them takes; a checkpoint takes all."""
WAYS = (
    *("swap", "held_out", "ablation", "execute_steps", "ensemble", "adaptive_m", "push", "randomise_looks", "world"),
    *("detector", "contact_sheets"),
)
"""The options of ``engram eval`` that say how a policy is run."""
REPLANNING = ("execute_steps", "ensemble", "adaptive_m")
"""Those of them that a Policy of one's own does not take: it says itself how its chunks follow one another."""


@dataclass(frozen=True)
class EvalConfig:
    """Success rates with intervals, in simulation, through the same loop as the nodes."""

    policy: tyro.conf.Positional[str] = "base"
    """Checkpoint: a shipped name, a folder, or package.module:attribute of a Policy of your own. ``experts``: the
    scripted experts; ``guess``: experts that guess the cue; ``oracle_state``: experts that replan as seldom as a
    policy."""
    episodes: int = 50
    """Episodes a task."""
    first_seed: int = 0
    """Seeds are first_seed .. first_seed + episodes - 1 (training uses 100000 and up)."""
    tasks: tuple[str, ...] = ()
    """Which tasks or suites (tabletop, memory, unseen, all), as in shell_touch:delay=20,alternatives=4, or
    package.module:attribute of your own; default: tabletop."""
    swap: bool = False
    """Swap the instruction for that of another object in the same scene, and measure which goal is reached."""
    held_out: bool = False
    """Give the instruction in held-out wordings, which training never used."""
    robot: str = "panda_2f85"
    """Robot that acts: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    output: str = ""
    """File for the report, with commit and machine; empty: none."""
    ablation: str = ""
    """Tamper with the policy's sequence memory: zeroed, noise, or swapped (with that of the previous episode); or
    withhold memory/context: no_context."""
    execute_steps: int = 0
    """Replan after so many steps of an action chunk: 1 to the policy's chunk size; 0: its own setting."""
    ensemble: bool = False
    """Replan at every step and average the chunks where they overlap (temporal ensembling)."""
    adaptive_m: float | None = None
    """Replan at every step, and switch to the new chunk when the two differ by more than this [m]; 0: never; None:
    the policy's own setting."""
    push: bool = False
    """Push the object that the instruction names once, while the arm approaches it (reach, push_to_mark, pick_place,
    stack)."""
    randomise_looks: bool = False
    """Draw lights, table colour and a small displacement of the perception camera from each seed."""
    world: str = "tabletop"
    """World to run in: tabletop, tabletop:gap=late (any gap of engram improve that can be built into the simulated
    world, but no file), tabletop:brightness=0.7,mass=2 (values of a gap), or package.module:attribute of your own."""
    detector: str = "geometric"
    """What finds the objects for a policy that acts on memory/context: geometric, zero_shot, or
    package.module:attribute of your own."""
    contact_sheets: str = ""
    """Folder for a picture of each failed episode, a row for each camera, time to the right; empty: none."""


def evaluate(config: EvalConfig) -> int:
    """Run the evaluation; the last line is the report as JSON."""
    from engram.sim.tasks import TASKS, expand
    from engram.validation import evaluation

    where = {"command": " ".join(sys.argv[1:]), "commit": commit(), "machine": machine()}
    _check_options(config)
    robot = make_robot(config.robot)
    tasks = expand(config.tasks) if config.tasks else evaluation.SWAPPABLE if config.swap else tuple(TASKS)
    path = writable("EvalConfig.output", config.output, _read(config.policy))
    sheets = new_folder("EvalConfig.contact_sheets", Path(config.contact_sheets)) if config.contact_sheets else None
    seeds: evaluation.Seeds = {"episodes": config.episodes, "first_seed": config.first_seed}
    report: evaluation.Report | evaluation.SwapReport
    if config.policy in ("experts", "guess"):
        guess = config.policy == "guess"
        report = evaluation.evaluate_experts(tasks, **seeds, guess=guess, world=config.world, robot=robot)
    elif config.policy == "oracle_state":
        report = evaluation.evaluate_oracle_state(tasks, **seeds, execute_steps=config.execute_steps, robot=robot)
    else:
        report = evaluation.evaluate_checkpoint(
            config.policy,
            tasks,
            **seeds,
            swap=config.swap,
            held_out=config.held_out,
            ablation=config.ablation,
            execute_steps=config.execute_steps,
            ensemble=config.ensemble,
            adaptive_m=config.adaptive_m,
            push=config.push,
            world=config.world,
            detector=config.detector,
            randomise_looks=config.randomise_looks,
            robot=robot,
            sheets=sheets,
        )
    Console(stderr=True).print(report.table())
    print(report.to_json())
    if path is not None:
        path.write_text(json.dumps({**json.loads(report.to_json()), **where}, indent=1) + "\n")
    return 0


def _read(policy: str) -> dict[str, Path]:
    """Return the folder of ``policy``, by what it is; of what is scripted, imported or on the hub there is none."""
    if policy in SCRIPTED or is_spec(policy) or is_on_hub(policy):
        return {}
    from engram.policies.opening import checkpoint_folder

    return {"the policy": checkpoint_folder(policy)}


def _check_options(config: EvalConfig) -> None:
    """Raise InvalidInputError for options that would have no effect, or cannot be had."""
    own = tuple(name for name in WAYS if name not in REPLANNING)
    taken = SCRIPTED.get(config.policy, own if is_spec(config.policy) else WAYS)
    idle = [name for name in chosen(config, WAYS) if name not in taken]
    why = f"{config.policy} takes {', '.join(taken) or 'none'} of {', '.join(WAYS)}"
    if not idle and config.swap:
        idle = chosen(config, ("held_out", "push", "contact_sheets"))
        why = "swap says words of its own, nobody pushes, and another goal is no failure"
    if not idle and config.ensemble and config.execute_steps:
        idle, why = ["execute_steps"], "ensemble asks at every step"
    if idle:
        raise InvalidInputError(f"{', '.join(idle)}: would change nothing: {why}")
    if config.execute_steps < 0:
        raise InvalidInputError(f"EvalConfig.execute_steps: {config.execute_steps}, expected 0 or more")


def record(config: RecordConfig) -> int:
    """Record demonstrations of the scripted experts; the last line is the report as JSON."""
    from engram.runtime.record import record

    print(json.dumps(asdict(record(config))))
    return 0


def merge(config: MergeConfig) -> int:
    """Make one dataset of several recordings; the last line is the report as JSON."""
    from engram.runtime.datasets import merge

    print(json.dumps(asdict(merge(config))))
    return 0


def dataset(config: DatasetConfig) -> int:
    """Make a dataset of experience; the last line is the report as JSON."""
    from engram.runtime.experience_dataset import make_dataset

    print(json.dumps(asdict(make_dataset(config))))
    return 0


def train(config: TrainConfig) -> int:
    """Train and print the folder of the exported policy."""
    from engram.policies.training.train import main
    from engram.validation.training_evaluator import SimulationEvaluator

    print(main(config, SimulationEvaluator()))
    return 0


def relight(config: RelightConfig) -> int:
    """Teach the policy to see in other light; the last line is JSON."""
    from engram.policies.training.relight import main

    print(json.dumps(main(config)))
    return 0


@dataclass(frozen=True)
class BenchConfig:
    """Run benchmarks: ours, peer, limit and their ratio in one table; JSON last."""

    parts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which: sim, loop, perception, memory, memory_ram, memory_weeks, stores, eviction, policy, chunking, learner,
    fsync, link (needs root); default: all."""
    quick: bool = False
    """A shorter run with fewer samples."""


def require_benchmarks() -> None:
    """Raise InvalidInputError where the benchmarks are missing, because only the wheel is installed."""
    if find_spec("engram.benchmarks") is None:
        raise InvalidInputError("benchmarks are not in the wheel: run this in a checkout of the repository")


def available_benchmarks() -> list[str]:
    """Return the benchmarks that exist; raises InvalidInputError where only the wheel is installed."""
    require_benchmarks()
    return [name for name in BENCHMARKS if find_spec(f"engram.benchmarks.{name}") is not None]


def bench(config: BenchConfig) -> int:
    """Run each part in a process of its own, so that none warms the caches of the next."""
    there = available_benchmarks()
    for part in config.parts:
        if part not in there:
            raise unknown_name("benchmark", part, there)
    codes = [subprocess.call(bench_command(part, config.quick)) for part in config.parts or there]
    return int(any(codes))


def bench_command(part: str, quick: bool) -> list[str]:
    """Return the command line of one benchmark; the quick form of perception is a fifth of its scenes."""
    command = [sys.executable, "-m", f"engram.benchmarks.{part}"]
    if not quick:
        return command
    if part == "perception":
        return [*command, "--scenes", "40"]
    return [*command, "--quick"]
