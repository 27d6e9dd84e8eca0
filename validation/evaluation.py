"""Success rates with intervals: of the experts, of a policy, and of a policy whose instruction was swapped.

Seeds are fixed in advance (0..n-1 by default) and below those of the training data.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypedDict

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.core.contracts import Policy, StatefulPolicy, StepHook, World
from engram.core.errors import EngramError, InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.registry import is_spec, make_kinematics
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.statistics import Rate, mean_rate, wilson
from engram.core.types import EpisodeResult, JointCommand, Observation, OracleOutcome
from engram.runtime.factories import make_policy
from engram.runtime.loop import Runtime
from engram.runtime.reconstruction import make_perception
from engram.runtime.record import FIRST_TRAINING_SEED
from engram.sim.experts import Expert, RandomCueExpert, make_expert
from engram.sim.oracle import PrivilegedPolicy
from engram.sim.pushes import PushedRunner
from engram.sim.tasks import SUITES, TASKS, Task, each_once, task_class
from engram.sim.world import MujocoWorld, WorldConfig
from engram.sim.worlds import make_mujoco_world, make_world
from engram.validation.failures import FailureWatch


class Runner(Protocol):
    """A callable that runs one episode: ``Runtime.run_episode``, :class:`ExpertRunner`."""

    def __call__(
        self, task: str, seed: int, instruction: str = "", *, on_step: StepHook | None = None
    ) -> EpisodeResult:
        """Run one episode and return its result; an empty instruction is drawn from the seed."""
        ...


class Seeds(TypedDict):
    """Which seeds of each task are run: first_seed .. first_seed + episodes - 1."""

    episodes: int
    first_seed: int


@dataclass(frozen=True)
class Report:
    """Success per task and their unweighted mean, with every episode behind them."""

    subject: str
    per_task: dict[str, Rate]
    mean: Rate
    mean_steps: dict[str, float]
    """Of the successful episodes; NaN when there is none."""
    seeds: tuple[int, int]
    """First seed and number of seeds per task."""
    failures: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Seeds of the failed episodes."""
    failed_how: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many of them failed in which way (:data:`engram.validation.failures.KINDS`); empty where nobody can say."""

    def to_json(self) -> str:
        """Return the report as one line of JSON; a mean over nothing is null."""
        values = asdict(self)
        values["mean_steps"] = {t: s if np.isfinite(s) else None for t, s in self.mean_steps.items()}
        return json.dumps(values, allow_nan=False)

    def table(self) -> Table:
        """Return the report as a table for the terminal."""
        table = Table("task", "success", "95 % interval", "n", "steps", "failures", title=_titled(self))
        for name, rate in {**self.per_task, "mean": self.mean}.items():
            steps = self.mean_steps.get(name, float("nan"))
            shown = f"{steps:.1f}" if np.isfinite(steps) else ""
            how = ", ".join(f"{kind} {n}" for kind, n in self.failed_how.get(name, {}).items())
            table.add_row(name, f"{rate.rate:.3f}", f"{rate.low:.3f}..{rate.high:.3f}", str(rate.n), shown, how)
        return table


def make_runtime(
    policy: Policy, world: World, detector: str = "geometric", pipeline: CommandPipeline | None = None
) -> Runtime:
    """Return what runs ``policy`` in ``world`` as the nodes would.

    A network's chunks follow one another as its configuration says. One that acts on memory/context is given where
    objects are in a scene graph, begun anew with each episode, as ``engram record --reconstruction`` gave it.

    Args:
        policy: what drives.
        world: with cameras, and with depth for a policy that acts on memory/context. Its attributes ``robot`` and
            ``kinematics`` say what is driven; a world without them holds the Panda.
        detector: what finds the objects for a policy that acts on memory/context.
        pipeline: from actions to commands; default: one of the robot that ``world`` holds.
    """
    if isinstance(policy, StatefulPolicy):
        from engram.policies.vla.chunking import follow  # torch: only where there is a network

        policy = follow(policy)
    robot = getattr(world, "robot", PANDA_2F85)
    kinematics = getattr(world, "kinematics", None) or make_kinematics(robot)
    finds, fresh_memory = make_perception(detector) if policy.reads_context else (None, None)
    pipeline = pipeline or CommandPipeline(kinematics, robot)
    return Runtime(world, policy, pipeline, detector=finds, fresh_memory=fresh_memory)


def evaluate(
    policy: Policy,
    world: World,
    tasks: Sequence[str] = tuple(TASKS),
    *,
    episodes: int = 50,
    first_seed: int = 0,
    runtime: Runtime | None = None,
    held_out: bool = False,
    push: bool = False,
    progress: bool = True,
    sheets: Path | None = None,
) -> Report:
    """Run ``policy`` on ``episodes`` seeds of each task through the same loop as the nodes.

    Args:
        policy: what is evaluated.
        world: with cameras: ``engram.sim.make_world()``.
        tasks: names or ``package.module:attribute``; UnknownNameError lists the valid names.
        episodes: per task.
        first_seed: seeds are first_seed .. first_seed + episodes - 1, below the training seeds.
        runtime: what runs the episodes; by default that of :func:`make_runtime`.
        held_out: say each goal in a wording that training never used.
        push: push the object that the words name once, on the way to it (:mod:`engram.sim.pushes`).
        progress: show a progress bar.
        sheets: folder for a contact sheet of each failed episode.

    Raises:
        InvalidInputError: held-out words, pushes or sheets are wanted in a world that is no MujocoWorld, or words for a
            task that has none.
    """
    if held_out:
        _check_held_out(tasks)
    runtime = runtime or make_runtime(policy, world)
    words = HeldOutWords(_simulated(world)) if held_out else _drawn_words
    subject = f"policy {policy.version}" + (", held-out words" if held_out else "") + (", pushed" if push else "")
    run: Runner = PushedRunner(runtime.run_episode, _simulated(world), tasks) if push else runtime.run_episode
    watch = FailureWatch(_simulated(world), sheets) if sheets or isinstance(world, MujocoWorld) else None
    return measure(run, subject, tasks, episodes, first_seed, progress, words, watch)


def _check_held_out(tasks: Sequence[str]) -> None:
    """Raise InvalidInputError with those of ``tasks`` that have no held-out words: here, before any episode is run."""
    without = [task for task in tasks if not task_class(task).held_out_instructions]
    if without:
        valid = ", ".join(name for name in SUITES["all"] if task_class(name).held_out_instructions)
        raise InvalidInputError(
            f"held_out: {', '.join(without)}: no held_out_instructions; set them in a task of your own; valid: {valid}"
        )


def _simulated(world: World) -> MujocoWorld:
    if not isinstance(world, MujocoWorld):
        raise InvalidInputError(f"a {type(world).__name__} shows no simulated state, expected a MujocoWorld")
    return world


def evaluate_experts(
    tasks: Sequence[str] = tuple(TASKS),
    *,
    episodes: int = 200,
    first_seed: int = 0,
    progress: bool = True,
    guess: bool = False,
    world: str = "tabletop",
    robot: RobotConfig = PANDA_2F85,
) -> Report:
    """Run the scripted experts without rendering; with ``guess`` those that guess the cue instead of remembering it."""
    made = make_mujoco_world(world, WorldConfig(profile="none"), robot)
    expert_for = RandomCueExpert(np.random.default_rng(first_seed)) if guess else make_expert
    subject = ("guessing experts" if guess else "experts") + _unlike(world)
    run, watch = ExpertRunner(made, expert_for), FailureWatch(made)
    report = measure(run, subject, tasks, episodes, first_seed, progress, watch=watch)
    made.close()
    return report


class ExpertRunner:
    """Runs one episode of the task's expert in ``world``, through controller and safety filter."""

    def __init__(self, world: MujocoWorld, expert_for: Callable[[str, MujocoWorld], Expert] = make_expert) -> None:
        self.world = world
        self.expert_for = expert_for

    def __call__(
        self, task: str, seed: int, instruction: str = "", *, on_step: StepHook | None = None
    ) -> EpisodeResult:
        """Return what came of one episode."""
        observation = self.world.reset(task, seed, instruction)
        expert = self.expert_for(task, self.world)
        expert.reset()
        pipeline = CommandPipeline(self.world.kinematics, self.world.robot)
        pipeline.reset()
        outcome, commands = self.world.oracle_outcome(), []
        while not outcome.over:
            command = pipeline.step_action(observation.joints, expert.act()).command
            commands.append(command.positions)
            seen, observation = observation, self.world.step(command)
            outcome = self.world.oracle_outcome()
            if on_step is not None:
                on_step(seen, command, outcome)
        executed = np.array(commands).reshape(len(commands), len(observation.joints.names))
        return EpisodeResult(task, seed, outcome.instruction, outcome.success, len(commands), executed)


def _drawn_words(task: str, seed: int) -> str:
    """Draw the instruction from the seed."""
    return ""


class HeldOutWords:
    """Gives the goal that a seed draws in a held-out wording."""

    def __init__(self, world: MujocoWorld) -> None:
        self.world = world

    def __call__(self, task: str, seed: int) -> str:
        """Return the instruction for one episode; resets the world."""
        self.world.reset(task, seed)
        return GoalWatch(self.world).goal.held_out_instruction(seed)


def measure(
    run: Runner,
    subject: str,
    tasks: Sequence[str],
    episodes: int,
    first_seed: int = 0,
    progress: bool = True,
    words: Callable[[str, int], str] = _drawn_words,
    watch: FailureWatch | None = None,
) -> Report:
    """Run every seed of every task and count; ``words`` tells what is said in each episode, ``watch`` how one failed.

    Raises:
        InvalidInputError: there is nothing to run, a task is named twice, or the seeds reach into the training data.
        UnknownNameError: a task does not exist.
    """
    _check(tasks, episodes, first_seed)
    results: dict[str, list[EpisodeResult]] = {task: [] for task in tasks}
    failed_how: dict[str, Counter[str]] = {task: Counter() for task in tasks}
    jobs = [(task, first_seed + i) for task in tasks for i in range(episodes)]
    for task, seed in track(jobs, f"evaluating {subject}", disable=not progress, console=Console(stderr=True)):
        if watch is not None:
            watch.begin()
        results[task].append(run(task, seed, words(task, seed), on_step=watch))
        if watch is not None and (kind := watch.told(results[task][-1])):
            failed_how[task][kind] += 1
    per_task = {task: wilson(sum(r.oracle_success for r in rs), len(rs)) for task, rs in results.items()}
    steps = {task: [r.steps for r in rs if r.oracle_success] for task, rs in results.items()}
    return Report(
        subject,
        per_task,
        mean_rate(list(per_task.values())),
        {task: float(np.mean(s)) if s else float("nan") for task, s in steps.items()},
        (first_seed, episodes),
        {task: tuple(r.seed for r in rs if not r.oracle_success) for task, rs in results.items()},
        {task: dict(kinds.most_common()) for task, kinds in failed_how.items() if kinds},
    )


SWAPPABLE = tuple(name for name, task in TASKS.items() if task.slots())
"""Shipped tasks whose instruction can name another object in the same scene."""


def swappable(task: str) -> bool:
    """Tell whether the words of ``task``, shipped or of your own, can name another object on the same table."""
    return task in SWAPPABLE or (is_spec(task) and bool(task_class(task).slots()))


@dataclass(frozen=True)
class SwapReport:
    """What a policy does when the same scene comes with another instruction.

    A policy that follows the instruction reaches the swapped goal about as often as the original one. A policy that
    ignores it still does what the image suggests: ``original_goal`` stays high, or both are low.
    """

    subject: str
    unswapped: dict[str, Rate]
    """Original instruction, original goal."""
    swapped_goal: dict[str, Rate]
    """Swapped instruction, judged by the swapped goal."""
    original_goal: dict[str, Rate]
    """Swapped instruction, judged by the original goal."""
    seeds: tuple[int, int]
    """First seed and number of seeds per task."""

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self))

    def table(self) -> Table:
        """Return the report as a table for the terminal."""
        table = Table("task", "own words", "other words, their goal", "other words, own goal", title=_titled(self))
        for task in self.unswapped:
            kinds = (self.unswapped, self.swapped_goal, self.original_goal)
            table.add_row(task, *(f"{kind[task].rate:.3f} of {kind[task].n}" for kind in kinds))
        return table


def evaluate_swap(
    run: Runner,
    world: MujocoWorld,
    subject: str,
    tasks: Sequence[str],
    *,
    episodes: int = 50,
    first_seed: int = 0,
    progress: bool = True,
) -> SwapReport:
    """Run each seed twice: with the instruction drawn from it, and with one that names another object in the scene."""
    _check(tasks, episodes, first_seed)
    without = [task for task in tasks if not swappable(task)]
    if without:
        valid = ", ".join(SWAPPABLE)
        raise InvalidInputError(f"swap: {', '.join(without)}: the words name no colour to swap; valid: {valid}")
    counts = {task: [0, 0, 0] for task in tasks}
    jobs = [(task, first_seed + i) for task in tasks for i in range(episodes)]
    for task, seed in track(jobs, f"swapping {subject}", disable=not progress, console=Console(stderr=True)):
        original = run(task, seed)
        watch = GoalWatch(world)
        swapped = run(task, seed, watch.goal.swapped_instruction(), on_step=watch)
        counts[task][0] += original.oracle_success
        counts[task][1] += swapped.oracle_success
        counts[task][2] += watch.reached
    unswapped, swapped_goal, original_goal = (
        {task: wilson(c[i], episodes) for task, c in counts.items()} for i in range(3)
    )
    return SwapReport(subject, unswapped, swapped_goal, original_goal, (first_seed, episodes))


class GoalWatch:
    """Remembers the goal that ``world`` has now and notes, as a step hook, whether a later episode reaches it."""

    def __init__(self, world: MujocoWorld) -> None:
        if world.task is None:
            raise EngramError("no task is running: there is no goal to watch")
        self.world = world
        self.goal: Task = copy.copy(world.task)
        self.reached = False

    def __call__(self, seen: Observation, command: JointCommand, outcome: OracleOutcome) -> None:
        """Judge the state after one step."""
        self.reached = self.reached or self.goal.oracle_success(self.world)


def _check(tasks: Sequence[str], episodes: int, first_seed: int) -> None:
    each_once(tasks)  # an unknown one is named with the valid ones
    if not tasks or episodes < 1:
        raise InvalidInputError(f"evaluation: {len(tasks)} tasks x {episodes} episodes, expected at least one of each")
    if first_seed < 0 or first_seed + episodes > FIRST_TRAINING_SEED:
        raise InvalidInputError(
            f"evaluation: seeds {first_seed}..{first_seed + episodes - 1}, expected 0..{FIRST_TRAINING_SEED - 1}: "
            "the rest is training data"
        )


def evaluate_oracle_state(
    tasks: Sequence[str] = tuple(TASKS),
    *,
    episodes: int = 50,
    first_seed: int = 0,
    execute_steps: int = 0,
    robot: RobotConfig = PANDA_2F85,
) -> Report:
    """Run the privileged policy: the expert, from simulator state, replanning as seldom as a policy does.

    Args:
        tasks: names.
        episodes: per task.
        first_seed: of each task.
        execute_steps: control steps between two decisions; 0 = the policy's own; 4 for scripted experts.
        robot: that acts.
    """
    world = MujocoWorld(WorldConfig(profile="none"), robot)
    report = evaluate(
        PrivilegedPolicy(world, execute_steps or 4), world, tasks, episodes=episodes, first_seed=first_seed
    )
    world.close()
    return report


def evaluate_checkpoint(
    checkpoint: str | Path,
    tasks: Sequence[str] = tuple(TASKS),
    *,
    episodes: int = 50,
    first_seed: int = 0,
    swap: bool = False,
    held_out: bool = False,
    ablation: str = "",
    execute_steps: int = 0,
    ensemble: bool = False,
    adaptive_m: float | None = None,
    push: bool = False,
    world: str = "tabletop",
    detector: str = "geometric",
    randomise_looks: bool = False,
    robot: RobotConfig = PANDA_2F85,
    sheets: Path | None = None,
) -> Report | SwapReport:
    """Load a policy and run it as :func:`make_runtime` says.

    Args:
        checkpoint: a name or a folder, as ``engram.policies.load_policy`` takes it, or ``package.module:attribute``.
        tasks: names.
        episodes: per task.
        first_seed: seeds are first_seed .. first_seed + episodes - 1, below the training seeds.
        swap: run the instruction-swap evaluation instead.
        held_out: use wordings that training never used.
        ablation: spoil what its memory reads: zeroed, swapped (with the episode before), noise; or no_context: it is
            not given memory/context.
        execute_steps: rows of a chunk that are executed before the next is asked for; 0 = as trained. This and the
            next two are for checkpoints.
        ensemble: ask at every step and average the chunks where they overlap.
        adaptive_m: leave a chunk early when a new one would lead the tool this far from it [m]; 0 = never; None = as
            the policy is used to.
        push: push the object that the words name once, on the way to it.
        world: world to run in, a name or ``package.module:attribute``.
        robot: that acts; the policy was trained with its joints and cameras.
        detector: what finds the objects for a policy that acts on memory/context.
        randomise_looks: draw lights, table colour and a small displacement of the perception camera from each seed.
        sheets: folder for a contact sheet of each failed episode; not with ``swap``.

    Raises:
        InvalidInputError: a detector is named that the policy has no use for, or a policy of your own is to replan
            otherwise than it does.
    """
    from engram.policies import load_policy  # torch: only where it is needed
    from engram.policies.vla.chunking import follow

    loaded: Policy
    if is_spec(str(checkpoint)):
        if execute_steps or ensemble or adaptive_m is not None:
            raise InvalidInputError(
                f"execute_steps, ensemble, adaptive_m: not for {checkpoint}, which says itself how its chunks follow "
                "one another"
            )
        loaded = subject = make_policy(str(checkpoint), ablation=ablation, robot=robot)
    else:
        loaded = load_policy(checkpoint, robot=robot, ablation=ablation, execute_steps=execute_steps or None)
        subject = follow(loaded, ensemble, adaptive_m)
    if detector != "geometric" and not loaded.reads_context:
        raise InvalidInputError(f"detector {detector!r}: would change nothing: {checkpoint} acts on no memory/context")
    settings = WorldConfig(profile="fast", depth=loaded.reads_context)
    made = make_world(world, settings.with_random_looks() if randomise_looks else settings, robot)
    runtime = make_runtime(subject, made, detector)
    seeds: Seeds = {"episodes": episodes, "first_seed": first_seed}
    report: Report | SwapReport
    if swap:
        name = f"policy {subject.version}"
        report = evaluate_swap(runtime.run_episode, _simulated(made), name, tasks, **seeds)
    else:
        report = evaluate(subject, made, tasks, **seeds, runtime=runtime, held_out=held_out, push=push, sheets=sheets)
    made.close()
    return replace(report, subject=report.subject + _unlike(world, randomise_looks))


def _titled(report: Report | SwapReport) -> str:
    first, number = report.seeds
    return f"{report.subject}, seeds {first} to {first + number - 1} of each task"


def _unlike(world: str, randomise_looks: bool = False) -> str:
    """Return what a report adds to its subject where the world is not the shipped one."""
    other = f", world {world}" if world != "tabletop" else ""
    return f"{other}, drawn looks" if randomise_looks else other
