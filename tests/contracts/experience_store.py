"""The laws that every ExperienceStore keeps."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytest

from engram.core.errors import EngramError
from engram.learning.experience.store import ExperienceStore
from tests.learning.transitions import assert_same, episode

STREAM = ("panda", "boot")


class ExperienceStoreContract:
    """Subclass as ``TestX`` and say how to open the one store of this test."""

    @abstractmethod
    def open(self) -> ExperienceStore:
        """Open the store, new or as it was closed."""

    @pytest.fixture
    def store(self):
        store = self.open()
        yield store
        store.close()

    def test_what_was_committed_comes_back_bit_for_bit_after_a_restart(self, store):
        given = episode(0) + episode(1)
        store.append(given)
        assert store.commit() == {STREAM: 8}
        store.close()
        again = self.open()
        came = [one for transitions in again.episodes() for one in transitions]
        again.close()
        for mine, theirs in zip(came, given, strict=True):
            assert_same(mine, theirs)

    def test_truncated_and_terminated_stay_apart_over_a_reload(self, store):
        store.append(episode(0, truncated=True) + episode(1))
        store.commit()
        store.close()
        again = self.open()
        ends = [(t[-1].terminated, t[-1].truncated) for t in again.episodes()]
        assert ends == [(False, True), (True, False)]
        assert not any(one.terminated or one.truncated for t in again.episodes() for one in t[:-1])
        again.close()

    def test_nothing_is_acknowledged_or_yielded_before_the_commit(self, store):
        store.append(episode(0))
        assert list(store.episodes()) == []
        assert store.commit() == {STREAM: 4}
        assert len(list(store.episodes())) == 1

    def test_what_comes_again_is_stored_once(self, store):
        store.append(episode(0))
        store.append(episode(0)[2:])
        store.commit()
        store.append(episode(0))
        assert store.commit() == {STREAM: 4}
        assert [len(t) for t in store.episodes()] == [4]

    def test_the_acknowledgement_stops_below_a_gap_and_jumps_when_it_closes(self, store):
        steps = episode(0, steps=6)
        store.append(steps[:2] + steps[3:])
        assert store.commit() == {STREAM: 2}
        assert list(store.episodes()) == []
        store.append([steps[2]])
        assert store.commit() == {STREAM: 6}
        assert [t.step for t in next(iter(store.episodes()))] == list(range(6))

    def test_any_order_gives_the_same_episode(self, store):
        steps = episode(0, steps=7)
        for i in np.random.default_rng(0).permutation(7):
            store.append([steps[i]])
            store.commit()
        assert [t.sequence for t in next(iter(store.episodes()))] == list(range(1, 8))

    def test_robots_and_boots_are_streams_of_their_own(self, store):
        store.append(episode(0) + episode(0, steps=3, boot="later") + episode(0, steps=2, robot="other"))
        assert store.commit() == {STREAM: 4, ("panda", "later"): 3, ("other", "boot"): 2}
        assert [len(t) for t in store.episodes()] == [4, 3, 2]

    def test_an_unfinished_episode_is_kept_but_not_yielded(self, store):
        store.append(episode(0, finished=False) + episode(1))
        assert store.commit() == {STREAM: 8}
        assert [t[0].episode for t in store.episodes()] == [1]

    def test_the_fragments_of_a_cut_episode_are_not_glued_together(self, store):
        """The robot restarted in the middle: the same episode number goes on in another boot."""
        head, tail = episode(3, steps=6, first=1)[:3], episode(3, steps=6, first=1, boot="after")[3:]
        store.append(head + tail)
        store.commit()
        assert list(store.episodes()) == []

    def test_an_episode_that_ends_twice_is_not_yielded(self, store):
        store.append(episode(0, steps=3, first=1) + [one for one in episode(0, steps=6, first=1) if one.step >= 3])
        store.commit()
        assert list(store.episodes()) == []

    def test_interventions_and_both_actions_are_kept(self, store):
        store.append(episode(0))
        store.commit()
        (steps,) = store.episodes()
        assert [(t.intervention, t.person) for t in steps] == [(False, ""), (True, "ann")] * 2
        assert all((t.executed_action == t.action * np.float32(0.5)).all() for t in steps)

    def test_commit_of_nothing_repeats_the_acknowledgement(self, store):
        assert store.commit() == {}
        store.append(episode(0))
        assert store.commit() == store.commit() == {STREAM: 4}

    def test_a_bad_identity_is_refused_and_nothing_of_the_batch_is_stored(self, store):
        with pytest.raises(EngramError, match="sequence"):
            store.append(episode(0) + episode(1, first=0))
        assert store.commit() == {}

    def test_close_commits_and_may_be_called_twice(self, store):
        store.append(episode(0))
        store.close()
        store.close()
        again = self.open()
        assert len(list(again.episodes())) == 1
        again.close()
