"""Motion edits of frozen policies: put behind them, read from weights that travel, and kept in checkpoints.

An edit (:class:`~engram.policies.lerobot.motion_edit_step.MotionEditStep`) runs on the weights that it names, and on no
others.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.processor.pipeline import PolicyProcessorPipeline
from safetensors import SafetensorError
from safetensors.torch import load

from engram.core.errors import DAMAGED, WeightsError
from engram.core.motion_correction import MotionCorrection
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.policies.foreign_code import POSTPROCESSOR
from engram.policies.lerobot.motion_edit_step import BASE, NAME, SHAPES, MotionEditStep

LARGEST = 4096
"""Octets of an edit's file, at most."""


def edit_behind(postprocess: Any) -> MotionEditStep | None:
    """Return the motion edit that ends the pipeline ``postprocess``; None: it has none."""
    last = postprocess.steps[-1] if postprocess.steps else None
    return last if isinstance(last, MotionEditStep) else None


def editable(postprocess: Any, base: str) -> Any:
    """Return ``postprocess`` with an edit of the weights with sha256 ``base`` at its end: its own, or one that changes
    nothing."""
    return postprocess if edit_behind(postprocess) else with_edit(postprocess, no_edit(base))


def with_edit(postprocess: Any, edit: MotionEditStep) -> Any:
    """Return a copy of the pipeline ``postprocess`` that ends with ``edit``, in place of any it had."""
    made = copy.copy(postprocess)
    made.steps = [*(step for step in postprocess.steps if not isinstance(step, MotionEditStep)), edit]
    return made


def no_edit(base: str) -> MotionEditStep:
    """Return the edit of the weights with sha256 ``base`` that changes nothing."""
    return MotionEditStep.of(base, MotionCorrection())


def read_edit(path: Path, base: str) -> MotionEditStep | None:
    """Return the edit in the weight file ``path``; None where that holds a network, or cannot be read.

    Raises:
        WeightsError: see :func:`unpacked`.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    except OSError:  # who reads it as a network says why
        return None
    return unpacked(data, base) if is_edit(data) else None


def is_edit(data: bytes) -> bool:
    """Tell whether the safetensors file ``data`` holds the tensors of an edit and no others."""
    return _header(data).keys() - {"__metadata__"} == SHAPES.keys()


def unpacked(data: bytes, base: str) -> MotionEditStep:
    """Return the edit that :meth:`MotionEditStep.packed` made ``data`` of.

    Raises:
        WeightsError: it is none, names another base than the weights with sha256 ``base``, or its numbers are not
            finite or beyond what a correction may be.
    """
    try:
        named, tensors = str(_header(data)["__metadata__"][BASE]), load(data)
    except (*DAMAGED, SafetensorError) as error:
        raise WeightsError(f"{NAME}: cannot be read, or names no {BASE} in its metadata: {error!r}") from error
    if named != base:
        raise WeightsError(f"{NAME}: of the base {named[:12]}, the weights here are {base[:12] or 'unknown'}")
    edit = MotionEditStep(base)
    edit.load_state_dict(tensors)
    return edit


def _header(data: bytes) -> dict[str, Any]:
    """Return the header of the safetensors file ``data``; empty where there is none that can be read."""
    try:
        return dict(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]))
    except DAMAGED:
        return {}


def check_edit(name: str, before: Any, after: Any, root: str) -> MotionEditStep | None:
    """Return the motion edit in the processors of the checkpoint ``name``, if there is one.

    Args:
        name: of the checkpoint, for errors.
        before: its preprocessor.
        after: its postprocessor.
        root: sha256 of its weight file.

    Raises:
        WeightsError: there are several, it is not the last step, lacks its numbers, or is of another base.
    """
    edits = [step for step in (*before.steps, *after.steps) if isinstance(step, MotionEditStep)]
    if not edits:
        return None
    edit = edit_behind(after)
    if len(edits) != 1 or edit is None:
        raise WeightsError(f"policy {name}: {len(edits)} steps {NAME}, expected one, as the last of {POSTPROCESSOR}")
    if not edit.loaded:
        raise WeightsError(f"policy {name}: step {NAME} of {POSTPROCESSOR} has no state_file, expected its numbers")
    if edit.base_sha256 != root:
        raise WeightsError(
            f"policy {name}: its {NAME} is of the base {edit.base_sha256[:12]}, the weights in it are {root[:12]}"
        )
    return edit


def write_edit(data: bytes, folder: Path) -> None:
    """Put the edit ``data`` behind the policy whose checkpoint lies in ``folder``, in place of any it had.

    Raises:
        WeightsError: see :func:`unpacked`.
        DAMAGED: the folder cannot be read or written.
    """
    edit = unpacked(data, sha256(folder / WEIGHTS))
    pipeline = PolicyProcessorPipeline.from_pretrained(
        folder,
        config_filename=POSTPROCESSOR,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    with_edit(pipeline, edit).save_pretrained(folder, config_filename=POSTPROCESSOR)
