"""What a learner says with signed weights: to which robots, and in which order. Old announcements are not news.

A signature alone tells who made weights, not when: whoever recorded an approved manifest of last year could send it
again. Each announcement therefore carries a sequence number that only grows, and the robots that it is for, both in
the signed part of the manifest (``config``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, WeightsError
from engram.core.types import PolicyManifest
from engram.learning.weights.manifest import canonical

KEY = "announced"


def announced(manifest: PolicyManifest, robots: Sequence[str], sequence: int) -> PolicyManifest:
    """Return ``manifest`` as number ``sequence`` of its learner's announcements, for ``robots``."""
    return replace(manifest, config={**manifest.config, KEY: {"sequence": sequence, "robots": list(robots)}})


def check_robot(manifest: PolicyManifest, robot_id: str) -> None:
    """Raise WeightsError unless ``manifest`` is for ``robot_id``: a canary is for one robot of several."""
    said = manifest.config.get(KEY)
    robots = said.get("robots") if isinstance(said, dict) else None
    if not isinstance(robots, list) or robot_id not in robots:
        raise WeightsError(
            f"manifest {manifest.version!r}: meant for {robots}, this robot is {robot_id!r}; the learner's weights_for "
            "lists its robots, else those that sent it experience"
        )


class AnnouncementCounter:
    """Numbers a learner's announcements: nanoseconds of the wall clock, but never fewer than before."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def next(self, now_ns: int) -> int:
        """Return a number larger than every one before, restarts included."""
        number = max(now_ns, 1 + _number(_read(self._path)))
        write_atomic(self._path, json.dumps({"sequence": number}).encode())
        return number


class AnnouncementLog:
    """The newest announcement that a robot has taken of each key, on its disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, manifest: PolicyManifest, robot_id: str, key: str) -> None:
        """Raise WeightsError unless ``manifest``, signed by ``key``, is for ``robot_id`` and no older than the newest.

        The newest itself may come again: it is latched, and a node that restarts takes its weights anew.
        """
        what, said = f"manifest {manifest.version!r}", manifest.config.get(KEY)
        if not isinstance(said, dict) or _number(said) < 1:
            raise WeightsError(f"{what}: no sequence number is signed, so that it may be an old one")
        check_robot(manifest, robot_id)
        newest = _read(self._path).get(key)
        newest = newest if isinstance(newest, dict) else {}
        number, known = _number(said), _number(newest)
        if number < known or (number == known and newest.get("digest") != _digest(manifest)):
            raise WeightsError(f"{what}: announcement {number} is not newer than {known}, which this robot has taken")

    def take(self, manifest: PolicyManifest, key: str) -> None:
        """Take note that ``manifest`` of ``key`` is the newest."""
        entry = {"sequence": _number(manifest.config[KEY]), "digest": _digest(manifest), "version": manifest.version}
        write_atomic(self._path, json.dumps({**_read(self._path), key: entry}, sort_keys=True).encode())


def _digest(manifest: PolicyManifest) -> str:
    return hashlib.sha256(canonical(manifest)).hexdigest()


def _number(said: Mapping[str, Any]) -> int:
    number = said.get("sequence", 0)
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _read(path: Path) -> dict[str, Any]:
    """Return what the file says; a damaged one is an error: without it, everything old would be news."""
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except DAMAGED as error:
        raise WeightsError(f"{path} cannot be read: {error}; delete it only if no old weights can be sent") from None
    if not isinstance(values, dict):
        raise WeightsError(f"{path}: a {type(values).__name__}, expected an object")
    return values
