"""Train the learned eviction policy by reward: right answers less wrong ones on later questions.

    python -m engram.benchmarks.eviction_training

Policy search by the cross-entropy method (Rubinstein 1999): weights are drawn, live through the training traces, and
the best of them say where the next are drawn. Writes memory/stores/short_term/learned_eviction.json; the last line is
JSON. Training seeds begin at 1000; the benchmark scores on seeds from 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro

from engram.benchmarks.eviction_traces import MadeUpHome, TraceEvent, household, made_up, play
from engram.memory.stores.short_term.learned_eviction import FEATURES, EvictionWeights, LearnedEviction

OUTPUT = Path(__file__).resolve().parents[1] / "memory" / "stores" / "short_term" / "learned_eviction.json"
FIRST_SEED = 1000
NO_DELETE, LEAST_GAIN = -1e9, 0.002
"""Entries are only deleted before they must be if that is worth so much reward: a change that is gone tells nothing."""


@dataclass(frozen=True)
class TrainEviction:
    """The search."""

    homes: int = 3
    """Simulated homes it lives in, a month each."""
    generations: int = 12
    """Rounds of the search."""
    population: int = 24
    """Weights tried in a round."""
    elites: int = 6
    """The best of them, which set the next round."""
    seed: int = 0
    """Of the draws."""
    output: Path = OUTPUT
    """Where the weights go."""


def training_set(homes: int) -> list[tuple[int, list[TraceEvent]]]:
    """Return (capacity, trace) pairs: the household, and one larger made-up home."""
    lived = [household(FIRST_SEED + i) for i in range(homes)]
    larger = made_up(FIRST_SEED, MadeUpHome(days=10))
    return [(capacity, trace) for trace in lived for capacity in (5, 14)] + [(20, larger)]


def reward(vector: np.ndarray, cases: list[tuple[int, list[TraceEvent]]]) -> float:
    """Return the mean over the cases of (right - wrong answers) / questions; (9,) = weights and delete threshold."""
    weights = EvictionWeights(vector[:-1], float(vector[-1]))
    scores = [play(LearnedEviction(capacity, weights), trace) for capacity, trace in cases]
    return float(np.mean([(one.hits - one.stale) / one.n for one in scores]))


def search(config: TrainEviction) -> tuple[np.ndarray, float, float]:
    """Return the best weights (9,), their reward and that of the starting point."""
    cases = training_set(config.homes)
    rng = np.random.default_rng(config.seed)
    # old, unasked and absent entries are worth less; nothing is deleted unless that pays
    mean = np.array([-1.0, -1.0, 0.5, 0.0, 0.5, 0.0, 0.0, -1.0, -4.0])
    spread = np.ones(len(FEATURES) + 1)
    best, start = mean, reward(mean, cases)
    best_reward = start
    for generation in range(config.generations):
        tried = mean + spread * rng.normal(size=(config.population, len(mean)))
        rewards = np.array([reward(one, cases) for one in tried])
        elite = tried[np.argsort(-rewards)[: config.elites]]
        mean, spread = elite.mean(axis=0), elite.std(axis=0) + 0.05
        if rewards.max() > best_reward:
            best, best_reward = tried[rewards.argmax()], float(rewards.max())
        print(f"generation {generation}: best {rewards.max():.3f}, mean {rewards.mean():.3f}", flush=True)
    centre = reward(mean, cases)
    if centre >= best_reward:
        best, best_reward = mean, centre
    without = np.array([*best[:-1], NO_DELETE])
    if (kept := reward(without, cases)) >= best_reward - LEAST_GAIN:
        best, best_reward = without, kept
    return best, best_reward, start


def main(config: TrainEviction | None = None) -> None:
    """Search and write the weights with how they were made."""
    config = config or tyro.cli(TrainEviction)
    vector, found, start = search(config)
    settings = {key: value for key, value in asdict(config).items() if key != "output"}
    stored = {
        "made_by": "python -m engram.benchmarks.eviction_training",
        "settings": settings,
        "traces": f"household seeds {FIRST_SEED}..{FIRST_SEED + config.homes - 1}, made_up seed {FIRST_SEED}",
        "reward": {"start": round(start, 4), "found": round(found, 4)},
        "weights": {name: round(float(value), 4) for name, value in zip(FEATURES, vector[:-1], strict=True)},
        "delete_below": round(float(vector[-1]), 4),
    }
    config.output.write_text(json.dumps(stored, indent=1) + "\n")
    print(json.dumps(stored))


if __name__ == "__main__":
    main()
