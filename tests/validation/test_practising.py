"""Practice in simulation: of what the robot was asked for, with what was learnt last, as fast as the learner learns."""

from dataclasses import asdict, replace

import pytest
from safetensors.numpy import load_file, save

from engram.core.errors import StoreLockedError
from engram.learning.experience.eligibility import why_not
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import LearnerConfig
from engram.learning.progress import Progress, save_progress
from engram.learning.workspace import PRACTICE, TRAINING
from engram.runtime.factories import make_learnable, policy_folder
from engram.sim.gaps import Gap
from engram.validation.practising import AHEAD, PracticeJob, asked_lately, practise
from tests.learning.transitions import episode

pytestmark = pytest.mark.timeout(300)
BASE = policy_folder("base")


def job(folder, **how):
    return PracticeJob(folder, str(BASE), **{"gap": Gap(), "tasks": ("reach",), "episodes": 2} | how)


def learnt(folder, *, updates=0, credit=0, cursor=0, factor=1.0, **config):
    """Save a training state whose weights are those of ``base`` times ``factor``."""
    weights = save({name: one * one.dtype.type(factor) for name, one in load_file(BASE / "model.safetensors").items()})
    progress = Progress("base", "", asdict(LearnerConfig(**config)), updates=updates, update_credit=credit)
    progress.practised_cursor = cursor
    save_progress(folder / TRAINING, progress, b"", weights)


def test_what_went_well_is_kept_in_words_for_a_learner_of_the_policy(tmp_path):
    done = practise(job(tmp_path))
    assert (done.episodes, done.tasks) == (2, ("reach",))
    assert str(done) == f"{done.successes} of 2 episodes of reach went well in simulation"
    first, second = ExperienceReader(tmp_path / PRACTICE).catalogue()
    assert first.success + second.success == done.successes > 0
    assert first.task == first.instruction != "reach"  # as a robot tells its goals
    assert why_not(first.sources, make_learnable("base").lineage) == ""
    assert ExperienceReader(tmp_path / PRACTICE).episode(1)[0].reward_source == "oracle"


def test_what_was_learnt_last_drives_and_scenes_are_new_after_a_restart(tmp_path):
    practise(job(tmp_path, episodes=1))
    learnt(tmp_path, updates=7, cursor=1, factor=-1.0)  # ruined
    assert practise(job(tmp_path, episodes=1)).successes == 0
    one, two = ExperienceReader(tmp_path / PRACTICE).catalogue()
    assert two.policy_version == "training-0000007" != one.policy_version
    states = [ExperienceReader(tmp_path / PRACTICE).episode(number)[0].images["front"] for number in (1, 2)]
    assert (states[0] != states[1]).any()


def test_practice_waits_for_the_learner(tmp_path):
    per_success = LearnerConfig().updates_per_episode
    learnt(tmp_path, credit=AHEAD * per_success)
    assert practise(job(tmp_path, lasts_s=1.0)).episodes == 0
    learnt(tmp_path, updates=1, credit=(AHEAD - 1) * per_success)
    done = practise(job(tmp_path, episodes=50, lasts_s=20.0))
    assert done.successes == 1  # then there are enough for it again


def test_practice_goes_on_until_the_learner_has_what_it_begins_with(tmp_path):
    learnt(tmp_path, first_episodes=AHEAD + 2)
    assert practise(job(tmp_path, episodes=50, lasts_s=40.0)).successes == AHEAD + 2


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


def test_other_tasks_of_the_policy_get_their_share(tmp_path):
    done = practise(job(tmp_path, others=("press_button",), share_others=1.0, episodes=1))
    assert done.tasks == ("press_button",)
