"""Observation, status and memory of one step find each other by stamp, in whatever order they come."""

import numpy as np
import pytest

from engram.core.types import EpisodeStatus, MemoryTokens, Observation
from engram.runtime.step_inputs import KEPT, StepInputs, StepInputsConfig
from tests.core.gantry import joints

STEP_NS = 100_000_000


class Inputs(StepInputs):
    """Takes its time from ``now``, and writes down what it counts and reports."""

    def __init__(self, reads_context=False, **config):
        self.now, self.counts, self.problems = 100.0, [], []
        super().__init__(
            StepInputsConfig(**config),
            lambda: reads_context,
            lambda key, text: self.problems.append(f"{key}: {text}"),
            self.counts.append,
            lambda: self.now,
        )

    def see(self, step):
        self.observed(Observation(step * STEP_NS, {}, joints(stamp_ns=step * STEP_NS)))

    def tell(self, step, state="running"):
        self.became(EpisodeStatus(step * STEP_NS, "r", 1, "reach", "go", step, state))

    def remember(self, step):
        nothing = np.zeros((1, 4)), np.zeros(1), np.zeros((1, 3)), np.zeros(1, bool)
        self.remembered(MemoryTokens(step * STEP_NS, step, *nothing, ("",)))

    def steps(self):
        """Return the steps that are complete, each with that of its status and of its memory."""
        return [tuple(x and x.stamp_ns // STEP_NS for x in (s.observation, s.status, s.memory)) for s in self.take()]


def test_in_lock_step_an_observation_waits_for_the_status_of_its_own_step():
    inputs = Inputs(lockstep=True, memory="off")
    inputs.see(2)
    inputs.tell(1)
    assert inputs.steps() == [] and inputs.waiting()
    inputs.tell(2)
    assert inputs.steps() == [(2, 2, None)]
    assert inputs.steps() == [] and not inputs.waiting()


def test_free_running_takes_the_newest_status_and_the_newest_memory():
    inputs = Inputs(memory="latest")
    inputs.see(5)
    assert inputs.steps() == []
    inputs.tell(3)
    inputs.remember(4)
    inputs.remember(2)
    assert inputs.steps() == [(5, 3, 4)]


def test_latest_prefers_the_memory_of_the_same_instant_to_a_newer_one():
    inputs = Inputs(lockstep=True)
    inputs.see(5)
    inputs.remember(5)
    inputs.remember(6)
    inputs.tell(5)
    assert inputs.steps() == [(5, 5, 5)]


def test_wait_is_for_the_memory_of_the_same_instant_and_steps_come_out_in_order():
    inputs = Inputs(lockstep=True, memory="wait")
    for step in (2, 1):
        inputs.see(step)
        inputs.tell(step)
    inputs.remember(2)
    assert inputs.steps() == [(2, 2, 2)]
    inputs.remember(1)
    assert inputs.steps() == [(1, 1, 1)]
    inputs.see(3)
    inputs.tell(3, "succeeded")  # an episode that is over waits for no memory
    assert inputs.steps() == [(3, 3, None)]


def test_who_reads_contexts_waits_for_a_fresh_one_but_not_for_ever():
    inputs = Inputs(reads_context=True, lockstep=True, context_age_s=0.3, missing_after_s=2.0)
    inputs.tell(1)
    inputs.see(10)
    inputs.tell(10)
    inputs.remember(6)
    assert inputs.steps() == []
    inputs.remember(7)  # 0.3 s older than the observation
    assert inputs.steps() == [(10, 10, 7)]
    inputs.see(11)
    inputs.tell(11)
    assert inputs.steps() == []
    inputs.now += 1.9
    assert inputs.steps() == [] and inputs.problems == []
    inputs.now += 0.2
    assert inputs.steps() == [(11, 11, 7)]
    assert inputs.problems == ["memory/context: none since 0.3 s before the observation: goes on"]


def test_free_running_who_reads_contexts_waits_for_one_that_is_not_old():
    inputs = Inputs(reads_context=True, missing_after_s=2.0)
    inputs.tell(1)
    inputs.see(9)
    inputs.now += 60.0  # however long that takes
    assert inputs.steps() == [] and inputs.awaits_memory()
    words = "there is none: the policy waits (missing_after_s; memory: off does without)"
    assert inputs.problems == [f"memory/context: {words}"]
    inputs.remember(10)
    assert inputs.steps() == [(9, 1, 10)] and not inputs.awaits_memory()
    inputs.see(30)
    inputs.see(31)
    assert inputs.steps() == [(30, 1, 10)] and inputs.awaits_memory()
    assert "memory/context: the newest is 2 s older than the observation: the policy waits" in inputs.problems[1]
    inputs.remember(29)
    assert inputs.steps() == [(31, 1, 29)]


@pytest.mark.parametrize("memory", ["latest", "wait"])
def test_while_a_person_drives_nobody_waits_for_the_memory(memory):
    """The goal goes on, and what the person does is recorded; of a context that is old nothing is read."""
    inputs = Inputs(reads_context=True, memory=memory, missing_after_s=2.0)
    inputs.tell(1)
    inputs.remember(10)
    inputs.see(90)
    assert inputs.steps() == [] and inputs.awaits_memory()
    inputs.overruled = True
    assert not inputs.awaits_memory()
    assert inputs.steps() == [(90, 1, None)]
    inputs.overruled = False
    inputs.see(91)
    assert inputs.steps() == [] and inputs.awaits_memory()


def test_free_running_who_reads_no_contexts_waits_for_none():
    for config in ({"reads_context": False}, {"reads_context": True, "memory": "off"}):
        inputs = Inputs(missing_after_s=2.0, **config)
        inputs.tell(1)
        inputs.see(90)
        assert inputs.steps() == [(90, 1, None)] and not inputs.awaits_memory()


def test_in_lock_step_nobody_acts_on_another_scene_even_where_waiting_took_too_long():
    inputs = Inputs(reads_context=True, lockstep=True, missing_after_s=2.0)
    inputs.remember(9)
    inputs.see(10)
    inputs.tell(10)
    assert inputs.steps() == []
    inputs.now += 2.1
    assert inputs.steps() == [(10, 10, None)]


def test_who_reads_contexts_does_not_act_on_the_scene_before_its_episode():
    inputs = Inputs(reads_context=True, lockstep=True, context_age_s=0.3)
    inputs.remember(9)  # the scene was arranged anew since
    inputs.see(10)
    inputs.tell(10)
    assert inputs.steps() == []
    inputs.remember(10)
    assert inputs.steps() == [(10, 10, 10)]
    inputs.see(11)
    inputs.tell(11)
    assert inputs.steps() == [(11, 11, 10)]


def test_after_a_restart_of_the_simulation_the_same_number_is_another_episode():
    inputs = Inputs(reads_context=True, lockstep=True)
    inputs.tell(1000)
    inputs.see(1)
    inputs.tell(1)
    inputs.remember(1)
    assert inputs.steps() == [(1, 1, 1)]


def test_what_never_becomes_complete_is_given_up_and_counted():
    inputs = Inputs(lockstep=True)
    for step in range(KEPT + 3):
        inputs.see(step)
    assert inputs.counts == ["observations given up"] * 3


@pytest.mark.parametrize("first", ["see", "tell"])
def test_after_a_restart_of_the_simulation_nothing_of_before_is_used(first):
    inputs = Inputs(lockstep=True, memory="latest")
    inputs.see(1000)
    inputs.remember(1001)
    inputs.tell(999)
    second = "tell" if first == "see" else "see"
    getattr(inputs, first)(1)
    getattr(inputs, second)(1)
    assert inputs.steps() == [(1, 1, None)]
    assert not inputs.waiting()
