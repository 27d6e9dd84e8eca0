"""Memories of the policy's own episode, behind one contract; ``memory`` in the policy's configuration names one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engram.core.errors import InvalidInputError, unknown_name
from engram.policies.memories.bank import Bank, BankConfig
from engram.policies.memories.base import Moments, SequenceMemory, State, choose, spread
from engram.policies.memories.chunks import ChunksConfig, PlaceChunks, RetrievedChunks, TimeChunks
from engram.policies.memories.fast_forgetful import FastForgetful
from engram.policies.memories.first_frame import FirstFrame
from engram.policies.memories.frame_stack import FrameStack
from engram.policies.memories.gru import Gru

NONE = "none"


class MemoryFields(Protocol):
    """What a policy's configuration says of its memory; the fields are explained in ``PolicyConfig``."""

    dim: int
    heads: int
    memory: str
    memory_steps: int
    memory_events: int
    memory_details: int
    memory_surprise: float
    memory_stack: int
    memory_chunk: int


def _bank(c: MemoryFields, looks: int) -> SequenceMemory:
    sizes = (c.dim, c.heads, c.memory_details, c.memory_steps, c.memory_events)
    return Bank(BankConfig(*sizes, surprise=c.memory_surprise, looks=looks))


def _chunks(c: MemoryFields, looks: int) -> ChunksConfig:
    chunks = max(1, c.memory_steps // c.memory_chunk)
    return ChunksConfig(_feature(c, looks), c.dim, c.heads, chunks, c.memory_chunk)


def _feature(c: MemoryFields, looks: int) -> int:
    """Return the length of what a control step leaves behind."""
    return (1 + c.memory_details) * c.dim + looks


_MAKERS: dict[str, Callable[[MemoryFields, int], SequenceMemory]] = {
    "bank": _bank,
    "first_frame": lambda c, looks: FirstFrame(_feature(c, looks), c.dim),
    "frame_stack": lambda c, looks: FrameStack(_feature(c, looks), c.dim, c.memory_stack),
    "gru": lambda c, looks: Gru(_feature(c, looks), c.dim, 2 * c.dim),
    "fast_forgetful": lambda c, looks: FastForgetful(_feature(c, looks), c.dim),
    "hcam": lambda c, looks: TimeChunks(_chunks(c, looks)),
    "retrieval": lambda c, looks: RetrievedChunks(_chunks(c, looks)),
    "place": lambda c, looks: PlaceChunks(_chunks(c, looks)),
}
MEMORIES = (NONE, *_MAKERS)


def check_memory(name: str) -> None:
    """Raise UnknownNameError, which lists the valid ones, unless there is a memory ``name``."""
    if name not in MEMORIES:
        raise unknown_name("memory", name, MEMORIES)


def make_memory(config: MemoryFields, looks: int = 0) -> SequenceMemory:
    """Return the memory that ``config.memory`` names; a feature ends with ``looks`` numbers of what was seen."""
    check_memory(config.memory)
    if config.memory == NONE:
        raise InvalidInputError(f"memory {NONE!r}: nothing to make")
    return _MAKERS[config.memory](config, looks)


__all__ = [
    "MEMORIES",
    "NONE",
    "MemoryFields",
    "Moments",
    "SequenceMemory",
    "State",
    "check_memory",
    "choose",
    "make_memory",
    "spread",
]
