"""When a control step waits for the policy, by a clock of the test's own."""

import numpy as np
import pytest

from engram.core.types import ActionChunk
from engram.runtime.answer_wait import AnswerWait

STEP_NS = 100_000_000


class Clock:
    """Time that the test tells."""

    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def begun(share: float = 0.5) -> tuple[AnswerWait, Clock]:
    clock = Clock()
    wait = AnswerWait(share, 0.1, clock)
    wait.measured(STEP_NS)
    return wait, clock


def chunk(stamp_ns: int, execute_steps: int = 2) -> ActionChunk:
    return ActionChunk(stamp_ns, 1, "ee_delta", np.zeros((4, 7)), 0.1, execute_steps, "v")


@pytest.mark.parametrize(
    ("stamp_ns", "after_s", "in_time"), [(STEP_NS, 0.04, True), (STEP_NS, 0.06, False), (0, 0.0, False)]
)
def test_an_answer_is_in_time_to_its_own_step_and_within_its_share(stamp_ns, after_s, in_time):
    wait, clock = begun()
    clock.now_s += after_s
    assert wait.answered(stamp_ns) is in_time
    assert wait.goes_on(first=False) is in_time


def test_nothing_is_waited_for_before_the_last_row_of_a_chunk_is_over():
    wait, _ = begun()
    assert wait.is_due(None)
    assert not wait.is_due(chunk(STEP_NS))
    wait.measured(2 * STEP_NS)
    assert not wait.is_due(chunk(STEP_NS))
    wait.measured(3 * STEP_NS - 4_000_000)  # stamps are not exact
    assert wait.is_due(chunk(STEP_NS))


def test_a_policy_that_was_waited_for_in_vain_is_waited_for_again_when_motion_begins():
    wait, clock = begun()
    clock.now_s += 0.06
    assert not wait.goes_on(first=False)
    wait.measured(2 * STEP_NS)
    assert not wait.goes_on(first=False)
    wait.begin()
    wait.measured(3 * STEP_NS)
    clock.now_s += 0.14
    assert wait.goes_on(first=True)
    assert not wait.goes_on(first=False)


def test_no_share_waits_for_nothing():
    wait, _ = begun(0.0)
    assert not wait.goes_on(first=False)
