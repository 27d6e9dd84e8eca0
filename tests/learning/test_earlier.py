"""A learner draws from the experience of earlier experiments, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.core.errors import InvalidInputError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import ActionSource
from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.experience.store import ExperienceStore
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig, check_shares
from engram.learning.replay.buffer import ReplayConfig
from engram.learning.replay.earlier import number_of
from tests.learning.transitions import LINEAGE, OTHER, OWN, episode
from tests.runtime.test_loop import GoRight


class Reached(BehaviorCloning):
    """Notes what it is shown, and learns nothing."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 2), lambda batch: batch, lineage=LINEAGE)
        self.shown: list = []

    def update(self, batch, seed):
        """Note the batch."""
        self.shown.append(batch)
        with torch.no_grad():
            self.policy.weight += 0.01
            self._averaged.weight += 0.01
        return {"loss": 0.0}


class WithFailures(Reached):
    """Draws batches, and learns from failures."""

    learns_from_failures = True


class Whole(Reached):
    """Takes all episodes."""

    whole_replay = learns_from_failures = True


def stored(folder, numbers, **how):
    """Store episodes ``numbers`` in ``folder`` and close it."""
    store = ExperienceStore(folder)
    for number in numbers:
        store.append(episode(number, 8, first=number * 8 + 1, **how))
    store.commit()
    store.close()
    return str(folder)


@pytest.fixture
def own(tmp_path):
    store = ExperienceStore(tmp_path / "own")
    yield store
    store.close()


def learner_of(store, algorithm, *earlier, folder=None, **replay) -> Learner:
    how = ReplayConfig(chunk_size=4, earlier=earlier, **replay)
    config = LearnerConfig(imitate_own=True, batch_size=16, first_episodes=1, replay=how)
    return Learner(store, GoRight(), algorithm, folder=folder, config=config)


def feed(store, numbers, **how):
    for number in numbers:
        store.append(episode(number, 8, first=number * 8 + 1, boot="now", **how))
    store.commit()


def from_earlier(batch, own_numbers):
    own = {t.state.tobytes() for number in own_numbers for t in episode(number, 8)}
    return sum(state.tobytes() not in own for state in batch["observation.state"])


def test_half_of_each_batch_is_of_earlier_experiments_and_pays_for_nothing(own, tmp_path):
    learner = learner_of(own, Reached(), stored(tmp_path / "a", range(4)), stored(tmp_path / "b", range(4, 6)))
    assert learner.metrics["earlier_episodes"] == 6 and learner.metrics["replay_steps"] == 48
    assert learner.step() is None and learner.metrics["update_credit"] == 0
    feed(own, range(10, 12))
    assert learner.poll() == 2 and learner.metrics["update_credit"] == 80
    learner.step()
    assert from_earlier(learner.algorithm.shown[0], range(10, 12)) == 8
    few = learner_of(own, Reached(), str(tmp_path / "a"), share_earlier=0.25)
    few.poll()
    few.step()
    assert from_earlier(few.algorithm.shown[0], range(10, 12)) == 4


def test_without_experience_of_its_own_it_learns_from_earlier_experiments_alone(own, tmp_path):
    before = stored(tmp_path / "a", range(3))
    with pytest.raises(InvalidInputError, match="no successful episode of lineage"):
        learner_of(own, Reached()).run(2)
    learner = learner_of(own, Reached(), before)
    metrics = learner.run(2)[1].metrics
    assert from_earlier(learner.algorithm.shown[0], ()) == 16
    assert metrics["earlier_episodes"] == 3 and len(metrics["earlier"]) == 16
    assert "earlier" not in learner_of(own, Reached()).metrics  # nor a word of them where there are none


def test_the_same_rules_hold_and_what_is_passed_over_is_counted(own, tmp_path):
    folder = tmp_path / "a"
    store = ExperienceStore(folder)
    sources = [OWN, ActionSource("spatial", OTHER.id), ActionSource("base"), replace(OWN, ablation="zeroed")]
    for number, source in enumerate(sources):
        store.append(episode(number, 8, source=source))
    store.append(episode(4, 8, success=False))
    store.append(episode(5, 8, image_size=6))
    store.commit()
    store.close()
    learner = learner_of(own, Reached(), str(folder))
    assert learner.metrics["earlier_episodes"] == 1 and "images front (3, 6, 6)" in learner.misfit
    told = {"other lineage": 1, "unknown lineage": 1, "ablation": 1, "of another shape": 1}
    told["failed, or judged by nobody"] = 1
    assert learner.earlier_passed_over == told and learner.passed_over == {}
    alone = [replace(one, author="") for one in episode(6, 8, first=100)]
    store = ExperienceStore(tmp_path / "b")
    store.append(alone)
    store.commit()
    store.close()
    shy = LearnerConfig(replay=ReplayConfig(earlier=(str(tmp_path / "b"),)))
    with pytest.raises(InvalidInputError, match=r"/b: none .* \(1 the policy alone, without noise\)"):
        Learner(own, GoRight(), Reached(), config=shy)
    failing = learner_of(own, WithFailures(), str(folder))
    assert failing.metrics["earlier_episodes"] == 2


def test_a_learner_that_takes_all_episodes_gets_these_first_under_numbers_that_stay(own, tmp_path):
    before = stored(tmp_path / "a", range(3))
    feed(own, range(10, 12))
    learner = learner_of(own, Whole(), before, folder=tmp_path / "training")
    learner.poll()
    learner.step()
    numbers = [one.number for one in learner.algorithm.shown[0]]
    assert numbers[3:] == [1, 2] and all(number < 0 for number in numbers[:3])
    learner.save()
    again = learner_of(own, Whole(), stored(tmp_path / "b", range(5, 6)), before, folder=tmp_path / "training")
    assert again.poll() == 0
    again.step()
    found = [one.number for one in again.algorithm.shown[0]]
    assert found[1:] == numbers and "replay.earlier" in again.changed["settings"]
    assert number_of("s", 1) != number_of("t", 1) != number_of("t", 2)


def test_a_training_with_earlier_experience_goes_on_bit_for_bit(own, tmp_path):
    before = stored(tmp_path / "a", range(3))
    feed(own, range(10, 12))

    def after(*parts):
        batches = []
        for updates in parts:
            learner = learner_of(own, Reached(), before, folder=tmp_path / f"t{len(parts)}")
            learner.poll()
            for _ in range(updates):
                learner.step()
            learner.save()
            batches += [one["observation.state"] for one in learner.algorithm.shown]
        return np.stack(batches)

    np.testing.assert_array_equal(after(4), after(1, 3))


def test_what_is_no_earlier_experience_is_refused_by_name(own, tmp_path):
    before = stored(tmp_path / "run" / "experience", range(1))
    assert learner_of(own, Reached(), str(tmp_path / "run")).metrics["earlier_episodes"] == 1  # what is around it, too
    nowhere, empty = tmp_path / "nowhere", tmp_path / "damaged"
    empty.mkdir()
    (empty / "experience.sqlite").write_bytes(b"no database" * 100)
    wrong = {
        str(nowhere): "nowhere.*: no experience is stored there",
        str(empty): "damaged",
        str(tmp_path / "own"): "is the experience that the learner fills",
    }
    for folder, told in wrong.items():
        with pytest.raises(InvalidInputError, match=rf"LearnerConfig\.replay\.earlier: .*{told}"):
            learner_of(own, Reached(), folder)
    with pytest.raises(InvalidInputError, match="holds the same experience as one before"):
        learner_of(own, Reached(), before, str(tmp_path / "run"))


def test_a_folder_without_an_episode_to_learn_from_is_refused_with_the_reasons_and_what_would_fit(own, tmp_path):
    good, strange = stored(tmp_path / "good", range(2)), ActionSource("spatial", OTHER.id)
    wrong = stored(tmp_path / "wrong", range(3), source=strange)
    told = (
        r"replay\.earlier: .*/wrong: none of .* \(3 other lineage\); expected some of lineage base \(r{12}\), .* same"
    )
    with pytest.raises(InvalidInputError, match=told):
        learner_of(own, Reached(), good, wrong)  # though another folder has some
    with pytest.raises(InvalidInputError, match=r"/empty: none of .* \(there is none\)"):
        learner_of(own, Reached(), stored(tmp_path / "empty", ()))
    failed = stored(tmp_path / "failed", range(2), success=False)
    with pytest.raises(InvalidInputError, match=r"\(2 failed, or judged by nobody\)"):
        learner_of(own, Reached(), failed)
    assert learner_of(own, WithFailures(), failed).metrics["earlier_episodes"] == 2


def test_what_the_capacity_does_not_hold_is_counted(own, tmp_path):
    learner = learner_of(own, Reached(), stored(tmp_path / "a", range(5)), capacity=24)
    assert learner.metrics["earlier_episodes"] == 3
    assert learner.earlier_passed_over == {"beyond the capacity of the replay buffer": 2}


def test_the_learners_own_episodes_decide_which_shape_is_learnt_from(own, tmp_path):
    before = stored(tmp_path / "a", range(3), image_size=6)
    feed(own, range(10, 12))
    for polled in (2, 0):  # again when it goes on
        one = learner_of(own, Reached(), before, folder=tmp_path / "training")
        assert one.metrics["earlier_episodes"] == (3 if polled else 0)
        assert one.poll() == polled and one.passed_over == {}
        assert one.earlier_passed_over == {"of another shape": 3} and one.metrics["earlier_episodes"] == 0
        assert one.misfit == "3 episodes of earlier experiments: of another shape than the learner's own"
        assert "earlier" not in one.run(1)[1].metrics
        assert one.algorithm.shown[0]["observation.images.front"].shape == (16, 3, 8, 8)
        one.save()


def test_a_correction_is_learnt_in_failures_too_whatever_the_shares_are(own, tmp_path):
    class Corrected(Reached):
        def correct(self, shown, seed, check, others=()):
            self.shown = [batch for batch, _ in shown]
            self.update(self.shown[0], seed)
            return {"loss": 0.0}

    learner = learner_of(own, Corrected(), stored(tmp_path / "a", range(1)), share_successes=0.5)
    good, bad = episode(10, 8), episode(11, 8, success=False)
    learner.correct([(MotionCorrection(scale=0.5), good), (MotionCorrection(scale=0.5), bad)])
    found = from_earlier(learner.algorithm.shown[0], [10])
    assert 48 < found < 80  # of 128, half of each: binomial sd 5.7


def test_experience_that_grew_since_the_training_was_left_is_told(own, tmp_path):
    before = stored(tmp_path / "a", range(3))
    feed(own, range(10, 12))
    learner_of(own, Reached(), before, folder=tmp_path / "training").save()
    assert learner_of(own, Reached(), before, folder=tmp_path / "training").changed == {}
    stored(tmp_path / "a", range(3, 5))
    again = learner_of(own, Reached(), before, folder=tmp_path / "training")
    assert list(again.changed) == ["earlier experience"] and "now 5" in again.changed["earlier experience"]
    again.save()
    assert learner_of(own, Reached(), before, folder=tmp_path / "training").changed == {}


def test_earlier_experience_that_nothing_is_drawn_from_is_refused_by_name(own, tmp_path):
    class Frozen(Reached):
        frozen = "its network is frozen"

    how = LearnerConfig(updates_per_episode=0, replay=ReplayConfig(earlier=(stored(tmp_path / "a", range(1)),)))
    for algorithm, why in ((Reached(), "updates_per_episode is 0"), (Frozen(), "its network is frozen")):
        told = rf"LearnerConfig\.replay\.earlier: .*/a: nothing is drawn from these: {why}; expected none"
        with pytest.raises(InvalidInputError, match=told):
            Learner(own, GoRight(), algorithm, config=how)
        with pytest.raises(InvalidInputError, match=told):
            check_shares(algorithm, how)


def test_shares_that_an_algorithm_cannot_have_are_refused_by_name(own):
    with pytest.raises(InvalidInputError, match=r"share_failures: 0\.2: Reached learns from no failure; expected 0"):
        learner_of(own, Reached(), share_failures=0.2)
    assert learner_of(own, WithFailures(), share_failures=0.2).config.replay.share_failures == 0.2
    for name in ("share_successes", "share_failures", "share_person"):
        with pytest.raises(InvalidInputError, match=rf"replay\.{name}: 0\.2: Whole takes all episodes, .*expected 0"):
            learner_of(own, Whole(), **{name: 0.2})


def test_a_share_of_failures_reaches_a_rule_that_draws_batches(own):
    feed(own, range(3))
    feed(own, range(3, 20), success=False)
    learner = learner_of(own, WithFailures(), share_failures=0.25, share_successes=0.75)
    learner.poll()
    learner.step()
    (batch,) = learner.algorithm.shown
    assert from_earlier(batch, range(3)) == 4
