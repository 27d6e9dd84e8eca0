"""The figures that the two executors are compared by, from times that can be followed by hand."""

import numpy as np
import pytest

from engram.benchmarks.executors import NODES, figures


def measured(cpu_ms: float, overhead_ms: list[float]) -> dict[str, list[np.ndarray]]:
    blocks = [np.array(overhead_ms)] * 3
    return {f"cpu_{node}": [np.array([cpu_ms])] * 3 for node in NODES} | {"overhead": blocks, "no_chunk": blocks}


def test_each_measure_is_told_for_both_executors_and_as_a_ratio_with_its_interval():
    rows = {row["name"]: row for row in figures({"kept": measured(2.0, [3, 4, 5]), "rclpy": measured(4.0, [6, 8, 10])})}
    assert (rows["executor_cpu_safety_node_a_step_ms_kept"]["value"], rows["executor_overhead_p50_ms_rclpy"]["n"]) == (
        2.0,
        9,
    )
    ratio = rows["executor_overhead_p50_kept_over_rclpy"]
    assert (ratio["value"], ratio["interval"]) == (pytest.approx(0.5), [0.5, 0.5])
    assert len(rows) == 3 * (len(NODES) + 4)  # CPU of each node; p50 and p99 with a chunk due and without
