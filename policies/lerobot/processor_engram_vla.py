"""Observation -> network input, the one place for training, LeRobot's commands and the robot.

The steps: rename, batch, downsample images, embed the instruction, move to the device, normalise. Images leave the
downsampling on the grid of whole 1/255, so that a cache of uint8 frames holds exactly what the network sees live.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lerobot.lerobot_types import PolicyAction, TransitionKey
from lerobot.processor.factory import make_default_policy_processor_steps, make_policy_processor_pipelines
from lerobot.processor.pipeline import PolicyProcessorPipeline, ProcessorStepRegistry
from torch import Tensor

from engram.core.errors import InvalidInputError
from engram.perception.embedding import default_text_encoder
from engram.policies.lerobot.configuration_engram_vla import LANGUAGE_KEY, EngramVLAConfig
from engram.policies.lerobot.input_step import InputStep

STD_FLOOR = {"action": 0.05, "observation.state": 0.02}
"""Least standard deviation to divide by: a dimension that hardly moves in the data must not be amplified."""
IMAGE_STD_FLOOR = 1 / 255
"""The same for images in [0, 1]: a camera may have been covered in all of the data."""


Crop = tuple[float, float, float]
"""Top, left and side of a square, as shares of the image."""


def downsample(image: Tensor, size: int, crop: Crop | None = None) -> Tensor:
    """Crop and area-downsample ``image`` (..., 3, H, W), float in [0, 1] or uint8, to ``size`` pixels a side: uint8."""
    if image.dtype != torch.uint8:
        image = image * 255.0
    if crop is not None:
        image = _cut(image, crop)
    if image.shape[-2:] != (size, size):
        if image.shape[-1] < size or image.shape[-2] < size:
            cut = ", once cropped" if crop is not None else ""
            raise InvalidInputError(f"image {tuple(image.shape)}: smaller than the policy's {size} px{cut}")
        flat = image.to(torch.float32).reshape(-1, *image.shape[-3:])
        image = F.interpolate(flat, (size, size), mode="area").view(*image.shape[:-2], size, size)
    return image if image.dtype == torch.uint8 else image.round().clamp(0, 255).to(torch.uint8)


def _cut(image: Tensor, crop: Crop) -> Tensor:
    height, width = image.shape[-2:]
    top, left, side = round(crop[0] * height), round(crop[1] * width), round(crop[2] * height)
    return image[..., top : top + side, left : left + side]


def embed_instructions(instructions: list[str], pieces: int = 0) -> Tensor:
    """Return embeddings (n, (1 + pieces) * 384) float32 of each instruction and of its ``pieces`` parts in order.

    A sentence vector hardly tells "the red cube on the blue cube" from "the blue cube on the red cube": the vectors
    of consecutive parts carry the order. The encoder remembers what it has seen.
    """
    encoder = default_text_encoder()
    rows = []
    for instruction in instructions:
        parts = np.array_split(np.array(instruction.split(), object), pieces) if pieces else []
        rows.append(encoder.encode([instruction, *(" ".join(part) for part in parts)]).reshape(-1))
    return torch.from_numpy(np.stack(rows))


@dataclass
@ProcessorStepRegistry.register(name="engram_downsample_images")
class DownsampleImages(InputStep):
    """Brings every ``observation.images.*`` (B, 3, H, W) to its size, cropped first where asked."""

    size: int = 64
    sizes: dict[str, int] = field(default_factory=dict)  # of the cameras that differ
    crops: dict[str, Crop] = field(default_factory=dict)

    def size_of(self, camera: str) -> int:
        """Return the side of the images of feature ``camera`` [px]."""
        return self.sizes.get(camera, self.size)

    def image(self, camera: str, image: Tensor) -> Tensor:
        """Return the images (..., 3, H, W) of feature ``camera`` as uint8 of its size."""
        return downsample(image, self.size_of(camera), self.crops.get(camera))

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the observation with float32 images in [0, 1]."""
        return {
            key: self.image(key, value).to(torch.float32) / 255.0 if key.startswith("observation.images.") else value
            for key, value in observation.items()
        }


@dataclass
class ShrunkImages(DownsampleImages):
    """In the place of a :class:`DownsampleImages` for images that have been through it, as caches hold them."""

    def image(self, camera: str, image: Tensor) -> Tensor:
        """Return the images (..., 3, H, W) of feature ``camera``, which are uint8 of its size."""
        size = self.size_of(camera)
        if image.shape[-2:] != (size, size) or image.dtype != torch.uint8:
            raise InvalidInputError(f"{camera}: cached {image.dtype} {tuple(image.shape)}, expected uint8 of {size} px")
        return image


def of_shrunk_images(pipeline: Any) -> Any:
    """Return a copy of the preprocessor ``pipeline`` for images that have been downsampled already."""
    made = copy.copy(pipeline)
    made.steps = [
        ShrunkImages(**step.get_config()) if isinstance(step, DownsampleImages) else step for step in pipeline.steps
    ]
    return made


@dataclass
@ProcessorStepRegistry.register(name="engram_embed_instruction")
class EmbedInstruction(InputStep):
    """Adds the embedding of the task string as ``observation.language.embedding``, unless it is there already."""

    task_key: str = "task"
    pieces: int = 0

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the observation with the embeddings (B, (1 + pieces) * 384) float32."""
        if LANGUAGE_KEY in observation:
            return observation
        task = (self.transition.get(TransitionKey.COMPLEMENTARY_DATA) or {}).get(self.task_key)
        if task is None:
            raise InvalidInputError(f"engram_vla: no {self.task_key!r} in the batch and no {LANGUAGE_KEY!r}")
        tasks = [task] if isinstance(task, str) else list(task)
        return {**observation, LANGUAGE_KEY: embed_instructions(tasks, self.pieces)}


def make_engram_vla_pre_post_processors(
    config: EngramVLAConfig, dataset_stats: dict[str, dict[str, Any]] | None = None
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]],
    PolicyProcessorPipeline[PolicyAction, PolicyAction],
]:
    """Return the pre- and postprocessor; LeRobot's factory finds this function by its name."""
    steps = make_default_policy_processor_steps(config, floored(dataset_stats), normalizer_device=config.device)
    return make_policy_processor_pipelines(
        input_steps=[
            steps.rename_observations,
            steps.add_batch_dim,
            DownsampleImages(config.image_size, config.camera_sizes, config.crops),
            EmbedInstruction(pieces=config.language_pieces),
            steps.to_device,
            steps.normalize,
        ],
        output_steps=[steps.unnormalize, steps.to_cpu],
    )


def floored(stats: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
    """Return ``stats`` reduced to mean and std, the latter not below :data:`STD_FLOOR` or :data:`IMAGE_STD_FLOOR`."""
    if stats is None:
        return None
    kept: dict[str, dict[str, Any]] = {}
    for key, values in stats.items():
        if "mean" in values and "std" in values:
            std = torch.as_tensor(np.asarray(values["std"]), dtype=torch.float32)
            mean = torch.as_tensor(np.asarray(values["mean"]), dtype=torch.float32)
            least = IMAGE_STD_FLOOR if key.startswith("observation.images.") else STD_FLOOR.get(key, 0.0)
            kept[key] = {"mean": mean, "std": std.clamp(min=least)}
    return kept
