"""Critics: which departures from what the policy does lead to success, told by networks that share no episode.

A few dozen episodes do not tell what an action is worth in every state: a network learns them by heart, and the action
that it likes best is the one at which it errs most. So a critic is a value of what is seen plus an advantage with few
numbers: linear in the departure of the next motion from the usual one, and in which way that leads (the compatible
advantage of natural actor-critic, Peters and Schaal 2008; linear and quadratic as in NAF, Gu et al. 2016,
arXiv:1603.00748). It is learnt over several control steps at once, as they were executed (Q-chunking, Li et al. 2025,
arXiv:2507.07969). There is one for each part of the episodes. What one critic has learnt by chance the others have not:
a number counts by its mean and its standard error over them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.core.errors import InvalidInputError, WeightsError

MOTION = 3
"""Components of an action that translate the tool; the critics judge these alone."""
REACH, REACH_OF_MOTION = 0.05, 0.5
"""A departure of one, for an action that stands still; and what is added to it, as a share of the action's length. It
is what exploration draws."""


@dataclass(frozen=True)
class CriticConfig:
    """Size and training of the critics."""

    parts: int = 5
    """Of the episodes; one critic for each."""
    width: int = 64
    """Of each of the two hidden layers of a value."""
    components: int = 16
    """Principal components of what the action head is conditioned by, which the values see."""
    steps: int = 4
    """Control steps whose motions are judged at once; exploration holds a draw for as long."""
    discount: float = 0.98
    """Of a success, for each control step until then."""
    returns: float = 0.3
    """Weight of what came of the episode itself; the rest is what the critic expects from the step after these."""
    updates: int = 1500
    """AdamW updates of a fit, each of ``batch_size`` control steps; the learning rate falls to zero."""
    batch_size: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    dropout: float = 0.1
    surety: float = 2.5
    """Standard errors by which a number of the advantage has to differ from zero to count; the nearer it is to that,
    the less. By luck alone one number in fifteen does, with five parts."""
    curvature: float = 0.15
    """What a departure of one costs beside what it gains, in the units of a value."""
    takeover_cost: float = 0.0
    """What it costs that a person takes over, in the units of a value: a success is worth one. It is the outcome of
    what the policy did until then, whatever the person makes of the episode. 0: who drove tells critics nothing."""

    def __post_init__(self) -> None:
        for name, least in (("parts", 2), ("width", 1), ("components", 1), ("steps", 1), ("updates", 1)):
            if getattr(self, name) < least:
                raise InvalidInputError(f"CriticConfig.{name}: {getattr(self, name)}, expected {least} or more")
        for name in ("discount", "returns", "takeover_cost"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"CriticConfig.{name}: {getattr(self, name)}, expected 0..1")
        if not self.curvature > 0.0:
            raise InvalidInputError(f"CriticConfig.curvature: {self.curvature}, expected above 0")


@dataclass(frozen=True)
class Judged:
    """What critics learn from: n control steps of episodes."""

    seen: Tensor  # (n, c) what the action head was conditioned by
    way: Tensor  # (n, 3) which way the policy usually goes from there
    departure: Tensor  # (n, 3) of what was done from that
    known: Tensor  # (n,) 1.0: that can be told, 0.0: not; there it counts as none
    outcome: Tensor  # (n,) discounted success of the episode, or cost of a person's taking over, seen from there
    later: Tensor  # (n,) int64: the step after the motions that are judged; -1: the outcome has come by then
    part: Tensor  # (n,) int64: which critic learns from it


class Critics(nn.Module):
    """Values and advantages side by side, one of each for a part of the episodes; before a fit nothing is better."""

    mean: Tensor
    axes: Tensor

    def __init__(self, config: CriticConfig, inputs: int) -> None:
        super().__init__()
        self.config = config
        components = min(config.components, inputs)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("axes", torch.zeros(inputs, components))
        sizes = (components + MOTION, config.width, config.width, 1)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(config.parts, i, o) * i**-0.5) for i, o in itertools.pairwise(sizes)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(config.parts, 1, o)) for o in sizes[1:])
        self.linear = nn.Parameter(torch.zeros(config.parts, 1 + MOTION, MOTION))
        self.quadratic = nn.Parameter(torch.full((config.parts, MOTION), -4.0))

    def forward(self, seen: Tensor, way: Tensor, departure: Tensor) -> Tensor:
        """Return what each critic expects (m, n) of departures (n, 3), about -``takeover_cost``..1."""
        x = torch.cat((self.components(seen), way), dim=1).expand(self.config.parts, -1, -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < len(self.weights) - 1:
                x = F.dropout(F.silu(x), self.config.dropout, self.training)
        gain = torch.einsum("nk,mko,no->mn", _with_one(way), self.linear, departure)
        return x[..., 0] + gain - torch.einsum("mo,no->mn", F.softplus(self.quadratic), departure.square())

    def components(self, seen: Tensor) -> Tensor:
        """Return the principal components (n, p) of what is seen (n, c)."""
        return ((seen - self.mean) @ self.axes).clamp(-5.0, 5.0)

    @property
    def sure(self) -> Tensor:
        """What of the advantage (4, 3) the critics agree on: of a departure by itself, and along each way."""
        mean, error = self.linear.mean(0), self.linear.std(0) / self.config.parts**0.5
        kept = 1.0 - (self.config.surety * error / mean.abs().clamp(min=1e-12)).square()
        return (mean * kept.clamp(min=0.0)).detach()

    def gain(self, way: Tensor, departure: Tensor) -> Tensor:
        """Return by how much (n,) departures (n, 3) are surely better than none, what they cost counted."""
        return self.leads(way, departure) - self.config.curvature * departure.square().sum(1)

    def leads(self, way: Tensor, departure: Tensor) -> Tensor:
        """Return by how much (n,) departures (n, 3) lead to success, whatever they cost."""
        return torch.einsum("nk,ko,no->n", _with_one(way), self.sure, departure)

    def best(self, way: Tensor) -> Tensor:
        """Return the departure (n, 3), -1..1, that is surely better than none by most."""
        return torch.tanh(_with_one(way) @ self.sure / (2.0 * self.config.curvature))


def fit(config: CriticConfig, data: Judged) -> tuple[Critics, float]:
    """Return critics that learnt from ``data``, and their mean loss at the end; torch's generator draws.

    Raises:
        WeightsError: they are not finite.
    """
    critics = Critics(config, data.seen.shape[1])
    project(critics, data.seen)
    data = replace(data, departure=_unforeseen(critics, data))
    averaged = Critics(config, data.seen.shape[1])  # tells what comes later
    averaged.load_state_dict(critics.state_dict())
    averaged.eval().requires_grad_(False)
    advantage = [critics.linear, critics.quadratic]
    values = [*critics.weights, *critics.biases]
    groups = [{"params": values, "weight_decay": config.weight_decay}, {"params": advantage, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, config.learning_rate)
    loss_at_end = 0.0
    for update in range(config.updates):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (1.0 - update / config.updates)
        rows = torch.randint(len(data.seen), (config.batch_size,))
        loss = _loss(critics, averaged, data, rows)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, live in zip(averaged.parameters(), critics.parameters(), strict=True):
                mine.lerp_(live, 0.01)
        loss_at_end += (float(loss.detach()) - loss_at_end) / min(update + 1, 100)
    if not all(bool(one.isfinite().all()) for one in averaged.state_dict().values()):
        raise WeightsError("critics: not finite after a fit, which is left out")
    return averaged, loss_at_end


def _loss(critics: Critics, averaged: Critics, data: Judged, rows: Tensor) -> Tensor:
    """Return the error of each critic in those of ``rows`` (b,) that are of its part of the episodes."""
    config, later = critics.config, data.later[rows]
    with torch.no_grad():
        then = later.clamp(min=0)
        comes = averaged(data.seen[then], data.way[then], torch.zeros(len(rows), MOTION))
        comes = comes.clamp(-config.takeover_cost, 1.0)  # no outcome is worth less or more
        outcome = data.outcome[rows]
        mixed = config.returns * outcome + (1.0 - config.returns) * config.discount**config.steps * comes
        target = torch.where(later < 0, outcome, mixed)
    told = critics(data.seen[rows], data.way[rows], data.departure[rows])
    its = (data.part[rows] == torch.arange(config.parts)[:, None]).float()
    return ((told - target).square() * its).sum() / its.sum().clamp(min=1.0)


def _unforeseen(critics: Critics, data: Judged) -> Tensor:
    """Return what of each departure (n, 3) cannot be told from what is seen.

    Where all motions are executed shorter, say, the departure repeats the way; an advantage of it would be value.
    """
    ones = torch.ones(len(data.seen), 1)
    told = torch.cat((ones, data.way, critics.components(data.seen)), dim=1).double() * data.known[:, None]
    departure = data.departure.double() * data.known[:, None]
    # gelsd: PyTorch's default answers differently from call to call where a way is never gone (rank-deficient)
    return (departure - told @ torch.linalg.lstsq(told, departure, driver="gelsd").solution).float()


@torch.no_grad()
def project(critics: Critics, seen: Tensor) -> None:
    """Let ``critics`` see the principal components of ``seen`` (n, c), each with a variance of one."""
    critics.mean.copy_(seen.mean(0))
    _, sizes, axes = torch.linalg.svd(seen - critics.mean, full_matrices=False)
    kept = min(critics.axes.shape[1], len(sizes))
    spread = sizes[:kept] / len(seen) ** 0.5
    critics.axes[:, :kept] = axes[:kept].T / spread.clamp(min=1e-4 * float(spread[0]) + 1e-9)


def way_of(usual: Tensor) -> Tensor:
    """Return which way (n, 3) the motions of actions (n, s, a) lead on average, -2..2: a long one is about two."""
    return (usual[..., :MOTION] / reach(usual)).mean(1)


def departure_of(actions: Tensor, usual: Tensor) -> Tensor:
    """Return by how much (n, 3) the motions of ``actions`` (n, s, a) depart on average from ``usual`` (n, s, a)."""
    return ((actions - usual)[..., :MOTION] / reach(usual)).mean(1).clamp(-3.0, 3.0)


def reach(actions: Tensor) -> Tensor:
    """Return what a departure of one is (n, s, 1) for ``actions`` (n, s, a)."""
    return REACH + REACH_OF_MOTION * actions[..., :MOTION].norm(dim=-1, keepdim=True)


def _with_one(way: Tensor) -> Tensor:
    return torch.cat((torch.ones(len(way), 1), way), dim=1)
