"""Weights from the network: who may send them, for whom, in which order, and how much of it is kept."""

from __future__ import annotations

import errno
import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import save

from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError
from engram.core.types import Lineage
from engram.learning.weights import announcements
from engram.learning.weights import receiver as module
from engram.learning.weights.announcements import AnnouncementCounter, announced
from engram.learning.weights.keys import fingerprint
from engram.learning.weights.manifest import make_manifest, sign
from engram.learning.weights.receiver import WeightsReceiver
from engram.learning.weights.slices import split

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TRUSTED = {fingerprint(KEY.public_key()): KEY.public_key()}
LINEAGE = Lineage("r", "a", "n", "base")
SLICE = 40


def data(value: float) -> bytes:
    return save({"w": np.full((2, 3), value, np.float32)})


class Inbox:
    """A receiver of robot r1, and what became of what it got."""

    def __init__(self, folder, accept="approved", keys=TRUSTED, **options):
        self.counts, self.offered = Counter(), []
        self.receiver = WeightsReceiver(
            folder,
            accept,
            lambda lineage, version: LINEAGE.check(lineage, version),
            lambda path, version, lineage: self.offered.append((version, path.read_bytes())),
            lambda name: self.counts.update([name]),
            keys=keys,
            robot_id="r1",
            **options,
        )

    def send(self, version, sequence, *, value=1.0, robots=("r1",), key=KEY, stage="approved", **changes):
        """Announce and send weights as a learner does."""
        self.announce(version, sequence, value=value, robots=robots, key=key, stage=stage, **changes)
        for index, piece in enumerate(split(data(value), SLICE)):
            self.receiver.take(version, index, piece)

    def announce(self, version, sequence, *, value=1.0, robots=("r1",), key=KEY, stage="approved", **changes):
        """Send the manifest alone; return the weights."""
        manifest = make_manifest(data(value), version, parent="v0", stage=stage, lineage=LINEAGE)
        manifest = announced(replace(manifest, **changes), robots, sequence)
        self.receiver.begin(manifest, sign(manifest, key) if key is not None else b"", SLICE)
        return data(value)


def test_approved_weights_of_a_trusted_key_are_offered(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 7)
    assert inbox.offered == [("v1", data(1.0))]
    assert inbox.counts["weights received"] == 1


def test_without_keys_too_a_robot_takes_what_is_meant_for_it(tmp_path):
    """In simulation nothing is signed, and a canary is for one of several robots all the same."""
    inbox = Inbox(tmp_path, accept="any", keys={})
    inbox.send("v1", 7, robots=("r1", "r2"), key=None)
    assert [version for version, _ in inbox.offered] == ["v1"]
    with pytest.raises(WeightsError, match=r"meant for \['r2'\], this robot is 'r1'; the learner's weights_for lists"):
        inbox.send("v2", 8, robots=("r2",), key=None, stage="canary")
    assert inbox.counts["weights refused: other robot"] == 1


def test_an_announcement_that_is_older_than_the_newest_is_a_replay_also_after_a_restart(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 7)
    inbox.send("v2", 9, value=2.0)
    for receiver in (inbox, restarted := Inbox(tmp_path)):
        with pytest.raises(WeightsError, match="'v1': announcement 7 is not newer than 9, which this robot has taken"):
            receiver.send("v1", 7)
        assert receiver.counts["weights refused: replay or other robot"] == 1
    with pytest.raises(WeightsError, match="announcement 9 is not newer than 9"):  # another content with that number
        restarted.send("v3", 9, value=3.0)
    restarted.send("v2", 9, value=2.0)  # the newest itself is latched and comes again
    assert restarted.offered == [("v2", data(2.0))]
    restarted.send("v1", 11)  # a rollback: old weights in a new announcement
    assert restarted.offered[-1] == ("v1", data(1.0))


@pytest.mark.parametrize(
    ("how", "reason", "words"),
    [
        ({"key": None}, "signature", "the signature is missing"),
        ({"key": Ed25519PrivateKey.generate()}, "signature", "is not by a trusted key"),
        ({"robots": ("r2",)}, "replay or other robot", r"meant for \['r2'\], this robot is 'r1'"),
        ({"sequence": 0}, "replay or other robot", "no sequence number is signed"),
        ({"lineage": Lineage("x", "a", "n")}, "lineage", "they differ in root"),
        ({"lineage": Lineage("r", "x", "n")}, "lineage", "they differ in architecture"),
        ({"stage": "candidate"}, "stage", "'v1' is a candidate: refused, only approved ones are taken"),
        ({"parent": "v1"}, "ancestry", "it names itself as its parent"),
        ({"value": 0.0}, "content", "every value is 0"),
        ({"size": 1 << 40}, "size", "1099511627776 bytes, at most 1073741824 are taken"),
    ],
)
def test_what_is_not_in_order_is_refused_and_counted_by_its_reason(tmp_path, how, reason, words):
    inbox = Inbox(tmp_path)
    with pytest.raises(WeightsError, match=words):
        inbox.send("v1", **{"sequence": 7, **how})
    assert inbox.counts == {f"weights refused: {reason}": 1}
    assert not inbox.offered
    inbox.send("v2", 8, value=2.0)  # nothing stays behind
    assert inbox.offered == [("v2", data(2.0))]


def test_a_manifest_that_is_refused_ends_no_transfer(tmp_path):
    """A robot that starts while another one tries a canary hears of both before the slices of what it drives."""
    inbox = Inbox(tmp_path)
    mine = announced(make_manifest(data(1.0), "v1", parent="v0", stage="approved", lineage=LINEAGE), ("r1",), 7)
    inbox.receiver.begin(mine, sign(mine, KEY), SLICE)
    with pytest.raises(WeightsError, match=r"meant for \['r2'\]"):
        inbox.send("v2", 8, robots=("r2",), stage="canary", value=2.0)
    for index, piece in enumerate(split(data(1.0), SLICE)):
        inbox.receiver.take("v1", index, piece)
    assert inbox.offered == [("v1", data(1.0))]


@pytest.mark.parametrize("keys", [TRUSTED, {}], ids=["signed", "unsigned"])
def test_a_rollback_reaches_a_robot_that_has_the_older_weights_while_newer_ones_are_under_way(tmp_path, keys):
    inbox = Inbox(tmp_path, keys=keys)
    inbox.send("v1", 1)
    newer = inbox.announce("v2", 2, value=2.0)
    *first, last = enumerate(split(newer, SLICE))
    for index, piece in first:
        inbox.receiver.take("v2", index, piece)
    inbox.send("v1", 3)  # the learner went back
    inbox.receiver.take("v2", *last)
    assert inbox.offered == [("v1", data(1.0))] * 2  # once more: an offer of v2 might wait to be loaded
    assert (inbox.counts["weights received"], inbox.counts["weights offered again"]) == (1, 1)
    inbox.send("v2", 4, value=2.0)  # promoted after all
    assert inbox.offered[-1] == ("v2", data(2.0))


def test_a_rollback_to_weights_that_are_here_makes_the_newer_ones_an_old_announcement(tmp_path):
    """v2 was lost on its way. Somebody recorded it."""
    inbox = Inbox(tmp_path)
    inbox.send("v1", 1)
    inbox.send("v1", 3)
    for receiver in (inbox, Inbox(tmp_path)):
        with pytest.raises(WeightsError, match="'v2': announcement 2 is not newer than 3, which this robot has taken"):
            receiver.send("v2", 2, value=2.0)
    assert inbox.offered == [("v1", data(1.0))] * 2


def test_what_names_the_version_that_drives_is_checked_like_any_other(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 5)
    for how in ({"key": None}, {"robots": ("r2",)}, {"sequence": 4}, {"lineage": Lineage("x", "a", "n")}):
        with pytest.raises(WeightsError):
            inbox.send("v1", **{"sequence": 6, **how})
    assert inbox.offered == [("v1", data(1.0))]


def test_an_announcement_that_comes_again_changes_nothing(tmp_path):
    inbox = Inbox(tmp_path)
    for _ in range(3):
        inbox.send("v1", 1)
    assert inbox.offered == [("v1", data(1.0))]


@pytest.mark.parametrize("harm", [lambda file: file.unlink(), lambda file: file.write_bytes(data(5.0))])
def test_weights_that_no_longer_lie_whole_on_the_disk_are_taken_from_the_network_again(tmp_path, harm):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 1)
    (kept,) = tmp_path.glob("*.safetensors")
    harm(kept)
    inbox.send("v1", 2)
    assert inbox.offered == [("v1", data(1.0))] * 2
    assert inbox.counts["weights received"] == 2


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("here", [True, False], ids=["whose bytes are here", "whose bytes come"])
def test_a_rollback_that_a_full_disk_does_not_take_is_taken_once_there_is_room(tmp_path, monkeypatch, here):
    """Its manifest comes once, and so do its slices."""
    inbox = Inbox(tmp_path)
    inbox.send("v0", 1, value=3.0, parent="")
    if not here:
        inbox.send("v1", 2)
    before = list(inbox.offered)
    assert not inbox.receiver.waits
    with monkeypatch.context() as disk:
        disk.setattr(announcements, "write_atomic", full)
        with pytest.raises(OSError, match="No space left"):
            inbox.announce("v0", 3, value=3.0, parent="")
        for index, piece in enumerate(split(data(3.0), SLICE)):
            with nullcontext() if here or index < len(data(3.0)) // SLICE else pytest.raises(OSError):
                inbox.receiver.take("v0", index, piece)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                inbox.receiver.go_on()
        with pytest.raises(WeightsError, match="announcement 2 is not newer than 3"):  # somebody has recorded it
            inbox.announce("v1", 2, value=2.0)
        assert inbox.offered == before and inbox.receiver.waits
    inbox.receiver.go_on()
    assert inbox.offered == [*before, ("v0", data(3.0))] and not inbox.receiver.waits
    with pytest.raises(WeightsError, match="announcement 2 is not newer than 3"):
        Inbox(tmp_path).send("v1", 2, value=2.0)
    inbox.receiver.go_on()
    assert len(inbox.offered) == len(before) + 1


@pytest.mark.parametrize("keys", [TRUSTED, {}], ids=["signed", "unsigned"])
def test_weights_that_a_full_disk_does_not_take_are_kept_once_there_is_room(tmp_path, monkeypatch, keys):
    inbox = Inbox(tmp_path, keys=keys)
    inbox.send("v0", 1, parent="")
    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(type(tmp_path), "replace", full)  # where half of it has been written
        inbox.send("v1", 2, value=2.0)
    assert [path.name for path in tmp_path.glob("*.part")] == []
    assert inbox.receiver.waits and len(inbox.offered) == 1
    inbox.receiver.go_on()
    assert inbox.offered[1:] == [("v1", data(2.0))] and not inbox.receiver.waits
    assert len([*tmp_path.glob("*.safetensors")]) == 1


def test_newer_weights_take_the_place_of_those_that_a_full_disk_did_not_take(tmp_path, monkeypatch):
    inbox = Inbox(tmp_path)
    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(type(tmp_path), "write_bytes", full)
        inbox.send("v1", 2)
    inbox.announce("v2", 3, value=2.0)
    inbox.receiver.go_on()
    assert not inbox.offered  # v1 is no more to drive
    for index, piece in enumerate(split(data(2.0), SLICE)):
        inbox.receiver.take("v2", index, piece)
    assert inbox.offered == [("v2", data(2.0))]


def test_old_weights_that_cannot_be_deleted_do_not_keep_the_new_ones_from_driving(tmp_path, monkeypatch):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 1)
    with monkeypatch.context() as disk:
        disk.setattr(type(tmp_path), "unlink", full)
        inbox.send("v2", 2, value=2.0)
    assert inbox.offered[-1] == ("v2", data(2.0))


def test_an_announcement_that_cannot_be_checked_now_is_checked_later(tmp_path, monkeypatch):
    inbox = Inbox(tmp_path)
    inbox.send("v1", 1)
    with monkeypatch.context() as disk:
        disk.setattr(type(tmp_path), "read_text", lambda *_: (_ for _ in ()).throw(OSError("too many open files")))
        for version, sequence in (("v2", 3), ("old", 2)):
            with pytest.raises(OSError, match="too many"):
                inbox.announce(version, sequence, value=2.0)
        for index, piece in enumerate(split(data(2.0), SLICE)):
            inbox.receiver.take("v2", index, piece)
        with pytest.raises(OSError, match="too many"):
            inbox.receiver.go_on()
    inbox.receiver.go_on()
    assert inbox.offered[-1] == ("v2", data(2.0)) and not inbox.receiver.waits


def test_a_damaged_log_of_announcements_lets_no_old_weights_in(tmp_path):
    (tmp_path / "announced.json").write_text("{")
    with pytest.raises(WeightsError, match=r"announced.json cannot be read"):
        Inbox(tmp_path).send("v1", 7)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_log_of_announcements_that_somebody_deletes_is_written_again(tmp_path, restarted):
    inbox = Inbox(tmp_path)
    inbox.send("v2", 9, value=2.0)
    if restarted:
        inbox = Inbox(tmp_path)  # nothing was announced to it yet
    assert not inbox.receiver.waits
    (tmp_path / "announced.json").unlink()
    with pytest.raises(WeightsError, match="announcement 7 is not newer than 9"):
        inbox.send("v1", 7)
    assert inbox.receiver.waits
    inbox.receiver.go_on()
    assert not inbox.receiver.waits
    with pytest.raises(WeightsError, match="announcement 7 is not newer than 9"):
        Inbox(tmp_path).send("v1", 7)


def test_early_slices_are_bounded_by_their_bytes_and_dropped_with_the_next_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EARLY_MAX", 3 * module.SLICE_MAX)
    inbox = Inbox(tmp_path, "any", {})
    piece = bytes(module.SLICE_MAX)
    for index in range(10):
        inbox.receiver.take("nobody's", index, piece)
        assert inbox.receiver.early_bytes <= 3 * module.SLICE_MAX
    assert inbox.counts["weights slices without a manifest dropped"] == 7
    with pytest.raises(WeightsError, match="slice of 4194305 bytes, expected at most 4194304"):
        inbox.receiver.take("nobody's", 0, piece + b"x")
    early = list(split(data(1.0), SLICE))
    inbox.receiver.take("v1", 0, early[0])
    inbox.send("v1", 1, key=None, stage="candidate")
    assert (inbox.offered, inbox.receiver.early_bytes) == ([("v1", data(1.0))], 0)


def test_a_file_in_too_many_slices_is_refused(tmp_path):
    inbox = Inbox(tmp_path, "any", {})
    manifest = replace(make_manifest(data(1.0), "v1", lineage=LINEAGE), size=1 << 20)
    with pytest.raises(WeightsError, match="slices of 1 bytes, expected at most 65536"):
        inbox.receiver.begin(manifest, b"", 1)
    with pytest.raises(InvalidInputError, match="chunk_size"):
        inbox.receiver.begin(manifest, b"", 0)


def test_slices_that_do_not_come_are_named_until_they_are_sent_again(tmp_path):
    now = [0.0]
    inbox = Inbox(tmp_path, clock=lambda: now[0])
    pieces = list(enumerate(split(inbox.announce("v1", 1), SLICE)))
    now[0] = 5.0
    inbox.receiver.take("v1", *pieces[1])
    now[0] += module.STALLED_S - 1.0
    assert not inbox.receiver.waits
    inbox.receiver.go_on()
    now[0] += 2.0
    assert inbox.receiver.waits
    with pytest.raises(WeightsError) as told:
        inbox.receiver.go_on()
    count = len(pieces)
    assert str(told.value) == (
        f"weights 'v1': {count - 1} of {count} slices are missing; announced 16 s ago, none has come for 11 s"
    )
    for piece in pieces:
        inbox.receiver.take("v1", *piece)
    assert inbox.offered == [("v1", data(1.0))] and not inbox.receiver.waits
    inbox.receiver.go_on()


def test_weights_that_came_damaged_are_taken_when_their_slices_come_again(tmp_path):
    inbox = Inbox(tmp_path)
    *first, last = enumerate(split(inbox.announce("v1", 1), SLICE))
    for piece in first:
        inbox.receiver.take("v1", *piece)
    with pytest.raises(WeightsError, match="sha256"):
        inbox.receiver.take("v1", last[0], bytes(len(last[1])))
    for piece in (*first, last):
        inbox.receiver.take("v1", *piece)
    assert inbox.offered == [("v1", data(1.0))]


def test_an_unknown_word_for_what_is_accepted_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown value of accept 'all'"):
        Inbox(tmp_path, "all")


def test_a_learner_s_numbers_grow_over_restarts_and_a_clock_that_goes_back(tmp_path):
    path = tmp_path / "announced.json"
    assert AnnouncementCounter(path).next(1000) == 1000
    assert AnnouncementCounter(path).next(5) == 1001
    assert json.loads(path.read_text()) == {"sequence": 1001}
    counter = AnnouncementCounter(path)
    assert counter.next(5) == 1002
    path.unlink()
    assert counter.next(5) == 1003
