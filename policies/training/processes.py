"""What the processes of one training run share: gradients, carried memory states, devices and allocator settings."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from engram.core.errors import unknown_name
from engram.policies.sequence_memory import State

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def average_gradients(parameters: Iterable[torch.nn.Parameter], world: int, said: Tensor) -> Tensor:
    """Average gradients over all processes in one message, and return the mean of what they ``said`` (n,).

    Parameters without a gradient (unused memory) stay without.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([said, *(g.reshape(-1).cpu() for g in gradients)])
    dist.all_reduce(flat)
    flat /= world
    for gradient, mean in zip(gradients, flat[len(said) :].split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
    return flat[: len(said)]


def gather_states(state: State, rank: int, world: int) -> list[State]:
    """Return every process's ``state``, in order of rank, at rank 0; elsewhere nothing. All have the same shapes."""
    if world == 1:
        return [state]
    flat = torch.cat([torch.zeros(1), *(tensor.reshape(-1).cpu() for tensor in state.values())])
    gathered = [torch.empty_like(flat) for _ in range(world)] if rank == 0 else None
    dist.gather(flat, gathered)
    sizes = [tensor.numel() for tensor in state.values()]
    return [
        {name: part.view_as(state[name]) for name, part in zip(state, one[1:].split(sizes), strict=True)}
        for one in gathered or []
    ]


def gather_rows(rows: Tensor, world: int) -> Tensor:
    """Return the ``rows`` (n, ...) of all processes in order of rank (world * n, ...), at each."""
    if world == 1:
        return rows
    whole = rows.new_empty(world * len(rows), *rows.shape[1:])
    dist.all_gather(list(whole.chunk(world)), rows)
    return whole


def training_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device called ``name`` for the process of this rank among those of its machine: cuda = a GPU of its
    own as far as there are enough, auto = that, or the CPU where there is none.

    Raises:
        UnknownNameError: this machine has no such device; lists those that it has.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    if name not in (valid := ("auto", "cpu", *_accelerators())):
        raise unknown_name("device", name, valid)
    return torch.device("cpu" if name == "auto" else name)


def _accelerators() -> list[str]:
    """Return the names of this machine's accelerators, each kind alone and with its number: torch knows more kinds."""
    there = {
        "cuda": torch.cuda.device_count(),
        "xpu": torch.xpu.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    return [name for kind, n in there.items() if n for name in (kind, *(f"{kind}:{i}" for i in range(n)))]


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks: each step takes and frees hundreds of MB, a fifth of its time."""
    libc = ctypes.util.find_library("c")
    if libc is not None and hasattr(ctypes.CDLL(libc), "mallopt"):
        mallopt = ctypes.CDLL(libc).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
