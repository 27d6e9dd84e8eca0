"""What a learner says with signed weights: to which robots, and in which order. Old announcements are not news.

A signature alone tells who made weights, not when: whoever recorded an approved manifest of last year could send it
again. Each announcement therefore carries a sequence number that only grows, and the robots that it is for, both in
the signed part of the manifest (``config``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
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


def sequence(manifest: PolicyManifest) -> int:
    """Return which of its learner's announcements ``manifest`` is; 0: it does not say."""
    said = manifest.config.get(KEY)
    return _number(said) if isinstance(said, dict) else 0


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
        self._path, self._last = path, 0

    def next(self, now_ns: int) -> int:
        """Return a number larger than every one before, restarts included."""
        number = max(now_ns, 1 + self._last, 1 + _number(_read(self._path)))
        write_atomic(self._path, json.dumps({"sequence": number}).encode())
        self._last = number
        return number


class AnnouncementLog:
    """The newest announcement that a robot has taken of each key, on its disk once :meth:`write` has returned.

    A file that is deleted meanwhile is written again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}  # entries as this process has read or taken them, by key
        self._unwritten = False  # whether one of them is not on the disk yet
        with suppress(WeightsError, OSError):  # the first check says so
            self._known = _read(path)

    def check(self, manifest: PolicyManifest, robot_id: str, key: str) -> None:
        """Raise WeightsError unless ``manifest``, signed by ``key``, is for ``robot_id`` and no older than the newest.

        The newest itself may come again: it is latched, and a node that restarts takes its weights anew.
        """
        what, number = f"manifest {manifest.version!r}", sequence(manifest)
        if number < 1:
            raise WeightsError(f"{what}: no sequence number is signed, so that it may be an old one")
        check_robot(manifest, robot_id)
        newest = (_read(self._path) | self._known).get(key)
        newest = newest if isinstance(newest, dict) else {}
        known = _number(newest)
        if number < known or (number == known and newest.get("digest") != _digest(manifest)):
            raise WeightsError(f"{what}: announcement {number} is not newer than {known}, which this robot has taken")

    def take(self, manifest: PolicyManifest, key: str) -> None:
        """Take note that ``manifest`` of ``key`` is the newest, until :meth:`write` in RAM alone."""
        entry = {"sequence": sequence(manifest), "digest": _digest(manifest), "version": manifest.version}
        self._known[key], self._unwritten = entry, True

    @property
    def waits(self) -> bool:
        """Whether something that was taken is not durable, or not any more."""
        return self._unwritten or (bool(self._known) and not self._path.exists())

    def write(self) -> None:
        """Make what was taken durable; raises OSError, and may be called again, where the disk refuses it."""
        if self.waits:
            write_atomic(self._path, json.dumps(_read(self._path) | self._known, sort_keys=True).encode())
            self._unwritten = False


def _digest(manifest: PolicyManifest) -> str:
    return hashlib.sha256(canonical(manifest)).hexdigest()


def _number(said: Mapping[str, Any]) -> int:
    number = said.get("sequence", 0)
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _read(path: Path) -> dict[str, Any]:
    """Return what the file says; a damaged one is an error: without it, everything old would be news.

    Raises:
        WeightsError: it is damaged.
        OSError: the disk does not give it now.
    """
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError:
        raise
    except DAMAGED as error:
        raise WeightsError(f"{path} cannot be read: {error}; delete it only if no old weights can be sent") from None
    if not isinstance(values, dict):
        raise WeightsError(f"{path}: a {type(values).__name__}, expected an object")
    return values
