"""Where a policy's files are: in a folder, or on the hub."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from draccus.utils import ParsingError
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from lerobot.configs.policies import PreTrainedConfig
from lerobot.utils.import_utils import register_third_party_plugins

from engram.core.errors import DAMAGED, EngramError, WeightsError, unknown_name
from engram.policies.foreign_code import check_memory_module


@dataclass(frozen=True)
class Source:
    """The location of a policy that LeRobot saved."""

    name: str  # folder or hub id
    revision: str | None = None

    def file(self, name: str) -> Path:
        """Return the path of one of its files, fetched if need be; raises WeightsError."""
        if Path(self.name).is_dir():
            path = Path(self.name) / name
            if not path.is_file():
                raise WeightsError(f"policy {self.name}: no {name} in this folder")
            return path
        try:
            return Path(hf_hub_download(self.name, name, revision=self.revision))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise WeightsError(f"policy {self.name!r}: neither a folder nor to be had from the hub: {error}") from None

    def type(self) -> str:
        """Return the type that LeRobot has it registered as; raises WeightsError."""
        path = self.file("config.json")
        try:
            return str(json.loads(path.read_text())["type"])
        except DAMAGED as error:
            raise WeightsError(f"{path}: not the configuration of a LeRobot policy: {error!r}") from None

    def config(self) -> Any:
        """Return its LeRobot configuration.

        Raises:
            UnknownNameError: LeRobot and its plugins have no such type of policy; lists those they have.
            WeightsError: there is no configuration, or none of this type.
            InvalidInputError: it names a memory whose module is not to be imported; see :func:`check_memory_module`.
        """
        kind = self.type()
        if kind not in PreTrainedConfig.get_known_choices():
            import_module("lerobot.policies")  # registers those of LeRobot
        if kind not in PreTrainedConfig.get_known_choices():
            register_third_party_plugins()
        if kind not in PreTrainedConfig.get_known_choices():
            raise unknown_name(f"type of policy {self.name}", kind, PreTrainedConfig.get_known_choices())
        path = self.file("config.json")
        check_memory_module(json.loads(path.read_text()).get("memory"), self)
        try:
            return PreTrainedConfig.from_pretrained(path.parent)
        except EngramError:
            raise
        except (*DAMAGED, ParsingError) as error:
            why = error.__cause__ if isinstance(error.__cause__, EngramError) else error  # a check of ours says more
            raise WeightsError(f"policy {self.name}: config.json is none of type {kind!r}: {why}") from None
