"""Our executor against rclpy's own in the running loop: CPU a control step, and overhead from camera to command.

Two sets of the real processes (simulation, policy, safety) run in lock-step side by side, one with each executor, each
on its own ROS domain. They take turns, episode by episode on the same seeds, and the order turns from block to block:
what else the machine does meets both. While one set works, the other waits. Ratios are of the same block; intervals
come from resampling whole blocks. The cost of a single message is measured first (see ``executor_messages``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import numpy as np
import psutil
import tyro
from rich.console import Console
from rich.progress import track

from engram.benchmarks.executor_messages import message_ms
from engram.benchmarks.loop import DRAWS, OVERHEAD, stages
from engram.benchmarks.report import figure, save_report
from engram.core.provenance import machine
from engram.nodes.loop_client import LoopClient

RESULTS = Path(__file__).resolve().parent / "results" / "executors.json"
ARMS = ("kept", "rclpy")
NODES = ("sim_node", "policy_node", "safety_node")
TASKS = ("reach", "push_to_mark")


@dataclass(frozen=True)
class ExecutorBenchmark:
    """What is measured."""

    policy: str = "base"
    """Checkpoint's name or folder, or package.module:attribute."""
    blocks: int = 12
    """Blocks; in each, every set does one episode of every task on the block's seed."""
    messages: int = 100
    """Messages in each of 20 blocks for the cost of one message."""
    domain: int = 60
    """ROS_DOMAIN_ID of the first set; the second has the next."""
    quick: bool = False
    """Two blocks."""
    output: Path = RESULTS
    """Where the result goes."""


@dataclass
class Arm:
    """One set of processes and what was seen of it."""

    client: LoopClient
    folder: Path
    children: dict[str, subprocess.Popen[bytes]]
    ends: list[int] = field(default_factory=list)  # of the blocks [monotonic ns]
    cpu_s: list[list[float]] = field(default_factory=list)  # (blocks, nodes)

    def run_block(self, seed: int) -> None:
        """Do one episode of every task."""
        before = self._cpu()
        for task in TASKS:
            self.client.run_episode(task, seed, 600.0)
        self.cpu_s.append([after - begun for after, begun in zip(self._cpu(), before, strict=True)])
        self.ends.append(time.monotonic_ns())

    def _cpu(self) -> list[float]:
        times = [psutil.Process(self.children[name].pid).cpu_times() for name in NODES]
        return [time.user + time.system for time in times]


@contextmanager
def running(config: ExecutorBenchmark, executor: str, domain: int, folder: Path) -> Iterator[Arm]:
    """Start one set, wait until it is active, and end it; its nodes leave their traces in ``folder``."""
    own = {"policy_node": ["-p", f"policy:='{config.policy}'", "-p", "memory:='off'", "-p", "accept:='none'"]}
    children = {}
    for name in NODES:
        shared = ["-p", "lockstep:=true", "-p", f"executor:={executor}", "-p", f"trace_file:={folder / name}.jsonl"]
        command = [sys.executable, "-m", f"engram.nodes.{name}", "--ros-args", *shared, *own.get(name, [])]
        environment = os.environ | {"ROS_DOMAIN_ID": str(domain)}
        children[name] = subprocess.Popen([*command, "--log-level", "warn"], stdout=sys.stderr, env=environment)
    client = LoopClient(domain=domain)
    try:
        client.wait_for(lambda: _all_active(client), 600.0, "the nodes are active")
        yield Arm(client, folder, children)
    finally:
        for child in children.values():
            child.send_signal(signal.SIGINT)
        for child in children.values():
            child.wait()
        client.close()


def _all_active(client: LoopClient) -> bool:
    said = client.diagnostics
    return all(name in said and said[name].values.get("state") == "active" for name in NODES)


def measure(config: ExecutorBenchmark, folder: Path) -> dict[str, dict[str, list[np.ndarray]]]:
    """Return arm -> measure -> one array a block: CPU a step of every node, and overhead a step [ms]."""
    with ExitStack() as stack:
        arms: dict[str, Arm] = {}
        for offset, name in enumerate(ARMS):
            own = folder / name
            own.mkdir()
            arms[name] = stack.enter_context(running(config, name, config.domain + offset, own))
        for block in track(range(config.blocks), "blocks", console=Console(stderr=True)):
            for name in ARMS if block % 2 == 0 else ARMS[::-1]:
                arms[name].run_block(block)
    return {name: _measured(arm) for name, arm in arms.items()}


def _measured(arm: Arm) -> dict[str, list[np.ndarray]]:
    passed = stages(arm.folder, arm.ends)
    steps = [len(due) + len(rest) for due, rest in zip(*(passed[k] for k in _WHOLE), strict=True)]
    cpu = {
        f"cpu_{name}": [np.array([1e3 * used[i] / n]) for used, n in zip(arm.cpu_s, steps, strict=True)]
        for i, name in enumerate(NODES)
    }
    return {**cpu, "overhead": passed[OVERHEAD], "no_chunk": passed[_WHOLE[1]]}


_WHOLE = ("camera -> command, chunk due", "camera -> command, no chunk due")


def figures(measured: dict[str, dict[str, list[np.ndarray]]]) -> list[dict[str, object]]:
    """Return each measure of both arms, and the ratio of ours to rclpy's own with its interval."""
    rows: list[dict[str, object]] = []
    for name in measured[ARMS[0]]:
        blocks = len(measured[ARMS[0]][name])
        chosen = np.random.default_rng(0).integers(0, blocks, (DRAWS, blocks))
        for label, of in _statistics(name).items():
            ours, stock = (measured[arm][name] for arm in ARMS)
            pooled = [float(of(np.concatenate(arm))) for arm in (ours, stock)]
            draws = [of(_pool(ours, row)) / of(_pool(stock, row)) for row in chosen]
            n = min(sum(map(len, ours)), sum(map(len, stock)))
            for arm, value in zip(ARMS, pooled, strict=True):
                rows.append(figure(f"executor_{name}_{label}_ms_{arm}", value, n))
            ends = [float(end) for end in np.percentile(draws, (2.5, 97.5))]
            rows.append(figure(f"executor_{name}_{label}_kept_over_rclpy", pooled[0] / pooled[1], n, ends))
    return rows


def _statistics(name: str) -> dict[str, Callable[[np.ndarray], float]]:
    if name.startswith("cpu"):
        return {"a_step": np.mean}
    if name == "message":
        return {"cpu": np.mean}
    return {"p50": lambda times: np.percentile(times, 50), "p99": lambda times: np.percentile(times, 99)}


def _pool(blocks: list[np.ndarray], row: np.ndarray) -> np.ndarray:
    return np.concatenate([blocks[block] for block in row])


def main(config: ExecutorBenchmark | None = None) -> None:
    """Measure and save."""
    config = config or tyro.cli(ExecutorBenchmark)
    if config.quick:
        config = replace(config, blocks=2)
    profile = Path(str(resources.files("engram.config"))) / "fastdds.xml"
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(profile))
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["ROS_DOMAIN_ID"] = str(config.domain + 2)
    where = machine()  # with the load before the measurement
    messages = message_ms(ARMS, 20, config.messages)
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(config, Path(folder)) if config.blocks else {arm: {} for arm in ARMS}
    rows = figures({arm: {"message": messages[arm]} for arm in ARMS}) + figures(measured)
    save_report(config.output, "executors", where, config, figures=rows, seed=0)


if __name__ == "__main__":
    main()
