"""A sequence memory of your own: what the policy keeps of its running episode. This one keeps running averages.

Each trace forgets at a speed of its own, from half a second to 32 s, so that together they tell what is new from what
was long ago. Every control step is written once, in training and in deployment.

Train a policy with it, then use the policy as any other. Its configuration names this class, so the file must be on
PYTHONPATH wherever the policy is loaded; a checkpoint imports nothing from the current folder:

    export PYTHONPATH=$PWD
    engram record --root data/memory --tasks memory --episodes 100
    engram train --dataset data/memory --out outputs/traces --memory examples.sequence_memory:Traces --window 64
    engram eval outputs/traces/policy --tasks memory
    engram up sim policy:=outputs/traces/policy task:=take_it_back
"""

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory import Moments, SequenceMemory, State

HALF_LIFE_STEPS = (5.0, 20.0, 80.0, 320.0)
"""Control steps of 0.1 s after which half of what a trace held is forgotten."""


class Traces(SequenceMemory):
    """Running averages of what each control step left behind."""

    CONTENT = ("traces",)
    """The tensors of the state that hold what was seen: ablations spoil these."""

    def __init__(self, feature: int, dim: int) -> None:
        """Make one for features of length ``feature`` and readings of length ``dim``."""
        super().__init__()
        self.enter = nn.Linear(feature, dim)
        self.read_out = nn.Sequential(
            nn.Linear((len(HALF_LIFE_STEPS) + 1) * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)
        )
        self.register_buffer("kept", 0.5 ** (1.0 / torch.tensor(HALF_LIFE_STEPS))[:, None], persistent=False)

    def begin(self, batch: int) -> State:
        """Return the state of ``batch`` episodes that have seen nothing."""
        return {"traces": torch.zeros(batch, len(HALF_LIFE_STEPS), self.enter.out_features, device=self.device)}

    def write(self, state: State, moment: Moments) -> State:
        """Return the state after one control step."""
        new = self.enter(moment.feature)[:, None]  # (B, 1, d)
        return {"traces": self.kept * state["traces"] + (1.0 - self.kept) * new}

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Return what ``query`` (B, d) finds, (B, d)."""
        return self.read_out(torch.cat((state["traces"].flatten(1), query), dim=-1))
