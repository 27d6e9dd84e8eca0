"""Learning from failures, too: critics judge what was done, and the action head learns answers that they like better.

What the policy sees stays as it is, so every episode is encoded once. Now and then critics are fitted to all episodes.
Then a rule (one file each) says what would have been better answers than those of the policy as it was, and some
hundred updates teach them to a copy of the action head. That ships, a whole head of the same architecture: nothing has
to travel beside the weights, and gate and registry treat it as any other.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.chunk_rows import chunk_rows, ends
from engram.core.errors import CannotTrainError, InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.algorithms.contract import Algorithm
from engram.learning.algorithms.critics import MOTION, CriticConfig, Critics, Judged, departure_of, fit, reach, way_of
from engram.learning.algorithms.distillation import flow_error
from engram.learning.algorithms.training_state import into_optimizer, of_optimizer, packed, under, unpacked
from engram.learning.replay.buffer import Episode
from engram.learning.rewards.goal import kind_of
from engram.learning.weights.manifest import compare_specs, tensor_specs
from engram.policies.vla.flow import integrate

KEPT_ROWS, KEPT_EVERY = 64, 5
"""Control steps at most in which other goals are kept, of an episode; of a policy with a memory in every fifth one."""
STRANGE = 1e4
"""What is seen is never as large; an episode with larger numbers is left out."""


@dataclass(frozen=True)
class ValueLearningConfig:
    """What the rules have in common."""

    critic: CriticConfig = field(default_factory=CriticConfig)
    first_fit: int = 20
    """Episodes before the critics are fitted first; as many of each outcome as there are critics are needed, too."""
    fit_every: int = 10
    """New episodes after which they are fitted anew."""
    answers: int = 8
    """Answers of the policy as it was, kept of each control step."""
    head_updates: int = 400
    """Updates of the action head after a fit, from the head of the policy as it was; then it ships."""
    batch_size: int = 256
    """Answers in each of them."""
    kept: float = 0.3
    """Share of these that are to other goals and stay as they are."""
    learning_rate: float = 1e-3
    """Of the first of them; it falls to zero in a half wave."""
    rule_learning_rate: float = 1e-3
    """Of the network of the rule, if it has any."""

    def __post_init__(self) -> None:
        for name in ("first_fit", "fit_every", "answers", "head_updates", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"ValueLearningConfig.{name}: {getattr(self, name)}, expected 1 or more")
        if not 0.0 <= self.kept < 1.0:
            raise InvalidInputError(f"ValueLearningConfig.kept: {self.kept}, expected 0 to below 1")


@dataclass(frozen=True)
class Steps:
    """Control steps of episodes; answers and actions are normalised."""

    condition: Tensor  # (n, c) what the action head is conditioned by
    noise: Tensor  # (n, d, h, a) that the answers began with
    answer: Tensor  # (n, d, h, a) of the policy as it was
    action: Tensor  # (n, h, a) as executed from here on; rest after the end
    outcome: Tensor  # (n,) discounted success of the episode, or cost of a person's taking over, seen from here
    later: Tensor  # (n,) int64: the step after the motions that are judged at once; -1: the outcome came by then
    known: Tensor  # (n,) 1.0: the motions that are judged were all made, 0.0: the arm was held, or the outcome came

    def __len__(self) -> int:
        return len(self.condition)

    def at(self, rows: Tensor) -> Steps:
        """Return steps ``rows`` (b,)."""
        return Steps(**{name: value[rows] for name, value in vars(self).items()})

    @staticmethod
    def joined(parts: Sequence[Steps]) -> Steps:
        """Return the steps of several episodes, one after the other."""
        begins = np.cumsum([0, *(len(part) for part in parts)])
        later = [torch.where(p.later < 0, p.later, p.later + int(b)) for p, b in zip(parts, begins, strict=False)]
        names = [name for name in vars(parts[0]) if name != "later"]
        return Steps(**{name: torch.cat([vars(p)[name] for p in parts]) for name in names}, later=torch.cat(later))


@dataclass(frozen=True)
class Kept:
    """What the head is conditioned by in other goals, and the answers that it keeps giving there."""

    condition: Tensor  # (m, c)
    noise: Tensor  # (m, d, h, a) that the answers begin with
    answer: Tensor  # (m, d, h, a)

    def __len__(self) -> int:
        return len(self.condition)

    @staticmethod
    def joined(parts: Sequence[Kept]) -> Kept:
        """Return what is kept of several episodes."""
        return Kept(*(torch.cat([getattr(p, name) for p in parts]) for name in ("condition", "noise", "answer")))


class ValueLearning(Algorithm):
    """Fits critics to successes and failures, and trains the action head by what a rule makes of them.

    Args:
        cloning: of the policy: what it sees, its units, and in which other goals it keeps its answers.
        config: how.

    Raises:
        CannotTrainError: nothing tells the units of the policy's actions.
        InvalidInputError: its chunks are shorter than what the critics judge at once.
    """

    whole_replay = True
    learns_from_failures = True
    _taught: int | None  # updates of the head since the critics were fitted; None: there is nothing to teach
    _loss: float  # of the last one
    _fitted: frozenset[int]  # numbers of the episodes that the critics know
    _old: frozenset[int] | None  # of its own that another policy drove; None: all that there are at the next update
    _kinds: frozenset[str]  # of the goals that are practised
    _seen: dict[int, tuple[Steps, Kept]]  # by the episode's number
    _all: tuple[Steps, Kept] | None  # of all of these
    _optimizers: dict[str, torch.optim.Optimizer]

    def __init__(self, cloning: BehaviorCloning, config: ValueLearningConfig | None = None) -> None:
        if cloning.units is None:
            raise CannotTrainError(f"{type(self).__name__}: nothing tells the units of the policy's actions")
        self.config, self._cloning, self.units = config or ValueLearningConfig(), cloning, cloning.units
        self.lineage, self.chunk_steps, self.token_width = cloning.lineage, cloning.chunk_steps, cloning.token_width
        self.can_correct, self.whole_episodes = cloning.can_correct, cloning.whole_episodes
        self.model = cloning.network.model
        if self.config.critic.steps > self.model.noise_shape[0]:
            steps, horizon = self.config.critic.steps, self.model.noise_shape[0]
            raise InvalidInputError(f"CriticConfig.steps: {steps}, at most the {horizon} of the policy's chunks")
        self._restart()

    # -- what a rule says ----------------------------------------------------------------------------------------

    def make_rule(self) -> nn.Module:
        """Return the network of the rule; by default it has none."""
        return nn.Module()

    def rule_loss(self, steps: Steps, draw: Tensor) -> Tensor | None:
        """Return what the network of the rule learns by in ``steps``, whose answer is ``draw`` (n,); None: nothing."""
        return None

    @abstractmethod
    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return answers (n, h, a) that the head is to give in ``steps``, and how much each counts (n,).

        ``draw`` (n,) tells with which of their noises the head begins.
        """

    def learn(self, episodes: Sequence[Episode], new: frozenset[int]) -> dict[str, float]:
        """Learn from ``episodes`` what would have been better, and return figures; by default, fit critics anew.

        It is called now and then, before the head is taught. ``new`` are the numbers of those that are seen first.
        """
        self.critics, loss = fit(self.config.critic, self._judged(episodes, self._gathered(episodes)[0]))
        self.critics.requires_grad_(False)
        return {"critic_loss": loss}

    @property
    def knows_better(self) -> bool:
        """Whether there is anything to teach the head."""
        return bool(self.critics.sure.any())

    def edited(self, steps: Steps, draw: Tensor, edit: Tensor) -> Tensor:
        """Return each drawn answer (n, h, a), its motions all changed by ``edit`` (n, 3), relative to their lengths."""
        actions = self.units.actions(drawn(steps.answer, draw))
        motion = actions[..., :MOTION] + reach(actions) * edit[:, None]
        return self.units.answers(torch.cat((motion, actions[..., MOTION:]), dim=-1).clamp(-1.0, 1.0))

    def departure(self, answers: Tensor, steps: Steps) -> Tensor:
        """Return by how much (n, 3) normalised ``answers`` (n, h, a) depart from the usual ones in ``steps``."""
        return departure_of(self.units.actions(answers[:, : self.config.critic.steps]), self._usual(steps))

    def way(self, steps: Steps) -> Tensor:
        """Return which way (n, 3) the policy usually goes in ``steps``."""
        return way_of(self._usual(steps))

    # -- the contract --------------------------------------------------------------------------------------------

    def update(self, batch: Any, seed: int) -> Mapping[str, float]:
        """Train the head once on ``batch``, the episodes of the replay buffer; fit the critics before, if that is due.

        Raises:
            WeightsError: a loss is not finite; the weights to ship are as before.
        """
        torch.manual_seed(seed)
        figures: dict[str, float] = {}
        episodes = self._own(batch)
        try:
            if self._taught is None and not self.waits_for(episodes):
                known, self._fitted = self._fitted, frozenset(episode.number for episode in episodes)
                figures |= self.learn(episodes, self._fitted - known)
                self._begin_teaching()
            if self._taught is not None:
                figures |= self._teach(*self._gathered(episodes), self._taught)
        except WeightsError:  # it is not tried again before there is more experience
            self._taught = None
            raise
        return figures | {"loss": self._loss}

    def waits_for(self, episodes: Sequence[Episode]) -> str:
        """Return what is missing before the critics are fitted to ``episodes``; empty: nothing."""
        known = self._own(episodes)
        reached, least = sum(map(self._went_well, known)), self.config.critic.parts
        new = sum(episode.number not in self._fitted for episode in known)
        wanted = {
            "episodes": self.config.first_fit - len(known),
            "successes": least - reached,
            "failures": least - (len(known) - reached),
            "new episodes": (self.config.fit_every if self._fitted else 1) - new,
        }
        missing = [f"{count} more {what}" for what, count in wanted.items() if count > 0]
        return f"critics wait for {', '.join(missing)}" if missing else ""

    def forget_episodes(self) -> None:
        """Take episodes with numbers that are known for others; the head keeps what it was taught."""
        self._fitted, self._old, self._taught = frozenset(), frozenset(), None
        self._forget()

    def see(self, others: Sequence[Episode]) -> None:
        """Keep the answers that the policy gives in ``others``."""
        self._cloning.see(others)
        self._forget()

    def shrink(self, feature: str, images: np.ndarray) -> np.ndarray:
        """Return images (n, 3, H, W) uint8 as the policy downsamples them first."""
        return self._cloning.shrink(feature, images)

    def weights(self) -> bytes:
        """Return the policy with its improved head as a safetensors file."""
        return self._cloning.weights()

    def correct(
        self,
        shown: Sequence[tuple[Any, MotionCorrection]],
        seed: int,
        check: Callable[[], None] = lambda: None,
        others: Sequence[Episode] = (),
    ) -> Mapping[str, float]:
        """Make corrections part of the head, as behavior cloning does; what the rule had found stays part of it."""
        told = self._cloning.correct(shown, seed, check, others)
        self._restart()
        self._old = None
        return told

    def begin(self, weights: bytes) -> None:
        """Begin anew from ``weights``: they are the policy as it was, and episodes of before tell nothing of it."""
        self._cloning.begin(weights)
        self._restart()
        self._old = None

    def save(self) -> bytes:
        """Return all networks and optimisers as one safetensors block."""
        tensors = {f"{part}.{k}": v for part, net in self._networks().items() for k, v in net.state_dict().items()}
        for part, optimizer in self._optimizers.items():
            tensors |= of_optimizer(optimizer, f"optimizer.{part}.")
        about: dict[str, Any] = {"rule": type(self).__name__, "taught": self._taught, "loss": self._loss}
        about |= {"fitted": sorted(self._fitted), "old": None if self._old is None else sorted(self._old)}
        return packed(tensors, "value_learning", about | {"config": asdict(self.config)})

    def restore(self, state: bytes) -> None:
        """Go on from :meth:`save`; if it is damaged, or of another rule or network: WeightsError, nothing changes."""
        tensors, about = unpacked(state, "value_learning")
        if about["rule"] != type(self).__name__:
            raise WeightsError(f"training state of {about['rule']}, expected {type(self).__name__}")
        found, mine, networks = tensor_specs(state), tensor_specs(self.save()), self._networks()
        for part in networks:  # before anything is changed: PyTorch loads what fits, then raises
            compare_specs(under(found, f"{part}."), under(mine, f"{part}."), "training state of another network")
        for part, network in networks.items():
            network.load_state_dict(under(tensors, f"{part}."))
        for part, optimizer in self._optimizers.items():
            into_optimizer(optimizer, tensors, f"optimizer.{part}.")
        self._taught, self._loss, self._fitted = about["taught"], about["loss"], frozenset(about["fitted"])
        self._old = None if about["old"] is None else frozenset(about["old"])
        self._forget()

    # -- networks ------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        """Take the policy as it ships for what it was; nothing is known of what would be better."""
        torch.manual_seed(0)
        self._taught, self._loss, self._fitted, self._old = None, 0.0, frozenset(), frozenset()
        self._forget()
        self.before = copy.deepcopy(self.model.head).eval().requires_grad_(False)
        self._head = copy.deepcopy(self.model.head).train().requires_grad_(True)
        self.critics = Critics(self.config.critic, self.model.condition_size).eval().requires_grad_(False)
        self.rule = self.make_rule()
        self._optimizers = {"head": torch.optim.AdamW(self._head.parameters(), weight_decay=0.0)}
        if found := list(self.rule.parameters()):
            self._optimizers["rule"] = torch.optim.AdamW(found, self.config.rule_learning_rate, weight_decay=0.0)

    def _networks(self) -> dict[str, nn.Module]:
        return {
            "policy": self._cloning.network,
            "before": self.before,
            "head": self._head,
            "critics": self.critics,
            "rule": self.rule,
        }

    def _forget(self) -> None:
        """Encode what was seen anew."""
        self._seen, self._all, self._kinds = {}, None, frozenset()

    # -- what was seen -------------------------------------------------------------------------------------------

    def _own(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Return those of ``episodes`` that tell of the policy as it was, and those of earlier experiments."""
        if self._old is None:
            self._old = frozenset(episode.number for episode in episodes if not episode.earlier)
        return [episode for episode in episodes if episode.number not in self._old]

    def _gathered(self, episodes: Sequence[Episode]) -> tuple[Steps, Kept]:
        """Return all steps of ``episodes``, and what is kept of other goals; each episode is encoded once."""
        if (kinds := frozenset(kind_of(episode.instruction) for episode in episodes)) != self._kinds:
            self._forget()
            self._kinds = kinds
        if self._all is None or self._seen.keys() != {episode.number for episode in episodes}:
            self._seen = {e.number: self._seen.get(e.number) or self._encoded(e) for e in episodes}
            steps, kept = zip(*self._seen.values(), strict=True)
            self._all = Steps.joined(steps), Kept.joined(kept)
        return self._all

    def _encoded(self, episode: Episode) -> tuple[Steps, Kept]:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(episode.number)  # it comes out alike in a process that went on from a saved state
            steps, kept = self._steps(episode), self._kept(episode)
            if bool(steps.condition.isfinite().all()) and float(steps.condition.abs().max()) < STRANGE:
                return steps, kept
            nothing = Kept(*(part[:0] for part in vars(kept).values()))  # that cannot have been seen
            return steps.at(torch.arange(0)), nothing

    def _kept(self, episode: Episode) -> Kept:
        """Return some other goals in ``episode``; a policy with a memory goes through it whole for each, so seldom."""
        seldom = self.whole_episodes and episode.number % KEPT_EVERY
        condition = torch.zeros(0, self.model.condition_size)
        if not seldom:
            condition = self._cloning.rehearsed(episode, self._kinds)
        condition = condition[torch.randperm(len(condition))[:KEPT_ROWS]]
        return Kept(condition, *self._answered(condition))

    def _steps(self, episode: Episode) -> Steps:
        n, config = len(episode), self.config.critic
        condition = self._cloning.conditions(episode)
        noise, answer = self._answered(condition)
        end, worth = self._outcomes(episode)
        last, idle = np.full(n, n - 1), episode.held if config.takeover_cost else episode.unlearnt
        horizon = self.model.noise_shape[0]
        rows, left = chunk_rows(episode.action, idle, last, ends(idle, last), np.arange(n), horizon)
        at, until = torch.arange(n), torch.from_numpy(end)
        left, whole = left[:, : config.steps], np.arange(n) + config.steps <= end
        whole &= ~(episode.person & (end < n))  # what a person did is not to blame for the next taking over
        return Steps(
            condition=condition,
            noise=noise,
            answer=answer,
            action=self.units.answers(torch.from_numpy(rows).clamp(-1.0, 1.0)),
            outcome=torch.from_numpy(worth).float() * config.discount ** (until - 1 - at).float(),
            later=torch.where(at + config.steps < until, at + config.steps, -1),
            known=torch.from_numpy(whole & ~left.any(axis=1)).float(),
        )

    def _outcomes(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        """Return for each step (n,) the step before which its outcome comes, and what that is worth (n,).

        That a person took over is an outcome where it costs something, and the only one of the steps before, as in RLIF
        (Luo et al. 2024, arXiv:2311.12996): no success that the person brings about is to the policy's credit, or
        critics would like what makes a person take over.
        """
        end = np.full(len(episode), len(episode))
        worth = np.full(len(episode), float(episode.success))
        if cost := self.config.critic.takeover_cost:
            for taken in episode.takeovers[::-1]:
                end[:taken], worth[:taken] = taken, -cost
        return end, worth

    def _went_well(self, episode: Episode) -> bool:
        """Tell whether ``episode`` was a success, and the policy's own where it costs something to take over."""
        return episode.success and not (self.config.critic.takeover_cost and len(episode.takeovers))

    @torch.no_grad()
    def _answered(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Return noises and the answers (n, d, h, a) that the policy as it was makes of them in ``condition``."""
        config = self.model.config
        noise = torch.randn(len(condition), self.config.answers, *self.model.noise_shape) * config.noise_scale
        parts = zip(condition.split(256), noise.split(256), strict=True)
        answers = [integrate(self.before.at_steps(seen, config.euler_steps), begin) for seen, begin in parts]
        return noise, torch.cat(answers) if answers else noise

    def _usual(self, steps: Steps) -> Tensor:
        """Return the first actions (n, s, a) of the policy as it was, on average."""
        return self.units.actions(steps.answer[:, :, : self.config.critic.steps].mean(1))

    # -- training ------------------------------------------------------------------------------------------------

    def _judged(self, episodes: Sequence[Episode], steps: Steps) -> Judged:
        """Return what the critics learn from; each has as many successes and failures as the others."""
        if not len(steps):
            raise WeightsError(f"{type(self).__name__}: nothing in {len(episodes)} episodes can have been seen so")
        part: list[int] = []
        dealt = {True: 0, False: 0}
        for episode in episodes:
            went_well = self._went_well(episode)
            part += [dealt[went_well] % self.config.critic.parts] * len(self._seen[episode.number][0])
            dealt[went_well] += 1
        departure = self.departure(steps.action, steps)
        told = self.way(steps), departure, steps.known
        return Judged(steps.condition, *told, steps.outcome, steps.later, torch.tensor(part))

    def _begin_teaching(self) -> None:
        """Begin with the head of the policy as it was; where nothing is known that is better, that ships at once."""
        self._head.load_state_dict(self.before.state_dict())
        self._optimizers["head"].state.clear()
        self._taught = 0
        if not self.knows_better:
            self._ship()

    def _teach(self, steps: Steps, kept: Kept, taught: int) -> dict[str, float]:
        figures, config = {}, self.config
        for group in self._optimizers["head"].param_groups:
            group["lr"] = config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * taught / config.head_updates))
        rest = round(config.kept * config.batch_size) if len(kept) else 0
        some = steps.at(torch.randint(len(steps), (config.batch_size - rest,)))
        draw = torch.randint(config.answers, (len(some),))
        if (loss := self.rule_loss(some, draw)) is not None:
            figures["rule_loss"] = self._step("rule", self.rule, loss)
        with torch.no_grad():
            answer, weight = self.better(some, draw)
        rows, which = torch.randint(max(1, len(kept)), (rest,)), torch.randint(config.answers, (rest,))
        condition = torch.cat((some.condition, kept.condition[rows]))
        noise = torch.cat((drawn(some.noise, draw), drawn(kept.noise[rows], which)))
        answer = torch.cat((answer, drawn(kept.answer[rows], which)))
        weight = torch.cat((weight, torch.ones(rest)))
        missed = flow_error(self._head, condition, noise, answer, self.model.config.euler_steps)
        self._loss = self._step("head", self._head, (missed * weight).sum() / weight.sum().clamp(min=1e-6))
        self._taught = taught + 1
        if self._taught >= config.head_updates:
            self._ship()
        return figures

    def _step(self, part: str, network: nn.Module, loss: Tensor) -> float:
        """Let ``network`` learn by ``loss``."""
        if not torch.isfinite(loss):
            raise WeightsError(f"{type(self).__name__}: loss {float(loss.detach())} of its {part}, skipped")
        self._optimizers[part].zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        self._optimizers[part].step()
        return float(loss.detach())

    def _ship(self) -> None:
        self.model.head.load_state_dict(self._head.state_dict())
        self._taught = None


def drawn(of: Tensor, draw: Tensor) -> Tensor:
    """Return (n, h, a): number ``draw`` (n,) of each row of ``of`` (n, d, h, a)."""
    return of[torch.arange(len(of)), draw]
