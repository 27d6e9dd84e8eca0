"""The network's parts: language-modulated camera encoder, attention, memory read and flow head."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.policies.vla.flow import Velocity


class CameraEncoder(nn.Module):
    """An image and an instruction -> tokens and keypoints.

    Four convolutions, each modulated by the instruction (FiLM, Perez et al. 2018), so that what the camera looks for
    depends on the words. Keypoints are spatial-softmax expectations (Levine et al. 2016) on the map of stride 4.
    """

    def __init__(self, channels: tuple[int, ...], language: int, keypoints: int, tokens_side: int, dim: int) -> None:
        super().__init__()
        strides = (2, 2, 1, 2)
        inputs = (3, *channels[:-1])
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, 3, stride=s, padding=1) for i, o, s in zip(inputs, channels, strides, strict=True)
        )
        # every second layer: normalising all four costs a quarter of the training time and gained nothing
        self.norms = nn.ModuleList(nn.GroupNorm(8, c) if i % 2 else nn.Identity() for i, c in enumerate(channels))
        self.film = nn.Linear(language, 2 * sum(channels))
        self.channels = channels
        self.heat = nn.Conv2d(channels[2], keypoints, 1)
        self.tokens_side = tokens_side
        self.project = nn.Linear(channels[-1], dim)
        self.place = nn.Parameter(torch.randn(tokens_side**2, dim) * 0.02)

    def forward(self, image: Tensor, language: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (B, side^2, d) and keypoints (B, 2 K) in [-1, 1] for ``image`` (B, 3, H, W)."""
        scale, shift = self.film(language)[:, :, None, None].chunk(2, dim=1)
        scales, shifts = scale.split(self.channels, 1), shift.split(self.channels, 1)
        x, keypoints = image.contiguous(memory_format=torch.channels_last), None
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(torch.addcmul(shifts[i], norm(conv(x)), 1 + scales[i]))
            if i == 2:
                keypoints = spatial_softmax(self.heat(x))
        assert keypoints is not None
        pooled = F.adaptive_avg_pool2d(x, self.tokens_side).flatten(2).transpose(1, 2)
        return self.project(pooled) + self.place, keypoints


def spatial_softmax(heat: Tensor) -> Tensor:
    """Return the expected (x, y) of each map of ``heat`` (B, K, H, W) as (B, 2 K), image corners at -1 and 1."""
    b, k, h, w = heat.shape
    weight = heat.flatten(2).softmax(-1).view(b, k, h, w)
    x = (weight.sum(2) * torch.linspace(-1, 1, w, device=heat.device)).sum(-1)
    y = (weight.sum(3) * torch.linspace(-1, 1, h, device=heat.device)).sum(-1)
    return torch.cat((x, y), dim=1)


class Attention(nn.Module):
    """Multi-head attention of ``queries`` over ``entries``."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, queries: Tensor, entries: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, q, d); ``mask`` (B, k) bool, False = not to be read."""
        b, n, d = queries.shape
        q = self.query(queries).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.key_value(entries).view(b, entries.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        where = None if mask is None else mask[:, None, None, :]
        return self.out(F.scaled_dot_product_attention(q, k, v, where).transpose(1, 2).reshape(b, n, d))

    def one(self, query: Tensor, entries: Tensor, mask: Tensor) -> Tensor:
        """Return the same for a single query (B, d), as (B, d), without projecting every entry.

        (W_k x) q = x (W_k^T q), and the weighted mean of W_v x is W_v times the weighted mean: an entry costs 2 d h
        multiplications instead of 2 d^2. The keys' bias adds as much to every score of a head, and has no effect.
        """
        b, d = query.shape
        to_key, to_value = self.key_value.weight.view(2, self.heads, -1, d)
        q = self.query(query).view(b, self.heads, d // self.heads) * (d // self.heads) ** -0.5
        score = torch.einsum("bhe,hed->bhd", q, to_key) @ entries.transpose(1, 2)
        weight = score.masked_fill(~mask[:, None], float("-inf")).softmax(-1)  # (B, h, k)
        mean = torch.einsum("bhd,hed->bhe", weight @ entries, to_value).reshape(b, d)
        return self.out(mean + self.key_value.bias[d:])


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_ratio * dim), nn.ReLU(), nn.Linear(mlp_ratio * dim, dim))

    def forward(self, x: Tensor, kept: int | None = None) -> Tensor:
        """Return (B, kept, d): the first ``kept`` of the n tokens, the only queries while all tokens are keys; None
        = all."""
        y = self.norm1(x)
        x = x[:, :kept] + self.attention(y[:, :kept], y)
        return x + self.mlp(self.norm2(x))


class MemoryRead(nn.Module):
    """Gated cross-attention from the cognitive token to memory entries, with time and place encoding.

    Entries are scaled so that their components are about one, and positions are in decimetres. Unscaled, with
    components of 0.05, a policy did not learn in 4,000 steps which of three blocks is meant (decision 14).

    The gate starts at zero: a fresh network ignores memory. Without a readable entry the result is exactly the
    cognitive token, so that an empty memory and no memory are the same bits.
    """

    PLACE_UNIT_M = 0.1

    def __init__(self, dim: int, heads: int, memory_dim: int, ranks: int = 0, places: int = 0) -> None:
        """``ranks``: so many of the first entries, which fit the instruction best, are told from those behind them.

        ``places``: the positions of so many of the first are added as they are, beside what is attended to.
        """
        super().__init__()
        self.project = nn.Linear(memory_dim + 4, dim)  # entry, log age, place
        nn.init.uniform_(self.project.weight[:, memory_dim:], -0.5, 0.5)  # four numbers beside hundreds
        self.rank = nn.Parameter(torch.randn(ranks, dim)) if ranks else None
        self.norm = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.gate = nn.Parameter(torch.zeros(dim))
        self.places = places
        if places:
            self.where = nn.Linear(3 * places, dim, bias=False)
            nn.init.zeros_(self.where.weight)

    def forward(self, cognition: Tensor, tokens: Tensor, age_s: Tensor, place: Tensor, mask: Tensor) -> Tensor:
        """Return (B, d).

        Args:
            cognition: (B, d).
            tokens: (B, k, memory_dim).
            age_s: (B, k) s.
            place: (B, k, 3) m, base_link.
            mask: (B, k) bool, False = padding.
        """
        if tokens.shape[1] == 0:
            return cognition
        when = torch.log1p(age_s.clamp(min=0.0))[..., None]
        what, where = tokens * tokens.shape[-1] ** 0.5, place / self.PLACE_UNIT_M
        entries = self.project(torch.cat((what, when, where), dim=-1))
        if self.rank is not None:
            told = self.rank[: entries.shape[1]]
            entries = entries + F.pad(told, (0, 0, 0, entries.shape[1] - len(told)))
        readable = mask.any(dim=1, keepdim=True)
        read = self.attention(self.norm(cognition)[:, None], entries, mask | ~readable)[:, 0]
        told = cognition + torch.tanh(self.gate) * read
        if self.places:
            first = (where * mask[..., None])[:, : self.places]
            told = told + self.where(F.pad(first, (0, 0, 0, self.places - first.shape[1])).flatten(1))
        return torch.where(readable, told, cognition)


class FlowHead(nn.Module):
    """Velocity of the action chunk, conditioned by AdaLN (Peebles & Xie 2023) on context and flow time."""

    def __init__(self, horizon: int, action: int, condition: int, width: int, blocks: int) -> None:
        super().__init__()
        self.shape = (horizon, action)
        self.enter = nn.Linear(horizon * action, width)
        self.condition = nn.Sequential(nn.Linear(condition, width), nn.SiLU(), nn.Linear(width, width))
        self.time = nn.Linear(64, width)
        self.modulate = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(blocks)
        )
        self.leave = nn.Linear(width, horizon * action)
        for layer in self.modulate:  # a block begins as a plain residual MLP: a gate of 0 would cost the first epoch
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, time: Tensor, condition: Tensor) -> Tensor:
        """Return velocities (B, n, h, a) for points ``x`` (B, n, h, a), ``time`` (B, n), ``condition`` (B, c)."""
        return self._velocity(x, *self._modulation(time, condition))

    def at_steps(self, condition: Tensor, steps: int) -> list[Velocity]:
        """Return the velocities of ``condition`` (B, c) for :func:`integrate`: the i-th is that of time i / ``steps``,
        whatever time it is asked for.

        What depends on condition and time alone, a third of an evaluation, is worked out for all of them at once.
        """
        times = torch.arange(steps, dtype=condition.dtype, device=condition.device) / steps
        parts = self._modulation(times.expand(len(condition), -1), condition)
        return [self._velocity_under(of_time) for of_time in zip(*(p.split(1, dim=1) for p in parts), strict=True)]

    def _velocity_under(self, modulation: tuple[Tensor, ...]) -> Velocity:
        return lambda x, _: self._velocity(x, *modulation)

    def _modulation(self, time: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
        """Return what enters (B, n, w), then each block's scale, shift and gate (B, n, w)."""
        c = F.silu(self.condition(condition)[:, None] + self.time(fourier(time)))
        blocks = (modulate(c).chunk(3, dim=-1) for modulate in self.modulate)
        return c, *(part for scale, shift, gate in blocks for part in (1 + scale, shift, 1 + gate))

    def _velocity(self, x: Tensor, c: Tensor, *modulation: Tensor) -> Tensor:
        y = self.enter(x.flatten(-2)) + c
        for mlp, (scale, shift, gate) in zip(self.mlps, itertools.batched(modulation, 3), strict=True):
            y = y + gate * mlp(torch.addcmul(shift, self.norm(y), scale))
        return self.leave(self.norm(y)).unflatten(-1, self.shape)


def fourier(time: Tensor) -> Tensor:
    """Return 64 sine and cosine features (..., 64) of ``time`` (...) in [0, 1]."""
    frequency = torch.exp(torch.linspace(0.0, math.log(100.0), 32, device=time.device))
    angle = time[..., None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=-1)
