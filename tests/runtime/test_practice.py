"""A policy practises: what went well is stored and learnt from, over restarts."""

import json
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from safetensors.numpy import load, load_file, save

from engram.core.errors import InvalidInputError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.learning.algorithms import Algorithm
from engram.memory.robot_memory import RobotMemory
from engram.runtime.practice import Practice, PracticeConfig
from tests.learning.transitions import LINEAGE
from tests.memory.scenes import WordEncoder
from tests.runtime.test_loop import MAX_STEPS, FarEnough, GantryWorld, SameView, pipeline
from tests.runtime.test_policy_runner import Loadable


class Faster(Algorithm):
    """Each update makes the policy's weights one larger; they say how often it was updated."""

    lineage = LINEAGE

    def __init__(self, policy=None):
        self.count = np.zeros(1, np.float32)

    def update(self, batch, seed):
        self.count += 1
        return {"loss": 1.0}

    def weights(self):
        return save({"count": self.count})

    save = weights

    def restore(self, state):
        self.count = load(state)["count"]

    begin = restore


class Learning(Loadable):
    """Goes right, faster with every update; its first weights hardly move it."""

    speed_of = staticmethod(lambda count: 0.2 + 0.05 * count)

    def load_weights(self, path, version):
        self.speed, self.weights = self.speed_of(float(load_file(path)["count"][0])), version


ALGORITHM = "tests.runtime.test_practice:Faster"
CONFIG = PracticeConfig(algorithm=ALGORITHM, updates=2, first_successes=2, exploration=0.0, first_seed=1)


class Textured(GantryWorld):
    """Its camera shows something: experience of a covered one is not learnt from."""

    def _observe(self):
        seen = super()._observe()
        pixels = np.random.default_rng(self.steps).integers(0, 256, seen.cameras["front"].color.shape, np.uint8)
        return replace(seen, cameras={"front": replace(seen.cameras["front"], color=pixels)})


def practice(folder, policy=None, config=CONFIG, **how):
    return Practice(Textured(), pipeline(), policy or Learning(speed=0.2), "reach", folder, config, **how)


def test_each_success_pays_for_updates_and_the_next_episode_acts_with_them(tmp_path):
    policy = Learning(speed=0.2)
    one = practice(tmp_path, policy)
    episodes = [one.episode() for _ in range(3)]
    one.close()
    assert [e.updates for e in episodes] == [0, 4, 6]  # the second success was waited for
    assert [e.steps for e in episodes] == [8, 8, 4]  # 0.2 * 0.05 m a step, then 0.4
    assert policy.speed == pytest.approx(0.5)
    stored = one.store
    assert [e.success for e in episodes] == [True] * 3 and stored is not None


class Seeing(Faster):
    """Tells what it was shown of other goals."""

    shown: ClassVar[list] = []

    def see(self, others):
        self.shown.append(others)


def test_what_other_goals_look_like_is_shown_before_practice_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("engram.runtime.practice.FIRST_REHEARSED_SEED", 50)
    config = replace(CONFIG, algorithm="tests.runtime.test_practice:Seeing", rehearsed=2)
    for _ in range(2):
        one = practice(tmp_path, config=config, others=("reach",))
        one.close()
    first, again = Seeing.shown
    assert [len(one) for one in first] == [8, 8]  # two successes
    assert [one.instruction for one in first] == [one.instruction for one in again]
    for one, kept in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.images["front"], kept.images["front"])
    practice(tmp_path / "none", config=replace(config, rehearsed=0), others=("reach",)).close()
    practice(tmp_path / "alone", config=config).close()
    assert len(Seeing.shown) == 2


def test_a_practice_that_ended_goes_on_where_it_was(tmp_path):
    whole = practice(tmp_path / "whole")
    expected = [whole.episode() for _ in range(4)]
    whole.close()
    for _ in range(4):  # as if killed after each episode
        part = practice(tmp_path / "parts")
        part.episode()
        part.close()
    again = practice(tmp_path / "parts", policy := Learning(speed=0.2))
    assert again.episodes == expected and policy.speed == pytest.approx(whole.policy.speed)
    assert [i.steps for i in again.store.catalogue()] == [e.steps for e in expected]
    again.close()


def test_a_practice_that_was_killed_while_it_learnt_practises_nothing_twice(tmp_path, monkeypatch):
    whole = practice(tmp_path / "whole")
    expected = [whole.episode() for _ in range(3)]
    whole.close()
    part = practice(tmp_path / "killed")
    part.episode()
    with monkeypatch.context() as killed, pytest.raises(ZeroDivisionError):
        killed.setattr(part.learner, "step", lambda: 1 / 0)
        part.episode()
    part.close()
    again = practice(tmp_path / "killed", policy := Learning(speed=0.2))
    again.episode()
    assert again.episodes == expected and policy.speed == pytest.approx(whole.policy.speed)
    assert len(again.store.catalogue()) == 3
    again.close()


def test_a_judge_tells_what_is_learnt_from_and_the_simulator_only_scores(tmp_path):
    """The judge is certain after 3 looks, long before the gantry has come anywhere."""
    memory = partial(RobotMemory, encoder=WordEncoder())
    one = practice(tmp_path, judge=FarEnough(1), detector=SameView(), fresh_memory=memory)
    done = one.episode()
    (info,) = one.store.catalogue()
    (*_, last) = one.store.episode(info.number)
    one.close()
    assert (done.success, done.oracle_success, done.steps) == (True, False, 3)
    assert (last.reward, last.reward_source, last.task) == (1.0, "verdict", "")
    assert info.task == "go right"  # its words stand for a task that nobody registered


def test_what_failed_is_stored_and_not_learnt_from(tmp_path):
    one = practice(tmp_path, Learning(speed=0.0))
    done = one.episode()
    (info,) = one.store.catalogue()
    one.close()
    assert (done.success, done.steps, info.success, info.steps) == (False, MAX_STEPS, False, MAX_STEPS)
    assert one.learner.metrics["updates"] == 0


def test_noise_is_what_was_executed_and_what_is_learnt(tmp_path):
    one = practice(tmp_path, config=replace(CONFIG, exploration=0.3))
    one.episode()
    steps = one.store.episode(1)
    one.close()
    rows = np.array([s.executed_action for s in steps])
    assert np.abs(rows[:, 1]).max() > 0 and len(np.unique(rows[:3, 1])) == 1 < len(np.unique(rows[:, 1]))
    told = np.array([s.action for s in steps])
    np.testing.assert_array_equal(rows[:, [0, 1, 2, 6]], told[:, [0, 1, 2, 6]])  # the gantry does not turn


class Corrected(Faster):
    """Becomes as fast as the correction says."""

    told: ClassVar[list] = []
    can_correct = True

    def correct(self, shown, seed, check, others):
        (correction,) = {correction for _, correction in shown}
        self.told.append((correction, len(shown)))
        self.count += 8
        return {"loss": 0.0}


SEARCH = replace(CONFIG, algorithm="tests.runtime.test_practice:Corrected", search=14)


def test_the_correction_with_which_it_gets_there_becomes_part_of_what_drives(tmp_path):
    """At 0.09 the gantry does not come to 0.08 m in time; a correction that scales by 2 brings it there."""
    Corrected.told.clear()
    one = practice(tmp_path, policy := Learning(speed=0.09), SEARCH)
    tried = [one.episode() for _ in range(15)]
    after = tried.pop()
    assert all(e.outcome == float(e.success) for e in tried) and {e.success for e in tried} == {True, False}
    reach = [e.scale * 0.09 * np.cos(e.yaw_rad) + e.shift_x for e in tried]
    near, far = ([one for one, e in zip(reach, tried, strict=True) if e.success == there] for there in (True, False))
    assert min(near) > max(far) and min(near) > 0.09
    assert [e.updates for e in tried] == [0] * 14  # nothing was learnt while the correction was searched for
    (correction,) = one.corrections
    assert (
        correction.scale * 0.09 + correction.shift_x > 0.13
        and Corrected.told == [(correction, 24)]
        and policy.speed == pytest.approx(0.6)
    )
    assert after.updates == 1 and after.success
    one.close()


def test_what_cannot_take_a_correction_is_refused_before_anything_is_tried(tmp_path):
    with pytest.raises(InvalidInputError, match=r"PracticeConfig\.search: 5: Faster cannot .*, expected 0"):
        practice(tmp_path, config=replace(CONFIG, search=5))
    with pytest.raises(InvalidInputError, match=r"PracticeConfig\.search: -1, expected 0 or more"):
        replace(CONFIG, search=-1)
    practice(tmp_path / "again").close()


def test_a_search_that_was_ended_goes_on_where_it_was(tmp_path):
    whole = practice(tmp_path / "whole", Learning(speed=0.09), SEARCH)
    expected = [whole.episode() for _ in range(30)]
    whole.close()
    assert (
        len(whole.corrections) == 2 and whole.corrections[1] == MotionCorrection()
    )  # it gets there now: none is better than none
    assert expected[-1].updates == 1
    for _ in range(30):  # as if killed after each episode
        part = practice(tmp_path / "parts", policy := Learning(speed=0.09), SEARCH)
        part.episode()
        part.close()
    assert part.episodes == expected and part.corrections == whole.corrections
    assert policy.speed == pytest.approx(whole.policy.speed)


def test_a_correction_that_was_found_and_not_made_is_made_after_a_crash(tmp_path, monkeypatch):
    one = practice(tmp_path, Learning(speed=0.09), SEARCH)
    monkeypatch.setattr(one.learner, "correct_all", lambda correction: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        [one.episode() for _ in range(14)]
    one.close()
    again = practice(tmp_path, policy := Learning(speed=0.09), SEARCH)
    again.close()
    assert len(again.corrections) == 1 and policy.speed == pytest.approx(0.6)


def test_a_folder_of_another_practice_or_a_damaged_one_is_refused_by_name(tmp_path):
    practice(tmp_path).close()
    with pytest.raises(InvalidInputError, match=r"holds another practice .*exploration: 0\.0, not 0\.2"):
        practice(tmp_path, config=replace(CONFIG, exploration=0.2))
    with pytest.raises(InvalidInputError, match=r"holds another practice .*gap: None, not \{'yaw_deg': 15\}"):
        practice(tmp_path, about={"gap": {"yaw_deg": 15}})
    with pytest.raises(InvalidInputError, match=r"holds another practice .*judge: oracle, not one of mine"):
        practice(tmp_path, about={"judge": "one of mine"})
    (tmp_path / "episodes.jsonl").write_text(json.dumps({"what": 1}) + "\n")
    with pytest.raises(StoreError, match=r"episodes\.jsonl: cannot be read"):
        practice(tmp_path)
    (tmp_path / "practice.json").write_text("{")
    with pytest.raises(StoreError, match=r"practice\.json: cannot be read"):
        practice(tmp_path)


def test_a_folder_of_an_earlier_version_holds_what_its_settings_were_without_saying_so(tmp_path):
    gap = {"yaw_deg": 15.0, "gain": 1.0}
    again = partial(practice, tmp_path, about={"gap": gap}, before={"gap": {"yaw_deg": 0.0, "gain": 1.0}})
    again().close()
    kept = json.loads((tmp_path / "practice.json").read_text())
    del kept["rehearsed"], kept["help"]["noise"], kept["gap"]["gain"]
    (tmp_path / "practice.json").write_text(json.dumps(kept))
    again().close()
    with pytest.raises(InvalidInputError, match=r"holds another practice \(rehearsed: 0, not 3\)"):
        again(config=replace(CONFIG, rehearsed=3))
    with pytest.raises(InvalidInputError, match=r"holds another practice \(gap: .*'gain': 1\.0.*, not .*'gain': 2\.0"):
        again(about={"gap": gap | {"gain": 2.0}})
    again(before={"gap": gap, "files": "one"}, about={"gap": gap, "files": "one"}).close()
    with pytest.raises(InvalidInputError, match=r"holds another practice \(files: one, not two\)"):
        again(before={"gap": gap, "files": "two"}, about={"gap": gap, "files": "two"})  # it says so since
