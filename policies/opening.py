"""Open a policy by name: its network and processors, of our own types and LeRobot's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from lerobot.lerobot_types import PolicyAction
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.processor.converters import (
    batch_to_transition,
    policy_action_to_transition,
    transition_to_batch,
    transition_to_policy_action,
)
from lerobot.processor.pipeline import PolicyProcessorPipeline
from safetensors import SafetensorError

from engram.core.errors import (
    DAMAGED,
    EngramError,
    InvalidInputError,
    UnknownNameError,
    WeightsError,
    unknown_name,
)
from engram.core.paths import at_home, is_on_hub
from engram.core.types import Lineage
from engram.policies.checkpoint import CARD, WEIGHTS, load_weights, read_weights, sha256
from engram.policies.foreign_code import POSTPROCESSOR, PREPROCESSOR, forbid_remote_code, processor_folder
from engram.policies.lerobot import processor_engram_vla  # noqa: F401 - registers our steps
from engram.policies.lerobot.configuration_engram_backbone import EngramBackboneConfig
from engram.policies.lerobot.configuration_engram_vla import EngramVLAConfig
from engram.policies.lerobot.modeling_engram_vla import EngramVLAPolicy
from engram.policies.lerobot.network_policy import NetworkPolicy
from engram.policies.lineage import lineage_of
from engram.policies.motion_edits import check_edit
from engram.policies.normalization import check_scaled, check_statistics
from engram.policies.source import Source

OWN = ("engram_vla", "engram_backbone")
"""Our types of policies."""
BACKBONES = ("pi0", "smolvla")
"""LeRobot's policies to which a sequence memory can be added."""


@dataclass(frozen=True)
class Opened:
    """A policy on its device, with what goes before and after it."""

    policy: PreTrainedPolicy
    preprocess: Any
    postprocess: Any
    version: str  # type and the first digits of the weights' sha256, and of a motion edit's that changes anything
    lineage: Lineage
    instructions: tuple[str, ...] = ()  # that it was trained on, by its card


def open_policy(name: str | Path) -> Opened:
    """Open a shipped checkpoint's name, a folder that LeRobot's ``save_pretrained`` wrote, or a policy on the hub.

    No code runs that the checkpoint brings or names: see :mod:`engram.policies.foreign_code`.

    Raises:
        UnknownNameError: nothing of these, with the shipped ones; or of a type, or with a processor step, that LeRobot
            does not know, with those it knows.
        InvalidInputError: a policy of a kind that cannot be run, or that needs code of its own.
        WeightsError: there is no configuration or processor, the weights do not fit, the statistics of its
            normalisation do not, or its motion edit is of another base.
    """
    if is_on_hub(str(name)):
        _check_on_hub(str(name))
        source = Source(str(name))
    else:
        folder = checkpoint_folder(name)
        if not (folder / "config.json").is_file():
            raise WeightsError(f"{folder}: no policy, there is no config.json in it{_hint(folder)}")
        source = Source(str(folder))
    kind = source.type()
    opened = _open_own if kind in OWN else _open_backbone if kind in BACKBONES else _open_lerobots
    policy, before, after = opened(source)
    root = sha256(source.file(WEIGHTS))
    edit = check_edit(source.name, before, after, root)
    if edit is not None and kind == "engram_vla":
        raise InvalidInputError(f"policy {name}: type {kind!r} is trained itself, expected no step engram_motion_edit")
    edited = f"-edit-{edit.digest[:8]}" if edit is not None and edit.changes else ""
    lineage = lineage_of(policy, (before, after), root, str(name))
    instructions = trained_instructions(source) if kind in OWN else ()
    return Opened(policy, before, after, f"{kind}-{root[:12]}{edited}", lineage, instructions)


def trained_instructions(source: Source) -> tuple[str, ...]:
    """Return the instructions on the card of the policy at ``source``; empty where it has none, or no card.

    Raises:
        InvalidInputError: the card cannot be read.
    """
    try:
        card = source.file(CARD)
    except WeightsError:  # LeRobot's checkpoints have none
        return ()
    try:
        known = dict(json.loads(card.read_text())).get("instructions", [])
    except DAMAGED as error:
        raise InvalidInputError(f"{card}: cannot be read: {error}") from error
    if not isinstance(known, list) or not all(isinstance(words, str) for words in known):
        raise InvalidInputError(f"{card}: instructions: expected a list of sentences")
    return tuple(known)


def _open_own(source: Source) -> tuple[NetworkPolicy, Any, Any]:
    config = source.config()
    if isinstance(config, EngramVLAConfig):
        policy: NetworkPolicy = EngramVLAPolicy(config)
    else:
        assert isinstance(config, EngramBackboneConfig)
        from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy  # slow to import

        policy = EngramBackbonePolicy(config)
    policy.load_state_dict(read_weights(source.file(WEIGHTS), policy))
    before, after = saved_processors(source, config.device)
    constant = not isinstance(config, EngramVLAConfig)  # of a backbone, and so LeRobot's
    features = config.input_features or {}, config.output_features or {}
    for name, pipeline, scaled in zip((PREPROCESSOR, POSTPROCESSOR), (before, after), features, strict=True):
        check_scaled(source.file(name), pipeline, scaled, config.normalization_mapping)
        check_statistics(source.file(name), pipeline, constant=constant)
    return policy.to(config.device), before, after


def _open_backbone(source: Source) -> tuple[NetworkPolicy, Any, Any]:
    """Open a backbone without a sequence memory."""
    from engram.policies.backbones.loading import backbone_processors, wrapped  # slow to import
    from engram.policies.lerobot.modeling_engram_backbone import EngramBackbonePolicy

    config = wrapped(source.name)
    return EngramBackbonePolicy(config), *backbone_processors(config)


def _open_lerobots(source: Source) -> tuple[PreTrainedPolicy, Any, Any]:
    """Open any other policy of LeRobot's as LeRobot does, but refuse weights that are missing or left over."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors  # slow to import

    forbid_remote_code()
    config = source.config()
    if config.use_peft:
        raise InvalidInputError(f"policy {source.name}: an adapter (use_peft); merge it into its policy and save that")
    if hasattr(config, "pretrained_backbone_weights"):
        config.pretrained_backbone_weights = None  # its own file has them all: nothing is to be downloaded
    if hasattr(config, "compile_model"):
        config.compile_model = False
    try:
        policy = get_policy_class(config.type)(config)
    except (ImportError, ValueError) as error:  # a package is missing, or features that the type needs
        raise InvalidInputError(f"policy {source.name} of type {config.type!r}: {error}") from None
    load_weights(policy, source.file(WEIGHTS))
    device = {"device_processor": {"device": config.device}}
    folder = processor_folder(source)
    with _readable(source):
        before, after = make_pre_post_processors(config, folder, preprocessor_overrides=device)
    for name, pipeline in ((PREPROCESSOR, before), (POSTPROCESSOR, after)):
        check_statistics(source.file(name), pipeline, constant=True)
    return policy.to(config.device).eval(), before, after


def saved_processors(source: Source, device: str) -> tuple[Any, Any]:
    """Return pre- and postprocessor of a policy of ours; LeRobot's factory gives the same, and imports everything.

    Raises:
        UnknownNameError, WeightsError: they are not there, cannot be read, or see :func:`processor_folder`.
    """
    folder = processor_folder(source)
    with _readable(source):
        before = PolicyProcessorPipeline[dict[str, Any], dict[str, Any]].from_pretrained(
            folder,
            config_filename=PREPROCESSOR,
            overrides={"device_processor": {"device": device}},
            to_transition=batch_to_transition,
            to_output=transition_to_batch,
        )
        after = PolicyProcessorPipeline[PolicyAction, PolicyAction].from_pretrained(
            folder,
            config_filename=POSTPROCESSOR,
            to_transition=policy_action_to_transition,
            to_output=transition_to_policy_action,
        )
    return before, after


@contextmanager
def _readable(source: Source) -> Iterator[None]:
    """Raise WeightsError for processors of ``source`` that LeRobot cannot read."""
    try:
        yield
    except EngramError:
        raise
    except (*DAMAGED, ImportError, SafetensorError) as error:
        raise WeightsError(f"policy {source.name}: its processors cannot be read: {error}") from error


def files_of(name: str | Path) -> Path:
    """Return the folder with the files of a policy; of one on the hub that is where they are fetched to.

    Raises UnknownNameError: see :func:`open_policy`.
    """
    if is_on_hub(str(name)):
        _check_on_hub(str(name))
        return Source(str(name)).file("config.json").parent
    return Source(str(checkpoint_folder(name))).file("config.json").parent


def checkpoint_folder(name: str | Path) -> Path:
    """Return the folder of a shipped checkpoint or of any other; UnknownNameError lists the shipped ones."""
    shipped, folder = _shipped(), at_home(name)
    if str(name) in shipped and not (folder / WEIGHTS).exists():  # a checkout has a folder called memory, too
        return shipped[str(name)]
    if not folder.is_dir():
        raise unknown_name("policy", name, [*shipped, "a folder", "owner/name on the hub"])
    return folder


def _hint(folder: Path) -> str:
    """Name the policy inside ``folder``, where ``engram train`` and ``lerobot-train`` put it."""
    for inside in ("policy", "checkpoints/last/pretrained_model", "last/pretrained_model", "pretrained_model"):
        if (folder / inside / "config.json").is_file():
            return f"; did you mean {folder / inside}?"
    return ""


def _shipped() -> dict[str, Path]:
    folders = (Path(str(resources.files("engram.policies"))) / "checkpoints").glob("*")
    return {folder.name: folder for folder in folders if (folder / WEIGHTS).exists()}


def _check_on_hub(name: str) -> None:
    """Raise UnknownNameError unless the hub, or what was fetched from it before, has ``name``."""
    try:
        Source(name).file("config.json")
    except WeightsError as error:
        valid = ", ".join([*sorted(_shipped()), "a folder", "owner/name on the hub"])
        raise UnknownNameError(
            f"unknown policy {name!r}: there is no folder {Path(name).absolute()}, and as a name on the hub it is not "
            f"to be had; valid: {valid} ({str(error).splitlines()[0]})"
        ) from None
