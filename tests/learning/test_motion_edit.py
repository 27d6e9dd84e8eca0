"""A frozen policy learns by corrections alone: each becomes part of an edit, and the edit is what travels."""

import shutil
from dataclasses import astuple, replace

import numpy as np
import pytest

from engram.core.errors import CannotTrainError, InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource
from engram.learning.algorithms import ALGORITHMS, make_algorithm
from engram.learning.algorithms.motion_edit import MotionEdit
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.workspace import open_workspace
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from tests.learning.transitions import episode
from tests.policies.test_lerobot_policy import driven, load
from tests.policies.test_motion_edits import corrected, edited
from tests.policies.tiny import tiny_vla
from tests.policies.tiny_lerobot import save_tiny

HALF, TURN = MotionCorrection(scale=0.5), MotionCorrection(yaw_rad=0.3, shift_x=0.1)
SEARCHING = LearnerConfig(updates_per_episode=0)
FROZEN = "a policy of type act is frozen, and practises by corrections alone"


@pytest.fixture(scope="module")
def act(tmp_path_factory):
    return save_tiny("act", tmp_path_factory.mktemp("lerobot") / "act")


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "experience")
    yield store
    store.close()


def learner(store, folder, policy):
    return Learner(store, policy, folder=folder, config=SEARCHING)


def taken(policy, data, folder):
    (folder / "candidate.safetensors").write_bytes(data)
    policy.load_weights(folder / "candidate.safetensors", "candidate")
    return policy


def test_a_correction_makes_a_candidate_that_another_instance_takes(act, store, tmp_path):
    policy, rows = load(act), driven(load(act), 8)
    one = learner(store, tmp_path / "training", policy)
    data, manifest = one.correct([(HALF, episode(1))])
    assert manifest.size == len(data) < 1000 and manifest.lineage == load(act).lineage
    assert (manifest.parent, manifest.metrics["corrections"]) == (policy.version, 1)
    np.testing.assert_allclose(driven(taken(load(act), data, tmp_path), 8), corrected(rows, HALF), atol=1e-6)
    np.testing.assert_array_equal(driven(policy, 8), rows)  # where it began stays as it is
    both, _ = one.correct([(TURN, episode(2))])
    after = driven(taken(load(act), both, tmp_path), 8)
    np.testing.assert_allclose(after, corrected(rows, HALF.then(TURN)), atol=1e-6)


def test_learning_goes_on_after_a_restart_and_goes_back(act, store, tmp_path):
    one = learner(store, tmp_path / "training", load(act))
    before = one.algorithm.weights()
    first = one.correct([(HALF, episode(1))])
    one.save()
    again = learner(store, tmp_path / "training", load(act))
    newest = again.newest()
    assert (newest[0], newest[1].version) == (first[0], first[1].version)
    again.correct([(TURN, episode(2))])
    again.go_back(*first)
    assert again.algorithm.weights() == first[0] != before
    with pytest.raises(WeightsError, match="weights here are"):
        again.go_back(MotionEditStep.of("0" * 64, HALF).packed(), first[1])
    assert again.algorithm.weights() == first[0]


def test_it_learns_on_from_the_edit_of_its_checkpoint(act, store, tmp_path):
    folder = edited(shutil.copytree(act, tmp_path / "edited"), HALF)
    data, _ = learner(store, tmp_path / "training", load(folder)).correct([(TURN, episode(1))])
    found, wanted = taken(load(act), data, tmp_path).motion_edit.correction, HALF.then(TURN)
    np.testing.assert_allclose(astuple(found), astuple(wanted), atol=1e-12)


def test_a_learner_that_is_started_with_another_edit_of_its_base_begins_anew(act, store, tmp_path):
    def opened(folder):
        space = open_workspace(tmp_path / "learner", store, load(folder), "behavior_cloning", SEARCHING)
        space.library.close()
        return space

    base, folder = load(act).version, edited(shutil.copytree(act, tmp_path / "edited"), HALF)
    opened(act).learner.save()
    assert opened(act).moved_aside == ""
    other = opened(folder)
    assert f"learning began with {base}, not with {load(folder).version}" in other.moved_aside
    assert other.learner.algorithm.weights() == load(folder).motion_edit.packed()


def test_one_correction_for_several_goals_is_taken_and_several_are_not(act, store, tmp_path):
    one = learner(store, tmp_path / "training", load(act))
    goals = [episode(1, task="reach"), episode(2, task="stack")]
    one.correct([(HALF, goals[0]), (HALF, goals[1])], others=[episode(3, task="push")])
    before = one.algorithm.weights()
    told = r"a correction holds for all of its goals, and 2 were found that disagree: times 0.50; turned by 17 degrees"
    with pytest.raises(InvalidInputError, match=told):
        one.correct([(HALF, goals[0]), (TURN, goals[1])])
    assert one.algorithm.weights() == before and one.metrics["corrections"] == 1


def test_a_correction_that_changes_nothing_makes_no_candidate(act, store, tmp_path):
    one = learner(store, tmp_path / "training", load(act))
    with pytest.raises(InvalidInputError, match="motions as they are already, which as they are does not change"):
        one.correct([(MotionCorrection(), episode(1))])
    assert one.metrics["candidates"] == 0


def test_imitation_and_critics_are_refused_by_name(act, store, tmp_path):
    policy = load(act)
    for name in set(ALGORITHMS) - {"behavior_cloning"}:
        with pytest.raises(CannotTrainError, match=rf"{policy.version}: {FROZEN} \(behavior_cloning\)"):
            make_algorithm(name, policy)
    with pytest.raises(CannotTrainError, match=rf"updates_per_episode: 40: .*{FROZEN}; expected 0"):
        Learner(store, policy)
    with pytest.raises(CannotTrainError, match=rf"updates_per_episode: 40: .*{FROZEN}; expected 0"):
        open_workspace(tmp_path / "learner", store, policy, "behavior_cloning", LearnerConfig())
    assert not (tmp_path / "learner").exists()
    source = ActionSource("act", policy.lineage.id)
    store.append([replace(step, author="human:ann") for step in episode(1, source=source)])
    store.commit()
    with pytest.raises(CannotTrainError, match=FROZEN):
        Learner(store, policy, config=SEARCHING).run(1)
    with pytest.raises(CannotTrainError, match="a motion edit is for a policy of LeRobot's"):
        MotionEdit(tiny_vla())


def test_a_policy_that_gives_joint_positions_learns_nothing(store, tmp_path):
    policy = load(save_tiny("act", tmp_path / "joints", state=4, action=4))
    with pytest.raises(CannotTrainError, match=f"{FROZEN}: of tool motions, and this one gives joint positions"):
        make_algorithm("behavior_cloning", policy)


def test_episodes_with_any_pictures_show_where_motions_are_corrected_and_take_no_room(act, store, tmp_path):
    policy = load(act)
    source = ActionSource("act", policy.lineage.id)
    for number, size in ((1, 8), (2, 16)):
        store.append([replace(s, author="human:ann") for s in episode(number, source=source, image_size=size)])
    store.commit()
    one = learner(store, tmp_path / "training", policy)
    assert one.poll() == 2 and one.step() is None and one.candidate() is None and not one.misfit
    assert one._replay.episodes[0].images["front"].shape == (4, 3, 1, 1)
    assert one.teaches.startswith(f"nothing of successes: {policy.version}: {FROZEN}; a correction that practice finds")
    one.correct_all(HALF)
    assert one.metrics["corrections"] == 1
