"""The report on the barrier, and the meshes that judge it."""

import numpy as np

from engram.benchmarks.barrier import BELOW_M, figures
from engram.benchmarks.makers_meshes import MakersMeshes
from engram.core.robot import PANDA_2F85

HOME = np.array((*PANDA_2F85.home, 0.0))


def test_episodes_are_counted_and_not_steps():
    kept, free = np.zeros((4, 2), int), np.array([[3, 0], [0, 0], [1, 2], [0, 0]])
    rows = {row["name"]: row for row in figures(kept, free, [0.002, 0.002], [0.0005, 0.0005])}
    assert rows["episodes_with_link_in_link"]["met"] is True
    assert rows["episodes_with_link_in_link_without_barrier"]["value"] == 2
    assert rows["episodes_with_link_below_table_without_barrier"]["value"] == 1
    assert rows["step_cpu_ms_p99_experts"]["value"] == 0.5
    assert rows["step_cpu_ms_p99_experts"]["met"] is True
    assert rows["step_cpu_ms_p99_hostile"]["met"] is False


def test_the_meshes_see_a_hand_in_the_column_and_one_in_the_table():
    meshes = MakersMeshes()
    meshes.place(HOME)
    assert not meshes.overlaps()
    assert meshes.lowest() > 0.1
    folded = HOME.copy()
    folded[[1, 3, 5]] = 0.24, -2.79, 1.46  # the fingers point at link 1
    meshes.place(folded)
    assert meshes.overlaps()
    down = HOME.copy()
    down[1] = 1.2
    meshes.place(down)
    assert meshes.lowest() < -BELOW_M
