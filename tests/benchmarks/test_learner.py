"""What the learner's benchmark says of times and sizes that are known."""

import numpy as np
import pytest

from engram.benchmarks.learner import SIDE, Contender, episode, over, recording_figures, storage_figures
from engram.benchmarks.learner_storage import _held


def contender(*seconds):
    return Contender("one", "what", lambda: None, list(seconds))


def test_a_ratio_is_the_median_of_the_turns_and_its_target_met_or_missed():
    ours, theirs = contender(1.0, 2.0, 1.0), contender(10.0, 20.0, 30.0)
    row = over("sampling", ours, theirs, target=10.0)
    assert (row["name"], row["value"], row["n"], row["target"], row["met"]) == (
        *("learner_sampling", 10.0, 3),
        *(">= 10", True),
    )
    assert row["interval"] == [10.0, 30.0]
    assert not over("sampling", ours, theirs, target=11.0)["met"]
    assert over("cost", ours, theirs, scale=0.1, target=1.0, most=True)["met"]
    assert over("few", ours, contender(5.0))["n"] == 1  # of as many turns as both have


def test_what_recording_adds_is_the_difference_of_the_percentiles():
    plain = np.zeros((4, 25, 2)) + 5.0
    recorded = plain + np.array([2.0, 0.0])
    rows = {row["name"]: row for row in recording_figures({False: plain, True: recorded})}
    added = rows["learner_recording_adds_to_a_step_ms_p99"]
    assert (added["value"], added["interval"], added["met"]) == (2.0, [2.0, 2.0], False)
    assert rows["learner_recording_handing_over_ms_p99"]["value"] == 5.0


def test_the_size_of_a_replay_is_what_it_takes_while_episodes_come_and_go():
    rng = np.random.default_rng(0)
    found = _held("replay", [episode(rng, number, 10) for number in range(40)], None)
    pictures = 400 * 2 * 3 * SIDE * SIDE
    assert pictures < found["replay"] <= found["replay, at its peak"] < 1.3 * pictures


def test_bytes_are_compared_with_what_is_like_them():
    sizes = {
        "engram experience store": 10.0,
        "engram replay as recorded": 100.0,
        "engram replay as recorded, at its peak": 300.0,
        "lerobot replay buffer": 800.0,
        "lerobot dataset with png files": 20.0,
        "lerobot dataset of its buffer with videos": 50.0,
    }
    rows = {row["name"]: row for row in storage_figures(sizes, 7)}
    shares = {name: (row["value"], row["met"]) for name, row in rows.items() if row["target"]}
    assert shares == {
        "learner_bytes_replay_over_lerobot_buffer": (pytest.approx(0.375), False),  # at its peak
        "learner_bytes_store_over_lerobot_dataset_with_png_files": (0.5, False),
        "learner_bytes_store_over_lerobot_dataset_with_videos": (0.2, True),
    }
