"""The gate beside a learner: the newest candidate next, stopped in the middle, errors told."""

import multiprocessing
import os
import shutil
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError
from engram.core.types import ActionSource
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from engram.learning.weights.library import WeightsLibrary
from engram.learning.workspace import EXPERIENCE, PRACTICE
from engram.sim.gaps import Gap
from engram.sim.tasks import SUITES, task_for
from engram.validation import standing, validate
from engram.validation.following import GAP
from engram.validation.gate import GateConfig
from engram.validation.identify import Identification
from engram.validation.of_learner import COPIES, GATE, learner_contenders
from engram.validation.practising import SEARCHES, Done
from engram.validation.standing import StandingGate
from engram.validation.validate import IDLE_SCENES
from tests.learning.transitions import episode
from tests.validation.made import BASE, LINEAGE, SCENES, add_candidate, run_before
from tests.validation.records import record

pytestmark = pytest.mark.timeout(300)


BEFORE = 3 * SCENES + IDLE_SCENES


def count(folder):
    with sqlite3.connect(f"file:{folder / 'gate' / 'trials.sqlite'}?mode=ro", uri=True) as reader:
        return reader.execute("SELECT COUNT(*) FROM trials").fetchone()[0]


class Told:
    """Notes what the gate tells."""

    def __init__(self):
        self.verdicts, self.failures, self.changed = [], [], threading.Event()
        self.reports, self.robot, self.practice, self.left_out = [], [], [], []

    def progress(self, version, progress):
        assert progress.gate.pairs

    def judged(self, version, verdict):
        self.verdicts.append((version, verdict.decision))
        self.reports.append(verdict.report)
        self.changed.set()

    def found(self, what):
        self.robot.append(what)

    def practised(self, what):
        self.practice.append(what)

    def passed_over(self, error):
        self.left_out.append(str(error))

    def failed(self, version, error):
        self.failures.append((version, str(error)))
        self.changed.set()

    def wait(self):
        assert self.changed.wait(120)
        self.changed.clear()


@pytest.fixture(autouse=True)
def looks_soon(monkeypatch):
    """Look every tenth of a second, not every five seconds, whether there is something to practise."""
    monkeypatch.setattr(standing, "LOOKS_EVERY_S", 0.1)


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    """A learner's folder, made once."""
    made = tmp_path_factory.mktemp("learner")
    library = WeightsLibrary(made / "weights")
    drives = add_candidate(library, "v0")
    library.approve("v0", "test")
    equal, worse = add_candidate(library, "equal", 1.0001), add_candidate(library, "worse", 1.0003)
    add_candidate(library, "new", 1.0002)  # nothing of it was run before
    library.close()
    run_before(made, {drives: True, equal: True, worse: False})
    return made


@pytest.fixture
def folder(learner, tmp_path):
    return shutil.copytree(learner, tmp_path, dirs_exist_ok=True)


def test_what_the_learner_was_taught_since_is_judged_beside_the_card(folder, tmp_path, monkeypatch):
    """Though nobody named it, and the checkpoint's card does not."""
    judged = []
    monkeypatch.setattr(standing, "validate", lambda *about, **how: judged.append(about[2]) or 1 / 0)
    told = Told()
    gate = StandingGate(folder, "base", told)
    gate.start()
    gate.offer("equal")
    told.wait()
    asked(tmp_path, "touch the shell that hides the ball").close()
    gate.offer("equal")
    told.wait()
    assert gate.stop()
    assert judged == [gate.tasks, (*gate.tasks, "shell_touch")]


def test_what_was_taught_and_no_longer_exists_is_told_and_candidates_are_judged_on(folder):
    told = Told()
    (folder / GATE / "taught.json").write_text('{"tasks": ["old_task"]}')
    gate = StandingGate(folder, "base", told, tasks=("reach",))
    gate.start()
    gate.offer("equal")
    told.wait()
    assert gate.stop()
    assert (told.verdicts, told.failures) == ([("equal", "promote")], [])
    assert len(told.left_out) == 1 and "no task 'old_task' any more" in told.left_out[0]


def test_a_version_that_the_learner_does_not_know_takes_no_other_s_place(folder, monkeypatch):
    judged, begun, goes_on = [], threading.Event(), threading.Event()

    def judge(candidate, *_, **__):
        judged.append(Path(candidate.weights).stem)
        begun.set()
        assert goes_on.wait(120)
        raise EngramError("enough")

    monkeypatch.setattr(standing, "validate", judge)
    gate = StandingGate(folder, "base", Told(), tasks=("reach",))
    gate.start()
    gate.offer("worse")
    assert begun.wait(120)
    gate.offer("equal")
    with pytest.raises(UnknownNameError, match="unknown weights version 'nonsense'"):
        gate.offer("nonsense")
    begun.clear()
    goes_on.set()
    assert begun.wait(120)
    assert gate.stop()
    library = WeightsLibrary(folder / "weights", read_only=True)
    assert judged == [library.manifest(version).sha256 for version in ("worse", "equal")]


def test_a_gate_knows_the_tasks_of_its_suites(folder):
    assert StandingGate(folder, "base", Told(), tasks=("tabletop", "reach")).tasks == SUITES["tabletop"]
    with pytest.raises(UnknownNameError, match="unknown task 'dance'"):
        StandingGate(folder, "base", Told(), tasks=("dance",))


def test_candidates_are_judged_and_what_cannot_be_is_told(folder):
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",))
    gate.start()
    gate.offer("equal")
    told.wait()
    assert told.verdicts == [("equal", "promote")]
    gate.offer("gone")
    told.wait()
    assert "unknown weights version 'gone'" in told.failures[0][1]
    gate.offer("equal")  # it goes on
    told.wait()
    assert len(told.verdicts) == 2
    copies = folder / GATE / "weights"
    for number in range(20):
        (copies / f"old{number}.safetensors").write_bytes(b"")
        os.utime(copies / f"old{number}.safetensors", (number, number))
    gate.offer("equal")
    told.wait()
    assert len([*copies.iterdir()]) == COPIES and len([*copies.glob("old*")]) == COPIES - 2  # what drives, and it
    assert gate.stop()


def test_copies_from_before_the_clock_was_set_back_go_before_those_that_were_just_made(folder, tmp_path):
    copies = tmp_path / GATE / "weights"
    copies.mkdir(parents=True, exist_ok=True)
    for number in range(COPIES):
        (copies / f"ahead{number}.safetensors").write_bytes(b"")
        os.utime(copies / f"ahead{number}.safetensors", (2e9 + number, 2e9 + number))
    (copies / "another.safetensors").write_bytes(b"")  # another validation may still run on it
    _, *contenders = learner_contenders(tmp_path, BASE, "equal")
    kept = {path.name for path in copies.iterdir()}
    assert {f"{one.sha256}.safetensors" for one in contenders} | {"another.safetensors"} <= kept
    assert kept >= {f"ahead{number}.safetensors" for number in range(3, COPIES)} and len(kept) == COPIES


def test_an_error_that_nobody_foresaw_is_told_and_the_next_candidate_is_judged(folder, monkeypatch):
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",))
    gate.start()
    with monkeypatch.context() as full:
        full.setattr(standing, "learner_contenders", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        gate.offer("equal")
        told.wait()
    assert told.failures == [("equal", "OSError: no space left")]
    gate.offer("equal")
    told.wait()
    assert told.verdicts == [("equal", "promote")]
    assert gate.stop()


def test_a_cluster_runs_the_episodes_of_candidates(folder, monkeypatch):
    monkeypatch.setattr(validate, "spawned_pool", lambda *_, **how: 1 / 0)
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), config=GateConfig(budget=1), ray="local")
    gate.start()
    gate.offer("new")
    told.wait()
    assert gate.stop()
    assert (told.verdicts, told.failures) == ([("new", "not_shown")], []) and told.reports[0]["episodes_run"]


def test_a_gate_that_follows_the_robot_tries_candidates_on_its_gap(folder, tmp_path):
    """The gap was found before; meanwhile the experience is gone, which is told."""
    path = tmp_path / GATE / GAP
    Identification(Gap(yaw_deg=4.0), {}).write(path)
    run_before(
        tmp_path,
        {contender.sha256: True for contender in learner_contenders(tmp_path, BASE, "equal")[1:]},
        on=str(path),
    )
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), identify=True)
    gate.start()
    gate.offer("equal")
    told.wait()
    assert gate.stop()
    assert (told.verdicts, told.reports[0]["on"]) == ([("equal", "promote")], str(path))
    assert "the robot's gap was not looked for" in told.robot[0]


def test_a_stop_while_the_gap_is_looked_for_ends_that_too(folder, tmp_path):
    store = ExperienceStore(tmp_path / "experience")
    store.append([replace(step, truncated=step.step == 9) for run in record(Gap(), 6, 10) for step in run])
    store.commit()
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), identify=True)
    gate.start()
    gate.offer("equal")
    until(multiprocessing.active_children)  # what looks for it takes half a minute
    assert gate.stop(10.0)
    assert not multiprocessing.active_children()
    store.close()
    assert not (told.verdicts or told.failures or told.robot)


def until(condition, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def asked(folder, words):
    """Keep that the robot was asked for ``words``."""
    store = ExperienceStore(folder / EXPERIENCE)
    its = episode(0, source=ActionSource("base", LINEAGE.id))
    store.append([replace(step, task="", instruction=words, author="base") for step in its])
    store.commit()
    return store


def test_in_between_it_practises_what_the_robot_was_asked_for_until_a_candidate_comes(folder, tmp_path):
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), practise=True)
    gate.start()
    until(lambda: told.practice)
    assert told.practice == ["waits: the robot has not been asked for anything yet"]
    store = asked(tmp_path, "go to the red cube")
    until((tmp_path / PRACTICE / SEARCHES).exists)
    gate.offer("gone")
    told.wait()
    assert "unknown weights version 'gone'" in told.failures[0][1]
    assert gate.stop()
    store.close()
    words = {one.instruction for one in ExperienceReader(tmp_path / PRACTICE).catalogue()}
    assert all(task_for(one) == "reach" for one in words)


def test_what_the_robot_was_asked_for_is_practised_first_and_all_that_is_judged_then(folder, tmp_path, monkeypatch):
    jobs = []

    def note(_, job, **how):
        jobs.append(job)
        return Done()

    monkeypatch.setattr(standing, "run_apart", note)
    store = asked(tmp_path, "press the red button")
    gate = StandingGate(folder, "base", Told(), tasks=("reach", "press_button", "stack"), practise=True)
    gate.start()
    until(lambda: jobs)
    assert jobs[-1].tasks == ("press_button", "reach", "stack")
    assert gate.stop()
    store.close()


def test_nothing_is_run_where_nothing_is_left_to_be_found(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(standing, "run_apart", lambda *_, **how: 1 / 0)
    monkeypatch.setattr(standing, "nothing_to_do", lambda job: f"nothing more is found for {job.tasks[0]}")
    store, told = asked(tmp_path, "go to the red cube"), Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), practise=True)
    gate.start()
    until(lambda: told.practice)
    assert gate.stop()
    store.close()
    assert told.practice == ["nothing more is found for reach"]


@pytest.mark.parametrize(
    ("error", "said", "pause_s"),
    [
        (EngramError("a worker process died"), "a worker process died", 60.0),
        (OSError("no space left"), "OSError('no space left')", 60.0),
        (InvalidInputError("this policy cannot be corrected"), "this policy cannot be corrected", 0.1),
    ],
)
def test_practice_that_fails_is_told_and_not_tried_again_at_once(folder, tmp_path, monkeypatch, error, said, pause_s):
    """Nor ever again, where it would be the same again."""
    tried = []

    def fail(*_, **how):
        tried.append(how)
        raise error

    monkeypatch.setattr(standing, "run_apart", fail)
    monkeypatch.setattr(standing, "AFTER_FAILURE_S", pause_s)
    store, told = asked(tmp_path, "go to the red cube"), Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), practise=True)
    gate.start()
    until(lambda: told.practice)
    time.sleep(1.0)
    gate.offer("equal")  # it judges all the same
    told.wait()
    assert gate.stop()
    store.close()
    assert told.practice == [f"cannot practise: {said}"] and len(tried) == 1
    assert told.verdicts == [("equal", "promote")]


@pytest.mark.parametrize(
    ("words", "identify", "why"),
    [
        ("sing a song", False, "waits: of what the robot was asked for, nothing is one of reach"),
        ("go to the red cube", True, "the robot's gap cannot be told yet"),
    ],
)
def test_it_says_why_nothing_is_practised(folder, tmp_path, words, identify, why):
    store, told = asked(tmp_path, words), Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), practise=True, identify=identify)
    gate.start()
    until(lambda: told.practice)
    assert gate.stop()
    store.close()
    assert why in told.practice[0]
    assert not (tmp_path / PRACTICE).exists()


def test_it_is_looked_again_how_the_robot_differs_once_there_is_more_to_look_at(folder, tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(standing, "followed_gap", lambda *about: looked.append(about) or "none")
    monkeypatch.setattr(standing, "LOOKS_EVERY_S", 0.05)
    store, told = asked(tmp_path, "go to the red cube"), Told()
    gate = StandingGate(folder, "base", told, tasks=("reach",), practise=True, identify=True)
    gate.start()
    until(lambda: looked)
    time.sleep(0.5)
    assert len(looked) == 1
    for number in range(1, 1 + standing.MORE):
        store.append(episode(number))
    store.commit()
    until(lambda: len(looked) == 2)
    assert gate.stop()
    store.close()


def test_a_stop_in_the_middle_of_a_validation_keeps_what_was_run(folder):
    told = Told()
    gate = StandingGate(folder, "base", told, tasks=("stack",))
    gate.start()
    gate.offer("new")
    deadline = time.monotonic() + 120
    while (kept := count(folder)) < BEFORE + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert gate.stop()
    assert not (told.verdicts or told.failures)
    assert BEFORE + 2 <= kept <= count(folder) < BEFORE + 40


def test_by_default_all_that_the_checkpoint_was_trained_on_counts(folder, tmp_path):
    assert "stack" in StandingGate(folder, "base", Told()).tasks
    with pytest.raises(UnknownNameError, match="unknown policy 'nonsense'"):
        StandingGate(folder, "nonsense", Told())
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"there is no model\.safetensors"):
        StandingGate(folder, str(tmp_path / "bare"), Told())
