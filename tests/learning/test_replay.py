"""What a behaviour-cloning batch holds."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_MASK_KEY
from engram.core.errors import InvalidInputError
from engram.core.types import MemoryTokens
from engram.learning.replay.buffer import EpisodeStream, ReplayBuffer, ReplayConfig, StepTable
from engram.learning.replay.draws import Pool, counts
from tests.learning.transitions import episode


def buffer(*episodes, **config):
    """Return a buffer of ``episodes``, numbered 1, 2, ..."""
    replay = ReplayBuffer(ReplayConfig(**{"chunk_size": 3, **config}))
    for number, transitions in enumerate(episodes, 1):
        replay.add(number, transitions)
    return replay


def pictured(number):
    """Return an episode of 10 steps with pictures that are much larger than all else."""
    image = np.full((64, 64, 3), number, np.uint8)
    return [replace(one, images={"front": image}) for one in episode(number, 10)]


def alone(steps):
    """Return ``steps`` as if no person had driven."""
    return [replace(one, author="") for one in steps]


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


@pytest.mark.parametrize(
    ("author", "proposed", "held"),
    [
        ("v1", 0.0, False),  # the policy waits: that is learnt
        ("v1", 0.5, True),  # something kept it from moving
        ("hold:no_command", 0.0, True),
        ("human:ann", 0.0, True),  # no key is pressed
        ("", 0.0, True),  # of before it was stored why: taken for a hold
    ],
)
def test_a_step_without_a_motion_is_learnt_where_the_policy_wanted_it_so(author, proposed, held):
    still = np.array([0, 0, 0, 0, 0, 0, 1], np.float32)
    wanted = np.full(7, proposed, np.float32)
    first, waits, *rest = alone(episode(0, steps=4))
    replay = buffer([first, replace(waits, author=author, action=wanted, executed_action=still), *rest])
    assert replay.episodes[0].held.tolist() == [False, held, False, False]


def test_the_plan_that_a_person_overruled_is_not_learnt_from_its_first_action_on():
    """The person took over at step 18: the second before began at step 8, the plan at step 4."""
    steps = [
        replace(one, author="human:ann" * (at >= 18), chunk_ns=1 + (at >= 4)) for at, one in enumerate(episode(0, 20))
    ]
    (planned,) = buffer(steps).episodes
    assert np.flatnonzero(planned.unlearnt).tolist() == list(range(4, 18))
    (at_every_step,) = buffer([replace(one, chunk_ns=at + 1) for at, one in enumerate(steps)]).episodes
    assert np.flatnonzero(at_every_step.unlearnt).tolist() == list(range(8, 18))


def test_what_the_policy_did_just_before_a_person_took_over_is_not_learnt():
    helped = [replace(one, author="human:ann" * (at in (14, 15, 16))) for at, one in enumerate(episode(0, steps=20))]
    by_hand = [replace(one, author="human:ann") for one in episode(1, steps=20)]
    replay = buffer(helped, by_hand, chunk_size=20)
    unlearnt = StepTable(replay.episodes).done(np.array([0, 20]), 20)[UNLEARNT_KEY]
    assert np.flatnonzero(unlearnt[0]).tolist() == list(range(4, 14))  # a second
    assert not unlearnt[1].any()
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


def states_of(*episodes):
    return {t.state.tobytes() for steps in episodes for t in steps}


def counted(batch, *kinds):
    """Return how many samples of ``batch`` are among the states of each of ``kinds``."""
    return [sum(state.tobytes() in kind for state in batch["observation.state"]) for kind in kinds]


def test_successes_failures_and_a_persons_steps_get_the_shares_that_they_are_given():
    good = [alone(episode(i, 10)) for i in range(6)]
    bad = [alone(episode(i, 10, success=False)) for i in range(6, 30)]
    driven = [replace(one, author="human:anna") for one in episode(30, 10)]
    shares = {"share_successes": 0.5, "share_failures": 0.2, "share_person": 0.3}
    replay = buffer(*good, *bad, driven, newest=1, **shares)
    for seed in range(5):
        found = counted(replay.sample(40, (seed,)), states_of(*bad), states_of(driven))
        assert found[0] == 8 and 12 <= found[1] <= 12 + 20  # a person's success is a success as well
    assert len(good) * 10 / len(replay) < 0.25  # by themselves they would be few


def test_a_share_without_steps_goes_to_the_rest_and_no_share_changes_nothing():
    steps = [alone(episode(i, 10)) for i in range(30)]
    plain, asked = buffer(*steps), buffer(*steps, share_failures=0.3, share_person=0.5, share_earlier=0.2)
    for seed in range(5):
        np.testing.assert_array_equal(
            plain.sample(32, (seed,))["observation.state"], asked.sample(32, (seed,))["observation.state"]
        )
        assert plain.draw(np.random.default_rng(seed)).number == asked.draw(np.random.default_rng(seed)).number


def test_shares_count_each_task_alike():
    replay = buffer(*(episode(i, 10) for i in range(19)), episode(19, 10, task="stack"), share_successes=1.0)
    share = np.mean([words.startswith("stack") for words in replay.sample(1000, seed=(0,))["task"]])
    assert 0.45 < share < 0.55  # binomial sd 0.016


def test_whole_episodes_are_drawn_by_the_same_shares():
    replay = buffer(*(episode(i, 10) for i in range(20)), episode(20, 10, success=False), share_failures=0.5, newest=10)
    failed = [not replay.draw(np.random.default_rng(i)).success for i in range(400)]
    assert 0.42 < np.mean(failed) < 0.63  # 0.5, and a tenth of half of the rest: binomial sd 0.025


def test_earlier_experiments_get_their_share_and_displace_nothing():
    before, own = [episode(i, 10) for i in range(12)], [episode(i, 10) for i in range(12, 15)]
    replay = ReplayBuffer(ReplayConfig(chunk_size=3, capacity=60, share_earlier=0.25, newest=1))
    for number, steps in enumerate(before):
        replay.add(-1 - number, steps, earlier=True)
    assert len(replay) == 60 and replay.numbers == ()
    assert sum(counted(replay.sample(16, (0,)), states_of(*before))) == 16  # there is nothing else
    assert replay.draw(np.random.default_rng(0)).number < 0
    for number, steps in enumerate(own, 1):
        replay.add(number, steps)
    assert replay.numbers == (1, 2, 3) and len(replay) == 60 + 30
    assert counted(replay.sample(40, (1,)), states_of(*before), states_of(*own)) == [10, 30]
    drawn = [replay.draw(np.random.default_rng(i)).number for i in range(400)]
    assert 0.19 < np.mean(np.array(drawn) < 0) < 0.31  # binomial sd 0.022
    assert replay.get(drawn[0]) is not None and replay.episodes[0].number < 0 < replay.episodes[-1].number


def test_earlier_episodes_of_another_shape_than_the_learners_own_go():
    replay = ReplayBuffer(ReplayConfig(chunk_size=3))
    replay.add(-1, episode(0, image_size=6), earlier=True)
    with pytest.raises(InvalidInputError, match=r"episode -2: .* holds images front \(3, 6, 6\)"):
        replay.add(-2, episode(1), earlier=True)  # while there is nothing else, they are like their first
    assert replay.sample(2, (0,))["observation.images.front"].shape == (2, 3, 6, 6)
    replay.add(1, episode(2))
    assert replay.numbers == (1,) and replay.earlier == ()
    assert replay.sample(2, (0,))["observation.images.front"].shape == (2, 3, 8, 8)
    replay.add(-3, episode(3), earlier=True)
    with pytest.raises(InvalidInputError, match=r"episode -4: images front \(3, 6, 6\)"):
        replay.add(-4, episode(4, image_size=6), earlier=True)
    assert replay.earlier == (-3,)


@pytest.mark.parametrize("name", ["share_successes", "share_failures", "share_person", "share_earlier"])
def test_shares_that_cannot_be_are_refused_by_name(name):
    for value in (-0.1, 1.1):
        with pytest.raises(InvalidInputError, match=rf"ReplayConfig\.{name}: {value}, expected 0\.\.1"):
            ReplayConfig(**{name: value})


def test_shares_of_more_than_a_batch_are_refused():
    told = "share_successes 0.6, share_failures 0.5, share_person 0.0: 1.1 together, expected at most 1"
    with pytest.raises(InvalidInputError, match=told):
        ReplayConfig(share_successes=0.6, share_failures=0.5)
    with pytest.raises(InvalidInputError, match=r"share_earlier 0\.5, share_successes 0\.6"):
        ReplayConfig(share_successes=0.6, earlier=("before",))
    assert ReplayConfig(share_successes=0.6).experiments == ()  # where there are none, their share claims nothing


def test_parts_of_a_batch_are_rounded_and_fit():
    assert counts(3, [0.5, 0.5]) == [2, 1] and counts(32, [0.25, 0.1]) == [8, 3] and counts(5, []) == []
    rows = Pool.balanced(np.array([4, 5, 6, 7]), np.array([1, 0, 1, 1]))
    drawn = rows.draw(np.random.default_rng(0), 1000)
    assert rows.sizes.tolist() == [1, 3] and 440 < np.count_nonzero(drawn == 5) < 560  # binomial sd 16


def test_what_depends_on_an_episode_alone_is_computed_once(monkeypatch):
    replay = buffer(*(episode(i, 10) for i in range(30)))
    first = replay.sample(8, (0,))
    monkeypatch.setattr("engram.learning.replay.buffer.ends", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(replay.sample(8, (0,))["action"], first["action"])
    assert replay.get(1).unlearnt is replay.get(1).unlearnt
    with pytest.raises(ValueError, match="read-only"):
        replay.get(1).unlearnt[0] = True
    monkeypatch.undo()
    replay.add(31, episode(31, 10))
    assert (replay.sample(64, (1,))["observation.state"][:, None] == replay.get(31).state).all(-1).any()


def test_a_batch_has_tokens_of_as_many_entries_as_its_own_episodes_offer():
    def offered(number, entries):
        tokens = MemoryTokens(
            0, 1, np.ones((entries, 4), np.float32), *(np.zeros((entries, *d), np.float32) for d in ((), (3,))),
            np.ones(entries, bool), ("",) * entries,
        )  # fmt: skip
        return [replace(t, context=tokens if entries else None) for t in episode(number, 6)]

    table = StepTable(buffer(offered(0, 2), offered(1, 5), offered(2, 0)).episodes)
    assert table.seen(np.array([0, 13]), {})[MEMORY_MASK_KEY].tolist() == [[True, True], [False, False]]
    assert table.seen(np.array([0, 7]), {})[MEMORY_MASK_KEY].shape == (2, 5)
    assert MEMORY_MASK_KEY not in table.seen(np.array([12, 13]), {})


def test_pictures_stay_those_of_their_steps_while_episodes_come_and_go():
    replay, known, kept = buffer(capacity=400), {}, []
    for number in range(1, 200):
        steps = episode(number, 5 + number % 9)
        known |= {t.state.tobytes(): t.images["front"] for t in steps}
        replay.add(number, steps)
        batch = replay.sample(16, (number,))
        for state, image in zip(batch["observation.state"], batch["observation.images.front"], strict=True):
            np.testing.assert_array_equal(image.transpose(1, 2, 0), known[state.tobytes()])
        kept.append(replay.get(number))
    for one in (*kept, *replay.episodes):  # also those that went: whoever looks at one sees what it was
        for state, image in zip(one.state, one.images["front"], strict=True):
            np.testing.assert_array_equal(image.transpose(1, 2, 0), known[state.tobytes()])
    before = replay.sample(8, (0,))["observation.images.front"]
    before[:] = 0  # a batch is a copy
    assert replay.sample(8, (0,))["observation.images.front"].any()


def test_pictures_take_little_more_room_than_they_have_however_many_episodes_go():
    replay, tight = buffer(capacity=1000), 0
    for number in range(1, 400):
        replay.add(number, episode(number, 5 + number % 9))
        replay.sample(1, (0,))
        bases = {id(one.images["front"].base): one.images["front"].base for one in replay.episodes}
        tight += max(map(len, bases.values())) <= 1000 // 16 and len(bases) > 1
        if number > 120:  # it is full
            assert sum(map(len, bases.values())) <= 1.2 * len(replay) + 1000 // 16
    assert tight > 380  # they lie in many small arrays, and no two times


def test_pictures_are_stored_anew_one_episode_after_the_other():
    """While a full buffer is filled and refilled, there never are two of all pictures."""
    first, size = {n: pictured(n) for n in range(40)}, 10 * 3 * 64 * 64
    tracemalloc.start()
    try:
        replay = buffer(capacity=400)
        for number in range(200):
            replay.add(number, first[number % 40])
            if number > 40:
                replay.sample(1, (0,))
        steady, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert steady < 1.2 * 40 * size and peak < 1.3 * 40 * size


def test_an_episode_longer_than_a_block_has_one_of_its_own():
    replay = buffer(episode(1, 40), episode(2, 3), capacity=64)
    assert [len(one.images["front"].base) for one in replay.episodes] == [40, 3]


def test_the_same_seed_draws_what_a_loop_over_the_samples_would():
    """A saved training goes on bit for bit, although the samples are drawn together."""
    replay = buffer(*(alone(episode(i, 5 + i % 7)) for i in range(25)), newest=10)
    states = [state for one in replay.episodes for state in one.state]
    old = sum(len(one) for one in replay.episodes[:-10])
    rng = np.random.default_rng((3, 4))
    rows = [old + int(rng.integers(len(states) - old, size=1)[0]) for _ in range(16)]
    rows += [int(rng.integers(old, size=1)[0]) for _ in range(16)]
    np.testing.assert_array_equal(replay.sample(32, (3, 4))["observation.state"], np.stack([states[i] for i in rows]))
