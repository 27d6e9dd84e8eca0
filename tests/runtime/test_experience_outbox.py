"""Recorded steps reach a learner once they are durable, and again until it has them. The test turns the clock."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from engram.core.errors import StoreLockedError
from engram.core.types import ActionChunk, EpisodeStatus, Observation
from engram.learning.experience.spool import Spool, SpoolConfig
from engram.learning.experience.spool_stream import Gone
from engram.runtime.experience_outbox import BATCH, ExperienceOutbox, open_spool_or_report
from engram.runtime.health import ERROR, Health
from engram.runtime.worker import Worker
from tests.core.frames import camera_frame
from tests.core.gantry import GANTRY, GantryKinematics, joints
from tests.learning.transitions import OWN

STEP_NS = 100_000_000


class Desk:
    """A robot with a spool, and a link on which the test listens."""

    def __init__(self, folder, **config):
        self.now, self.listening, self.sent, self.closed = 100.0, 1, [], False
        self.health, self.reported = Health(), []
        self.thread = Worker("experience", lambda job: job(), capacity=4096, on_error=self.reported.append)
        self.spool = Spool(folder, "r1", SpoolConfig(**config))
        self.outbox = ExperienceOutbox(
            self.spool, GantryKinematics(), GANTRY, self.thread, self, self.health,
            lambda name, error: self.reported.append(f"{name}: {error}"), lambda: self.now,
        )  # fmt: skip

    def listeners(self):
        return self.listening

    def send(self, what):
        self.sent.append(what)

    def close(self):
        self.closed = True

    def act(self, steps: int, first: int = 0):
        """Take ``steps`` control steps of one episode; each is complete when the next one begins."""
        for step in range(first, first + steps + 1):
            stamp_ns = (1 + step) * STEP_NS
            status = EpisodeStatus(stamp_ns, "r1", 1, "reach", "go", step, "running")
            observation = Observation(stamp_ns, {"front": camera_frame(stamp_ns)}, joints(stamp_ns=stamp_ns))
            self.outbox.observed(observation, status, "go")
            row = np.zeros((1, 7))
            self.outbox.chunk(ActionChunk(stamp_ns, 1, "ee_delta", row, 0.1, 1, "v1"), OWN)
            self.outbox.executed(ActionChunk(stamp_ns, 1, "ee_delta", row, 0.1, 1, "v1"))

    def look(self) -> list[int]:
        """Let the outbox send; return the sequences of what came."""
        before = len(self.sent)
        self.outbox.send()
        self.settle()
        return [one.sequence for one in self.sent[before:]]

    def settle(self):
        done = threading.Event()
        self.thread.put(done.set, keep=True)
        assert done.wait(60)

    def values(self):
        return self.health.condition("active").values


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.outbox.close()
    assert made.closed


def test_what_was_recorded_is_sent_and_sent_again_until_it_is_acknowledged(desk):
    desk.act(3)
    assert desk.look() == [1, 2, 3]
    assert desk.look() == []
    desk.now += 2.5  # the spool's resend_s is 2 s
    assert desk.look() == [1, 2, 3]
    desk.outbox.received("r1", desk.spool.boot_id, 2)
    desk.settle()
    desk.now += 2.5
    assert desk.look() == [2, 3]
    assert desk.sent[-2] == Gone("r1", desk.spool.boot_id, 2)  # each round says first what is gone
    desk.outbox.received("r1", desk.spool.boot_id, 3)
    desk.settle()
    desk.now += 2.5
    assert desk.look() == [] and len(desk.spool) == 0
    assert desk.values()["experience"] == "3"


def test_where_nobody_listens_it_is_made_durable_all_the_same(desk):
    desk.listening = 0
    desk.act(2)
    assert desk.look() == [] and desk.spool.durable == 2
    desk.look()  # shows what waits before it commits
    assert desk.values()["experience waiting"] == "2"
    desk.listening = 1
    assert desk.look() == [1, 2]


def test_sixteen_go_at_once(desk):
    desk.act(20)
    assert [len(desk.look()) for _ in range(3)] == [BATCH, 20 - BATCH, 0]


def test_a_learner_that_begins_late_hears_first_what_is_gone(tmp_path):
    first = Desk(tmp_path)
    first.act(3)
    first.look()
    first.outbox.received("r1", first.spool.boot_id, 2)
    first.settle()
    first.outbox.close()
    second = Desk(tmp_path)
    assert second.look() == [2, 3]
    assert second.sent[0] == Gone("r1", first.spool.boot_id, 2)
    second.outbox.close()


def test_a_full_spool_leaves_a_gap_that_is_counted_and_named(tmp_path):
    desk = Desk(tmp_path, capacity=2)
    desk.act(3)
    assert desk.look() == [1, 2]
    assert desk.values()["experience drops"] == "1"
    told = desk.health.condition("active").message
    assert "experience: the spool is full: 2 transitions wait; is a learner reachable?" in told
    desk.outbox.close()


@pytest.mark.parametrize(("listening", "listens"), [(0, "no"), (1, "a")])
def test_experience_that_nobody_acknowledges_for_half_a_minute_is_a_problem(desk, listening, listens):
    desk.listening = listening
    desk.act(1)
    desk.look()
    desk.look()
    desk.now += 31.0
    desk.look()
    message = desk.health.condition("active").message
    assert message.startswith("experience: 1 transitions wait; for 31 s nothing was acknowledged")
    assert message.endswith(f"; {listens} learner listens")


def test_receipts_of_other_robots_and_of_what_never_was_change_nothing(desk):
    desk.act(1)
    desk.look()
    desk.outbox.received("r2", desk.spool.boot_id, 1)
    desk.settle()
    assert len(desk.spool) == 1 and not desk.reported
    desk.outbox.received("r1", desk.spool.boot_id, 9)
    desk.settle()
    assert len(desk.spool) == 1
    assert desk.reported[0].startswith(f"experience/ack: ack 9 of r1/{desk.spool.boot_id}: only 1..1 exist")


def test_a_damaged_spool_is_a_lasting_error_and_the_robot_records_on(tmp_path):
    (tmp_path / "spool.sqlite").write_bytes(bytes(100))
    health = Health()
    spool = open_spool_or_report(tmp_path, "r1", SpoolConfig(), health)
    spool.close()
    told = health.condition("active")
    assert told.level == ERROR and "spool set aside: " in told.message and "file is not a database" in told.message
    again = open_spool_or_report(tmp_path, "r1", SpoolConfig(), health)
    again.close()
    assert health.condition("active").message == told.message  # until the process ends


def test_where_the_disk_refuses_a_spool_the_robot_works_on_and_nothing_is_recorded(tmp_path):
    (tmp_path / "file").write_text("")
    health = Health()
    assert open_spool_or_report(tmp_path / "file", "r1", SpoolConfig(), health) is None
    told = health.condition("active")
    assert told.level == ERROR and told.message.startswith("spool: nothing is recorded: ")
    (tmp_path / "file").unlink()
    open_spool_or_report(tmp_path / "file", "r1", SpoolConfig(), health).close()
    assert health.condition("active").level == "ok"


def test_two_processes_that_record_for_one_robot_are_still_refused(tmp_path):
    spool = Spool(tmp_path, "r1")
    with pytest.raises(StoreLockedError, match="already being written by process"):
        open_spool_or_report(tmp_path, "r1", SpoolConfig(), Health())
    spool.close()


def test_a_disk_that_refuses_the_last_steps_does_not_keep_the_node_from_stopping(tmp_path):
    desk = Desk(tmp_path / "spool")
    desk.act(2)
    desk.settle()
    (tmp_path / "spool").rename(tmp_path / "elsewhere")
    desk.outbox.close()
    assert desk.closed and "it was there when it was opened" in desk.reported[0]
