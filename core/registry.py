"""Objects by name: ``package.module:attribute`` in a parameter, on the command line or in a configuration."""

from __future__ import annotations

import importlib
from typing import Any

from engram.core.contracts import Kinematics
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig


def load_object(spec: str) -> Any:
    """Return what ``package.module:attribute`` names; raises InvalidInputError when there is no such thing."""
    module, _, attribute = spec.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"{spec!r}: {error}; expected 'package.module:attribute'") from error


def make_kinematics(robot: RobotConfig) -> Kinematics:
    """Return the kinematics that ``robot`` names; raises InvalidInputError when it names none."""
    made = load_object(robot.kinematics)(robot)
    if not isinstance(made, Kinematics):
        raise InvalidInputError(f"{robot.kinematics!r} gives a {type(made).__name__}, expected a Kinematics")
    return made
