"""Memories of the policy's own episode, behind one contract; ``memory`` in the policy's configuration names one.

It is a shipped name or ``package.module:attribute`` of your own: a SequenceMemory, called with those of ``feature``
(length of what a control step leaves behind), ``dim`` (length of a reading), ``color_tokens`` and ``config`` that its
signature names. A checkpoint keeps the name, so the module must be installed or on PYTHONPATH where the
checkpoint is loaded (see :func:`engram.policies.foreign_code.check_importable`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.registry import FORM, is_spec, load_object, resolve
from engram.policies.sequence_memory.bank import Bank, BankConfig
from engram.policies.sequence_memory.base import Moments, SequenceMemory, State, choose, spread
from engram.policies.sequence_memory.fast_forgetful import FastForgetful
from engram.policies.sequence_memory.first_frame import FirstFrame
from engram.policies.sequence_memory.frame_stack import FrameStack
from engram.policies.sequence_memory.gru import Gru
from engram.policies.sequence_memory.retrieval import ChunksConfig, PlaceChunks, RetrievalMemory, TimeChunks

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


def _bank(c: MemoryFields, color_tokens: int) -> SequenceMemory:
    sizes = (c.dim, c.heads, c.memory_details, c.memory_steps, c.memory_events)
    return Bank(BankConfig(*sizes, surprise=c.memory_surprise, color_tokens=color_tokens))


def _chunks(c: MemoryFields, color_tokens: int) -> ChunksConfig:
    chunks = max(1, c.memory_steps // c.memory_chunk)
    return ChunksConfig(_feature(c, color_tokens), c.dim, c.heads, chunks, c.memory_chunk)


def _feature(c: MemoryFields, color_tokens: int) -> int:
    """Return the length of what a control step leaves behind."""
    return (1 + c.memory_details) * c.dim + color_tokens


_MAKERS: dict[str, Callable[[MemoryFields, int], SequenceMemory]] = {
    "bank": _bank,
    "first_frame": lambda c, color_tokens: FirstFrame(_feature(c, color_tokens), c.dim),
    "frame_stack": lambda c, color_tokens: FrameStack(_feature(c, color_tokens), c.dim, c.memory_stack),
    "gru": lambda c, color_tokens: Gru(_feature(c, color_tokens), c.dim, 2 * c.dim),
    "fast_forgetful": lambda c, color_tokens: FastForgetful(_feature(c, color_tokens), c.dim),
    "hcam": lambda c, color_tokens: TimeChunks(_chunks(c, color_tokens)),
    "retrieval": lambda c, color_tokens: RetrievalMemory(_chunks(c, color_tokens)),
    "place": lambda c, color_tokens: PlaceChunks(_chunks(c, color_tokens)),
}
MEMORIES = (NONE, *_MAKERS)


def check_memory(name: str) -> None:
    """Raise UnknownNameError, which lists the valid ones, unless there is a memory ``name``.

    Raises:
        InvalidInputError: it is to be one of your own, and cannot be loaded.
    """
    if is_spec(name):
        load_object(name)
    elif name not in MEMORIES:
        raise unknown_name("memory", name, (*MEMORIES, FORM))


def make_memory(config: MemoryFields, color_tokens: int = 0) -> SequenceMemory:
    """Return the memory that ``config.memory`` names; a feature ends with ``color_tokens`` numbers of what was seen."""
    check_memory(config.memory)
    if config.memory == NONE:
        raise InvalidInputError(f"memory {NONE!r}: nothing to make")
    if config.memory in _MAKERS:
        return _MAKERS[config.memory](config, color_tokens)
    sizes = {"feature": _feature(config, color_tokens), "dim": config.dim, "color_tokens": color_tokens}
    return resolve("memory", config.memory, {}, SequenceMemory, **sizes, config=config)  # type: ignore[type-abstract]


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
