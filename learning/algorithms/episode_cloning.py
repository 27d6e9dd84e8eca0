"""Behavior cloning of a policy with a memory of its episode: over whole episodes, as in ``engram train``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.motion_correction import MotionCorrection
from engram.learning.replay.buffer import Episode, Windows, whole
from engram.learning.replay.episode_batches import gather, window
from engram.learning.rewards.goal import kind_of
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.training.sequences import SequenceFeed, Window
from engram.policies.vla.contract import STATE_KEY

_CPU = torch.device("cpu")


class EpisodeCloning(BehaviorCloning):
    """Walks through episodes window by window; what a window leaves in the memory is carried into the next.

    What it imitates it does not rehearse other goals beside. A correction of the motions becomes part of the action
    head alone, in what the head was conditioned by at the steps of whole episodes. There it keeps its answers to other
    goals: in the episodes of :meth:`see` or ``others``, else in the same episodes with other ``instructions``.
    """

    whole_episodes = True
    policy: NetworkPolicy

    def __init__(self, *args: Any, instructions: Sequence[str] = (), **kwargs: Any) -> None:
        """As :class:`BehaviorCloning`; ``instructions`` are those that the policy was trained on."""
        super().__init__(*args, **kwargs)
        self._instructions: dict[str, list[str]] = {}  # by the kind of goal
        for words in instructions:
            self._instructions.setdefault(kind_of(words), []).append(words)
        self._others: tuple[Episode, ...] = ()

    def see(self, others: Sequence[Episode]) -> None:
        """Keep, at a correction, the answers that the policy gave in ``others``."""
        self._others = tuple(others)

    def _loss(self, batch: Windows) -> tuple[Tensor, Mapping[str, Any], dict[str, Tensor]]:
        feed, _ = self._feed(batch)
        feed.carried = self._carried or None
        loss = feed.loss(self.policy, _CPU)
        assert feed.carried is not None
        return loss, {}, feed.carried

    def _feed(self, batch: Windows) -> tuple[SequenceFeed, Window]:
        config, here = self.policy.config, window(batch)
        frames, only = gather(batch, config.language_pieces), _OneWindow(here)
        feed = SequenceFeed(frames, only, config.step_s, self._preprocess, foresight=self.config.foresight)  # type: ignore[arg-type]
        return feed, here

    def _kinds(self, batch: Windows) -> set[str]:
        return {kind_of(episode.instruction) for episode in batch.episodes}

    def _asked(
        self,
        practised: Sequence[tuple[Windows, MotionCorrection]],
        others: Sequence[Episode],
        check: Callable[[], None],
    ) -> Iterator[Windows]:
        """Yield whole episodes of other goals; where none is known, the practised ones with the words of others."""
        if not self.config.rehearsal:
            return
        done = {kind for batch, _ in practised for kind in self._kinds(batch)}
        known = [one for one in others or self._others if kind_of(one.instruction) not in done]
        kinds = [kind for kind in sorted(self._instructions) if kind not in done]
        for batch, _ in practised if kinds and not known else ():
            for one in batch.episodes:
                words = self._instructions[kinds[int(torch.randint(len(kinds), ()))]]
                known.append(replace(one, instruction=words[int(torch.randint(len(words), ()))]))
        for one in known:
            check()
            yield whole(one)

    @torch.no_grad()
    def _condition(self, batch: Windows) -> Tensor:
        """Return what the head of the weights to ship is conditioned by (n, c) at the steps of whole episodes."""
        feed, here = self._feed(batch)
        rows, network = here.rows[here.valid], cast(EngramVLAPolicy, self._averaged)
        seen = dict(self._preprocess(feed.frames.done(rows, network.config.chunk_size)))
        percept = feed.perceive(network.model, rows, _CPU)
        reading = feed.read(network.model, percept, seen[STATE_KEY], here, np.arange(len(rows)))
        return network.model.condition(seen, replace(percept, reading=reading))


class _OneWindow:
    """Stands in for EpisodeStreams and always returns the same window: the learner says which one comes next."""

    def __init__(self, window: Window) -> None:
        self.window, self._window = window.rows.shape[1], window

    def next(self) -> Window:
        return self._window
