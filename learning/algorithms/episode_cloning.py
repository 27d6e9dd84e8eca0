"""Behavior cloning of a policy with a memory of its episode: over whole episodes, as in ``engram train``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.core.motion_correction import MotionCorrection
from engram.learning.algorithms.behavior_cloning import BehaviorCloning
from engram.learning.replay.buffer import Episode, Windows, whole
from engram.learning.replay.episode_batches import gather, window
from engram.learning.rewards.goal import kind_of
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.training.sequences import SequenceFeed, Window
from engram.policies.vla.contract import STATE_KEY

_CPU = torch.device("cpu")
SAID = 20
"""Most kinds of goals whose words are said over a practised episode, for want of one of their own. Words that no
relation says are a kind each: of these it is drawn which."""


class EpisodeCloning(BehaviorCloning):
    """Walks through episodes window by window; what a window leaves in the memory is carried into the next.

    What it imitates it does not rehearse other goals beside. A correction of the motions becomes part of the action
    head alone, in what the head was conditioned by at the steps of whole episodes. There it keeps its answers to other
    goals: in the episodes of :meth:`see` and ``others``; of a kind of goal that has none, in the practised episodes
    with its ``instructions``.
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
        return {kind_of(episode.task) for episode in batch.episodes}

    def _kept(
        self,
        practised: Sequence[tuple[Windows, MotionCorrection]],
        others: Sequence[Episode],
        check: Callable[[], None],
        done: Collection[str] = (),
    ) -> Tensor:
        """Return what the head is conditioned by in other goals, each kind as often as any other."""
        kinds: dict[str, list[Tensor]] = {}
        for batch in self._asked(practised, others, check, done):
            kinds.setdefault(" ".join(sorted(self._kinds(batch))), []).append(self._condition(batch))
        parts = [torch.cat(conditions) for conditions in kinds.values()]
        most = max(map(len, parts), default=0)
        even = [part[torch.randperm(most) % len(part)] for part in parts]
        return torch.cat(even) if even else torch.zeros(0, 0)

    def _asked(
        self,
        practised: Sequence[tuple[Windows, MotionCorrection]],
        others: Sequence[Episode],
        check: Callable[[], None],
        done: Collection[str] = (),
    ) -> Iterator[Windows]:
        """Yield whole episodes of other goals; of a kind of which none is known, a practised one with its words."""
        if not self.config.rehearsal:
            return
        shown = [episode for batch, _ in practised for episode in batch.episodes]
        known = [one for one in (*others, *self._others) if not any(_same_goal(one, each) for each in shown)]
        known = [one for one in known if kind_of(one.instruction) not in done]
        there = {kind_of(one.instruction) for one in (*shown, *known)}
        missing = sorted(self._instructions.keys() - there - set(done))
        if len(missing) > SAID:
            alone = [kind for kind in missing if kind in self._instructions[kind]]  # words that no relation says
            room = max(0, SAID - len(missing) + len(alone))
            drawn = {alone[at] for at in torch.randperm(len(alone)).tolist()[:room]}
            missing = [kind for kind in missing if kind in drawn or kind not in self._instructions[kind]]
        for kind in missing:
            words = self._instructions[kind]
            at, said = (int(torch.randint(len(each), ())) for each in (shown, words))
            known.append(replace(shown[at], task=words[said], instruction=words[said]))
        for one in known:
            check()
            yield whole(one)

    def _batch(self, episode: Episode) -> Windows:
        return whole(episode)

    def _pictures(self, episode: Episode) -> Windows:
        return whole(episode)

    @torch.no_grad()
    def _condition(self, batch: Windows) -> Tensor:
        """Return what the head of the weights to ship is conditioned by (n, c) at the steps of whole episodes."""
        feed, here = self._feed(batch)
        rows, network = here.rows[here.valid], self.network
        seen = dict(self._preprocess(feed.frames.done(rows, network.config.chunk_size)))
        percept = feed.perceive(network.model, rows, _CPU)
        reading = feed.read(network.model, percept, seen[STATE_KEY], here, np.arange(len(rows)))
        return network.model.condition(seen, replace(percept, reading=reading))


def _same_goal(one: Episode, other: Episode) -> bool:
    """Whether both are of the same task, or where one of them names none, want the same relation."""
    if one.task != one.instruction and other.task != other.instruction:
        return one.task == other.task
    return kind_of(one.instruction) == kind_of(other.instruction)


class _OneWindow:
    """Stands in for EpisodeStreams and always returns the same window: the learner says which one comes next."""

    def __init__(self, window: Window) -> None:
        self.window, self._window = window.rows.shape[1], window

    def next(self) -> Window:
        return self._window
