"""Objects named by words: a Hugging Face zero-shot detector finds boxes in the picture, depth makes them bodies."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.arrays import positive_int
from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError
from engram.core.geometry import make_pose
from engram.core.types import CameraFrame, DetectedObject, SceneObservation
from engram.perception.box import Box, fit_box
from engram.perception.cloud import Cloud, gather, lift
from engram.perception.embedding import TextEncoder, default_text_encoder
from engram.perception.measure import hidden_share, position_covariance, surface_color
from engram.perception.scene import scene_observation
from engram.perception.segmentation import SegmentationConfig, clusters
from engram.perception.support import Plane, SupportConfig, find_support

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ZeroShotDetectorConfig:
    """Which model looks for which words."""

    model: str = "google/owlv2-base-patch16-ensemble"
    """Name on the Hugging Face hub or folder of any AutoModelForZeroShotObjectDetection (OWL-ViT, OWLv2,
    Grounding DINO, OmDet-Turbo). A name that is not in the local cache needs the network once."""
    prompts: tuple[str, ...] = ("cube", "cup", "bin", "drawer", "button")
    """What to look for; a found object's label is the words it matched."""
    threshold: float = 0.25
    """Least score of a box, 0 to 1."""
    text_threshold: float = 0.25
    """Least score of a word (Grounding DINO)."""
    overlap: float = 0.5
    """Of two boxes that overlap more than this (intersection over union), the less sure one goes."""
    device: str = "cpu"
    """Torch device: cpu, or cuda where there is one."""
    torch_threads: int = 1
    """Torch threads of the whole process."""
    near_m: float = 0.10
    """Nearer returns are the camera's own mount [m]."""
    far_m: float = 2.5
    """Farther returns are the room [m]."""
    min_height_m: float = 0.006
    """What rises less above the table is table, unless the box shows nothing else (a mark) [m]."""
    min_points: int = 6
    """A box with fewer depth pixels of one thing has no place in space and is left out."""
    depth_noise_m: float = 0.002
    """Standard deviation of the camera's depth at 1 m [m]; grows with the square of the range."""

    def __post_init__(self) -> None:
        for name in ("torch_threads", "min_points"):
            positive_int(f"ZeroShotDetectorConfig.{name}", getattr(self, name))
        for name in ("threshold", "text_threshold", "overlap"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"ZeroShotDetectorConfig.{name}: {getattr(self, name)}, expected 0 to 1")
        if not self.prompts or any(not p.strip() for p in self.prompts):
            raise InvalidInputError(
                f"ZeroShotDetectorConfig.prompts: {self.prompts}, expected at least one, none empty"
            )


class ZeroShotDetector(Detector):
    """Words -> boxes by the model; boxes + depth -> upright boxes in ``base_link``. Loads at construction."""

    def __init__(self, config: ZeroShotDetectorConfig | None = None, encoder: TextEncoder | None = None) -> None:
        self.config = config or ZeroShotDetectorConfig()
        self.encoder = encoder or default_text_encoder()
        self._processor, self._model = _load(self.config)

    def detect(self, frame: CameraFrame) -> SceneObservation:
        """Return the named objects that have depth; raises InvalidInputError when ``frame`` has none."""
        if frame.depth is None:
            raise InvalidInputError(f"camera {frame.name!r}: no depth; ZeroShotDetector needs an RGB-D frame")
        points, valid = lift(frame, self.config.near_m, self.config.far_m)
        if not valid.any():
            return scene_observation(frame, ())
        plane = find_support(points[valid], SupportConfig())
        objects = []
        for label, score, window in self._boxes(frame):
            part = self._foreground(frame, points, valid, plane, window)
            if part is not None:
                objects.append(self._describe(frame, part, plane, label, score))
        return scene_observation(frame, tuple(objects))

    def _boxes(self, frame: CameraFrame) -> list[tuple[str, float, np.ndarray]]:
        """Return label, score and window (4,) px, x0 y0 x1 y1, of each box that the model is sure of, best first."""
        import torch
        from torchvision.ops import nms

        prompts = [list(self.config.prompts)]
        inputs = self._processor(images=frame.color.copy(), text=prompts, return_tensors="pt").to(self.config.device)
        with torch.inference_mode():
            outputs = self._model(**inputs)
        found = self._post_process(outputs, prompts, frame.color.shape[:2])
        kept = nms(found["boxes"].float(), found["scores"].float(), self.config.overlap).cpu().tolist()
        return [
            (self._name(found["text_labels"][i]), float(found["scores"][i]), window)
            for i in kept
            if np.isfinite(window := found["boxes"][i].float().cpu().numpy()).all()
        ]

    def _name(self, text: str) -> str:
        """Return the longest prompt in ``text``: Grounding DINO answers with the tokens it matched, not with one."""
        return max((p for p in self.config.prompts if p.lower() in text.lower()), key=len, default=text or "object")

    def _post_process(self, outputs: Any, prompts: list[list[str]], size: tuple[int, ...]) -> dict[str, Any]:
        """Call the processor's own post-processing with what it takes of our settings: each family differs."""
        process = self._processor.post_process_grounded_object_detection
        settings = {
            "threshold": self.config.threshold,
            "text_threshold": self.config.text_threshold,
            "text_labels": prompts,
            "target_sizes": [size],
        }
        takes = inspect.signature(process).parameters
        return process(outputs, **{name: value for name, value in settings.items() if name in takes})[0]

    def _foreground(
        self, frame: CameraFrame, points: np.ndarray, valid: np.ndarray, plane: Plane | None, window: np.ndarray
    ) -> Cloud | None:
        """Return the largest connected thing above the table inside ``window``, or the table's own points there."""
        height, width = valid.shape
        x0, y0, x1, y1 = np.clip(np.rint(window), 0, (width, height, width, height)).astype(int)
        inside = np.zeros_like(valid)
        inside[y0:y1, x0:x1] = True
        pixels = np.argwhere(inside & valid)
        if plane is not None and len(pixels):
            raised = plane.height(points[tuple(pixels.T)]) >= self.config.min_height_m
            pixels = pixels[raised] if raised.sum() >= self.config.min_points else pixels
        if len(pixels) < self.config.min_points:
            return None
        cloud = gather(frame, points, pixels)
        pieces = clusters(cloud, SegmentationConfig(min_points=self.config.min_points))
        return cloud.take(pieces[0]) if pieces else None

    def _describe(
        self, frame: CameraFrame, part: Cloud, plane: Plane | None, label: str, score: float
    ) -> DetectedObject:
        box = _stand(part, plane, frame.pose.position)
        unseen = hidden_share(frame, part) * float(box.size.max())
        return DetectedObject(
            label=label,
            score=min(1.0, score),
            pose=make_pose(box.centre, Rotation.from_euler("z", box.yaw)),
            position_covariance=position_covariance(frame, part, self.config.depth_noise_m, unseen),
            size=box.size,
            color=surface_color(part),
            embedding=self.encoder.encode([label])[0],
        )


def _stand(part: Cloud, plane: Plane | None, camera: np.ndarray) -> Box:
    """Fit the box of ``part``, down to the table when its lowest point is near it."""
    lowest = float(part.points[:, 2].min())
    table = plane.at(part.middle) if plane is not None else lowest
    near = abs(lowest - table) <= 0.012 + part.pixel
    return fit_box(part.points, min(lowest, table) if near else lowest, camera, part.pixel)


def _load(config: ZeroShotDetectorConfig) -> tuple[Any, PreTrainedModel]:
    """Return the processor, whose post-processing each family of models has its own of, and the model."""
    # the import takes seconds: whoever only names the detector should not pay for it
    import torch
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    torch.set_num_threads(config.torch_threads)
    _check_device(config.device)
    try:
        processor = AutoProcessor.from_pretrained(config.model)
        model = AutoModelForZeroShotObjectDetection.from_pretrained(config.model)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"ZeroShotDetectorConfig.model: {config.model!r} cannot be loaded ({error}); valid: a folder or a hub "
            "name of an AutoModelForZeroShotObjectDetection, in the local cache or with a network"
        ) from error
    return processor, model.eval().to(config.device)


def _check_device(device: str) -> None:
    """Raise InvalidInputError unless Torch can put a tensor on ``device``."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        valid = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        why = str(error).partition("\n")[0]
        raise InvalidInputError(f"ZeroShotDetectorConfig.device: {device!r} ({why}); valid: {valid}") from None
