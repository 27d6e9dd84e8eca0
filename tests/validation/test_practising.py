"""Practice in simulation: a correction is searched for at what the robot was asked for, and left for the learner."""

from dataclasses import asdict, replace

import pytest
from safetensors.numpy import load_file, save

from engram.core.durable import seal
from engram.core.errors import CannotTrainError, StoreError, StoreLockedError
from engram.core.motion_correction import MotionCorrection
from engram.learning.experience.eligibility import CORRECTED, why_not
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner_config import LearnerConfig
from engram.learning.practised import FOUND, REFUSED, Practised
from engram.learning.progress import Progress, save_progress
from engram.learning.workspace import PRACTICE, TRAINING
from engram.policies.lerobot.motion_edit_step import MotionEditStep
from engram.policies.loading import load_policy
from engram.runtime.factories import make_learnable, policy_folder
from engram.sim.gaps import Gap
from engram.validation import practising
from engram.validation.practising import (
    SEARCHES,
    Attempt,
    PracticeJob,
    SearchBook,
    asked_lately,
    nothing_to_do,
    practise,
)
from tests.learning.transitions import episode
from tests.policies.tiny_lerobot import save_tiny

pytestmark = pytest.mark.timeout(300)
BASE = policy_folder("base")
HALF = MotionCorrection(scale=0.5)


def job(folder, **how):
    return PracticeJob(
        folder, str(BASE), **{"gap": Gap(), "tasks": ("reach",), "shown": 0, "search": 2, "most": 4} | how
    )


def learnt(folder, *, updates=0, corrections=0, factor=1.0):
    """Save a training state whose weights are those of ``base`` times ``factor``."""
    weights = save({name: one * one.dtype.type(factor) for name, one in load_file(BASE / "model.safetensors").items()})
    progress = Progress("base", "", asdict(LearnerConfig()), updates=updates, corrections=corrections)
    save_progress(folder / TRAINING, progress, b"", weights)


def book(folder, *told, corrections=0, **how):
    """Return a search in ``folder`` after trials with these corrections and outcomes."""
    (folder / PRACTICE).mkdir(exist_ok=True)
    kept, about = SearchBook(folder / PRACTICE), job(folder, **how)
    one = kept.open(about, corrections)
    for number, (tried, outcome) in enumerate(told, 1):
        kept.tell(about, one, tried, outcome, number)
    return kept


def test_episodes_are_kept_in_words_and_imitated_by_nobody(tmp_path):
    done = practise(job(tmp_path, search=3, most=3))
    assert done.episodes == {"reach": 3}
    (successes,) = done.successes.values()
    assert str(done).startswith(f"in simulation went well: reach {successes} of 3; ")
    known = ExperienceReader(tmp_path / PRACTICE).catalogue()
    assert len(known) == 3 and sum(one.success for one in known) == successes
    assert known[0].task == known[0].instruction != "reach"  # as a robot tells its goals
    assert ExperienceReader(tmp_path / PRACTICE).episode(1)[0].reward_source == "oracle"
    lineage, (searched,) = make_learnable("base").lineage, SearchBook(tmp_path / PRACTICE)._searches
    corrected = [why_not(one.sources, lineage) == CORRECTED for one in known]
    assert corrected == [trial.tried != MotionCorrection() for trial in searched.trials]
    assert any(corrected) and [trial.number for trial in searched.trials] == [1, 2, 3]


def test_what_was_learnt_last_drives_and_scenes_are_new_after_a_restart(tmp_path):
    practise(job(tmp_path, search=1, most=1))
    learnt(tmp_path, updates=7, factor=-1.0)  # ruined
    done = practise(job(tmp_path, tasks=("press_button",), search=1, most=1))
    assert (done.successes, done.episodes) == ({"press_button": 0}, {"press_button": 1})
    one, two = ExperienceReader(tmp_path / PRACTICE).catalogue()
    assert two.policy_version == "training-0000007" != one.policy_version
    states = [ExperienceReader(tmp_path / PRACTICE).episode(number)[0].images["front"] for number in (1, 2)]
    assert (states[0] != states[1]).any()


def test_what_helps_is_found_for_all_tasks_and_left_for_the_learner_at_once(tmp_path, monkeypatch):
    """An arm that leads too far: less of each motion is what two tasks need. The drawer opens in any case."""
    ran = []

    def run(simulated, task, tried):
        ran.append((task, tried != MotionCorrection()))
        simulated._number += 1
        success = task == "open_drawer" or tried.scale < (0.8 if task == "reach" else 0.6)
        return simulated._number, success, float(success)

    monkeypatch.setattr(practising._Simulated, "episode", run)
    about = job(tmp_path, search=30, most=60, tasks=("reach", "open_drawer", "stack"), shown=2)
    done = practise(about)
    assert ran[:6] == [(task, False) for task in about.tasks for _ in range(2)]  # first as it is
    assert [task for task, _ in ran[6:46]] == ["reach", "stack"] * 20  # in turn
    assert done.episodes == {task: [one for one, _ in ran].count(task) for task in about.tasks}
    assert "open_drawer 2 of 2" in str(done) and "; waits: the learner is to make what was found for reach" in str(done)
    left = Practised(tmp_path / PRACTICE).findings()
    assert left.number == 1 and [one.task for one in left.found] == ["reach", "stack"] and left.others == (3, 4)
    for one in left.found:
        assert one.correction.scale < 0.8
        numbers = [number for number, (task, _) in enumerate(ran, 1) if task == one.task]
        assert one.episodes == tuple(numbers[-practising.LEARNT :])
    assert nothing_to_do(about).startswith("waits: the learner is to make what was found for reach (motions times 0.")
    assert practise(about).episodes == {}
    learnt(tmp_path, corrections=1)  # it has
    ran.clear()
    assert not nothing_to_do(about)
    practise(about)  # what is left is searched for from there, in every task
    assert ran[:6] == [(task, False) for task in about.tasks for _ in range(2)]


def test_a_search_that_was_killed_goes_on_with_the_same_trials(tmp_path):
    tried = [SearchBook(tmp_path).open(job(tmp_path), 0).search().next()]
    kept = book(tmp_path, (tried[0], 0.5), search=10)
    tried.append(kept.open(job(tmp_path), 0).search().next())
    again = SearchBook(tmp_path / PRACTICE).open(job(tmp_path), 0)
    assert again.trials == [Attempt(tried[0], 0.5, 1)] and again.search().next() == tried[1]


def test_a_search_that_finds_nothing_ends_and_another_robot_begins_a_new_one(tmp_path):
    nothing = [(MotionCorrection(), 0.5)] * 3
    kept = book(tmp_path, *nothing)
    assert kept.open(job(tmp_path), 0).found is None  # it went on after the first two
    kept = book(tmp_path, (MotionCorrection(), 0.5))
    assert kept.open(job(tmp_path), 0) == "nothing more is found that makes reach go better on a robot like this"
    assert kept.open(job(tmp_path), 1).trials == []  # something was found for another task
    assert kept.open(job(tmp_path, tasks=("reach", "stack")), 0).task == "stack"
    assert kept.open(job(tmp_path, gap=Gap(yaw_deg=5.0)), 0).trials == []
    assert not (tmp_path / PRACTICE / FOUND).exists()


def test_what_goes_well_is_not_searched_for_until_the_weights_change(tmp_path):
    kept = book(tmp_path, *[(MotionCorrection(), 1.0)] * 2, shown=2, search=10)
    assert kept.open(job(tmp_path), 0) == "nothing more is found that makes reach go better on a robot like this"
    assert kept.open(job(tmp_path), 1).trials == []
    assert (
        book(tmp_path, *[(MotionCorrection(), 1.0), (MotionCorrection(), 0.5)], shown=2, search=10, corrections=1)
        .open(job(tmp_path), 1)
        .trials
    )


def test_searches_for_several_tasks_are_kept_apart(tmp_path):
    """What the robot was asked for last comes first, so that a search may wait for another one."""
    kept = book(tmp_path, (HALF, 1.0), search=10)
    first = kept.open(job(tmp_path), 0)
    both = job(tmp_path, tasks=("stack", "reach"), search=10)
    kept.tell(both, kept.open(both, 0), HALF, 0.0, 2)
    kept = SearchBook(tmp_path / PRACTICE)
    kept.tell(both, kept.open(job(tmp_path), 0), HALF, 1.0, 3)
    assert [(one.task, one.trials) for one in SearchBook(tmp_path / PRACTICE)._searches] == [
        ("reach", [Attempt(HALF, 1.0, 1), Attempt(HALF, 1.0, 3)]),
        ("stack", [Attempt(HALF, 0.0, 2)]),
    ]
    assert first.task == "reach"


def test_a_correction_of_weights_that_have_it_already_is_not_searched_for_on(tmp_path):
    """The trials of before the learner took a correction say nothing of the weights after it."""
    kept = book(tmp_path, (HALF, 1.0), search=10)
    assert len(kept.open(job(tmp_path), 0).trials) == 1
    assert kept.open(job(tmp_path), 1).trials == []


def test_who_is_killed_after_it_found_something_has_left_it(tmp_path, monkeypatch):
    monkeypatch.setattr(SearchBook, "tell", killed_after(practising.write_atomic))
    with pytest.raises(KeyboardInterrupt):
        book(tmp_path, *[(HALF, 1.0), (MotionCorrection(), 0.0)] * 8, search=16, most=16)
    assert Practised(tmp_path / PRACTICE).findings().number == 1


def killed_after(write):
    tell, written = SearchBook.tell, []

    def once(self, *about):
        def note(path, data):
            written.append(path.name)
            if len(written) == 16:
                raise KeyboardInterrupt
            write(path, data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(practising, "write_atomic", note)
            return tell(self, *about)

    return once


def test_what_was_found_is_left_again_where_it_was_removed_or_is_of_other_weights(tmp_path):
    book(tmp_path, *[(HALF, 1.0), (MotionCorrection(), 0.0)] * 8, search=16, most=16)
    file = tmp_path / PRACTICE / FOUND
    told = file.read_text()
    file.unlink()
    about = job(tmp_path, search=16, most=16)
    assert nothing_to_do(about).startswith("waits: the learner is to make") and file.read_text() == told
    left = Practised(tmp_path / PRACTICE)
    left.tell(replace(left.findings(), number=7))  # of a learner that had more, and began anew
    assert nothing_to_do(about).startswith("waits: the learner is to make") and file.read_text() == told


def test_what_was_refused_is_not_left_again_and_searches_of_weights_that_were_left_are_forgotten(tmp_path):
    book(tmp_path, *[(HALF, 1.0), (MotionCorrection(), 0.0)] * 8, search=16, most=16)
    left, about = Practised(tmp_path / PRACTICE), job(tmp_path, search=16, most=16)
    kept = SearchBook(tmp_path / PRACTICE)
    kept.tell(about, kept.open(about, 1), HALF, 0.5, 17)  # the learner took it, and practice went on from there
    assert [one.after for one in SearchBook(tmp_path / PRACTICE)._searches] == [0, 1]
    left.refuse(left.findings(), "the gate: worse")
    refused = f"nothing more is found: {left.findings()} was refused (the gate: worse)"
    for _ in range(2):  # training went back to weights without it
        assert nothing_to_do(about) == refused
        (tmp_path / PRACTICE / FOUND).unlink(missing_ok=True)
    kept = SearchBook(tmp_path / PRACTICE)
    other = job(tmp_path, search=16, most=16, gap=Gap(yaw_deg=5.0))
    kept.tell(other, kept.open(other, 0), HALF, 0.5, 18)  # another robot is searched for
    assert [one.after for one in SearchBook(tmp_path / PRACTICE)._searches] == [0, 0]
    assert not (tmp_path / PRACTICE / FOUND).exists()
    (tmp_path / PRACTICE / REFUSED).write_bytes(b"{")
    with pytest.raises(StoreError, match=r"refused\.json cannot be read"):
        nothing_to_do(about)


def test_searches_and_findings_whose_episodes_are_gone_are_forgotten(tmp_path, monkeypatch):
    store = ExperienceStore(tmp_path / PRACTICE)
    book(tmp_path, *[(HALF, 1.0), (MotionCorrection(), 0.0)] * 8, search=16, most=16)
    about = job(tmp_path, search=16, most=16)
    store.close()
    assert nothing_to_do(about).startswith("waits: ") and Practised(tmp_path / PRACTICE).findings().number == 1
    for file in (tmp_path / PRACTICE).glob("experience.sqlite*"):
        file.unlink()
    assert nothing_to_do(about) == "" and Practised(tmp_path / PRACTICE).findings() is None
    monkeypatch.setattr(practising._Simulated, "episode", lambda *_: (1, True, 1.0))
    done = practise(replace(about, search=1, most=1))
    assert done.episodes == {"reach": 1}  # in another store
    assert "1 searches began anew, as the store with their episodes is gone" in str(done)
    assert SearchBook(tmp_path / PRACTICE).forgotten == 0


def test_what_is_found_for_a_policy_with_one_correction_is_what_helps_its_tasks_together(tmp_path, monkeypatch):
    """Two tasks need less of each motion, one of them not much less. One correction of both is left for both."""

    def run(simulated, task, tried):
        simulated._number += 1
        success = 0.6 < tried.scale < 0.8 if task == "reach" else tried.scale < 0.75
        return simulated._number, success, float(success)

    monkeypatch.setattr(practising._Simulated, "episode", run)
    for together in (False, True):
        folder = tmp_path / str(together)
        (folder / PRACTICE).mkdir(parents=True)
        practise(job(folder, search=50, most=150, tasks=("reach", "stack"), shown=2, together=together))
        found = Practised(folder / PRACTICE).findings().found
        assert [one.task for one in found] == ["reach", "stack"]
        reach, stack = (one.correction.scale for one in found)
        assert 0.5 < stack < 0.7 and (reach == stack if together else reach > stack)


def test_one_correction_that_helps_a_task_and_harms_the_others_is_not_left(tmp_path, monkeypatch):
    def run(simulated, task, tried):
        simulated._number += 1
        success = (tried.scale < 0.8) == (task == "stack")
        return simulated._number, success, float(success)

    monkeypatch.setattr(practising._Simulated, "episode", run)
    about = job(tmp_path, search=30, most=60, tasks=("reach", "press_button", "stack"), shown=8)
    (tmp_path / PRACTICE).mkdir()
    practise(about)
    assert [one.task for one in Practised(tmp_path / PRACTICE).findings().found] == ["stack"]
    (tmp_path / PRACTICE / FOUND).unlink()
    done = nothing_to_do(replace(about, together=True))
    assert done == "nothing more is found that makes reach, press_button, stack go better on a robot like this"


def test_a_policy_that_gives_joint_positions_does_not_practise(tmp_path):
    act = save_tiny("act", tmp_path / "act", state=8, action=8, side=128)
    with pytest.raises(CannotTrainError, match="alone: of tool motions, and this one gives joint positions"):
        practise(replace(job(tmp_path / "learner"), checkpoint=str(act)))


def test_a_frozen_policy_practises_with_the_edit_that_its_learner_has(tmp_path):
    act = save_tiny("act", tmp_path / "act", state=15, side=128)
    about = replace(job(tmp_path, search=1, most=1), checkpoint=str(act), together=True)
    half = MotionEditStep.of(load_policy(act).lineage.root, HALF).packed()
    save_progress(tmp_path / TRAINING, Progress("act", "", {}, updates=1, corrections=1), b"", half)
    assert practise(about).episodes == {"reach": 1}
    (info,) = ExperienceReader(tmp_path / PRACTICE).catalogue()
    assert info.policy_version == "training-0000001"
    assert {source.lineage for source in info.sources} == {load_policy(act).lineage.id}


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    (tmp_path / PRACTICE).mkdir()
    (tmp_path / PRACTICE / "driving.safetensors.77.partial").write_bytes(b"half")
    practise(job(tmp_path, search=1, most=1))
    assert not list((tmp_path / PRACTICE).glob("*.partial"))


def test_searches_that_cannot_be_read_are_named(tmp_path):
    kept = tmp_path / PRACTICE
    kept.mkdir()
    nothing = {"task": "reach", "robot": "", "after": 0, "found": None, "trials": []}
    for nonsense in (
        b"{",
        b"[]",  # without its checksum
        seal([1]),
        seal([{"task": "reach"}]),
        seal([nothing | {"trials": [[1]]}]),
        seal([nothing | {"found": {"scale": -1}}]),
        seal([nothing | {"trials": [{"tried": {}, "outcome": 7, "number": 1}]}]),
        seal([nothing | {"trials": [{"tried": {}, "outcome": 0.5, "number": 1}]}]).replace(b"0.5", b"0.6"),
        b"[" * 100_000,
    ):
        (kept / SEARCHES).write_bytes(nonsense)
        with pytest.raises(StoreError, match=r"searches\.json cannot be read"):
            nothing_to_do(job(tmp_path))


def test_tasks_are_those_that_the_newest_goals_ask_for_in_words(tmp_path):
    store = ExperienceStore(tmp_path)
    words = ("put the red cube in the bin", "sing a song", "press the red button", "touch the red block")
    for number, said in enumerate(words):
        store.append([step for step in _said(number, said)])
    store.commit()
    assert asked_lately(tmp_path, ("pick_place", "press_button", "stack")) == ("press_button", "pick_place")
    store.close()


def _said(number, words):
    return [replace(step, task="", instruction=words) for step in episode(number)]


def test_only_one_process_practises_for_a_learner(tmp_path):
    store = ExperienceStore(tmp_path / PRACTICE)
    with pytest.raises(StoreLockedError):
        practise(job(tmp_path))
    store.close()
