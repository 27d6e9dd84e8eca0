"""What a policy could do before it began to practise, so that it does not unlearn it.

Who practises one kind of goal alone unlearns the others: nothing in the experience asks for them. So an update also
asks for the answers that the policy gave to other goals when learning began (learning without forgetting, Li and Hoiem
2016, with instructions in the place of classes). It shows what the policy saw when it carried them out, where somebody
let it, and the pictures of the experience where nobody did: then the words alone are of other goals. No training data
is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.context_rows import MEMORY_KEYS, beside
from engram.learning.replay.buffer import Batch, Episode, shown
from engram.learning.rewards.goal import kind_of
from engram.policies.lerobot.network_policy import NetworkPolicy


class Rehearsal:
    """Batches of what ``before`` answers to ``instructions`` other than those that are practised.

    Args:
        before: the network as it was; it is never changed.
        preprocess: its preprocessor, for images as replay holds them.
        instructions: that it was trained on.
    """

    def __init__(self, before: NetworkPolicy, preprocess: Any, instructions: Sequence[str]) -> None:
        self._before, self._preprocess = before.eval().requires_grad_(False), preprocess
        self._words: dict[str, list[str]] = {}  # by the kind of goal
        for words in instructions:
            self._words.setdefault(kind_of(words), []).append(words)
        self._steps: dict[str, list[tuple[Episode, int]]] = {}  # of episodes that were seen, by the kind of goal

    def seeing(self, others: Sequence[Episode]) -> Rehearsal:
        """Return one that shows what is in ``others``; this one stays as it is."""
        made = copy.copy(self)
        made._words = {kind: list(words) for kind, words in self._words.items()}
        made.see(others)
        return made

    def see(self, others: Sequence[Episode]) -> None:
        """Show what is in ``others`` for the kinds of goals that they have."""
        self._steps = {}
        for episode in others:
            words = episode.instruction
            self._steps.setdefault(kind_of(words), []).extend((episode, step) for step in range(len(episode)))
            if words not in self._words.setdefault(kind_of(words), []):
                self._words[kind_of(words)].append(words)

    def batch(self, practised: Batch) -> Mapping[str, Any] | None:
        """Return what :meth:`asked` does, with the answers and as the network takes it.

        A kind of goal that is practised so seldom that a batch lacks it is rehearsed in that update.
        """
        asked = self.asked(practised, {kind_of(words) for words in practised["task"]})
        if asked is None:
            return None
        inputs = dict(self._preprocess(to_tensors(asked)))
        noise = torch.randn((len(asked["task"]), *self._before.model.noise_shape))
        return inputs | {"action": self._before.predict_action_chunk(inputs, noise=noise)}

    def asked(self, practised: Batch, done: Collection[str]) -> Batch | None:
        """Return as many samples as ``practised`` has, of goals of other kinds than ``done``; None if there is none.

        Each kind is drawn as often as any other, by torch's global generator.
        """
        kinds = [kind for kind in sorted(self._words) if kind not in done]
        if not kinds:
            return None
        draws = [(_at(kinds, kind), share) for kind, share in torch.rand(len(practised["task"]), 2).tolist()]
        asked = {name: value for name, value in practised.items() if name not in ("action", UNLEARNT_KEY)}
        asked["task"] = [_at(self._words[kind], share) for kind, share in draws]
        picks = {row: _at(self._steps[kind], at) for row, (kind, at) in enumerate(draws) if kind in self._steps}
        return _with_steps(asked, picks) if picks else asked


def to_tensors(batch: Batch) -> dict[str, Any]:
    """Return ``batch`` with torch tensors in place of arrays."""
    return {k: v if isinstance(v, list) else torch.from_numpy(v) for k, v in batch.items()}


def _with_steps(asked: Batch, picks: Mapping[int, tuple[Episode, int]]) -> Batch:
    """Return ``asked`` with steps of episodes in its rows."""
    rows, other = list(picks), shown(list(picks.values()))
    changed = {name: value.copy() for name, value in asked.items() if name not in MEMORY_KEYS}
    for name, value in other.items():
        if isinstance(value, list):
            for row, one in zip(rows, value, strict=True):
                changed[name][row] = one
        elif name not in MEMORY_KEYS:
            changed[name][rows] = value
    return changed | _tokens(asked, rows, other)


def _tokens(asked: Batch, rows: Sequence[int], other: Batch) -> Batch:
    """Return the tokens of memory/context of ``asked``, in its ``rows`` those of ``other``; none: no token."""
    known = [batch for batch in (asked, other) if MEMORY_KEYS[0] in batch]
    if not known:
        return {}

    def of(batch: Batch, count: int) -> dict[str, np.ndarray]:
        blank = {key: np.zeros((count, *known[0][key].shape[1:]), known[0][key].dtype) for key in MEMORY_KEYS}
        return {key: batch.get(key, blank[key]) for key in MEMORY_KEYS}

    count = len(asked["task"])
    order = np.arange(count)
    order[list(rows)] = count + np.arange(len(rows))
    both = beside(of(asked, count), of(other, len(rows)))
    return {key: value[order] for key, value in both.items()}


def _at[T](things: Sequence[T], share: float) -> T:
    """Return the thing that is ``share``, 0 to below 1, of the way along."""
    return things[int(share * len(things))]
