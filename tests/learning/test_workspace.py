"""A learner's folder over restarts: gone on from, or moved aside when it belongs to another policy."""

from __future__ import annotations

import pytest

from engram.core.errors import StoreLockedError, UnknownNameError
from engram.core.types import ActionSource
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import LearnerConfig
from engram.learning.progress import read_weights, saved_state
from engram.learning.workspace import TRAINING, open_workspace
from tests.learning.transitions import episode
from tests.ros.policies import LINEAGE, OTHER, OneWeight
from tests.ros.trainers import Counting

CONFIG = LearnerConfig(first_episodes=1, updates_per_episode=5, candidate_updates=5)
COUNTING, FOREIGN = "tests.ros.trainers:Counting", "tests.ros.trainers:Foreign"


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "experience")
    yield store
    store.close()


def trained(space) -> str:
    """Take five updates, save, deploy the candidate and return its version."""
    while space.learner.step() is not None:
        pass
    data, manifest = space.learner.candidate()
    space.library.add(data, manifest)
    space.library.deploy(manifest.version)
    space.learner.promoted(manifest.version)
    space.learner.save()
    return manifest.version


def own_success(store):
    store.append(episode(0, source=ActionSource("eyes", LINEAGE.id)))
    store.commit()


def test_training_goes_on_and_the_first_weights_drive_again(store, tmp_path):
    own_success(store)
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert (space.library.deployed, space.moved_aside) == (["v0"], "")
    assert space.library.get("v0")[0] == Counting(None).weights()
    space.learner.poll()
    candidate = trained(space)
    with pytest.raises(StoreLockedError, match="already being written by process"):  # and nothing is moved aside
        open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    space.library.close()
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert again.library.forgotten == (candidate,)
    assert (again.library.current, again.learner.metrics["parent"]) == ("v0", "v0")
    assert again.learner.metrics["updates"] == 5  # training is not lost, only what drives


def test_a_folder_of_another_lineage_is_moved_aside_though_names_and_shapes_fit(store, tmp_path):
    own_success(store)
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    space.learner.poll()
    trained(space)
    space.library.close()
    other = open_workspace(tmp_path, store, OneWeight(), FOREIGN, CONFIG)
    (aside,) = tmp_path.glob("set-aside-*")
    assert f"v0: of lineage {LINEAGE}, expected {OTHER}; they differ in root" in other.moved_aside
    assert str(aside) in other.moved_aside
    assert (aside / "training" / "current").exists() and (aside / "weights" / "versions.sqlite").exists()
    assert other.learner.metrics["updates"] == 0
    assert other.library.get("v0")[1].lineage == OTHER
    assert other.learner.poll() == 0
    assert other.learner.passed_over == {"other lineage": 1}


def test_a_damaged_file_of_versions_is_moved_aside_and_named(store, tmp_path):
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    space.library.close()
    file = tmp_path / "weights" / "versions.sqlite"
    file.write_bytes(b"nonsense" * 1000)
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert "versions.sqlite: file is not a database" in again.moved_aside
    assert again.library.current == "v0"
    again.library.close()


def test_a_wrong_algorithm_moves_nothing(store, tmp_path):
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    space.learner.save()
    space.library.close()
    with pytest.raises(UnknownNameError, match="unknown learning algorithm 'sac'"):
        open_workspace(tmp_path, store, OneWeight(), "sac", CONFIG)
    assert (tmp_path / "training" / "current").exists()


def test_newest_weights_of_the_training_can_be_read_beside_it(store, tmp_path):
    own_success(store)
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert saved_state(tmp_path / TRAINING) == ""
    space.learner.poll()
    space.learner.step()
    space.learner.save()
    name = saved_state(tmp_path / TRAINING)
    progress, weights = read_weights(tmp_path / TRAINING, name)
    assert (progress.updates, progress.update_credit, weights) == (1, 4, space.learner.algorithm.weights())
    space.learner.step()
    space.learner.save()
    assert read_weights(tmp_path / TRAINING, name) is None  # replaced meanwhile
    space.library.close()
