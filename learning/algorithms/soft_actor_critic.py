"""Soft actor-critic with prior data: an actor learns by how much to depart from what the policy usually does.

As RLPD (Ball et al. 2023, arXiv:2302.02948) makes SAC (Haarnoja et al. 2018, arXiv:1801.01290) learn from little: ten
critics with LayerNorm, targets from the lower of a random two, half of each batch from prior data, many updates for
each control step, nothing pretrained. The action is the departure of the next motions from the usual ones, so that the
policy as it was is the base and an actor that has learnt nothing leaves it as it is. The reward is a success, at its
step. In the targets entropy would pay for an episode that lasts longer; so it counts in the actor's loss alone.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

from engram.core.errors import InvalidInputError, WeightsError
from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.algorithms.critics import MOTION, Judged, project
from engram.learning.algorithms.value_learning import Steps, ValueLearning, ValueLearningConfig
from engram.learning.replay.buffer import Episode

NARROWEST, WIDEST = -5.0, 1.0
"""Logarithms of the standard deviation that the actor draws with, before tanh."""
BEGIN = -1.5
"""The first of it; the entropy is then about what is asked for."""


@dataclass(frozen=True)
class SoftActorCriticConfig:
    """What this rule adds; both networks have hidden layers of ``CriticConfig.width``, and its discount."""

    critics: int = 10
    """That learn side by side."""
    lowest_of: int = 2
    """Of them, drawn anew for each update, the lowest tells what comes later."""
    ratio: int = 5
    """Updates of the critics for each new control step: 20 for each 4 that are acted on at once."""
    most_updates: int = 20_000
    """Of the critics in one round, which nothing interrupts: as many as 4000 new control steps ask for."""
    actor_every: int = 5
    """Updates of the critics before one of the actor and the temperature."""
    batch_size: int = 256
    """Control steps in each of them."""
    averaged: float = 0.005
    """Share of the newest critics in the averages that tell what comes later."""
    temperature: float = 0.01
    """Worth of entropy in the units of a value, to begin with; it is learnt."""
    entropy: float = -MOTION / 2
    """To which the temperature leads the actor."""

    def __post_init__(self) -> None:
        for name in ("critics", "lowest_of", "ratio", "most_updates", "actor_every", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"SoftActorCriticConfig.{name}: {getattr(self, name)}, expected 1 or more")
        if self.lowest_of > self.critics:
            raise InvalidInputError(
                f"SoftActorCriticConfig.lowest_of: {self.lowest_of}, at most the {self.critics} of critics"
            )
        for name in ("averaged", "temperature"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise InvalidInputError(f"SoftActorCriticConfig.{name}: {getattr(self, name)}, expected above 0 to 1")


class Ensemble(nn.Module):
    """Critics side by side, with LayerNorm; before an update they expect nothing."""

    def __init__(self, members: int, inputs: int, width: int) -> None:
        super().__init__()
        sizes = list(itertools.pairwise((inputs, width, width)))
        first = [torch.randn(members, i, o) * i**-0.5 for i, o in sizes]
        self.weights = nn.ParameterList([*map(nn.Parameter, first), nn.Parameter(torch.zeros(members, width, 1))])
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(members, 1, o)) for o in (width, width, 1))

    def forward(self, state: Tensor, departure: Tensor, members: Tensor) -> Tensor:
        """Return what ``members`` (m,) expect (m, n) of ``departure`` (n, 3) in ``state`` (n, s)."""
        x = torch.cat((state, departure), dim=1).expand(len(members), -1, -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias[members], x, weight[members])
            if layer < len(self.weights) - 1:
                x = F.relu(F.layer_norm(x, x.shape[-1:]))
        return x[..., 0]


class Actor(nn.Module):
    """A Gaussian through tanh over departures, each number -1..1; it begins around none."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        last = nn.Linear(width, 2 * MOTION)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return departures (n, 3) drawn in ``state`` (n, s), and the logarithms of their probabilities (n,)."""
        middle, wide = self.layers(state).chunk(2, dim=1)
        normal = Normal(middle, (BEGIN + wide).clamp(NARROWEST, WIDEST).exp(), validate_args=False)
        x = normal.rsample()
        slope = 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))  # logarithm of what tanh makes of a step there
        return torch.tanh(x), (normal.log_prob(x) - slope).sum(1)

    def mean(self, state: Tensor) -> Tensor:
        """Return the departure (n, 3) in the middle."""
        return torch.tanh(self.layers(state)[:, :MOTION])


class SoftRule(nn.Module):
    """All that the rule learns."""

    foreseen: Tensor
    """Departure of the policy as it was (1 + s, 3), linear in 1 and the state: how what is executed differs anyhow."""

    def __init__(self, config: SoftActorCriticConfig, inputs: int, width: int) -> None:
        super().__init__()
        self.actor = Actor(inputs, width)
        self.critics = Ensemble(config.critics, inputs + MOTION, width)
        self.averaged = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(config.temperature)))
        self.register_buffer("foreseen", torch.zeros(1 + inputs, MOTION))


class SoftActorCritic(ValueLearning):
    """Gives the policy's answers, changed by the actor's mean.

    Args:
        cloning: of the policy.
        config: what all rules with critics have in common; ``critic`` without what its fit is about.
        soft: what this one adds.
    """

    rule: SoftRule

    def __init__(
        self,
        cloning: BehaviorCloning,
        config: ValueLearningConfig | None = None,
        soft: SoftActorCriticConfig | None = None,
    ) -> None:
        self.soft = soft or SoftActorCriticConfig()
        super().__init__(cloning, config)

    def make_rule(self) -> SoftRule:
        """Return actor, critics, their averages and the temperature."""
        return SoftRule(self.soft, self.critics.axes.shape[1] + MOTION, self.config.critic.width)

    @property
    def knows_better(self) -> bool:
        """True: the actor is never sure, and its mean ships as it is."""
        return True

    def learn(self, episodes: Sequence[Episode], new: frozenset[int]) -> dict[str, float]:
        """Go on learning from ``episodes``, the longer, the more steps there are in those with ``new`` numbers.

        Those of earlier experiments pay for no updates, and do not tell how motions are executed here, unless there are
        no others.
        """
        judged = self._judged(episodes, self._gathered(episodes)[0])
        seen = {number: steps for number, (steps, _) in self._seen.items()}
        own = [one for one in episodes if not one.earlier and len(seen[one.number])] or episodes
        if not self.critics.axes.any():
            self._foresee(self._judged(own, Steps.joined([seen[one.number] for one in own])))
        steps = sum(len(seen[one.number]) for one in own if one.number in new)
        return self.practise(judged, self._prior(episodes, new), min(self.soft.ratio * steps, self.soft.most_updates))

    def practise(self, data: Judged, prior: Tensor, updates: int) -> dict[str, float]:
        """Take ``updates`` updates on ``data``, half of each on ``prior`` (n,) bool where there is any; return figures.

        An episode ends with its outcome, a failure with nothing. Whether its time alone was over, so that something
        would have come of it later, is not recorded, nor what was seen after its last step.

        Raises:
            WeightsError: something was not finite; nothing has changed.
        """
        halves = [rows for rows in (prior.nonzero()[:, 0], (~prior).nonzero()[:, 0]) if len(rows)]
        before = copy.deepcopy((self.rule.state_dict(), self._optimizers["rule"].state_dict()))
        state, figures = self._state(data.seen, data.way), {"critic_loss": 0.0}
        departure = (data.departure - F.pad(state, (1, 0), value=1.0) @ self.rule.foreseen) * data.known[:, None]
        parts = [len(part) for part in torch.arange(self.soft.batch_size).tensor_split(len(halves))]
        try:
            for update in range(1, updates + 1):
                rows = torch.cat([h[torch.randint(len(h), (part,))] for h, part in zip(halves, parts, strict=True)])
                loss = self._critic_step(state, departure, data, rows)
                figures["critic_loss"] += (loss - figures["critic_loss"]) / min(update, 100)
                if update % self.soft.actor_every == 0:
                    figures["actor_loss"] = self._actor_step(state[rows])
            if not all(bool(one.isfinite().all()) for one in self.rule.state_dict().values()):
                raise WeightsError(f"{type(self).__name__}: not finite after {updates} updates, which are left out")
        except WeightsError:
            self.rule.load_state_dict(before[0])
            self._optimizers["rule"].load_state_dict(before[1])
            raise
        with torch.no_grad():
            figures["departure"] = float(self.rule.actor.mean(state).square().mean().sqrt())
        return figures | {"temperature": float(self.rule.log_temperature.detach().exp())}

    def departs(self, seen: Tensor, way: Tensor) -> Tensor:
        """Return the actor's mean (n, 3) where ``seen`` (n, c) is seen and the policy goes the ``way`` (n, 3)."""
        return self.rule.actor.mean(self._state(seen, way))

    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return each drawn answer, its motions changed by the actor's mean."""
        return self.edited(steps, draw, self.departs(steps.condition, self.way(steps))), torch.ones(len(draw))

    def _foresee(self, first: Judged) -> None:
        """Take from ``first``, where the policy as it was drove, what is seen from now on, and what departs anyhow.

        Where motions are executed shorter, say, all departures are far from none, which is where the actor begins.
        """
        project(self.critics, first.seen)
        told = F.pad(self._state(first.seen, first.way), (1, 0), value=1.0) * first.known[:, None]
        departed = first.departure * first.known[:, None]
        self.rule.foreseen.copy_(torch.linalg.lstsq(told.double(), departed.double(), driver="gelsd").solution)

    def _state(self, seen: Tensor, way: Tensor) -> Tensor:
        return torch.cat((self.critics.components(seen), way), dim=1)

    def _prior(self, episodes: Sequence[Episode], new: frozenset[int]) -> Tensor:
        """Return which steps (n,) of ``episodes`` are prior data: a person's, and those of successes of before.

        Those of earlier experiments are of before.
        """
        found = []
        for episode in episodes:
            known = self._went_well(episode) and (episode.earlier or episode.number not in new)
            found.append((episode.person | known)[: len(self._seen[episode.number][0])])
        return torch.from_numpy(np.concatenate(found))

    def _critic_step(self, state: Tensor, departure: Tensor, data: Judged, rows: Tensor) -> float:
        """Let the critics learn from ``rows`` (b,), and the averages follow; return the loss."""
        config, later, rule = self.config.critic, data.later[rows], self.rule
        with torch.no_grad():
            then = state[later.clamp(min=0)]
            drawn = torch.randperm(self.soft.critics)[: self.soft.lowest_of]
            comes = rule.averaged(then, rule.actor(then)[0], drawn).amin(0).clamp(-config.takeover_cost, 1.0)
            target = torch.where(later < 0, data.outcome[rows], config.discount**config.steps * comes)
        told = rule.critics(state[rows], departure[rows], torch.arange(self.soft.critics))
        loss = self._step("rule", rule, (told - target).square().mean(1).sum())
        with torch.no_grad():
            for mine, live in zip(rule.averaged.parameters(), rule.critics.parameters(), strict=True):
                mine.lerp_(live, self.soft.averaged)
        return loss

    def _actor_step(self, state: Tensor) -> float:
        """Let actor and temperature learn in ``state`` (b, s); return the loss."""
        rule, temperature = self.rule, self.rule.log_temperature.exp()
        departure, likely = rule.actor(state)
        rule.critics.requires_grad_(False)  # they judge here, and do not learn
        worth = rule.critics(state, departure, torch.arange(self.soft.critics)).mean(0)
        too_wide = (-likely.mean() - self.soft.entropy).detach()
        try:
            return self._step("rule", rule, (temperature.detach() * likely - worth).mean() + temperature * too_wide)
        finally:
            rule.critics.requires_grad_(True)
