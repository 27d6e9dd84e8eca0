"""Experience of earlier experiments, from which a learner draws beside its own.

As in Replay across Experiments (Tirumala et al. 2023, arXiv:2311.15951): part of each batch is what was collected
before, by whatever training, so that learning need not begin with nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from engram.core.errors import InvalidInputError, StoreError
from engram.learning.experience.reader import ExperienceReader, experience_file


def open_earlier(option: str, folders: Sequence[str], own: str = "") -> list[ExperienceReader]:
    """Return what reads each of ``folders``, that of an experience store or one with such a folder ``experience``.

    Args:
        option: names them in errors.
        folders: of the experience.
        own: id of the store that a learner fills, which can be none of them.

    Raises:
        InvalidInputError: one holds no experience, or none that can be read, is named twice, or is the learner's own.
    """
    found: dict[str, ExperienceReader] = {}
    for folder in folders:
        inner = Path(folder) / "experience"
        try:
            reader = ExperienceReader(inner if experience_file(inner).is_file() else folder)
        except StoreError as error:
            raise InvalidInputError(f"{option}: {folder}: {error}") from error
        if reader.id == own != "":
            raise InvalidInputError(f"{option}: {folder}: is the experience that the learner fills, expected another")
        if reader.id in found:
            raise InvalidInputError(f"{option}: {folder}: holds the same experience as one before, expected it once")
        found[reader.id] = reader
    return list(found.values())


def number_of(store: str, number: int) -> int:
    """Return what an episode of ``store``, a store's id, is called beside a learner's own: the same at every start.

    It is negative, so that none of the learner's own has it.
    """
    return -1 - int(hashlib.sha256(f"{store} {number}".encode()).hexdigest()[:15], 16)
