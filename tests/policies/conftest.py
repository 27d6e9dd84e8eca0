"""What tests of trainings share."""

import pytest
import torch

from tests.policies import forks


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a training in this process would spawn is forked."""
    monkeypatch.setattr(torch.multiprocessing, "spawn", forks.spawn)
