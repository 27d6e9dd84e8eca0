"""Base class of our steps in LeRobot's preprocessor."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from lerobot.configs.types import PipelineFeatureType, PolicyFeature
from lerobot.processor.pipeline import ObservationProcessorStep


@dataclass
class InputStep(ObservationProcessorStep):
    """A step on observations. Its dataclass fields are its whole configuration, and it leaves the features
    unchanged."""

    def get_config(self) -> dict[str, Any]:
        """Return what is saved."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def transform_features(
        self, features: dict[PipelineFeatureType, dict[str, PolicyFeature]]
    ) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        """Keep the features: they name what comes in."""
        return features
