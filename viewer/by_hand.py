"""Driving by the page's buttons: each click is a key of ``engram teleop``."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial

import viser

from engram.runtime.teleop import Keyboard, Keys, Seen, Wish

SPEED = 0.3
"""Share of a full action, as of ``engram teleop``."""
MOVES = {"forward": "w", "back": "s", "left": "a", "right": "d", "up": "r", "down": "f"}
TURNS = {"roll +": "u", "roll -": "o", "pitch +": "i", "pitch -": "k", "yaw +": "j", "yaw -": "l"}
TAKE_OVER, HAND_BACK = "Take over", "Hand back to the policy"


class ByHand:
    """Buttons that take over, move the tool a little at each click, and hand back."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        self._typed: deque[str] = deque()
        self._keys = Keys(self._read)
        self._device = Keyboard(self._keys, SPEED)
        with server.gui.add_folder("By hand", expand_by_default=False):
            self._switch = server.gui.add_button(TAKE_OVER, hint="Drive the robot yourself (topic intervention).")
            self._switch.on_click(lambda _: self._typed.append(" "))
            for label, keys in (("Move", MOVES), ("Turn", TURNS), ("Gripper", {"close or open": "g"})):
                group = server.gui.add_button_group(label, tuple(keys))
                group.on_click(partial(self._press, keys))

    def _press(self, keys: Mapping[str, str], event: viser.GuiEvent[viser.GuiButtonGroupHandle]) -> None:
        self._typed.append(keys[event.target.value])

    def _read(self) -> str:
        typed = ""
        while self._typed:
            typed += self._typed.popleft()
        return typed

    def drop(self) -> None:
        """Forget the clicks that nothing came of, and who drove: they mean a robot that is not there."""
        self._typed.clear()
        self._keys.drives = False

    def wish(self, seen: Seen) -> Wish:
        """Return what the visitors want now; when the last one has left, the robot is handed back."""
        if not self._server.get_clients():
            self.drop()
        wish = self._device.read(seen)
        label = HAND_BACK if wish.drives else TAKE_OVER
        if label != self._switch.label:
            self._switch.label = label
            self._switch.color = "orange" if wish.drives else None
        return wish
