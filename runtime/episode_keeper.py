"""The policy's memory of the running episode on disk, so that a node restarted in mid-episode does not forget."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from engram.core.contracts import Policy, StatefulPolicy
from engram.core.errors import InvalidInputError

LONGEST_GAP_NS = 30_000_000_000
"""An episode of the same name that was last seen longer ago is another one."""


class EpisodeKeeper:
    """Writes a policy's episode memory after every step and gives it back to the process that comes after.

    The file is replaced in one move: a process that is killed leaves the step before or this one, whole. It is not
    synced to the disk: it outlives the process, not a power cut, after which the episode is over anyway.
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
            save_file(dict(arrays), partial, metadata={"about": about})
            partial.replace(self.path)
        except OSError as error:  # a full disk must not stop the robot
            self._on_problem(f"{self.path}: the memory of this episode would not survive a restart: {error}")

    def restore(self, policy: Policy, episode: int, instruction: str, stamp_ns: int) -> str:
        """Give ``policy`` what it remembered of this very episode, if it is there.

        Returns the version of the weights that wrote it; empty when there was none.
        """
        if not isinstance(policy, StatefulPolicy) or not self.path.exists():
            return ""
        try:
            with safe_open(self.path, framework="np") as file:
                about = json.loads(file.metadata()["about"])
            gap_ns = stamp_ns - about["stamp_ns"]
            same = (about["episode"], about["instruction"]) == (episode, instruction)
            if not same or not 0 <= gap_ns <= LONGEST_GAP_NS:
                return ""
            policy.restore_memory(load_file(self.path))
        except (OSError, SafetensorError, InvalidInputError) as error:
            self._on_problem(f"{self.path}: the memory of this episode is lost: {error}")
            return ""
        return str(about.get("version", ""))
