"""The learning curve of the page: how the newest goals went, and which weights drove."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Sequence
from itertools import pairwise

from engram.runtime.curve_note import Went
from engram.viewer.branding import ACCENT_HEX
from engram.viewer.markup import heading, paragraph

WINDOW = 10
"""Goals that a point of the curve is the mean of."""
WIDTH, HEIGHT, LEFT, BOTTOM = 360, 130, 34, 18
HELP_HEX = "#f08c00"


def curve_html(goals: Sequence[Went]) -> str:
    """Return the success of the last goals over all of ``goals``, the oldest first; nothing where there are none."""
    if not goals:
        return ""
    helped = sum(went.outcome == "h" for went in goals)
    text = f"Of the newest {len(goals)} goals {_count(goals)} were reached by the weights alone"
    text += f", {helped} with a person's help (orange)." if helped else "."
    text += f" A point is the mean of the {WINDOW} goals before it; at a dashed line other weights began to drive."
    source = "data:image/svg+xml," + urllib.parse.quote(curve_svg(goals))
    image = f'<img alt="{html.escape(text)}" style="width:100%" src="{source}"/>'
    return heading("How goals went") + image + paragraph(text)


def curve_svg(goals: Sequence[Went]) -> str:
    """Return the picture."""
    last = max(1, len(goals) - 1)
    wide, high = WIDTH - LEFT - 6, HEIGHT - BOTTOM - 8

    def at(index: int, rate: float) -> str:
        return f"{LEFT + wide * index / last:.1f},{8 + high * (1.0 - rate):.1f}"

    parts = []
    for rate in (0.0, 0.5, 1.0):
        y = at(0, rate).split(",")[1]
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - 6}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{float(y) + 3:.1f}" text-anchor="end">{rate:.0%}</text>')
    for index, (before, after) in enumerate(pairwise(goals), 1):
        if before.version != after.version:
            x = at(index, 0.0).split(",")[0]
            name = html.escape(after.version)
            parts.append(
                f'<path d="M{x} 8V{8 + high}" stroke="#868e96" stroke-dasharray="3"><title>{name}</title></path>'
            )
    for outcome, color in (("h", HELP_HEX), ("1", ACCENT_HEX)):
        if outcome == "1" or any(went.outcome == outcome for went in goals):
            line = " ".join(at(index, rate) for index, rate in enumerate(_means(goals, outcome)))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">oldest</text>')
    parts.append(f'<text x="{WIDTH - 6}" y="{HEIGHT - 4}" text-anchor="end">newest of {len(goals)} goals</text>')
    style = 'font-family="system-ui, sans-serif" font-size="10" fill="#5c6670"'
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'


def _means(goals: Sequence[Went], outcome: str) -> list[float]:
    """Return the share of ``outcome`` among the last goals at each of them."""
    hits = [went.outcome == outcome for went in goals]
    return [sum(hits[max(0, i - WINDOW) : i]) / min(i, WINDOW) for i in range(1, len(hits) + 1)]


def _count(goals: Sequence[Went]) -> int:
    return sum(went.outcome == "1" for went in goals)
