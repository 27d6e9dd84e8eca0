"""Load SmolVLA and pi0 from a folder or the hub, as LeRobot saves them. A missing or unexpected weight is an error.

LeRobot's own ``from_pretrained`` of pi0 returns an untrained network when its weights cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from engram.core.errors import InvalidInputError, WeightsError, unknown_name
from engram.policies.backbones.pi0 import Pi0Trunk
from engram.policies.backbones.smolvla import SmolVLATrunk
from engram.policies.backbones.trunk import Trunk
from engram.policies.checkpoint import WEIGHTS, load_weights, sha256
from engram.policies.foreign_code import POSTPROCESSOR, PREPROCESSOR, forbid_remote_code, processor_folder
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.processor_engram_backbone import UnitImages
from engram.policies.lerobot.robot_features import EMPTY_CAMERA
from engram.policies.normalization import check_statistics
from engram.policies.sequence_memory import NONE
from engram.policies.source import Source

TRUNKS: dict[str, type[Trunk]] = {"pi0": Pi0Trunk, "smolvla": SmolVLATrunk}


def backbone_config(source: Source) -> Any:
    """Return the LeRobot configuration of a backbone; raises UnknownNameError unless it is one of ours."""
    if (kind := source.type()) not in TRUNKS:
        raise unknown_name(f"type of backbone {source.name}", kind, TRUNKS)
    return source.config()


def wrapped(name: str, revision: str | None = None, **fields: Any) -> EngramBackboneConfig:
    """Return the configuration of a memory beside the backbone ``name``; ``fields`` are of EngramBackboneConfig."""
    config = backbone_config(Source(name, revision))
    inputs = {k: f for k, f in (config.input_features or {}).items() if not k.startswith(EMPTY_CAMERA)}
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
    forbid_remote_code()
    source = Source(config.backbone, config.backbone_revision)
    path = source.file(WEIGHTS)
    if config.backbone_sha256 and sha256(path) != config.backbone_sha256:
        raise WeightsError(f"{path}: not the weights that the memory was trained with ({config.backbone_sha256[:12]})")
    inner = backbone_config(source)
    inner.device, inner.compile_model, inner.rtc_config = config.device, False, None
    if inner.type == "smolvla":
        inner.load_vlm_weights = False  # its own file has them all
    policy = get_policy_class(inner.type)(inner)
    load_weights(policy, path)
    return TRUNKS[inner.type](policy.to(config.device))


def backbone_processors(config: EngramBackboneConfig) -> tuple[Any, Any]:
    """Return the backbone's own pre- and postprocessor, as saved beside its weights, taking uint8 images too.

    Raises:
        UnknownNameError, WeightsError: the statistics of its normalisation do not fit, or see
            :func:`engram.policies.foreign_code.processor_folder`.
    """
    device = {"device_processor": {"device": config.device}}
    source = Source(config.backbone, config.backbone_revision)
    inner, folder = backbone_config(source), processor_folder(source)
    preprocess, postprocess = make_pre_post_processors(inner, folder, preprocessor_overrides=device)
    for name, pipeline in ((PREPROCESSOR, preprocess), (POSTPROCESSOR, postprocess)):
        check_statistics(source.file(name), pipeline, constant=True)
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
