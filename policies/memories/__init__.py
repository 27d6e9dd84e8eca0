"""Memories of the policy's own episode, behind one contract; ``memory`` in the policy's configuration names one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engram.core.errors import InvalidInputError, unknown_name
from engram.policies.memories.bank import Bank, BankConfig
from engram.policies.memories.base import Moments, SequenceMemory, State, choose
from engram.policies.memories.chunks import ChunksConfig, PlaceChunks, RetrievedChunks, TimeChunks
from engram.policies.memories.fast_forgetful import FastForgetful
from engram.policies.memories.first_frame import FirstFrame
from engram.policies.memories.frame_stack import FrameStack
from engram.policies.memories.gru import Gru

NONE = "none"


class MemoryFields(Protocol):
    """What a policy's configuration says of its memory; the fields are explained in ``EngramVLAConfig``."""

    dim: int
    heads: int
    memory: str
    memory_steps: int
    memory_events: int
    memory_details: int
    memory_surprise: float
    memory_stack: int
    memory_chunk: int


def _bank(c: MemoryFields) -> SequenceMemory:
    return Bank(
        BankConfig(c.dim, c.heads, c.memory_details, c.memory_steps, c.memory_events, surprise=c.memory_surprise)
    )


def _chunks(c: MemoryFields) -> ChunksConfig:
    chunks = max(1, c.memory_steps // c.memory_chunk)
    return ChunksConfig(_feature(c), c.dim, c.heads, chunks, c.memory_chunk)


def _feature(c: MemoryFields) -> int:
    """Return the length of what a control step leaves behind."""
    return (1 + c.memory_details) * c.dim


_MAKERS: dict[str, Callable[[MemoryFields], SequenceMemory]] = {
    "bank": _bank,
    "first_frame": lambda c: FirstFrame(_feature(c), c.dim),
    "frame_stack": lambda c: FrameStack(_feature(c), c.dim, c.memory_stack),
    "gru": lambda c: Gru(_feature(c), c.dim, 2 * c.dim),
    "fast_forgetful": lambda c: FastForgetful(_feature(c), c.dim),
    "hcam": lambda c: TimeChunks(_chunks(c)),
    "retrieval": lambda c: RetrievedChunks(_chunks(c)),
    "place": lambda c: PlaceChunks(_chunks(c)),
}
MEMORIES = (NONE, *_MAKERS)


def check_memory(name: str) -> None:
    """Raise UnknownNameError, which lists the valid ones, unless there is a memory ``name``."""
    if name not in MEMORIES:
        raise unknown_name("memory", name, MEMORIES)


def make_memory(config: MemoryFields) -> SequenceMemory:
    """Return the memory that ``config.memory`` names."""
    check_memory(config.memory)
    if config.memory == NONE:
        raise InvalidInputError(f"memory {NONE!r}: nothing to make")
    return _MAKERS[config.memory](config)


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
]
