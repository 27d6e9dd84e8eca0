"""Experience is stored and acknowledged, candidates are made, announced and driven, and an approval lasts."""

import errno
import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

from engram.core.durable import seal
from engram.core.errors import StoreError, UnknownNameError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import EXPLORED, NOBODY, UNJUDGED, ActionSource
from engram.learning.experience.receiver import Receipt
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner_config import LearnerConfig
from engram.learning.practised import FOUND, Findings, FoundCorrection, Practised
from engram.learning.progress import read_weights, saved_state
from engram.learning.replay.buffer import ReplayConfig
from engram.learning.weights.announcements import AnnouncementCounter
from engram.learning.weights.gate_verdict import GateVerdict
from engram.learning.weights.keys import fingerprint
from engram.learning.weights.library import FILE, WeightsLibrary
from engram.learning.weights.manifest import check_signature
from engram.learning.weights.resends import FIRST_S
from engram.learning.workspace import PRACTICE, TRAINING, open_workspace
from engram.runtime.curve_note import CURVE
from engram.runtime.health import Health
from engram.runtime.learner_session import BURST, SHOWN, LearnerSession
from engram.runtime.parameters.learner import LearnerNodeConfig
from engram.runtime.promotions import NotYetError
from tests.learning.transitions import episode
from tests.ros.policies import LINEAGE, OTHER, OneWeight

OWN = ActionSource("eyes", LINEAGE.id)
PACE = LearnerConfig(first_episodes=1, updates_per_episode=20, candidate_updates=5, imitate_own=True)


class Desk:
    """A session in a folder; notes what it tells the robots."""

    def __init__(self, folder, key=None, proof=None, algorithm="Counting", verdicts=None, pace=PACE, **config):
        self.store = ExperienceStore(folder / "experience")
        self.robot = next(iter(config.get("weights_for", ())), "panda")
        self.health, self.receipts, self.announced, self.sent, self.now = Health(), [], [], [], 0.0
        workspace = open_workspace(folder, self.store, OneWeight(), f"tests.ros.trainers:{algorithm}", pace)
        self.session = LearnerSession(
            LearnerNodeConfig(**{"robot_id": "panda", "promote": "manual"} | config),
            *(self.store, workspace, key, self, self.health, lambda: 10**18),
            proof=proof,
            verdicts=verdicts,
            clock=lambda: self.now,
        )

    def acknowledge(self, receipt):
        self.receipts.append(receipt)

    def announce(self, data, manifest, signature):
        self.announced.append((data, manifest, signature))

    def send(self, data, manifest):
        assert data == self.session.library.get(manifest.version)[0]
        self.sent.append(manifest.version)

    @property
    def versions(self):
        return [manifest.version for _, manifest, _ in self.announced]

    def learn(self) -> str:
        """Train until there is a candidate; return its version."""
        for one in episode(0, source=OWN):
            self.session.take(one)
        self.session.commit()
        self.session.train(lambda: True)
        return self.versions[-1]

    def promoted(self) -> str:
        """Let a new candidate drive; return its version."""
        self.session.promote(version := self.learn(), "please")
        return version

    def shown(self):
        self.session.show()
        return self.health.condition("active").values

    def close(self):
        self.session.end()
        self.store.close()
        self.session.library.close()


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.close()


def test_what_is_stored_is_acknowledged_and_counted(desk):
    desk.session.commit()
    assert not desk.receipts
    for one in (Gone("panda", "boot", 4), *episode(1)):
        desk.session.take(one)
    desk.session.commit()
    assert desk.receipts == [Receipt("panda", "boot", 8)]
    assert (desk.shown()["stored transitions"], desk.shown()["transitions gone before they came"]) == ("4", "4")
    desk.session.commit()
    assert len(desk.receipts) == 1


def test_an_episode_without_an_end_is_counted_and_named(desk):
    for one in (*episode(0, source=OWN)[:-1], *episode(1, source=OWN)):
        desk.session.take(one)
    desk.session.commit()
    assert desk.shown()["episodes that are not whole"] == "1, panda/boot/0 has no end"
    desk.session.take(episode(0, source=OWN)[-1])
    desk.session.commit()
    assert desk.shown()["episodes that are not whole"] == "0"


def test_how_far_behind_the_weights_of_each_robot_are_is_shown(tmp_path):
    desk = Desk(tmp_path, pace=replace(PACE, most_behind=3))
    desk.session.promote(desk.learn(), "test")
    for robot, version in (("r1", desk.session.driving), ("r2", "v0")):
        for one in episode(1, robot=robot, first=1, source=OWN):
            desk.session.take(replace(one, policy_version=version))
    desk.session.commit()
    desk.session.train(lambda: False)
    shown, version = desk.shown(), desk.session.driving
    assert shown["updates behind what drives"].endswith("r2 10, r1 0")
    assert shown["episodes not learnt from: weights too far behind"] == "1"
    assert shown["newest episode of weights too far behind"] == (
        f"r2: v0 is 10 updates behind {version}, most_behind is 3"
    )
    desk.close()


def test_what_has_changed_since_the_last_start_is_shown(tmp_path):
    first = Desk(tmp_path)
    first.learn()
    first.close()
    (tmp_path / "experience").rename(tmp_path / "moved")
    again = Desk(tmp_path, pace=replace(PACE, batch_size=8))
    shown = again.shown()
    assert shown["changed since the last start: settings"] == "batch_size 8, was 32"
    assert shown["changed since the last start: experience"].startswith("another store than before: it is looked at")
    again.session.train(lambda: True)  # there is nothing to imitate
    assert again.health.counts["updates"] == 0 and "problem" not in again.health.condition("active").message
    again.close()


def test_an_id_that_comes_again_with_another_content_is_named(desk):
    first, other = episode(0), episode(7, first=1)
    for one in (*first, other[0]):
        desk.session.take(one)
    desk.session.commit()
    assert desk.health.counts["experience taken"] == 1
    assert desk.health.condition("active").message.startswith("experience taken: ")


def test_a_burst_of_updates_makes_a_candidate_that_nobody_drives_unasked(desk):
    version = desk.learn()
    assert desk.health.counts["updates"] == BURST
    assert desk.versions == [version] and desk.health.counts["candidates"] == 1
    data, manifest, signature = desk.announced[0]
    assert data == b""  # in simulation whoever gets it would drive it
    kept = desk.session.library.get(version)[0]
    np.testing.assert_array_equal(load(kept)["count"], 1.0 + BURST)  # it began at one; each update adds one
    assert (manifest.stage, signature) == ("candidate", b"")
    assert manifest.config["announced"] == {"sequence": 10**18, "robots": ["panda"]}
    assert (desk.session.library.current, desk.shown()["driving version"]) == ("v0", "v0")


def test_who_has_nothing_to_learn_from_makes_no_candidate_and_says_so(tmp_path):
    desk = Desk(tmp_path, pace=replace(PACE, imitate_own=False))
    assert desk.shown()["trains"] == "nothing: no success of its own has come in yet"

    def succeed(first, **how):
        how = {"source": OWN} | how
        for one in episode(first):
            own = {"boot_id": f"b{first}", "sequence": one.step + 1, "policy_version": "v0"}
            desk.session.take(replace(one, **own, **how))
        desk.session.commit()
        desk.session.train(lambda: True)

    succeed(1, author="")
    succeed(2, author="")
    assert not desk.versions and desk.session.learner.metrics["updates"] == 0
    assert desk.shown()["trains"].startswith("nothing: 2 successes of the policy alone, without noise; exploration, a")
    assert desk.shown()["episodes not learnt from: the policy alone, without noise"] == "2"
    assert desk.session.live.of("v0") == {"reach": "11"}  # it counts all the same for what drives
    succeed(3, author="human:ann")
    assert len(desk.versions) == 1 and desk.shown()["trains"].startswith("on 1 successes, 2 of the policy alone")
    succeed(4, author="", source=replace(OWN, ablation=EXPLORED))
    assert desk.session.learner.metrics["successes"] == 2
    desk.close()


def test_training_stops_when_it_may_not_go_on(desk):
    may = iter([True, True, False])
    for one in episode(0, source=OWN):
        desk.session.take(one)
    desk.session.commit()
    desk.session.train(lambda: next(may))
    assert desk.session.learner.metrics["updates"] == 2


def test_the_training_state_is_saved_after_so_many_updates(tmp_path):
    desk = Desk(tmp_path, save_every=2 * BURST)
    saved = tmp_path / "training" / "current"
    desk.learn()
    assert not saved.exists()
    desk.session.train(lambda: True)
    assert saved.exists()
    desk.store.close()


def test_in_simulation_a_candidate_drives_at_once_until_the_learner_starts_again(tmp_path):
    first = Desk(tmp_path, promote="auto")
    version = first.learn()
    assert first.session.library.current == first.session.learner.metrics["parent"] == version
    first.close()
    again = Desk(tmp_path, promote="auto")
    again.session.begin()
    assert again.versions == ["v0"]  # robots that ran on leave the candidate
    again.close()


def test_an_approval_lasts_and_can_be_taken_back(tmp_path):
    first = Desk(tmp_path)
    version = first.learn()
    first.session.promote(version, "looks good")
    assert (first.versions[-1], first.announced[-1][1].stage) == (version, "approved")
    with pytest.raises(UnknownNameError, match="unknown weights version 'nonsense'"):
        first.session.promote("nonsense", "")
    first.close()
    again = Desk(tmp_path)
    again.session.begin()
    assert again.versions == [version]
    assert again.session.roll_back("", "worse") == "v0"
    assert again.versions == [version, "v0"]
    assert again.session.library.current == again.session.learner.metrics["parent"] == "v0"
    again.close()


def test_weights_that_drove_from_the_beginning_need_no_announcement(desk):
    desk.session.begin()
    assert not desk.announced


def test_signed_weights_name_the_robots_they_are_for(tmp_path):
    key = Ed25519PrivateKey.generate()
    desk = Desk(tmp_path, key, weights_for=("r2", "r3"))
    desk.learn()
    _, manifest, signature = desk.announced[0]
    assert manifest.config["announced"]["robots"] == ["r2", "r3"]
    name = fingerprint(key.public_key())
    assert check_signature(manifest, signature, {name: key.public_key()}) == name
    desk.close()


def test_behind_the_gate_only_what_was_proven_against_what_drives_is_promoted(tmp_path):
    asked, answers = [], []

    def proof(candidate, approved):
        asked.append((candidate, approved))
        if not answers:
            raise WeightsError("the gate has not judged it")
        return answers.pop()

    desk = Desk(tmp_path, proof=proof, promote="gated")
    version = desk.learn()
    library = desk.session.library
    assert library.current == "v0"  # nothing drives unasked
    assert [(data, manifest.stage) for data, manifest, _ in desk.announced] == [(b"", "candidate")]
    with pytest.raises(WeightsError, match="the gate has not judged it"):
        desk.session.promote(version, "please")
    assert (library.current, library.get(version)[1].stage) == ("v0", "candidate")
    answers.append("the gate: not worse")
    assert desk.session.promote("", "please") == f"{version} drives now; the gate: not worse"
    assert (library.current, desk.announced[-1][1].stage) == (version, "approved")
    assert desk.announced[-1][0] == library.get(version)[0]
    assert library.get(version)[1].metrics["approved_because"] == "please; the gate: not worse"
    assert asked == [(library.get(version)[1].sha256, library.get("v0")[1].sha256)] * 2
    desk.close()


def test_behind_the_gate_nothing_is_promoted_where_no_verdicts_are_read(tmp_path):
    desk = Desk(tmp_path, promote="gated")
    with pytest.raises(WeightsError, match="reads no verdicts of the gate"):
        desk.session.promote(desk.learn(), "please")
    desk.close()


def drive(desk, version, outcomes, first, task="reach", helped=False):
    """Let the robots have one episode a character of ``outcomes`` with ``version``."""
    for i, outcome in enumerate(outcomes):
        for one in episode(first + i, robot=desk.robot, success=outcome == "1", source=OWN, task=task):
            own = {"boot_id": f"b{first + i}", "sequence": one.step + 1, "policy_version": version}
            desk.session.take(replace(one, author="human:ann" * helped, **own))
    desk.session.commit()
    desk.session.train(lambda: False)


def test_goals_that_were_called_off_are_no_failures_of_the_version_that_drove(tmp_path):
    desk = Desk(tmp_path, false_rollback=0.05)
    drive(desk, "v0", "1" * 20, 100)
    version = desk.learn()
    desk.session.promote(version, "please")
    for i in range(20):
        *steps, end = episode(200 + i, success=False, truncated=True, source=OWN)
        for one in (*steps, replace(end, reward_source=UNJUDGED)):
            desk.session.take(replace(one, boot_id=f"b{i}", sequence=one.step + 1, policy_version=version))
    desk.session.commit()
    desk.session.train(lambda: False)
    assert desk.session.library.current == version
    assert not desk.session.live.of(version)
    drive(desk, version, "0" * 20, 300)  # these are
    assert desk.session.library.current == "v0"
    desk.close()


def test_a_record_that_cannot_be_read_stops_neither_watch_nor_training(tmp_path):
    desk = Desk(tmp_path)
    desk.learn()
    for boot in ("b0", "b1"):
        for one in episode(int(boot[1]), source=OWN):
            told = {"boot_id": boot, "sequence": one.step + 1, "policy_version": "v0"}
            desk.session.take(replace(one, author="", **told))
    desk.session.commit()
    with closing(sqlite3.connect(tmp_path / "experience" / "experience.sqlite")) as file, file:
        file.execute("UPDATE transitions SET payload = x'00' WHERE boot_id IN ('boot', 'b0')")
    desk.session.train(lambda: False)
    assert desk.session.live.of("v0")["reach"] == "1"  # the one that can be read
    assert desk.health.counts["episodes unreadable"] == 1
    drive(desk, "v0", "0", 300)  # and it goes on
    assert desk.session.live.of("v0")["reach"] == "10"
    desk.close()
    again = Desk(tmp_path)  # what was learnt from it stays, though it cannot be replayed
    assert again.session.learner.metrics["updates"] and not list(tmp_path.glob("set-aside*"))
    again.close()


def test_a_damaged_entry_in_the_list_of_episodes_stops_neither_watch_nor_training(tmp_path):
    desk = Desk(tmp_path)
    drive(desk, "v0", "1" * 20, 100)
    version = desk.learn()
    desk.session.promote(version, "please")
    file = tmp_path / "experience" / "experience.sqlite"
    for first in (200, 300):  # one is followed by others, the other one is the newest at first
        drive(desk, version, "0" * 4, first)
        for one in episode(first + 50, source=OWN):
            told = {"boot_id": f"b{first}+", "sequence": one.step + 1, "policy_version": version}
            desk.session.take(replace(one, **told))
        desk.session.commit()
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute(
                "UPDATE episodes SET sources = replace(sources, 'policy', 'policx') WHERE number = "
                "(SELECT max(number) FROM episodes)"
            )
        for _ in range(3):
            desk.session.train(lambda: False)
    assert desk.health.counts["episodes unreadable"] == 2
    assert "the entry of episode" in desk.health.condition("active").message
    drive(desk, version, "0" * 4, 400)
    assert desk.session.library.current == "v0" and desk.health.counts["rollbacks"] == 1
    assert desk.session.live.of(version)["reach"] == "0" * 12
    desk.session.train(lambda: True)
    assert desk.session.learner.metrics["episodes"] == 20 + 1 + 12
    desk.close()


def fails(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    ("place", "name", "error", "told"),
    [
        ("store", "catalogue", StoreError("a page is gone"), "drives: a page is gone; new episodes: a page is gone"),
        ("library", "roll_back", WeightsError("v0 is damaged"), "watch over what drives: v0 is damaged"),
        ("_practised", "findings", TypeError("no number"), "correction that practice found: TypeError: no number"),
        ("learner", "poll", RuntimeError("a bug"), "new episodes: RuntimeError: a bug"),
        ("learner", "step", ValueError("a bug"), "updates: ValueError: a bug"),
    ],
)
def test_what_fails_keeps_nothing_else_from_being_done_and_is_shown(tmp_path, monkeypatch, place, name, error, told):
    desk = Desk(tmp_path, algorithm="Corrected")
    drive(desk, "v0", "1" * 20, 100)
    version = desk.learn()
    desk.session.promote(version, "please")
    before = weight(desk), desk.session.learner.metrics["updates"], len(desk.versions)
    practised(tmp_path)
    for i in range(20):
        for one in episode(200 + i, success=False, source=OWN):
            own = {"boot_id": f"b{200 + i}", "sequence": one.step + 1, "policy_version": version}
            desk.session.take(replace(one, **own))
    desk.session.commit()
    with monkeypatch.context() as patch, pytest.raises(type(error), match=str(error)):
        patch.setattr(desk.store if place == "store" else getattr(desk.session, place), name, fails(error))
        desk.session.train(lambda: True)
    assert told in desk.health.condition("active").message
    rolled_back = name not in ("catalogue", "roll_back")
    assert desk.session.library.current == ("v0" if rolled_back else version)
    assert (weight(desk) != before[0]) and desk.session.learner.metrics["corrections"] == (name != "findings")
    assert (desk.session.learner.metrics["updates"] > before[1] + 1) == (name != "step")
    desk.session.train(lambda: True)  # it is made good for, with no new episode
    assert desk.session.library.current == "v0" and desk.session.learner.metrics["corrections"] == 1
    desk.close()


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch):
    """A disk that can be full, and have room again: then an announcement gets its number."""

    class Disk:
        def fill(self):
            monkeypatch.setattr(AnnouncementCounter, "next", fails(FULL))

        make_room = monkeypatch.undo

    return Disk()


def told(desk):
    """Return what was announced: version, stage, whether with weights."""
    return [(manifest.version, manifest.stage, bool(data)) for data, manifest, _ in desk.announced]


def test_a_rollback_that_a_full_disk_keeps_back_is_announced_once_there_is_room(tmp_path, disk):
    desk = Desk(tmp_path)
    version = desk.learn()
    drive(desk, "v0", "1" * 20, 100)
    desk.session.promote(version, "please")
    disk.fill()
    drive(desk, version, "0" * 20, 200)
    assert desk.session.library.current == desk.session.learner.metrics["parent"] == "v0"
    assert desk.versions[-1] == version  # the robots still drive it
    for _ in range(2):
        desk.session.train(lambda: False)
        assert "announcement: not announced yet, which is tried again: v0 (" in desk.health.condition("active").message
    disk.make_room()
    desk.session.train(lambda: False)
    assert told(desk)[-1] == ("v0", "approved", True) and desk.announced[-1][0] == desk.session.library.get("v0")[0]
    assert "announce" not in desk.health.condition("active").message and desk.session.unannounced == ""
    said = len(desk.announced)
    desk.session.train(lambda: False)
    assert len(desk.announced) == said
    desk.close()


def test_a_promotion_is_accepted_and_says_so_where_the_disk_is_too_full_to_announce_it(tmp_path, disk):
    desk = Desk(tmp_path)
    version = desk.learn()
    disk.fill()
    said = desk.session.promote(version, "please")
    assert said.startswith(f"{version} drives now; no gate has judged it; not announced yet, which is tried again: ")
    assert "No space left on device" in said
    assert desk.session.library.current == desk.session.learner.metrics["parent"] == version
    disk.make_room()
    desk.session.train(lambda: False)
    assert told(desk)[-1] == (version, "approved", True)
    desk.close()


def test_a_canary_for_which_no_robot_can_be_found_now_is_announced_later(tmp_path, monkeypatch):
    """Asked for it again, as after an error, the learner would let all robots drive it."""
    desk = Desk(tmp_path, canary_episodes=4)
    version = desk.learn()
    of_robot(desk, "arm", "v0", "11", 100)
    approve = desk.session.library.approve

    def approve_and_fail(*args, **how):
        monkeypatch.setattr(desk.store, "robots", fails(StoreError("a page is gone")))
        return approve(*args, **how)

    monkeypatch.setattr(desk.session.library, "approve", approve_and_fail)
    said = desk.session.promote(version, "please")
    assert said.endswith(f"alone tries it first; not announced yet, which is tried again: {version} (a page is gone)")
    monkeypatch.undo()
    desk.session.train(lambda: False)
    assert told(desk)[-1] == (version, "canary", True)
    desk.close()


def test_candidates_and_rejections_are_announced_once_there_is_room(tmp_path, disk):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept)
    version = desk.learn()
    desk.announced.clear()
    disk.fill()
    kept.said[sha(desk, version)] = WORSE
    desk.session.train(lambda: False)
    assert desk.session.library.stage(version) == "rejected"
    kept.said.clear()
    more(desk, 5)
    made = desk.session.library.newest()
    assert made not in ("", version) and not desk.announced
    disk.make_room()
    desk.session.train(lambda: False)
    assert told(desk)[0] == (version, "rejected", False) and told(desk)[-1] == (made, "candidate", False)
    desk.close()


def test_of_what_was_to_drive_only_the_newest_is_announced_later(tmp_path, disk):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    drive(desk, "v0", "1", 100)
    version = desk.learn()
    desk.session.promote(version, "please")
    desk.announced.clear()
    disk.fill()
    desk.session.roll_back("", "worse")
    desk.session.promote(version, "again")
    desk.session.roll_back("", "worse")
    desk.session.promote(version, "once more")
    assert not desk.announced
    disk.make_room()
    desk.session.train(lambda: False)
    assert told(desk) == [("v0", "approved", True), (version, "canary", True)]  # the other robots go on with v0
    assert [one.config["announced"]["robots"] for _, one, _ in desk.announced] == [["r1", "r2"], ["r1"]]
    desk.announced.clear()
    disk.fill()
    desk.session.roll_back("", "worse")
    desk.session.promote(version, "again")
    desk.session.roll_back("", "worse")
    disk.make_room()
    desk.session.train(lambda: False)
    assert told(desk) == [("v0", "approved", True)]
    desk.close()


def test_a_learner_that_ended_before_it_could_announce_a_rollback_does_so_at_its_next_start(tmp_path, disk):
    desk = Desk(tmp_path)
    version = desk.learn()
    desk.session.promote(version, "please")
    disk.fill()
    desk.session.roll_back("", "worse")
    desk.close()
    disk.make_room()
    again = Desk(tmp_path)
    again.session.begin()
    assert told(again) == [("v0", "approved", True)]
    again.close()


def test_it_tells_the_robots_that_try_no_canary_of_that_rollback_too(tmp_path, disk):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    version = desk.learn()
    for _ in range(2):
        desk.session.promote(version, "please")  # the second time for all
    disk.fill()
    desk.session.roll_back("", "worse")
    more(desk, 5)
    newer = desk.session.library.newest()
    desk.session.promote(newer, "please")
    desk.close()
    disk.make_room()
    again = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    again.session.begin()
    assert told(again) == [("v0", "approved", True), (newer, "canary", True)]
    again.close()


def test_earlier_experiments_are_told_apart_from_the_robots_experience(tmp_path):
    before = ExperienceStore(tmp_path / "before")
    before.append(episode(0, source=OWN))
    before.append(episode(1, source=ActionSource("stranger", "other")))
    before.commit()
    before.close()
    desk = Desk(tmp_path / "now", pace=replace(PACE, replay=ReplayConfig(earlier=(str(tmp_path / "before"),))))
    assert desk.shown()["learner earlier_episodes"] == "1"
    assert desk.shown()["episodes not learnt from: other lineage, in earlier experiments"] == "1"
    assert "episodes not learnt from: other lineage" not in desk.shown()
    desk.close()


def test_an_episode_of_another_shape_is_told_with_its_shape(desk):
    desk.learn()
    for one in episode(7, source=OWN, image_size=6):
        desk.session.take(replace(one, boot_id="b7", sequence=one.step + 1))
    desk.session.commit()
    desk.session.train(lambda: False)
    shown = desk.shown()
    assert shown["episodes not learnt from: of another shape"] == "1"
    assert shown["newest episode of another shape"].startswith("episode 2: images front (3, 6, 6); state")


def test_what_drives_at_once_is_announced_after_the_library_says_so(tmp_path, monkeypatch):
    desk = Desk(tmp_path, promote="auto")
    with monkeypatch.context() as patch:
        patch.setattr(WeightsLibrary, "deploy", fails(StoreError("no space left")))
        for one in episode(0, source=OWN):
            desk.session.take(one)
        desk.session.commit()
        with pytest.raises(StoreError):
            desk.session.train(lambda: True)
    assert desk.session.library.current == "v0" and not desk.announced
    desk.session.train(lambda: False)
    (version,) = desk.versions
    assert desk.session.library.current == desk.session.learner.metrics["parent"] == version
    desk.close()


@pytest.mark.parametrize("part", ["correction", "way back"])
def test_a_training_state_that_a_full_disk_did_not_take_is_saved_later(tmp_path, monkeypatch, part):
    """Nobody takes updates here that would save it: who practises would go on from the old one for ever."""
    desk = Desk(tmp_path, algorithm="Corrected")
    practised(tmp_path)
    if part == "way back":
        desk.session.train(lambda: True)
        desk.session.promote("", "please")
        desk.session.roll_back("", "worse")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(desk.session.learner, "save", fails(FULL))
        desk.session.train(lambda: True)
    desk.session.train(lambda: True)
    progress, weights = read_weights(tmp_path / TRAINING, saved_state(tmp_path / TRAINING))
    assert weights == desk.session.learner.algorithm.weights()
    assert progress.corrections == (part == "correction")
    assert ("training went back" in desk.shown()) == (part == "way back")
    desk.close()


def test_experience_of_a_robot_that_comes_after_many_names_is_stored(desk, monkeypatch):
    monkeypatch.setattr("engram.learning.experience.retention.STREAMS", 2)
    for robot in ("r1", "r2", "r3", "panda"):
        for one in episode(0, robot=robot):
            desk.session.take(one)
        desk.session.commit()
    assert not desk.health.counts["experience refused"]
    assert [(one.robot_id, one.sequence) for one in desk.receipts] == [("r1", 4), ("r2", 4), ("r3", 4), ("panda", 4)]


def test_what_waits_for_the_disk_is_bounded_by_its_bytes_and_the_rest_is_counted(desk, monkeypatch):
    steps = episode(0, image_size=64)  # 12 kB of pixels each, and 4 kB for being one
    monkeypatch.setattr("engram.runtime.experience_session.QUEUED_MAX", 40_000)

    def send() -> list[bool]:
        sizes = [desk.session.reserve(one) for one in steps]
        for one, size in zip(steps, sizes, strict=True):
            if size:
                assert size > 12_288 + 4096
                desk.session.take(one, size)
        return [size > 0 for size in sizes]

    assert send() == [True, True, False, False]
    assert desk.health.counts["experience drops"] == 2
    monkeypatch.setattr(desk.store, "commit", fails(StoreError("disk is full")))
    with pytest.raises(StoreError):
        desk.session.commit()
    monkeypatch.undo()
    monkeypatch.setattr("engram.runtime.experience_session.QUEUED_MAX", 40_000)
    assert send() == [True, True, False, False]  # its robot sends it again
    desk.session.commit()
    assert desk.receipts[-1].sequence == 2
    assert not desk.session.reserve(replace(steps[0], memory_ids=("x" * 60_000,)))
    assert desk.session.reserve(Gone("panda", "boot", 1)) == 4096
    assert sum(desk.session.reserve(Gone("panda", "boot", 1)) > 0 for _ in range(100)) == 8  # 40,000 in all


def test_the_newest_goals_are_told_in_their_order(tmp_path):
    desk = Desk(tmp_path)
    drive(desk, "v0", "101", 100)
    drive(desk, "v1", "1", 200, helped=True)
    drive(desk, "v0", "0" * SHOWN, 300)
    assert desk.shown()[CURVE] == f"v0 {'0' * SHOWN}"
    assert list(desk.session.live.recent)[:4] == [("v0", "1"), ("v0", "0"), ("v0", "1"), ("v1", "h")]
    desk.close()


def test_what_is_worse_on_the_robots_is_rolled_back_and_stays_so(tmp_path):
    proven = []

    def proof(*_):
        proven.append(1)
        return "the gate: not worse"

    desk = Desk(tmp_path, proof=proof, promote="gated")
    version = desk.learn()
    drive(desk, "v0", "1" * 20, 100)
    desk.session.promote(version, "please")
    drive(desk, version, "1111", 200)
    assert desk.session.library.current == version
    drive(desk, version, "0" * 3, 300)
    assert desk.session.library.current == version  # three failures show nothing yet
    drive(desk, version, "0" * 12, 400)
    assert desk.session.library.current == desk.session.learner.metrics["parent"] == "v0"
    assert (desk.versions[-1], desk.announced[-1][1].stage) == ("v0", "approved")
    assert desk.announced[-1][0] == desk.session.library.get("v0")[0]
    assert desk.health.counts["rollbacks"] == 1
    told = desk.health.condition("active").message
    assert f"{version} was rolled back to v0: worse on the robots: reach 4 of" in told
    with pytest.raises(WeightsError, match="rolled_back, because worse on the robots: reach 4 of"):
        desk.session.promote(version, "again")
    desk.close()


def outside(desk, version, outcomes, first, **how):
    """Let somebody tell of goals that ``version`` had nothing to do with, one a character of ``outcomes``."""
    for i, outcome in enumerate(outcomes):
        (one,) = episode(first + i, steps=1, success=outcome == "1", **how)
        told = {"boot_id": f"b{first + i}", "sequence": 1, "policy_version": version, "reward_source": "verdict"}
        desk.session.take(replace(one, author="", **told))
    desk.session.commit()
    desk.session.train(lambda: False)


def test_outsiders_roll_nothing_back_and_finish_no_canary(tmp_path):
    desk = Desk(tmp_path, weights_for=("panda", "r2"), canary_episodes=4)
    drive(desk, "v0", "1" * 12 + "000", 100)
    version = desk.learn()
    desk.session.promote(version, "please")
    for i, how in enumerate(
        [
            {"robot": "ghost", "source": OWN},
            {"source": ActionSource("eyes", OTHER.id)},
            {"source": ActionSource("eyes", "")},
            {"source": ActionSource(NOBODY)},
        ]
    ):
        outside(desk, "v0", "111", 1000 * i + 200, **how)
        outside(desk, version, "0" * 6, 1000 * i + 300, **how)
        outside(desk, version, "1" * 4, 1000 * i + 400, **how)
        assert (desk.session.library.current, desk.session.library.stage(version)) == (version, "canary"), how
        assert desk.session.live.of("v0") == {"reach": "1" * 12 + "000"} and not desk.session.live.of(version), how
    assert desk.shown()[CURVE] == f"v0 {'1' * 12}000 base h"
    drive(desk, version, "0" * 20, 500)  # these are the robot's own
    assert desk.session.library.current == "v0"
    desk.close()


def test_live_outcomes_are_counted_once_and_last(tmp_path):
    desk = Desk(tmp_path)
    drive(desk, "v0", "1101", 100)
    drive(desk, "v0", "1", 200, helped=True)  # a person finished it
    assert desk.shown()["live reach"] == "3 of 5"
    desk.close()
    again = Desk(tmp_path)
    again.session.train(lambda: False)
    assert again.session.live.of("v0") == {"reach": "11010"}
    again.close()


def test_goals_in_words_count_by_what_they_want(tmp_path):
    desk = Desk(tmp_path)
    ways = ("put the {} cube in the bin", "drop the {} block into the box", "place the {} cube into the bin")
    goals = [way.format(color) for color in ("red", "green", "blue", "yellow", "white") for way in ways]
    version = desk.learn()
    for i, words in enumerate(goals):
        drive(desk, "v0", "1", 100 + i, task=words)
    desk.session.promote(version, "please")
    for i, words in enumerate(goals):
        drive(desk, version, "0", 200 + i, task=words)
    assert desk.session.library.current == "v0"  # each alone, once before and once since, would have shown nothing
    assert "worse on the robots: in 0 of" in desk.health.last_problem
    desk.close()


@pytest.mark.parametrize(("outcomes", "stage"), [("1111", "approved"), ("0" * 12, "rolled_back")])
def test_a_canary_drives_one_robot_until_it_has_shown_itself(tmp_path, outcomes, stage):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    drive(desk, "v0", "1" * 20, 100)
    version = desk.learn()
    assert desk.session.promote(version, "please").endswith("r1 alone tries it first")
    told = desk.announced[-1][1]
    assert (told.version, told.stage, told.config["announced"]["robots"]) == (version, "canary", ["r1"])
    assert desk.session.promote(version, "please").endswith("r1 alone tries it first")  # who asks twice waits as long
    assert (desk.announced[-1][1].stage, desk.session.library.stage(version)) == ("canary", "canary")
    desk.close()
    again = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)  # it outlives a restart
    again.session.begin()
    assert (again.versions, again.announced[-1][1].stage) == ([version], "canary")
    for i, outcome in enumerate(outcomes):
        drive(again, version, outcome, 200 + i)
    told = again.announced[-1][1]
    assert told.config["announced"]["robots"] == ["r1", "r2"]
    assert told.version == (version if stage == "approved" else "v0")
    assert again.session.library.stage(version) == stage
    assert again.session.library.stage("v0") == ("retired" if stage == "approved" else "approved")
    again.close()


def test_a_learner_that_restarts_under_a_canary_tells_the_other_robots_what_they_drive(tmp_path):
    desk = Desk(tmp_path, weights_for=("r1", "r2"))
    first = desk.promoted()
    desk.close()
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    drive(desk, first, "1", 100)
    second = desk.learn()
    desk.session.promote(second, "please")
    desk.close()
    again = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    again.session.begin()
    told = [(one.version, one.config["announced"]["robots"]) for _, one, _ in again.announced]
    assert told == [(first, ["r1", "r2"]), (second, ["r1"])]
    again.close()


def of_robot(desk, robot, version, outcomes, first):
    """Let ``robot`` have one episode a character of ``outcomes`` with ``version``."""
    for i, outcome in enumerate(outcomes):
        for one in episode(first + i, robot=robot, success=outcome == "1", source=OWN):
            own = {"boot_id": f"b{first + i}", "sequence": one.step + 1, "policy_version": version}
            desk.session.take(replace(one, **own))
    desk.session.commit()
    desk.session.train(lambda: False)


def test_of_two_robots_that_send_experience_one_is_the_canary_though_nobody_lists_them(tmp_path):
    desk = Desk(tmp_path, canary_episodes=4)
    version = desk.learn()
    assert desk.shown()["canary"] == "no canary: there is one robot, panda"
    of_robot(desk, "arm", "v0", "11", 100)
    assert desk.shown()["canary"] == "panda tries first what is promoted, of panda, arm"
    assert desk.session.promote(version, "please").endswith("; panda alone tries it first")
    told = desk.announced[-1][1]
    assert (told.stage, told.config["announced"]["robots"]) == ("canary", ["panda"])
    of_robot(desk, "panda", version, "11", 200)
    assert desk.shown()["canary"] == f"panda alone drives {version}: 2 of 4 goals"
    of_robot(desk, "panda", version, "11", 300)
    told = desk.announced[-1][1]
    assert (told.version, told.stage, told.config["announced"]["robots"]) == (version, "approved", ["panda", "arm"])
    desk.close()


def test_a_learner_whose_own_robot_sends_nothing_lets_one_that_does_be_the_canary(tmp_path):
    desk = Desk(tmp_path, canary_episodes=4, robot_id="base")
    version = desk.learn()
    assert desk.session.promote(version, "please").endswith("; panda alone tries it first")
    desk.close()


def test_one_robot_has_no_canary_and_the_promotion_says_so(tmp_path):
    desk = Desk(tmp_path, canary_episodes=4)
    version = desk.learn()
    told = desk.session.promote(version, "please")
    assert told == f"{version} drives now; no gate has judged it; no canary: there is one robot"
    assert desk.announced[-1][1].stage == "approved"
    assert "canary" not in desk.session.promote(version, "again")
    desk.close()


def two_more(desk):
    """Let the learner make two candidates, one after the other, and return them."""
    found = []
    for first in (5, 6):
        more(desk, first)
        found.append(desk.session.library.newest())
    return found


def test_promotions_in_a_row_are_measured_by_what_has_been_tried_enough(tmp_path):
    desk = Desk(tmp_path)
    shown = desk.learn()
    desk.session.promote(shown, "please")
    drive(desk, shown, "1" * 19 + "0", 100)
    untried, worse = two_more(desk)
    desk.session.promote(untried, "overnight")
    drive(desk, untried, "1", 200)
    drive(desk, untried, "1" * 12, 250, task="stack")  # that tells nothing of the other task
    desk.session.promote(worse, "overnight")
    drive(desk, worse, "0" * 20, 300)
    assert desk.session.library.current == shown and desk.health.counts["rollbacks"] == 1
    assert [desk.session.library.stage(one) for one in (untried, worse)] == ["rolled_back"] * 2
    because = desk.session.library.manifest(untried).metrics["because"]
    assert because.startswith("worse on the robots: reach 0 of") and ", before 19 of 20" in because
    assert because.endswith(f", as {worse} has shown; {untried} was tried too little to go back to it")
    desk.close()


def test_what_was_tried_enough_itself_is_gone_back_to(tmp_path):
    desk = Desk(tmp_path)
    drive(desk, "v0", "1" * 20, 100)
    first = desk.promoted()
    drive(desk, first, "1" * 10, 200)
    second = two_more(desk)[-1]
    desk.session.promote(second, "please")
    drive(desk, second, "0" * 12, 300)
    assert desk.session.library.current == first
    assert desk.session.library.manifest(second).metrics["because"].endswith("before 10 of 10")
    desk.close()


@pytest.mark.parametrize(("outcomes", "stage"), [("1" * 18, "approved"), ("0" * 18, "rolled_back")])
def test_nothing_else_is_promoted_while_a_canary_is_tried(tmp_path, outcomes, stage):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=20)
    drive(desk, "v0", "1" * 20, 100)
    first = desk.promoted()
    drive(desk, first, "11", 200)
    _, second = two_more(desk)
    said = len(desk.announced)
    with pytest.raises(NotYetError) as refusal:
        desk.session.promote("", "overnight")
    assert str(refusal.value) == (
        f"{second} has to wait: {first} is tried first, 2 of 20 goals of r1 have ended, 18 are missing; a rollback "
        "ends it sooner"
    )
    assert (desk.session.library.deployed, len(desk.announced)) == (["v0", first], said)
    drive(desk, first, outcomes, 300)
    assert desk.session.library.stage(first) == stage
    desk.session.promote(second, "overnight")
    assert desk.session.library.current == second
    desk.close()


def test_where_every_candidate_drives_at_once_a_canary_is_tried_all_the_same(tmp_path):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    first = desk.promoted()
    desk.close()
    again = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4, promote="auto")
    more(again, 5)
    assert again.session.library.current == first and again.session.library.newest() not in ("", first)
    again.close()


def test_a_canary_that_is_promoted_again_leaves_latched_what_the_other_robots_drive(tmp_path):
    desk = Desk(tmp_path, weights_for=("r1", "r2"))
    first = desk.promoted()
    desk.close()
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    desk.session.begin()
    more(desk, 5)
    second = desk.session.library.newest()
    for _ in range(3):
        assert desk.session.promote(second, "please").endswith("r1 alone tries it first")
    latched = [(one.version, one.stage) for data, one, _ in desk.announced if data][-2:]
    assert latched == [(first, "approved"), (second, "canary")]
    desk.close()


def test_a_learner_that_restarts_under_two_canaries_tells_the_other_robots_what_they_drive(tmp_path):
    desk = Desk(tmp_path, weights_for=("r1", "r2"))
    first = desk.promoted()
    found = two_more(desk)
    for version in found:  # as learners did that promoted one on the other
        desk.session.library.approve(version, "overnight", canary=True)
    desk.close()
    again = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=4)
    again.session.begin()
    told = [(one.version, one.config["announced"]["robots"]) for _, one, _ in again.announced]
    assert told == [(first, ["r1", "r2"]), (found[-1], ["r1"])]
    again.close()


def test_weights_are_sent_again_while_a_robot_that_they_are_for_drives_something_else(tmp_path):
    desk = Desk(tmp_path, weights_for=("r1", "r2"), canary_episodes=50)
    first = desk.promoted()
    of_robot(desk, "r2", "v0", "1", 100)  # it does not try the canary
    of_robot(desk, "r1", "v0", "1", 200)
    assert not desk.sent  # an episode of before
    desk.now = FIRST_S
    desk.session.train(lambda: False)
    assert desk.sent == [first] and desk.health.counts["weights sent again"] == 1
    assert desk.shown()["newest weights that were sent again"] == f"{first}, as r1 drives v0"
    desk.now += 2 * FIRST_S
    desk.session.train(lambda: False)
    assert desk.sent == [first]  # r1 has said nothing since
    of_robot(desk, "r1", "v0", "1", 300)
    assert desk.sent == [first, first]
    desk.now += 100 * FIRST_S
    outside(desk, "v0", "1", 400, robot="r1", source=ActionSource("eyes", OTHER.id))  # of another policy
    of_robot(desk, "r1", first, "1", 500)
    of_robot(desk, "r1", "", "1", 600)  # a person drove at the end
    assert desk.sent == [first, first] and desk.session._resends.driven["r1"] == first
    desk.close()


def test_weights_that_no_topic_holds_are_not_promoted(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    version = desk.learn()
    monkeypatch.setattr("engram.learning.weights.slices.SLICE_MAX", 1)
    size = desk.session.library.manifest(version).size
    monkeypatch.setattr("engram.learning.weights.slices.FILE_SLICES", size - 1)
    with pytest.raises(WeightsError, match=f"weights '{version}': {size} bytes, at most {size - 1} can be sent"):
        desk.session.promote(version, "please")
    assert desk.session.library.current == "v0"
    desk.close()


def test_a_candidate_that_no_topic_holds_drives_nobody_and_is_announced_all_the_same(tmp_path, monkeypatch):
    desk = Desk(tmp_path, promote="auto")
    monkeypatch.setattr("engram.learning.weights.slices.FILE_SLICES", 1)
    monkeypatch.setattr("engram.learning.weights.slices.SLICE_MAX", 1)
    version = desk.learn()
    assert desk.session.library.current == "v0"
    assert [(data, one.version) for data, one, _ in desk.announced] == [(b"", version)]  # the manifest alone
    assert f"candidate: weights '{version}'" in desk.health.condition("active").message
    desk.close()


def test_what_robots_may_go_back_to_is_kept_however_much_is_promoted_since(tmp_path):
    desk = Desk(tmp_path)
    shown = desk.learn()
    desk.session.promote(shown, "please")
    drive(desk, shown, "1" * 20, 100)
    for at in range(12):
        more(desk, 200 + at)
        desk.session.promote("", "overnight")
    worse = desk.session.driving
    deployed = desk.session.library.deployed
    assert len(deployed) == 13 and deployed[:2] == ["v0", shown] and deployed[-1] == worse
    drive(desk, worse, "0" * 12, 300)
    assert desk.session.library.current == shown
    assert desk.announced[-1][0] == desk.session.library.get(shown)[0]
    desk.close()


def test_an_episode_with_a_number_that_no_robot_has_is_named_and_training_goes_on(desk):
    for one in episode(7, source=OWN):
        state = np.where(np.arange(15) == 3, np.float32(1e12), one.state) if one.step == 2 else one.state
        desk.session.take(replace(one, boot_id="b7", sequence=one.step + 1, state=state))
    desk.session.commit()
    desk.learn()
    shown = desk.shown()
    assert shown["episodes not learnt from: numbers out of range"] == "1"
    assert shown["newest episode with numbers out of range"] == (
        "panda: episode 1: state[3] is 1e+12 at step 2, expected -100 .. 100"
    )
    assert desk.session.learner.metrics["updates"] == BURST


class Kept:
    """What a gate said of candidates, by their sha256."""

    def __init__(self):
        self.said = {}

    @property
    def stamp(self):
        return list(self.said)

    def of(self, candidate, approved):
        told = self.said.get(candidate)
        return None if told is None else GateVerdict(candidate, approved, "here", *told)


WORSE = ("reject", "worse: reach 0 of 12, before 12")
BECAUSE = "the gate: reject, worse: reach 0 of 12, before 12"


def sha(desk, version):
    return desk.session.library.manifest(version).sha256


def more(desk, first):
    """Let another success come in, and learn from it."""
    for one in episode(first, source=OWN):
        desk.session.take(replace(one, boot_id=f"b{first}", sequence=one.step + 1))
    desk.session.commit()
    for _ in range(3):
        desk.session.train(lambda: True)


def test_what_the_gate_rejected_is_marked_and_training_goes_on_from_what_drives(tmp_path):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept)
    version = desk.learn()
    desk.session.train(lambda: True)
    assert weight(desk) == 21.0  # it has learnt on from the candidate
    kept.said[sha(desk, version)] = WORSE
    desk.session.train(lambda: False)
    marked = desk.session.library.manifest(version)
    assert (marked.stage, marked.metrics["because"]) == ("rejected", BECAUSE)
    assert (desk.versions[-1], desk.announced[-1][0], desk.announced[-1][1].stage) == (version, b"", "rejected")
    assert weight(desk) == 1.0 and desk.session.learner.metrics["parent"] == "v0"
    assert desk.shown()["training went back"] == f"to v0, because of {version}: {BECAUSE}"
    assert desk.health.counts["candidates rejected"] == 1
    said = len(desk.announced)
    for _ in range(3):
        desk.session.train(lambda: True)
    assert len(desk.announced) == said and weight(desk) == 1.0  # nothing has come to learn from
    kept.said.clear()  # here the same updates make the same weights
    more(desk, 5)
    assert weight(desk) == 21.0
    made = desk.session.library.manifest(desk.versions[-1])
    assert (made.stage, made.parent) == ("candidate", "v0")
    desk.close()


@pytest.mark.parametrize("learnt_on", [False, True])
def test_who_is_killed_between_verdict_and_mark_goes_back_all_the_same(tmp_path, learnt_on):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept)
    version = desk.learn()
    kept.said[sha(desk, version)] = WORSE
    if learnt_on:
        desk.session._heed = lambda: None
        desk.session.train(lambda: True)
    desk.close()  # the library forgets the candidate, the training state does not
    again = Desk(tmp_path, verdicts=kept)
    again.session.begin()
    again.session.train(lambda: False)
    assert weight(again) == 1.0 and again.session.learner.line.keys() == {"v0"}
    assert version not in again.versions
    again.close()
    last = Desk(tmp_path, verdicts=kept)
    last.session.begin()
    last.session.train(lambda: False)
    assert weight(last) == 1.0 and "training went back" not in last.shown()
    last.close()


def test_a_mark_outlives_a_restart_and_what_came_of_it_is_not_learnt_on_from(tmp_path):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept)
    version = desk.learn()
    kept.said[sha(desk, version)] = WORSE
    desk.session._go_back = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # killed after the mark
    with pytest.raises(KeyboardInterrupt):
        desk.session.train(lambda: False)
    desk.close()
    again = Desk(tmp_path, verdicts=Kept())
    assert again.session.library.stage(version) == "rejected"
    again.session.train(lambda: False)
    assert weight(again) == 1.0
    with pytest.raises(WeightsError, match=f"{version}: rejected, because the gate: reject, worse"):
        again.session._prove(version)
    again.close()


def test_what_the_gate_could_not_show_stays_a_candidate_that_says_so_and_learning_goes_on(tmp_path):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept)
    version = desk.learn()
    kept.said[sha(desk, version)] = ("not_shown", "not shown within 200 pairs a task: reach 9 of 200, before 9")
    desk.session.train(lambda: True)
    marked = desk.session.library.manifest(version)
    assert marked.stage == "candidate"
    assert marked.metrics["because"].startswith("the gate: not_shown, not shown within 200 pairs")
    assert weight(desk) == 21.0 and desk.health.counts["candidates not shown"] == 1
    assert [one.version for _, one, _ in desk.announced].count(version) == 1  # else the gate would judge it again
    kept.said[sha(desk, version)] = ("promote", "not worse")
    desk.session.promote(version, "please")
    assert "because" not in desk.session.library.manifest(version).metrics
    desk.close()


def test_where_every_candidate_drives_at_once_no_verdict_counts(tmp_path):
    kept = Kept()
    desk = Desk(tmp_path, verdicts=kept, promote="auto")
    version = desk.learn()
    kept.said[sha(desk, version)] = WORSE
    desk.session.train(lambda: True)
    assert desk.session.library.stage(version) == "candidate" and weight(desk) == 21.0
    desk.session.roll_back("", "worse")  # a person says so
    desk.session.train(lambda: False)
    assert desk.session.library.current == version and weight(desk) == 11.0
    desk.close()


def test_after_a_rollback_training_goes_on_from_what_drives_again(tmp_path):
    desk = Desk(tmp_path)
    version = desk.learn()
    desk.session.promote(version, "please")
    desk.session.train(lambda: True)
    assert weight(desk) == 21.0
    desk.session.roll_back("", "worse")
    desk.session.train(lambda: False)
    assert weight(desk) == 1.0
    assert desk.shown()["training went back"] == f"to v0, because of {version}: worse"
    desk.close()


def test_what_practice_found_and_the_gate_refused_is_not_learnt_again(tmp_path):
    kept = Kept()
    desk = Desk(tmp_path, algorithm="Corrected", verdicts=kept)
    practised(tmp_path)
    desk.session.train(lambda: True)
    (version,) = desk.versions
    kept.said[sha(desk, version)] = WORSE
    desk.session.train(lambda: True)
    desk.session.train(lambda: True)
    assert weight(desk) == 1.0 and desk.session.learner.metrics["corrections"] == 0
    progress, _ = read_weights(tmp_path / TRAINING, saved_state(tmp_path / TRAINING))  # who practises goes on from it
    assert progress.corrections == 0
    told = desk.shown()["what practice found is not learnt"]
    assert told.startswith("what was found for reach (motions times 0.50") and told.endswith(f"was refused ({BECAUSE})")
    desk.close()
    again = Desk(tmp_path, algorithm="Corrected", verdicts=kept)
    practised(tmp_path, episodes=(2,))  # the same again
    again.session.train(lambda: True)
    assert weight(again) == 1.0
    practised(tmp_path, scale=2.0)  # another one
    again.session.train(lambda: True)
    assert weight(again) == 3.0
    again.close()


def test_what_practice_found_after_the_weights_that_were_refused_is_not_refused_with_them(tmp_path):
    desk = Desk(tmp_path, algorithm="Corrected")
    version = desk.learn()
    desk.session.promote(version, "please")
    practised(tmp_path)
    desk.session.train(lambda: True)
    assert desk.session.learner.metrics["corrections"] == 1
    desk.session.roll_back("", "worse")  # what drove had none
    for _ in range(2):
        desk.session.train(lambda: False)
    desk.session.train(lambda: True)
    assert desk.session.learner.metrics["corrections"] == 1
    desk.close()


def test_what_it_begins_with_is_there_for_who_practises_in_simulation(tmp_path):
    desk = Desk(tmp_path)
    desk.session.begin()
    progress, weights = read_weights(tmp_path / TRAINING, saved_state(tmp_path / TRAINING))
    assert (progress.updates, progress.config["updates_per_episode"]) == (0, 20)
    assert weights == desk.session.learner.algorithm.weights()
    desk.close()


def practised(folder, number=1, scale=0.5, episodes=(1, 2), others=()):
    """Leave a correction for the learner, and the episodes it was found in."""
    if not (folder / PRACTICE).exists():
        store = ExperienceStore(folder / PRACTICE)
        for one in range(2):
            store.append(episode(one, robot="practice", boot="0", source=OWN))
        store.commit()
        store.close()
    found = FoundCorrection("reach", MotionCorrection(scale, 0.1), episodes)
    Practised(folder / PRACTICE).tell(Findings(number, (found,), others))


def weight(desk):
    return float(load(desk.session.learner.algorithm.weights())["count"][0])


def test_what_practice_found_becomes_a_candidate_once(tmp_path):
    desk = Desk(tmp_path, algorithm="Corrected")
    desk.session.train(lambda: True)
    assert not desk.versions  # nobody has practised
    practised(tmp_path)
    for _ in range(2):
        desk.session.train(lambda: True)
    assert weight(desk) == 1.5 and len(desk.versions) == 1 and desk.announced[0][1].stage == "candidate"
    assert desk.session.library.newest() == desk.versions[0]
    progress, _ = read_weights(tmp_path / TRAINING, saved_state(tmp_path / TRAINING))  # who practises goes on from it
    assert progress.corrections == 1 and progress.successes == 0  # the episodes are not imitated
    assert desk.announced[0][1].metrics["experience"] == progress.experience != ""
    desk.close()
    again = Desk(tmp_path, algorithm="Corrected")
    again.session.train(lambda: True)
    practised(tmp_path, number=3)  # of weights that this learner does not have
    again.session.train(lambda: True)
    assert weight(again) == 1.5
    practised(tmp_path, number=2, scale=2.0, episodes=(2, 9), others=(1, 9))  # one of each the store has let go
    again.session.train(lambda: True)
    assert weight(again) == 3.5 and len(again.versions) == 1
    assert [len(one) for one in again.session.learner.algorithm.others] == [4]  # the episode of another goal
    again.close()


def test_what_waited_for_its_verdict_is_offered_again_after_a_restart(tmp_path):
    """The library lets go of it; nothing else would ever make it again."""
    desk = Desk(tmp_path, algorithm="Corrected")
    desk.session.begin()
    practised(tmp_path)
    desk.session.train(lambda: True)
    (version,) = desk.versions
    desk.close()
    again = Desk(tmp_path, algorithm="Corrected")
    again.session.begin()
    assert not again.session.library.newest()
    for _ in range(2):
        again.session.train(lambda: True)
    assert again.versions == [version] and again.session.library.newest() == version
    again.session.promote(version, "please")
    again.close()
    last = Desk(tmp_path, algorithm="Corrected")
    last.session.begin()
    last.session.train(lambda: True)
    assert last.versions == [version] and last.announced[-1][1].stage == "approved"  # it drives: nothing waits
    last.close()


def test_what_could_not_be_kept_is_offered_later(tmp_path, monkeypatch):
    desk = Desk(tmp_path, algorithm="Corrected")
    practised(tmp_path)
    with monkeypatch.context() as full, pytest.raises(StoreError):
        full.setattr(WeightsLibrary, "add", lambda *_: (_ for _ in ()).throw(StoreError("no space left")))
        desk.session.train(lambda: True)
    assert not desk.versions
    desk.session.train(lambda: True)
    assert len(desk.versions) == 1 and weight(desk) == 1.5
    assert (
        read_weights(tmp_path / TRAINING, saved_state(tmp_path / TRAINING))[0].corrections == 1
    )  # who practises reads it
    desk.close()


def test_a_damaged_version_does_not_keep_the_learner_from_starting(tmp_path):
    desk = Desk(tmp_path)
    version = desk.learn()
    desk.session.promote(version, "please")
    desk.close()
    with closing(sqlite3.connect(tmp_path / "weights" / FILE)) as file, file:
        file.execute("UPDATE versions SET digest = 'other' WHERE version = ?", (version,))
    again = Desk(tmp_path)
    again.session._forgotten()
    again.close()


def test_a_correction_that_is_cut_short_is_made_later(tmp_path):
    desk = Desk(tmp_path, algorithm="Corrected")
    practised(tmp_path)
    for lasts in range(3, -1, -1):
        answers = iter([True] * lasts)
        desk.session.train(lambda answers=answers: next(answers, False))
        assert weight(desk) == 1.0 and not desk.versions
    desk.session.train(lambda: True)
    assert weight(desk) == 1.5
    desk.close()


def test_a_correction_that_cannot_be_made_is_told_and_tried_once(tmp_path, desk):
    told = "what practice found is not learnt"
    practised(tmp_path)
    desk.session.train(lambda: True)
    assert "Counting cannot make a correction part of the weights" in desk.shown()[told]
    desk.session.train(lambda: True)
    assert desk.shown()["correction ms p50/p99"].endswith("(n=1)")
    assert desk.learn()  # experience is learnt from all the same
    practised(tmp_path, episodes=(7,))
    desk.session.train(lambda: True)
    assert "there is no episode" in desk.shown()[told]
    whole = (tmp_path / PRACTICE / FOUND).read_bytes()
    empty, one = {"number": 1, "found": [], "others": []}, {"task": "", "episodes": []}
    scales = [seal(empty | {"found": [one | {"correction": {"scale": scale}}]}) for scale in (float("nan"), -1.0, 50.0)]
    wrong = (seal(empty | {"number": float("inf")}), seal(empty | {"found": [7]}), json.dumps(empty).encode())
    for damaged in (b"{", b"[]", b"[" * 100_000, *scales, *wrong, whole.replace(b'"scale": 0.5', b'"scale": 0.9')):
        assert damaged != whole
        (tmp_path / PRACTICE / FOUND).write_bytes(damaged)
        desk.session.train(lambda: True)
        assert "found.json cannot be read" in desk.shown()[told]
    (tmp_path / PRACTICE / FOUND).unlink()
    desk.session.train(lambda: True)
    assert told not in desk.shown()
