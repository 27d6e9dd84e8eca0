"""``engram keys``: make the key that signs weights, trust one, and list both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from engram.core.errors import InvalidInputError
from engram.core.paths import at_home
from engram.learning.weights.keys import (
    PUBLIC,
    SIGNING,
    TRUSTED,
    fingerprint,
    keys_folder,
    load_public_key,
    make_signing_key,
    trust,
    trusted_keys,
)


@dataclass(frozen=True)
class KeysConfig:
    """Keys that say whose weights a robot takes. The learner signs with the private key; the policy node of a robot
    takes weights that a trusted public key has signed, and no others."""

    action: tyro.conf.Positional[Literal["show", "new", "trust"]] = "show"
    """show: list the keys; new: make a key pair to sign with; trust: let the owner of a public key send weights."""
    public_key: tyro.conf.Positional[Path | None] = None
    """For trust: PEM file with the public key; default: the robot's own, made by new."""
    robot: str = "robot0"
    """robot_id of the robot whose keys are meant: its namespace with _ for /, robot0 without one."""
    folder: Path | None = None
    """Folder of the keys; default: keys in the robot's data folder."""


def keys(config: KeysConfig) -> int:
    """Make, trust or list keys."""
    folder = keys_folder(config.robot) if config.folder is None else at_home(config.folder)
    if config.public_key is not None and config.action != "trust":
        raise InvalidInputError(f"public_key: for trust only, not for {config.action}")
    if config.action == "new":
        key = make_signing_key(folder)
        print(f"{fingerprint(key)}  {folder / SIGNING} (private: it stays on this machine)")
        print(f"Trust it on the robot: engram keys trust {folder / PUBLIC}")
        return 0
    if config.action == "trust":
        key = trust(folder, config.public_key or folder / PUBLIC)
        print(f"{fingerprint(key)}  is trusted in {folder / TRUSTED}")
        print("Let the policy node take what it signed: engram up robot accept:=approved")
        return 0
    _show(folder)
    return 0


def _show(folder: Path) -> None:
    own = folder / PUBLIC
    print(f"signs:   {fingerprint(load_public_key(own))}  {folder / SIGNING}" if own.exists() else "signs:   no key")
    names = trusted_keys(folder / TRUSTED)
    print("trusted: " + (", ".join(names) or "no key, so that a robot takes no weights") + f"  ({folder / TRUSTED})")
