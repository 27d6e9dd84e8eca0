"""The perceptual-cognitive bank: the cognitive token of every step, and the image tokens of events.

After MemoryVLA (Shi et al., 2025): over capacity the most similar pair of neighbours in time becomes one entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.policies.sequence_memory.base import MomentCode, Moments, Reader, SequenceMemory, State, spread

STILL = 1e-6
"""A change of the image (1 - cosine) below this is rounding."""

PIECE = 32
"""Steps whose features are computed by one matrix product; more would cost more than it saves."""
_BANKS = ("cognitive", "perceptual")
_NAMES = ("feature", "time_s", "place", "count")
"""Of the parts of :class:`Entries` in a state, which a training that goes on reads from disk."""


class Entries(NamedTuple):
    """k slots in order of time, packed to the right; an empty slot stands for 0 steps."""

    feature: Tensor  # (..., k, w)
    time_s: Tensor  # (..., k) s, the mean over the merged steps
    place: Tensor  # (..., k, 3), the mean
    steps: Tensor  # (..., k) that were merged

    @classmethod
    def empty(cls, batch: int, slots: int, width: int, device: torch.device) -> Entries:
        """Return empty slots."""
        return cls(*(torch.zeros(batch, slots, *end, device=device) for end in ((width,), (), (3,), ())))

    @classmethod
    def of_rows(cls, rows: Tensor) -> Entries:
        """Return what :meth:`rows` put side by side."""
        return cls(rows[..., :-5], rows[..., -5], rows[..., -4:-1], rows[..., -1])

    def rows(self) -> Tensor:
        """Return all that is known of each slot side by side (..., k, w + 5), the steps last."""
        return torch.cat((self.feature, self.time_s[..., None], self.place, self.steps[..., None]), dim=-1)


def row_of(moment: Moments) -> Tensor:
    """Return ``moment`` (...) as a row of :meth:`Entries.rows`, of one step (..., w + 5)."""
    time_s = moment.time_s[..., None]
    return torch.cat((moment.feature, time_s, moment.place, torch.ones_like(time_s)), dim=-1)


def append(bank: Tensor, new: Tensor, compared: int) -> Tensor:
    """Return the rows ``bank`` (B, k, w + 5) with ``new`` (B, w + 5) as the newest.

    When it is full, the two neighbours in time with the greatest cosine of their first ``compared`` numbers, the new
    entry among them, become their mean weighted by the steps behind each. Gradients pass through entries and means, not
    through the choice.
    """
    b, k, width = bank.shape
    x = torch.cat((bank, new[:, None]), dim=1)
    known = x[..., :compared].detach()
    alike = F.cosine_similarity(known[:, :-1], known[:, 1:], dim=-1)  # (B, k)
    full = bank[:, 0, -1] > 0
    # an empty first slot "merges" into its neighbour with weight 0, which leaves the neighbour as it is
    pair = torch.where(full, alike.argmax(1), 0)
    slots = torch.arange(k, device=pair.device)
    flat, begin = x.flatten(0, 1), torch.arange(b, device=pair.device) * (k + 1)
    older, newer = flat[begin + pair], flat[begin + pair + 1]  # (B, w + 5)
    steps = older[:, -1:] + newer[:, -1:]
    mean = newer + (older - newer) * (older[:, -1:] / steps.clamp(min=1.0))
    kept = flat[(begin[:, None] + slots + (slots >= pair[:, None])).flatten()].view(b, k, width)
    merged = torch.cat((mean[:, :-1], steps), dim=1)
    return torch.where((slots == pair[:, None])[..., None], merged[:, None], kept)


def _append_where(event: Tensor, bank: Tensor, new: Tensor, compared: int) -> Tensor:
    """Return ``bank`` with ``new`` added in the episodes where ``event`` (B,) bool is true."""
    if event.device.type == "cpu" and not event.any():  # mostly; a GPU would have to be waited for
        return bank
    return torch.where(event[:, None, None], append(bank, new, compared), bank)


def _filled(bank: Entries) -> Entries:
    """Return ``bank`` without the slots on the left that are empty in every episode, on a CPU."""
    if bank.steps.device.type != "cpu":
        return bank
    empty = int((bank.steps == 0).all(0).sum())
    return Entries(*(tensor[:, empty:] for tensor in bank))


@dataclass(frozen=True)
class BankConfig:
    """Sizes of the bank."""

    dim: int
    """Width d of the cognitive token, of each perceptual token, of query and reading."""
    heads: int
    """Attention heads of the read."""
    details: int
    """Perceptual tokens of a step: its feature has (1 + details) * dim numbers, the cognitive token first."""
    steps: int = 64
    """Entries of the cognitive bank, written every control step."""
    events: int = 16
    """Entries of the perceptual bank, written at events."""
    surprise: float = 4.0
    """An event: the image differs from that of the last event by more than this many times the mean change per step."""
    color_tokens: int = 0
    """Length of the color tokens at the end of a feature. They are stored with an event and read unchanged."""


class LookBack(nn.Module):
    """Attention over events that returns their color tokens as they were written, without a learned projection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query, self.norm_entries = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ask, self.answer = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, query: Tensor, entries: Tensor, readable: Tensor, color_tokens: Tensor) -> Tensor:
        """Return (B, w) for ``query`` (B, d), ``entries`` (B, k, d), ``readable`` (B, k), color tokens (B, k, w)."""
        asked = self.ask(self.norm_query(query)).unflatten(-1, (self.heads, -1))
        score = torch.einsum(
            "bhe,bkhe->bkh", asked, self.answer(self.norm_entries(entries)).unflatten(-1, (self.heads, -1))
        )
        score = (score * asked.shape[-1] ** -0.5).masked_fill(~readable[..., None], -1e4)
        return torch.einsum("bkh,bkhw->bhw", score.softmax(1), color_tokens.unflatten(-1, (self.heads, -1))).flatten(1)


class Bank(SequenceMemory):
    """Cognitive and perceptual entries, read together by cross-attention with time and place encoding."""

    CONTENT = ("cognitive.feature", "perceptual.feature")

    def __init__(self, config: BankConfig) -> None:
        super().__init__()
        self.config = config
        d = config.dim
        self.cognitive, self.perceptual = nn.Linear(2 * d, d), nn.Linear(2 * d, d)
        self.stand_out = nn.LayerNorm(d, elementwise_affine=False)
        self.code = MomentCode(d)
        self.reader = Reader(d, config.heads)
        self.color_tokens = config.color_tokens
        self.look_back = LookBack(d, math.gcd(config.heads, config.color_tokens)) if config.color_tokens else None

    def begin(self, batch: int) -> State:
        """Return empty banks."""
        config, device = self.config, self.device
        detail = config.details * config.dim
        return {
            **_named("cognitive", Entries.empty(batch, config.steps, config.dim, device)),
            **_named("perceptual", Entries.empty(batch, config.events, detail + config.color_tokens, device)),
            "previous": torch.zeros(batch, detail, device=device),  # perceptual tokens of the step before
            "change": torch.zeros(batch, device=device),  # mean change of a step, 1 - cosine
            "steps": torch.zeros(batch, device=device),
        }

    def write(self, state: State, moment: Moments) -> State:
        """Write the cognitive token, and the perceptual tokens if this step is an event."""
        rows = {name: _entries(state, name).rows() for name in _BANKS}
        cognition, picture = self._split(moment)
        rows, rest = self._write(rows, state, row_of(cognition), row_of(picture))
        return {**_named("cognitive", rows["cognitive"]), **_named("perceptual", rows["perceptual"]), **rest}

    def unroll(
        self, state: State, moments: Moments, queries: Tensor, asked: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Write T steps and read after each.

        Which entries merge is found out without gradients, step by step. Every entry is a weighted mean of what the
        bank held and of the T steps: with the weights, the features of all steps' banks are one product, and so is
        their gradient.
        """
        if queries.shape[1] == 1:  # on the robot
            return super().unroll(state, moments, queries, asked)
        if queries.shape[1] > PIECE:
            return self._piecewise(state, moments, queries, asked)
        sources, rows, steps = {}, {}, {}
        for name, part in zip(_BANKS, self._split(moments), strict=True):
            rows[name], steps[name], sources[name] = _traced(_entries(state, name), part)
        states: dict[str, list[Tensor]] = {name: [] for name in _BANKS}
        rest = {name: state[name] for name in ("previous", "change", "steps")}
        with torch.no_grad():
            for step in range(queries.shape[1]):
                rows, rest = self._write(rows, rest, steps["cognitive"][:, step], steps["perceptual"][:, step])
                for name in _BANKS:
                    states[name].append(rows[name])
        each = torch.ones_like(moments.time_s, dtype=torch.bool) if asked is None else asked
        which, _ = torch.nonzero(each, as_tuple=True)
        whole: State = {}
        last: State = {}
        for name in _BANKS:
            source, kept = sources[name], torch.stack(states[name], dim=1)  # (B, T, k, ...)
            whole |= _named(name, _weighed(kept[each], None if source is None else source[which]))
            last |= _named(name, _to_the_bit(kept[:, -1], _weighed(kept[:, -1], source)))
        now = Moments(moments.feature[each], moments.time_s[each], moments.place[each])
        return spread(self.read(whole, queries[each], now), each), last | rest

    def _piecewise(self, state: State, moments: Moments, queries: Tensor, asked: Tensor | None) -> tuple[Tensor, State]:
        """Return what :meth:`unroll` does, so many steps at a time."""
        readings = []
        for begin in range(0, queries.shape[1], PIECE):
            at = slice(begin, begin + PIECE)
            seen = Moments(moments.feature[:, at], moments.time_s[:, at], moments.place[:, at])
            reading, state = self.unroll(state, seen, queries[:, at], None if asked is None else asked[:, at])
            readings.append(reading)
        return torch.cat(readings, dim=1), state

    def _split(self, moment: Moments) -> tuple[Moments, Moments]:
        """Return the cognitive token of ``moment``, and its perceptual tokens with the color tokens."""
        cognition, picture = moment.feature[..., : self.config.dim], moment.feature[..., self.config.dim :]
        return Moments(cognition, moment.time_s, moment.place), Moments(picture, moment.time_s, moment.place)

    def _write(
        self, rows: dict[str, Tensor], rest: State, cognition: Tensor, picture: Tensor
    ) -> tuple[dict[str, Tensor], State]:
        """Return the banks' rows, and what else is remembered, after the rows of one step."""
        detail = self.config.details * self.config.dim
        before, usual, seen = rest["steps"], rest["change"], picture[:, :detail].detach()
        drift = 1 - F.cosine_similarity(seen, rows["perceptual"][:, -1, :detail].detach(), dim=-1)
        event = (before == 0) | (drift > self.config.surprise * usual.clamp(min=STILL))
        change = 1 - F.cosine_similarity(seen, rest["previous"], dim=-1)
        after = {
            "cognitive": append(rows["cognitive"], cognition, self.config.dim),
            "perceptual": _append_where(event, rows["perceptual"], picture, detail + self.color_tokens),
        }
        return after, {
            "previous": seen,  # perceptual tokens of the step before
            "change": torch.where(before > 0, usual + (change - usual) / before.clamp(min=1), 0.0),
            "steps": before + 1,
        }

    def described(self, state: State) -> str:
        """Describe how many entries there are, and how long ago the oldest was written."""
        cognitive, perceptual = _entries(state, "cognitive"), _entries(state, "perceptual")
        filled = cognitive.steps[0] > 0
        age = float(cognitive.time_s[0, -1] - cognitive.time_s[0, filled].min()) if filled.any() else 0.0
        return f"{int(filled.sum())} moments, {int((perceptual.steps[0] > 0).sum())} events, the oldest {age:.1f} s ago"

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Attend to every entry of both banks."""
        cognitive, perceptual = _filled(_entries(state, "cognitive")), _filled(_entries(state, "perceptual"))
        when = self._when_and_where(cognitive, perceptual, now)
        thoughts = self.cognitive(self._beside_the_usual(cognitive.feature, cognitive.steps))
        thoughts = thoughts + when[:, : thoughts.shape[1]]
        pictures = perceptual.feature[..., : self.config.details * self.config.dim]
        pictures = pictures.unflatten(-1, (self.config.details, self.config.dim))
        details = self.perceptual(self._beside_the_usual(pictures, perceptual.steps))
        details = details + when[:, thoughts.shape[1] :, None]
        seen = (perceptual.steps > 0)[..., None].expand(*details.shape[:-1]).flatten(1)
        entries = torch.cat((thoughts, details.flatten(1, 2)), dim=1)
        reading = self.reader(query, entries, torch.cat((cognitive.steps > 0, seen), dim=1))
        if self.look_back is None:
            return reading
        color_tokens = perceptual.feature[..., -self.color_tokens :]
        return torch.cat((reading, self.look_back(query, details.mean(2), perceptual.steps > 0, color_tokens)), dim=-1)

    def _beside_the_usual(self, feature: Tensor, count: Tensor) -> Tensor:
        """Return (B, k, ..., 2 d): each feature, and how it differs from the mean of the bank, brought to unit size.

        Features of one scene lie close together. Without this, a brief difference is hard to find.
        """
        there = (count > 0).to(feature.dtype).view(*count.shape, *[1] * (feature.ndim - 2))
        usual = (feature * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1.0)
        return torch.cat((feature, self.stand_out(feature - usual)), dim=-1)

    def _when_and_where(self, first: Entries, second: Entries, now: Moments) -> Tensor:
        """Return the codes (B, k, d) of the entries of two banks, one after the other."""
        time_s, place, count = (torch.cat(pair, dim=1) for pair in zip(first[1:], second[1:], strict=True))
        return self.code(time_s, count, place, now)


def _traced(held: Entries, moments: Moments) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return rows of ``held`` (B, k, ...) and of ``moments`` (B, T, ...) without gradients, and the features (B, k + T,
    w) that those belong to.

    The rows know besides their features how much of each of the k + T there is in them; without need of a gradient
    they do not, and the features are None.
    """
    if not (held.feature.requires_grad or moments.feature.requires_grad):
        return held.rows(), row_of(moments), None
    (b, k), steps = held.steps.shape, moments.time_s.shape[1]
    own = torch.eye(k + steps, device=held.steps.device).expand(b, -1, -1)
    entries = held._replace(feature=torch.cat((held.feature.detach(), own[:, :k]), dim=-1))
    new = torch.cat((moments.feature.detach(), own[:, k:]), dim=-1)
    sources = torch.cat((held.feature, moments.feature), dim=1)
    return entries.rows(), row_of(Moments(new, moments.time_s, moments.place)), sources


def _weighed(rows: Tensor, sources: Tensor | None) -> Entries:
    """Return the entries of traced ``rows`` (n, k, ...), whose features are means of ``sources`` (n, s, w)."""
    entries = Entries.of_rows(rows)
    if sources is None:
        return entries
    return entries._replace(feature=entries.feature[..., sources.shape[-1] :] @ sources)


def _to_the_bit(rows: Tensor, weighed: Entries) -> Entries:
    """Return the entries ``weighed`` from traced ``rows``, with the features that writing step by step gives.

    While the arm is held, all steps are identical and a rounding error would otherwise decide which of them merge.
    """
    exact = rows[..., : weighed.feature.shape[-1]]
    return weighed._replace(feature=exact + (weighed.feature - weighed.feature.detach()))


def _named(bank: str, rows: Tensor | Entries) -> State:
    entries = Entries.of_rows(rows) if isinstance(rows, Tensor) else rows
    return {f"{bank}.{name}": tensor for name, tensor in zip(_NAMES, entries, strict=True)}


def _entries(state: State, bank: str) -> Entries:
    return Entries(*(state[f"{bank}.{name}"] for name in _NAMES))
