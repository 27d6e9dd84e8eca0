"""Checkpoints: weights are checked before they are used, and files appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engram.core.errors import DAMAGED, EngramError, WeightsError

if TYPE_CHECKING:
    from lerobot.processor import PolicyProcessorPipeline

WEIGHTS = "model.safetensors"
CARD = "card.json"
STATE, PROGRESS = "state.safetensors", "progress.json"
"""Of a training that can be resumed."""
REPLACED = ".replaced"
"""Ends the name of a folder in the instant between its being moved away and its successor's taking its place."""
_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}


def read_weights(path: Path, model: nn.Module, fresh: Sequence[str] = ()) -> dict[str, Tensor]:
    """Return the tensors of ``path``, which fit ``model`` exactly.

    Names, shapes and dtypes are compared in the file's header before any tensor is read; then values are checked.
    Tensors whose names begin with one of ``fresh`` may be missing or of another network altogether: then those of
    ``model`` stand for all that begin so.

    Raises:
        WeightsError: the file is missing or damaged, or a tensor is missing, left over, of another shape or dtype,
            or not finite.
    """
    expected = model.state_dict()
    try:
        with safe_open(path, framework="pt") as file:
            found, kept = set(file.keys()), dict[str, Tensor]()
            for begin in fresh:
                part = {name: tensor for name, tensor in expected.items() if name.startswith(begin)}
                stored = {name: tuple(file.get_slice(name).get_shape()) for name in found if name.startswith(begin)}
                if stored != {name: tuple(tensor.shape) for name, tensor in part.items()}:
                    kept, found = kept | part, found - stored.keys()
            expected = {name: tensor for name, tensor in expected.items() if name not in kept}
            _check_names(path, found, set(expected))
            for name, tensor in expected.items():
                _check_header(path, name, file.get_slice(name), tensor)
            tensors = {name: file.get_tensor(name) for name in expected}
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file: {error}") from None
    _check_finite(path, tensors)
    return tensors | kept


def _check_names(path: Path, found: set[str], expected: set[str]) -> None:
    for kind, names in (("lacks", expected - found), ("has unknown", found - expected)):
        if names:
            raise WeightsError(f"{path}: {kind} tensor {sorted(names)[0]!r} ({len(names)} in all)")


def _check_header(path: Path, name: str, header: Any, expected: Tensor) -> None:
    shape, dtype = tuple(header.get_shape()), header.get_dtype()
    if shape != tuple(expected.shape):
        raise WeightsError(f"{path}: tensor {name!r} has shape {shape}, expected {tuple(expected.shape)}")
    if dtype != _DTYPES[expected.dtype]:
        raise WeightsError(f"{path}: tensor {name!r} has dtype {dtype}, expected {_DTYPES[expected.dtype]}")


def load_weights(policy: Any, path: Path) -> None:
    """Load ``path`` into a LeRobot ``policy``, under the names that LeRobot has had for its tensors."""
    tensors = _read_tensors(path)
    if hasattr(policy, "_fix_pytorch_state_dict_keys"):  # openpi's names, in older files of pi0
        tensors = policy._fix_pytorch_state_dict_keys(tensors, policy.config)
        tensors = {k if k.startswith("model.") else f"model.{k}": v for k, v in tensors.items()}
    _check_finite(path, tensors)
    try:
        missing, unknown = policy.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise WeightsError(f"{path}: {error}") from None
    missing = sorted(set(missing) - _tied(policy, tensors))
    for kind, names in (("lacks", missing), ("has unknown", sorted(unknown))):
        if names:
            raise WeightsError(f"{path}: {kind} tensor {names[0]!r} ({len(names)} in all)")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file: {error}") from None


def _check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise WeightsError(f"{path}: tensor {name!r} holds a value that is not finite")


def _tied(policy: nn.Module, loaded: dict[str, Tensor]) -> set[str]:
    """Return the names of tensors that share the memory of a loaded one: files hold those once."""
    state = policy.state_dict()
    there = {state[name].data_ptr() for name in loaded.keys() & state.keys()}
    return {name for name, tensor in state.items() if tensor.data_ptr() in there}


def sha256(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(folder: Path) -> str:
    """Return 12 hex digits that change with whatever in ``folder`` says how the policy acts: weights, configuration,
    processors, but not the card."""
    total = hashlib.sha256()
    for path in sorted({*folder.glob("*.json"), *folder.glob("*.safetensors")} - {folder / CARD}):
        total.update(f"{path.name} {sha256(path)}\n".encode())
    return total.hexdigest()[:12]


def size(tensors: Iterable[Tensor]) -> int:
    """Return how many bytes ``tensors`` take in a file."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def export(
    folder: Path,
    policy: Any,
    preprocess: PolicyProcessorPipeline[Any, Any],
    postprocess: PolicyProcessorPipeline[Any, Any],
    card: dict[str, Any],
) -> None:
    """Write a policy as LeRobot loads it, with ``card.json``, replacing ``folder`` in one move.

    Raises:
        EngramError: it cannot be written, as on a full disk; ``folder`` stays as it was.
    """
    with _replacing(folder) as fresh:
        policy.save_pretrained(fresh)
        preprocess.save_pretrained(fresh)
        postprocess.save_pretrained(fresh)
        (fresh / CARD).write_text(json.dumps({**card, "sha256": sha256(fresh / WEIGHTS)}, indent=1) + "\n")


def read_card(folder: Path) -> dict[str, Any]:
    """Return the card of the policy in ``folder``; empty where there is none that can be read."""
    try:
        return dict(json.loads((folder / CARD).read_text()))
    except DAMAGED:
        return {}


def save_training_state(
    out: Path,
    policy: nn.Module,
    ema: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: dict[str, Any],
    carried: list[dict[str, Tensor]],
) -> None:
    """Write everything that a resumed run needs to ``out/resume``; ``carried``: the state of each process's streams.

    Raises:
        EngramError: it cannot be written, as on a full disk; ``out/resume`` stays as it was.
    """
    tensors = {f"policy.{k}": v.contiguous() for k, v in policy.state_dict().items()}
    tensors |= {f"ema.{k}": v.contiguous() for k, v in ema.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{k}": v.contiguous() for k, v in state.items()}
    for rank, state in enumerate(carried):
        tensors |= {f"carried.{rank}.{k}": v.contiguous() for k, v in state.items()}
    with _replacing(out / "resume") as fresh:
        fresh.mkdir(parents=True)
        save_file(tensors, fresh / STATE)
        (fresh / PROGRESS).write_text(json.dumps(progress))


def load_training_state(
    out: Path, policy: nn.Module, ema: nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Restore what :func:`save_training_state` wrote; return the progress and what the streams of ``rank`` remember.

    Raises:
        WeightsError: there is no checkpoint in ``out``, or one that is damaged or of another network.
    """
    path = out / "resume" / STATE
    tensors = _read_tensors(path)
    for part, network in (("policy.", policy), ("ema.", ema)):
        weights = _with_prefix(tensors, part)
        _check_finite(path, weights)
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise WeightsError(f"{path}: of another network: {str(error).splitlines()[-1].strip()}") from None
    state = _optimizer_state(path, _with_prefix(tensors, "optimizer."), optimizer)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    progress = json.loads((out / "resume" / PROGRESS).read_text())
    return progress, _with_prefix(tensors, f"carried.{rank}.")


def _optimizer_state(
    path: Path, tensors: dict[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Tensor]]:
    """Return ``tensors`` as AdamW keeps them, of each parameter that has had a gradient; it checks none of them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for i, parameter in enumerate(parameters):
        wanted = {f"{i}.step": torch.Size(), f"{i}.exp_avg": parameter.shape, f"{i}.exp_avg_sq": parameter.shape}
        if there := {name: tensors.pop(name) for name in wanted if name in tensors}:
            if {name: tensor.shape for name, tensor in there.items()} != wanted:
                raise WeightsError(f"{path}: what it has of optimizer.{i} does not fit {(*parameter.shape,)}")
            state[i] = {name.partition(".")[2]: tensor for name, tensor in there.items()}
    if tensors:
        raise WeightsError(f"{path}: has unknown tensor 'optimizer.{sorted(tensors)[0]}' ({len(tensors)} in all)")
    return state


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield the path of a new folder, which then takes the place of ``folder``; a reader sees the old or the new, for
    an instant neither. Where it cannot be written, nothing of it is left."""
    for left in folder.parent.glob(f"{folder.name}.*.partial"):  # by processes that were killed
        shutil.rmtree(left)
    fresh, old = folder.with_name(f"{folder.name}.{os.getpid()}.partial"), folder.with_name(folder.name + REPLACED)
    try:
        yield fresh
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except (OSError, SafetensorError) as error:  # a full disk is the one or the other
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise EngramError(f"{folder}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
