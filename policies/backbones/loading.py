"""Load SmolVLA and pi0 from a folder or the hub, as LeRobot saves them. A missing or unexpected weight is an error.

LeRobot's own ``from_pretrained`` of pi0 returns an untrained network when its weights cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from engram.core.errors import InvalidInputError, WeightsError, unknown_name
from engram.policies.backbones.pi0 import Pi0Trunk
from engram.policies.backbones.smolvla import SmolVLATrunk
from engram.policies.backbones.trunk import Trunk
from engram.policies.checkpoint import WEIGHTS, sha256
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.processor_engram_backbone import UnitImages
from engram.policies.sequence_memory import NONE

TRUNKS: dict[str, type[Trunk]] = {"pi0": Pi0Trunk, "smolvla": SmolVLATrunk}
_EMPTY_CAMERA = "observation.images.empty_camera_"


@dataclass(frozen=True)
class Source:
    """The location of a backbone."""

    name: str  # folder or hub id
    revision: str | None = None

    def file(self, name: str) -> Path:
        """Return the path of one of its files, fetched if need be; raises WeightsError."""
        if Path(self.name).is_dir():
            path = Path(self.name) / name
            if not path.is_file():
                raise WeightsError(f"backbone {self.name}: no {name} in this folder")
            return path
        try:
            return Path(hf_hub_download(self.name, name, revision=self.revision))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise WeightsError(
                f"backbone {self.name!r}: neither a folder nor to be had from the hub: {error}"
            ) from None

    def config(self) -> Any:
        """Return its LeRobot configuration; raises UnknownNameError unless it is a backbone of ours."""
        self.file("config.json")
        config: Any = PreTrainedConfig.from_pretrained(self.name, revision=self.revision)
        if config.type not in TRUNKS:
            raise unknown_name(f"type of backbone {self.name}", config.type, TRUNKS)
        return config


def wrapped(name: str, revision: str | None = None, **fields: Any) -> EngramBackboneConfig:
    """Return the configuration of a memory beside the backbone ``name``; ``fields`` are of EngramBackboneConfig."""
    config = Source(name, revision).config()
    inputs = {k: f for k, f in (config.input_features or {}).items() if not k.startswith(_EMPTY_CAMERA)}
    given = {
        "backbone": str(Path(name).resolve()) if Path(name).is_dir() else name,
        "backbone_revision": revision,
        "input_features": inputs,
        "output_features": config.output_features,
        "normalization_mapping": config.normalization_mapping,
        "chunk_size": config.chunk_size,
        "n_action_steps": config.n_action_steps,
        "device": config.device,
        "memory": NONE,
    }
    return EngramBackboneConfig(**{**given, **fields})


def load_trunk(config: EngramBackboneConfig) -> Trunk:
    """Return the frozen backbone that ``config`` names, on its device.

    Raises:
        WeightsError: weights are missing, left over, not finite, of another shape, or not those of ``config``.
    """
    source = Source(config.backbone, config.backbone_revision)
    path = source.file(WEIGHTS)
    if config.backbone_sha256 and sha256(path) != config.backbone_sha256:
        raise WeightsError(f"{path}: not the weights that the memory was trained with ({config.backbone_sha256[:12]})")
    inner = source.config()
    inner.device, inner.compile_model, inner.rtc_config = config.device, False, None
    if inner.type == "smolvla":
        inner.load_vlm_weights = False  # its own file has them all
    policy = get_policy_class(inner.type)(inner)
    load_weights(policy, path)
    return TRUNKS[inner.type](policy.to(config.device))


def load_weights(policy: Any, path: Path) -> None:
    """Load ``path`` into a LeRobot ``policy``, under the names that LeRobot has had for its tensors."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file: {error}") from None
    if hasattr(policy, "_fix_pytorch_state_dict_keys"):  # openpi's names, in older files of pi0
        tensors = policy._fix_pytorch_state_dict_keys(tensors, policy.config)
        tensors = {k if k.startswith("model.") else f"model.{k}": v for k, v in tensors.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise WeightsError(f"{path}: tensor {name!r} holds a value that is not finite")
    try:
        missing, unknown = policy.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise WeightsError(f"{path}: {error}") from None
    missing = sorted(set(missing) - _tied(policy, tensors))
    for kind, names in (("lacks", missing), ("has unknown", sorted(unknown))):
        if names:
            raise WeightsError(f"{path}: {kind} tensor {names[0]!r} ({len(names)} in all)")


def _tied(policy: nn.Module, loaded: dict[str, Tensor]) -> set[str]:
    """Return the names of tensors that share the memory of a loaded one: files hold those once."""
    state = policy.state_dict()
    there = {state[name].data_ptr() for name in loaded.keys() & state.keys()}
    return {name for name, tensor in state.items() if tensor.data_ptr() in there}


def backbone_processors(config: EngramBackboneConfig) -> tuple[Any, Any]:
    """Return the backbone's own pre- and postprocessor, as saved beside its weights, taking uint8 images too."""
    device = {"device_processor": {"device": config.device}}
    source = Source(config.backbone, config.backbone_revision)
    source.file("policy_preprocessor.json")
    preprocess, postprocess = make_pre_post_processors(
        source.config(), config.backbone, source.revision, preprocessor_overrides=device
    )
    preprocess.steps = [UnitImages(), *preprocess.steps]
    return preprocess, postprocess


def fits(config: EngramBackboneConfig, features: dict[str, Any]) -> None:
    """Raise InvalidInputError unless a dataset's ``features`` are what the backbone takes and gives."""
    for name, feature in ((config.input_features or {}) | (config.output_features or {})).items():
        if name not in features:
            raise InvalidInputError(
                f"backbone {config.backbone}: takes {name!r}, the dataset has {', '.join(sorted(features))}; "
                "fine-tune the backbone on this dataset first: lerobot-train --policy.path"
            )
        shape = tuple(features[name]["shape"])
        if feature.shape != shape and sorted(feature.shape) != sorted(shape):  # images stand channels first or last
            raise InvalidInputError(f"backbone {config.backbone}: takes {name!r} of {feature.shape}, data has {shape}")
