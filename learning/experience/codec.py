"""A transition as bytes for the disk: a compressed safetensors block, never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd
from safetensors import SafetensorError
from safetensors.numpy import load, save

from engram.core.errors import DAMAGED, EngramError, InvalidInputError
from engram.core.types import HUMAN, ActionSource, MemoryTokens, Transition

_IMAGE, _CONTEXT = "image.", "context."
_ARRAYS = ("state", "action", "executed_action")
_SCALARS = tuple(f.name for f in fields(Transition) if f.name not in (*_ARRAYS, "images", "source", "context"))
_OF_CONTEXT = ("tokens", "age_s", "place", "mask")
_codec = Zstd(level=1, checksum=True)


class DamagedRecordError(EngramError):
    """Stored bytes are not what was written."""


def encode(transition: Transition) -> bytes:
    """Return ``transition`` as bytes; images stay uint8, all flags stay apart."""
    tensors = {name: np.ascontiguousarray(getattr(transition, name)) for name in _ARRAYS}
    tensors |= {_IMAGE + name: np.ascontiguousarray(image) for name, image in transition.images.items()}
    scalars = {name: getattr(transition, name) for name in _SCALARS}
    if not np.isfinite(scalars["reward"]):
        raise InvalidInputError(f"Transition.reward: {scalars['reward']}, expected a finite number")
    scalars["source"] = asdict(transition.source)
    if (context := transition.context) is not None:
        tensors |= {_CONTEXT + name: np.ascontiguousarray(getattr(context, name)) for name in _OF_CONTEXT}
        scalars["context"] = [context.stamp_ns, context.version, context.source_ids]
    return _codec.encode(save(tensors, metadata={"transition": json.dumps(scalars, default=_plain)}))


def decode(data: bytes) -> Transition:
    """Return the transition of :func:`encode`; raises DamagedRecordError.

    One that was written before transitions had a source gets the default: an unknown one; and no context, where it was
    written before they had one. Before they had an author they told only whether a person drove: that has no name.
    """
    try:
        block = bytes(_codec.decode(data))
        header = json.loads(block[8 : 8 + int.from_bytes(block[:8], "little")])
        scalars = json.loads(header["__metadata__"]["transition"])
        tensors = load(block)
        images = {name.removeprefix(_IMAGE): t for name, t in tensors.items() if name.startswith(_IMAGE)}
        scalars["source"] = source_from(scalars.get("source", {}))
        scalars["memory_ids"] = tuple(scalars["memory_ids"])
        if (helped := scalars.pop("intervention", None)) is not None:
            scalars["author"] = HUMAN if helped else ""
        if (context := scalars.get("context")) is not None:
            stamp_ns, version, ids = context
            tokens, age_s, place, mask = (tensors[_CONTEXT + name] for name in _OF_CONTEXT)
            scalars["context"] = MemoryTokens(stamp_ns, version, tokens, age_s, place, mask, tuple(ids))
        fields_: dict[str, Any] = scalars | {name: tensors[name] for name in _ARRAYS}
        return Transition(images=images, **fields_)
    except (*DAMAGED, RuntimeError, SafetensorError) as error:
        raise DamagedRecordError(f"a stored transition cannot be read: {type(error).__name__}: {error}") from None


def source_from(values: Mapping[str, Any]) -> ActionSource:
    """Return the source that ``asdict`` and JSON made ``values`` of."""
    return ActionSource(**{**values, "covered_cameras": tuple(values.get("covered_cameras", ()))})


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not storable")
