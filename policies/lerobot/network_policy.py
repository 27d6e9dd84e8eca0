"""LeRobot's interface around a network of ours: what ``lerobot-train`` and ``lerobot-eval`` call."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from engram.core.errors import InvalidInputError
from engram.policies.vla.contract import STATE_KEY, Percept, RememberingNetwork
from engram.policies.vla.flow import Guide
from engram.policies.vla.recurrent_state import RecurrentState


class NetworkPolicy(PreTrainedPolicy):
    """Base of the policies registered with LeRobot; batches are what their preprocessor returns."""

    config_class = PreTrainedConfig
    name = "network"
    config: Any

    def __init__(self, config: Any, model: RememberingNetwork) -> None:
        super().__init__(config)
        self.config = config
        self.model = model
        self.reset()

    def get_optim_params(self) -> list[dict[str, Any]]:
        """Return the parameters to optimise, as one group."""
        return [{"params": list(self.parameters())}]

    def reset(self) -> None:
        """Begin an episode: clear queued actions and memory, restart the sampling noise."""
        self._queue: deque[Tensor] = deque()
        self._memory = RecurrentState()
        self._step = 0
        self._generator = torch.Generator().manual_seed(self.config.sampling_seed)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Return the training loss and figures to log.

        Raises:
            InvalidInputError: the policy has a memory of its episode, which single frames cannot train.
        """
        if self.model.recall is not None:
            raise InvalidInputError(
                f"{self.name} with memory {self.config.memory!r} learns from steps in a row, not from shuffled frames: "
                "engram train --window"
            )
        loss = self.model.loss(batch)
        return loss, {"flow_loss": loss.item()}

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict[str, Tensor],
        noise: Tensor | None = None,
        percept: Percept | None = None,
        guide: Guide | None = None,
        **_: Any,
    ) -> Tensor:
        """Return normalised chunks (B, h, a). ``noise`` (B, *model.noise_shape) standard normal fixes the sample.
        ``percept`` is the encoded ``batch``, with memory read; without it, a policy with memory acts as one without.
        ``guide`` modifies the flow's velocities.
        """
        if self.training:  # walks all modules: a tenth of an answer
            self.eval()
        state = batch[STATE_KEY]
        if noise is None:
            noise = torch.randn((len(state), *self.model.noise_shape), generator=self._generator)
        return self.model.sample(batch, noise.to(state), percept, guide)

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the next normalised action (B, a); replan when the executed rows are used up. Every call is one
        control step, and a memory writes each of them.
        """
        percept = None
        if self.model.recall is not None:
            self.eval()
            percept = self._memory.percept(self.model, batch, self._step, self._step * self.config.step_s)
            self._step += 1
        if not self._queue:
            chunk = self.predict_action_chunk(batch, percept=percept, **kwargs)
            self._queue.extend(chunk[:, : self.config.n_action_steps].unbind(1))
        return self._queue.popleft()
