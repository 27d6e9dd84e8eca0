"""The planted candidates are what their names say, and a broken weight file is refused before anything drives."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engram.benchmarks.gate_policies import CANDIDATES, OUTPUT, GatePoliciesBenchmark, decided
from engram.policies.checkpoint import WEIGHTS
from engram.runtime.factories import policy_folder


@pytest.fixture(scope="module")
def weights():
    return load_file(Path(policy_folder("base")) / WEIGHTS)


def test_swapped_actions_swap_back(weights) -> None:
    swap = CANDIDATES["forward and sideways swapped"][0]
    once = swap(weights)
    np.testing.assert_array_equal(once[f"{OUTPUT}.bias"][:3], weights[f"{OUTPUT}.bias"][[1, 0, 2]])
    np.testing.assert_array_equal(swap(once)[f"{OUTPUT}.weight"], weights[f"{OUTPUT}.weight"])


def test_noise_is_a_share_of_each_matrix(weights) -> None:
    noisy = CANDIDATES["noise of 20 % in every matrix"][0](weights)
    for name, value in weights.items():
        if value.ndim > 1 and value.size > 1000:
            assert np.std(noisy[name] - value) == pytest.approx(0.2 * value.std(), rel=0.1)
        if value.ndim == 1:
            np.testing.assert_array_equal(noisy[name], value)


def test_a_value_that_is_no_number_is_refused_before_an_episode(tmp_path) -> None:
    found = decided("a value that is no number", GatePoliciesBenchmark(workers=1, work=tmp_path))
    assert (found["decision"], found["pairs"]) == ("reject", 0)
    assert "not finite" in found["reason"]
