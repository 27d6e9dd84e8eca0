"""Simulated worlds by name: the tabletop, as a task or as a robot's surroundings, or ``package.module:attribute``."""

from __future__ import annotations

from engram.core.contracts import World
from engram.core.errors import InvalidInputError
from engram.core.registry import resolve, split_options
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.gap_world import GapWorld, gap_of_options
from engram.sim.render import check_rendering
from engram.sim.twin import GapWorkcell, UnjudgedWorkcell
from engram.sim.world import MujocoWorld, WorldConfig

WORLDS: dict[str, type[MujocoWorld]] = {"tabletop": MujocoWorld, "twin": UnjudgedWorkcell}
"""Worlds that Engram ships, by name."""
GAP_WORLDS: dict[str, type[GapWorld]] = {"tabletop": GapWorld, "twin": GapWorkcell}
"""The same, with a gap."""


def make_world(
    spec: str = "tabletop",
    config: WorldConfig | None = None,
    robot: RobotConfig = PANDA_2F85,
    *,
    judged: bool = True,
) -> World:
    """Return the world called ``spec``.

    Args:
        spec: ``tabletop``; with a gap in the world (:mod:`engram.sim.gaps`), ``tabletop:gap=late`` or
            ``tabletop:brightness=0.7,mass=2``; ``twin`` likewise, where nothing ends an episode; or
            ``package.module:attribute``: a World, or what makes one. That is called with those of ``config`` and
            ``robot`` that its signature names.
        config: how the world is simulated and rendered; default: ``WorldConfig()``.
        robot: robot in it.
        judged: the world has to say how an episode ends, as a twin does not.

    Raises:
        UnknownNameError: there is no such world, option or gap; lists the valid names.
        InvalidInputError: it is no World, or its gap lies in how a robot moves, or it is not judged but has to be.
        EngramError: this machine cannot render the world's cameras.
    """
    made = _made(spec, World, config, robot)  # type: ignore[type-abstract]
    return _judged(spec, made) if judged else made


def make_mujoco_world(
    spec: str = "tabletop", config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85
) -> MujocoWorld:
    """Return the world called ``spec``, a :class:`MujocoWorld`: scripted experts act on its simulated state."""
    return _judged(spec, _made(spec, MujocoWorld, config, robot))


def _judged[T: World](spec: str, world: T) -> T:
    if isinstance(world, UnjudgedWorkcell):
        raise InvalidInputError(f"world {spec!r}: no episode ends there, use it with `engram up robot driver:=twin`")
    return world


def _made[T: World](spec: str, contract: type[T], config: WorldConfig | None, robot: RobotConfig) -> T:
    name, options = split_options(spec)
    shipped, colon, _ = spec.partition(":")
    if colon and shipped in WORLDS and not options:
        raise InvalidInputError(f"world {spec!r}: expected {shipped}, {shipped}:gap=NAME or {shipped}:brightness=0.7")
    if not options:
        return _checked(resolve("world", spec, WORLDS, contract, config=config, robot=robot))  # type: ignore[arg-type]
    if name not in WORLDS:
        raise InvalidInputError(f"world {spec!r}: {name} takes no options; those of the shipped {', '.join(WORLDS)} do")
    world = GAP_WORLDS[name](gap_of_options(name, options), config, robot)
    assert isinstance(world, contract)
    return _checked(world)


def _checked[T: World](world: T) -> T:
    """Tell at the start, and not in the first episode, that a machine cannot render."""
    if isinstance(world, MujocoWorld) and world.config.profile != "none":
        check_rendering()
    return world
