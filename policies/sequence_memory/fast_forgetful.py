"""Fast and Forgetful Memory (Morad et al., "Reinforcement Learning with Fast and Forgetful Memory", 2023).

Every step adds its feature to traces that decay and turn: S_t = gamma * S_{t-1} + x_t, one complex gamma =
exp(-alpha + i omega) for each of traces x contexts. Nothing in the recurrence depends on the state, so T steps are a
scan. The authors multiply by gamma^-t, which overflows; the scan here doubles its reach log2(T) times and only ever
multiplies by powers of gamma, below 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory.base import Moments, SequenceMemory, State


class FastForgetful(SequenceMemory):
    """Decaying, turning traces with gates at entry and exit."""

    CONTENT = ("real", "imaginary")

    def __init__(self, feature: int, dim: int, traces: int = 32, contexts: int = 4, longest: int = 1024) -> None:
        super().__init__()
        self.enter, self.enter_gate = nn.Linear(feature, traces), nn.Linear(feature, traces)
        self.mix = nn.Linear(2 * traces * contexts, dim)
        self.skip, self.leave_gate = nn.Linear(feature, dim), nn.Linear(feature, dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.read_out = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        # the paper's start: half-lives and periods spread up to the longest sequence one cares for
        self.decay = nn.Parameter(torch.linspace(1e-6, math.log(2) / 8, traces))
        self.turn = nn.Parameter(2 * math.pi / torch.linspace(8, longest, contexts))

    def begin(self, batch: int) -> State:
        """Return traces of zero."""
        shape = (batch, len(self.decay), len(self.turn))
        return {"real": torch.zeros(shape, device=self.device), "imaginary": torch.zeros(shape, device=self.device)}

    def write(self, state: State, moment: Moments) -> State:
        """Let the traces decay and turn, and add this step."""
        traces = self._gamma(1) * torch.complex(state["real"], state["imaginary"]) + self._enter(moment.feature)
        return {"real": traces.real, "imaginary": traces.imag}

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Read the traces, gated by the present feature."""
        return self._read(torch.complex(state["real"], state["imaginary"]), query, now.feature)

    def unroll(
        self, state: State, moments: Moments, queries: Tensor, asked: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Take T steps by a scan of log2(T) rounds (Hillis & Steele, 1986)."""
        x = self._enter(moments.feature).expand(-1, -1, -1, len(self.turn))
        before = self._gamma(1) * torch.complex(state["real"], state["imaginary"])
        x = torch.cat(((x[:, 0] + before)[:, None], x[:, 1:]), dim=1)
        reach = 1
        while reach < x.shape[1]:
            x = torch.cat((x[:, :reach], x[:, reach:] + self._gamma(reach) * x[:, :-reach]), dim=1)
            reach *= 2
        return self._read(x, queries, moments.feature), {"real": x[:, -1].real, "imaginary": x[:, -1].imag}

    def _gamma(self, steps: int) -> Tensor:
        """Return gamma ** steps (traces, contexts); it never grows."""
        decay = -self.decay.abs()[:, None] * steps
        return torch.polar(decay.exp().expand(-1, len(self.turn)), (self.turn * steps).expand(len(self.decay), -1))

    def _enter(self, feature: Tensor) -> Tensor:
        return (self.enter(feature) * torch.sigmoid(self.enter_gate(feature)))[..., None].to(torch.complex64)

    def _read(self, traces: Tensor, query: Tensor, feature: Tensor) -> Tensor:
        mixed = self.mix(torch.view_as_real(traces).flatten(-3))
        gate = torch.sigmoid(self.leave_gate(feature))
        read = self.norm(mixed) * gate + self.skip(feature) * (1 - gate)
        return self.read_out(torch.cat((read, query), dim=-1))
