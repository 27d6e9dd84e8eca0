"""Profiles of robots, read from JSON."""

from __future__ import annotations

from typing import Any

from engram.core.types import Embodiment, Skill


def embodiment_from(data: Any) -> Embodiment:
    """Return the profile whose ``asdict`` is ``data``, with lists for tuples: what JSON makes of it."""
    skills = tuple(Skill(**skill) for skill in data["skills"])
    return Embodiment(**{**data, "sensors": tuple(data["sensors"]), "skills": skills})
