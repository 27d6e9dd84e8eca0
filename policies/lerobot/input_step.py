"""What our steps of LeRobot's preprocessor share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from lerobot.configs import PipelineFeatureType, PolicyFeature
from lerobot.processor import ObservationProcessorStep


@dataclass
class InputStep(ObservationProcessorStep):
    """A step on observations whose dataclass fields are all there is to save, and which leaves the features alone."""

    def get_config(self) -> dict[str, Any]:
        """Return what is saved."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def transform_features(
        self, features: dict[PipelineFeatureType, dict[str, PolicyFeature]]
    ) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        """Keep the features: they name what comes in."""
        return features
