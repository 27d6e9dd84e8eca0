"""The training state of an algorithm as one safetensors block: networks, optimisers and what is told about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from engram.core.errors import DAMAGED, WeightsError


def packed(tensors: Mapping[str, Tensor], kind: str, about: Mapping[str, Any]) -> bytes:
    """Return ``tensors`` and ``about``, as JSON takes it, of a ``kind`` of state."""
    return save(contiguous(tensors), metadata={kind: json.dumps(about)})


def unpacked(state: bytes, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what :func:`packed` was given; raises WeightsError if it is damaged or of another kind."""
    try:
        tensors = load(state)
        header = json.loads(state[8 : 8 + int.from_bytes(state[:8], "little")])
        return tensors, dict(json.loads(header["__metadata__"][kind]))
    except (*DAMAGED, SafetensorError) as error:
        raise WeightsError(f"training state cannot be read: {error}") from error


def of_optimizer(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return what ``optimizer`` remembers of each parameter, by names that begin with ``prefix``."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}{index}.{k}": v for index, entries in state.items() for k, v in entries.items()}


def into_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Let ``optimizer`` remember what :func:`of_optimizer` returned."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, tensor in under(tensors, prefix).items():
        index, name = key.split(".", 1)
        entries.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": entries})


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies as safetensors takes them: it refuses shared storage."""
    return {k: v.detach().contiguous().clone() for k, v in tensors.items()}


def under[T](entries: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return the ``entries`` whose names begin with ``prefix``, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in entries.items() if k.startswith(prefix)}
