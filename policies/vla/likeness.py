"""What something looked like, remembered and found again: colours of image cells, compared with colours of cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ASPECTS, ASPECT_WIDTH = 4, 4
"""So many ways to be alike, of so many numbers each; with more it carries over to new colours later."""
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
    """Compares what is shown with what was shown, cell by cell, in one space for both.

    Attention over picture tokens can do this, too, but has to learn to: two hundred demonstrations of touching the cube
    of the colour that was shown before it learns by heart, while a map of similarities carries over to cubes in colours
    that no demonstration had (one embedding for both sides: Vinyals et al., "Matching Networks", 2016).
    """

    def __init__(self, dim: int) -> None:
        """What to look for is learned from readings of width ``dim``; 0 = the memory keeps color tokens as they are."""
        super().__init__()
        self.look = nn.Sequential(nn.Linear(3, HIDDEN), nn.ReLU())
        self.salience, self.bend = nn.Linear(HIDDEN, ASPECTS), nn.Linear(HIDDEN, COLOR_TOKENS)
        self.embed = nn.Linear(3, COLOR_TOKENS, bias=False)
        nn.init.normal_(self.embed.weight)
        nn.init.zeros_(self.bend.weight)  # to begin with, what differs in colour differs in looks
        nn.init.zeros_(self.bend.bias)
        self.want = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, COLOR_TOKENS)) if dim else None

    def color_tokens(self, colours: Tensor) -> Tensor:
        """Return what the salient of the cells (B, n, 3) look like (B, COLOR_TOKENS)."""
        seen = self.look(colours)
        chroma = (colours - colours.mean(-1, keepdim=True)).norm(dim=-1, keepdim=True)
        weight = (self.salience(seen) + STAND_OUT * chroma).softmax(1)  # (B, n, aspects)
        return torch.einsum("bna,bnaw->baw", weight, self._aspects(colours, seen)).flatten(1)

    def forward(self, reading: Tensor, color_tokens: Tensor, colours: Tensor) -> Tensor:
        """Return how much each cell looks like what was remembered, in every aspect (B, aspects * n).

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
