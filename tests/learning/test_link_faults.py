"""Faults on the way to the learner: none loses a transition that could be kept, and none stops those that follow."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from engram.core.errors import InvalidInputError, StoreError
from engram.learning.experience.intake import TakenIdError
from engram.learning.experience.receiver import CONTESTED_S, ExperienceReceiver
from engram.learning.experience.spool import Spool, SpoolConfig
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore
from tests.learning.transitions import assert_same, episode


class Link:
    """A robot's spool and a learner's store; each :meth:`turn` is one exchange, ``resend_s`` after the last."""

    def __init__(self, folder):
        self.spool = Spool(folder / "spool", "panda", SpoolConfig(resend_s=2.0))
        self.store = ExperienceStore(folder / "learner")
        self.now = 0.0
        self.receiver = ExperienceReceiver(self.store, lambda: self.now)

    def turn(self, limit=1000):
        self.now += 2.0
        due = self.spool.due(self.now, limit)
        for what in [*self.spool.gone(), *due]:
            self.receiver.take(what)
        received = self.receiver.commit()
        for one in received.receipts:
            self.spool.acknowledge(one.sequence, self.now, one.boot_id)
        return received

    def stored(self):
        return [one for info in self.store.catalogue() for one in self.store.episode(info.number)]

    def close(self):
        self.spool.close()
        self.store.close()


@pytest.fixture
def link(tmp_path):
    link = Link(tmp_path)
    yield link
    link.close()


def fill(spool, *numbers, steps=4):
    for number in numbers:
        for one in episode(number, steps):
            spool.add(one)
    return spool.commit()


def with_reward(transition, reward):
    changed = replace(transition)
    object.__setattr__(changed, "reward", reward)
    return changed


# -- nothing stops what follows ------------------------------------------------------------------------------------


def test_a_reward_that_is_not_finite_uses_up_no_number(link):
    fill(link.spool, 0)
    with pytest.raises(InvalidInputError, match="reward: nan"):
        link.spool.add(with_reward(episode(1)[0], float("nan")))
    assert fill(link.spool, 2) == 8
    link.turn()
    assert len(link.spool) == 0
    assert [info.episode for info in link.store.catalogue()] == [0, 2]


def test_a_full_disk_loses_what_did_not_fit_and_nothing_after_it(link):
    fill(link.spool, 0)
    (pages,) = link.spool._database.execute("PRAGMA page_count").fetchone()
    link.spool._database.execute(f"PRAGMA max_page_count={pages}")  # from now on SQLite says that the disk is full
    for one in episode(1, 10, image_size=64):
        with pytest.raises(StoreError, match="disk is full"):
            link.spool.add(one)
    lost = link.spool.dropped
    assert lost == 10
    link.turn()
    link.spool._database.execute("PRAGMA max_page_count=1000000")
    assert fill(link.spool, 2) == 8
    link.turn()
    assert (len(link.spool), link.spool.dropped) == (0, lost)
    assert [info.episode for info in link.store.catalogue()] == [0, 2]


def test_a_commit_that_fails_gives_its_numbers_to_the_next(link):
    """The folder is gone for a moment: what was recorded meanwhile is lost and counted."""
    fill(link.spool, 0)
    folder = link.spool._database.path.parent
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(StoreError, match="it was there when it was opened"):
        fill(link.spool, 1)
    assert (link.spool.durable, link.spool.dropped, len(link.spool)) == (4, 4, 4)
    folder.with_name("elsewhere").rename(folder)
    assert fill(link.spool, 2) == 8
    link.turn()
    assert len(link.spool) == 0
    assert [info.episode for info in link.store.catalogue()] == [0, 2]


def damage(spool, place):
    (payload,) = spool._database.execute("SELECT payload FROM spool WHERE place = ?", (place,)).fetchone()
    damaged = bytearray(payload)
    damaged[len(damaged) // 2] ^= 4
    spool._database.execute("UPDATE spool SET payload = ? WHERE place = ?", (bytes(damaged), place))


def test_a_damaged_record_is_skipped_and_counted(link):
    fill(link.spool, 0, 1, 2)
    damage(link.spool, 6)
    link.turn()
    assert (link.spool.unreadable, len(link.spool)) == (1, 6)  # 5 were acknowledged
    link.turn()
    assert (len(link.spool), link.store.missing()) == (0, 1)
    assert [info.episode for info in link.store.catalogue()] == [0, 2]  # the damaged one was of episode 1


def test_a_damaged_record_at_the_end_does_not_hold_up_what_comes_later(link):
    fill(link.spool, 0)
    damage(link.spool, 4)
    link.turn()
    link.turn()
    fill(link.spool, 1)
    link.turn()
    link.turn()
    assert (len(link.spool), link.store.missing()) == (0, 1)
    assert [info.episode for info in link.store.catalogue()] == [1]


def test_a_learner_that_lost_its_folder_does_not_wait_for_what_is_gone(tmp_path, link):
    fill(link.spool, 0, 1)
    link.turn()
    link.store.close()
    shutil.rmtree(tmp_path / "learner")
    fill(link.spool, 2)
    link.store = ExperienceStore(tmp_path / "learner")
    link.receiver = ExperienceReceiver(link.store, lambda: link.now)
    for _ in range(2):
        link.turn()
    assert (len(link.spool), link.store.missing()) == (0, 8)
    assert [info.episode for info in link.store.catalogue()] == [2]


def test_a_folder_that_goes_while_the_learner_runs_is_never_acknowledged(tmp_path, link):
    shutil.rmtree(tmp_path / "learner")
    fill(link.spool, 0)
    with pytest.raises(StoreError, match="it was there when it was opened"):
        link.turn()
    assert len(link.spool) == 4
    link.store._database.rollback()


def test_one_bad_transition_does_not_keep_out_the_good_ones_of_its_batch(link):
    given = episode(0, 21, first=1)
    bad = with_reward(replace(given[20], sequence=50), float("inf"))
    huge = replace(given[20], sequence=2**64 - 1)
    for one in [*given[:10], bad, huge, replace(bad, robot_id=""), *given[10:]]:
        link.receiver.take(one)
    received = link.receiver.commit()
    assert len(received.refused) == 3
    assert [one.sequence for one in received.receipts if one.robot_id] == [21]
    assert [len(link.store.episode(1)), link.store.size()] == [21, 21]


def test_what_is_said_to_be_gone_is_believed_only_when_what_follows_is_here(link):
    """A single wrong word must not make the learner acknowledge what it does not have."""
    fill(link.spool, 0)
    boot = link.spool.boot_id
    link.receiver.take(Gone("panda", boot, 10**6))
    link.turn()
    assert len(link.spool) == 0
    fill(link.spool, 1)
    link.turn()
    assert (len(link.spool), link.store.missing()) == (0, 0)


def lie(link):
    """Tell the learner that a million of the robot's steps are gone, and what would follow; return its receipt."""
    boot = link.spool.boot_id
    link.receiver.take(Gone("panda", boot, 999_999))
    link.receiver.take(replace(episode(99)[0], boot_id=boot, sequence=1_000_000))
    (receipt,) = link.receiver.commit().receipts
    return receipt.sequence


@pytest.mark.parametrize("came", [(), (6, 7, 8)], ids=["nothing", "with a gap"])
def test_a_robot_that_has_what_was_said_to_be_gone_is_believed_more(link, came):
    """It refuses receipts for more than it has: without a valid one it would send the same again for ever."""
    fill(link.spool, 0)
    link.turn()
    fill(link.spool, 1)
    due = link.spool.due(link.now, 100)
    for one in due:
        if one.sequence in came:
            link.receiver.take(one)
    link.receiver.commit()
    assert lie(link) == 1_000_000
    with pytest.raises(InvalidInputError, match=r"only 1\.\.8 exist"):
        link.spool.acknowledge(1_000_000, link.now)
    for one in due:
        if one.sequence != 7:  # lost on its way: it has to be waited for, if it has not come before
            link.receiver.take(one)
    (receipt,) = link.receiver.commit().receipts
    assert receipt.sequence == (8 if came else 6)
    link.turn()
    fill(link.spool, 2)
    link.turn()
    assert (len(link.spool), link.store.missing()) == (0, 0)
    assert [info.episode for info in link.store.catalogue()] == [0, 1, 2]


def test_no_robot_is_told_of_more_than_it_has_shown(tmp_path, link):
    """The learner has all of a stream that is over, the receipt was lost, and a stranger made it longer."""
    fill(link.spool, 0)
    for one in link.spool.due(link.now, 100):
        link.receiver.take(one)
    link.receiver.commit()
    assert lie(link) == 1_000_000
    link.spool.close()
    link.spool = Spool(tmp_path / "spool", "panda", SpoolConfig(resend_s=2.0))
    link.turn()
    assert len(link.spool) == 0


def test_what_comes_although_it_was_said_to_be_gone_is_stored(link):
    steps = episode(0, 6)
    link.store.append(steps[4:])
    link.store.gone("panda", "boot", 4)
    assert link.store.commit() == {("panda", "boot"): 6}
    link.store.append(steps[:4])
    link.store.commit()
    assert [len(link.store.episode(info.number)) for info in link.store.catalogue()] == [6]


def test_a_wait_without_progress_is_said_for_each_stream(tmp_path):
    config = SpoolConfig(stalled_s=30.0)
    spool = Spool(tmp_path, "panda", config)
    fill(spool, 0)
    first = spool.boot_id
    spool.close()
    spool = Spool(tmp_path, "panda", config)
    assert spool.stalled(100.0) == ""
    fill(spool, 1)
    assert spool.stalled(110.0) == ""
    spool.acknowledge(3, 111.0)  # the new stream goes on, the old one does not
    told = spool.stalled(140.0)
    assert told == f"5 transitions wait; for 40 s nothing was acknowledged from sequence 1 of boot {first} on"
    spool.acknowledge(4, 140.0, first)
    assert spool.stalled(141.0) == ""
    spool.close()


def test_a_stream_that_nobody_acknowledges_does_not_hold_up_the_next(tmp_path):
    spool = Spool(tmp_path, "panda", SpoolConfig(resend_s=2.0))
    fill(spool, 0, steps=100)
    spool.close()
    spool = Spool(tmp_path, "panda", SpoolConfig(resend_s=2.0))
    fill(spool, 1)
    sent = [one for k in range(4) for one in spool.due(2.0 * k, 16)]
    assert [one.sequence for one in sent if one.boot_id == spool.boot_id][:4] == [1, 2, 3, 4]
    spool.close()


# -- ids ---------------------------------------------------------------------------------------------------------------


def copied(folder, name):
    shutil.copytree(folder / "spool", folder / name / "spool")
    return folder / name


def test_all_of_a_copied_spool_is_stored(tmp_path, link):
    """60 of 60: the copy goes on under the robot's name, as a second robot or after its disk was restored."""
    fill(link.spool, 0)
    link.spool.close()
    copy = copied(tmp_path, "copy")
    link.spool = Spool(tmp_path / "spool", "panda")
    fill(link.spool, 1, 2)
    link.turn()
    other = Link(copy)
    other.store.close()
    other.store, other.receiver = link.store, link.receiver
    fill(other.spool, *range(10, 25))
    other.turn()
    assert (len(link.spool), len(other.spool)) == (0, 0)
    assert [info.episode for info in link.store.catalogue()] == [0, 1, 2, *range(10, 25)]
    other.spool.close()


def test_another_transition_under_a_stored_id_is_named_and_not_acknowledged(link):
    """A snapshot of a running machine was restored: the same boot id numbers on, with other content."""
    fill(link.spool, 0, 1)
    boot = link.spool.boot_id
    link.turn()
    again = [replace(one, boot_id=boot) for one in episode(7, 4, first=5)]
    for one in again:
        link.receiver.take(one)
    received = link.receiver.commit()
    assert len(received.taken) == 4
    assert f"panda/{boot}/5: other ones with these ids are stored" in received.taken[0]
    assert [one.sequence for one in received.receipts] == [4]  # 5..8 are on disk, but not these
    assert [info.episode for info in link.store.catalogue()] == [0, 1]
    link.now += CONTESTED_S  # a single wrong message holds nothing up for longer
    fill(link.spool, 2)
    link.turn()
    assert len(link.spool) == 0


def test_of_two_transitions_under_an_id_that_is_not_acknowledged_neither_is_taken(tmp_path):
    """A wrong one came first. The robot sends its own again until it is acknowledged."""
    store = ExperienceStore(tmp_path)
    right, wrong = episode(0), episode(3, first=1)
    store.append([wrong[2]])
    with pytest.raises(TakenIdError, match="panda/boot/3"):
        store.append(right)
    assert store.commit() == {("panda", "boot"): 2}
    store.append(right)
    assert store.commit() == {("panda", "boot"): 4}
    for mine, theirs in zip(store.episode(1), right, strict=True):
        assert_same(mine, theirs)
    store.close()


def test_a_damaged_row_of_the_store_is_mended_when_it_comes_again(tmp_path):
    store = ExperienceStore(tmp_path)
    store.append(episode(0))
    store.commit()
    store._database.execute("UPDATE transitions SET payload = x'00' WHERE sequence = 3")
    store.append(episode(0))
    store.commit()
    assert len(store.episode(1)) == 4
    store.close()
