"""The proof of the policy's memory: what it counts, and that a run goes on where it was cut off."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engram.benchmarks import memory_tasks
from engram.benchmarks.memory_tasks import (
    Block,
    MemoryTasksBenchmark,
    anonymous,
    blocks,
    main,
    measure,
    rates,
    run_block,
    told_arms,
    trained_delay,
)
from engram.benchmarks.memory_tasks_figures import OURS, difference, figures, tables
from engram.core.errors import EngramError, InvalidInputError, UnknownNameError
from engram.core.statistics import Rate, wilson
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.policies.opening import checkpoint_folder
from engram.policies.vla.chunking import AdaptiveChunks
from engram.sim.oracle import ORACLE_STATE

REPORT = SimpleNamespace(per_task={"shell_touch": SimpleNamespace(successes=1)}, failures={"shell_touch": ()})


def small(tmp_path, **fields):
    chosen = {"policy": "engram", "tasks": ("shell_touch", "take_it_back"), "plain_tasks": ("reach",), "block": 10}
    return MemoryTasksBenchmark(**{**chosen, "conditions": (), "work": tmp_path, "workers": 1, **fields})


def test_every_arm_has_its_seeds_and_no_seed_twice(tmp_path):
    ran = blocks(small(tmp_path, episodes=25, ablation_episodes=5, others=("none=base", "hcam=base")))
    seeds = {}
    for block in ran:
        numbers = range(block.first_seed, block.first_seed + block.count)
        seeds.setdefault((block.arm, block.task), []).extend(numbers)
    assert seeds[OURS, "shell_touch"] == list(range(25))
    assert seeds["none", "reach"] == seeds["none", "shell_touch"] == list(range(25))
    assert seeds["hcam", "reach"] == seeds["hcam", "shell_touch"] == list(range(5))
    assert seeds[f"{OURS}-noise", "take_it_back"] == seeds[f"{OURS}-swapped", "take_it_back"] == list(range(5))
    assert seeds[f"{OURS}-zeroed", "take_it_back"] == list(range(5))
    assert seeds[ORACLE_STATE, "take_it_back"] == list(range(25))
    assert [block.first_seed for block in ran if (block.arm, block.task) == (OURS, "reach")] == [0, 10, 20]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"others": ("base",)}, "'base', expected name=folder"),
        ({"others": ("a/b=base",)}, "'a/b=base', expected name=folder"),
        ({"others": ("base=memory",)}, "the name 'base' is taken; taken are ours, oracle_state, base"),
        ({"others": ("gru=base", "gru=memory")}, "the name 'gru' is taken"),
        ({"ablations": ("removed",)}, "unknown ablation 'removed'; .*valid: noise, swapped, zeroed"),
        ({"policy": "base"}, "policy 'base' has no memory of its episode to spoil"),
        ({"block": 0}, "MemoryTasksBenchmark.block"),
        ({"tasks": ("memory", "shell_touch")}, "tasks: shell_touch named more than once"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_runs(tmp_path, change, message):
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        blocks(small(tmp_path, **change))


def test_a_task_without_memory_is_named_before_anything_runs():
    with pytest.raises(InvalidInputError, match=r"tasks: 'reach' needs no memory .*shell_touch"):
        blocks(MemoryTasksBenchmark(tasks=("shell_touch", "reach")))


def test_conditions_are_beyond_training_and_only_where_they_change_something(tmp_path):
    chosen = ("delay x4", "things x3", "new colours", "held-out words")
    config = small(
        tmp_path, policy="base", episodes=10, ablations=(), plain_tasks=(), conditions=chosen, condition_episodes=5
    )
    assert {task for task, _, _ in beyond(config).values()} >= {"shell_touch:delay=40", "take_it_back:delay=40"}
    assert beyond(replace(config, longest_delay=20)) == {
        ("delay x4", "shell_touch"): ("shell_touch:delay=80", 5, False),
        ("delay x4", "take_it_back"): ("take_it_back:delay=80", 5, False),
        ("things x3", "shell_touch"): ("shell_touch:distractors=6", 5, False),  # 3 shells + 6 = 3 x 3
        ("things x3", "take_it_back"): ("take_it_back:distractors=6", 5, False),
        # shells and ball have no colours to change
        ("new colours", "take_it_back"): ("take_it_back:first_color=6", 5, False),
        ("held-out words", "shell_touch"): ("shell_touch", 5, True),
        ("held-out words", "take_it_back"): ("take_it_back", 5, True),
    }
    found = {OURS: {"shell_touch": wilson(9, 10), "take_it_back": wilson(5, 10)}}
    found["new colours"] = {"take_it_back": wilson(2, 10)}
    told = {figure["name"]: figure["value"] for figure in figures(found, config)}
    assert told["memory_tasks_new_colours_minus_ours"] == pytest.approx(-0.3)  # of the tasks that both have
    with pytest.raises(UnknownNameError, match="unknown condition 'dark'"):
        blocks(small(tmp_path, conditions=("dark",)))


def beyond(config):
    return {(b.arm, b.row): (b.task, b.count, b.held_out) for b in blocks(config) if b.arm not in (OURS, ORACLE_STATE)}


def test_the_longest_delay_of_the_training_is_read_off_the_card(tmp_path):
    names = ["stop_cube:delay=20", "stop_cube", "reach", "shell_touch:delay=5,first_color=2"]
    (tmp_path / CARD).write_text(json.dumps({"tasks": names}))
    assert trained_delay(str(tmp_path)) == 20
    (tmp_path / CARD).write_text(json.dumps({"tasks": ["reach", "stop_cube"]}))
    assert trained_delay(str(tmp_path)) == 10
    (tmp_path / CARD).unlink()
    assert trained_delay(str(tmp_path)) == 10


def test_each_arm_is_told_by_its_weights_and_no_folder_is(tmp_path):
    config = small(tmp_path, episodes=5, others=("none=engram",), ablations=("zeroed",), policy="engram")
    arms = told_arms(blocks(config))
    digest = sha256(checkpoint_folder("engram") / WEIGHTS)
    assert (arms[OURS]["sha256"], arms[OURS]["memory"], "ablation" in arms[OURS]) == (digest, "bank", False)
    assert arms[f"{OURS}-zeroed"]["ablation"] == "zeroed"
    assert arms["base"]["memory"] == "none"
    assert "sha256" not in arms[ORACLE_STATE]
    assert str(tmp_path) not in str(anonymous(replace(config, policy=str(tmp_path), others=(f"gru={tmp_path}",))))


def test_what_other_code_ran_is_run_again(tmp_path, monkeypatch):
    block, *_ = blocks(small(tmp_path))
    before = block.name
    monkeypatch.setattr(memory_tasks, "_code", lambda: "other")
    assert block.name != before and "code_other" in block.name


def test_the_same_weights_that_leave_chunks_otherwise_are_another_arm(tmp_path, monkeypatch):
    shutil.copytree(checkpoint_folder("base"), tmp_path / "eager")
    own = tmp_path / "eager" / "config.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"adaptive_m": 0.04}))
    config = small(tmp_path, others=(f"eager={tmp_path / 'eager'}",), ablations=(), policy="base")
    plain, eager = (next(b for b in blocks(config) if b.arm == arm) for arm in (OURS, "eager"))
    assert eager.name.split("-")[1] != plain.name.split("-")[1]
    arms = told_arms([plain, eager])
    assert (arms["eager"].pop("adaptive_m"), arms["eager"]) == (0.04, arms[OURS])
    asked = []
    monkeypatch.setattr(memory_tasks, "evaluate", lambda policy, *_, **__: asked.append(policy) or REPORT)
    for block in (plain, eager):
        run_block(block)
    assert [isinstance(policy, AdaptiveChunks) for policy in asked] == [False, True]


def test_the_state_oracle_succeeds_in_its_block():
    _, result = run_block(Block(ORACLE_STATE, ORACLE_STATE, "", "shell_touch:delay=0", 0, 2))
    assert result == {"successes": 2, "failures": ()}


def test_a_difference_of_rates_has_the_interval_of_mover():
    a, b = Rate(9, 10, 0.9, 0.6, 1.0), Rate(4, 10, 0.4, 0.2, 0.8)
    assert difference(a, b) == pytest.approx((0.5, 0.5 - 0.5, 0.5 + (0.01 + 0.04) ** 0.5, 10))  # 0.3 and 0.4: 0.5


def test_targets_are_judged_on_every_task():
    config = MemoryTasksBenchmark(tasks=("shell_touch", "take_it_back"), plain_tasks=())
    tasks = {"shell_touch": wilson(95, 100), "take_it_back": wilson(80, 100)}
    none = {"shell_touch": wilson(35, 100), "take_it_back": wilson(30, 100)}
    found = {f["name"]: f for f in figures({OURS: tasks, "none": none, f"{OURS}-zeroed": none}, config)}
    assert found[f"memory_tasks_gain_over_{OURS}-zeroed"]["target"] is None  # training never saw an emptied memory
    assert found["memory_tasks_gain_over_chance"]["value"] == pytest.approx((0.95 + 0.80) / 2 - 1 / 3, abs=1e-4)
    assert (found["memory_tasks_solved_ours"]["value"], found["memory_tasks_solved_ours"]["met"]) == (1, False)
    mean = found[f"memory_tasks_mean_{OURS}"]
    assert (mean["value"], mean["target"], mean["met"]) == (0.875, 0.95, False)
    assert found["memory_tasks_solved_ours"]["target"] == 10
    assert found["memory_tasks_gain_over_none"]["value"] == pytest.approx(0.55)
    assert found["memory_tasks_gain_over_none"]["met"]
    assert "intercept_grab_ours_minus_none" not in found
    assert found["memory_tasks_mean_chance"]["value"] == pytest.approx(1 / 3, abs=1e-4)


def test_no_loss_is_judged_by_the_interval_and_other_arms_have_no_target():
    config = MemoryTasksBenchmark(tasks=("intercept_grab",), plain_tasks=("reach",))
    ours = {"intercept_grab": wilson(98, 100), "reach": wilson(50, 100)}
    none = {"intercept_grab": wilson(100, 100), "reach": wilson(90, 100)}
    found = {f["name"]: f for f in figures({OURS: ours, "none": none, ORACLE_STATE: none}, config)}
    assert found["intercept_grab_ours_minus_none"]["met"]
    assert found["intercept_grab_ours_minus_none"]["value"] == pytest.approx(-0.02)
    assert not found["markovian_tasks_ours_minus_none"]["met"]
    assert found[f"memory_tasks_gain_over_{ORACLE_STATE}"]["target"] is None
    as_trained, *beyond_training = tables({OURS: ours, "none": none}, config)
    assert not beyond_training
    assert next(iter(as_trained.columns[2].cells)) == "98 [93, 99] (100)"


def test_blocks_that_were_run_are_not_run_again(tmp_path, monkeypatch):
    config = small(tmp_path, episodes=10, ablations=(), tasks=("shell_touch",), plain_tasks=())
    oracle, block = sorted(blocks(config), key=lambda block: block.arm == OURS)
    (tmp_path / block.name).write_text(json.dumps({"successes": 7}))
    (tmp_path / oracle.name).write_text(json.dumps({"successes": 10}))
    monkeypatch.setattr(memory_tasks, "run_block", None)
    found = {OURS: {"shell_touch": wilson(7, 10)}, ORACLE_STATE: {"shell_touch": wilson(10, 10)}}
    assert measure(blocks(config), tmp_path, 1) == found
    more = small(tmp_path, episodes=20, ablations=(), tasks=("shell_touch",), so_far=True)
    assert measure(blocks(more), tmp_path, 0) == rates(blocks(more), tmp_path) == found


def test_nothing_so_far_is_an_error_that_says_so(tmp_path):
    with pytest.raises(EngramError, match="nothing of 'engram' was run with this code"):
        main(small(tmp_path, so_far=True))
