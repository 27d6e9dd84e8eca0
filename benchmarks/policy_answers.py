"""How long a shipped policy takes for one answer beside LeRobot's ACT, and how far it is from the reference's answer.

Part of ``engram bench policy``. An answer is one control step that decides, on one core: new images, 16 tokens of
memory/context, a write into the bank and a read, a chunk. Wall clock, every call counts. The answers are compared with
those of the reference path, by which the policy is trained: a whole episode encoded at once and walked through in one
window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from engram.benchmarks.report import figure
from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM, MemoryTokens, Observation
from engram.policies import VlaPolicy, load_policy
from engram.policies.vla.contract import STATE_KEY, RememberingNetwork
from engram.runtime.factories import black_observation

TOKENS = 16
LIVED = 80
"""Control steps before the first that is timed: enough to fill the bank."""
P50_MS, P99_MS, DIFFERENCE = 10.0, 20.0, 1e-4
"""Targets; the last is of normalised actions."""


def context(rng: np.random.Generator) -> MemoryTokens:
    """Return tokens of things at random places."""
    vectors = rng.standard_normal((TOKENS, EMBEDDING_DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ages, places = rng.uniform(0, 60, TOKENS), rng.uniform((0.3, -0.35, 0.0), (0.7, 0.35, 0.15), (TOKENS, 3))
    ids = tuple(f"object_{number}" for number in range(TOKENS))
    return MemoryTokens(0, 1, vectors, ages.astype(np.float32), places.astype(np.float32), np.ones(TOKENS, bool), ids)


def shipped(name: str) -> VlaPolicy:
    """Return the policy called ``name``, a name or a folder; raises InvalidInputError for one that is not ours."""
    policy = load_policy(name)
    if not isinstance(policy, VlaPolicy):
        raise InvalidInputError(f"policy {name!r}: expected one of ours, not {type(policy).__name__}")
    return policy


def answering(policy: VlaPolicy, observe: Callable[[int], Observation]) -> Callable[[], Any]:
    """Return one answer after another of an episode in its middle, to what ``observe`` gives for a stamp [ns]."""
    policy.reset("put the red cube in the bin", seed=1)
    tokens, steps = context(np.random.default_rng(0)), iter(range(10**9))

    def run() -> None:
        policy.observe(observe(100_000_000 * next(steps)), tokens)
        policy.act()

    for _ in range(LIVED):
        run()
    return run


def wall_ms(contenders: dict[str, Callable[[], Any]], calls: int) -> dict[str, np.ndarray]:
    """Return the wall-clock time (calls,) [ms] of every call, the contenders taking turns."""
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(calls):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            spent[name].append(1e3 * (time.perf_counter() - began))
    return {name: np.array(each) for name, each in spent.items()}


def largest_difference(name: str, steps: int, seed: int = 0) -> float:
    """Return the largest difference of a normalised action between the answers of policy ``name`` and the reference."""
    policy = shipped(name)
    rng, network = np.random.default_rng(seed), policy.network
    batches: list[dict[str, Any]] = []
    answers: list[tuple[Tensor, Tensor]] = []
    preprocess, predict = policy.preprocess, network.predict_action_chunk

    def told(batch: dict[str, Any]) -> dict[str, Any]:
        batches.append(preprocess(batch))
        return batches[-1]

    def answered(batch: dict[str, Tensor], noise: Tensor, **others: Any) -> Tensor:
        answers.append((noise, predict(batch, noise=noise, **others)))
        return answers[-1][1]

    policy.preprocess, network.predict_action_chunk = told, answered  # type: ignore[assignment,method-assign]
    policy.reset("put the red cube in the bin", seed=seed)
    for step in range(steps):
        policy.observe(_noisy(policy, 100_000_000 * step, rng), context(rng))
        policy.act()
    reference = _at_once(network.model, batches, torch.cat([noise for noise, _ in answers]))
    return float((torch.cat([chunk for _, chunk in answers]) - reference).abs().max())


def _noisy(policy: VlaPolicy, stamp_ns: int, rng: np.random.Generator) -> Observation:
    seen = black_observation(policy, stamp_ns)
    frames = {n: replace(f, color=rng.integers(0, 256, f.color.shape, np.uint8)) for n, f in seen.cameras.items()}
    moved = seen.joints.positions + rng.normal(0.0, 0.05, len(seen.joints.positions))
    return replace(seen, cameras=frames, joints=replace(seen.joints, positions=moved))


@torch.no_grad()
def _at_once(model: RememberingNetwork, batches: list[dict[str, Any]], noise: Tensor) -> Tensor:
    """Return the chunks of all steps, the whole episode encoded in one batch and remembered in one window."""
    tensors = {key: torch.cat([b[key] for b in batches]) for key, x in batches[0].items() if isinstance(x, Tensor)}
    percept = model.perceive(tensors)
    if model.recall is not None:
        assert percept.feature is not None
        times = 0.1 * torch.arange(len(batches), dtype=torch.float32)[None]
        state = model.recall.begin(torch.ones(1, dtype=torch.bool))
        readings, _ = model.recall(
            state, percept.feature[None], percept.cognition[None], tensors[STATE_KEY][None], times
        )
        percept = replace(percept, reading=readings[0])
    return model.sample(tensors, noise, percept)


def figures(spent: dict[str, np.ndarray], ours: str, difference: float, steps: int) -> list[dict[str, Any]]:
    """Return what is claimed: times of one answer, ours and others', and the largest difference from the reference."""
    rows = []
    for name, each in spent.items():
        key = name.lower().replace(" ", "_").replace(",", "")
        for percentile, target in ((50, P50_MS), (99, P99_MS)):
            value = float(np.percentile(each, percentile))
            met = value <= target if name == ours else None
            told = f"<= {target:g}" if name == ours else None
            rows.append(figure(f"answer_wall_ms_p{percentile}_{key}", value, len(each), target=told, met=met))
    met = difference <= DIFFERENCE
    rows.append(figure("answer_largest_difference", difference, steps, target=f"<= {DIFFERENCE:g}", met=met, digits=8))
    return rows


def table(spent: dict[str, np.ndarray]) -> Table:
    """Return the times as a table."""
    shown = Table("who", "p50 [ms]", "p99 [ms]", "n", title="One answer, wall clock")
    for name, each in spent.items():
        shown.add_row(name, *(f"{np.percentile(each, p):.1f}" for p in (50, 99)), str(len(each)))
    return shown
