"""A learner's folder with results that were run before, so that verdicts come without an episode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
    store = TrialStore(folder / GATE, on)
    for seed in range(FIRST_SEED, FIRST_SEED + SCENES):
        for sha256, success in outcomes.items():
            store.put(replace(BASE, sha256=sha256), Trial(task, seed, success, False, 10, float(success)))
        if seed < FIRST_SEED + IDLE_SCENES:
            store.put(Contender(IDLE), Trial(task, seed, False, False, 10, 0.0))
    store.close()
