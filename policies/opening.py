"""Open a policy by name: its network and processors, for our own types and LeRobot's backbones."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import make_pre_post_processors

from engram.core.errors import InvalidInputError, UnknownNameError, WeightsError, unknown_name
from engram.core.types import Lineage
from engram.policies.checkpoint import WEIGHTS, read_weights, sha256
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lineage import lineage_of

BACKBONES = ("pi0", "smolvla")
"""LeRobot's policies that run unchanged and to which a sequence memory can be added."""


@dataclass(frozen=True)
class Opened:
    """A policy on its device, with what goes before and after it."""

    policy: NetworkPolicy
    preprocess: Any
    postprocess: Any
    version: str  # type and the first digits of the weights' sha256
    lineage: Lineage


def open_policy(name: str | Path) -> Opened:
    """Open a shipped checkpoint's name, a folder that LeRobot's ``save_pretrained`` wrote, or a backbone on the hub.

    Raises:
        UnknownNameError: nothing of these; lists the shipped ones.
        InvalidInputError: a policy of a type that we do not run.
        WeightsError: there is no configuration, or the weights do not fit it.
    """
    if _is_on_hub(str(name)):
        _check_on_hub(str(name))
        return _open_backbone(str(name))
    folder = checkpoint_folder(name)
    if not (folder / "config.json").is_file():
        hint = f"; did you mean {folder / 'policy'}?" if (folder / "policy" / "config.json").is_file() else ""
        raise WeightsError(f"{folder}: no policy, there is no config.json in it{hint}")
    config: Any = PreTrainedConfig.from_pretrained(folder)
    if config.type in BACKBONES:
        return _open_backbone(str(folder))
    if isinstance(config, EngramVLAConfig):
        policy: NetworkPolicy = EngramVLAPolicy(config)
    elif isinstance(config, EngramBackboneConfig):
        from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy  # slow to import

        policy = EngramBackbonePolicy(config)
    else:
        expected = ", ".join(("engram_vla", "engram_backbone", *BACKBONES))
        raise InvalidInputError(f"{folder}: policy type {config.type!r}, expected one of {expected}")
    policy.load_state_dict(read_weights(folder / WEIGHTS, policy))
    device = {"device_processor": {"device": config.device}}
    before, after = make_pre_post_processors(config, str(folder), preprocessor_overrides=device)
    root = sha256(folder / WEIGHTS)
    lineage = lineage_of(policy, (before, after), root, str(name))
    return Opened(policy.to(config.device), before, after, f"{config.type}-{root[:12]}", lineage)


def _open_backbone(name: str) -> Opened:
    """Open a backbone without a sequence memory."""
    from engram.policies.backbones.loading import Source, backbone_processors, wrapped  # slow to import
    from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy

    config, source = wrapped(name), Source(name)
    policy = EngramBackbonePolicy(config)
    root = sha256(source.file(WEIGHTS))
    before, after = backbone_processors(config)
    lineage = lineage_of(policy, (before, after), root, name)
    return Opened(policy, before, after, f"{source.config().type}-{root[:12]}", lineage)


def checkpoint_folder(name: str | Path) -> Path:
    """Return the folder of a shipped checkpoint or of any other; UnknownNameError lists the shipped ones."""
    shipped, folder = _shipped(), Path(name)
    if str(name) in shipped and not (folder / WEIGHTS).exists():  # a checkout has a folder called memory, too
        return shipped[str(name)]
    if not folder.is_dir():
        raise unknown_name("policy", name, [*shipped, "a folder", "owner/name on the hub"])
    return folder


def _shipped() -> dict[str, Path]:
    folders = (Path(str(resources.files("engram.policies"))) / "checkpoints").glob("*")
    return {folder.name: folder for folder in folders if (folder / WEIGHTS).exists()}


def _is_on_hub(name: str) -> bool:
    """Tell whether ``name`` can only be owner/name on the hub."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).is_dir()


def _check_on_hub(name: str) -> None:
    """Raise UnknownNameError unless the hub, or what was fetched from it before, has ``name``."""
    from engram.policies.backbones.loading import Source  # slow to import

    try:
        Source(name).file("config.json")
    except WeightsError as error:
        valid = ", ".join([*sorted(_shipped()), "a folder", "owner/name on the hub"])
        raise UnknownNameError(
            f"unknown policy {name!r}: there is no folder {Path(name).absolute()}, and as a name on the hub it is not "
            f"to be had; valid: {valid} ({str(error).splitlines()[0]})"
        ) from None
