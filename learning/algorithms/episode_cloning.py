"""Behavior cloning of a policy with a memory of its episode: over whole episodes, as in ``engram train``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.replay.buffer import Windows
from engram.learning.replay.episode_batches import gather, window
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.training.sequences import SequenceFeed, Window


class EpisodeCloning(BehaviorCloning):
    """Walks through episodes window by window; what a window leaves in the memory is carried into the next.

    Experience holds no tokens of ``memory/context``, so an update sees none.
    """

    whole_episodes = True
    policy: NetworkPolicy

    def _loss(self, batch: Windows) -> tuple[Tensor, Mapping[str, Any], dict[str, Tensor]]:
        config = self.policy.config
        frames = gather(batch, config.language_pieces)
        here: Any = _OneWindow(window(batch))
        feed = SequenceFeed(frames, here, config.step_s, self._preprocess, foresight=self.config.foresight)
        feed.carried = self._carried or None
        loss = feed.loss(self.policy, torch.device("cpu"))
        assert feed.carried is not None
        return loss, {}, feed.carried


class _OneWindow:
    """Stands in for EpisodeStreams and always returns the same window: the learner says which one comes next."""

    def __init__(self, window: Window) -> None:
        self.window, self._window = window.rows.shape[1], window

    def next(self) -> Window:
        return self._window
