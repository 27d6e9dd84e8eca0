"""Scripted experts, found by task name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engram.core.errors import unknown_name
from engram.sim.experts.base import Expert, ExpertConfig
from engram.sim.experts.carry import PickPlaceExpert, StackExpert
from engram.sim.experts.drawer import DrawerExpert
from engram.sim.experts.push import PushExpert
from engram.sim.experts.simple import PressExpert, ReachExpert

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

EXPERTS: dict[str, type[Expert]] = {
    "reach": ReachExpert,
    "push_to_mark": PushExpert,
    "pick_place": PickPlaceExpert,
    "stack": StackExpert,
    "open_drawer": DrawerExpert,
    "press_button": PressExpert,
}
"""Task name -> expert class."""


def make_expert(task: str, world: MujocoWorld, config: ExpertConfig | None = None) -> Expert:
    """Return the expert for ``task`` in ``world``; raises UnknownNameError with the valid names."""
    if task not in EXPERTS:
        raise unknown_name("expert", task, EXPERTS)
    return EXPERTS[task](world, config)


__all__ = ["EXPERTS", "Expert", "ExpertConfig", "make_expert"]
