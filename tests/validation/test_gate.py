"""The gate promotes what holds its ground on every task, and nothing else."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.validation.gate import NOT_SHOWN, OPEN, PROMOTE, REJECT, Gate, GateConfig

TASKS = ("reach", "stack")


def run(candidate, approved, config=None, idle=(0.0, 0.0), breaches=(0.0, 0.0), tasks=TASKS, seed=0) -> Gate:
    """Draw outcomes with these rates, the same luck for both, until the gate decides."""
    gate, rng = Gate(tasks, config), np.random.default_rng(seed)
    while gate.decision == OPEN:
        for task in gate.wanted:
            i, luck, breach = tasks.index(task), rng.random(), rng.random()
            if gate.idle_pairs < 40:
                gate.add_idle(luck < candidate[i], luck < idle[i])
            gate.add(task, luck < candidate[i], luck < approved[i], (breach < breaches[0], breach < breaches[1]))
    return gate


def test_as_good_on_every_task_is_promoted() -> None:
    gate = run((0.9, 0.8), (0.9, 0.8))
    assert (gate.decision, gate.reason) == (PROMOTE, "not worse by 0.1 or more on any of 2 tasks")


def test_better_is_promoted_sooner() -> None:
    assert run((0.95, 0.95), (0.7, 0.7)).decision == PROMOTE
    assert run((0.95, 0.95), (0.7, 0.7)).pairs < run((0.9, 0.8), (0.9, 0.8)).pairs


def test_one_task_that_was_unlearnt_is_enough_to_be_rejected_and_is_named() -> None:
    gate = run((1.0, 0.4), (0.9, 0.9))
    assert gate.decision == REJECT
    assert gate.reason.startswith("worse: stack ")
    assert "reach" not in gate.reason


def test_what_does_nothing_is_never_promoted_even_where_nothing_was_done_before() -> None:
    gate = run((0.0, 0.0), (0.0, 0.0))
    assert gate.decision == NOT_SHOWN
    assert "more than a robot that stands still" in gate.reason
    still = run((0.5, 0.5), (0.5, 0.5), idle=(0.5, 0.5))  # a task that is done by itself
    assert still.decision == NOT_SHOWN


def test_more_refused_commands_are_no_promotion() -> None:
    gate = run((0.9, 0.9), (0.9, 0.9), breaches=(0.5, 0.0))
    assert gate.decision == REJECT
    assert gate.reason.startswith("worse: the safety filter intervened in ")


def test_what_succeeds_as_often_but_needs_the_safety_filter_more_is_rejected_and_what_hardly_does_is_not() -> None:
    def judge(more: float) -> Gate:
        gate = Gate(TASKS)
        while gate.decision == OPEN:
            for task in gate.wanted:
                gate.add_idle(True, False)
                gate.add(task, True, True, (0.06 + more, 0.06))
        return gate

    gate = judge(0.15)
    assert gate.decision == REJECT
    assert gate.reason == "worse: the safety filter intervened in 21.0% of the control steps, before in 6.0%"
    assert gate.report()["breaches"] == {
        "candidate": round(0.21 * gate.pairs, 4),
        "approved": round(0.06 * gate.pairs, 4),
    }
    assert judge(0.001).decision == PROMOTE


def with_breaches(candidate: float, approved: float, seed: int, rates=(0.9, 0.9), budget: int = 200) -> Gate:
    """Judge on seven tasks a candidate with which the filter intervenes in these shares of the steps, more or less."""
    tasks, rng = tuple("abcdefg"), np.random.default_rng(seed)
    gate = Gate(tasks, GateConfig(budget=budget))
    while gate.decision == OPEN:
        for task in gate.wanted:
            gate.add_idle(True, False)
            new, old = np.clip(rng.normal((candidate, approved), 0.06), 0.0, 1.0)
            gate.add(task, rng.random() < rates[0], rng.random() < rates[1], (new, old))
    return gate


@pytest.mark.parametrize("seed", range(3))
def test_what_needs_the_safety_filter_more_by_less_than_the_margin_and_is_better_is_promoted(seed) -> None:
    gate = with_breaches(0.13, 0.10, seed, rates=(0.95, 0.6))
    assert gate.decision == PROMOTE, gate.reason


@pytest.mark.parametrize("seed", range(3))
def test_what_needs_the_safety_filter_more_by_just_more_than_the_margin_is_not_promoted(seed) -> None:
    """As of the planted candidate that shakes forward and back: 13.4 percent of the steps against 7.4."""
    assert with_breaches(0.134, 0.074, seed, rates=(1.0, 1.0)).decision in (REJECT, NOT_SHOWN)


def test_a_budget_ends_what_cannot_be_shown() -> None:
    gate = run((0.9, 0.9), (0.9, 0.9), GateConfig(budget=20))
    assert (gate.decision, gate.pairs) == (NOT_SHOWN, 40)
    assert "reach 18 of 20" in gate.reason or "not shown within 20 pairs" in gate.reason


def with_progress(new: float, old: float, success: float = 0.0, budget: int = 200) -> Gate:
    """Judge a candidate that is as good as what drives on one task, and on the other gets ``new`` far, not ``old``."""
    gate, rng = Gate(TASKS, GateConfig(budget=budget)), np.random.default_rng(0)
    while gate.decision == OPEN:
        for task in gate.wanted:
            if gate.idle_pairs < 40:
                gate.add_idle(True, False)
            same = task == "reach" or rng.random() < success
            far = (1.0, 1.0) if same else (new, old)
            gate.add(task, same, same, progress=far)
    return gate


def test_where_nothing_succeeds_progress_decides() -> None:
    worse = with_progress(0.4, 0.7)
    assert worse.decision == REJECT
    assert f"stack 0 of {worse.tasks['stack'].pairs}, before 0 (progress 0.40, before 0.70)" in worse.reason
    assert with_progress(0.7, 0.7).decision == PROMOTE


def test_what_succeeds_as_often_but_fails_farther_away_is_rejected_though_successes_tell_nothing() -> None:
    assert with_progress(0.2, 0.8, success=0.5).decision == REJECT
    told = with_progress(0.68, 0.8, success=0.0, budget=40)
    assert not told.tasks["stack"].not_worse  # worse by more than the margin


def test_a_single_task_goes_on_until_safety_is_shown_too() -> None:
    gate = run((0.9,), (0.9,), tasks=("reach",))
    assert gate.decision == PROMOTE
    assert gate.pairs > run((0.9, 0.9), (0.9, 0.9)).tasks["reach"].pairs


def test_error_rates_hold_at_their_limits() -> None:
    """300 candidates that are worse by just the margin on one task; 300 that are as good, with luck of their own."""
    rng, promoted, rejected = np.random.default_rng(1), 0, 0
    config = GateConfig(false_promotion=0.05, false_rejection=0.1, budget=60)
    for _ in range(300):
        for candidate in ((0.8, 0.9), (0.9, 0.9)):
            gate = Gate(TASKS, config)
            for _ in range(8):
                gate.add_idle(True, False)
            while gate.decision == OPEN:
                for task, rate in zip(TASKS, candidate, strict=True):
                    gate.add(task, rng.random() < rate, rng.random() < 0.9)
            promoted += gate.decision == PROMOTE and candidate[0] < 0.9
            rejected += gate.decision == REJECT and candidate[0] == 0.9
    assert promoted <= 26  # 15 at the limit; more than 26 with a probability of 0.002
    assert rejected <= 46  # 30; 46


def test_what_is_no_gate_is_named() -> None:
    with pytest.raises(InvalidInputError, match="expected one or more, each once"):
        Gate(("reach", "reach"))
    with pytest.raises(InvalidInputError, match=r"GateConfig\.margin: 1.5"):
        GateConfig(margin=1.5)
    with pytest.raises(UnknownNameError, match="unknown task of the gate 'dance'; valid: reach, stack"):
        Gate(TASKS).add("dance", True, True)
