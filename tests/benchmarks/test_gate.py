"""Many gates at once decide as one gate does, and the benchmark's figures name their targets."""

import numpy as np
import pytest

from engram.benchmarks.gate import CASES, TASKS, Case, GateBenchmark, drawn, figures, fixed_length, judge
from engram.validation.gate import OPEN, PROMOTE, REJECT, Gate, GateConfig
from engram.validation.validate import ROUND


@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_many_gates_decide_as_one(case) -> None:
    config = GateConfig(budget=80)
    new, old, far, before = drawn(case, 10, config.budget, 3)
    decided, pairs = judge(new, old, far, before, config)
    for run in range(10):
        gate = Gate([str(task) for task in range(TASKS)], config)
        for _ in range(20):
            gate.add_idle(True, False)
        while gate.decision == OPEN:
            scenes = [(t, gate.tasks[t].pairs + i) for i in range(ROUND) for t in gate.wanted]
            for task, at in scenes:
                here = (run, int(task), at)
                gate.add(task, bool(new[here]), bool(old[here]), progress=(float(far[here]), float(before[here])))
        assert {PROMOTE: 1, REJECT: -1}.get(gate.decision, 0) == decided[run]
        assert gate.pairs == pairs[run]


def test_a_test_of_fixed_length_by_hand() -> None:
    """z of 1 % and of a power of 0.9 ** (1 / 6): 2.326 + 2.111; variance 0.18, difference 0.1."""
    case = Case("equal", (0.9,) * TASKS, (0.9,) * TASKS)
    assert fixed_length(case, GateConfig()) == TASKS * int(np.ceil((2.3263 + 2.1110) ** 2 * 0.18 / 0.01))


def test_figures_name_their_targets() -> None:
    rows = {row["name"]: row for row in figures(GateBenchmark(quick=True))}
    assert rows["promoted_one_task_10_points_worse"]["target"] == "<= 0.01"
    assert rows["rejected_equal"]["target"] == "<= 0.05"
    assert rows["promoted_every_task_30_points_better"]["value"] == 1.0
    assert rows["rejected_does_nothing"]["value"] == 1.0
    less_far = "one_task_never_done_but_less_far_same_luck"
    assert (rows[f"rejected_{less_far}"]["value"], rows[f"successes_alone_promote_{less_far}"]["value"]) == (1.0, 1.0)
