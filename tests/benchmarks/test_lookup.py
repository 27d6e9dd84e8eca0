"""The ceiling of the tasks whose target no camera sees: a scripted policy that looks the target up in the memory."""

import json

import numpy as np
import pytest

from engram.benchmarks.lookup import LookupBenchmark, episodes, figures, variants, word_margins
from engram.benchmarks.lookup_policy import LookupPolicy
from engram.core.robot import PANDA_2F85
from engram.core.types import JointState, MemoryTokens, Observation
from engram.perception.embedding import default_text_encoder
from engram.sim.tasks import UNSEEN_TASKS


def tokens(**places: tuple[float, float, float]) -> MemoryTokens:
    """Return one token for each thing, ``red_cup`` for a red cup."""
    vectors = default_text_encoder().encode([name.replace("_", " ") for name in places])
    where = np.array([*places.values()], np.float32)
    ids = tuple(f"object/{i}" for i in range(len(places)))
    return MemoryTokens(0, 1, vectors, np.zeros(len(ids), np.float32), where, np.ones(len(ids), bool), ids)


def at_home(held: bool) -> Observation:
    joints = np.append(PANDA_2F85.home, PANDA_2F85.gripper_open)
    return Observation(0, {}, JointState(0, PANDA_2F85.joint_names, joints, np.zeros(len(joints)), held))


def test_it_goes_to_what_the_words_name():
    memory = tokens(red_cube=(0.5, -0.1, 0.02), red_cup=(0.5, 0.1, 0.035), blue_cup=(0.5, 0.0, 0.035))
    policy = LookupPolicy(PANDA_2F85)
    policy.reset("touch the red cup in the dark")
    policy.observe(at_home(held=True), memory)
    np.testing.assert_array_equal(policy.act().actions[0], [0, 0, 0, 0, 0, 0, -1])
    policy.observe(at_home(held=False), memory)
    np.testing.assert_allclose(policy.found, (0.5, 0.1, 0.035), atol=1e-6)
    action = policy.act().actions[0]
    assert (action[1] > 0.1, action[6]) == (True, 1.0)  # to the left, where the red cup is, with closed fingers
    policy.observe(at_home(held=False), tokens(red_cup=(0.5, -0.1, 0.035)))
    np.testing.assert_allclose(policy.found, (0.5, 0.1, 0.035), atol=1e-6)  # it looks up once
    policy.reset("touch the blue cup in the dark")
    policy.observe(at_home(held=False), memory)
    np.testing.assert_allclose(policy.found, (0.5, 0.0, 0.035), atol=1e-6)


@pytest.mark.parametrize("task", UNSEEN_TASKS)
def test_every_sentence_fits_the_name_of_the_right_thing_best(task):
    """So no wording of these tasks may be added that perception and memory could not tell apart."""
    margins = word_margins(task)
    assert min(margins.values()) > 0.0, min(margins, key=margins.get)


@pytest.mark.render
def test_what_the_words_name_is_known_and_reached_after_it_was_hidden(tmp_path):
    config = LookupBenchmark(seeds=1, progress=tmp_path / "progress.jsonl")
    found = list(episodes(config))
    assert [episode["task"] for episode in found] == variants()
    assert all(episode["success"] and episode["error_m"] < 0.02 for episode in found)
    assert list(episodes(config)) == found == [json.loads(line) for line in config.progress.read_text().splitlines()]
    shares = {row["name"]: row["value"] for row in figures(found)}
    assert shares == dict.fromkeys(shares, 1.0)
    assert len(shares) == 2 + 2 * len(variants())
