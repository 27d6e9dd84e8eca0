"""The state of the sequence memory during an episode, carried from step to step and over a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import InvalidInputError, unknown_name
from engram.policies.sequence_memory import Moments, SequenceMemory, State
from engram.policies.vla.contract import STATE_KEY, Percept, RememberingNetwork

ABLATIONS = ("", "zeroed", "swapped", "noise")
"""Ablations of the reading: none, an empty memory, the final memory of the previous episode, noise of the same
scale."""
NO_CONTEXT = "no_context"
"""The ablation of a policy that acts on memory/context: the tokens are withheld."""


def _size(content: Tensor) -> Tensor:
    """Return the standard deviation of what has been written; entries that are still empty are zeros throughout."""
    entries = content.reshape(-1, content.shape[-1])
    written = entries[(entries != 0).any(1)]
    return written.std() if written.numel() > 1 else entries.new_zeros(())


class RecurrentState:
    """State of ``model.recall`` for running episodes. Each control step is written once, however often it is passed
    in."""

    def __init__(self, ablation: str = "") -> None:
        """``ablation`` changes every reading; what is written stays intact."""
        if ablation not in ABLATIONS:
            raise unknown_name("ablation", ablation, ABLATIONS)
        self.ablation = ablation
        self._state: State | None = None
        self._written_ns: int | None = None
        self._seed = 0
        self._before: State | None = None

    def forget(self, seed: int = 0) -> None:
        """Begin an episode; ``seed`` fixes the noise of that ablation."""
        self._before, self._state, self._written_ns = self._state or self._before, None, None
        self._seed = seed

    def percept(self, model: RememberingNetwork, batch: dict[str, Tensor], stamp_ns: int, time_s: float) -> Percept:
        """Return the encoding of the control step at ``stamp_ns`` with memory read; write it if it is new."""
        recall = model.recall
        assert recall is not None
        time = torch.full((len(batch[STATE_KEY]),), time_s, device=batch[STATE_KEY].device)
        if self._state is None or stamp_ns != self._written_ns:
            state = self._state or recall.memory.begin(len(time))
            percept, self._state = model.observe(batch, state, time)
            self._written_ns = stamp_ns
            if not self.ablation:
                return percept
        else:
            percept = model.perceive(batch)
        assert percept.feature is not None
        now = Moments(percept.feature, time, recall.place(batch[STATE_KEY]))
        return replace(percept, reading=recall.memory.read(self._spoil(recall.memory, time_s), percept.cognition, now))

    def _spoil(self, memory: SequenceMemory, time_s: float) -> State:
        """Return the state as the ablation leaves it, ``time_s`` after the episode began."""
        state = self._state
        assert state is not None
        if self.ablation == "noise":
            words = np.random.SeedSequence((self._seed % 2**63, round(time_s * 1e3))).generate_state(1, np.uint64)
            generator = torch.Generator().manual_seed(int(words[0]))
            noise = {name: torch.randn(state[name].shape, generator=generator) for name in memory.CONTENT}
            return state | {name: x.to(state[name]) * _size(state[name]) for name, x in noise.items()}
        fresh = memory.begin(len(next(iter(state.values()))))
        return {"": state, "zeroed": fresh, "swapped": self._before or fresh}[self.ablation]

    def described(self, memory: SequenceMemory) -> str:
        """Describe the memory and the ablation in a few words."""
        state = self._state
        words = "nothing yet" if state is None else memory.described(state)
        return f"{words} ({self.ablation} when read)" if self.ablation else words

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the memory of one episode as arrays for the disk; empty before its first step.

        Arrays are in C order, because safetensors silently writes the underlying bytes of a view.
        """
        if self._state is None:
            return {}
        arrays = {f"memory.{name}": tensor.cpu().contiguous().numpy() for name, tensor in self._state.items()}
        return arrays | {"written_ns": np.array(self._written_ns, np.int64)}

    def restore(self, model: RememberingNetwork, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what :meth:`arrays` returned.

        Raises:
            InvalidInputError: ``model`` has no memory, or another one: names or shapes differ.
        """
        if model.recall is None:
            raise InvalidInputError("episode memory: this policy has none")
        expected = model.recall.memory.begin(1)
        found = {name.removeprefix("memory."): a for name, a in arrays.items() if name.startswith("memory.")}
        if found.keys() != expected.keys():
            raise InvalidInputError(f"episode memory: arrays {sorted(found)}, expected {sorted(expected)}")
        for name, tensor in expected.items():
            if found[name].shape != tuple(tensor.shape):
                raise InvalidInputError(
                    f"episode memory: {name!r} has shape {found[name].shape}, expected {tuple(tensor.shape)}"
                )
        self._state = {name: torch.tensor(found[name], device=expected[name].device) for name in expected}
        self._written_ns = int(arrays["written_ns"])
