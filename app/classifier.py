"""``engram classifier``: learns from judged goals to tell whether others are reached, where the memory cannot.

The goals are those that a learner stored, judged by people (``engram judge``); or the simulator judges goals that are
carried out now, in place of a person. The last line is JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from engram.app.options import new_folder, refuse
from engram.core.arrays import positive_int
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.lock import WriterLock
from engram.core.paths import at_home
from engram.core.provenance import commit, machine

if TYPE_CHECKING:
    from engram.core.contracts import Policy

FIRST_SEED = 60_000
"""Scenes of labelled goals; none is practised on or measured."""
GOALS = "goals.json"
"""Which simulated goals a folder holds."""
UNFINISHED = ("writer.lock", "experience", "experience.partial")
"""What a command leaves in its output that was ended before it had learnt; without a simulation the first alone."""


@dataclass(frozen=True)
class ClassifierCommandConfig:
    """Learn to judge goals from goals that were judged."""

    output: tyro.conf.Positional[Path]
    """New folder for the classifier; or one with the simulated goals of such a command that was interrupted."""
    experience: Path | None = None
    """Experience of judged goals, such as ~/.local/share/engram/robot0/learner/experience."""
    policy: str = "base"
    """The policy that drove, a shipped name or a folder: the classifier judges by what it makes of images and words."""
    words: str = "*"
    """Only goals whose words match this pattern, such as "*in the dark"."""
    oracle_tasks: tuple[str, ...] = ()
    """Carry out these tasks in simulation, and let the simulator judge them (oracle), in place of experience."""
    on: tuple[str, ...] = ("none", "turned")
    """Gaps of the simulated robots (engram improve --help): goals that are missed are needed, too."""
    episodes: int = 60
    """Simulated goals of each task, over all gaps together."""
    clips: int = 1
    """Clips of each kind in which each reached goal is shown once more: rewound, standing still after it has gone on,
    and standing still from the first. They teach a progress that is more than time; 0: none."""
    other_words: int = 0
    """Clips of each reached goal under the words of another one, of other colours. With them it denies what another
    goal wanted, and tells fewer of the goals that are reached."""
    lerobot: Path | None = None
    """New folder for the classifier as a reward model of LeRobot's, type engram_success; only of a policy without a
    memory of its episode."""
    seed: int = 0
    """Of the classifier's training and of the clips; that of the scenes is fixed."""


def classifier(config: ClassifierCommandConfig) -> int:
    """Learn a classifier and say how right it is on goals that it had not seen; the last line is JSON.

    Raises:
        InvalidInputError: the options do not go together, a folder for what is learnt holds something already, or there
            are no goals to learn from.
        StoreLockedError: another process writes to the same folder.
    """
    from engram.policies.loading import load_policy

    if bool(config.experience) == bool(config.oracle_tasks):
        raise InvalidInputError(
            "ClassifierCommandConfig.experience: give either the experience of a robot, or "
            "ClassifierCommandConfig.oracle_tasks for a simulation"
        )
    if config.experience:
        refuse(config, ("on", "episodes"), ": nothing is simulated with --experience")
    positive_int("ClassifierCommandConfig.episodes", config.episodes)
    for name in ("clips", "other_words"):
        if getattr(config, name) < 0:
            raise InvalidInputError(f"ClassifierCommandConfig.{name}: {getattr(config, name)}, expected 0 or more")
    output = new_folder(
        "ClassifierCommandConfig.output", config.output, UNFINISHED if config.oracle_tasks else UNFINISHED[:1]
    )
    policy = load_policy(config.policy)
    if config.lerobot is not None:
        from engram.learning.rewards.lerobot.modeling_engram_success import check_policy

        check_policy(policy)
        new_folder("ClassifierCommandConfig.lerobot", config.lerobot)
    lock = WriterLock(output)  # another command would delete the goals that are being carried out
    try:
        return _learn(config, policy, output)
    finally:
        lock.release()


def _learn(config: ClassifierCommandConfig, policy: Policy, output: Path) -> int:
    from engram.learning.rewards.clips import ClipsConfig
    from engram.learning.rewards.labelled_episodes import labelled_episodes
    from engram.learning.rewards.success_classifier import SuccessClassifier

    console = Console(stderr=True)
    folder, simulated = at_home(config.experience or output / "experience"), {}
    if config.oracle_tasks:
        from engram.policies.checkpoint import fingerprint
        from engram.policies.opening import files_of

        files = fingerprint(files_of(config.policy))
        by = oracle_goals(policy, config.oracle_tasks, config.on, config.episodes, folder, policy_files=files)
        simulated = {"goals_commit": by}
    skipped: Counter[str] = Counter()
    clips = ClipsConfig(config.clips, config.other_words)
    try:
        encoder, episodes = labelled_episodes(
            folder, policy, config.words, lambda _, why: skipped.update([why]), clips, config.seed
        )
    finally:
        for why, count in skipped.items():
            console.print(f"{count} goals passed over: {why}", markup=False)
    learnt = SuccessClassifier.fit(encoder, episodes, seed=config.seed)
    learnt.save(output)
    if config.lerobot is not None:
        from engram.learning.rewards.lerobot.modeling_engram_success import reward_model

        reward_model(learnt, policy).save_pretrained(at_home(config.lerobot))
    reached = sum(one.success for one in episodes)
    table = Table("of goals that it had not seen", "share", "95 % interval", "n", title=f"{output}")
    for name, rate in learnt.figures.items():
        what = name.replace("_", " ")
        if rate is None:
            table.add_row(what, "nothing was told", "", "0")
        else:
            table.add_row(what, f"{rate['rate']:.3f}", f"{rate['low']:.3f}..{rate['high']:.3f}", str(rate["n"]))
    console.print(table)
    where = {"command": " ".join(sys.argv[1:]), "commit": commit(), "machine": machine()}
    counts = {"reached": reached, "missed": len(episodes) - reached}
    report: dict[str, Any] = {"benchmark": "classifier", "config": _settings(config), "classifier": str(output)}
    print(json.dumps(report | counts | {"figures": learnt.figures} | simulated | where))
    return 0


def _settings(config: ClassifierCommandConfig) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}


def oracle_goals(
    policy: Policy,
    tasks: Sequence[str],
    gaps: Sequence[str],
    episodes: int,
    folder: Path,
    first_seed: int = FIRST_SEED,
    policy_files: str = "",
) -> str:
    """Let ``policy`` carry out ``tasks`` in simulation, and store each goal with the simulator's verdict in ``folder``.

    A goal goes on until its success has been seen for a while, as with a person. The folder appears when it is whole;
    one with these very goals is left as it is. Goals of the same weights with another ``policy_files`` (the fingerprint
    of the policy's folder) are others. Returns the commit of the code that carried them out; "" where nobody knows.

    Raises:
        UnknownNameError: there is no such task or gap.
        InvalidInputError: no gap is given, or the folder holds other goals.
    """
    from engram.learning.experience.store import ExperienceStore
    from engram.policies.vla.chunking import follow
    from engram.runtime.experience_recorder import ExperienceRecorder
    from engram.runtime.loop import Runtime
    from engram.runtime.oracle_verdict import OracleVerdict
    from engram.runtime.practice import PracticeRecord
    from engram.runtime.reconstruction import make_perception
    from engram.sim.gap_world import GapWorld, gap_pipeline
    from engram.sim.gaps import get_gap
    from engram.sim.tasks import get_task
    from engram.sim.world import WorldConfig

    if not gaps:
        raise InvalidInputError("ClassifierCommandConfig.on: empty, expected one gap at least, such as turned")
    chosen = [get_gap(name) for name in gaps]
    for task in tasks:
        get_task(task)
    about = {"policy": policy.version, "tasks": [*tasks], "on": [*gaps], "episodes": episodes, "first_seed": first_seed}
    about |= {"policy_files": policy_files}
    if folder.exists():
        return _check_goals(folder, about)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    store = ExperienceStore(partial)
    record = PracticeRecord(store)
    for number, (name, gap) in enumerate(zip(gaps, chosen, strict=True)):
        world = GapWorld(gap, WorldConfig(depth=True))
        pipeline = gap_pipeline(world)
        detector, fresh_memory = make_perception()
        controller = pipeline.controller
        recorder = ExperienceRecorder(controller.kinematics, controller.robot, record.add, record.next)
        runtime = Runtime(
            world,
            follow(policy),
            pipeline,
            detector=detector,
            fresh_memory=fresh_memory,
            judge=OracleVerdict(world),
            recorder=recorder,
        )
        seeds = range(first_seed + number, first_seed + episodes, len(chosen))
        for task, seed in tqdm([(task, seed) for task in tasks for seed in seeds], name, unit="goal", disable=None):
            record.begin()
            runtime.run_episode(task, seed)
            record.keep()
        world.close()
    store.close()
    by = commit()
    write_atomic(partial / GOALS, json.dumps(about | {"commit": by}).encode())
    partial.rename(folder)
    return by


def _check_goals(folder: Path, about: dict[str, Any]) -> str:
    """Return the commit of the goals in ``folder``; raise InvalidInputError if ``about`` describes others.

    An earlier version told neither that commit nor the policy's files.
    """
    unsaid = {"policy_files": about["policy_files"], "commit": ""}
    try:
        found = unsaid | dict(json.loads((folder / GOALS).read_text()))
        by = str(found.pop("commit"))
    except DAMAGED as error:
        raise StoreError(f"{folder / GOALS}: cannot be read: {error}") from error
    if found != about:
        raise InvalidInputError(f"{folder} holds other goals ({found}, not {about}); choose another folder")
    return by
