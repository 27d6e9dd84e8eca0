"""Behaviour cloning of a policy with a memory of its episode: over whole episodes, as in ``engram train``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.learning.algorithms.behavior_cloning import BehaviourCloning
from engram.learning.replay.buffer import IMAGES, Windows
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lerobot.processor_engram_vla import embed_instructions
from engram.policies.training.frames import Frames, same_views
from engram.policies.training.sequences import SequenceFeed, Window


class EpisodeCloning(BehaviourCloning):
    """A :class:`BehaviourCloning` whose updates walk through episodes; what they leave in memory is carried along.

    Tokens of ``memory/context`` are not in the experience: an update sees none.
    """

    whole_episodes = True
    policy: NetworkPolicy

    def _loss(self, batch: Windows) -> tuple[Tensor, Mapping[str, Any], dict[str, Tensor]]:
        config = self.policy.config
        frames = gather(batch, config.language_pieces)
        here: Any = _Here(window(batch))
        feed = SequenceFeed(frames, here, config.step_s, self._preprocess, foresight=self.config.foresight)
        feed.carried = self._carried or None
        loss = feed.loss(self.policy, torch.device("cpu"))
        assert feed.carried is not None
        return loss, {}, feed.carried


class _Here:
    """EpisodeStreams that stand at one window: which one comes next is for the learner to say."""

    def __init__(self, window: Window) -> None:
        self.window, self._window = window.rows.shape[1], window

    def next(self) -> Window:
        return self._window


def window(windows: Windows) -> Window:
    """Return ``windows`` by the rows of what :func:`gather` returns for them."""
    lengths = np.array([len(episode) for episode in windows.episodes])
    begins = np.cumsum(lengths) - lengths
    steps = windows.at[:, None] + np.arange(windows.steps)
    valid = steps < lengths[:, None]
    return Window(np.where(valid, begins[:, None] + steps, 0), valid, windows.at == 0, windows.at)


def gather(windows: Windows, pieces: int) -> Frames:
    """Return all steps of the episodes of ``windows``, stream after stream; ``pieces`` as in ``embed_instructions``."""
    episodes = windows.episodes
    lengths = [len(episode) for episode in episodes]
    stream = np.repeat(np.arange(len(episodes)), lengths)
    last = np.repeat(np.cumsum(lengths) - 1, lengths)
    cameras = episodes[0].images
    images = {IMAGES + name: np.concatenate([e.images[name] for e in episodes]) for name in cameras}
    words = tuple(episode.instruction for episode in episodes)
    return Frames(
        images=images,
        state=np.concatenate([episode.state for episode in episodes]),
        action=np.concatenate([episode.action for episode in episodes]),
        last=last,
        words=stream,
        group=np.zeros(len(stream), np.int64),
        view=same_views(list(images.values()), last),
        instructions=words,
        groups=("experience",),
        embeddings=embed_instructions(list(words), pieces).numpy(),
        idle=np.concatenate([episode.idle for episode in episodes]),
    )
