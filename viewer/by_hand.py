"""Driving by the page's buttons: each click on a motion is a key of ``engram teleop``."""

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
        self._clicked: deque[str | bool] = deque()  # keys, and whether to drive, in their order
        self._keys = Keys(self._read)
        self._device = Keyboard(self._keys, SPEED)
        with server.gui.add_folder("By hand", expand_by_default=False):
            take_over = server.gui.add_button(TAKE_OVER, hint="Drive the robot yourself (topic intervention).")
            take_over.on_click(lambda _: self._clicked.append(True))
            self._hand_back = server.gui.add_button(HAND_BACK, disabled=True)
            self._hand_back.on_click(lambda _: self._clicked.append(False))
            for label, keys in (("Move", MOVES), ("Turn", TURNS), ("Gripper", {"close or open": "g"})):
                group = server.gui.add_button_group(label, tuple(keys))
                group.on_click(partial(self._press, keys))

    def _press(self, keys: Mapping[str, str], event: viser.GuiEvent[viser.GuiButtonGroupHandle]) -> None:
        self._clicked.append(keys[event.target.value])

    def _read(self) -> str:
        """Return the keys that were clicked since the last time, or since the robot was handed back."""
        typed = ""
        while self._clicked:
            click = self._clicked.popleft()
            if isinstance(click, str):
                typed += click
            else:
                self._keys.set_driving(click)
                typed = typed if click else ""
        return typed

    def drop(self) -> None:
        """Forget the clicks that nothing came of, and who drove: they mean a robot that is not there."""
        self._clicked.clear()
        self._keys.set_driving(False)

    def wish(self, seen: Seen) -> Wish:
        """Return what the visitors want now; when the last one has left, the robot is handed back."""
        if not self._server.get_clients():
            self.drop()
        wish = self._device.read(seen)
        if wish.drives == self._hand_back.disabled:
            self._hand_back.disabled = not wish.drives
            self._hand_back.color = "orange" if wish.drives else None
        return wish
