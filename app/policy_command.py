"""``engram policy``: which policies come with Engram, and where a policy's files are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import tyro

from engram.core.registry import split_options
from engram.runtime.factories import policy_folder, shipped_policies


@dataclass(frozen=True)
class PolicyConfig:
    """List the shipped policies, or print a policy's folder for commands that want a path, such as LeRobot's:
    lerobot-eval --policy.path=$(engram policy path base) ..."""

    action: tyro.conf.Positional[Literal["list", "path"]] = "list"
    """list: names, memory and tasks; path: the folder alone."""
    name: tyro.conf.Positional[str] = "base"
    """Policy whose folder is printed: a shipped name or a folder."""


def policy(config: PolicyConfig) -> int:
    """Print what was asked for."""
    if config.action == "path":
        print(policy_folder(config.name))
        return 0
    for name, folder in shipped_policies().items():
        settings = json.loads((folder / "config.json").read_text())
        tasks = sorted({split_options(task)[0] for task in json.loads((folder / "card.json").read_text())["tasks"]})
        print(f"{name:10} {settings['type']}, sequence memory {settings['memory']}, trained on {', '.join(tasks)}")
    return 0
