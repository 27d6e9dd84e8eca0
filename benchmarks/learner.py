"""Speed of the learner on one CPU core: batches out of its replay, updates and what is stored, beside LeRobot.

    python -m engram.benchmarks.learner [--quick]

Replay: all contenders hold the same 1,000 control steps of noise with two 128 px cameras and draw batches of 64.
LeRobot's buffer keeps images as float32 and gives single actions with the next state, ours uint8 and chunks of 16
actions. The limit of sampling is one copy of the batch's bytes, that of an update the network alone on a prepared
batch. Critics: see :mod:`engram.benchmarks.learner_critics`. Tasks: updates with 1 to 20 tasks in the replay. Bytes
and recording: of episodes in the simulator, see ``learner_storage`` and ``learner_recording`` beside it.

Times are CPU time of one thread, medians over blocks with quartiles; those of control steps are by the clock on the
wall. Ratios are medians of those of each block, with 95 % bootstrap intervals. The last line is JSON, which also goes
to benchmarks/results/learner.json.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.learner_critics import EVERY, inputs_of, lerobot_updates, own_updates
from engram.benchmarks.learner_recording import added_ms, step_times
from engram.benchmarks.learner_storage import bytes_per_step, lerobot_buffer, recorded
from engram.benchmarks.policy import Contender
from engram.benchmarks.report import figure, save_report
from engram.core.provenance import machine
from engram.core.types import Transition
from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.rehearsal import to_tensors
from engram.learning.replay.buffer import ReplayBuffer
from engram.learning.rewards.goal import kind_of
from engram.policies import VlaPolicy, load_policy

RESULTS = Path(__file__).resolve().parent / "results" / "learner.json"
EPISODES, STEPS, SIDE, BATCH = 20, 50, 128, 64
SAMPLES, UPDATES = ("sample, two 128 px cameras", "update, batch of 64")
TASKS = (1, 5, 10, 20)
"""Numbers of tasks in the replay."""
PER_TASK, SHORT = 12, 20
"""Episodes of each of them, and their steps."""
WIDTHS = (256, 64)
"""Of hidden layers of critics: LeRobot's default, and ours."""
LEROBOT, CRITICS = "LeRobot ReplayBuffer", "ten critics"


@dataclass(frozen=True)
class LearnerBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint that is trained."""
    quick: bool = False
    """A fifth of the blocks."""
    blocks: int = 15
    """Turns of each contender."""
    recorded_blocks: int = 60
    """Blocks of 25 control steps, with recording and without."""
    seed: int = 0
    """Seed of the noise."""
    output: Path = RESULTS
    """Where the JSON goes."""


def episode(
    rng: np.random.Generator, number: int, steps: int = STEPS, task: str = "reach", words: str = "reach the red cube"
) -> list[Transition]:
    """Return one successful episode of noise."""
    action = rng.uniform(-1, 1, (steps, 7)).astype(np.float32)
    return [
        Transition(
            robot_id="bench", boot_id="0", sequence=number * steps + i, episode=number, step=i, stamp_ns=i * 10**8,
            task=task, instruction=words,
            images={c: rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for c in ("front", "wrist")},
            state=rng.standard_normal(15).astype(np.float32), action=action[i], executed_action=action[i], reward=0.0,
            reward_source="sim", terminated=i == steps - 1, truncated=False, success=True, author="",
            policy_version="bench",
        )
        for i in range(steps)
    ]  # fmt: skip


def own_buffer(episodes: list[list[Transition]], shrink: Any = None) -> ReplayBuffer:
    """Return our replay with the same steps; with ``shrink`` as the policy sees them."""
    buffer = ReplayBuffer(shrink=shrink)
    for number, steps in enumerate(episodes):
        buffer.add(number, steps)
    return buffer


def contenders(config: LearnerBenchmark, trainer: BehaviorCloning) -> list[Contender]:
    """Return what samples, and what updates on samples, in the table's order."""
    rng = np.random.default_rng(config.seed)
    episodes = [episode(rng, number) for number in range(EPISODES)]
    large, small = own_buffer(episodes), own_buffer(episodes, trainer.shrink)
    peer = lerobot_buffer(episodes)
    draws = iter(range(10**9))
    prepared = large.sample(BATCH, (0,))
    ready = trainer._preprocess(to_tensors(small.sample(BATCH, (0,))))

    def copy() -> list[np.ndarray]:
        return [v.copy() for v in prepared.values() if isinstance(v, np.ndarray)]

    return [
        Contender("engram, as recorded", SAMPLES, lambda: large.sample(BATCH, (next(draws),))),
        Contender("engram, as the policy sees them", SAMPLES, lambda: small.sample(BATCH, (next(draws),))),
        Contender(LEROBOT, SAMPLES, lambda: peer.sample(BATCH)),
        Contender("one copy of the bytes", SAMPLES, copy),
        Contender("engram: sample, update", UPDATES, lambda: trainer.update(small.sample(BATCH, (next(draws),)), 0)),
        Contender("forward and backward alone", UPDATES, _backward(trainer.policy, ready)),
    ]


def critics(config: LearnerBenchmark) -> list[tuple[Contender, int]]:
    """Return what updates ten critics, ours and LeRobot's with layers as wide, each with the updates of a call."""
    found = []
    for width in WIDTHS:
        for whose, run, updates in (
            ("engram", own_updates(config.policy, width), 10 * EVERY),
            ("LeRobot, same inputs", lerobot_updates(width, inputs_of(width)), 2 * EVERY),
        ):
            found.append((Contender(f"{CRITICS} of width {width}: {whose}", "critics", partial(run, updates)), updates))
    pictures = lerobot_updates(WIDTHS[0], inputs_of(WIDTHS[0]), pictures=True)
    name = f"{CRITICS} of width {WIDTHS[0]}: LeRobot, from pictures"
    return [*found, (Contender(name, "critics", partial(pictures, EVERY)), EVERY)]


def tasks(config: LearnerBenchmark, trainer: BehaviorCloning) -> list[Contender]:
    """Return what samples and updates from replays of more and more tasks."""
    rng, found = np.random.default_rng(config.seed), []
    policy = load_policy(config.policy)
    assert isinstance(policy, VlaPolicy)
    kinds = sorted({kind_of(one) for one in policy.instructions})
    words = [one for one in policy.instructions if kind_of(one) in kinds[: len(kinds) // 2]]  # the rest is rehearsed
    for count in TASKS:
        buffer, number = ReplayBuffer(shrink=trainer.shrink), 0
        for task in range(count):
            for _ in range(PER_TASK):
                number += 1
                buffer.add(number, episode(rng, number, SHORT, f"task {task}", words[task * len(words) // count]))
        found += [_sampling(buffer, count), _updating(buffer, trainer, count)]
    return found


def _sampling(buffer: ReplayBuffer, count: int) -> Contender:
    draws = iter(range(10**9))
    return Contender(f"sample, {count} tasks", "tasks", lambda: buffer.sample(BATCH, (next(draws),)))


def _updating(buffer: ReplayBuffer, trainer: BehaviorCloning, count: int) -> Contender:
    draws = iter(range(10**9))
    run: Callable[[], Any] = lambda: trainer.update(buffer.sample(BATCH, (next(draws),)), 0)  # noqa: E731
    return Contender(f"sample and update, {count} tasks", "tasks", run)


def _backward(network: torch.nn.Module, batch: dict[str, Any]) -> Callable[[], None]:
    def run() -> None:
        network(batch)[0].backward()
        network.zero_grad(set_to_none=True)

    return run


def rates(found: Sequence[Contender], each: int = 1) -> list[dict[str, Any]]:
    """Return how often each ran in a second of CPU, where a call of it is ``each`` runs."""
    rows = []
    for c in found:
        mid, low, high = (1e3 * each / ms for ms in c.quartiles_ms())
        rows.append(figure(f"learner_{_slug(c.name)}_per_cpu_s", mid, len(c.seconds), (high, low), digits=2))
    return rows


def over(
    name: str, ours: Contender, theirs: Contender, scale: float = 1.0, target: float | None = None, most: bool = False
) -> dict[str, Any]:
    """Return the time of ``theirs`` over that of ``ours`` times ``scale``: median of the turns, bootstrap interval.

    Met is a ``target`` that is at least reached, with ``most`` one that is at most.
    """
    both = min(len(ours.seconds), len(theirs.seconds))
    ratios, rng = np.array(theirs.seconds[:both]) / np.array(ours.seconds[:both]) * scale, np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (2000, len(ratios))), axis=1)
    value = float(np.median(ratios))
    words = None if target is None else f"{'<=' if most else '>='} {target:g}"
    met = None if target is None else value <= target if most else value >= target
    return figure(f"learner_{name}", value, len(ratios), np.percentile(medians, (2.5, 97.5)).tolist(), words, met)


def _slug(name: str) -> str:
    return "_".join(name.replace(",", "").replace(":", "").lower().split())


def replay_figures(found: Sequence[Contender]) -> list[dict[str, Any]]:
    """Return the rates of the replay, and the ratios to peer and limit."""
    by = {c.name: c for c in found}
    update, alone = by["engram: sample, update"], by["forward and backward alone"]
    return [
        *rates(found),
        over("sampling_over_lerobot", by["engram, as recorded"], by[LEROBOT], target=10.0),
        over("update_over_network_alone", update, alone),
    ]


def critic_figures(found: Sequence[tuple[Contender, int]]) -> list[dict[str, Any]]:
    """Return updates in a second of CPU, and ours over LeRobot's."""
    rows, by = [], {c.name: (c, updates) for c, updates in found}
    for c, updates in found:
        rows += rates([c], updates)
    for width in WIDTHS:
        ours, mine = by[f"{CRITICS} of width {width}: engram"]
        for kind in ("same inputs", "from pictures"):
            if (them := by.get(f"{CRITICS} of width {width}: LeRobot, {kind}")) is not None:
                name = f"updates_of_{_slug(CRITICS)}_of_width_{width}_over_lerobot_{_slug(kind)}"
                rows.append(over(name, ours, them[0], mine / them[1], target=10.0))
    return rows


def task_figures(found: Sequence[Contender]) -> list[dict[str, Any]]:
    """Return the rates with more and more tasks, and the cost with the most over that with one."""
    by, most = {c.name: c for c in found}, TASKS[-1]
    update, sample = (f"{what}, {{}} tasks" for what in ("sample and update", "sample"))
    cost = over(f"cost_of_an_update_{most}_tasks_over_one", by[update.format(1)], by[update.format(most)], target=1.1,
                most=True)  # fmt: skip
    return [
        *rates(found),
        cost,
        over(f"cost_of_a_sample_{most}_tasks_over_one", by[sample.format(1)], by[sample.format(most)]),
    ]


def storage_figures(sizes: dict[str, float], steps: int) -> list[dict[str, Any]]:
    """Return bytes of a control step, and the shares of ours in LeRobot's."""
    rows = [figure(f"learner_bytes_per_step_{_slug(where)}", size, steps, digits=0) for where, size in sizes.items()]
    store, replay = sizes["engram experience store"], sizes["engram replay as recorded, at its peak"]
    pairs = {
        "replay_over_lerobot_buffer": replay / sizes["lerobot replay buffer"],
        "store_over_lerobot_dataset_with_png_files": store / sizes["lerobot dataset with png files"],
        "store_over_lerobot_dataset_with_videos": store / sizes["lerobot dataset of its buffer with videos"],
    }
    for name, share in pairs.items():
        rows.append(figure(f"learner_bytes_{name}", share, steps, None, "<= 0.25", share <= 0.25))
    return rows


def recording_figures(times: dict[bool, np.ndarray]) -> list[dict[str, Any]]:
    """Return what recording adds to a control step."""
    handed, steps = times[True][..., 1], times[True][..., 1].size
    rows = [figure("learner_recording_handing_over_ms_p99", float(np.percentile(handed, 99)), steps)]
    for percentile, target in ((50, None), (99, "<= 1.0")):
        value, low, high = added_ms(times, percentile)
        met = None if target is None else value <= 1.0
        rows.append(
            figure(f"learner_recording_adds_to_a_step_ms_p{percentile}", value, steps, (low, high), target, met)
        )
    return rows


def turns(found: Sequence[Contender], blocks: int, calls: Callable[[Contender], int]) -> None:
    """Let all run, in turns; the first turn is not counted."""
    for c in found:
        c.turn(1)
        c.seconds.clear()
    for _ in range(blocks):
        for c in found:
            c.turn(calls(c))


def main(config: LearnerBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LearnerBenchmark)
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    where = machine()  # with the load before the measurement
    blocks = max(3, config.blocks // 5) if config.quick else config.blocks
    trainer = clone_policy(load_policy(config.policy))
    found = contenders(config, trainer)
    turns(found, blocks, lambda c: 2 if c.what == UPDATES else 40)
    rows = replay_figures(found)
    judged = critics(config)
    *quick, pictures = [c for c, _ in judged]
    turns(quick, blocks, lambda _: 1)
    turns([pictures], 1 if config.quick else 3, lambda _: 1)  # some seconds each
    rows += critic_figures(judged)
    grown = tasks(config, trainer)
    turns(grown, blocks, lambda c: 1 if "update" in c.name else 40)
    rows += task_figures(grown)
    episodes = recorded(config.policy, *((2, 1) if config.quick else (6, 5)), config.seed)
    rows += storage_figures(bytes_per_step(config.policy, episodes), sum(map(len, episodes)))
    with tempfile.TemporaryDirectory() as folder:
        steps = [step for one in episodes for step in one]
        kept = config.recorded_blocks // 10 if config.quick else config.recorded_blocks
        rows += recording_figures(step_times(config.policy, steps, Path(folder), kept))
    table = Table("what", "contender", "ms of CPU", "per CPU second", title="learner, one core")
    for c in [*found, *quick, pictures, *grown]:
        mid = c.quartiles_ms()[0]
        table.add_row(c.what, c.name, f"{mid:.2f}", f"{1e3 / mid:.1f}")
    Console(width=120).print(table)
    for row in rows:
        if row["target"]:
            Console(width=120).print(f"{row['name']}: {row['value']} {row['interval'] or ''}, target {row['target']}")
    save_report(config.output, "learner", where, config, figures=rows, seed=config.seed)


if __name__ == "__main__":
    main()
