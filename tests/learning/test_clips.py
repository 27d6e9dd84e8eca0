"""Clips of reached goals: what is shown again, and in which order."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.context_rows import ContextRows
from engram.core.errors import InvalidInputError
from engram.learning.replay.buffer import Episode
from engram.learning.rewards.clips import (
    ClipsConfig,
    clips_of,
    other_words,
    reordered,
    rewound,
    standing_still,
    under_words,
)
from engram.policies.lerobot.processor_engram_vla import embed_instructions

RED, BLUE = "touch the red cup in the dark", "touch the blue cup in the dark"


def shown(steps: int, context: ContextRows | None = None, words: str = RED) -> Episode:
    """Return an episode whose state and pictures tell the step."""
    at = np.arange(steps)
    images = {"front": np.tile(at[:, None, None, None], (1, 3, 2, 2)).astype(np.uint8)}
    column = at[:, None].astype(np.float32)
    return Episode(1, words, words, images, column, column, at > 1, context)


def remembers(episode: Episode) -> np.ndarray:
    """Return what a policy with a memory makes of an episode: the sum of all that it has seen."""
    return np.cumsum(episode.state, axis=0)


def test_a_clip_goes_forwards_and_then_back_or_stands_still():
    rng = np.random.default_rng(0)
    turns = set()
    for _ in range(200):
        turn, order = rewound(9, rng)
        assert order[: turn + 1].tolist() == list(range(turn + 1))
        assert (np.diff(order[turn:]) == -1).all() and len(order) > turn + 1 and order[-1] >= 0
        still_at, order = standing_still(9, rng)
        assert order[: still_at + 1].tolist() == list(range(still_at + 1))
        assert (order[still_at:] == still_at).all() and still_at + 1 < len(order) <= still_at + 1 + 9
        turns |= {("back", turn), ("still", still_at)}
    assert turns == {("back", at) for at in range(1, 9)} | {("still", at) for at in range(9)}
    assert rewound(2, rng)[1].tolist() == [0, 1, 0]


def test_every_clip_is_encoded_anew_with_what_comes_before_it():
    encoded, config = [], ClipsConfig(of_time=2, of_words=1)

    def encode(episode):
        encoded.append(episode.state[:, 0].astype(int))
        return remembers(episode)

    clips = clips_of(shown(8), encode, config, [RED, BLUE], np.random.default_rng(3))
    assert [(clip.wanted, clip.late) for clip in clips] == [
        *[(True, False), (True, False), (True, True)] * 2,
        (False, False),
    ]
    for clip, steps in zip(clips, encoded, strict=True):
        turn = len(steps) - len(clip.shown)  # what comes before is the goal as it was
        assert steps[:turn].tolist() == list(range(turn)) and steps[turn:].tolist() == clip.shown.tolist()
        assert (turn == 0) == (clip.late or not clip.wanted)
        np.testing.assert_array_equal(clip.features[:, 0], np.cumsum(steps)[turn:])
    again = clips_of(shown(8), remembers, config, [RED, BLUE], np.random.default_rng(3))
    assert all(np.array_equal(one.shown, other.shown) for one, other in zip(clips, again, strict=True))


def test_no_clips_are_made_where_none_are_asked_for_or_a_goal_has_one_step():
    for steps, config in ((8, ClipsConfig(0)), (1, ClipsConfig(1, 1))):
        assert clips_of(shown(steps), remembers, config, [RED, BLUE], np.random.default_rng(0)) == ()
    assert len(clips_of(shown(8), remembers, ClipsConfig(0, 5), [RED, BLUE], np.random.default_rng(0))) == 1
    for name in ("of_time", "of_words"):
        with pytest.raises(InvalidInputError, match=f"ClipsConfig.{name}: -1, expected 0 or more"):
            ClipsConfig(**{name: -1})


def test_only_words_that_surely_ask_for_another_goal_are_said_over_it():
    same = ["Touch the  red cup in the dark.", "find the blue cup in the dark", "touch the red cube in the dark"]
    assert other_words(RED, [RED, BLUE, *same]) == [BLUE]  # who says "block" may mean the cube
    assert other_words("stack the red cube on the blue cube", ["stack the blue cube on the red cube"])
    assert other_words("clean the table", ["water the plants", "clean the table"]) == []


def test_under_other_words_the_memory_offers_first_what_fits_them():
    things = embed_instructions(["red cup", "blue cup", "green cube"]).numpy()
    offered = np.array([[0, 1, 2, 0], [0, 1, 0, 0]], np.int32)
    mask = np.array([[True] * 3 + [False], [True] * 2 + [False] * 2])
    place = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    context = ContextRows(things, offered, np.arange(8, dtype=np.float32).reshape(2, 4), place, mask)
    episode = shown(2, context)
    for words, first in (("touch the blue cup", 1), ("touch the green cube", 2)):
        said = under_words(episode, words)
        assert said.instruction == words and said.context.which[0, 0] == first
        assert said.context.age_s[0, 0] == first and said.context.place[0, 0].tolist() == place[0, first].tolist()
        assert said.context.mask.tolist() == mask.tolist()  # what is padding stays behind
    assert under_words(replace(episode, context=None), BLUE).context is None


def test_a_goal_is_shown_in_another_order_with_all_that_was_seen():
    steps = np.arange(4)
    context = ContextRows(np.eye(4, dtype=np.float32), steps[:, None].astype(np.int32), *(
        np.zeros((4, 1, *shape), np.float32) for shape in ((), (3,))), np.ones((4, 1), bool)
    )  # fmt: skip
    out = reordered(shown(4, context), steps[::-1])
    assert out.state[:, 0].tolist() == out.images["front"][:, 0, 0, 0].tolist() == [3, 2, 1, 0]
    assert out.context.which[:, 0].tolist() == [3, 2, 1, 0] and out.person.tolist() == [True, True, False, False]
