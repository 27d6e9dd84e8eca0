"""What a behaviour-cloning batch holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.errors import InvalidInputError
from engram.learning.replay.buffer import EpisodeStream, ReplayBuffer, ReplayConfig
from tests.learning.transitions import episode


def buffer(*episodes, **config):
    """Return a buffer of ``episodes``, numbered 1, 2, ..."""
    replay = ReplayBuffer(ReplayConfig(**{"chunk_size": 3, **config}))
    for number, transitions in enumerate(episodes, 1):
        replay.add(number, transitions)
    return replay


def alone(steps):
    """Return ``steps`` as if no person had driven."""
    return [replace(one, intervention=False) for one in steps]


def test_a_sample_is_the_observation_with_the_executed_actions_that_followed():
    steps = alone(episode(0, steps=5))
    batch = buffer(steps).sample(64, seed=(0, 0))
    assert batch["observation.images.front"].shape == (64, 3, 8, 8)
    assert batch["observation.images.front"].dtype == np.uint8
    assert batch["action"].shape == (64, 3, 7) and batch["task"] == ["reach the red mark"] * 64
    found = set()
    for state, image, action, unlearnt in zip(
        *(batch[k] for k in ("observation.state", "observation.images.front", "action", UNLEARNT_KEY)), strict=True
    ):
        (i,) = [i for i, t in enumerate(steps) if (t.state == state).all()]
        found.add(i)
        np.testing.assert_array_equal(image.transpose(1, 2, 0), steps[i].images["front"])
        rows = [min(i + k, 4) for k in range(3)]
        wanted = np.array([steps[r].executed_action for r in rows])
        wanted[5 - i :, :-1] = 0.0  # after the end it rests, the gripper as it was
        np.testing.assert_array_equal(action, wanted)
        assert not unlearnt.any()
    assert found == set(range(5))


def test_the_same_seed_gives_the_same_batch_and_another_seed_another():
    replay = buffer(episode(0, 20), episode(1, 20))
    first, again, other = (replay.sample(8, seed)["observation.state"] for seed in ((0, 1), (0, 1), (0, 2)))
    assert (first == again).all() and (first != other).any()


def test_new_episodes_get_their_share():
    replay = buffer(*(episode(i, 10) for i in range(20)), newest=2, share_new=0.75)
    new = {t.state.tobytes() for i in (18, 19) for t in episode(i, 10)}
    batch = replay.sample(40, seed=(0,))
    assert sum(state.tobytes() in new for state in batch["observation.state"]) == 30


def test_among_the_old_all_tasks_count_alike():
    """19 episodes of reach, one of stack: half of the old samples are stack's."""
    replay = buffer(
        *(episode(i, 10) for i in range(19)), episode(19, 10, task="stack"), episode(20, 10), newest=1, share_new=0.0
    )
    share = np.mean([words.startswith("stack") for words in replay.sample(1000, seed=(0,))["task"]])
    assert 0.45 < share < 0.55  # binomial sd 0.016


def test_where_no_task_is_registered_the_words_stand_for_it():
    """As on a robot: nineteen goals of one kind do not outweigh one of another."""
    said = [replace(t, task="") for number in range(19) for t in episode(number, 10)]
    other = [replace(t, task="") for t in episode(19, 10, task="stack")]
    goals = [said[i * 10 : i * 10 + 10] for i in range(19)]
    replay = buffer(*goals, other, episode(20, 10), newest=1, share_new=0.0)
    share = np.mean([words.startswith("stack") for words in replay.sample(1000, seed=(0,))["task"]])
    assert 0.45 < share < 0.55


def test_beyond_capacity_the_largest_task_gives_way_and_the_newest_stays():
    replay = ReplayBuffer(ReplayConfig(capacity=60))
    replay.add(1, episode(1, 10, task="stack"))
    for number in range(2, 30):
        replay.add(number, episode(number, 10))
        assert number in replay.numbers
    assert 1 in replay.numbers and len(replay) == 60


def test_images_are_shrunk_once_by_the_policys_own_function():
    replay = ReplayBuffer(shrink=lambda _, stack: stack[..., ::2, ::2])
    replay.add(1, episode(0))
    assert replay.sample(2, (0,))["observation.images.front"].shape == (2, 3, 4, 4)


def test_an_episode_of_another_form_is_refused_with_both_forms():
    replay = buffer(episode(0))
    with pytest.raises(InvalidInputError, match=r"episode 9: images front \(3, 6, 6\).*holds images front \(3, 8, 8\)"):
        replay.add(9, episode(1, image_size=6))
    with pytest.raises(InvalidInputError, match="episode 9: no transitions"):
        replay.add(9, [])
    with pytest.raises(InvalidInputError, match="empty"):
        ReplayBuffer().sample(1, (0,))
    with pytest.raises(InvalidInputError, match="share_new"):
        ReplayConfig(share_new=1.5)


TAKES = {"observation.images.front": (3, 4, 4), "observation.images.wrist": (3, 4, 4)} | {
    "observation.state": (15,),
    "action": (7,),
}


def with_cameras(number, *names, **how):
    return [replace(t, images=dict.fromkeys(names, t.images["front"])) for t in episode(number, **how)]


def test_what_the_policy_takes_decides_and_not_the_first_episode():
    replay = ReplayBuffer(ReplayConfig(chunk_size=3), lambda _, stack: stack[..., ::2, ::2], TAKES)
    with pytest.raises(
        InvalidInputError,
        match="episode 1: no camera wrist; the policy takes front, wrist, the episode has front, side",
    ):
        replay.add(1, with_cameras(0, "front", "side"))
    with pytest.raises(InvalidInputError, match=r"no camera front or wrist; .* has none"):
        replay.add(1, with_cameras(0))
    replay.add(1, with_cameras(0, "wrist", "side", "front"))
    replay.add(2, with_cameras(1, "front", "wrist"))
    assert replay.numbers == (1, 2)
    assert [list(one.images) for one in replay.episodes] == [["front", "wrist"]] * 2
    assert replay.sample(8, (0,))["observation.images.wrist"].shape == (8, 3, 4, 4)
    with pytest.raises(
        InvalidInputError, match=r"episode 3: images front \(3, 3, 3\).*the policy takes images front \(3, 4, 4\)"
    ):
        replay.add(3, with_cameras(2, "front", "wrist", image_size=6))
    longer = [replace(t, state=np.zeros(16, np.float32)) for t in with_cameras(2, "front", "wrist")]
    with pytest.raises(InvalidInputError, match=r"state \(16,\).*the policy takes .*state \(15,\)"):
        ReplayBuffer(replay.config, lambda _, stack: stack[..., ::2, ::2], TAKES).add(3, longer)


def test_steps_at_which_an_arm_was_held_are_not_learnt():
    steps = alone(episode(0, steps=4))
    still = np.array([0, 0, 0, 0, 0, 0, 1], np.float32)
    replay = buffer([steps[0], replace(steps[1], executed_action=still), *steps[2:]], chunk_size=2)
    batch = replay.sample(64, seed=(0,))
    for state, unlearnt in zip(batch["observation.state"], batch[UNLEARNT_KEY], strict=True):
        (i,) = [i for i, t in enumerate(steps) if (t.state == state).all()]
        assert unlearnt.tolist() == [i == 1, i == 0]


def test_what_the_policy_did_just_before_a_person_took_over_is_not_learnt():
    helped = [replace(one, intervention=at in (14, 15, 16)) for at, one in enumerate(episode(0, steps=20))]
    by_hand = [replace(one, intervention=True) for one in episode(1, steps=20)]
    replay = buffer(helped, by_hand, chunk_size=20)
    _, unlearnt = replay.get(1).chunk(0, 20)
    assert np.flatnonzero(unlearnt).tolist() == list(range(4, 14))  # a second
    assert not replay.get(2).chunk(0, 20)[1].any()
    assert not replay.sample(200, (1,))[UNLEARNT_KEY].all(axis=1).any()  # each sample teaches something


def walked(walk, windows):
    """Return what each lane has walked through: (episode, steps) window by window."""
    streams = [[] for _ in walk.places]
    for number in range(windows):
        window = walk.next((0, number))
        for lane, (found, at) in enumerate(zip(window.episodes, window.at, strict=True)):
            streams[lane].append((found.number, at, min(at + window.steps, len(found))))
    return streams


def test_a_lane_walks_through_whole_episodes_in_windows():
    lengths = {1: 5, 2: 3, 3: 8}
    for lane in walked(EpisodeStream(buffer(*(episode(i, n) for i, n in lengths.items())), streams=2, window=3), 30):
        before = None
        for number, begin, end in lane:
            if before is None or before[1] == lengths[before[0]]:
                assert begin == 0
            else:
                assert (number, begin) == before
            before = (number, end)
        assert {number for number, *_ in lane} == set(lengths)


def test_a_walk_goes_on_from_its_places_and_leaves_an_episode_that_has_gone():
    replay = buffer(episode(0, 9), episode(1, 9))
    straight, first, second = EpisodeStream(replay, 2, 4), EpisodeStream(replay, 2, 4), EpisodeStream(replay, 2, 4)
    expected = [straight.next((0, i)) for i in range(5)][-1]
    for i in range(4):
        first.next((0, i))
    second.places = first.places
    resumed = second.next((0, 4))
    assert [e.number for e in resumed.episodes] == [e.number for e in expected.episodes]
    assert resumed.at.tolist() == expected.at.tolist()
    second.places = [[77, 4], [1, 4]]
    window = second.next((0,))
    assert window.at.tolist() == [0, 4]
    assert window.episodes[0].number in (1, 2)


def test_whole_episodes_are_drawn_as_their_steps_would_be():
    """Nine of ten steps of the new are those of the long one; of the old, every task counts alike."""
    new = buffer(episode(0, 90), episode(1, 10), newest=2)
    numbers = [new.draw(np.random.default_rng(i)).number for i in range(400)]
    assert 0.84 < numbers.count(1) / 400 < 0.96  # binomial sd 0.015
    old = [episode(i, 10) for i in range(9)] + [episode(9, 10, task="stack"), episode(10, 10)]
    tasks = [buffer(*old, newest=1, share_new=0.0).draw(np.random.default_rng(i)).task for i in range(100)]
    assert 30 < tasks.count("stack") < 70
