"""The slider through the memory's past: how far to go back, and back to now."""

from __future__ import annotations

from collections.abc import Callable

import viser

from engram.viewer.markup import duration, moment, paragraph

SPANS_S = {"last minute": 60, "last 10 minutes": 600, "last hour": 3600, "last day": 86400, "last 30 days": 30 * 86400}
EVERYTHING = "everything"
POSITIONS = 200
"""Steps of the slider over its span."""
NOW = "now: what is shown changes with the memory"


def stamp_at(seconds: float, now_ns: int) -> int | None:
    """Return the time that lies ``seconds`` (0 or less) from now [ns]; None: now.

    >>> stamp_at(-30.0, 100 * 10**9), stamp_at(0.0, 100 * 10**9)
    (70000000000, None)
    """
    return max(1, now_ns + round(seconds * 1e9)) if seconds < 0 else None


def spans(age_s: float) -> tuple[str, ...]:
    """Return the spans worth offering for a memory that goes back ``age_s``: all that are shorter, and everything."""
    return (*(name for name, span_s in SPANS_S.items() if span_s < age_s), EVERYTHING)


class TimeTravel:
    """Tells ``go`` the stamp [ns] that a visitor wants to see; None: now."""

    def __init__(self, server: viser.ViserServer, go: Callable[[int | None], None]) -> None:
        self._go = go
        self._age_s, self._now_ns = 0.0, 0
        self.at_ns: int | None = None  # what is asked for; None: now
        gui = server.gui
        with gui.add_folder("Time"):
            self._label = gui.add_html(paragraph(NOW))
            self._slider = gui.add_slider("Seconds from now", -1.0, 0.0, 0.01, 0.0, hint="The right end is now.")
            self._span = gui.add_dropdown("Slider covers", (EVERYTHING,))
            self._back = gui.add_button("Back to now", color="orange", visible=False)
        self._slider.on_update(lambda _: self._moved())
        self._span.on_update(lambda _: self._stretch())
        self._back.on_click(lambda _: self.to_now())

    def know(self, oldest_ns: int, now_ns: int) -> None:
        """Learn how far the memory goes back, and what time it is; while the past is looked at, the slider stays."""
        if self.at_ns is not None:
            return
        self._now_ns, self._age_s = now_ns, max(1.0, (now_ns - oldest_ns) / 1e9)
        offered = spans(self._age_s)
        if offered != self._span.options:
            self._span.options = offered
        if self._covered_s() > -1.05 * self._slider.min:  # it grew
            self._stretch()

    def to_now(self) -> None:
        """Show the present again."""
        self._slider.value = 0.0  # type: ignore[misc]  # viser has a setter of another type

    def words(self) -> str:
        """Return the time that is shown in words; empty: now."""
        if self.at_ns is None:
            return ""
        return f"{moment(self.at_ns)}, {duration((self._now_ns - self.at_ns) / 1e9)} ago"

    def _covered_s(self) -> float:
        return min(SPANS_S.get(self._span.value, self._age_s), self._age_s)

    def _stretch(self) -> None:
        """Let the slider cover the span that was chosen."""
        covered_s = self._covered_s()
        self.to_now()
        self._slider.min, self._slider.step = -covered_s, covered_s / POSITIONS

    def _moved(self) -> None:
        self.at_ns = stamp_at(self._slider.value, self._now_ns)
        self._back.visible = self.at_ns is not None
        self._label.content = paragraph(f"past: {self.words()}" if self.at_ns is not None else NOW)
        self._go(self.at_ns)
