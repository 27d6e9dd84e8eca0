"""Practice that an expert helps: who drives when, how much at most, and that it goes on as if it had not ended."""

from __future__ import annotations

import numpy as np
import pytest

from engram.app.plot import goals_of
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk
from engram.runtime.oracle_helper import HELP, HelpConfig
from engram.runtime.practice import Practice, PracticeConfig
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import get_gap
from engram.sim.tasks import get_task
from engram.sim.world import WorldConfig
from tests.runtime.test_policy_runner import Loadable

LIMIT = get_task("reach").max_steps
SHARE = 0.3


class SetsOut(Loadable):
    """Moves down for ten control steps, which leads it nearer, then stands still: it never gets there."""

    def reset(self, instruction, episode=0, seed=0):
        self.episode, self.steps, self.begun_with = episode, 0, [*getattr(self, "begun_with", []), episode]

    def observe(self, observation, memory=None):
        self.stamp_ns, self.steps = observation.stamp_ns, self.steps + 1

    def act(self):
        actions = np.zeros((8, 7))
        actions[:, 2] = -0.3 * (np.arange(8) + self.steps <= 10)
        return ActionChunk(self.stamp_ns, self.episode, "ee_delta", actions, 0.1, 8, self.version)

    def load_weights(self, path, version):
        self.weights = version


@pytest.fixture(scope="module")
def world():
    made = GapWorld(get_gap("none"), WorldConfig(depth=False))
    yield made
    made.close()


def practice(world, folder, by, task="reach", share=SHARE):
    config = PracticeConfig(
        algorithm="tests.runtime.test_practice:Faster", exploration=0.0, help=HelpConfig(share=share, by=by)
    )
    return Practice(world, gap_pipeline(world), SetsOut(), task, folder, config)


def driven_by_expert(one):
    """Return for each stored episode at which of its control steps the expert drove (n,) bool."""
    return [np.array([step.intervention for step in one.store.episode(i.number)]) for i in one.store.catalogue()]


@pytest.mark.parametrize("by", HELP)
def test_help_keeps_to_its_share_is_shown_and_goes_on_after_an_end_as_if_there_had_been_none(world, tmp_path, by):
    whole = practice(world, tmp_path / "whole", by)
    episodes = [whole.episode() for _ in range(6)]
    drove = driven_by_expert(whole)
    whole.close()
    assert any(one.any() for one in drove[:-1])
    all_steps = np.concatenate(drove)
    shares = np.cumsum(all_steps) / np.arange(1, len(all_steps) + 1)
    assert 0.0 < shares[-1] <= shares.max() <= SHARE  # at every step
    assert [one.helped for one in episodes] == [int(one.sum()) for one in drove]
    told = goals_of(tmp_path / "whole" / "experience")  # what engram plot draws
    assert [one.helped for one in told] == [one.mean() for one in drove]
    for _ in range(6):  # as if killed after each episode
        part = practice(world, tmp_path / "parts", by)
        part.episode()
        part.close()
    assert part.episodes == episodes


def test_what_finishes_drives_late_and_to_the_end(world, tmp_path):
    one = practice(world, tmp_path, "finish")
    episodes = [one.episode() for _ in range(6)]
    drove = driven_by_expert(one)
    one.close()
    helped = [(e, d) for e, d in zip(episodes, drove, strict=True) if e.helped]
    assert helped and all(e.success and not d[:16].any() and d[16:].all() for e, d in helped)
    assert [e.seed for e in episodes] == list(range(20_000, 20_006))


def test_what_guides_drives_a_short_while_where_the_policy_is_stuck(world, tmp_path):
    one = practice(world, tmp_path, "guide", share=1.0)
    one.episode()
    (drove,) = driven_by_expert(one)
    one.close()
    begins = np.flatnonzero(drove[1:] & ~drove[:-1]) + 1
    assert 12 + 5 < begins[0] < 12 + 14  # it has moved on for some ten steps, and then stood still for twelve
    assert drove[begins[0] : begins[0] + 12].all() and not drove[begins[0] + 12 :].any()


@pytest.mark.parametrize("by", ["return", "demonstrate"])
def test_a_scene_that_failed_is_practised_again_with_help_and_with_other_noise(world, tmp_path, by):
    one = practice(world, tmp_path, by)
    episodes = [one.episode() for _ in range(9)]
    drove = driven_by_expert(one)
    one.close()
    again = [(e, d) for e, d in zip(episodes, drove, strict=True) if e.again]
    new = [(e, d) for e, d in zip(episodes, drove, strict=True) if not e.again]
    assert again and not any(d.any() for _, d in new) and not any(e.oracle_success for e, _ in new)
    assert [e.seed for e, _ in new] == list(range(20_000, 20_000 + len(new)))
    for done, by_expert in again:
        failed = episodes[done.again - 1]
        assert failed.seed == done.seed and failed.number < done.number and not failed.again
        if by == "demonstrate":
            assert by_expert.all() and done.oracle_success
        else:
            led = int(by_expert.sum())
            assert 0 < led <= 0.6 * LIMIT and by_expert[:led].all() and not by_expert[led:].any()
    assert len({e.again for e, _ in again}) == len(again)  # each scene but once
    begun = [e.number if e.again else e.seed for e in episodes]
    assert one.policy.begun_with == begun


def test_the_arm_is_led_to_where_the_failure_began(world, tmp_path):
    """It was at its best after ten steps; it is led to where it was five steps before that."""
    one = practice(world, tmp_path, "return", share=1.0)
    failed = one.episode()
    assert not failed.again and failed.lost_at > 0.0
    progress = []
    helper = one.runtime.human

    def watched(observation):
        action = helper(observation)
        progress.append((world.task.oracle_progress(world), action is not None))
        return action

    one.runtime.human = watched
    done = one.episode()
    one.close()
    led = done.helped
    assert done.again == 1 and [by for _, by in progress] == [True] * led + [False] * (len(progress) - led)
    assert all(near < failed.lost_at for near, by in progress if by)
    assert progress[led][0] >= failed.lost_at


def test_where_nothing_tells_the_progress_nobody_can_lead_back(world, tmp_path):
    with pytest.raises(InvalidInputError, match=r"HelpConfig\.by: return: shell_touch tells no progress"):
        practice(world, tmp_path, "return", task="shell_touch")
