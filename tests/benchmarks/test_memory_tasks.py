"""The proof of the policy's memory: what it counts, and that a run goes on where it was cut off."""

import json

import pytest

from engram.benchmarks import memory_tasks
from engram.benchmarks.memory_tasks import OURS, MemoryTasksBenchmark, blocks, difference, figures, measure, rates
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.statistics import Rate, wilson


def small(tmp_path, **fields):
    chosen = {"policy": "base", "tasks": ("shell_touch", "take_it_back"), "plain_tasks": ("reach",), "block": 10}
    return MemoryTasksBenchmark(**{**chosen, "conditions": (), "work": tmp_path, "workers": 1, **fields})


def test_every_arm_has_its_seeds_and_no_seed_twice(tmp_path):
    ran = blocks(small(tmp_path, episodes=25, lesion_episodes=5, others=("none=base",)))
    seeds = {}
    for block in ran:
        numbers = range(block.first_seed, block.first_seed + block.count)
        seeds.setdefault((block.arm, block.task), []).extend(numbers)
    assert seeds[OURS, "shell_touch"] == list(range(25))
    assert seeds["none", "reach"] == list(range(25))
    assert seeds[f"{OURS}-noise", "take_it_back"] == list(range(5))
    assert [block.first_seed for block in ran if (block.arm, block.task) == (OURS, "reach")] == [0, 10, 20]
    with pytest.raises(InvalidInputError, match="'base', expected name=folder"):
        blocks(small(tmp_path, others=("base",)))


def test_conditions_are_beyond_training_and_only_where_they_change_something(tmp_path):
    chosen = ("delay x4", "new colours", "held-out words")
    config = small(tmp_path, episodes=10, lesions=(), plain_tasks=(), conditions=chosen, condition_episodes=5)
    ran = {(b.arm, b.row): (b.task, b.count, b.held_out) for b in blocks(config) if b.arm != OURS}
    assert ran == {
        ("delay x4", "shell_touch"): ("shell_touch:delay=40", 5, False),
        ("delay x4", "take_it_back"): ("take_it_back:delay=40", 5, False),
        ("new colours", "take_it_back"): (
            "take_it_back:first_color=3",
            5,
            False,
        ),  # shells and ball have none to change
        ("held-out words", "shell_touch"): ("shell_touch", 5, True),
        ("held-out words", "take_it_back"): ("take_it_back", 5, True),
    }
    found = {OURS: {"shell_touch": wilson(9, 10), "take_it_back": wilson(5, 10)}}
    found["new colours"] = {"take_it_back": wilson(2, 10)}
    told = {figure["name"]: figure["value"] for figure in figures(found, config)}
    assert told["memory_tasks_new_colours_minus_ours"] == pytest.approx(-0.3)  # of the tasks that both have
    with pytest.raises(UnknownNameError, match="unknown condition 'dark'"):
        blocks(small(tmp_path, conditions=("dark",)))


def test_a_difference_of_rates_has_the_interval_of_mover():
    a, b = Rate(9, 10, 0.9, 0.6, 1.0), Rate(4, 10, 0.4, 0.2, 0.8)
    assert difference(a, b) == pytest.approx((0.5, 0.5 - 0.5, 0.5 + (0.01 + 0.04) ** 0.5, 10))  # 0.3 and 0.4: 0.5


def test_targets_are_judged_on_every_task():
    config = MemoryTasksBenchmark(tasks=("shell_touch", "take_it_back"), plain_tasks=())
    tasks = {"shell_touch": wilson(95, 100), "take_it_back": wilson(80, 100)}
    none = {"shell_touch": wilson(35, 100), "take_it_back": wilson(30, 100)}
    found = {f["name"]: f for f in figures({OURS: tasks, "none": none}, config)}
    assert (found["memory_tasks_solved_ours"]["value"], found["memory_tasks_solved_ours"]["met"]) == (1, False)
    assert found["memory_tasks_gain_over_none"]["value"] == pytest.approx(0.55)
    assert found["memory_tasks_gain_over_none"]["met"]
    assert found["memory_tasks_mean_chance"]["value"] == pytest.approx(1 / 3, abs=1e-4)


def test_blocks_that_were_run_are_not_run_again(tmp_path, monkeypatch):
    config = small(tmp_path, episodes=10, lesions=(), tasks=("shell_touch",), plain_tasks=())
    (block,) = blocks(config)
    (tmp_path / block.name).write_text(json.dumps({"successes": 7}))
    monkeypatch.setattr(memory_tasks, "run_block", None)
    assert measure(config) == {OURS: {"shell_touch": wilson(7, 10)}}
    more = small(tmp_path, episodes=20, lesions=(), tasks=("shell_touch",), so_far=True)
    assert measure(more) == rates(blocks(more), tmp_path) == measure(config)
