"""The banner across the page: the robot is stopped, or what is shown is the past."""

from __future__ import annotations

import html

import viser

from engram.viewer.branding import DANGER_HEX, PAST_HEX, run_once
from engram.viewer.drive_controls import HOW_TO_RELEASE

SHOW = """
let banner = document.getElementById('engram-banner');
if (!banner) { banner = document.createElement('div'); banner.id = 'engram-banner'; document.body.prepend(banner); }
const [color, ...content] = this.dataset.with.split(' ');
banner.style.background = color;
banner.innerHTML = content.join(' ');
"""
"""Puts the banner into the body itself: within a panel of viser, it could not reach over the whole page."""


def banner_html(stopped: str, past: str) -> tuple[str, str]:
    """Return the banner and its colour; it is empty while the robot is not stopped and the graph is live.

    Args:
        stopped: why the robot is stopped; empty: it is not.
        past: the time that the graph is shown at; empty: now.
    """
    if stopped:
        text, color = f"STOPPED ({html.escape(stopped)}): the robot holds its position.", DANGER_HEX
        small = HOW_TO_RELEASE
    elif past:
        text, color = f"PAST: the memory's objects as of {html.escape(past)}.", PAST_HEX
        small = 'Robot and cameras are live. "Back to now" in the Memory tab ends this.'
    else:
        return "", "none"
    return f'<div role="alert">{text} <small>{html.escape(small)}</small></div>', color


class Banner:
    """Shows :func:`banner_html` over the whole width of the page."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._html = server.gui.add_html("")
        self._stopped = self._past = ""

    def show_stopped(self, reason: str) -> None:
        """The robot is stopped for ``reason``; empty: it is not."""
        self._stopped = reason
        self._update()

    def show_past(self, past: str) -> None:
        """The graph is shown as of ``past``; empty: now."""
        self._past = past
        self._update()

    def _update(self) -> None:
        content, color = banner_html(self._stopped, self._past)
        element = run_once(SHOW, f"{color} {content}")
        if element != self._html.content:
            self._html.content = element
