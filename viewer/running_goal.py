"""What the robot does, above all tabs: the episode, who moves the arm, and whether the goal is reached.

It is put together from topics alone, so that it is the same whoever gave the goal.
"""

from __future__ import annotations

import html
import math

from engram.core.types import EpisodeStatus, Verdict
from engram.runtime.goal_words import ACTING, HOLDING, INTERVENTION, PHASE_WORDS, WAITING, phase_of, verdict_words
from engram.viewer.markup import chip, paragraph, shortened

NOTHING = "No status of the robot has arrived yet."
PHASE_COLORS = {WAITING: "#868e96", ACTING: "#0b7285", HOLDING: "#d9780a", INTERVENTION: "#862e9c"}


class RunningGoal:
    """Keeps the newest of the episode that runs, and of how the last one ended."""

    def __init__(self) -> None:
        self._status: EpisodeStatus | None = None
        self._verdict: Verdict | None = None
        self._author = ""  # of the newest action; "" = none of this episode
        self._began_ns = self._newest_ns = 0  # of the robot's clock; began 0: not known

    def became(self, status: EpisodeStatus) -> None:
        """Take in what the episode is doing."""
        before, self._status = self._status, status
        if before is None or before.episode != status.episode:
            self._author, self._verdict = "", None
            self._began_ns = status.stamp_ns if status.step == 0 else 0
        self._newest_ns = status.stamp_ns

    def executed(self, episode: int, author: str, stamp_ns: int) -> None:
        """Take in whose action was executed."""
        if self._status is not None and episode == self._status.episode:
            self._author, self._newest_ns = author, stamp_ns

    def judged(self, verdict: Verdict) -> None:
        """Take in what the memory says of the goal; what it says of another one says nothing of this one."""
        if self._status is not None and verdict.episode == self._status.episode:
            self._verdict, self._newest_ns = verdict, verdict.stamp_ns

    def html(self, believed: str = "") -> str:
        """Return it for the page.

        Args:
            believed: the word that counts for the policy node, whoever judged; empty: nobody has.
        """
        status, verdict = self._status, self._verdict  # which another thread may change
        if status is None:
            return paragraph(NOTHING)
        words = f'"{shortened(status.instruction)}"' if status.instruction else "no task"
        step = f", step {status.step}" if status.step else ""  # of a simulation; a robot's status comes with its goal
        shown = paragraph(f"Episode {status.episode}, {status.state}: {words}{step}")
        if status.running:
            shown += self._doing(verdict)
        said = "" if verdict is None else verdict_words(verdict)
        if said and not status.running:  # a simulation ends with the success, before anybody looks at it
            said = f"before the end, {said}"
        if believed and status.running and believed.partition(":")[0] != said.partition(":")[0]:
            said = f"{believed} (counts); {said}" if said else believed
        return shown + paragraph(shortened(said))

    def _doing(self, verdict: Verdict | None) -> str:
        """Who moves the arm, for how long, and how near the goal is."""
        author = self._author
        phase, behind = phase_of(author) if author else (WAITING, "")
        progress = math.nan if verdict is None else verdict.progress
        known = not math.isnan(progress)
        told = (
            f"{'weights ' if phase == ACTING else ''}{shortened(behind)}" if behind else "",
            f"{max(0, self._newest_ns - self._began_ns) / 1e9:.0f} s" if self._began_ns else "",
            f"progress {100 * progress:.0f} %" if known else "",
        )
        rest = html.escape(", ".join(filter(None, told)))
        bar = f'<div class="engram-bar"><div style="width:{100 * progress:.0f}%"></div></div>' if known else ""
        return f'<div class="engram-text">{chip(PHASE_WORDS[phase], PHASE_COLORS[phase])} {rest}</div>{bar}'
