"""The checkpoint in the repository: it loads, it is what its card says, and it does an easy task."""

import json
from importlib import resources
from pathlib import Path

import pytest

from engram.policies import load_policy
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.sim.evaluation import evaluate
from engram.sim.world import MujocoWorld, WorldConfig

BASE = Path(str(resources.files("engram.policies"))) / "checkpoints" / "base"


def test_the_card_names_these_weights():
    card = json.loads((BASE / CARD).read_text())
    assert card["sha256"] == sha256(BASE / WEIGHTS)
    assert (BASE / WEIGHTS).stat().st_size < 20_000_000


@pytest.mark.render
@pytest.mark.slow
def test_the_base_policy_reaches_for_the_cube_that_is_named():
    world = MujocoWorld(WorldConfig(profile="fast"))
    report = evaluate(load_policy("base"), world, ("reach",), episodes=4, first_seed=6000, progress=False)
    world.close()
    assert report.per_task["reach"].successes >= 3
