"""Tokens of memory/context of many steps: each embedding is kept once, and what is given back is what came in."""

import numpy as np
import pytest

from engram.core.context_rows import MEMORY_KEYS, ContextRows, beside
from engram.core.errors import InvalidInputError
from engram.core.types import MemoryTokens


def tokens(*embeddings: int, age: float = 0.0) -> MemoryTokens:
    """Return entries whose embeddings are filled with these numbers."""
    k = len(embeddings)
    rows = np.repeat(np.array(embeddings, np.float32)[:, None], 4, axis=1)
    place = np.arange(3 * k, dtype=np.float32).reshape(k, 3)
    return MemoryTokens(0, 1, rows, np.full(k, age, np.float32), place, np.ones(k, bool), ("",) * k)


def test_each_embedding_is_kept_once_and_shorter_steps_are_padded():
    rows = ContextRows.of([tokens(1, 2, age=0.5), None, tokens(2, age=1.5), tokens()])
    assert rows is not None and len(rows) == 4
    assert sorted(rows.embeddings[:, 0].tolist()) == [0.0, 1.0, 2.0]
    at = rows.at(np.array([2, 0, 1, 3]))
    assert at[MEMORY_KEYS[0]][:, :, 0].tolist() == [[2, 0], [1, 2], [0, 0], [0, 0]]
    assert at[MEMORY_KEYS[1]].tolist() == [[1.5, 0], [0.5, 0.5], [0, 0], [0, 0]]
    assert at[MEMORY_KEYS[2]][1].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert at[MEMORY_KEYS[3]].tolist() == [[True, False], [True, True], [False, False], [False, False]]


def test_nothing_that_was_ever_offered_is_nothing():
    assert ContextRows.of([None, tokens()]) is None
    assert ContextRows.joined([(None, 3)]) is None


def test_tokens_of_two_lengths_are_refused():
    other = MemoryTokens(0, 1, np.zeros((1, 5), np.float32), np.zeros(1), np.zeros((1, 3)), np.ones(1, bool), ("",))
    with pytest.raises(ValueError, match="same shape"):
        ContextRows.of([tokens(1), other])


def test_episodes_are_joined_one_after_the_other():
    first, last = ContextRows.of([tokens(1), tokens(1)]), ContextRows.of([tokens(3, 1)])
    joined = ContextRows.joined([(first, 2), (None, 2), (last, 1)])
    assert joined is not None
    at = joined.at(np.arange(5))
    assert at[MEMORY_KEYS[0]][:, :, 0].tolist() == [[1, 0], [1, 0], [0, 0], [0, 0], [3, 1]]
    assert at[MEMORY_KEYS[3]].sum(1).tolist() == [1, 1, 0, 0, 2]
    assert {key: value.dtype for key, value in at.items()} == dict(
        zip(MEMORY_KEYS, map(np.dtype, ("f4", "f4", "f4", "?")), strict=True)
    )


def test_batches_stand_beside_each_other():
    few, many = (ContextRows.of([tokens(*which)]).at(np.array([0])) for which in ((1,), (2, 3)))
    both = beside(few, many)
    assert both[MEMORY_KEYS[0]][:, :, 0].tolist() == [[1, 0], [2, 3]]


@pytest.mark.parametrize(("k", "width"), [(257, 4), (1, 4097)])
def test_more_than_a_policy_could_read_is_refused(k, width):
    with pytest.raises(InvalidInputError, match=f"{k} of {width} numbers, expected at most 256 of 4096"):
        MemoryTokens(
            0, 1, np.zeros((k, width)), np.zeros(k), np.zeros((k, 3)), np.ones(k, bool), ("",) * k
        )  # fmt: skip


def test_padding_at_the_end_is_cut_off():
    full = tokens(1, 2, 3)
    padded = MemoryTokens(0, 1, full.tokens, full.age_s, full.place, np.array([False, True, False]), ("a", "b", "c"))
    assert padded.filled().source_ids == ("a", "b")
    assert (
        len(MemoryTokens(0, 1, full.tokens, full.age_s, full.place, np.zeros(3, bool), ("",) * 3).filled().tokens) == 0
    )
