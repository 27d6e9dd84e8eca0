"""Flow matching with straight paths: noise at time 0, action chunk at time 1.

Lipman et al., "Flow Matching for Generative Modeling" (2023); Liu et al., "Flow Straight and Fast" (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(points (..., h, a), times (...)) -> velocities (..., h, a)."""
Guide = Callable[[Velocity], Velocity]
"""Changes the flow's velocities while a chunk is sampled."""


def flow_matching_loss(
    velocity: Velocity, chunk: Tensor, noise: Tensor, time: Tensor, valid: Tensor | None = None
) -> Tensor:
    """Return the mean squared error of the predicted velocity along the straight path from noise to chunk.

    Args:
        velocity: the network.
        chunk: (..., h, a) actions, normalised.
        noise: (..., h, a) standard normal.
        time: (...) in [0, 1].
        valid: (..., h) bool, False for rows past the episode's end, which do not count; None = all count.
    """
    t = time[..., None, None]
    error = (velocity((1 - t) * noise + t * chunk, time) - (chunk - noise)).square()
    if valid is None:
        return error.mean()
    weight = valid[..., None].to(error.dtype).expand_as(error)
    return (error * weight).sum() / weight.sum().clamp(min=1.0)


def integrate(velocities: Sequence[Velocity], noise: Tensor) -> Tensor:
    """Return the chunk (..., h, a) that Euler steps lead to from ``noise`` (..., h, a); the i-th of n ``velocities`` is
    asked at time i / n alone."""
    x, steps = noise, len(velocities)
    for i, velocity in enumerate(velocities):
        time = torch.full(noise.shape[:-2], i / steps, dtype=noise.dtype, device=noise.device)
        x = x + velocity(x, time) / steps
    return x
