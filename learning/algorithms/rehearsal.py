"""What a policy could do before it began to practise, so that it does not unlearn it.

Who practises one kind of goal alone unlearns the others: nothing in the experience asks for them. So an update also
asks for the answers that the policy gave to other goals when learning began (learning without forgetting, Li and Hoiem
2016, with instructions in the place of classes). It shows what the policy saw when it carried them out, where somebody
let it (:class:`Scenes`), and the pictures of the experience where nobody did: then the words alone are of other goals.
No training data is needed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from engram.core.chunk_rows import UNLEARNT_KEY
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, StoreError
from engram.core.types import Transition
from engram.learning.replay.buffer import IMAGES, Batch
from engram.learning.rewards.goal import kind_of
from engram.policies.lerobot.network_policy import NetworkPolicy


@dataclass(frozen=True)
class Scenes:
    """What a policy saw while it carried out goals: n control steps."""

    images: Mapping[str, np.ndarray]  # camera -> (n, 3, H, W) uint8
    state: np.ndarray  # (n, s) float32
    words: tuple[str, ...]  # of the goals (n,)

    def shrunk(self, shrink: Callable[[str, np.ndarray], np.ndarray]) -> Scenes:
        """Return them with the images that ``shrink`` (feature, images) makes of theirs."""
        return replace(self, images={name: shrink(IMAGES + name, seen) for name, seen in self.images.items()})

    @classmethod
    def of(cls, episodes: Iterable[Sequence[Transition]]) -> Scenes | None:
        """Return what was seen in ``episodes``; None where there is none."""
        steps = [step for episode in episodes for step in episode]
        if not steps:
            return None
        images = {name: np.stack([step.images[name] for step in steps]) for name in sorted(steps[0].images)}
        images = {name: np.ascontiguousarray(each.transpose(0, 3, 1, 2)) for name, each in images.items()}
        state = np.stack([step.state for step in steps]).astype(np.float32)
        return cls(images, state, tuple(step.instruction for step in steps))

    def write(self, path: Path) -> None:
        """Write them to ``path`` as safetensors, in one move."""
        arrays = {f"image.{name}": seen for name, seen in self.images.items()} | {"state": self.state}
        write_atomic(path, save(arrays, metadata={"words": json.dumps(self.words)}))

    @classmethod
    def read(cls, path: Path) -> Scenes:
        """Return what :meth:`write` wrote; raises StoreError if it is damaged."""
        try:
            with safe_open(path, "numpy") as file:
                images = {name[6:]: file.get_tensor(name) for name in file.keys() if name.startswith("image.")}  # noqa: SIM118
                words = tuple(json.loads(file.metadata()["words"]))
                found = cls(images, file.get_tensor("state"), words)
        except (*DAMAGED, SafetensorError) as error:
            raise StoreError(f"{path}: cannot be read: {error}") from error
        if any(len(each) != len(words) for each in (found.state, *images.values())):
            raise StoreError(f"{path}: {len(words)} words, but other numbers of images or states")
        return found


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
        self._scenes: Scenes | None = None
        self._steps: dict[str, list[int]] = {}  # of the scenes, by the kind of goal

    def seeing(self, scenes: Scenes) -> Rehearsal:
        """Return one that shows what is in ``scenes``; this one stays as it is."""
        made = copy.copy(self)
        made._words = {kind: list(words) for kind, words in self._words.items()}
        made.see(scenes)
        return made

    def see(self, scenes: Scenes) -> None:
        """Show what is in ``scenes``, images as replay holds them, for the kinds of goals that they have."""
        self._scenes, self._steps = scenes, {}
        for step, words in enumerate(scenes.words):
            self._steps.setdefault(kind_of(words), []).append(step)
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
        if self._scenes is not None:
            shown = [(row, _at(self._steps[kind], at)) for row, (kind, at) in enumerate(draws) if kind in self._steps]
            asked = _with_scenes(asked, self._scenes, shown)
        return asked


def to_tensors(batch: Batch) -> dict[str, Any]:
    """Return ``batch`` with torch tensors in place of arrays."""
    return {k: v if isinstance(v, list) else torch.from_numpy(v) for k, v in batch.items()}


def _with_scenes(asked: Batch, scenes: Scenes, shown: Sequence[tuple[int, int]]) -> Batch:
    """Return ``asked`` with the steps of ``scenes`` in its rows: (row, step) each."""
    if not shown:
        return asked
    rows, steps = (list(each) for each in zip(*shown, strict=True))
    changed: Batch = {name: value if isinstance(value, list) else value.copy() for name, value in asked.items()}
    for name, seen in scenes.images.items():
        changed[IMAGES + name][rows] = seen[steps]
    changed["observation.state"][rows] = scenes.state[steps]
    for row, step in shown:
        changed["task"][row] = scenes.words[step]
    return changed


def _at[T](things: Sequence[T], share: float) -> T:
    """Return the thing that is ``share``, 0 to below 1, of the way along."""
    return things[int(share * len(things))]
