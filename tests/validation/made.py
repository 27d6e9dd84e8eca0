"""A learner's folder with results that were run before, so that verdicts come without an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest
from engram.policies.opening import open_policy
from engram.runtime.factories import policy_folder
from engram.validation.of_learner import GATE, contender
from engram.validation.trials import FIRST_SEED, IDLE, NOMINAL, Contender, Trial, TrialStore
from engram.validation.validate import IDLE_SCENES

BASE = contender(policy_folder("base"))
LINEAGE = open_policy("base").lineage
SCENES = 200


def add_candidate(library: WeightsLibrary, version: str, factor: float = 1.0) -> str:
    """Keep ``base`` with weights times ``factor`` as ``version``; return its sha256."""
    weights = load_file(Path(BASE.checkpoint) / "model.safetensors")
    data = save({key: value * np.float32(factor) for key, value in weights.items()})
    manifest = make_manifest(data, version, lineage=LINEAGE)
    library.add(data, manifest)
    return manifest.sha256


def run_before(folder: Path, outcomes: dict[str, bool], task: str = "reach", on: str = NOMINAL) -> None:
    """Keep that each sha256 always succeeded, or never did, on robots like ``on``; one that stands still never does."""
    (folder / GATE).mkdir(parents=True, exist_ok=True)
    seeds = range(FIRST_SEED, FIRST_SEED + SCENES)
    ran = [
        (replace(BASE, sha256=sha256), Trial(task, seed, success, False, 10, float(success)))
        for sha256, success in outcomes.items()
        for seed in seeds
    ]
    stood = [(Contender(IDLE), Trial(task, seed, False, False, 10, 0.0)) for seed in seeds[:IDLE_SCENES]]
    keep(TrialStore(folder / GATE, on), [*ran, *stood])


def keep(store: TrialStore, trials: Iterable[tuple[Contender, Trial]]) -> None:
    """Keep ``trials`` and close ``store``: its disk waits once, not after each."""
    database = store._database
    commit, database.commit = database.commit, lambda: None  # type: ignore[method-assign]
    for who, trial in trials:
        store.put(who, trial)
    commit()
    store.close()


class _Here(Executor):
    def submit(self, function: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **more))
        except Exception as error:  # noqa: BLE001 - as of a process
            done.set_exception(error)
        return done


@contextmanager
def here(*_: Any, **how: Any) -> Iterator[Executor]:
    """Yield what runs episodes in this process: in place of fresh ones, each of which would import torch."""
    yield _Here()
