"""What is claimed of the one policy: which episodes are run for it, and how they are judged."""

from types import SimpleNamespace

import pytest

from engram.benchmarks import policy_claims
from engram.benchmarks.policy_claims import (
    BEYOND,
    OURS,
    PUSHABLE,
    PUSHED,
    REFERENCE,
    REFERENCE_PUSHED,
    SPOILED,
    SUITES,
    PolicyClaims,
    blocks,
    claims,
    complete,
)
from engram.core.errors import InvalidInputError
from engram.core.statistics import wilson

EVERY = [task for tasks in SUITES.values() for task in tasks]


@pytest.fixture
def remembers_and_looks_up(monkeypatch):
    monkeypatch.setattr(policy_claims, "configuration", lambda _: {"memory": "bank"})
    monkeypatch.setattr(policy_claims, "load_policy", lambda _: SimpleNamespace(reads_context=True))


def seeds(ran):
    found = {}
    for block in ran:
        numbers = range(block.first_seed, block.first_seed + block.count)
        found.setdefault((block.arm, block.row or block.task), []).extend(numbers)
    return found


@pytest.mark.usefixtures("remembers_and_looks_up")
def test_every_task_is_run_as_trained_and_with_each_ablation_and_no_seed_twice():
    ran = blocks(PolicyClaims(policy="engram", episodes=25, ablation_episodes=12, condition_episodes=5))
    told = seeds(ran)
    for task in EVERY:
        assert told[OURS, task] == list(range(25))
        for ablation in SPOILED:
            assert told[ablation, task] == list(range(12))
    assert {task for arm, task in told if arm == REFERENCE} == set(SUITES["tabletop"])
    for arm in (PUSHED, REFERENCE_PUSHED):
        assert [task for who, task in told if who == arm] == list(PUSHABLE)
        assert sum(len(told[arm, task]) for task in PUSHABLE) >= 25
    assert {block.arm for block in ran if block.pushed} == {PUSHED, REFERENCE_PUSHED}
    assert {arm for arm, _ in told} >= set(BEYOND)
    assert [block.first_seed for block in ran] == sorted(block.first_seed for block in ran)
    assert not {arm for arm, _ in seeds(blocks(PolicyClaims(policy="engram", quick=True)))} & set(BEYOND)


@pytest.mark.parametrize("policy", ["base"])
def test_a_policy_that_lacks_one_of_its_memories_is_named(policy):
    with pytest.raises(InvalidInputError, match=f"policy '{policy}': has no memory of its episode, or reads no memory"):
        blocks(PolicyClaims(policy=policy))


def test_claims_are_judged_by_their_targets():
    found = {OURS: {task: wilson(96, 100) for task in EVERY}}
    found[OURS] |= {"stop_cube": wilson(85, 100), "stack": wilson(94, 100), "count_presses": wilson(70, 100)}
    found[REFERENCE] = {task: wilson(98, 100) for task in SUITES["tabletop"]}
    found[PUSHED] = {task: wilson(82, 100) for task in PUSHABLE}
    found["no_context"] = {task: wilson(30, 100) for task in EVERY}
    found["delay x2"] = {task: wilson(91, 100) for task in SUITES["memory"]}
    told = {row["name"]: row for row in claims(found)}
    met = {name: row["met"] for name, row in told.items()}
    assert told["tabletop_as_trained"]["value"] == pytest.approx((5 * 0.96 + 0.94) / 6, abs=1e-4)
    assert (met["tabletop_as_trained"], met["out_of_view_as_trained"], met["memory_as_trained"]) == (False, True, False)
    assert (met["stack_as_trained"], met["reach_as_trained"]) == (False, True)
    assert (met["count_presses_as_trained"], met["stop_cube_as_trained"]) == (False, True)
    assert (told["memory_tasks_solved"]["value"], met["memory_tasks_solved"]) == (10, True)
    assert told["tabletop_minus_reference"]["value"] == pytest.approx(told["tabletop_as_trained"]["value"] - 0.98)
    assert not met["tabletop_minus_reference"]
    assert (told["tabletop_pushed"]["value"], met["tabletop_pushed"]) == (pytest.approx(0.82), True)
    assert (told["out_of_view_no_context"]["value"], met["out_of_view_no_context"]) == (pytest.approx(0.3), None)
    assert (met["memory_delay_x2"], "memory_delay_x4" in met) == (False, False)


@pytest.mark.usefixtures("remembers_and_looks_up")
def test_of_a_condition_that_was_cut_off_no_mean_is_told():
    wanted = blocks(PolicyClaims(policy="engram", episodes=5, ablation_episodes=5, condition_episodes=5))
    whole = {arm: {task: wilson(4, 5) for who, task in seeds(wanted) if who == arm} for arm, _ in seeds(wanted)}
    assert complete(whole, wanted) == whole
    part = dict(whole, **{"delay x4": dict(list(whole["delay x4"].items())[:-1])})
    assert set(whole) - set(complete(part, wanted)) == {"delay x4"}
    del part[OURS]["stop_cube"]
    told = {row["name"] for row in claims(complete(part, wanted))}
    assert {"tabletop_as_trained", "reach_as_trained", "memory_delay_x2"} <= told  # each suite and task for itself
    assert not {"memory_as_trained", "memory_tasks_solved", "memory_delay_x4"} & told
