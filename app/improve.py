"""``engram improve``: a policy practises a task on a twin until it can do it, and its success is measured on the way.

The twin is the tabletop with a gap that the policy was not trained for (:mod:`engram.sim.gaps`). The memory says what
went well, as on a robot; the simulator only scores. Everything lies in one folder: an interrupted run goes on. The last
line is JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from engram.app.options import refuse
from engram.app.weights import write_checkpoint
from engram.core.arrays import positive_int
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.paths import at_home
from engram.core.provenance import commit, dataset_hash, machine
from engram.core.registry import split_options
from engram.core.robot import PANDA_2F85
from engram.core.statistics import Rate
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import Gap, get_gap
from engram.sim.tasks import SUITES
from engram.sim.world import WorldConfig

if TYPE_CHECKING:
    from engram.core.contracts import Policy
    from engram.learning.rewards.contract import RewardSource
    from engram.runtime.demonstration_replay import Demonstration
    from engram.runtime.loop import Runtime
    from engram.runtime.practice import Practice
    from engram.sim.tasks import Task

FIRST_TEST_SEED = 70_000
"""Scenes on which success is measured; none is practised on."""
FIRST_SEED, SEEDS = 20_000, 1_000
"""Scenes that are practised on: so many for each seed."""
JUDGES = ("memory", "oracle")
"""Who may judge, beside the folder of a success classifier."""


@dataclass(frozen=True)
class ImproveConfig:
    """Let a policy practise a task on a twin, and measure how it gets better."""

    task: str = "pick_place"
    """What is practised."""
    on: str = "turned"
    """The twin's gap to the tabletop that the policy knows: none, turned, turned_scaled, wrist_moved, front_moved,
    mounted, knocked, worn, late, sluggish, dim, careful, or a .json file of engram identify."""
    policy: str = "base"
    """Where learning begins."""
    episodes: int = 100
    """Episodes to practise."""
    measure_at: tuple[int, ...] = (0, 50, 100, 200, 300)
    """After so many episodes the success is measured, without noise."""
    measured: int = 100
    """Episodes of each measurement."""
    verdict: str = "memory"
    """Who says what went well: memory; the folder of a classifier (engram classifier), for what the memory cannot
    judge; or oracle (the simulator, which no robot has)."""
    algorithm: str = "behavior_cloning"
    """Update rule: behavior_cloning; with critics, which learn from failures, too: advantage_cloning, edit_actor,
    best_of_n, noise_steering or soft_actor_critic; or package.module:attribute of your own.
    edit_actor:takeover_cost=0.5: that an expert or a person takes over costs critics half a success, and is what the
    motions before led to."""
    exploration: float = 0.1
    """Standard deviation of the noise on a motion, as a share of 0.05 + 0.5 of it; 0: none."""
    hold: int = 4
    """Control steps for which a draw of the noise is kept. A longer one tells critics more, and disturbs more. 0: the
    whole episode; a draw then turns, stretches and shifts every translation of the tool alike."""
    updates: int = 40
    """Updates that each success pays for, and with critics each failure. 0: nothing is learnt. What was done is
    experience, of which engram dataset makes demonstrations; any policy can do that, one of LeRobot's, too."""
    search: int = 50
    """Episodes of a search for a correction of all motions: how far they lead, and in which direction. If its best one
    is surely better than none, it becomes part of the weights and the next search begins; else the search goes on.
    exploration and updates change nothing then. 0: the policy imitates its noisy successes instead."""
    oracle_help: float = 0.0
    """Share of the control steps, at most, in which a scripted expert takes over from a policy that does not get done,
    as a person would with engram teleop. It knows the simulator's state (oracle)."""
    oracle_help_by: Literal["finish", "guide", "return", "demonstrate"] = "finish"
    """What it does. finish: after 0.4 of the time limit it drives to the end. guide: where the policy is stuck, it
    drives for 12 control steps and hands back. return: a scene that failed is practised again, and it leads the arm to
    where that began. demonstrate: a scene that failed is practised again, and it drives all of it."""
    demonstrations: str = ""
    """Folder of a LeRobotDataset with demonstrations of the task, as engram record writes them. In each scene that is
    practised the nearest one is replayed, moved to where the memory sees the things that the words name; what went well
    is learnt. The policy drives where nothing can be replayed. Empty: it practises by itself."""
    rehearsed: int | None = None
    """Episodes of each other task of the policy that it carries out, without a gap, before practice begins: it
    rehearses what it sees there, not to unlearn them. 0: it rehearses their words in the scenes of the practised task,
    if its card names any. Default: 2 where a policy with a memory of its episode searches, else 0."""
    earlier: tuple[str, ...] = ()
    """Folders of earlier experiments that began with the same checkpoint, whose experience is learnt from as well:
    those of engram improve, of learners, or of experience stores. They are only read. Half of what is drawn for an
    update is theirs; critics take all episodes, and draw by themselves."""
    others: int = 0
    """Episodes of each other task of the policy that are measured before and after; 0: none."""
    seed: int = 0
    """Of scenes, noise and samples."""
    work: Path = Path("runs/improve")
    """Folder for everything; each task, twin, policy and seed has one of its own in it."""


def improve(config: ImproveConfig) -> int:
    """Practise; the last line is the report as JSON."""
    report = practise(config)
    title = f"{config.task} on {config.on}, by {config.verdict}"
    table = Table("episodes", "success", "95 % interval", "n", "helped", title=title)
    for row in report["curve"]:
        rate = Rate(**row["success"])
        interval, helped = f"{rate.low:.3f}..{rate.high:.3f}", f"{row['helped']:.3f}"
        table.add_row(str(row["episodes"]), f"{rate.rate:.3f}", interval, str(rate.n), helped)
    Console(stderr=True).print(table)
    if report["others"]:
        told = Table("task", "before", "after", "n", title="The other tasks of the policy")
        for name, (before, after) in report["others"].items():
            told.add_row(name, f"{before['rate']:.3f}", f"{after['rate']:.3f}", str(after["n"]))
        Console(stderr=True).print(told)
    where = {"command": " ".join(sys.argv[1:]), "commit": commit(), "machine": machine()}
    print(json.dumps(report | where))
    return 0


def practise(config: ImproveConfig) -> dict[str, Any]:
    """Return the measured successes and the practised episodes, those of an earlier run first.

    Raises:
        UnknownNameError: no such task, twin or policy; lists those there are.
        InvalidInputError: the folder holds another practice, or the policy cannot be trained.
    """
    from engram.learning.algorithms.motion_edit import frozen  # torch: only for those who practise
    from engram.policies.loading import load_policy
    from engram.policies.vla.chunking import follow
    from engram.sim.tasks import get_task

    _check(config)
    judge = _judge(config)
    _check_words(get_task(config.task), judge)
    folder = folder_of(config)
    trained = load_policy(config.policy)
    _check_frozen(config, frozen(trained))
    policy = follow(trained)
    if config.rehearsed is None:
        config = replace(config, rehearsed=2 if config.search and getattr(trained, "remembers", False) else 0)
    others = tuple(name for name in _known_tasks(config) if name != config.task)
    if config.others and not others:
        raise InvalidInputError(
            f"ImproveConfig.others: {config.others}: policy {config.policy} has no card.json that names other tasks; "
            "expected 0"
        )
    practice = _practice(config, policy, trained, folder, others, judge)
    _tell_earlier(config, practice)
    failed = [name for name in others if name not in practice.rehearsed]
    if config.rehearsed and failed:
        Console(stderr=True).print(f"not rehearsed, as the policy does not do them: {', '.join(failed)}")
    try:
        before = _of_others(config, practice, policy, others, folder / "others.json")
        curve = list(_measured(config, practice, policy, folder / "curve.jsonl"))
        after = _told_rates(config, policy, others) if before else {}
        learnt = _save_policy(config, practice.driving, folder / "policy")
    finally:
        practice.close()
        practice.runtime.world.close()
    return {
        "benchmark": "improve",
        "config": _settings(config),
        "policy": str(folder / "policy") if learnt else None,
        "curve": curve,
        "corrections": [asdict(one) for one in practice.corrections],
        "others": {name: [row, after[name]] for name, row in before.items()},
        "episodes": [asdict(one) for one in practice.episodes],
    } | ({"earlier": _of_earlier(practice)} if config.earlier else {})


def _check(config: ImproveConfig) -> None:
    """Raise InvalidInputError for values that cannot be, and for options that would change nothing."""
    if config.verdict not in JUDGES and not at_home(config.verdict).is_dir():
        expected = f"one of {', '.join(JUDGES)} or the folder of a classifier"
        raise InvalidInputError(f"ImproveConfig.verdict: {config.verdict!r}, expected {expected}")
    positive_int("ImproveConfig.episodes", config.episodes)
    positive_int("ImproveConfig.measured", config.measured)
    for name in ("updates", "search", "rehearsed", "others", "hold"):
        if (getattr(config, name) or 0) < 0:
            raise InvalidInputError(f"ImproveConfig.{name}: {getattr(config, name)}, expected 0 or more")
    if not config.search and not config.updates:
        idle = ("algorithm", "earlier", "others", "rehearsed")
        refuse(config, idle, ": nothing is learnt while search and updates are 0")
    if config.search and config.oracle_help:
        raise InvalidInputError(
            f"ImproveConfig.search: {config.search}, ImproveConfig.oracle_help: {config.oracle_help}: an expert's "
            "success says nothing of a correction; expected 0 for one of them"
        )
    if config.demonstrations and (config.search or config.oracle_help):
        raise InvalidInputError(
            f"ImproveConfig.demonstrations: {config.demonstrations}, ImproveConfig.search: {config.search}, "
            f"ImproveConfig.oracle_help: {config.oracle_help}: a replay says nothing of a correction, and needs no "
            "help; expected 0 for both"
        )
    if not config.oracle_help:
        refuse(config, ("oracle_help_by",), ": nobody helps while oracle_help is 0")
    for name in ("exploration", "oracle_help"):
        if not 0.0 <= getattr(config, name) <= 1.0:
            raise InvalidInputError(f"ImproveConfig.{name}: {getattr(config, name)}, expected 0..1")
    last = (FIRST_TEST_SEED - FIRST_SEED) // SEEDS - 1
    if config.episodes > SEEDS or config.seed > last:
        raise InvalidInputError(
            f"ImproveConfig.episodes: {config.episodes}, ImproveConfig.seed: {config.seed}, expected at most {SEEDS} "
            f"and {last}: others would practise on scenes that measure"
        )
    for name, value in (("seed", config.seed), *(("measure_at", at) for at in config.measure_at)):
        if value < 0:
            raise InvalidInputError(f"ImproveConfig.{name}: {value}, expected 0 or more")
    _check_learning(config)


def _check_learning(config: ImproveConfig) -> None:
    """Raise InvalidInputError for settings of the learner that would change nothing, or that it cannot take."""
    from engram.learning.algorithms import ALGORITHMS, TAKEOVER_COST
    from engram.learning.replay.earlier import open_earlier

    algorithm, options = split_options(config.algorithm)
    if config.search:
        idle = ("exploration", "hold", "updates", "earlier")
        refuse(config, idle, f": nothing is imitated while search is {config.search}")
        if algorithm in ALGORITHMS and config.algorithm != ImproveConfig.algorithm:
            raise InvalidInputError(
                f"ImproveConfig.algorithm: {config.algorithm}: its critics learn nothing while search is "
                f"{config.search}; expected search 0"
            )
    if options.startswith(f"{TAKEOVER_COST}=") and not (config.oracle_help or config.earlier):
        raise InvalidInputError(
            f"ImproveConfig.algorithm: {config.algorithm}: {TAKEOVER_COST} would change nothing: nobody takes over "
            f"while oracle_help is 0 and there is no earlier experience; expected {algorithm}"
        )
    open_earlier("ImproveConfig.earlier", config.earlier)  # before anything is written


def _of_earlier(practice: Practice) -> dict[str, Any]:
    """Return how many episodes of earlier experiments are learnt from, and how many are not, by reason."""
    learner = practice.learner
    return {"episodes": learner.metrics["earlier_episodes"], "passed_over": dict(learner.earlier_passed_over)}


def _tell_earlier(config: ImproveConfig, practice: Practice) -> None:
    """Print what is learnt from of earlier experiments, and what is other than when the practice was left."""
    console = Console(stderr=True)
    if config.earlier:
        found = _of_earlier(practice)
        over = ", ".join(f"{count} {reason}" for reason, count in found["passed_over"].items()) or "none"
        console.print(f"episodes of earlier experiments that are learnt from: {found['episodes']}; passed over: {over}")
    for what, how in practice.learner.changed.items():
        console.print(f"changed since the last start: {what}: {how}")


def _check_frozen(config: ImproveConfig, why: str) -> None:
    """Raise InvalidInputError where corrections alone teach the policy, as ``why`` says, and more is asked for."""
    if not why:
        return
    if not config.search and config.updates:
        told = "expected above 0, or updates 0"
        raise InvalidInputError(f"ImproveConfig.search: 0: {why}; {told}")
    if config.rehearsed:
        told = f"{why}, which hold for all of its goals, so that nothing is rehearsed"
        raise InvalidInputError(f"ImproveConfig.rehearsed: {config.rehearsed}: {told}; expected 0")


def _known_tasks(config: ImproveConfig) -> tuple[str, ...]:
    """Return the tasks that the policy was trained on, by its card; none where that does not say."""
    from engram.policies.opening import files_of

    card = files_of(config.policy) / "card.json"
    found = json.loads(card.read_text()).get("tasks", ()) if card.exists() else ()
    names = {split_options(name)[0] for name in found}
    return tuple(name for name in SUITES["all"] if name in names)


def folder_of(config: ImproveConfig) -> Path:
    """Return where the practice of ``config`` lies."""
    noise = f"noise{config.exploration:g}".replace(".", "") + (
        f"_hold{config.hold}" if config.hold != ImproveConfig.hold else ""
    )
    on = Path(config.on).stem if config.on.endswith(".json") else config.on
    by = "" if config.oracle_help_by == ImproveConfig.oracle_help_by else f"_{config.oracle_help_by}"
    helped = f"_help{config.oracle_help:g}{by}".replace(".", "") if config.oracle_help else ""
    learns = ("_earlier" if config.earlier else "") if config.updates else "_nothing_learnt"
    shown = "_replay" if config.demonstrations else ""
    how = f"search{config.search}" if config.search else noise + shown + learns
    whose = "" if config.policy == ImproveConfig.policy else f"_{Path(config.policy).name}"
    name = f"{config.task}_{on}_{Path(config.verdict).name}_{config.algorithm}_{how}{helped}{whose}_seed{config.seed}"
    return at_home(config.work) / "".join(c if c.isalnum() or c == "_" else "-" for c in name)


def _judge(config: ImproveConfig) -> RewardSource | None:
    """Return who says what went well; None: the simulator."""
    from engram.learning.rewards.memory_verdict import MemoryVerdict, MemoryVerdictConfig

    if config.verdict == "oracle":
        return None
    memory = MemoryVerdict(MemoryVerdictConfig(opening_m=PANDA_2F85.gripper_opening_m))
    if config.verdict == "memory":
        return memory
    from engram.learning.rewards.believed import MemoryFirst
    from engram.learning.rewards.success_classifier import ClassifierVerdict

    return MemoryFirst((memory, ClassifierVerdict.load([config.verdict])))


def _check_words(task: Task, judge: RewardSource | None) -> None:
    """Raise InvalidInputError for a task of which ``judge`` cannot judge every wording."""
    if judge is None:
        return
    for wording in task.instructions:
        words = wording.format(**dict.fromkeys(task.slots(), "red"))
        if not judge.knows(words):
            raise InvalidInputError(
                f"ImproveConfig.task: {task.name}: {judge.name} cannot judge {words!r}; choose another task, a "
                "classifier that has learnt these words (engram classifier), or verdict oracle"
            )


def _save_policy(config: ImproveConfig, weights: Path, folder: Path) -> bool:
    """Write what was learnt as a checkpoint that ``engram eval`` and the nodes take; return whether anything was."""
    from engram.policies.opening import files_of

    if not weights.exists():  # too few successes to learn from
        return False
    data = weights.read_bytes()
    learnt = {"from": config.policy, "sha256": hashlib.sha256(data).hexdigest(), "commit": commit()}
    practised = (split_options(config.task)[0],)
    write_checkpoint(files_of(config.policy), data, {**learnt, "settings": _settings(config)}, folder, practised)
    return True


def _settings(config: ImproveConfig) -> dict[str, Any]:
    """Return ``config`` for JSON, without where the folder lies."""
    names = {name: Path(getattr(config, name)).name for name in ("on", "verdict", "work")}
    return {**asdict(config), **names, "earlier": [Path(folder).name for folder in config.earlier]}


def _practice(
    config: ImproveConfig,
    policy: Policy,
    trained: Policy,
    folder: Path,
    others: tuple[str, ...],
    judge: RewardSource | None,
) -> Practice:
    from engram.policies.checkpoint import fingerprint
    from engram.policies.opening import files_of
    from engram.runtime.oracle_helper import HelpConfig
    from engram.runtime.practice import Practice, PracticeConfig
    from engram.runtime.reconstruction import make_perception

    gap = get_gap(config.on)
    looks = judge is not None or policy.reads_context or bool(config.demonstrations)
    shown = _demonstrations(config)
    world = GapWorld(gap, WorldConfig(depth=looks))
    detector, fresh_memory = make_perception() if looks else (None, None)
    settings = PracticeConfig(
        algorithm=config.algorithm,
        exploration=config.exploration,
        hold_steps=config.hold,
        updates=config.updates,
        search=config.search,
        rehearsed=config.rehearsed or 0,
        help=HelpConfig(share=config.oracle_help, by=config.oracle_help_by),
        first_seed=FIRST_SEED + SEEDS * config.seed,
        seed=config.seed,
        earlier=config.earlier,
    )
    files = {"policy_files": fingerprint(files_of(config.policy))}  # its version tells the weights alone
    return Practice(
        world,
        gap_pipeline(world),
        policy,
        config.task,
        folder,
        settings,
        trained=trained,
        judge=judge,
        detector=detector,
        fresh_memory=fresh_memory,
        demonstrations=shown,
        others=others,
        elsewhere=lambda: _nominal(policy),
        about={"gap": asdict(gap), **files, **_told_by(config, judge), "demonstrations": _digest(config)},
        before={"gap": asdict(Gap()), **files, "demonstrations": ""},
    )


def _demonstrations(config: ImproveConfig) -> tuple[Demonstration, ...]:
    """Return what is replayed; raises InvalidInputError for no dataset, or where no relation says the task."""
    from engram.learning.rewards.memory_verdict import MemoryVerdict
    from engram.runtime.demonstration_replay import check_shown_by, read_demonstrations
    from engram.sim.tasks import get_task

    if not config.demonstrations:
        return ()
    found = read_demonstrations("ImproveConfig.demonstrations", at_home(config.demonstrations))
    check_shown_by("ImproveConfig.demonstrations", at_home(config.demonstrations), PANDA_2F85)
    _check_words(get_task(config.task), MemoryVerdict())
    return found


def _digest(config: ImproveConfig) -> str:
    """Return what tells the demonstrations from others; empty: there are none."""
    return dataset_hash(at_home(config.demonstrations)) if config.demonstrations else ""


def _told_by(config: ImproveConfig, judge: RewardSource | None) -> dict[str, str]:
    """Return who judges, if that is a classifier: another one in its folder is another judge."""
    if judge is None or config.verdict in JUDGES:
        return {}
    from engram.learning.rewards.success_classifier import digest_of

    return {"judge": f"{judge.name} {digest_of(config.verdict)}"}


def _nominal(policy: Policy) -> Runtime:
    """Return what runs ``policy`` in the simulation that it knows, without a gap."""
    from engram.validation.evaluation import make_runtime

    world = GapWorld(get_gap("none"), WorldConfig(depth=policy.reads_context))
    return make_runtime(policy, world, pipeline=gap_pipeline(world))


def _measured(config: ImproveConfig, practice: Practice, policy: Policy, kept: Path) -> Iterator[dict[str, Any]]:
    """Practise, and yield each measurement; finished ones are read from ``kept``."""
    try:
        lines = kept.read_text().splitlines() if kept.exists() else []
        known = {row["episodes"]: {"commit": ""} | row for row in map(json.loads, lines)}  # "": of an earlier version
        for row in known.values():
            Rate(**row["success"])
    except DAMAGED as error:
        raise StoreError(f"{kept}: cannot be read: {error}") from error
    console, now = Console(stderr=True), commit()
    moments = sorted({at for at in config.measure_at if at <= config.episodes} | {config.episodes})
    for at in moments:
        while len(practice.episodes) < at:
            done = practice.episode()
            if done.number % 10 == 0:
                last = practice.episodes[-10:]
                told, true = sum(e.success for e in last), sum(e.oracle_success for e in last)
                console.print(f"episode {done.number}: of the last 10 {told} went well, {true} by the simulator")
        if at > moments[0] and not (config.search or config.updates):
            continue  # it is as it was
        row = known.get(at)
        if len(practice.episodes) > at and (row is None or row["success"]["n"] != config.measured):
            n = "never" if row is None else f"on {row['success']['n']} scenes"
            console.print(f"after {at} episodes: measured {n}; the policy of then is gone")
            if row is None:
                continue
        elif row is None or row["success"]["n"] != config.measured:
            steps = sum(one.steps for one in practice.episodes)
            helped = sum(one.helped for one in practice.episodes) / max(1, steps)
            row = {"episodes": at, "updates": practice.learner.metrics["updates"], "helped": helped, "commit": now}
            row |= {"success": asdict(_rates(config, policy, (config.task,), config.measured)[config.task])}
            known[at] = row
            write_atomic(kept, "".join(json.dumps(known[one]) + "\n" for one in sorted(known)).encode())
        by = "" if row["commit"] == now else f", measured by commit {row['commit'] or '(unknown)'}"
        console.print(f"after {at} episodes: {Rate(**row['success'])}{by}")
        yield row


def _of_others(
    config: ImproveConfig, practice: Practice, policy: Policy, others: tuple[str, ...], kept: Path
) -> dict[str, dict[str, Any]]:
    """Return the success of ``policy`` on other tasks before it practised, that of an earlier run where there is one.

    Raises:
        StoreError: the file ``kept`` is damaged.
        InvalidInputError: it has practised already, and was not measured before.
    """
    if not config.others or not others:
        return {}
    try:
        known = json.loads(kept.read_text()) if kept.exists() else {}
        found = {name: {"commit": ""} | row for name, row in known.items()}  # "": of an earlier version
        for row in found.values():
            Rate(**{name: value for name, value in row.items() if name != "commit"})
    except DAMAGED as error:
        raise StoreError(f"{kept}: cannot be read: {error}") from error
    if {row["n"] for row in found.values()} != {config.others}:
        if practice.episodes:
            raise InvalidInputError(
                f"ImproveConfig.others: {config.others}: the policy has practised already; choose another folder (work)"
            )
        found = _told_rates(config, policy, others)
        write_atomic(kept, json.dumps(found).encode())
    return found


def _told_rates(config: ImproveConfig, policy: Policy, others: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the success of ``policy`` on ``others`` for JSON, with the commit that measured it."""
    rates, now = _rates(config, policy, others, config.others), commit()
    return {name: asdict(rate) | {"commit": now} for name, rate in rates.items()}


def _rates(config: ImproveConfig, policy: Policy, tasks: tuple[str, ...], episodes: int) -> dict[str, Rate]:
    """Return the success of ``policy`` without noise, on scenes that are not practised on, by the simulator."""
    from engram.validation.evaluation import make_runtime, measure

    world = GapWorld(get_gap(config.on), WorldConfig(depth=policy.reads_context))
    runtime = make_runtime(policy, world, pipeline=gap_pipeline(world))
    report = measure(runtime.run_episode, "practised", tasks, episodes, FIRST_TEST_SEED, False, lambda *_: "")
    world.close()
    return report.per_task
