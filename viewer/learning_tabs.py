"""The Learning and Gate tabs: what the learner publishes, and why weights were let drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import viser

from engram.core.types import STAGES
from engram.runtime.curve_note import CURVE, read_curve_note
from engram.runtime.policy_notes import DRIVING
from engram.viewer.learning_curve import curve_html
from engram.viewer.markup import heading, paragraph, text_table
from engram.viewer.values import Candidate, Judged, NodeState

LEARNER_PREFIX = "learner "
NO_LEARNER = (
    "No learner of this robot runs. Start it with the launch argument learner:=true. A robot that was started with "
    "learner_of has its learner on the page of the other robot."
)
ABOUT_GATE = (
    "The gate tries a candidate out in simulation against the weights that drive. The learner's parameter promote says "
    "what counts. gated: what the gate promotes may drive. manual: an operator decides. auto: every candidate drives "
    "at once, unproven."
)
DRIVES = ("canary", "approved")
"""Stages of weights that were let drive."""


def learner_html(learner: NodeState | None, candidates: Sequence[Candidate]) -> str:
    """Return how goals went, the learner's counters and the weights it announced, newest first."""
    if learner is None:
        return paragraph(NO_LEARNER) + (candidates_html(candidates) if candidates else "")
    rows = [("state", f"{learner.level}: {learner.message}")]
    rows += [(key.removeprefix(LEARNER_PREFIX).replace("_", " "), value) for key, value in _progress(learner.values)]
    curve = curve_html(read_curve_note(learner.values.get(CURVE, "")))
    return curve + heading("Learner") + text_table(rows) + candidates_html(candidates)


def _progress(values: Mapping[str, str]) -> list[tuple[str, str]]:
    own = [(k, v) for k, v in values.items() if k.startswith(LEARNER_PREFIX)]
    rest = [(k, values[k]) for k in ("stored transitions", DRIVING) if k in values]
    return [*own, *rest]


def candidates_html(candidates: Sequence[Candidate]) -> str:
    """Return the announced weights as a table."""
    if not candidates:
        return heading("Weights announced") + paragraph("none since this page began")
    rows = [(c.version, c.stage, c.parent or "none", _metrics(c.metrics)) for c in candidates]
    return heading("Weights announced") + text_table(rows, ("version", "stage", "trained from", "metrics"))


def _metrics(metrics: Mapping[str, object]) -> str:
    parts = [f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in metrics.items() if k != "parent"]
    return ", ".join(parts)


def gate_html(candidates: Sequence[Candidate], judged: Sequence[Judged] = ()) -> str:
    """Return how weights come to drive, what was announced, what the gate found, and why each of the approved drives.

    ``judged``: newest first; of a version only the newest counts.
    """
    counts = {stage: sum(c.stage == stage for c in candidates) for stage in STAGES}
    told = ", ".join(f"{n} {stage.replace('_', ' ')}" for stage, n in counts.items() if n)
    text = paragraph(ABOUT_GATE) + (paragraph(f"Announced since this page began: {told}.") if told else "")
    newest = {one.version: one for one in reversed(judged)}
    if newest:
        found = [(j.version, j.decision.replace("_", " "), str(j.pairs), j.reason) for j in newest.values()]
        text += text_table(found[::-1], ("candidate", "gate", "pairs of episodes", "because"))
    rows = [(c.version, str(c.metrics.get("approved_because", ""))) for c in candidates if c.stage in DRIVES]
    return text + (text_table(rows, ("let drive", "because")) if rows else "")


class LearningTabs:
    """Two tabs of ``group``."""

    def __init__(self, server: viser.ViserServer, group: viser.GuiTabGroupHandle) -> None:
        with group.add_tab("Learning"):
            self._learner = server.gui.add_html(learner_html(None, ()))
        with group.add_tab("Gate"):
            self._gate = server.gui.add_html(gate_html(()))

    def show(self, learner: NodeState | None, candidates: Sequence[Candidate], judged: Sequence[Judged]) -> None:
        """Show the learner's condition (None: none was heard) and what the gate found, newest first."""
        self._learner.content = learner_html(learner, candidates)
        self._gate.content = gate_html(candidates, judged)
