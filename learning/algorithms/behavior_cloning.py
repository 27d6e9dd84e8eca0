"""Behavior cloning: imitate recorded actions. For any LeRobot policy: ``forward(batch)`` returns (loss, figures)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.errors import InvalidInputError, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import Lineage
from engram.learning.algorithms.contract import Algorithm
from engram.learning.algorithms.distillation import ActionUnits, distill_head
from engram.learning.algorithms.rehearsal import Rehearsal, to_tensors
from engram.learning.algorithms.training_state import contiguous, into_optimizer, of_optimizer, packed, under, unpacked
from engram.learning.replay.buffer import Episode, shown
from engram.learning.rewards.goal import kind_of
from engram.learning.weights.manifest import compare_specs, tensor_specs
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy

Preprocess = Callable[[dict[str, Any]], dict[str, Any]]
Shrink = Callable[[str, np.ndarray], np.ndarray]
"""(observation.images.<camera>, images (n, 3, H, W) uint8) -> images as small as the policy sees them."""


@dataclass(frozen=True)
class BehaviorCloningConfig:
    """AdamW with a constant learning rate; the weights that are shipped are a running average."""

    learning_rate: float = 3e-5
    """Step size. Constant, because online learning has no last step to decay towards. Larger steps unlearn more of what
    is not practised, and teach less (docs/decisions/0031-rehearsal.md)."""
    weight_decay: float = 1e-3
    """Weight decay of matrices; vectors are not decayed."""
    gradient_norm: float = 1.0
    """Gradients are clipped to this norm."""
    ema_decay: float = 0.99
    """Decay of the exponential moving average of the weights; the average is what is shipped."""
    foresight: float = 0.5
    """Only for a policy with a memory of its episode: weight of the auxiliary loss that predicts where the tool will
    be, as in ``engram train``."""
    rehearsal: float = 0.2
    """Share of the loss that keeps what the policy could do before, see :mod:`engram.learning.algorithms.rehearsal`;
    0: none."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.rehearsal < 1.0:
            raise InvalidInputError(f"BehaviorCloningConfig.rehearsal: {self.rehearsal}, expected 0 to below 1")


REHEARSED_EVERY = 4
"""Control steps from one picture of an episode to the next in which other goals are asked for."""


class BehaviorCloning(Algorithm):
    """Imitates single control steps.

    Images reach ``preprocess`` as uint8 (B, 3, H, W), as LeRobot's cached datasets hold them, with ``task`` beside.
    With a ``rehearsal`` the goals that are not practised keep their answers; with the ``units`` of its actions a
    correction of the motions can be made part of the weights.
    """

    def __init__(
        self,
        policy: nn.Module,
        preprocess: Preprocess,
        config: BehaviorCloningConfig | None = None,
        shrink: Shrink | None = None,
        *,
        lineage: Lineage,
        chunk_steps: int = 0,
        token_width: int = 0,
        rehearsal: Rehearsal | None = None,
        units: ActionUnits | None = None,
    ) -> None:
        self._rehearsal, self.units = rehearsal, units
        self.can_correct = units is not None
        self.lineage, self.chunk_steps, self.token_width = lineage, chunk_steps, token_width
        self.config = config or BehaviorCloningConfig()
        self.policy = policy.train()
        self._averaged = copy.deepcopy(policy).eval().requires_grad_(False)
        self._preprocess = preprocess
        self._shrink = shrink
        trained = [p for p in policy.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": self.config.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW([g for g in groups if g["params"]], self.config.learning_rate)
        self._steps = 0
        self._carried: dict[str, Tensor] = {}  # what an update leaves for the next beside the weights

    def update(self, batch: Any, seed: int) -> Mapping[str, float]:
        """Take one step; return ``loss``, the gradient's norm before clipping and the policy's own figures.

        Raises:
            WeightsError: the loss is not finite; weights and optimiser are as before.
        """
        torch.manual_seed(seed)
        loss, figures, carried = self._loss(batch)
        if not torch.isfinite(loss):
            raise WeightsError(f"behavior cloning: loss {float(loss.detach())} at update {self._steps}, skipped")
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.gradient_norm)
        self._optimizer.step()
        self._steps += 1
        self._carried = carried
        self._average()
        own = {k: float(v) for k, v in (figures or {}).items() if isinstance(v, int | float | Tensor)}
        return own | {"loss": float(loss.detach()), "gradient_norm": float(norm)}

    def correct(
        self,
        shown: Sequence[tuple[Any, MotionCorrection]],
        seed: int,
        check: Callable[[], None] = lambda: None,
        others: Sequence[Episode] = (),
    ) -> Mapping[str, float]:
        """Let the action head learn the answers that it gives, corrected, in what is shown.

        Each kind of goal counts as much as any other. Answers to the goals that a rehearsal asks for stay.
        """
        if self.units is None:
            return super().correct(shown, seed, check, others)
        torch.manual_seed(seed)
        units, network = self.units, cast(EngramVLAPolicy, self.policy)
        kept = self._kept(shown, others, check)
        parts: dict[tuple[str, MotionCorrection], list[Tensor]] = {}
        for batch, correction in shown:
            check()
            parts.setdefault((" ".join(sorted(self._kinds(batch))), correction), []).append(self._condition(batch))
        seen = [
            (torch.cat(conditions), partial(units.corrected, correction=correction))
            for (_, correction), conditions in parts.items()
        ]
        before = copy.deepcopy(self.policy.state_dict())
        self.policy.load_state_dict(self._averaged.state_dict())  # what drives, and was corrected
        try:
            loss = distill_head(network.model, seen, kept, check=check)
            if not math.isfinite(loss) or not all(bool(one.isfinite().all()) for one in network.parameters()):
                raise WeightsError(f"behavior cloning: loss {loss} of a correction, which is left out")
        except BaseException:
            self.policy.load_state_dict(before)
            raise
        self._optimizer.state.clear()
        self._averaged.load_state_dict(self.policy.state_dict())
        return {"loss": loss}

    def _kept(
        self,
        practised: Sequence[tuple[Any, MotionCorrection]],
        others: Sequence[Episode],
        check: Callable[[], None],
        done: Collection[str] = (),
    ) -> Tensor:
        """Return what the head is conditioned by (m, c) where its answers stay."""
        asked = [self._condition(batch) for batch in self._asked(practised, others, check, done)]
        return torch.cat(asked) if asked else torch.zeros(0, 0)

    def _asked(
        self,
        practised: Sequence[tuple[Any, MotionCorrection]],
        others: Sequence[Episode],
        check: Callable[[], None],
        done: Collection[str] = (),
    ) -> Iterator[Any]:
        """Yield as many samples of other goals as are practised; none where every kind of goal is, or ``done``."""
        if self._rehearsal is None:
            return
        done = {kind for batch, _ in practised for kind in self._kinds(batch)} | set(done)
        rehearsal = self._rehearsal.seeing(others) if others else self._rehearsal
        for batch, _ in practised:
            check()
            if (asked := rehearsal.asked(batch, done)) is not None:
                yield asked

    def _kinds(self, batch: Any) -> set[str]:
        """Return the kinds of goals in ``batch``."""
        return {kind_of(words) for words in batch["task"]}

    @property
    def network(self) -> EngramVLAPolicy:
        """The network whose weights are shipped."""
        return cast(EngramVLAPolicy, self._averaged)

    def conditions(self, episode: Episode) -> Tensor:
        """Return what the head of the weights to ship is conditioned by (n, c) at each step of ``episode``."""
        return self._condition(self._batch(episode))

    def rehearsed(self, episode: Episode, done: Collection[str] = ()) -> Tensor:
        """Return what that head is conditioned by (m, c) in goals of other kinds than ``episode`` and ``done``.

        They are asked for in pictures of ``episode``, or in what :meth:`see` was shown.
        """
        kept = self._kept([(self._pictures(episode), MotionCorrection())], (), lambda: None, done)
        return kept if len(kept) else torch.zeros(0, self.network.model.condition_size)

    def _batch(self, episode: Episode) -> Any:
        """Return all of ``episode``, without actions."""
        return shown([(episode, step) for step in range(len(episode))])

    def _pictures(self, episode: Episode) -> Any:
        """Return what of ``episode`` shows other goals well enough: some steps, without actions."""
        return shown([(episode, step) for step in range(0, len(episode), REHEARSED_EVERY)])

    @torch.no_grad()
    def _condition(self, batch: Any) -> Tensor:
        """Return what the head of the weights to ship is conditioned by (n, c) in ``batch``."""
        asked = {name: value for name, value in batch.items() if name not in ("action", UNLEARNT_KEY)}
        return self.network.model.condition(dict(self._preprocess(to_tensors(asked))))

    def weights(self) -> bytes:
        """Return the averaged weights as a safetensors file."""
        return save(contiguous(self._averaged.state_dict()))

    def see(self, others: Sequence[Episode]) -> None:
        """Rehearse other goals on what the policy saw when it carried them out."""
        if self._rehearsal is not None:
            self._rehearsal.see(others)

    def shrink(self, feature: str, images: np.ndarray) -> np.ndarray:
        """Return images (n, 3, H, W) uint8 as the policy downsamples them first; as they are without ``shrink``."""
        return self._shrink(feature, images) if self._shrink else super().shrink(feature, images)

    def save(self) -> bytes:
        """Return weights, averages, optimiser, step and carried tensors as one safetensors block."""
        tensors = {f"policy.{k}": v for k, v in self.policy.state_dict().items()}
        tensors |= {f"averaged.{k}": v for k, v in self._averaged.state_dict().items()}
        tensors |= of_optimizer(self._optimizer, "optimizer.")
        tensors |= {f"carried.{k}": v for k, v in self._carried.items()}
        return packed(tensors, "behavior_cloning", {"steps": self._steps, "config": asdict(self.config)})

    def restore(self, state: bytes) -> None:
        """Go on from :meth:`save`; if it is damaged or of another network: WeightsError, and nothing has changed."""
        tensors, about = unpacked(state, "behavior_cloning")
        found, network = tensor_specs(state), tensor_specs(self.weights())
        for prefix in ("policy.", "averaged."):  # before anything is changed: PyTorch loads what fits, then raises
            compare_specs(under(found, prefix), network, "training state of another network")
        self.policy.load_state_dict(under(tensors, "policy."))
        self._averaged.load_state_dict(under(tensors, "averaged."))
        into_optimizer(self._optimizer, tensors, "optimizer.")
        self._carried = under(tensors, "carried.")
        self._steps = int(about["steps"])

    def begin(self, weights: bytes) -> None:
        """Begin anew from ``weights``, with a fresh optimiser. Unless they fit: WeightsError, nothing has changed."""
        compare_specs(tensor_specs(weights), tensor_specs(self.weights()), "weights to begin with")
        for network in (self.policy, self._averaged):
            network.load_state_dict(load(weights))
        self._optimizer.state.clear()
        self._steps, self._carried = 0, {}

    def _loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Any], dict[str, Tensor]]:
        """Return the loss of ``batch``, the policy's own figures, and what the next update needs of this one."""
        loss, figures = self.policy(self._preprocess(to_tensors(batch)))
        old = self._rehearsal.batch(batch) if self._rehearsal is not None else None
        if old is not None:
            share = self.config.rehearsal
            loss = (1.0 - share) * loss + share * self.policy(old)[0]
        return loss, figures, {}

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.config.ema_decay, (1 + self._steps) / (10 + self._steps))
        for mine, live in zip(self._averaged.parameters(), self.policy.parameters(), strict=True):
            mine.lerp_(live, 1 - decay)
        for kept, newest in zip(self._averaged.buffers(), self.policy.buffers(), strict=True):
            kept.copy_(newest)
