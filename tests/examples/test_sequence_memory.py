"""examples/sequence_memory.py keeps the contract's laws, is trained, and is found again by the checkpoint's name."""

import json

import pytest
import torch

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.policies import load_policy
from engram.policies.sequence_memory import Moments, check_memory
from engram.policies.training.train import main
from engram.policies.training.train_config import TrainConfig
from examples.sequence_memory import HALF_LIFE_STEPS, Traces
from tests.contracts.sequence_memory import DIM, FEATURE, SequenceMemoryContract
from tests.policies.synthetic import make_dataset
from tests.policies.test_train import MODEL

NAME = "examples.sequence_memory:Traces"


class TestTraces(SequenceMemoryContract):
    def make(self):
        torch.manual_seed(0)
        return Traces(FEATURE, DIM)


def test_a_trace_has_forgotten_half_after_its_half_life():
    memory = Traces(1, 1)
    torch.nn.init.ones_(memory.enter.weight), torch.nn.init.zeros_(memory.enter.bias)
    state = {"traces": torch.ones(1, len(HALF_LIFE_STEPS), 1)}
    for _ in range(20):  # nothing is to be seen any more
        state = memory.write(state, Moments(torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, 3)))
    expected = torch.tensor([0.5**4, 0.5, 0.5**0.25, 0.5 ** (1 / 16)])
    torch.testing.assert_close(state["traces"][0, :, 0], expected)


@pytest.mark.slow
def test_a_policy_trained_with_it_names_it_and_is_opened_by_that_name(tmp_path):
    dataset = make_dataset(tmp_path / "data", episodes=2, length=8)
    model = (*MODEL, ("memory_details", 1))
    main(
        TrainConfig(
            dataset=str(dataset), out=str(tmp_path / "out"), steps=2, batch_size=8, n_action_steps=2, image_size=32,
            model=model, memory=NAME, window=4,
        )
    )  # fmt: skip
    folder = tmp_path / "out" / "policy"
    assert json.loads((folder / "config.json").read_text())["memory"] == NAME
    policy = load_policy(folder)
    assert policy.remembers
    assert isinstance(policy.network.model.recall.memory, Traces)


def test_a_memory_that_is_not_there_is_named():
    with pytest.raises(InvalidInputError, match=r"no module 'examples\.sequence_memroy'"):
        check_memory("examples.sequence_memroy:Traces")
    with pytest.raises(UnknownNameError, match="unknown memory 'gur'; did you mean 'gru'"):
        check_memory("gur")
