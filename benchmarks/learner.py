"""Speed of the learner on one CPU core: batches out of its replay, and updates, beside LeRobot's replay buffer.

    python -m engram.benchmarks.learner [--quick]

All contenders hold the same 1,000 control steps of noise with two 128 px cameras and draw batches of 64. LeRobot's
buffer keeps images as float32 and gives single actions with the next state, ours uint8 and chunks of 16 actions. The
limit of sampling is one copy of the batch's bytes, that of an update the network alone on a prepared batch. Times are
CPU time of one thread, medians over blocks with quartiles. The last line is JSON, which also goes to
benchmarks/results/learner.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from lerobot.rl.buffer import ReplayBuffer as LeRobotBuffer
from rich.console import Console
from rich.table import Table

from engram.benchmarks.policy import Contender
from engram.benchmarks.report import save_report
from engram.core.provenance import machine
from engram.core.types import Transition
from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.rehearsal import to_tensors
from engram.learning.replay.buffer import ReplayBuffer
from engram.policies import load_policy

RESULTS = Path(__file__).resolve().parent / "results" / "learner.json"
EPISODES, STEPS, SIDE, BATCH = 20, 50, 128, 64
SAMPLES, UPDATES = ("sample, two 128 px cameras", "update, batch of 64")


@dataclass(frozen=True)
class LearnerBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint that is trained."""
    quick: bool = False
    """A fifth of the blocks."""
    blocks: int = 15
    """Turns of each contender."""
    seed: int = 0
    """Seed of the noise."""
    output: Path = RESULTS
    """Where the JSON goes."""


def episode(rng: np.random.Generator, number: int) -> list[Transition]:
    """Return one successful episode of noise."""
    action = rng.uniform(-1, 1, (STEPS, 7)).astype(np.float32)
    return [
        Transition(
            robot_id="bench", boot_id="0", sequence=number * STEPS + i, episode=number, step=i, stamp_ns=i * 10**8,
            task="reach", instruction="reach the red cube",
            images={c: rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for c in ("front", "wrist")},
            state=rng.standard_normal(15).astype(np.float32), action=action[i], executed_action=action[i], reward=0.0,
            reward_source="sim", terminated=i == STEPS - 1, truncated=False, success=True, intervention=False,
            policy_version="bench",
        )
        for i in range(STEPS)
    ]  # fmt: skip


def lerobot_buffer(episodes: list[list[Transition]]) -> LeRobotBuffer:
    """Return LeRobot's replay buffer with the same steps; without augmentation, which ours does not do either."""
    keys = ["observation.images.front", "observation.images.wrist", "observation.state"]
    buffer = LeRobotBuffer(EPISODES * STEPS, "cpu", keys, image_augmentation_function=lambda x: x, use_drq=False)

    def state(t: Transition) -> dict[str, torch.Tensor]:
        images = {
            f"observation.images.{n}": torch.tensor(im).permute(2, 0, 1)[None] / 255 for n, im in t.images.items()
        }
        return {**images, "observation.state": torch.tensor(t.state)[None]}

    for steps in episodes:
        for here, there in zip(steps, [*steps[1:], steps[-1]], strict=True):
            action = torch.tensor(here.action)[None]
            buffer.add(state(here), action, here.reward, state(there), here.terminated, here.truncated)
    return buffer


def own_buffer(episodes: list[list[Transition]], shrink: Any = None) -> ReplayBuffer:
    """Return our replay with the same steps; with ``shrink`` as the policy sees them."""
    buffer = ReplayBuffer(shrink=shrink)
    for number, steps in enumerate(episodes):
        buffer.add(number, steps)
    return buffer


def contenders(config: LearnerBenchmark) -> list[Contender]:
    """Return everything that is measured, in the table's order."""
    rng = np.random.default_rng(config.seed)
    episodes = [episode(rng, number) for number in range(EPISODES)]
    trainer = clone_policy(load_policy(config.policy))
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
        Contender("LeRobot ReplayBuffer", SAMPLES, lambda: peer.sample(BATCH)),
        Contender("one copy of the bytes", SAMPLES, copy),
        Contender("engram: sample, update", UPDATES, lambda: trainer.update(small.sample(BATCH, (next(draws),)), 0)),
        Contender("forward and backward alone", UPDATES, _backward(trainer.policy, ready)),
    ]


def _backward(network: torch.nn.Module, batch: dict[str, Any]) -> Callable[[], None]:
    def run() -> None:
        network(batch)[0].backward()
        network.zero_grad(set_to_none=True)

    return run


def figures(found: list[Contender]) -> list[dict[str, Any]]:
    """Return the rates and the ratios to peer and limit."""
    median = {c.name: c.quartiles_ms() for c in found}
    rows = []
    for c in found:
        mid, low, high = median[c.name]
        label = "learner_" + "_".join(c.name.replace(",", "").replace(":", "").lower().split()) + "_per_cpu_s"
        row = {"name": label, "value": round(1e3 / mid, 2), "interval": [round(1e3 / high, 2), round(1e3 / low, 2)]}
        rows.append({**row, "n": len(c.seconds), "target": None, "met": None})
    peer = median["LeRobot ReplayBuffer"][0] / median["engram, as recorded"][0]
    share = median["forward and backward alone"][0] / median["engram: sample, update"][0]
    for name, value in (("learner_sampling_over_lerobot", peer), ("learner_update_over_network_alone", share)):
        rows.append({"name": name, "value": round(value, 3), "interval": None, "n": len(found[0].seconds),
                     "target": None, "met": None})  # fmt: skip
    return rows


def main(config: LearnerBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(LearnerBenchmark)
    torch.set_num_threads(1)
    found = contenders(config)
    where = machine()  # with the load before the measurement
    for _ in range(max(3, config.blocks // 5) if config.quick else config.blocks):
        for c in found:
            c.turn(2 if c.what == UPDATES else 10)
    table = Table("what", "contender", "ms of CPU", "per CPU second", title="learner, one core")
    for c in found:
        mid = c.quartiles_ms()[0]
        table.add_row(c.what, c.name, f"{mid:.2f}", f"{1e3 / mid:.1f}")
    Console(width=120).print(table)
    save_report(config.output, "learner", where, config, figures=figures(found), seed=config.seed)


if __name__ == "__main__":
    main()
