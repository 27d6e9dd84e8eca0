"""Simulated worlds by name: the tabletop, or ``package.module:attribute`` of your own."""

from __future__ import annotations

from engram.core.contracts import World
from engram.core.errors import InvalidInputError
from engram.core.registry import resolve, split_options
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.gap_world import GapWorld, gap_of_options
from engram.sim.render import check_rendering
from engram.sim.world import MujocoWorld, WorldConfig

WORLDS: dict[str, type[MujocoWorld]] = {"tabletop": MujocoWorld}
"""Worlds that Engram ships, by name."""


def make_world(spec: str = "tabletop", config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85) -> World:
    """Return the world called ``spec``.

    Args:
        spec: ``tabletop``; with a gap in the world (:mod:`engram.sim.gaps`), ``tabletop:gap=late`` or
            ``tabletop:brightness=0.7,mass=2``; or ``package.module:attribute``: a World, or what makes one. That is
            called with those of ``config`` and ``robot`` that its signature names.
        config: how the world is simulated and rendered; default: ``WorldConfig()``.
        robot: robot in it.

    Raises:
        UnknownNameError: there is no such world, option or gap; lists the valid names.
        InvalidInputError: it is no World, or its gap lies in how a robot moves.
        EngramError: this machine cannot render the world's cameras.
    """
    return _made(spec, World, config, robot)  # type: ignore[type-abstract]


def make_mujoco_world(
    spec: str = "tabletop", config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85
) -> MujocoWorld:
    """Return the world called ``spec``, a :class:`MujocoWorld`: scripted experts act on its simulated state."""
    return _made(spec, MujocoWorld, config, robot)


def _made[T: World](spec: str, contract: type[T], config: WorldConfig | None, robot: RobotConfig) -> T:
    name, options = split_options(spec)
    shipped, colon, _ = spec.partition(":")
    if colon and shipped in WORLDS and not options:
        raise InvalidInputError(f"world {spec!r}: expected {shipped}, {shipped}:gap=NAME or {shipped}:brightness=0.7")
    if not options:
        return _checked(resolve("world", spec, WORLDS, contract, config=config, robot=robot))  # type: ignore[arg-type]
    if name not in WORLDS:
        raise InvalidInputError(f"world {spec!r}: {name} takes no options; those of the shipped {', '.join(WORLDS)} do")
    world = GapWorld(gap_of_options(name, options), config, robot)
    assert isinstance(world, contract)
    return _checked(world)


def _checked[T: World](world: T) -> T:
    """Tell at the start, and not in the first episode, that a machine cannot render."""
    if isinstance(world, MujocoWorld) and world.config.profile != "none":
        check_rendering()
    return world
