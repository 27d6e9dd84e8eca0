"""The latency benchmark: its stages and ratios by hand, and raw loops that answer and end."""

import json

import numpy as np
import pytest

from engram.benchmarks.loop import ALONE, BESIDE, DUE, NOT_DUE, OVERHEAD, figures, gate_figures, of_way, stages
from engram.benchmarks.loop_raw import LAYOUTS, RawLoop

MS = 1_000_000


def write(folder, node, rows):
    lines = [json.dumps({"event": event, "stamp_ns": stamp, "at_ns": round(at * MS)}) for event, stamp, at in rows]
    (folder / f"{node}_node.jsonl").write_text("\n".join(lines))


def test_stages_fall_into_blocks_and_the_forward_pass_is_no_overhead(tmp_path):
    """Steps 1 and 2 are in block 0, 3 and 4 in block 1, where all is half as fast; for 1 and 3 a chunk is due."""
    sim, policy, safety = [], [], []
    for stamp, begin, unit in ((1, 0.0, 1.0), (3, 200.0, 2.0)):
        at = [begin + unit * passed for passed in (0, 1, 3, 4, 14, 15, 17, 18)]
        sim += [("show", stamp, at[0]), ("shown", stamp, at[1]), ("command received", stamp, at[7])]
        policy += [("observation complete", stamp, at[2]), ("policy begins", stamp, at[3])]
        policy += [("policy ends", stamp, at[4]), ("chunk sent", stamp, at[4])]
        safety += [("chunk received", stamp, at[5]), ("command sent", stamp, at[6])]
    sim += [("show", 2, 50.0), ("command received", 2, 55.0), ("show", 4, 250.0), ("command received", 4, 260.0)]
    for node, rows in (("sim", sim), ("policy", policy), ("safety", safety)):
        write(tmp_path, node, rows)

    measured = stages(tmp_path, [100 * MS, 300 * MS])
    assert [b.tolist() for b in measured[OVERHEAD]] == [[8.0], [16.0]]  # 18 - 10, and twice that
    assert [b.tolist() for b in measured["  forward pass"]] == [[10.0], [20.0]]
    assert [b.tolist() for b in measured["  sim -> policy, observation complete"]] == [[2.0], [4.0]]
    assert [b.tolist() for b in measured[NOT_DUE]] == [[5.0], [10.0]]
    split = [sum(measured[name][0]) for name in measured if name.startswith("  ")]
    assert sum(split) == 18.0  # nothing is left out, nothing is counted twice

    raw = {layout: [np.array([4.0]), np.array([8.0])] for layout in LAYOUTS}
    rows = {row["name"]: row for row in figures(measured | raw)}
    goal = rows["loop_overhead_p99_over_raw_rest_later_p99"]
    assert (goal["value"], goal["p50"], goal["n"], goal["met"]) == (2.0, 2.0, 2, False)
    assert goal["interval"] == [2.0, 2.0]  # a machine that slows both down leaves the ratio alone
    assert rows["loop_overhead_p99_over_raw_bare_p99"]["met"] is None


def test_what_a_gate_costs_is_the_ratio_of_the_same_blocks_with_it_and_without():
    both = {DUE: [np.array([ms]) for ms in (10.0, 12.0, 26.0, 20.0)], NOT_DUE: [np.array([5.0])] * 4}
    ways = [ALONE, BESIDE, BESIDE, ALONE]  # in turns first
    alone, beside = (of_way(both, ways, way) for way in (ALONE, BESIDE))
    assert [block.tolist() for block in alone[DUE]] == [[10.0], [20.0]]
    rows = {row["name"]: row for row in gate_figures(alone, beside)}
    ratio = rows["loop_beside_the_gate_over_alone_chunk_due_p99"]
    assert ratio["value"] == pytest.approx((12.0 + 0.99 * 14.0) / (10.0 + 0.99 * 10.0), abs=1e-3)
    assert ratio["p50"] == pytest.approx(19.0 / 15.0, abs=1e-3)
    assert ratio["interval"] == [1.2, 1.3]  # of the blocks one by one
    assert (ratio["target"], ratio["met"]) == (1.2, False)
    same = rows["loop_beside_the_gate_over_alone_no_chunk_due_p99"]
    assert (same["value"], same["target"], same["met"]) == (1.0, None, None)
    assert rows["loop_beside_the_gate_chunk_due_ms"]["n"] == 2


@pytest.mark.ros
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_raw_loop_answers_every_step_and_ends(layout):
    loop = RawLoop(layout, 16, 0.0)
    try:
        assert (loop.rounds_ms(3) > 0).all()
        assert len(loop.rounds_ms(2)) == 2
    finally:
        loop.close()
