"""What is sealed comes back as it was, or not at all."""

import contextlib
import math

import pytest

from engram.core.durable import seal, unseal
from engram.core.errors import DAMAGED

STATE = {"yaw_rad": 0.35, "words": "in the \u00e4ther", "list": [1, 2.5, None, True], "nan": math.inf}


def test_what_is_sealed_comes_back():
    assert unseal(seal(STATE)) == STATE


def test_every_damaged_bit_is_found_or_changes_nothing():
    good = seal(STATE)
    for place in range(len(good)):
        for bit in range(8):
            damaged = good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :]
            with contextlib.suppress(*DAMAGED):
                assert unseal(damaged) == STATE


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b'{"state": 1}', b'{"state": 1, "crc32": "1"}'])
def test_what_was_never_sealed_is_refused(data):
    with pytest.raises(DAMAGED):
        unseal(data)
