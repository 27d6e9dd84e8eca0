"""The checkpoints in the repository: they load, are what their cards say, and do an easy task."""

import json
from importlib import resources
from itertools import permutations
from pathlib import Path

import pytest

from engram.core.errors import InvalidInputError
from engram.core.registry import split_options
from engram.policies import load_policy
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.policies.opening import trained_instructions
from engram.policies.source import Source
from engram.policies.vla.chunking import follow
from engram.sim.tasks import task_class
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import evaluate, make_runtime, measure

CHECKPOINTS = Path(str(resources.files("engram.policies"))) / "checkpoints"


@pytest.mark.parametrize("name", ["base", "engram"])
def test_the_card_names_these_weights(name):
    card = json.loads((CHECKPOINTS / name / CARD).read_text())
    assert card["sha256"] == sha256(CHECKPOINTS / name / WEIGHTS)
    assert (CHECKPOINTS / name / WEIGHTS).stat().st_size < 20_000_000
    policy = load_policy(name)
    assert (policy.remembers, policy.reads_context) == (name == "engram", name == "engram")


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in CHECKPOINTS.glob(f"*/{CARD}")), ids=lambda at: at.name
)
def test_a_shipped_card_has_the_words_of_each_task_that_the_policy_was_trained_on(folder):
    """Those are what a correction keeps the answers to; the file has no other words."""
    card, said = json.loads((folder / CARD).read_text()), set()
    for name in {split_options(task)[0] for task in card["tasks"]}:
        task = task_class(name)
        things = permutations(task.slot_words, len(task.slots()))
        slots = [dict(zip(task.slots(), words, strict=True)) for words in things]
        said |= {wording.format(**words) for wording in task.instructions for words in slots}
    assert card["instructions"] == sorted(said)
    assert load_policy(folder.name).instructions == tuple(card["instructions"])


@pytest.mark.parametrize(
    ("card", "told"), [('{"instructions": "all"}', "expected a list of sentences"), ("no json", "cannot be read")]
)
def test_a_card_that_makes_no_sense_is_named(tmp_path, card, told):
    (tmp_path / "config.json").write_text("{}")
    assert trained_instructions(Source(str(tmp_path))) == ()
    (tmp_path / CARD).write_text(card)
    with pytest.raises(InvalidInputError, match=rf"card\.json: .*{told}"):
        trained_instructions(Source(str(tmp_path)))


@pytest.mark.render
@pytest.mark.slow
def test_the_base_policy_reaches_for_the_cube_that_is_named():
    world = MujocoWorld(WorldConfig(profile="fast"))
    report = evaluate(load_policy("base"), world, ("reach",), episodes=4, first_seed=6000, progress=False)
    world.close()
    assert report.per_task["reach"].successes >= 3


@pytest.mark.render
@pytest.mark.slow
def test_the_policy_that_remembers_takes_blocks_back_and_without_its_memory_does_not():
    world = MujocoWorld(WorldConfig(depth=True))
    seeds = {"episodes": 4, "first_seed": 6000, "progress": False}
    policies = load_policy("engram"), load_policy("engram", ablation="zeroed")
    found = [evaluate(follow(policy), world, ("take_it_back",), **seeds) for policy in policies]
    world.close()
    whole, emptied = (report.per_task["take_it_back"].successes for report in found)
    assert whole >= 3  # it fails now and then
    assert emptied <= 1


@pytest.mark.render
@pytest.mark.slow
def test_the_policy_that_acts_on_the_scene_graph_touches_what_is_out_of_view_and_without_it_guesses():
    task, world = "touch_unseen", MujocoWorld(WorldConfig(depth=True))
    policies = load_policy("engram"), load_policy("engram", ablation="no_context")
    runs = [make_runtime(policy, world).run_episode for policy in policies]
    given, kept = (measure(run, "", (task,), 8, progress=False).per_task[task] for run in runs)
    world.close()
    assert given.successes >= 7
    assert kept.successes <= 6  # one in three by chance
