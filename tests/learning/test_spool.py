"""Nothing is lost on the way to the learner, and nothing counts twice."""

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
from types import SimpleNamespace

import pytest

from engram.core.errors import InvalidInputError, StoreError, StoreLockedError
from engram.core.types import ActionSource
from engram.learning.experience.codec import encode
from engram.learning.experience.database import PATIENCE_MS, UnreadableStoreError
from engram.learning.experience.spool import Spool, SpoolConfig, open_spool
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore
from tests.learning.transitions import OWN, assert_same, encode_version_1, episode

KILLS = int(os.environ.get("ENGRAM_KILLS", "20"))


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path, "panda", SpoolConfig(resend_s=2.0))
    yield spool
    spool.close()


def fill(spool, number=0, steps=4):
    for one in episode(number, steps):
        spool.add(one)
    return spool.commit()


def test_transitions_are_numbered_in_order_under_the_spools_own_name(spool):
    assert fill(spool) == 4
    sent = spool.due(0.0, 10)
    assert [t.sequence for t in sent] == [1, 2, 3, 4]
    assert {(t.robot_id, t.boot_id) for t in sent} == {("panda", spool.boot_id)}
    assert [t.step for t in sent] == [0, 1, 2, 3]


def test_what_is_not_committed_is_not_sent(spool):
    spool.add(episode(0)[0])
    assert spool.due(0.0, 10) == []
    spool.commit()
    assert len(spool.due(0.0, 10)) == 1


def test_no_more_is_under_way_than_can_be_repaired(tmp_path):
    spool = Spool(tmp_path, "panda", SpoolConfig(resend_s=2.0, window=3))
    fill(spool, steps=6)
    assert [t.sequence for t in spool.due(0.0, 10)] == [1, 2, 3]
    assert spool.due(0.2, 10) == []
    spool.acknowledge(2, 0.5)
    assert [t.sequence for t in spool.due(0.6, 10)] == [4, 5]
    assert [t.sequence for t in spool.due(2.6, 10)] == [3, 4, 5]  # the acknowledgement is late: those again, no more
    spool.acknowledge(5, 2.7)
    assert [t.sequence for t in spool.due(2.8, 10)] == [6]
    spool.close()


def test_each_is_due_once_until_the_receipt_is_late(spool):
    fill(spool)
    assert len(spool.due(0.0, 3)) == 3
    assert [t.sequence for t in spool.due(0.1, 3)] == [4]
    assert spool.due(1.9, 3) == []
    assert [t.sequence for t in spool.due(2.0, 10)] == [1, 2, 3, 4]


def test_progress_of_the_receipt_postpones_repeating_and_repeats_only_the_rest(spool):
    fill(spool)
    spool.due(0.0, 10)
    assert spool.acknowledge(2, 1.5) == 2
    assert spool.due(3.4, 10) == []
    assert [t.sequence for t in spool.due(3.5, 10)] == [3, 4]
    assert len(spool) == 2


def test_an_old_receipt_changes_nothing_and_one_for_the_future_is_refused(spool):
    fill(spool)
    spool.acknowledge(3, 0.0)
    assert spool.acknowledge(1, 0.0) == 0
    with pytest.raises(InvalidInputError, match=r"ack 5 of panda/.*only 1\.\.4 exist"):
        spool.acknowledge(5, 0.0)


def ids(transitions):
    return [(one.boot_id, one.sequence) for one in transitions]


def test_a_restart_sends_what_was_not_acknowledged_as_it_was_numbered_and_begins_a_new_stream(tmp_path):
    spool = Spool(tmp_path, "panda")
    fill(spool)
    spool.acknowledge(3, 0.0)
    first = spool.boot_id
    spool.close()
    spool = Spool(tmp_path, "panda")
    second = spool.boot_id
    assert second != first
    assert ids(spool.due(0.0, 10)) == [(first, 4)]
    assert spool.gone() == [Gone("panda", first, 3)]  # for a learner that was not there yet
    assert fill(spool, 1) == 4
    assert ids(spool.due(0.1, 10)) == [(second, n) for n in (1, 2, 3, 4)]
    assert (spool.acknowledge(4, 0.2, first), len(spool)) == (1, 4)
    assert spool.acknowledge(4, 0.2, first) == 0  # that stream is done
    assert (spool.acknowledge(4, 0.2, second), len(spool)) == (4, 0)
    spool.close()
    spool = Spool(tmp_path, "panda")  # empty
    third = spool.add(episode(2)[0])
    assert third.sequence == 1 and third.boot_id not in (first, second)
    spool.close()


def test_a_stream_that_ends_with_what_cannot_be_read_is_over_once_the_rest_was_acknowledged(tmp_path):
    """Nothing of it is left to be acknowledged: nobody is to wait for that."""
    before = Spool(tmp_path, "panda")
    fill(before)
    before._database.execute("UPDATE spool SET payload = x'00' WHERE place >= 3")
    boot = before.boot_id
    before.close()
    spool = Spool(tmp_path, "panda")
    assert ids(spool.due(0.0, 10)) == [(boot, 1), (boot, 2)]
    spool.acknowledge(2, 0.1, boot)
    spool.due(100.0, 10)
    assert (spool.unreadable, len(spool), len(spool._streams)) == (2, 0, 1)
    spool.close()


def test_a_full_spool_drops_new_ones_counts_them_and_leaves_no_gap(tmp_path):
    spool = Spool(tmp_path, "panda", SpoolConfig(capacity=3))
    assert [one is None for one in (spool.add(t) for t in episode(0, steps=5))] == [False] * 3 + [True] * 2
    spool.commit()
    spool.acknowledge(3, 0.0)
    assert spool.add(episode(1)[0]).sequence == 4
    spool.close()
    spool = Spool(tmp_path, "panda")
    assert spool.dropped == 2
    spool.close()


def to_version_2(folder):
    """Write the closed spool in ``folder``, which has one stream, as the second release did."""
    connection = sqlite3.connect(folder / "spool.sqlite", isolation_level=None)
    boot_id, acknowledged = connection.execute("SELECT boot_id, acknowledged FROM streams").fetchone()
    connection.execute("ALTER TABLE spool RENAME COLUMN place TO sequence")
    connection.execute("DROP TABLE streams")
    state = [("boot_id", boot_id), ("acknowledged", acknowledged)]
    connection.executemany("INSERT INTO state VALUES (?,?)", state)
    connection.execute("PRAGMA user_version=2")
    connection.close()


def test_a_spool_of_version_2_goes_on_where_it_was(tmp_path):
    spool = Spool(tmp_path, "panda")
    fill(spool)
    spool.acknowledge(2, 0.0)
    first = spool.boot_id
    spool.close()
    to_version_2(tmp_path)
    spool = Spool(tmp_path, "panda")
    assert fill(spool, 1) == 4
    assert ids(spool.due(0.0, 10)) == [(first, 3), (first, 4), *((spool.boot_id, n) for n in (1, 2, 3, 4))]
    assert spool.acknowledge(4, 0.0, first) == 2
    spool.close()


def test_a_spool_of_version_1_still_sends_what_it_holds_of_an_unknown_source(tmp_path):
    spool = Spool(tmp_path, "panda")
    given = episode(0)
    fill(spool)
    for one in given:
        spool._database.execute("UPDATE spool SET payload = ? WHERE place = ?", (encode_version_1(one), one.sequence))
    spool.close()
    to_version_2(tmp_path)
    spool = Spool(tmp_path, "panda")
    sent = spool.due(0.0, 10)
    assert [(one.sequence, one.source) for one in sent] == [(n, ActionSource()) for n in (1, 2, 3, 4)]
    assert spool.add(episode(1)[0]).source == OWN
    spool.close()


def zero_header(file):
    file.write_bytes(bytes(100) + file.read_bytes()[100:])


def cut(file):
    file.write_bytes(file.read_bytes()[:4096])


def change(statement):
    def do(file):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(statement)

    return do


HARM = {
    "file is not a database": zero_header,
    "malformed": cut,
    "schema version 9, this version reads 3": change("PRAGMA user_version=9"),
    "already exists": change("PRAGMA user_version=0"),
    "acknowledged 'many', expected a name and a number": change("UPDATE streams SET acknowledged = 'many'"),
    "acknowledged None": change("UPDATE streams SET acknowledged = NULL"),
    "acknowledged -1": change("UPDATE streams SET acknowledged = -1"),
    r"has 1\.\.500 acknowledged, but has sequence 2": change("UPDATE streams SET acknowledged = 500"),
    "boot id b'x'": change("UPDATE streams SET boot_id = x'78'"),
    "boot id None": change("UPDATE streams SET boot_id = NULL"),
    "Could not decode to UTF-8": change("UPDATE streams SET boot_id = CAST(x'ff' AS TEXT)"),
    "place 9223372036854775807": change("UPDATE spool SET place = 9223372036854775807 WHERE place = 4"),
    "dropped is 'x'": change("INSERT INTO state VALUES ('dropped', 'x')"),
    "no such table": change("DROP TABLE spool"),
}


@pytest.mark.parametrize(("words", "harm"), HARM.items(), ids=HARM)
def test_a_damaged_spool_is_set_aside_and_a_new_stream_begins(tmp_path, words, harm):
    spool = Spool(tmp_path, "panda")
    fill(spool)
    spool.acknowledge(1, 0.0)
    first = spool.boot_id
    spool.close()
    harm(tmp_path / "spool.sqlite")
    kept = (tmp_path / "spool.sqlite").read_bytes()
    with pytest.raises(UnreadableStoreError, match=words):
        Spool(tmp_path, "panda")
    spool, why = open_spool(tmp_path, "panda")
    (aside,) = tmp_path.glob("set-aside-*")
    assert re.search(words, why) and f"it lies in {aside} now" in why
    assert (aside / "spool.sqlite").read_bytes() == kept
    assert spool.boot_id != first and spool.add(episode(1)[0]).sequence == 1
    spool.close()
    spool, why = open_spool(tmp_path, "panda")
    assert (why, len(spool)) == ("", 1)
    spool.close()


def test_a_spool_that_the_disk_or_another_process_keeps_is_not_set_aside(tmp_path, monkeypatch):
    spool = Spool(tmp_path, "panda")
    with pytest.raises(StoreLockedError):
        open_spool(tmp_path, "panda")
    spool.close()

    def full(*_, **__):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("engram.learning.experience.database.sqlite3.connect", full)
        with pytest.raises(StoreError, match="disk is full"):
            open_spool(tmp_path, "panda")
    assert not list(tmp_path.glob("set-aside-*"))
    Spool(tmp_path, "panda").close()


def test_two_writers_are_refused(tmp_path, spool):
    with pytest.raises(StoreError, match="already being written by process"):
        Spool(tmp_path, "panda")


def test_a_cut_link_costs_nothing_but_delay(tmp_path, spool):
    """A link that loses half of the transitions and of the receipts: the store ends with everything, once."""
    draw = random.Random(5)
    store = ExperienceStore(tmp_path / "learner")
    given = [one for number in range(10) for one in episode(number)]
    now = 0.0
    for one in given:
        spool.add(one)
    spool.commit()
    while len(spool):
        store.append([t for t in spool.due(now, 8) if draw.random() < 0.5])
        receipt = store.commit()
        if receipt and draw.random() < 0.5:
            spool.acknowledge(receipt["panda", spool.boot_id], now)
        now += 0.5
    stored = sorted((one for transitions in store.episodes() for one in transitions), key=lambda t: t.sequence)
    assert len(stored) == len(given) == store.size()
    for mine, theirs in zip(stored, given, strict=True):
        object.__setattr__(theirs, "boot_id", spool.boot_id)
        assert_same(mine, theirs)
    store.close()


def test_a_learner_restart_loses_nothing_in_flight(tmp_path, spool):
    """LeRobot's actor threads end with transitions in RAM; here they wait on the robot's disk."""
    fill(spool)
    spool.due(0.0, 10)  # sent into the void: the learner died before its commit
    store = ExperienceStore(tmp_path / "learner")
    store.append(spool.due(5.0, 10))
    assert store.commit() == {("panda", spool.boot_id): 4}
    store.close()


WRITER = """
import sys
from engram.learning.experience.spool import Spool
from tests.learning.transitions import episode
spool = Spool(sys.argv[1], "panda")
for number in range(100_000):
    for one in episode(number, steps=2):
        spool.add(one)
    print(spool.commit(), flush=True)
"""


def test_kill_9_at_any_instant_keeps_every_committed_transition(tmp_path):
    draw = random.Random(22)
    before = []
    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        commits = [int(writer.stdout.readline())]
        time.sleep(draw.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        commits += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
        spool = Spool(tmp_path, "panda")
        kept = ids(spool.due(0.0, 10**6))
        kept = kept[len(before) :] if kept[: len(before)] == before else pytest.fail("what was committed is not there")
        assert len(kept) - commits[-1] in (0, 2)  # one commit may be done and not yet told
        assert [sequence for _, sequence in kept] == list(range(1, len(kept) + 1))
        before += kept
        spool.close()


def test_a_spool_is_full_by_its_bytes_too_whatever_the_pictures_size(tmp_path):
    one = len(encode(episode(0)[0]))
    spool = Spool(tmp_path, "panda", SpoolConfig(max_mb=2.5 * one / 1e6))
    kept = [spool.add(each) is not None for each in episode(0, 5)]
    assert (kept, spool.dropped) == ([True, True, True, False, False], 2)
    assert spool.full() == f"full: {3 * one / 1e6:.0f} MB wait, of at most {2.5 * one / 1e6:g}"
    spool.commit()
    spool.acknowledge(1, 0.0)  # there is room again
    assert spool.add(episode(1)[0]) is not None and spool.add(episode(1)[1]) is None
    spool.close()
    spool = Spool(tmp_path, "panda", spool.config)
    assert spool.full()  # what an earlier opening left counts
    spool.close()


def test_a_spool_leaves_room_on_the_disk_that_the_latch_of_a_stop_is_written_to(tmp_path, monkeypatch):
    spool = Spool(tmp_path, "panda", SpoolConfig(free_mb=100.0))
    free = [100e6, 99e6]
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free.pop(0) if free else 99e6))
    assert spool.add(episode(0)[0]) is not None and spool.add(episode(0)[1]) is None
    assert spool.full() == "full: 99 MB of its disk are free, and 100 are to be"
    spool.close()


@pytest.mark.parametrize("name", ["max_mb", "free_mb"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_bound_of_the_spool_is_a_number_of_megabytes(name, value):
    with pytest.raises(InvalidInputError, match=f"SpoolConfig.{name}"):
        SpoolConfig(**{name: value})


def test_what_was_acknowledged_makes_room_on_a_disk_that_the_spool_itself_has_filled(tmp_path, monkeypatch):
    spool = Spool(tmp_path, "panda", SpoolConfig(free_mb=1.0))
    size, whole = 4e6, spool._database.path  # a disk of 4 MB that nothing else is on
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=size - whole.stat().st_size))
    number = 0
    while not spool.full():
        fill(spool, number := number + 1)
    assert spool.add(episode(0)[0]) is None
    spool.acknowledge(spool.durable, 0.0)
    assert not spool.full() and spool.add(episode(0)[0]) is not None
    spool.close()


def test_a_commit_does_not_wait_for_whoever_reads(tmp_path):
    spool = Spool(tmp_path, "panda")
    fill(spool)
    with closing(sqlite3.connect(spool._database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM spool").fetchone()
        began = time.monotonic()
        fill(spool, 1)
        assert time.monotonic() - began < 0.8 * PATIENCE_MS / 1000
        assert (tmp_path / "spool.sqlite-wal").stat().st_size > 0
    fill(spool, 2)
    assert (tmp_path / "spool.sqlite-wal").stat().st_size == 0
    spool.close()
