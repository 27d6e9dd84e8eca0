"""Color tokens: colors of image cells, stored in memory and compared with the cells of later images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ASPECTS, ASPECT_WIDTH = 4, 4
"""Number of similarity measures, and length of each embedding. With more, generalisation to new colors takes longer."""
COLOR_TOKENS = ASPECTS * ASPECT_WIDTH
HIDDEN = 64
STAND_OUT = 4.0
"""How much more a cell counts, before anything is learned, for every standard deviation of colour in it: the table and
the robot are grey."""
SHARPNESS = 10.0
"""Scale of the similarities, from -1 to 1 without it."""


def cell_colours(images: Sequence[Tensor], side: int) -> Tensor:
    """Return the mean colours (B, cameras * side^2, 3) of the cells of ``images``, (B, 3, H, W) a camera."""
    return torch.cat([F.adaptive_avg_pool2d(image, side).flatten(2).transpose(1, 2) for image in images], dim=1)


class Likeness(nn.Module):
    """Compares the current image with remembered ones, cell by cell, in one embedding for both (Vinyals et al.,
    "Matching Networks", 2016). Attention over image tokens can learn this, too, but overfits: with two hundred
    demonstrations of touching the cube of the color shown before, it memorises them, while a similarity map generalises
    to colors without a demonstration.
    """

    def __init__(self, dim: int) -> None:
        """The query is learned from readings of width ``dim``; 0 = the memory keeps color tokens unchanged."""
        super().__init__()
        self.look = nn.Sequential(nn.Linear(3, HIDDEN), nn.ReLU())
        self.salience, self.bend = nn.Linear(HIDDEN, ASPECTS), nn.Linear(HIDDEN, COLOR_TOKENS)
        self.embed = nn.Linear(3, COLOR_TOKENS, bias=False)
        nn.init.normal_(self.embed.weight)
        nn.init.zeros_(self.bend.weight)  # initially, the embedding is the color itself
        nn.init.zeros_(self.bend.bias)
        self.want = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, COLOR_TOKENS)) if dim else None

    def color_tokens(self, colours: Tensor) -> Tensor:
        """Return the color tokens (B, COLOR_TOKENS) of the salient cells among (B, n, 3)."""
        seen = self.look(colours)
        chroma = (colours - colours.mean(-1, keepdim=True)).norm(dim=-1, keepdim=True)
        weight = (self.salience(seen) + STAND_OUT * chroma).softmax(1)  # (B, n, aspects)
        return torch.einsum("bna,bnaw->baw", weight, self._aspects(colours, seen)).flatten(1)

    def forward(self, reading: Tensor, color_tokens: Tensor, colours: Tensor) -> Tensor:
        """Return how similar each cell is to the remembered color tokens, by every measure (B, aspects * n).

        Args:
            reading: (B, d).
            color_tokens: (B, COLOR_TOKENS) as they were written; (B, 0) where the memory does not keep them.
            colours: (B, n, 3).
        """
        want = (color_tokens if self.want is None else self.want(reading)).unflatten(-1, (ASPECTS, ASPECT_WIDTH))
        here = self._aspects(colours, self.look(colours))
        return SHARPNESS * torch.einsum("baw,bnaw->ban", F.normalize(want, dim=-1), here).flatten(1)

    def _aspects(self, colours: Tensor, seen: Tensor) -> Tensor:
        """Return (B, n, aspects, width): of length 1 at most, and short for what looks like the average."""
        x = (self.embed(colours) + self.bend(seen)).unflatten(-1, (ASPECTS, ASPECT_WIDTH))
        return x / (1 + x.square().sum(-1, keepdim=True)).sqrt()
