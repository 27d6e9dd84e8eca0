"""What the gate asks the learner for, and when again."""

import pytest

from engram.runtime.promotions import AGAIN_S, ANSWER_S, LATER, PAUSE_S, Promotions


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_each_version_is_asked_for_once_in_its_turn():
    promotions = Promotions(Clock())
    assert promotions.next() == ""
    for version in ("a", "b", "a"):
        promotions.add(version)
    assert promotions.next() == "a" and promotions.next() == ""  # one at a time
    promotions.answered(accepted=True, reason="a drives now")
    assert promotions.next() == "b"
    promotions.answered(accepted=False, reason="b: rejected, because it is worse")
    assert promotions.next() == ""


def test_a_learner_that_died_is_followed_by_one_that_says_first_what_drives():
    clock = Clock()
    promotions = Promotions(clock)
    for version in ("a", "b"):
        promotions.add(version)
    promotions.next()
    assert not promotions.is_lost(learner_there=True)
    assert promotions.is_lost(learner_there=False) and not promotions.is_lost(learner_there=False)
    assert promotions.next() == ""  # not before it has said what drives
    promotions.drives("a")  # it drives as a canary: asked again, the learner would take it for approved
    clock.now += PAUSE_S
    assert promotions.next() == "b"
    clock.now += ANSWER_S + 1.0
    assert promotions.is_lost(learner_there=True)  # an answer that does not come
    clock.now += PAUSE_S
    assert promotions.next() == "b"


@pytest.mark.parametrize("reason", [f"{LATER}No space left on device", ""])
def test_a_learner_that_could_not_promote_is_asked_again(reason):
    clock = Clock()
    promotions = Promotions(clock)
    promotions.add("a")
    for _ in range(3):
        assert promotions.next() == "a"
        promotions.answered(accepted=False, reason=reason)
        assert promotions.next() == ""  # not at once
        clock.now += AGAIN_S
    promotions.next()
    promotions.answered(accepted=True, reason="a drives now")
    clock.now += AGAIN_S
    assert promotions.next() == ""
