"""Scripted experts of the memory tasks, found by task name."""

from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.experts.memory.blocks import ChangeFoodExpert, PlaceUnseenExpert, PutBackExpert, RearrangeExpert
from engram.sim.experts.memory.buttons import CountExpert, SeqPushExpert, StopCubeExpert
from engram.sim.experts.memory.drawers import ReopenExpert
from engram.sim.experts.memory.intercept import InterceptExpert
from engram.sim.experts.memory.touch import TouchExpert, TouchUnseenExpert

MEMORY_EXPERTS: dict[str, type[MemoryExpert]] = {
    "shell_touch": TouchExpert,
    "remember_color": TouchExpert,
    "take_it_back": PutBackExpert,
    "intercept_grab": InterceptExpert,
    "put_block_back": PutBackExpert,
    "reopen_drawer": ReopenExpert,
    "rearrange_block": RearrangeExpert,
    "seq_push_buttons": SeqPushExpert,
    "change_food": ChangeFoodExpert,
    "count_presses": CountExpert,
    "stop_cube": StopCubeExpert,
    "match_color": TouchExpert,
    "touch_unseen": TouchUnseenExpert,
    "place_unseen": PlaceUnseenExpert,
}
"""Task name -> expert class."""

__all__ = ["MEMORY_EXPERTS", "MemoryExpert"]
