"""Saves the policy's sequence memory to disk, so that a node restarted within an episode continues it."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from engram.core.contracts import Policy, StatefulPolicy
from engram.core.errors import DAMAGED

LONGEST_GAP_NS = 30_000_000_000
"""A saved episode that is older than this is a different episode, even if it has the same number."""


class EpisodeKeeper:
    """Writes the policy's sequence memory after every step and restores it in the next process.

    The file is replaced atomically: a killed process leaves either the previous step or this one. The file is not
    fsynced, so it survives the process but not a power cut. What the disk has changed is found by its checksum.
    """

    def __init__(self, folder: Path, on_problem: Callable[[str], None] = lambda _: None) -> None:
        self.path = folder / "episode.safetensors"
        self._on_problem = on_problem

    def save(self, policy: Policy, episode: int, instruction: str, stamp_ns: int) -> None:
        """Write what ``policy`` remembers at ``stamp_ns``; nothing if it remembers nothing."""
        arrays = policy.memory_state() if isinstance(policy, StatefulPolicy) else {}
        if not arrays:
            return
        about = json.dumps(
            {"episode": episode, "instruction": instruction, "stamp_ns": stamp_ns, "version": policy.version}
        )
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_file(dict(arrays), partial, metadata={"about": about, "crc32": _checksum(about, arrays)})
            partial.replace(self.path)
        except (OSError, SafetensorError) as error:  # a full disk must not stop the robot
            self._on_problem(f"{self.path}: the memory of this episode would not survive a restart: {error}")

    def restore(self, policy: Policy, episode: int, instruction: str, stamp_ns: int) -> str:
        """Give ``policy`` what it remembered of this very episode, if it is there.

        Returns the version of the weights that wrote it; empty when there was none.
        """
        if not isinstance(policy, StatefulPolicy) or not self.path.exists():
            return ""
        try:
            with safe_open(self.path, framework="np") as file:
                said = file.metadata()
            kept = load_file(self.path)
            if said["crc32"] != _checksum(said["about"], kept):
                raise ValueError("its checksum does not fit")
            about = json.loads(said["about"])
            gap_ns = stamp_ns - about["stamp_ns"]
            same = (about["episode"], about["instruction"]) == (episode, instruction)
            if not same or not 0 <= gap_ns <= LONGEST_GAP_NS:
                return ""
            policy.restore_memory(kept)
        except (*DAMAGED, SafetensorError) as error:
            self._on_problem(f"{self.path}: the memory of this episode is lost: {error}")
            return ""
        return str(about.get("version", ""))


def _checksum(about: str, arrays: Mapping[str, np.ndarray]) -> str:
    value = zlib.crc32(about.encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.tobytes(), value)
    return str(value)
