"""examples/algorithm.py is taken by name, and gives what the critics deem better than usual."""

import torch

from engram.learning.algorithms import make_algorithm
from engram.learning.algorithms.value_learning import Steps
from tests.policies.tiny import tiny_vla

NAME = "examples.algorithm:above_usual"


def steps_of(algorithm, n=20):
    torch.manual_seed(0)
    horizon, width = algorithm.model.noise_shape
    answer = torch.randn(n, 8, horizon, width) * 0.3
    nothing = torch.zeros(n)
    condition = torch.zeros(n, algorithm.model.condition_size)
    return Steps(condition, answer, answer, answer[:, 0], nothing, nothing.long(), nothing.long())


def test_it_gives_answers_that_gain_and_else_those_that_were_drawn():
    algorithm = make_algorithm(NAME, tiny_vla())
    steps, draw = steps_of(algorithm), torch.zeros(20, dtype=torch.long)
    chosen, weight = algorithm.better(steps, draw)
    assert torch.equal(chosen, steps.answer[:, 0]) and weight.tolist() == [1.0] * 20  # the critics know nothing yet
    algorithm.critics.linear[:, 0, 2] = 1.0  # up is good
    chosen, _ = algorithm.better(steps, draw)
    up, usual = algorithm.departure(chosen, steps)[:, 2], algorithm.departure(steps.answer.mean(1), steps)[:, 2]
    assert (up >= usual - 1e-6).all() and (up > usual + 0.05).float().mean() > 0.5
