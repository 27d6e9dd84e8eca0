"""Exactly once, durable when acknowledged, bounded."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import UNJUDGED, ActionSource, MemoryTokens
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.spool import Spool
from engram.learning.experience.store import ExperienceStore
from engram.learning.weights.library import WeightsLibrary
from tests.contracts.experience_store import ExperienceStoreContract
from tests.learning.transitions import OWN, assert_same, encode_version_1, episode

KILLS = int(os.environ.get("ENGRAM_KILLS", "20"))


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


def test_a_bound_that_is_set_later_holds_at_once_and_old_and_new_ones_stay_alike(tmp_path):
    """30 stores keep 10 of 60 without a bound, and then of 40 more: about 30 * 10 * 0.6 = 180 of the old (sd 8)."""
    old = 0
    for seed in range(30):
        store = ExperienceStore(tmp_path / str(seed))
        store.append([one for number in range(60) for one in episode(number, steps=1)])
        store.append([one for number in range(200, 203) for one in episode(number, steps=1, task="stack")])
        store.commit()
        store.close()
        store = ExperienceStore(tmp_path / str(seed), ExperienceStoreConfig(episodes_per_task=10, seed=seed))
        kept = [info.task for info in store.catalogue()]
        assert (kept.count("reach"), kept.count("stack")) == (10, 3)
        store.append([one for number in range(60, 100) for one in episode(number, steps=1)])
        store.commit()
        kept = [info.episode for info in store.catalogue() if info.task == "reach"]
        assert len(kept) == 10
        old += sum(number < 60 for number in kept)
        store.close()
    assert 150 <= old <= 210


@pytest.mark.parametrize("name", ["lab#2", "what?now", "a%41", "50%", "ä b"])
def test_a_folder_is_read_whatever_its_name(tmp_path, name):
    other = ExperienceStore(tmp_path / "aA")  # that "a%41" is no name for
    other.append(episode(0))
    other.commit()
    other.close()
    store = ExperienceStore(tmp_path / name)
    assert store.size() == 0 and ExperienceReader(tmp_path / name).catalogue() == []
    store.close()
    WeightsLibrary(tmp_path / name / "weights").close()


@pytest.fixture
def read_only(tmp_path):
    """Mount a folder so that nobody writes it; return what does so."""
    mounted = []

    def mount(folder):
        (place := tmp_path / f"mounted{len(mounted)}").mkdir()
        for words in (["--bind", str(folder), str(place)], ["-o", "remount,bind,ro", str(place)]):
            if subprocess.run(["mount", *words], capture_output=True).returncode:
                pytest.skip("this user may not mount a folder")
            mounted.append(place)
        return place

    yield mount
    for place in dict.fromkeys(mounted):
        subprocess.run(["umount", str(place)], check=True)


def test_a_closed_store_is_read_where_nobody_may_write_and_of_one_that_was_not_closed_it_says_why_not(
    tmp_path, read_only
):
    store = ExperienceStore(tmp_path / "store")
    store.append(episode(0))
    store.commit()
    copied = shutil.copytree(tmp_path / "store", tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    assert [info.episode for info in ExperienceReader(read_only(tmp_path / "store")).catalogue()] == [0]
    with pytest.raises(StoreError, match=r"experience\.sqlite: its writer was not closed; .* has to be writable"):
        ExperienceReader(read_only(copied))


def test_each_store_has_an_id_that_lasts_and_one_of_an_earlier_version_gets_one(tmp_path):
    first, second = ExperienceStore(tmp_path / "1"), ExperienceStore(tmp_path / "2")
    assert len(first.id) == 32 and first.id != second.id
    first.close()
    assert ExperienceStore(tmp_path / "1").id == ExperienceReader(tmp_path / "1").id == first.id
    second._database.execute("DROP TABLE identity")
    second._database.execute("PRAGMA user_version=4")
    with pytest.raises(StoreError, match=r"schema version 4, this version reads 5; the node .* brings it to that"):
        ExperienceReader(tmp_path / "2")
    second.close()
    assert len(ExperienceStore(tmp_path / "2").id) == 32


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
    with pytest.raises(StoreError, match="schema version 99, this version reads 5"):
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
    assert [(one.intervention, one.author, one.chunk_ns) for one in store.episode(1)[:2]] == [
        (False, "", 0), (True, "human:", 0),
    ]  # fmt: skip
    store.append(episode(1))
    assert store.commit() == {("panda", "boot"): 8}
    assert [info.sources for info in store.catalogue()] == [(ActionSource(),), (OWN,)]
    store.close()
    ExperienceStore(tmp_path).close()  # and not a second time


def test_an_episode_without_an_end_is_named_once_its_robot_went_on_and_a_late_end_lists_it(tmp_path):
    store = ExperienceStore(tmp_path)
    *steps, end = episode(0)
    store.append(steps)
    store.commit()
    assert store.unfinished() == (0, [])  # it may still run
    store.append(episode(1, robot="ur5"))
    store.append([one for one in episode(1) if one.step != 1])
    store.append(episode(2))
    store.commit()
    assert store.unfinished() == (2, ["panda/boot/1 lacks steps", "panda/boot/0 has no end"])
    assert store.unfinished(newest=1) == (2, ["panda/boot/1 lacks steps"])
    assert [(info.robot_id, info.episode) for info in store.catalogue()] == [("ur5", 1), ("panda", 2)]
    store.append([end])
    store.commit()
    assert store.unfinished() == (1, ["panda/boot/1 lacks steps"])
    assert [one.step for one in store.episode(store.catalogue()[-1].number)] == [0, 1, 2, 3]
    store.close()


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


def test_what_is_not_acknowledged_and_what_may_still_grow_goes_last_while_it_is_young(tmp_path, monkeypatch):
    """Four episodes of 52.6 kB fit into 0.23 MB."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.23))

    def stored(*numbers, robot):
        for number in numbers:
            store.append(episode(number, robot=robot, image_size=64))
            store.commit()
        return [(info.robot_id, info.episode) for info in store.catalogue()]

    store.append(episode(0, robot="slow", image_size=64, finished=False)[:2])
    assert stored(1, 2, robot="gap") == [("gap", 1), ("gap", 2)]  # 1..4 are missing
    assert stored(0, 1, 2, robot="other") == [("gap", 1), ("gap", 2), ("other", 2)]
    store.append(episode(0, robot="slow", image_size=64)[2:])
    assert stored(3, robot="other") == [("gap", 1), ("gap", 2), ("slow", 0), ("other", 3)]
    monkeypatch.setattr("engram.learning.experience.retention.YOUNG", 2)
    assert stored(4, 5, robot="other") == [("gap", 2), ("other", 3), ("other", 4), ("other", 5)]
    assert stored(6, 7, robot="other") == [("other", number) for number in (4, 5, 6, 7)]
    store.close()


def test_fragments_go_in_their_turn(tmp_path):
    """Two episodes of 52.6 kB fit into 0.12 MB."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.12))
    store.append(episode(0, image_size=64, finished=False))  # is never completed
    for number in (1, 2, 3):
        store.append(episode(number, image_size=64))
        assert store.commit() == {("panda", "boot"): 4 * number + 4}
    assert ([info.episode for info in store.catalogue()], store.size()) == ([2, 3], 8)
    store.close()


def used_mb(store):
    """Return what the tables take in the file."""
    (pages,), (free,) = (store._database.rows(f"PRAGMA {name}_count")[0] for name in ("page", "freelist"))
    return (pages - free) * 4096 / 1e6


@pytest.mark.parametrize(
    "ids",
    [
        lambda number: {"robot": f"robot {number}"},
        lambda number: {"boot": f"boot {number}", "first": 1000},
        lambda number: {"first": 1000 * (number + 1)},
        lambda number: {"robot": f"robot {number}", "first": 1000, "finished": False},
        lambda number: {"robot": "r" * 200, "boot": f"{number:0200}", "task": "t" * 60_000},
    ],
    ids=["robots", "boots with gaps", "gaps", "unfinished", "long names"],
)
def test_whoever_sends_what_the_bound_holds(tmp_path, ids):
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=1.0, episodes_per_task=3))
    for number in range(40):
        store.append(episode(number, image_size=64, **ids(number)))
        store.commit()
        assert megabytes(store) <= 1.0 and used_mb(store) <= 1.6
    assert used_mb(store) > 0.7  # no more goes than has to
    ((rows,),) = store._database.rows("SELECT count(*) FROM episodes WHERE stored")
    assert rows <= 40
    store.close()


def test_small_steps_count_with_their_names_and_rows(tmp_path):
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.5))
    for number in range(1500):
        store.append(episode(number, steps=1, image_size=1))
        if number % 50 == 0:
            store.commit()
            assert used_mb(store) <= 0.8
    ((rows,),) = store._database.rows("SELECT count(*) FROM episodes")
    assert rows < 1000  # of what is deleted and acknowledged, none stays
    numbers = [info.number for info in store.catalogue()]
    store.close()
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.5))
    store.append(episode(1500, steps=1, image_size=1))
    store.commit()
    assert store.catalogue()[-1].number > numbers[-1]  # numbers are never used twice


def test_what_was_deleted_before_it_was_acknowledged_is_listed_once_and_acknowledged_when_it_came_again(tmp_path):
    """The sender sends again until everything is acknowledged; the learner shall not learn from it twice."""
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.12, episodes_per_task=50))
    given = [one for number in range(6) for one in episode(number, image_size=64)]
    listed = []
    for first in range(4, 24, 4):  # 1..4 are missing
        store.append(given[first : first + 4])
        assert store.commit() == {("panda", "boot"): 0}
        listed += [info.episode for info in store.catalogue(after=len(listed))]
    assert listed == [1, 2, 3, 4, 5] and store.size() == 8
    acked = 0
    while acked < 24:
        for one in given[acked:]:
            store.append([one])
            before, acked = acked, store.commit()["panda", "boot"]
            listed += [info.episode for info in store.catalogue(after=len(listed))]
            assert before <= acked <= max(one.sequence, 24)
    assert sorted(listed) == [0, 1, 2, 3, 4, 5]
    assert megabytes(store) <= 0.12
    assert store._database.rows("SELECT met FROM reservoirs") == [(6,)]
    assert not store._database.rows("SELECT 1 FROM episodes WHERE NOT stored")
    store.close()


def few_streams(monkeypatch, most):
    monkeypatch.setattr("engram.learning.experience.retention.STREAMS", most)


def known(store):
    return [robot for robot, _ in store.commit()]


def test_of_too_many_streams_those_that_were_silent_longest_are_counted_anew_once_they_go_on(tmp_path, monkeypatch):
    few_streams(monkeypatch, 4)
    store = ExperienceStore(tmp_path)
    for number in (3, 2, 1, 0):
        store.append(episode(0, robot=f"robot {number}"))
        assert store.commit()[f"robot {number}", "boot"] == 4
    assert known(store) == ["robot 2", "robot 1", "robot 0"]
    store.close()
    store = ExperienceStore(tmp_path)  # it knows also then who was silent longest
    assert known(store) == ["robot 2", "robot 1", "robot 0"]
    store.append(episode(0, robot="robot 4"))
    assert store.commit()["robot 4", "boot"] == 4
    assert known(store) == ["robot 1", "robot 0", "robot 4"]
    store.append(episode(1, robot="robot 3"))  # what it sent before is stored
    assert store.commit()["robot 3", "boot"] == 8
    assert store.size() == 24
    store.close()


def test_whoever_makes_up_streams_keeps_out_no_robot(tmp_path, monkeypatch):
    few_streams(monkeypatch, 10)
    store = ExperienceStore(tmp_path)
    for number in range(30):  # each lacks its first step: nothing of it can be acknowledged
        store.append(episode(0, robot=f"made up {number}", finished=False)[1:2])
        store.commit()
    for boot in ("first", "second"):
        store.append(episode(0, boot=boot))
        assert store.commit()["panda", boot] == 4
        store.append(episode(1, boot=boot))
        assert store.commit()["panda", boot] == 8
    assert [(info.boot_id, info.episode) for info in store.catalogue()] == [
        (boot, number) for boot in ("first", "second") for number in (0, 1)
    ]
    assert len(known(store)) < 10
    store.close()


def test_of_streams_that_are_forgotten_what_is_not_kept_goes_too(tmp_path, monkeypatch):
    few_streams(monkeypatch, 4)
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=6))
    for number in range(40):
        store.append(episode(0, robot=f"robot {number}"))
        store.commit()
    assert (len(store.catalogue()), store.size()) == (6, 24)
    store.close()


def test_streams_of_which_nothing_is_stored_make_room_the_longest_silent_first(tmp_path, monkeypatch):
    few_streams(monkeypatch, 4)
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.06))  # one episode of 52.6 kB
    for number in (0, 1, 2, 0, 3, 4, 5):
        store.append(episode(number, steps=4, image_size=64, robot=f"robot {number}", first=1))
        assert store.commit()[f"robot {number}", "boot"] == 4
    assert known(store) == ["robot 3", "robot 4", "robot 5"]
    assert len(store._database.rows("SELECT 1 FROM streams")) == 3
    store.gone("robot 0", "boot", 4)  # forgotten: its sender says what it no longer has
    store.append(episode(1, robot="robot 0"))
    assert store.commit()["robot 0", "boot"] == 8
    store.close()


def test_what_was_here_before_its_stream_was_forgotten_never_counts_as_missing(tmp_path, monkeypatch):
    few_streams(monkeypatch, 4)
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(episodes_per_task=1))
    store.gone("early", "boot", 3)  # while nothing was forgotten, all that is gone is missing
    store.append(episode(0, robot="early", first=4))
    store.commit()
    assert store.missing() == 3
    for robot in ("first", "later", "latest"):  # one episode of them all is kept
        store.append(episode(0, robot=robot))
        store.commit()
    assert store.size() == 4
    (robot,) = {"early", "first", "later", "latest"} - set(known(store))
    store.append(episode(1, robot=robot, first=13))  # its word of what is gone comes later
    store.commit()
    store.gone(robot, "boot", 12)
    assert store.commit()[robot, "boot"] == 16
    assert store.missing() == 3
    store.gone(robot, "boot", 20)  # these it never sent
    store.append(episode(3, robot=robot, first=21))
    store.commit()
    assert store.missing() == 7
    store.close()


def test_what_is_remembered_of_gaps_is_bounded_and_their_number_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("engram.learning.experience.retention.REMEMBERED", 5)
    store = ExperienceStore(tmp_path, ExperienceStoreConfig(max_mb=0.05))
    for number in range(1, 40):  # each second one never came
        store.gone("panda", "boot", 8 * number)
        store.append(episode(0, first=8 * number + 1))
        store.commit()
    assert len(store._database.rows("SELECT 1 FROM skipped")) <= 6
    assert store.missing() == 8 + 38 * 4
    for number in range(40):  # listed and deleted before it is acknowledged
        store.append(episode(number, robot="gaps", steps=1, image_size=64, first=10 * number + 10))
        store.commit()
    assert len(store._database.rows("SELECT 1 FROM episodes WHERE NOT stored")) <= 5
    store.close()


def test_a_name_that_is_too_long_is_refused(tmp_path):
    store = ExperienceStore(tmp_path)
    for names in ({"robot": "r" * 201}, {"boot": "b" * 201}, {"boot": ""}):
        with pytest.raises(InvalidInputError, match="expected two names of 1 to 200 characters"):
            store.append(episode(0, **names))
    store.gone("r" * 201, "boot", 5)
    assert not store._gone
    store.close()


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


def change(folder, statement):
    with closing(sqlite3.connect(folder / "experience.sqlite")) as file, file:
        file.execute(statement)


DAMAGED_ENTRIES = {
    "unexpected keyword argument 'policx'": "sources = replace(sources, 'policy', 'policx')",
    "Expecting": "sources = '['",
    "'int' object": "sources = '7'",
    "must be a mapping|not a mapping|argument after": "sources = '[7]'",
    "can't decode byte 0xff": "task = CAST(x'ff' AS TEXT)",
    "no attribute 'decode'": "instruction = NULL",
    "steps is 'x', expected a int": "steps = 'x'",
    "success is 7, expected a bool": "success = 7",
    "judged is None": "judged = NULL",
}


@pytest.mark.parametrize(("words", "harm"), DAMAGED_ENTRIES.items(), ids=DAMAGED_ENTRIES)
def test_a_damaged_entry_is_passed_over_and_named_and_the_others_are_listed(tmp_path, words, harm):
    store = ExperienceStore(tmp_path)
    store.append([one for number in range(3) for one in episode(number)])
    store.commit()
    change(tmp_path, f"UPDATE episodes SET {harm} WHERE number = 2")
    for reader in (store, ExperienceReader(tmp_path)):
        for _ in range(2):
            assert [info.episode for info in reader.catalogue()] == [0, 2]
        assert list(reader.unreadable) == [2] and re.search(words, reader.unreadable[2])
        assert f"{tmp_path / 'experience.sqlite'}: the entry of episode 2 is damaged: " in reader.unreadable[2]
        assert [info.episode for info in reader.catalogue(after=1)] == [2]
    store.append(episode(3))
    assert store.commit() == {("panda", "boot"): 16}
    store.close()


@pytest.mark.parametrize("harm", ["source = '{'", "source = CAST(x'ff' AS TEXT)", "step = 'x'"])
def test_a_damaged_row_of_a_step_does_not_keep_others_from_being_stored(tmp_path, harm):
    store = ExperienceStore(tmp_path)
    store.append(episode(0)[:2])
    store.commit()
    change(tmp_path, f"UPDATE transitions SET {harm} WHERE sequence = 2")
    store.append(episode(0)[2:])
    store.append(episode(1))
    assert store.commit() == {("panda", "boot"): 8}
    assert [info.episode for info in store.catalogue()] == [1]
    store.close()


def test_a_stream_that_is_acknowledged_up_to_no_number_is_named(tmp_path):
    store = ExperienceStore(tmp_path)
    store.append(episode(0))
    store.commit()
    store.close()
    change(tmp_path, "UPDATE streams SET acked = 'x'")
    with pytest.raises(StoreError, match="stream panda/boot is acknowledged up to 'x'"):
        ExperienceStore(tmp_path)


@pytest.mark.parametrize("kind", ["store", "spool"])
def test_no_flipped_bit_of_a_log_takes_away_what_was_committed(tmp_path, kind):
    """SQLite cuts off a write-ahead log at its first damaged page, and says nothing."""
    made = ExperienceStore(tmp_path / "own") if kind == "store" else Spool(tmp_path / "own", "panda")
    for number in range(4):
        for one in episode(number, 6):
            made.append([one]) if kind == "store" else made.add(one)
        made.commit()
    shutil.copytree(tmp_path / "own", tmp_path / "killed")  # as kill -9 leaves it
    made.close()
    for log in (tmp_path / "killed").glob("*-wal"):
        content = bytearray(log.read_bytes())
        content[4000::4096] = bytes(byte ^ 1 for byte in content[4000::4096])
        log.write_bytes(content)
    left = ExperienceStore(tmp_path / "killed") if kind == "store" else Spool(tmp_path / "killed", "panda")
    assert (left.size() if kind == "store" else len(left)) == 24
    left.close()
