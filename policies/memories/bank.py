"""The perceptual-cognitive bank: every step's cognitive token, and the pictures of the steps where something happened.

After MemoryVLA (Shi et al., 2025): over capacity the most similar pair of neighbours in time becomes one entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.policies.memories.base import MomentCode, Moments, Reader, SequenceMemory, State

STILL = 1e-6
"""A change of the picture (1 - cosine) below this is none but for rounding."""

_NAMES = ("feature", "time_s", "place", "count")
"""Of the parts of :class:`Entries` in a state, which a training that goes on reads from disk."""


class Entries(NamedTuple):
    """k slots in order of time, packed to the right; an empty slot stands for 0 steps."""

    feature: Tensor  # (B, k, w)
    time_s: Tensor  # (B, k) s, the mean over the merged steps
    place: Tensor  # (B, k, 3), the mean
    steps: Tensor  # (B, k) that were merged

    @classmethod
    def empty(cls, batch: int, slots: int, width: int, device: torch.device) -> Entries:
        """Return empty slots."""
        return cls(*(torch.zeros(batch, slots, *end, device=device) for end in ((width,), (), (3,), ())))


def append(bank: Entries, moment: Moments) -> Entries:
    """Return ``bank`` with ``moment`` (B,) as its newest entry.

    When it is full, the two neighbours in time with the greatest cosine, the new entry among them, become their mean
    weighted by the steps behind each. Gradients pass through entries and means, not through the choice.
    """
    new = (moment.feature, moment.time_s, moment.place, torch.ones_like(moment.time_s))
    x = Entries(*(torch.cat((old, one[:, None]), dim=1) for old, one in zip(bank, new, strict=True)))
    known = x.feature.detach()
    alike = F.cosine_similarity(known[:, :-1], known[:, 1:], dim=-1)  # (B, k)
    full = bank.steps[:, 0] > 0
    # an empty first slot "merges" into its neighbour with weight 0, which leaves the neighbour as it is
    pair = torch.where(full, alike.argmax(1), 0)[:, None]
    older, newer = x.steps.gather(1, pair), x.steps.gather(1, pair + 1)
    share = older / (older + newer).clamp(min=1.0)  # (B, 1)
    slots = torch.arange(bank.steps.shape[1], device=pair.device)[None]
    kept, merged = slots + (slots >= pair), slots == pair

    def close_up(values: Tensor) -> Tensor:
        end = [1] * (values.ndim - 2)
        row = kept.view(*kept.shape, *end).expand(*kept.shape, *values.shape[2:])
        at = pair.view(*pair.shape, *end).expand(*pair.shape, *values.shape[2:])
        first, second = values.gather(1, at), values.gather(1, at + 1)
        mean = second + (first - second) * share.view(*share.shape, *end)
        return torch.where(merged.view(*merged.shape, *end), mean, values.gather(1, row))

    count = torch.where(merged, older + newer, x.steps.gather(1, kept))
    return Entries(close_up(x.feature), close_up(x.time_s), close_up(x.place), count)


def _append_where(event: Tensor, bank: Entries, moment: Moments) -> Entries:
    """Return ``bank`` with ``moment`` for the episodes of which ``event`` (B,) bool is true."""
    if event.device.type == "cpu" and not event.any():  # mostly; a GPU would have to be waited for
        return bank
    longer = append(bank, moment)
    return Entries(*(torch.where(event.view(-1, *[1] * (n.ndim - 1)), n, o) for n, o in zip(longer, bank, strict=True)))


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
    """Entries of the perceptual bank, written when something happened."""
    surprise: float = 4.0
    """An event: the picture has moved away from the last event's by more than this many usual steps."""
    looks: int = 0
    """So many numbers at the end of a feature are what was to be seen: kept with an event and read as they are."""


class LookBack(nn.Module):
    """Attention over events that returns what they looked like as it was written: no map lies between."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query, self.norm_entries = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ask, self.answer = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, query: Tensor, entries: Tensor, readable: Tensor, looks: Tensor) -> Tensor:
        """Return (B, w) for ``query`` (B, d), ``entries`` (B, k, d), ``readable`` (B, k) bool, ``looks`` (B, k, w)."""
        asked = self.ask(self.norm_query(query)).unflatten(-1, (self.heads, -1))
        score = torch.einsum(
            "bhe,bkhe->bkh", asked, self.answer(self.norm_entries(entries)).unflatten(-1, (self.heads, -1))
        )
        score = (score * asked.shape[-1] ** -0.5).masked_fill(~readable[..., None], -1e4)
        return torch.einsum("bkh,bkhw->bhw", score.softmax(1), looks.unflatten(-1, (self.heads, -1))).flatten(1)


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
        self.looks = config.looks
        self.look_back = LookBack(d, math.gcd(config.heads, config.looks)) if config.looks else None

    def begin(self, batch: int) -> State:
        """Return empty banks."""
        config, device = self.config, self.device
        detail = config.details * config.dim
        return {
            **_named("cognitive", Entries.empty(batch, config.steps, config.dim, device)),
            **_named("perceptual", Entries.empty(batch, config.events, detail + config.looks, device)),
            "previous": torch.zeros(batch, detail, device=device),  # perceptual tokens of the step before
            "change": torch.zeros(batch, device=device),  # mean change of a step, 1 - cosine
            "steps": torch.zeros(batch, device=device),
        }

    def write(self, state: State, moment: Moments) -> State:
        """Write the cognitive token, and the perceptual tokens if this step is an event."""
        detail = self.config.details * self.config.dim
        cognition, picture = moment.feature.split((self.config.dim, detail + self.looks), dim=-1)
        cognitive = append(_entries(state, "cognitive"), Moments(cognition, moment.time_s, moment.place))
        before, usual, seen = state["steps"], state["change"], picture[:, :detail].detach()
        old = _entries(state, "perceptual")
        drift = 1 - F.cosine_similarity(seen, old.feature[:, -1, :detail].detach(), dim=-1)
        event = (before == 0) | (drift > self.config.surprise * usual.clamp(min=STILL))
        change = 1 - F.cosine_similarity(seen, state["previous"], dim=-1)
        return {
            **_named("cognitive", cognitive),
            **_named("perceptual", _append_where(event, old, Moments(picture, moment.time_s, moment.place))),
            "previous": seen,
            "change": torch.where(before > 0, usual + (change - usual) / before.clamp(min=1), 0.0),
            "steps": before + 1,
        }

    def described(self, state: State) -> str:
        """Tell how many entries there are, and how long ago the oldest was written."""
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
        looks = perceptual.feature[..., -self.looks :]
        return torch.cat((reading, self.look_back(query, details.mean(2), perceptual.steps > 0, looks)), dim=-1)

    def _beside_the_usual(self, feature: Tensor, count: Tensor) -> Tensor:
        """Return (B, k, ..., 2 d): each feature, and how it differs from the mean of the bank, brought to unit size.

        Features of one scene lie close together: without this, what was different for a moment would be drowned.
        """
        there = (count > 0).to(feature.dtype).view(*count.shape, *[1] * (feature.ndim - 2))
        usual = (feature * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1.0)
        return torch.cat((feature, self.stand_out(feature - usual)), dim=-1)

    def _when_and_where(self, first: Entries, second: Entries, now: Moments) -> Tensor:
        """Return the codes (B, k, d) of the entries of two banks, one after the other."""
        time_s, place, count = (torch.cat(pair, dim=1) for pair in zip(first[1:], second[1:], strict=True))
        return self.code(time_s, count, place, now)


def _named(bank: str, entries: Entries) -> State:
    return {f"{bank}.{name}": tensor for name, tensor in zip(_NAMES, entries, strict=True)}


def _entries(state: State, bank: str) -> Entries:
    return Entries(*(state[f"{bank}.{name}"] for name in _NAMES))
