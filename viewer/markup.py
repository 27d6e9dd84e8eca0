"""Small pieces of HTML, and numbers in words, for the page."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence

LEVEL_COLORS = {"ok": "#2b8a3e", "warn": "#d9780a", "error": "#c92a2a", "stale": "#868e96"}
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
WALL_CLOCK_NS = 1_000_000_000 * 10**9
"""Stamps above this (the year 2001) are wall-clock time; those below count from the start of a simulation."""


SHORT = 400
"""Most characters that are shown of a text which others sent."""


def shortened(text: str, most: int = SHORT) -> str:
    """Return ``text``, cut after ``most`` characters.

    >>> shortened("a stranger's words", 10)
    'a stranger ...'
    """
    return text if len(text) <= most else f"{text[:most]} ..."


def paragraph(text: str, color: str = "") -> str:
    """Return one paragraph; ``text`` is escaped."""
    style = f' style="color:{color}"' if color else ""
    return f'<div class="engram-text"{style}>{html.escape(text)}</div>' if text else ""


def heading(text: str) -> str:
    """Return the heading of a section within a tab."""
    return f'<div class="engram-heading">{html.escape(text)}</div>'


def chip(text: str, color: str) -> str:
    """Return a short word on a coloured ground."""
    return f'<span class="engram-chip" style="background:{color}">{html.escape(text)}</span>'


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table; cells are HTML already."""
    head = f"<tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in header)}</tr>" if header else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="engram-scroll"><table class="engram-table">{head}{body}</table></div>'


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return a table of plain text: every cell is escaped, the first of a row is bold."""
    return table([[f"<b>{html.escape(row[0])}</b>", *map(html.escape, row[1:])] for row in rows], header)


def duration(seconds: float) -> str:
    """Return a time span in words that one reads at a glance.

    >>> duration(8.4), duration(160), duration(7300), duration(200000)
    ('8 s', '3 min', '2 h', '2 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    for unit_s, name, most in ((MINUTE_S, "min", 100), (HOUR_S, "h", 48), (DAY_S, "days", float("inf"))):
        if seconds / unit_s < most:
            return f"{seconds / unit_s:.0f} {name}"
    raise AssertionError(seconds)


def moment(stamp_ns: int) -> str:
    """Return a stamp in words: local time of day, with the date if that is not today; else simulation time."""
    if stamp_ns < WALL_CLOCK_NS:
        return f"simulation time {stamp_ns / 1e9:.1f} s"
    then = time.localtime(stamp_ns / 1e9)
    today = time.strftime("%Y-%m-%d") == time.strftime("%Y-%m-%d", then)
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)
