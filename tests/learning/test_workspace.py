"""A learner's folder over restarts: gone on from, or moved aside when it belongs to another policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engram.core.errors import InvalidInputError, StoreError, StoreLockedError, UnknownNameError
from engram.core.types import ActionSource
from engram.learning import workspace
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner_config import LearnerConfig
from engram.learning.progress import read_weights, saved_state
from engram.learning.workspace import LIVE, TRAINING, open_workspace
from tests.learning.transitions import episode
from tests.ros.policies import LINEAGE, OTHER, OneWeight
from tests.ros.trainers import Counting

CONFIG = LearnerConfig(first_episodes=1, updates_per_episode=5, candidate_updates=5, imitate_own=True)
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


def approved(store, folder) -> str:
    """Train in ``folder``, let a person approve what came of it, count an episode; return the version that drives."""
    own_success(store)
    space = open_workspace(folder, store, OneWeight(), COUNTING, CONFIG)
    space.learner.poll()
    version = trained(space)
    space.library.approve(version, "a person")
    space.live.add(1, version, "reach", True)
    space.live.save()
    space.library.close()
    return version


def test_a_full_disk_moves_nothing_and_what_was_approved_drives_once_there_is_room(store, tmp_path, monkeypatch):
    version = approved(store, tmp_path)

    def full(*_):
        raise StoreError("versions.sqlite: database or disk is full")

    def no_room(*_):
        raise OSError(28, "No space left on device")

    for what, refuse in (("WeightsLibrary", full), ("Learner", full), ("LiveRecord", no_room)):
        with monkeypatch.context() as patched:
            patched.setattr(workspace, what, lambda *_, refuse=refuse, **__: refuse())
            with pytest.raises(StoreError, match=r"disk is full|No space left"):
                open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
        assert not list(tmp_path.glob("set-aside-*"))
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert (again.library.current, again.learner.metrics["updates"], again.moved_aside) == (version, 5, "")
    again.library.close()


def newer(file):
    """Write a field that this version does not know."""
    file.write_text(file.read_text().replace('"loss"', '"future": 1, "loss"'))


@pytest.mark.parametrize(
    ("file", "harm", "part"),
    [
        ("live/outcomes.json", lambda file: file.write_bytes(b'{"cursor": 1, "outc'), "live"),
        ("training/current", lambda file: file.write_bytes(b"\xff\xfe\x00"), "training"),
        ("training/current", lambda file: file.write_bytes(b""), "training"),
        ("training/state-*/progress.json", newer, "training"),
        ("training/state-*/algorithm.safetensors", lambda file: file.write_bytes(b"x" * 50), "training"),
    ],
)
def test_only_what_is_damaged_is_moved_aside_and_what_was_approved_drives_on(store, tmp_path, file, harm, part):
    version = approved(store, tmp_path)
    weights = {path.name: path.read_bytes() for path in (tmp_path / "weights").glob("*.safetensors")}
    (found,) = tmp_path.glob(file)
    harm(found)
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    (aside,) = tmp_path.glob("set-aside-*")
    assert [path.name for path in aside.iterdir()] == [part] and str(aside) in again.moved_aside
    assert again.library.current == version and "v0" in again.library.versions
    assert {path.name: path.read_bytes() for path in (tmp_path / "weights").glob("*.safetensors")} == weights
    if part == LIVE:
        assert again.learner.metrics["updates"] == 5 and again.live.cursor == 0
        assert "the stored episodes are counted anew" in again.moved_aside
    else:  # it learns on from what drives, with all of the experience
        assert again.learner.metrics["updates"] == 0 and again.live.episodes(version) == 1
        assert again.learner.algorithm.weights() == again.library.get(version)[0]
        assert list(again.learner.line) == [version] and again.learner.poll() == 1
        assert f"training begins anew from {version}" in again.moved_aside
    again.library.close()


def test_what_was_moved_aside_comes_back_where_the_disk_then_refuses_to_begin_anew(store, tmp_path, monkeypatch):
    approved(store, tmp_path)
    (tmp_path / "weights" / "versions.sqlite").write_bytes(b"nonsense" * 1000)
    before = sorted(str(path) for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock")

    def full(*_):
        raise StoreError("outcomes.json: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(workspace, "LiveRecord", full)
        with pytest.raises(StoreError, match="No space left on device"):
            open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert sorted(str(path) for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock") == before
    assert (tmp_path / "weights" / "versions.sqlite").read_bytes() == b"nonsense" * 1000
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert "file is not a database" in again.moved_aside  # and that is told
    again.library.close()


def test_where_it_cannot_come_back_its_folder_is_named(store, tmp_path, monkeypatch):
    approved(store, tmp_path)
    (tmp_path / "weights" / "versions.sqlite").write_bytes(b"nonsense" * 1000)

    def full(*_):
        raise StoreError("outcomes.json: No space left on device")

    def stays(aside):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(workspace, "LiveRecord", full)
    monkeypatch.setattr(workspace, "put_back", stays)
    with pytest.raises(StoreError, match=r"what was there lies in .*set-aside-.*Read-only file system"):
        open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)


def test_episodes_of_another_store_are_looked_at_from_the_first_and_none_is_taken_for_one_of_before(tmp_path):
    own = ActionSource("eyes", LINEAGE.id)
    store = ExperienceStore(tmp_path / "experience")
    store.append([step for number in range(6) for step in episode(number, source=own)])
    store.commit()
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert space.learner.poll() == 6
    trained(space)
    space.live.add(6, "v0", "reach", True)
    space.live.save()
    space.library.close()
    store.close()

    (tmp_path / "experience").rename(tmp_path / "moved")
    store = ExperienceStore(tmp_path / "experience")
    for number in range(4):
        store.append(episode(number, source=own, boot="boot2", success=number == 3))
    store.commit()
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert again.learner.metrics["replay_steps"] == 0 and again.learner.step() is None  # no failure is imitated
    assert "another store than before" in again.learner.changed["experience"]
    assert "6 successes of the other one" in again.learner.changed["experience"]
    assert (again.learner.poll(), again.live.cursor) == (1, 0)
    assert [one.number for one in again.learner._replay.episodes] == [4]
    assert again.live.of("v0") == {"reach": "1"}  # what was counted stays
    again.learner.save()
    again.live.save()
    again.library.close()
    third = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert third.learner.changed == {} and third.learner.poll() == 0  # that is the store now
    third.library.close()
    store.close()


def test_an_episode_that_is_no_success_any_more_is_not_taken_back_into_the_replay(store, tmp_path):
    own_success(store)
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    space.learner.poll()
    space.learner.save()
    space.library.close()
    store._database.execute("UPDATE episodes SET success = 0")  # another episode has its number
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, CONFIG)
    assert again.learner.metrics["replay_steps"] == 0 and again.learner.step() is None
    again.library.close()


def test_imitation_can_be_switched_on_and_the_pace_changed_in_a_folder_that_there_is(store, tmp_path):
    shipped = replace(CONFIG, updates_per_episode=0)
    space = open_workspace(tmp_path, store, OneWeight(), COUNTING, shipped)
    space.learner.save()
    space.library.close()
    wanted = replace(shipped, updates_per_episode=40, batch_size=16, first_episodes=3, imitate_own=True)
    again = open_workspace(tmp_path, store, OneWeight(), COUNTING, wanted)
    told = "batch_size 16, was 32, first_episodes 3, was 1, updates_per_episode 40, was 0"
    assert (again.learner.changed, again.moved_aside) == ({"settings": told}, "")
    again.learner.save()
    again.library.close()
    third = open_workspace(tmp_path, store, OneWeight(), COUNTING, wanted)
    assert third.learner.changed == {}
    third.library.close()
    with pytest.raises(InvalidInputError, match=r"training: was trained with replay\.chunk_size 16, not 4"):
        open_workspace(
            *(tmp_path, store, OneWeight(), COUNTING), replace(wanted, replay=replace(wanted.replay, chunk_size=4))
        )


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
