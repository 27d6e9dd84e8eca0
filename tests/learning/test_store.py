"""Exactly once, durable when acknowledged, bounded."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import UNJUDGED, ActionSource, MemoryTokens
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from tests.contracts.experience_store import ExperienceStoreContract
from tests.learning.transitions import OWN, assert_same, encode_version_1, episode

KILLS = int(os.environ.get("ENGRAM_KILLS", "10"))


class TestStore(ExperienceStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def open(self):
        return ExperienceStore(self.folder)


def test_catalogue_lists_each_episode_once_and_numbers_grow(tmp_path):
    store = ExperienceStore(tmp_path)
    store.append(episode(0) + episode(1, success=False))
    store.commit()
    first = store.catalogue()
    assert [(e.episode, e.success, e.steps, e.judged) for e in first] == [(0, True, 4, True), (1, False, 4, True)]
    store.append(episode(2, task="stack"))
    store.commit()
    (new,) = store.catalogue(after=first[-1].number)
    assert (new.task, new.instruction, new.policy_version) == ("stack", "stack the red mark", "base")
    assert new.number > first[-1].number


def test_a_reader_goes_on_while_the_writer_appends(tmp_path):
    store = ExperienceStore(tmp_path)
    for number in range(3):
        store.append(episode(number))
    store.commit()
    seen = []
    for transitions in store.episodes():
        seen.append(transitions[0].episode)
        store.append(episode(10 + len(seen), first=100 * len(seen)))
        store.commit()
    assert seen == [0, 1, 2]


def test_images_are_stored_smaller_than_their_bytes_and_never_as_floats(tmp_path):
    store = ExperienceStore(tmp_path)
    store.append(episode(0, steps=50, image_size=128))
    store.commit()
    store.close()
    raw = 50 * 128 * 128 * 3
    assert (tmp_path / "experience.sqlite").stat().st_size < 1.1 * raw  # noise does not compress; float32 would be 4x


def test_what_the_policy_read_of_memory_comes_back_as_it_was(tmp_path):
    rng = np.random.default_rng(0)
    arrays = (rng.normal(size=(2, 5)), [0.5, 2.0], rng.normal(size=(2, 3)), [True, True])
    read = MemoryTokens(7, 3, *map(np.array, arrays), ("object_0001", "episode_2"))
    given = [replace(one, context=read if one.step else None) for one in episode(0)]
    store = ExperienceStore(tmp_path)
    store.append(given)
    store.append(given)  # sent again
    store.commit()
    for one, kept in zip(given, store.episode(1), strict=True):
        assert_same(one, kept)
    store.close()


def test_the_reservoir_keeps_a_uniform_sample_a_task_and_apart_by_outcome(tmp_path):
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=5))
    for number in range(100):
        store.append(episode(number, steps=1, success=number % 2 == 0, task="reach" if number < 80 else "stack"))
        store.commit()
    kept = store.catalogue()
    groups = {
        (e.task, e.success): [x.episode for x in kept if (x.task, x.success) == (e.task, e.success)] for e in kept
    }
    assert {key: len(numbers) for key, numbers in groups.items()} == {
        (task, success): 5 for task in ("reach", "stack") for success in (True, False)
    }
    assert store.size() == 20
    assert min(groups["reach", True]) < 40 < max(groups["reach", True])  # old and new ones


def test_the_reservoir_of_a_robots_goals_goes_by_their_words(tmp_path):
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=5))
    for number in range(40):
        words = "open the drawer" if number < 30 else "press the button"
        store.append([replace(t, task="", instruction=words) for t in episode(number, steps=1)])
        store.commit()
    kept = [info.task for info in store.catalogue()]
    assert {words: kept.count(words) for words in set(kept)} == {"open the drawer": 5, "press the button": 5}


def test_the_reservoir_is_uniform(tmp_path):
    """30 stores keep 5 of 20: every fifth of the episodes is kept about 30 * 5 / 5 = 30 times (binomial sd 4.7)."""
    kept = [0] * 5
    for seed in range(30):
        store = ExperienceStore(tmp_path / str(seed), ExperienceStoreConfig(episodes_per_task=5, seed=seed))
        store.append([one for number in range(20) for one in episode(number, steps=1)])
        store.commit()
        for info in store.catalogue():
            kept[info.episode // 4] += 1
        store.close()
    assert sum(kept) == 150
    assert all(15 <= count <= 45 for count in kept)


def test_what_the_reservoir_dropped_is_not_taken_in_again(tmp_path):
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=2))
    given = [one for number in range(6) for one in episode(number)]
    store.append(given)
    assert store.commit() == {("panda", "boot"): 24}
    before = [e.number for e in store.catalogue()]
    store.append(given)
    assert store.commit() == {("panda", "boot"): 24}
    assert [e.number for e in store.catalogue()] == before
    assert store.size() == 8


def test_a_dropped_episode_above_a_gap_is_not_deleted_before_it_is_acknowledged(tmp_path):
    """Else the robot would send it again and it would be stored a second time."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=1))
    store.append([one for number in (1, 2, 3) for one in episode(number)])  # 1..4 are missing
    assert store.commit() == {("panda", "boot"): 0}
    assert (len(store.catalogue()), store.size()) == (1, 12)
    store.append([one for number in (1, 2, 3) for one in episode(number)])
    store.commit()
    assert (len(store.catalogue()), store.size()) == (1, 12)
    store.append(episode(0, task="stack"))
    assert store.commit() == {("panda", "boot"): 16}
    assert (len(store.catalogue()), store.size()) == (2, 8)


def test_a_folder_in_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ExperienceStore("~/experience").close()
    assert [path.name for path in tmp_path.iterdir()] == ["experience"]


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    store = ExperienceStore(tmp_path)
    with pytest.raises(StoreError, match=f"{tmp_path}: already being written by process {os.getpid()}"):
        ExperienceStore(tmp_path)
    store.close()
    ExperienceStore(tmp_path).close()


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "experience.sqlite").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StoreError, match=r"experience\.sqlite: file is not a database"):
        ExperienceStore(tmp_path)


def test_another_schema_is_refused_with_both_versions(tmp_path):
    ExperienceStore(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "experience.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99, this version reads 4"):
        ExperienceStore(tmp_path)


VERSION_1 = """
CREATE TABLE streams (robot_id TEXT, boot_id TEXT, acked INTEGER, PRIMARY KEY (robot_id, boot_id)) WITHOUT ROWID;
CREATE TABLE transitions (
    robot_id TEXT, boot_id TEXT, sequence INTEGER, episode INTEGER, step INTEGER, ended INTEGER,
    reward REAL, payload BLOB,
    PRIMARY KEY (robot_id, boot_id, sequence));
CREATE INDEX by_episode ON transitions (robot_id, boot_id, episode, step);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, task TEXT,
    instruction TEXT, success INTEGER, steps INTEGER, total_reward REAL, policy_version TEXT,
    last_sequence INTEGER, kept INTEGER, stored INTEGER, UNIQUE (robot_id, boot_id, episode));
CREATE TABLE reservoirs (task TEXT, success INTEGER, met INTEGER, PRIMARY KEY (task, success)) WITHOUT ROWID;
INSERT INTO streams VALUES ('panda', 'boot', 4);
INSERT INTO episodes VALUES (1, 'panda', 'boot', 0, 'reach', 'reach the red mark', 1, 4, 1.0, 'base', 4, 1, 1);
PRAGMA user_version=1;
"""
"""What the first release wrote."""


def test_a_store_of_version_1_is_migrated_and_its_episodes_are_of_an_unknown_source(tmp_path):
    connection = sqlite3.connect(tmp_path / "experience.sqlite")
    connection.executescript(VERSION_1)
    for one in episode(0):
        ended = one.terminated or one.truncated
        values = ("panda", "boot", one.sequence, 0, one.step, ended, one.reward, encode_version_1(one))
        connection.execute("INSERT INTO transitions VALUES (?,?,?,?,?,?,?,?)", values)
    connection.commit()
    connection.close()
    store = ExperienceStore(tmp_path)
    assert [info.sources for info in store.catalogue()] == [(ActionSource(),)]
    assert [one.source for one in store.episode(1)] == [ActionSource()] * 4
    store.append(episode(1))
    assert store.commit() == {("panda", "boot"): 8}
    assert [info.sources for info in store.catalogue()] == [(ActionSource(),), (OWN,)]
    store.close()
    ExperienceStore(tmp_path).close()  # and not a second time


def test_an_episode_that_was_called_off_is_listed_as_judged_by_nobody(tmp_path):
    store = ExperienceStore(tmp_path)
    off = episode(0, success=False, truncated=True)
    store.append([*off[:-1], replace(off[-1], reward_source=UNJUDGED)])
    store.append(episode(1, success=False, truncated=True))
    store.commit()
    assert [(info.success, info.judged) for info in store.catalogue()] == [(False, False), (False, True)]


def test_an_episode_lists_each_source_of_its_steps_once(tmp_path):
    store = ExperienceStore(tmp_path)
    dark = replace(OWN, covered_cameras=("front",))
    store.append([replace(one, source=dark if one.step == 2 else OWN) for one in episode(0)])
    store.commit()
    (info,) = store.catalogue()
    assert set(info.sources) == {OWN, dark} and len(info.sources) == 2


def megabytes(store):
    return store._database.execute("SELECT sum(length(payload)) FROM transitions").fetchone()[0] / 1e6


def test_beyond_the_bound_the_oldest_episodes_go_whatever_their_outcome(tmp_path):
    """An episode of random pixels takes 4 * 64 * 64 * 3 = 49 kB and a little: 10 of 30 fit into 0.5 MB."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.5))
    for number in range(30):
        store.append(episode(number, image_size=64, success=number % 2 == 0))
        store.commit()
        assert megabytes(store) <= 0.5
    kept = [info.episode for info in store.catalogue()]
    assert kept == list(range(30 - len(kept), 30)) and 8 <= len(kept) <= 10
    assert store.size() == 4 * len(kept)
    assert store.episode(1) == ()
    store.append(episode(0, image_size=64))  # it was acknowledged: that it comes again changes nothing
    store.commit()
    assert [info.episode for info in store.catalogue()] == kept


def test_what_is_not_acknowledged_is_not_deleted_and_fragments_go_in_their_turn(tmp_path):
    """Two episodes of 49.5 kB fit into 0.11 MB."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.11))
    store.append([one for number in range(1, 5) for one in episode(number, image_size=64)])  # 1..4 are missing
    assert store.commit() == {("panda", "boot"): 0}
    assert store.size() == 16
    store.append(episode(0, image_size=64, finished=False))  # comes last, and is never completed
    assert store.commit() == {("panda", "boot"): 20}
    assert ([info.episode for info in store.catalogue()], store.size()) == ([4], 8)
    for number in (5, 6):
        store.append(episode(number, image_size=64))
        store.commit()
    assert ([info.episode for info in store.catalogue()], store.size()) == ([5, 6], 8)


def test_a_robot_that_was_started_often_stays_within_the_bound(tmp_path):
    """Each start begins a stream of its own, and is killed before its episode ends."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.11))
    for number in range(8):
        store.append(episode(0, boot=f"boot {number}", image_size=64, finished=False))
        store.commit()
        assert megabytes(store) <= 0.11


def test_a_bound_below_zero_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"ExperienceStoreConfig\.max_mb: -1"):
        ExperienceStoreConfig(max_mb=-1)


def test_a_flipped_bit_in_a_transition_is_found_and_named(tmp_path):
    store = ExperienceStore(tmp_path)
    store.append(episode(0))
    store.commit()
    payload = store._database.execute("SELECT payload FROM transitions WHERE sequence = 3").fetchone()[0]
    damaged = bytearray(payload)
    damaged[len(damaged) // 2] ^= 4
    store._database.execute("UPDATE transitions SET payload = ? WHERE sequence = 3", (bytes(damaged),))
    with pytest.raises(StoreError, match=r"experience\.sqlite: episode 1, sequence 3"):
        list(store.episodes())


def test_a_reward_that_is_not_finite_is_refused(tmp_path):
    store = ExperienceStore(tmp_path)
    bad = episode(0)
    object.__setattr__(bad[1], "reward", float("nan"))
    with pytest.raises(InvalidInputError, match="reward: nan"):
        store.append(bad)
    assert store.commit() == {}


WRITER = """
import sys
from engram.learning.experience.store import ExperienceStore
from tests.learning.transitions import episode
store = ExperienceStore(sys.argv[1])
start = store.commit().get(("panda", "boot"), 0)
for number in range(start // 4, 100_000):
    for half in (episode(number)[:2], episode(number)[2:]):
        store.append(half)
        print(store.commit()["panda", "boot"], flush=True)
"""


def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path):
    draw = random.Random(21)
    acknowledged = 0
    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        acks = [int(writer.stdout.readline())]  # it runs
        time.sleep(draw.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        acks += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
        assert acks[-1] >= acknowledged
        store = ExperienceStore(tmp_path)
        acknowledged = store.commit()["panda", "boot"]
        assert acknowledged - acks[-1] in (0, 2)  # one commit may be done and not yet acknowledged
        assert store.size() == acknowledged
        store.close()
    store = ExperienceStore(tmp_path)
    for number, transitions in enumerate(store.episodes()):
        for mine, theirs in zip(transitions, episode(number), strict=True):
            assert_same(mine, theirs)
    assert number + 1 == acknowledged // 4
