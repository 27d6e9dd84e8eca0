"""Simulated worlds by name: the tabletop, or ``package.module:attribute`` of your own."""

from __future__ import annotations

from engram.core.contracts import World
from engram.core.registry import resolve
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.render import check_rendering
from engram.sim.world import MujocoWorld, WorldConfig

WORLDS: dict[str, type[MujocoWorld]] = {"tabletop": MujocoWorld}
"""Worlds that Engram ships, by name."""


def make_world(spec: str = "tabletop", config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85) -> World:
    """Return the world called ``spec``.

    Args:
        spec: ``tabletop``, or ``package.module:attribute``: a World, or what makes one. That is called with those of
            ``config`` and ``robot`` that its signature names.
        config: how the world is simulated and rendered; default: ``WorldConfig()``.
        robot: robot in it.

    Raises:
        UnknownNameError: there is no such world; lists the valid names.
        InvalidInputError: it is no World.
        EngramError: this machine cannot render the world's cameras.
    """
    return _checked(resolve("world", spec, WORLDS, World, config=config, robot=robot))  # type: ignore[type-abstract]


def make_mujoco_world(
    spec: str = "tabletop", config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85
) -> MujocoWorld:
    """Return the world called ``spec``, a :class:`MujocoWorld`: scripted experts act on its simulated state."""
    made = _checked(resolve("world", spec, WORLDS, MujocoWorld, config=config, robot=robot))
    assert isinstance(made, MujocoWorld)
    return made


def _checked(world: World) -> World:
    """Tell at the start, and not in the first episode, that a machine cannot render."""
    if isinstance(world, MujocoWorld) and world.config.profile != "none":
        check_rendering()
    return world
