"""Speed of the policy on one CPU core: an answer, and a training step, beside LeRobot's ACT and the bare network,
and of its memories.

    python -m engram.benchmarks.policy [--quick]

All contenders take turns in short blocks, so that whatever else the machine does hits them alike. Times are CPU time of
one thread, medians over blocks with quartiles. An answer is a control step that decides: a new observation of two 128
px cameras, preprocessing, memory where there is one, a chunk. The limit is the network alone on a prepared batch.
Prints two tables; the last line is JSON, which also goes to benchmarks/results/policy.json.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from rich.console import Console
from rich.table import Table

from engram.benchmarks import policy_answers, policy_memory
from engram.benchmarks.report import save_report
from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.control import ControlConfig
from engram.core.provenance import machine
from engram.core.robot import PANDA_2F85
from engram.core.types import CameraFrame, JointState, Observation, Pose
from engram.policies import EngramVLAConfig, EngramVLAPolicy, VlaPolicy, make_engram_vla_pre_post_processors
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY
from engram.sim.robots.kinematics import ModelKinematics

MEMORY_SHARE_TARGET = 0.1
EXECUTED = 4
"""Control steps for which each policy executes an answer."""
LIVED = 80
"""Control steps before the one that is timed: enough to fill the bank."""
RESULTS = Path(__file__).resolve().parent / "results" / "policy.json"
ANSWER_TARGET_MS = 20.0
BATCH = 16
OURS, ACT = "shipped policy", "LeRobot ACT"
COMPARED = 60
"""Control steps of an episode whose answers are compared with the reference's."""


@dataclass(frozen=True)
class PolicyBenchmark:
    """What is measured."""

    quick: bool = False
    """A fifth of the blocks."""
    policy: str = "engram"
    """Shipped policy whose single answers are timed and compared with the reference's: a name or a folder."""
    blocks: int = 25
    """Turns of each contender."""
    calls: int = 4
    """Calls per turn."""
    answers: int = 500
    """Single answers that are timed by the clock on the wall."""
    output: Path = RESULTS
    """Where the JSON goes."""


@dataclass
class Contender:
    """Something that is called, and the CPU seconds per call of each block."""

    name: str
    what: str
    run: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)

    def turn(self, calls: int) -> None:
        """Run one block and note its time."""
        begun = time.process_time()
        for _ in range(calls):
            self.run()
        self.seconds.append((time.process_time() - begun) / calls)

    def quartiles_ms(self) -> tuple[float, float, float]:
        """Return median, lower and upper quartile [ms]."""
        median, low, high = np.percentile(np.array(self.seconds) * 1e3, (50, 25, 75))
        return float(median), float(low), float(high)


def features() -> tuple[dict[str, PolicyFeature], dict[str, PolicyFeature]]:
    """Return the recorder's features: what both policies take and give."""
    image = PolicyFeature(FeatureType.VISUAL, (3, 128, 128))
    inputs = {f"observation.images.{camera}": image for camera in ("front", "wrist")}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (15,))
    return inputs, {"action": PolicyFeature(FeatureType.ACTION, (7,))}


@functools.cache
def noise_images() -> np.ndarray:
    """Return two images (2, 128, 128, 3) uint8 of noise."""
    return np.random.default_rng(0).integers(0, 256, (2, 128, 128, 3), dtype=np.uint8)


def observation(stamp_ns: int = 0) -> Observation:
    """Return one observation of noise."""
    pose = Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
    frames = {
        name: CameraFrame(name, stamp_ns, image, np.eye(3), pose)
        for name, image in zip(("front", "wrist"), noise_images(), strict=True)
    }
    home = np.append(PANDA_2F85.home, PANDA_2F85.gripper_open)
    return Observation(stamp_ns, frames, JointState(stamp_ns, PANDA_2F85.joint_names, home, np.zeros(8)))


def batch(size: int, side: int) -> dict[str, torch.Tensor]:
    """Return a normalised training batch of noise with images of ``side`` px."""
    return {
        "observation.images.front": torch.rand(size, 3, side, side),
        "observation.images.wrist": torch.rand(size, 3, side, side),
        "observation.state": torch.randn(size, 15),
        LANGUAGE_KEY: torch.randn(size, EngramVLAConfig.language_dim),
        "action": torch.randn(size, 16, 7),
        UNLEARNT_KEY: torch.zeros(size, 16, dtype=torch.bool),
        "action_is_pad": torch.zeros(size, 16, dtype=torch.bool),  # what ACT calls it
    }


def step(policy: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], None]:
    """Return one training step of ``policy``."""
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-5)

    def run() -> None:
        policy.train()
        policy(inputs)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


def deciding(network: EngramVLAPolicy, chunks: bool = True) -> Callable[[], Any]:
    """Return one control step after another of an episode in its middle; without ``chunks`` it only observes."""
    pre, post = make_engram_vla_pre_post_processors(network.config, {})
    policy = VlaPolicy(network, pre, post, ModelKinematics(PANDA_2F85), version="benchmark")
    policy.reset("put the red cube in the bin")
    steps = itertools.count()

    def run() -> None:
        policy.observe(observation(100_000_000 * next(steps)))
        if chunks:
            policy.act()

    for _ in range(LIVED if policy.remembers else 0):
        run()
    return run


def contenders() -> list[Contender]:
    """Return ours, LeRobot's ACT with the same horizon, and our network without what surrounds it."""
    inputs, outputs = features()
    ours_config = EngramVLAConfig(input_features=inputs, output_features=outputs, device="cpu", n_action_steps=EXECUTED)
    ours = EngramVLAPolicy(ours_config)
    act_config = ACTConfig(
        input_features=inputs,
        output_features=outputs,
        device="cpu",
        chunk_size=16,
        n_action_steps=EXECUTED,
        pretrained_backbone_weights=None,
    )
    act = ACTPolicy(act_config)
    bank = EngramVLAPolicy(replace(ours.config, memory="bank"))
    one, large = batch(1, ours.config.image_size), batch(1, 128)
    noise = torch.randn(1, 16, 7)

    def answer_of_act() -> None:
        act.eval()
        with torch.inference_mode():
            act.predict_action_chunk(dict(large))

    return [
        Contender("engram_vla", "answer", deciding(ours)),
        Contender(f"{ACT}, network alone", "answer", answer_of_act),
        Contender("engram_vla, network alone", "answer", lambda: ours.predict_action_chunk(one, noise=noise)),
        Contender("engram_vla", f"training step of {BATCH}", step(ours, batch(BATCH, ours.config.image_size))),
        Contender(ACT, f"training step of {BATCH}", step(act, batch(BATCH, 128))),
        Contender("engram_vla with the bank", "answer", deciding(bank)),
        Contender("engram_vla with the bank", "control step without an answer", deciding(bank, chunks=False)),
    ]


def figures(found: list[Contender]) -> list[dict[str, Any]]:
    """Return what is claimed, each with interval (quartiles over blocks), n and target."""
    ours, act, bare, our_step, act_step, bank, looking = found
    median, low, high = ours.quartiles_ms()
    out: list[dict[str, Any]] = [
        {
            "name": "policy_answer_cpu_ms_p50",
            "value": round(median, 2),
            "interval": [round(low, 2), round(high, 2)],
            "n": len(ours.seconds),
            "target": ANSWER_TARGET_MS,
            "met": median <= ANSWER_TARGET_MS,
        }
    ]
    measured = [
        ("answer_time_beside_act", ratio(ours, act), None),
        ("answer_time_beside_bare_network", ratio(ours, bare), None),
        ("training_step_time_beside_act", ratio(our_step, act_step), None),
        ("memory_share_of_an_answer", 1.0 - ratio(ours, bank), MEMORY_SHARE_TARGET),
        ("memory_share_of_a_control_step", share_of_a_control_step(ours, bank, looking), MEMORY_SHARE_TARGET),
        ("memory_share_of_a_control_step_both_asked_at_every_step", share_when_asked(ours, bank), MEMORY_SHARE_TARGET),
        (
            "memory_share_of_a_control_step_asked_at_every_step_beside_every_fourth",
            share_when_asked(ours, bank, EXECUTED),
            MEMORY_SHARE_TARGET,
        ),
    ]
    for name, values, target in measured:
        median, low, high = (round(float(v), 3) for v in np.percentile(values, (50, 25, 75)))
        met = None if target is None else median <= target
        out.append(
            {"name": name, "value": median, "interval": [low, high], "n": len(values), "target": target, "met": met}
        )
    return out


def share_of_a_control_step(ours: Contender, bank: Contender, looking: Contender) -> np.ndarray:
    """Return in each turn which share of a control step's time memory takes of one core.

    An answer costs more with memory, and the steps between two answers must be looked at and written; without memory
    they cost nothing.
    """
    more = np.array(bank.seconds) - np.array(ours.seconds) + (EXECUTED - 1) * np.array(looking.seconds)
    return more / EXECUTED / ControlConfig().control_dt_s


def share_when_asked(ours: Contender, bank: Contender, every: int = 1) -> np.ndarray:
    """Return in each turn which share of a control step's time it takes of one core to ask a policy with memory at
    every step, as one does that leaves its chunks early, instead of one without at ``every`` so many steps."""
    return (np.array(bank.seconds) - np.array(ours.seconds) / every) / ControlConfig().control_dt_s


def ratio(over: Contender, under: Contender) -> np.ndarray:
    """Return the ratio of the times of two contenders in each turn."""
    return np.array(over.seconds) / np.array(under.seconds)


def answer_times(name: str, found: list[Contender], calls: int) -> dict[str, np.ndarray]:
    """Return the wall-clock time (calls,) [ms] of each answer of policy ``name``, and of ACT's network."""
    ours = policy_answers.answering(policy_answers.shipped(name), observation)
    act = next(contender for contender in found if contender.name.startswith(ACT) and contender.what == "answer")
    return policy_answers.wall_ms({OURS: ours, act.name: act.run}, calls)


def main(config: PolicyBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(PolicyBenchmark)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    where = machine()  # with the load before the measurement
    found = contenders()
    for contender in found:
        contender.turn(1)  # caches, the text encoder
        contender.seconds.clear()
    for _ in range(max(5, config.blocks // 5) if config.quick else config.blocks):
        for contender in found:
            contender.turn(config.calls)
    table = Table("contender", "what", "CPU ms (p50)", "quartiles", title="Policy on one core")
    for contender in found:
        median, low, high = contender.quartiles_ms()
        table.add_row(contender.name, contender.what, f"{median:.1f}", f"{low:.1f} - {high:.1f}")
    Console(width=120, stderr=True).print(table)
    spent = policy_memory.measure(5 if config.quick else config.blocks)
    Console(width=120, stderr=True).print(policy_memory.table(spent))
    answers = max(100, config.answers // 5) if config.quick else config.answers
    timed = answer_times(config.policy, found, answers)
    Console(width=120, stderr=True).print(policy_answers.table(timed))
    difference = policy_answers.largest_difference(config.policy, COMPARED)
    claims = figures(found) + policy_memory.figures(spent)
    claims += policy_answers.figures(timed, OURS, difference, COMPARED)
    times = policy_memory.percentiles(spent)
    save_report(config.output, "policy", where, config, figures=claims, times=times, threads=1, torch=torch.__version__)


if __name__ == "__main__":
    main()
