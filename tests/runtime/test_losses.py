"""Each loss is named after its own limit, and none while everything is heard of."""

import pytest

from engram.runtime.losses import JOINTS, OBSERVATION, SAFETY, LossLimits, LossWatch, limits_of
from engram.runtime.parameters.policy import PolicyNodeConfig

FRONT = "camera 'front' color"
TF = "camera 'front' tf (unknown frame)"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lasting(seconds, *there, lockstep=False, missing=(), memory=False, asked=False) -> str:
    """Return what is lost after ``seconds`` in which ``there`` was heard of ten times a second."""
    clock = Clock()
    watch = LossWatch(LossLimits(5.0, 20.0, 10.0, lockstep), clock)
    if asked:
        watch.asked()
    for _ in range(round(10 * seconds)):
        clock.now += 0.1
        for part in there:
            watch.heard(part)
    return watch.found(missing, memory)


def test_nothing_is_lost_while_everything_is_heard_of():
    assert lasting(100, JOINTS, OBSERVATION, SAFETY) == ""


@pytest.mark.parametrize(
    ("seconds", "there", "more", "loss"),
    [
        (5.1, (OBSERVATION, SAFETY), {}, "joints_lost: no valid joint_states for 5.1 s"),
        (5.1, (JOINTS, SAFETY), {"missing": (FRONT, TF)}, f"camera_lost: 5.1 s without {FRONT}, {TF}"),
        (5.1, (JOINTS, SAFETY), {"missing": (TF,)}, f"tf_lost: 5.1 s without {TF}"),
        (5.1, (JOINTS, SAFETY), {"memory": True}, "memory_lost: 5.1 s without memory/context"),
        (20.1, (JOINTS, SAFETY, OBSERVATION), {"asked": True}, "policy_lost: no answer to an observation for 20.1 s"),
        (10.1, (JOINTS, OBSERVATION), {}, "safety_lost: nothing was executed for 10.1 s"),
    ],
)
def test_each_loss_is_named_after_its_limit_and_not_before(seconds, there, more, loss):
    assert lasting(seconds, *there, **more) == loss
    assert lasting(seconds - 0.2, *there, **more) == ""


def test_in_lock_step_nothing_else_is_missed_while_the_policy_thinks():
    assert lasting(15, asked=True, lockstep=True) == ""
    assert lasting(15, SAFETY, asked=True).startswith("joints_lost")


def test_an_answer_and_a_new_goal_begin_the_wait_anew():
    clock = Clock()
    watch = LossWatch(LossLimits(50.0, 20.0, 50.0), clock)
    watch.asked()
    clock.now = 15.0
    watch.asked()  # the first question is what is waited for
    watch.answered()
    clock.now = 30.0
    assert watch.found((), False) == ""
    watch.asked()
    clock.now = 60.0
    assert watch.found((), False).startswith("policy_lost")
    watch.begin()
    assert watch.found((), False) == ""


def test_in_lock_step_the_simulation_s_own_limit_comes_first():
    limits = {"lost_after_s": 5.0, "status_timeout_s": 30.0, "policy_timeout_s": 20.0}
    assert limits_of(PolicyNodeConfig(lockstep=True, **limits)) == LossLimits(45.0, 20.0, 60.0, lockstep=True)
    assert limits_of(PolicyNodeConfig(lockstep=False, **limits)) == LossLimits(5.0, 20.0, 5.0, lockstep=False)
