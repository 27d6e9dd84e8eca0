"""What a policy could do before it began to practise, so that it does not unlearn it.

Who practises one kind of goal alone unlearns the others: nothing in the experience asks for them. So an update also
shows the pictures of the experience with the words of other goals, and asks for the answer that the policy gave when
learning began. That takes no training data, only the instructions that the policy was trained on (learning without
forgetting, Li and Hoiem 2016, with instructions in the place of classes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.learning.replay.buffer import Batch
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

    def batch(self, practised: Batch) -> Mapping[str, Any] | None:
        """Return as many samples as ``practised`` has, as the network takes them; None if it practises every kind.

        Each kind of goal that ``practised`` has not is drawn as often as any other, by torch's global generator. A kind
        that is practised so seldom that a batch lacks it is rehearsed in that update.
        """
        done = {kind_of(words) for words in practised["task"]}
        kinds = [kind for kind in sorted(self._words) if kind not in done]
        if not kinds:
            return None
        draws = torch.rand(len(practised["task"]), 2).tolist()
        asked = {name: value for name, value in practised.items() if name not in ("action", UNLEARNT_KEY)}
        asked["task"] = [_at(self._words[_at(kinds, kind)], words) for kind, words in draws]
        inputs = dict(self._preprocess(to_tensors(asked)))
        noise = torch.randn((len(draws), *self._before.model.noise_shape))
        return inputs | {"action": self._before.predict_action_chunk(inputs, noise=noise)}


def to_tensors(batch: Batch) -> dict[str, Any]:
    """Return ``batch`` with torch tensors in place of arrays."""
    return {k: v if isinstance(v, list) else torch.from_numpy(v) for k, v in batch.items()}


def _at(things: Sequence[str], share: float) -> str:
    """Return the thing that is ``share``, 0 to below 1, of the way along."""
    return things[int(share * len(things))]
