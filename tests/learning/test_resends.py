"""When weights are sent again that a robot says it does not drive."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save

from engram.core.errors import WeightsError
from engram.learning.weights import slices
from engram.learning.weights.announcements import announced
from engram.learning.weights.manifest import make_manifest
from engram.learning.weights.resends import FIRST_S, LONGEST_S, Resends
from engram.learning.weights.slices import slice_size
from engram.runtime.parameters.policy import PolicyNodeConfig

DATA = save({"w": np.ones(300, np.float32)})


def manifest(version="v1", robots=("r1", "r2"), stage="approved"):
    return announced(make_manifest(DATA, version, stage=stage), robots, 1)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_pauses_grow_and_begin_anew_with_the_next_announcement():
    clock = Clock()
    resends = Resends(clock)
    resends.announced(manifest())
    pauses, since = [], clock.now
    while len(pauses) < 9:
        resends.drove("r1", "v0")
        clock.now += FIRST_S / 2
        if resends.next() == ("v1", "r1 drives v0"):
            pauses.append(clock.now - since)
            since = clock.now
    assert pauses == [min(FIRST_S * 2**n, LONGEST_S) for n in range(9)]
    resends.announced(manifest("v2"))
    resends.drove("r1", "v1")
    assert resends.next() == ("", "")
    clock.now += FIRST_S
    assert resends.next() == ("v2", "r1 drives v1")


def test_each_robot_is_sent_what_was_announced_to_it():
    clock = Clock()
    resends = Resends(clock)
    resends.announced(manifest())
    resends.announced(manifest("v2", ("r1",), "canary"))
    clock.now += FIRST_S
    for robot, version in (("r1", "v2"), ("r2", "v1"), ("r3", "v0")):
        resends.drove(robot, version)
    assert resends.next() == ("", "")  # nothing was announced to r3
    resends.drove("r2", "v0")
    assert resends.next() == ("v1", "r2 drives v0")
    resends.drove("r1", "v1")
    resends.announced(manifest("v1"))  # the canary was rolled back
    clock.now += FIRST_S
    assert resends.next() == ("", "")
    assert resends.driven == {"r1": "v1", "r2": "v0", "r3": "v0"}


def test_a_file_travels_in_no_more_slices_than_the_topic_keeps_of_two(monkeypatch):
    size = len(DATA)
    assert slice_size(manifest(), 1 << 16) == 1 << 16
    for most in (7, 256):
        monkeypatch.setattr(slices, "FILE_SLICES", most)
        assert -(-size // slice_size(manifest(), 1)) <= most < -(-size // (slice_size(manifest(), 1) - 1))
    monkeypatch.setattr(slices, "SLICE_MAX", 4)
    with pytest.raises(WeightsError, match=f"weights 'v1': {size} bytes, at most 1024 can be sent"):
        slice_size(manifest(), 1)


def test_what_a_policy_node_takes_by_default_can_be_sent():
    largest = PolicyNodeConfig().weights_max_mb << 20
    assert largest <= slices.FILE_SLICES * slices.SLICE_MAX
