"""Single answers of a shipped policy: timed one by one, and compared with the path by which it was trained."""

import numpy as np
import pytest
import torch

from engram.benchmarks import policy_answers
from engram.benchmarks.policy_answers import DIFFERENCE, figures, largest_difference, wall_ms
from engram.policies.sequence_memory.bank import Bank


@pytest.mark.parametrize("policy", ["base", "engram"])
def test_an_answer_is_that_of_an_episode_walked_through_at_once(policy):
    assert largest_difference(policy, steps=30) <= DIFFERENCE


def test_a_bank_that_reads_otherwise_step_by_step_would_be_found(monkeypatch):
    unroll = Bank.unroll

    def other(self, state, moments, queries, asked=None):
        readings, state = unroll(self, state, moments, queries, asked)
        return (1.1 * readings if queries.shape[1] == 1 else readings), state

    monkeypatch.setattr(Bank, "unroll", other)
    assert largest_difference("engram", steps=12) > DIFFERENCE


def test_percentiles_are_of_single_calls_and_judged_for_ours_alone():
    spent = {"ours": np.array([5.0] * 98 + [30.0] * 2), "ACT, alone": np.array([40.0] * 100)}
    told = {row["name"]: row for row in figures(spent, "ours", 1e-5, 60)}
    assert (told["answer_wall_ms_p50_ours"]["value"], told["answer_wall_ms_p50_ours"]["met"]) == (5.0, True)
    assert (told["answer_wall_ms_p99_ours"]["met"], told["answer_wall_ms_p99_act_alone"]["met"]) == (False, None)
    assert told["answer_largest_difference"]["met"] and told["answer_largest_difference"]["n"] == 60


def test_contenders_take_turns_and_every_call_counts():
    called = []
    spent = wall_ms({name: lambda name=name: called.append(name) for name in "ab"}, 3)
    assert called == ["a", "b"] * 3 and {name: each.shape for name, each in spent.items()} == {"a": (3,), "b": (3,)}


def test_the_context_is_of_unit_vectors_on_the_table():
    tokens = policy_answers.context(np.random.default_rng(1))
    assert torch.tensor(tokens.tokens).norm(dim=1).allclose(torch.ones(len(tokens.tokens))) and tokens.mask.all()
