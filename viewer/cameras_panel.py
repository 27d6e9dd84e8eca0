"""The cameras, large, in a panel of their own beside the scene. They come and go with what the robot publishes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import viser

PANEL_WIDTH_PX = 330
JPEG_QUALITY = 85


class CamerasPanel:
    """A column of pictures at the left edge; on a phone a section of the sheet."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._gui = server.gui
        self._panel = server.gui.add_panel(order=-1.0, visible=False)
        self._tab = self._panel.add_tab("Cameras")
        self._panel.dock_left()
        self._panel.set_width(PANEL_WIDTH_PX)
        self._panel.expand()
        self._pictures: dict[str, viser.GuiImageHandle] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The cameras that are shown."""
        return tuple(self._pictures)

    def show(self, name: str, color: np.ndarray) -> None:
        """Show a picture (H, W, 3) uint8; the first of a camera makes its place."""
        if name in self._pictures:
            self._pictures[name].image = color
            return
        with self._tab:
            self._pictures[name] = self._gui.add_image(
                color, label=name, format="jpeg", jpeg_quality=JPEG_QUALITY, order=self._order(name)
            )
        self._panel.visible = True

    def keep(self, names: Collection[str]) -> None:
        """Take away the pictures of all cameras but ``names``: an old picture would look as if it were of now."""
        for name in self._pictures.keys() - names:
            self._pictures.pop(name).remove()
        self._panel.visible = bool(self._pictures)

    def _order(self, name: str) -> float:
        """Cameras stand in the order of their names, whichever is heard first."""
        return sum(ord(letter) / 256 ** (place + 1) for place, letter in enumerate(name[:6]))
