"""Checks the statistics by which a policy's processors scale its inputs and its actions.

LeRobot passes on unscaled what has no statistics: the policy would act, but not as it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.processor.normalize_processor import NormalizerProcessorStep, UnnormalizerProcessorStep

from engram.core.errors import WeightsError

NEEDED = {
    NormalizationMode.MEAN_STD: ("mean", "std"),
    NormalizationMode.MIN_MAX: ("min", "max"),
    NormalizationMode.QUANTILES: ("q01", "q99"),
    NormalizationMode.QUANTILE10: ("q10", "q90"),
}
"""The two statistics of each way to normalise."""


def check_statistics(path: Path, pipeline: Any, *, constant: bool = False) -> None:
    """Check the statistics of every feature that ``pipeline`` scales.

    Args:
        path: the pipeline's JSON file.
        pipeline: what was loaded from it.
        constant: whether values may be scaled that never changed in training, as LeRobot does.

    Raises:
        WeightsError: statistics are missing, of another shape, not finite, or leave nothing to divide by.
    """
    for file, step in _scaling(path, pipeline):
        stats = step.state_dict()
        for name, feature in step.features.items():
            if name in (step.normalize_observation_keys or (name, "action")):
                _check_feature(file, name, feature, step.norm_map.get(feature.type), stats, constant)


def check_scaled(path: Path, pipeline: Any, features: Mapping[str, PolicyFeature], modes: Mapping[str, Any]) -> None:
    """Raise WeightsError unless ``pipeline``, loaded from ``path``, scales ``features`` of these shapes where ``modes``
    say so, by the names of the features' types."""
    shapes = {name: tuple(one.shape) for _, step in _scaling(path, pipeline) for name, one in step.features.items()}
    for name, feature in features.items():
        if modes.get(feature.type.value, NormalizationMode.IDENTITY) is NormalizationMode.IDENTITY:
            continue
        if name not in shapes:
            raise WeightsError(f"{path}: no step normalises {name}, as config.json beside it says")
        if feature.type is not FeatureType.VISUAL and shapes[name] != tuple(feature.shape):
            raise WeightsError(
                f"{path}: {name} of shape {shapes[name]}, expected {tuple(feature.shape)} of config.json"
            )


def _scaling(path: Path, pipeline: Any) -> Iterator[tuple[Path, Any]]:
    """Yield each step that scales, with the file of its statistics."""
    entries = json.loads(path.read_text())["steps"]
    for entry, step in zip(entries, pipeline.steps, strict=True):
        if isinstance(step, NormalizerProcessorStep | UnnormalizerProcessorStep):
            yield path.with_name(entry.get("state_file") or path.name), step


def _check_feature(
    file: Path, name: str, feature: PolicyFeature, mode: Any, stats: Mapping[str, torch.Tensor], constant: bool
) -> None:
    found, shape = [], tuple(feature.shape)
    usual = (shape[0], 1, 1) if feature.type is FeatureType.VISUAL else shape  # of an image: each channel alike
    for kind in NEEDED.get(mode, ()):
        told = f"{file}: {name}: {kind}"
        value = stats.get(f"{name}.{kind}")
        if value is None:
            raise WeightsError(f"{told} is missing, expected finite numbers of shape {usual} for {mode.value}")
        if not _fits(tuple(value.shape), shape):
            raise WeightsError(f"{told} has shape {tuple(value.shape)}, expected {usual} or one that broadcasts to it")
        if not torch.isfinite(value).all():
            raise WeightsError(f"{told} holds a value that is not finite")
        found.append(value)
    if not found:
        return
    width = found[1] if mode is NormalizationMode.MEAN_STD else found[1] - found[0]
    if not (width >= 0 if constant else width > 0).all():
        what = "std" if mode is NormalizationMode.MEAN_STD else " - ".join(reversed(NEEDED[mode]))
        least = "0 or more" if constant else "above 0"
        raise WeightsError(f"{file}: {name}: {what} {float(width.min()):g}, expected {least} everywhere")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return tuple(torch.broadcast_shapes(shape, wanted)) == wanted
    except RuntimeError:
        return False
