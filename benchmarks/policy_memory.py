"""Cost of the policy's memories of its episode: a training window, a control step, and the bank's read as it grows.

Part of ``engram bench policy``. CPU time of one thread; contenders take turns. p50 and p99 are over calls, the
quartiles of the ratios over turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.table import Table

from engram.policies import EngramVLAConfig
from engram.policies.sequence_memory import MEMORIES, NONE, Moments, SequenceMemory, make_memory
from engram.policies.sequence_memory.bank import Bank, BankConfig

LANES, STEPS, DIM, DETAILS = 4, 128, 128, 4
ENTRIES = (16, 64, 256, 4096)
CALLS = 20
"""Calls per turn; of a training window, one."""


def moments(batch: int, steps: int) -> Moments:
    """Return features of noise."""
    feature = torch.randn(batch, steps, (1 + DETAILS) * DIM)
    return Moments(feature, torch.arange(steps).expand(batch, -1) * 0.1, torch.randn(batch, steps, 3))


def training_window(memory: SequenceMemory, in_parallel: bool = True) -> Callable[[], None]:
    """Return forward and backward over a window of 4 x 128 steps, also to the features, which are learnt."""
    seen, queries = moments(LANES, STEPS), torch.randn(LANES, STEPS, DIM)
    seen.feature.requires_grad_()
    unroll = type(memory).unroll if in_parallel else SequenceMemory.unroll

    def run() -> None:
        readings, _ = unroll(memory, memory.begin(LANES), seen, queries)
        readings.square().mean().backward()
        memory.zero_grad(set_to_none=True)
        seen.feature.grad = None

    return run


def control_step(memory: SequenceMemory) -> Callable[[], None]:
    """Return one write and one read in mid-episode."""
    one, query = moments(1, 80), torch.randn(1, DIM)
    with torch.inference_mode():
        _, state = memory.unroll(memory.begin(1), one, torch.randn(1, 80, DIM))

    def run() -> None:
        with torch.inference_mode():
            memory.read(memory.write(state, one.at(0)), query, one.at(0))

    return run


def bank_read(entries: int) -> Callable[[], None]:
    """Return a read of a full cognitive bank of ``entries``."""
    bank = Bank(BankConfig(DIM, 4, DETAILS, steps=entries, events=1))
    state = bank.begin(1)
    state["cognitive.feature"].normal_()
    state["cognitive.count"].fill_(1.0)
    one, query = moments(1, 1), torch.randn(1, DIM)

    def run() -> None:
        with torch.inference_mode():
            bank.read(state, query, one.at(0))

    return run


def plain_attention(entries: int) -> Callable[[], None]:
    """Return the limit: PyTorch's multi-head attention of one query over as many entries, with nothing around it."""
    attention = torch.nn.MultiheadAttention(DIM, 4, batch_first=True)
    query, keys = torch.randn(1, 1, DIM), torch.randn(1, entries, DIM)

    def run() -> None:
        with torch.inference_mode():
            attention(query, keys, keys, need_weights=False)

    return run


def contenders() -> dict[str, Callable[[], Any]]:
    """Return everything that is timed, by name."""
    made = {name: make_memory(EngramVLAConfig(memory=name, device="cpu")) for name in MEMORIES if name != NONE}
    found: dict[str, Callable[[], Any]] = {}
    for name, memory in made.items():
        found[f"{name}: window of {LANES} x {STEPS}"] = training_window(memory)
        found[f"{name}: control step"] = control_step(memory)
    found[f"fast_forgetful, step by step: window of {LANES} x {STEPS}"] = training_window(made["fast_forgetful"], False)
    for entries in ENTRIES:
        found[f"bank: read of {entries}"] = bank_read(entries)
        found[f"plain attention: read of {entries}"] = plain_attention(entries)
    return found


def measure(turns: int) -> dict[str, np.ndarray]:
    """Return the CPU milliseconds (turns, calls) of each contender, after a turn to warm up."""
    found = contenders()
    spent: dict[str, list[list[float]]] = {name: [] for name in found}
    for _ in range(turns + 1):
        for name, run in found.items():
            spent[name].append([_timed(run) for _ in range(1 if "window" in name else CALLS)])
    return {name: np.array(times[1:]) for name, times in spent.items()}


def _timed(run: Callable[[], Any]) -> float:
    begun = time.process_time_ns()
    run()
    return (time.process_time_ns() - begun) / 1e6


def figures(spent: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return what is claimed, as ratios within each turn."""
    each = {name: np.median(times, axis=1) for name, times in spent.items()}
    window = f": window of {LANES} x {STEPS}"
    gru, fast = each[f"gru{window}"], each[f"fast_forgetful{window}"]
    one_by_one = each[f"fast_forgetful, step by step{window}"]
    out = [
        _figure("fast_forgetful_training_speed_beside_gru", gru / fast),
        _figure("fast_forgetful_parallel_speed_beside_sequential", one_by_one / fast),
        _figure("bank_training_time_beside_gru", each[f"bank{window}"] / gru),
    ]
    for entries in ENTRIES:
        name = f"read of {entries}"
        out.append(_figure(f"bank_{name.replace(' ', '_')}_beside_plain_attention",
                           each[f"bank: {name}"] / each[f"plain attention: {name}"]))  # fmt: skip
    return out


def percentiles(spent: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return p50 and p99 [CPU ms] and the number of calls of each contender."""
    found = {}
    for name, times in spent.items():
        p50, p99 = (round(float(v), 3) for v in np.percentile(times, (50, 99)))
        found[name] = {"p50_ms": p50, "p99_ms": p99, "n": times.size}
    return found


def table(spent: dict[str, np.ndarray]) -> Table:
    """Return the times as a table."""
    shown = Table("contender", "CPU ms (p50)", "p99", "n", title="Memories of the episode on one core")
    for name, times in percentiles(spent).items():
        shown.add_row(name, f"{times['p50_ms']:.2f}", f"{times['p99_ms']:.2f}", str(times["n"]))
    return shown


def _figure(name: str, values: np.ndarray) -> dict[str, Any]:
    median, low, high = (round(float(v), 3) for v in np.percentile(values, (50, 25, 75)))
    return {"name": name, "value": median, "interval": [low, high], "n": len(values), "target": None, "met": None}
